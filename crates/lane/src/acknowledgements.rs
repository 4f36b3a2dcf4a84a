//! Numbered batches, and which of them are safe: those that every required member has acknowledged.
//!
//! ```text
//! open 7 ─ sealed ─▶ appended 6 ─ flushed ─▶ acknowledged up to 5 by the local flush ─┐
//!                                 acknowledged up to 4 by another required member ────┴▶ safe: 4
//! ```
//! The only member today is the flush of the lane's own log. A slow member delays what depends on
//! a batch, and nothing else.

use alloc::vec::Vec;

/// The number of a batch of this lane's log in this boot, from 1. 0 is that of what was durable
/// when the boot began, and of what has no record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct BatchNo(pub(crate) u64);

impl BatchNo {
    /// The number of the batch behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A member of the set that acknowledges batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acknowledger(pub(crate) u16);

impl Acknowledger {
    /// The flush of this lane's log.
    pub(crate) const LOCAL_FLUSH: Self = Self(0);
}

/// The required members, each with the last batch that it has acknowledged. An acknowledgement
/// covers all earlier batches.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    required: Vec<(Acknowledger, BatchNo)>,
    /// The minimum over the required members.
    safe: BatchNo,
}

impl Acknowledgements {
    pub(crate) fn new(required: &[Acknowledger]) -> Self {
        assert!(!required.is_empty(), "a batch is safe when some member has it");
        let required = required.iter().map(|member| (*member, BatchNo(0))).collect();
        Self { required, safe: BatchNo(0) }
    }

    /// From now on a batch is also not safe before this member has acknowledged it.
    #[cfg(test)]
    pub(crate) fn require(&mut self, member: Acknowledger, acknowledged: BatchNo) {
        self.required.push((member, acknowledged));
    }

    /// The last safe batch.
    pub(crate) const fn safe(&self) -> BatchNo {
        self.safe
    }

    /// A member has acknowledged all batches up to this one. A member that is not required does not
    /// count.
    pub(crate) fn acknowledge(&mut self, by: Acknowledger, up_to: BatchNo) {
        for (member, acknowledged) in &mut self.required {
            if *member == by {
                assert!(up_to >= *acknowledged, "an acknowledgement is not taken back");
                *acknowledged = up_to;
            }
        }
        let all = self.required.iter().map(|(_, acknowledged)| *acknowledged);
        self.safe = all.min().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::{Acknowledgements, Acknowledger, BatchNo};

    #[test]
    fn a_batch_is_safe_when_the_slowest_required_member_has_it() {
        let (local, slow) = (Acknowledger::LOCAL_FLUSH, Acknowledger(1));
        let mut acknowledgements = Acknowledgements::new(&[local, slow]);
        acknowledgements.acknowledge(local, BatchNo(3));
        assert_eq!(acknowledgements.safe(), BatchNo(0));
        acknowledgements.acknowledge(slow, BatchNo(2));
        assert_eq!(acknowledgements.safe(), BatchNo(2));
        acknowledgements.acknowledge(slow, BatchNo(9));
        assert_eq!(acknowledgements.safe(), BatchNo(3));
        acknowledgements.acknowledge(Acknowledger(2), BatchNo(1));
        assert_eq!(acknowledgements.safe(), BatchNo(3), "this one is not required");
    }
}
