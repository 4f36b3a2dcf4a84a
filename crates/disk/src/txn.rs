//! The id of a transaction over several shards (docs/protocol.md §12).

use wire::{DecodeError, Reader, ShardId, Wire, Writer};

/// A transaction over several shards. Its number is never reused, over restarts too: its upper half
/// is the boot that began it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId {
    /// The coordinator: the shard that got the request.
    pub coordinator: ShardId,
    /// The coordinator's number for it.
    pub number: u64,
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
