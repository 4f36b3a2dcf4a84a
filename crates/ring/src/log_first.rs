//! How far the rows may take over the log: not past what was appended while a write was in progress
//! whose bytes the log may have first ([`interface::ObjectAction::Write`]).
//!
//! Who applies the log syncs the objects and then needs the bytes in it no more. So each durable
//! position is held until the writes that had begun before it have ended.

use crate::feed::LogPosition;
use interface::{Bulk, Ticket};
use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU64;

/// The writes of a lane that may be in the log first.
#[derive(Debug, Default)]
pub(crate) struct LogFirst {
    begun_count: u64,
    /// The numbers of those in progress.
    running: BTreeSet<NonZeroU64>,
    /// Durable positions, each with how many writes had begun.
    held: VecDeque<(u64, LogPosition)>,
    /// One has failed: nothing is taken over any more.
    has_failed: bool,
    /// Those whose bytes the log wants, each with a reference to its buffer.
    wanted: Vec<(Ticket, Bulk)>,
}

impl LogFirst {
    /// A write begins; returns its number.
    pub(crate) fn begin(&mut self) -> Option<NonZeroU64> {
        self.begun_count += 1;
        let number = NonZeroU64::new(self.begun_count);
        self.running.extend(number);
        number
    }

    /// The log wants the bytes of a write. The next turn has them: the arena of this one is emptied.
    pub(crate) fn load(&mut self, ticket: Ticket, bulk: Bulk) {
        self.wanted.push((ticket, bulk));
    }

    /// Whether the next turn has bytes for the log.
    pub(crate) const fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Takes what the log wants.
    pub(crate) fn take_wanted(&mut self) -> Vec<(Ticket, Bulk)> {
        std::mem::take(&mut self.wanted)
    }

    /// A write has ended; it is one of these if it has a number.
    pub(crate) fn end(&mut self, number: Option<NonZeroU64>, has_failed: bool) {
        let Some(number) = number else { return };
        self.running.remove(&number);
        self.has_failed |= has_failed;
    }

    /// Whether one has failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The log is durable up to here.
    pub(crate) fn hold(&mut self, place: LogPosition) {
        // One position for the same writes is enough.
        if self.held.back().is_some_and(|(begun_count, _)| *begun_count == self.begun_count) {
            self.held.pop_back();
        }
        self.held.push_back((self.begun_count, place));
    }

    /// The last position that may be taken over, unless it was returned already.
    pub(crate) fn take_ready(&mut self) -> Option<LogPosition> {
        if self.has_failed {
            return None;
        }
        let first = self.running.first().map_or(u64::MAX, |number| number.get());
        let mut ready = None;
        while let Some((_, place)) = self.held.pop_front_if(|(begun, _)| *begun < first) {
            ready = Some(place);
        }
        ready
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const fn at(offset: u64) -> LogPosition {
        LogPosition { segment_no: 1, offset }
    }

    #[test]
    fn a_position_waits_for_the_writes_that_began_before_it() {
        let mut log_first = LogFirst::default();
        log_first.hold(at(1));
        assert_eq!(log_first.take_ready(), Some(at(1)), "nothing is in progress");
        let [one, two] = [(); 2].map(|()| log_first.begin());
        log_first.hold(at(2));
        let three = log_first.begin();
        log_first.hold(at(3));
        log_first.hold(at(4));
        log_first.end(two, false);
        log_first.end(three, false);
        assert_eq!(log_first.take_ready(), None, "the first has not ended");
        let four = log_first.begin();
        log_first.end(one, false);
        assert_eq!(log_first.take_ready(), Some(at(4)), "the fourth began later");
        assert_eq!(log_first.take_ready(), None, "once");
        log_first.hold(at(5));
        assert_eq!(log_first.take_ready(), None);
        log_first.end(four, true);
        assert_eq!(log_first.take_ready(), None, "it failed");
        assert!(log_first.has_failed());
    }
}
