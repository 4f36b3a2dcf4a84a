//! The name of a change that takes several shards (PROTOCOL.md §14).

use wire::{Flaw, Reader, ShardId, Wire, Writer};

/// A change over several shards. Its number is never used again, over restarts too: its upper half
/// is the boot that began it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId {
    /// Who decides: the shard that was asked.
    pub coordinator: ShardId,
    /// Which of its changes.
    pub number: u64,
}

impl Wire<'_> for TxnId {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.coordinator);
        to.write(&self.number);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(Self { coordinator: from.read()?, number: from.read()? })
    }
}
