//! What people are told when a limit is met: which, how often, and what came of it; of each limit at
//! most one line a second, whoever runs against it.

use crate::Lane;
use alloc::format;
use door::{Mono, Say, Turn};

/// A limit that somebody may run against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// The rules of the protocol, and the requests that may be outstanding on a connection.
    Breach,
    /// Connections of a lane.
    Connections,
    /// Connections that have not proven the secret.
    Greetings,
    /// The time for proving it.
    GreetingTime,
    /// Sessions of a lane.
    Sessions,
    /// Who does not read what he asked for.
    Slow,
    /// Who does not know the secret.
    Secret,
    /// Replays that the server never signed, or signed for what has ended since.
    Replay,
}

const LIMIT_COUNT: usize = 8;

/// What was met, and when the next line about it may be said.
#[derive(Debug, Default)]
pub(crate) struct Met {
    counts: [u64; LIMIT_COUNT],
    said_until: [Mono; LIMIT_COUNT],
}

impl Lane {
    /// A limit was met; `what` happened.
    pub(crate) fn met(&mut self, turn: &mut Turn<'_>, limit: Limit, what: &str) {
        const SAY_EVERY_MS: u64 = 1000;
        let index = limit as usize;
        self.met.counts[index] += 1;
        if turn.now.mono < self.met.said_until[index] {
            return;
        }
        self.met.said_until[index] = turn.now.mono.after_ms(SAY_EVERY_MS);
        let count = self.met.counts[index];
        let line = format!("{what} (number {count} on this lane)");
        self.say(turn, Say::Warning, &line);
    }
}
