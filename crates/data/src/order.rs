//! The order of a shard's records: a write gets its number when it is in its object, but its record
//! may be written only when its bytes are durable, and after the records of all lower numbers. So
//! the durable part of a shard's log is always a prefix of its transactions.

use crate::Outcome;
use alloc::collections::VecDeque;
use wire::Transno;

/// The outcomes to be recorded, in the order of the records.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The outcomes with their change numbers at their objects. `None`: its bytes are not durable
    /// yet.
    waiting: VecDeque<Option<(Outcome, u64)>>,
    /// The position of the first one among all that were ever pushed.
    first_no: u64,
    /// The last transaction.
    pub(crate) transno_last: Transno,
}

impl Order {
    /// Adds an outcome at the end; returns its position.
    pub(crate) fn push(&mut self, outcome: Option<Outcome>) -> u64 {
        self.waiting.push_back(outcome.map(|outcome| (outcome, 0)));
        self.first_no + u64::try_from(self.waiting.len()).unwrap_or(u64::MAX) - 1
    }

    /// Sets the outcome at a position: it may be recorded.
    pub(crate) fn ready(&mut self, place_no: u64, outcome: (Outcome, u64)) {
        let index = usize::try_from(place_no - self.first_no).unwrap_or(usize::MAX);
        if let Some(place) = self.waiting.get_mut(index) {
            *place = Some(outcome);
        }
    }

    /// Takes the next outcome that may be recorded now.
    pub(crate) fn pop(&mut self) -> Option<(Outcome, u64)> {
        let next = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.first_no += 1;
        Some(next)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
