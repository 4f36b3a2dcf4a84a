//! How far the rows may take over the log: not past what was appended while it may have had bytes that
//! their object did not have ([`interface::StoreAction::HoldRows`]).
//!
//! Who applies the log syncs the objects and then needs the bytes in it no more. So each durable
//! position waits until all is released that was held before it.

use crate::feed::LogPosition;
use interface::{Bulk, Ticket};
use std::collections::{BTreeSet, VecDeque};

/// What a lane's log may have first.
#[derive(Debug, Default)]
pub(crate) struct LogFirst {
    /// The last number.
    held_last: u64,
    /// The numbers that are not released.
    held: BTreeSet<u64>,
    /// Durable positions, each with the last number that was held before it.
    waiting: VecDeque<(u64, LogPosition)>,
    /// One has failed: nothing is taken over any more.
    has_failed: bool,
    /// The bytes that the log wants, each with a reference to its buffer.
    wanted: Vec<(Ticket, Bulk)>,
}

impl LogFirst {
    /// Nothing that is appended from now on is taken over before this number is released.
    pub(crate) fn hold_rows(&mut self, number: u64) {
        self.held_last = number;
        self.held.insert(number);
    }

    /// Releases a number, unless the object does not have its bytes.
    pub(crate) fn release_rows(&mut self, number: u64, has_failed: bool) {
        self.held.remove(&number);
        self.has_failed |= has_failed;
    }

    /// The log wants bytes. The next turn has them: the arena of this one is emptied.
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

    /// Whether one has failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The log is durable up to here.
    pub(crate) fn on_durable(&mut self, place: LogPosition) {
        // The last position behind the same number is enough.
        self.waiting.pop_back_if(|(held_last, _)| *held_last == self.held_last);
        self.waiting.push_back((self.held_last, place));
    }

    /// The last position that may be taken over, unless it was returned already.
    pub(crate) fn take_ready(&mut self) -> Option<LogPosition> {
        if self.has_failed {
            return None;
        }
        let first = self.held.first().copied().unwrap_or(u64::MAX);
        let mut ready = None;
        while let Some((_, place)) = self.waiting.pop_front_if(|(held_last, _)| *held_last < first)
        {
            ready = Some(place);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(offset: u64) -> LogPosition {
        LogPosition { segment_no: 1, offset }
    }

    #[test]
    fn a_position_waits_for_what_was_held_before_it() {
        let mut log_first = LogFirst::default();
        log_first.on_durable(at(1));
        assert_eq!(log_first.take_ready(), Some(at(1)), "nothing is held");
        log_first.hold_rows(1);
        log_first.hold_rows(2);
        log_first.on_durable(at(2));
        log_first.hold_rows(3);
        log_first.on_durable(at(3));
        log_first.on_durable(at(4));
        log_first.release_rows(2, false);
        log_first.release_rows(3, false);
        assert_eq!(log_first.take_ready(), None, "the first is held");
        log_first.hold_rows(4);
        log_first.release_rows(1, false);
        assert_eq!(log_first.take_ready(), Some(at(4)), "the fourth is held since later");
        assert_eq!(log_first.take_ready(), None, "once");
        log_first.on_durable(at(5));
        assert_eq!(log_first.take_ready(), None);
        log_first.release_rows(4, true);
        assert_eq!(log_first.take_ready(), None, "it failed");
        assert!(log_first.has_failed());
    }
}
