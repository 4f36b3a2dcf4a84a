//! Log lines about limits that are reached: which one, how often, and the consequence. At most one
//! line a second for each limit and party, so that one party's lines do not hide another's.

use crate::Lane;
use alloc::collections::BTreeMap;
use alloc::format;
use interface::{BadCertificate, LogLevel, Mono, Party, Turn};

/// A limit that clients can reach.
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
    /// Clients that do not read their replies.
    Slow,
    /// The time for finishing a frame.
    Unfinished,
    /// Clients with a wrong secret.
    Secret,
    /// Clients whose secret was retired and that did not reconnect with another.
    Retired,
    /// Clients whose export was removed.
    Unexported,
    /// Certificates refused by the server or by a client, each for its reason.
    Certificate(BadCertificate),
    /// Clients whose certificate does not open what they request.
    NotCertified,
    /// Replays that the server never signed, or of changes that cannot be replayed any more.
    Replay,
    /// Unproven claims of clients about durability.
    Claim,
    /// Changes that were durable and are lost.
    Lost,
}

/// How often a limit was reached, and when the next line about it may be logged.
#[derive(Clone, Copy, Debug, Default)]
struct LimitCount {
    count: u64,
    quiet_until: Mono,
}

/// The limits reached, by party.
#[derive(Debug, Default)]
pub(crate) struct LimitLog {
    counts: BTreeMap<(Limit, Party), LimitCount>,
}

impl LimitLog {
    /// Parties come and go with exports.
    const PARTY_COUNT_MAX: usize = 1024;
    const LINE_EVERY_MS: u64 = 1000;

    /// Counts a reached limit. Returns the count if it may be logged now.
    fn count(&mut self, by: (Limit, Party), now: Mono) -> Option<u64> {
        if self.counts.len() >= Self::PARTY_COUNT_MAX && !self.counts.contains_key(&by) {
            self.counts.retain(|_, counts| counts.quiet_until > now);
        }
        let counts = self.counts.entry(by).or_default();
        counts.count += 1;
        if now < counts.quiet_until {
            return None;
        }
        counts.quiet_until = now.after_ms(Self::LINE_EVERY_MS);
        Some(counts.count)
    }
}

impl Lane {
    /// Logs that a party has reached a limit; `what` is the consequence.
    pub(crate) fn report_limit(&mut self, turn: &mut Turn<'_>, by: (Limit, Party), what: &str) {
        let Some(count) = self.limit_log.count(by, turn.now.mono) else { return };
        let say = if by.0 == Limit::Lost { LogLevel::Alarm } else { LogLevel::Warning };
        let line = format!("{what} (number {count} on this lane)");
        self.log(turn, say, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_of_one_party_do_not_suppress_those_of_another() {
        let mut met = LimitLog::default();
        let (loud, quiet) = (Party::of_export(1), Party::STORE);
        let now = Mono(5_000_000_000);
        assert_eq!(met.count((Limit::ProtocolError, loud), now), Some(1));
        for _ in 0..1000 {
            assert_eq!(met.count((Limit::ProtocolError, loud), now), None);
        }
        assert_eq!(met.count((Limit::ProtocolError, quiet), now), Some(1));
        assert_eq!(met.count((Limit::Slow, loud), now), Some(1));
        assert_eq!(met.count((Limit::ProtocolError, loud), now.after_ms(1000)), Some(1002));
    }

    #[test]
    fn unused_parties_are_removed() {
        let mut met = LimitLog::default();
        for number in 0..10_000 {
            let now = Mono(0).after_ms(number * 10);
            met.count((Limit::ProtocolError, Party::of_export(number)), now);
        }
        assert!(met.counts.len() <= LimitLog::PARTY_COUNT_MAX);
    }
}
