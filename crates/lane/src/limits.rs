//! What people are told when a limit is met: which, how often, and what came of it; of each limit at
//! most one line a second for each party, so that nobody's noise hides what others ran against.

use crate::Lane;
use alloc::collections::BTreeMap;
use alloc::format;
use interface::{BadCertificate, LogLevel, Mono, Party, Turn};

/// A limit that somebody may run against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Limit {
    /// The rules of the protocol, and the requests that may be outstanding on a connection.
    ProtocolError,
    /// Connections of a lane.
    Connections,
    /// Connections that have not proven the secret.
    Handshakes,
    /// The time for proving it.
    HandshakeTime,
    /// Sessions of a lane.
    Sessions,
    /// Open files of a metadata shard.
    OpenFiles,
    /// Who does not read what he asked for.
    Slow,
    /// The time for sending what was begun.
    Unfinished,
    /// Who does not know the secret.
    Secret,
    /// Clients whose secret was retired and that did not reconnect with another.
    Retired,
    /// Clients whose export was removed.
    Unexported,
    /// Whose certificate is not good, or who says so of ours, each for its reason.
    Certificate(BadCertificate),
    /// Whose certificate does not open what he asks for.
    NotCertified,
    /// Replays that the server never signed, or signed for what has ended since.
    Replay,
    /// What a client says of durability, and nothing here shows.
    Claim,
    /// What was durable and is not any more.
    Lost,
}

/// How often something was met, and when the next line about it may be said.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    count: u64,
    said_until: Mono,
}

/// What was met, by whom.
#[derive(Debug, Default)]
pub(crate) struct LimitLog {
    told: BTreeMap<(Limit, Party), Told>,
}

impl LimitLog {
    /// Exports come and go, and their parties with them.
    const TOLD_COUNT_MAX: usize = 1024;
    const SAY_EVERY_MS: u64 = 1000;

    /// Something was met. The number of times, if that may be said now.
    fn meet(&mut self, by: (Limit, Party), now: Mono) -> Option<u64> {
        if self.told.len() >= Self::TOLD_COUNT_MAX && !self.told.contains_key(&by) {
            self.told.retain(|_, told| told.said_until > now);
        }
        let told = self.told.entry(by).or_default();
        told.count += 1;
        if now < told.said_until {
            return None;
        }
        told.said_until = now.after_ms(Self::SAY_EVERY_MS);
        Some(told.count)
    }
}

impl Lane {
    /// A limit was met by a party; `what` happened.
    pub(crate) fn report_limit(&mut self, turn: &mut Turn<'_>, by: (Limit, Party), what: &str) {
        let Some(count) = self.limit_log.meet(by, turn.now.mono) else { return };
        let say = if by.0 == Limit::Lost { LogLevel::Alarm } else { LogLevel::Warning };
        let line = format!("{what} (number {count} on this lane)");
        self.log(turn, say, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_of_one_party_does_not_swallow_the_line_of_another() {
        let mut met = LimitLog::default();
        let (loud, quiet) = (Party::of_export(1), Party::STORE);
        let now = Mono(5_000_000_000);
        assert_eq!(met.meet((Limit::ProtocolError, loud), now), Some(1));
        for _ in 0..1000 {
            assert_eq!(met.meet((Limit::ProtocolError, loud), now), None);
        }
        assert_eq!(met.meet((Limit::ProtocolError, quiet), now), Some(1));
        assert_eq!(met.meet((Limit::Slow, loud), now), Some(1));
        assert_eq!(met.meet((Limit::ProtocolError, loud), now.after_ms(1000)), Some(1002));
    }

    #[test]
    fn parties_that_are_gone_are_forgotten() {
        let mut met = LimitLog::default();
        for number in 0..10_000 {
            let now = Mono(0).after_ms(number * 10);
            met.meet((Limit::ProtocolError, Party::of_export(number)), now);
        }
        assert!(met.told.len() <= LimitLog::TOLD_COUNT_MAX);
    }
}
