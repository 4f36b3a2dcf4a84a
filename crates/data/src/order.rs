//! The order of a shard's records: a write has its number as soon as it is in its object, but its
//! record may be written only when its bytes are durable, and after those of all lower numbers.
//! So what is durable of a shard's log is always everything up to some transaction.

use crate::Outcome;
use alloc::collections::VecDeque;
use wire::Transno;

/// What will be recorded, in the order of the records.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Each with the number of its change at its object. `None`: its bytes are not durable yet.
    waiting: VecDeque<Option<(Outcome, u64)>>,
    /// The place of the first in the row of all that ever waited.
    first_no: u64,
    /// The last transaction.
    pub(crate) transno_last: Transno,
}

impl Order {
    /// Behind all that waits; its place.
    pub(crate) fn push(&mut self, outcome: Option<Outcome>) -> u64 {
        self.waiting.push_back(outcome.map(|outcome| (outcome, 0)));
        self.first_no + u64::try_from(self.waiting.len()).unwrap_or(u64::MAX) - 1
    }

    /// What has this place may be recorded.
    pub(crate) fn ready(&mut self, place_no: u64, outcome: (Outcome, u64)) {
        let index = usize::try_from(place_no - self.first_no).unwrap_or(usize::MAX);
        if let Some(place) = self.waiting.get_mut(index) {
            *place = Some(outcome);
        }
    }

    /// The next that may be recorded now.
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
