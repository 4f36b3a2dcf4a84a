//! The id of a transaction over several shards (docs/protocol.md §12).

use wire::{DecodeError, Reader, ShardId, Term, Wire, Writer};

/// A transaction over several shards. Its number is never reused, over restarts too: its upper half
/// is the term of its coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId {
    /// The coordinator: the shard that got the request.
    pub coordinator: ShardId,
    /// The coordinator's number for it.
    pub number: u64,
}

impl TxnId {
    const TERM_SHIFT: u32 = 32;

    /// The `count`-th transaction of a coordinator in a term.
    #[must_use]
    pub fn new(coordinator: ShardId, term: Term, count: u64) -> Self {
        Self { coordinator, number: (u64::from(term.0) << Self::TERM_SHIFT) | count }
    }

    /// The coordinator's term.
    #[must_use]
    pub fn term(self) -> Term {
        Term(u32::try_from(self.number >> Self::TERM_SHIFT).unwrap_or(u32::MAX))
    }
}

impl Wire<'_> for TxnId {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.coordinator);
        to.write(&self.number);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { coordinator: from.read()?, number: from.read()? })
    }
}
