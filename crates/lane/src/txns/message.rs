//! What lanes write to each other about a change over several shards.
//!
//! ```text
//! coordinator                  participant
//!   Look (wants)       ─▶  locks
//!                      ◀─  Seen (what there is, or why not)
//!   Prepare (part)     ─▶  Prepared record
//!                      ◀─  Prepared, when that is durable
//!   Decided record
//!   Commit, when durable ─▶ Done record, locks go
//!                      ◀─  Done, when that is durable
//!   Abort              ─▶  locks go, Aborted record if one was prepared
//!   InDoubt            ─▶  nobody waits for the locks: the decision's log is broken
//! ```
//! The first byte tells these letters from others: 0x20 ..= 0x27.

use disk::TxnId;
use wire::{Bytes, DecodeError, ProtocolError, Reader, ShardId, Status, Wire, Writer};

/// The first byte of the first kind.
const FIRST: u8 = 0x20;
/// Kinds.
const COUNT: u8 = 8;

/// Whether a letter is about a change over several shards.
pub(crate) const fn is_ours(first: u8) -> bool {
    first >= FIRST && first < FIRST + COUNT
}

/// A letter: which change, which participant, what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Letter<'a> {
    pub(crate) txn: TxnId,
    /// The participant, whether it writes or is written to.
    pub(crate) shard: ShardId,
    pub(crate) words: Words<'a>,
}

/// What a letter says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Words<'a> {
    /// Lock and tell. `frees`: the change gives space back.
    Look { frees: bool, wants: Bytes<'a> },
    /// What there is, or why not.
    Seen { status: Status, told: Bytes<'a>, inode_count: u64 },
    /// Be ready to make this part.
    Prepare { part: Bytes<'a> },
    /// Ready, durably; or not.
    Prepared { status: Status },
    /// Make it.
    Commit,
    /// Made, durably.
    Done { inode_count: u64 },
    /// Forget it.
    Abort,
    /// Whether it was decided is known at the next start.
    InDoubt,
}

impl<'a> Wire<'a> for Letter<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        let kind: u8 = match &self.words {
            Words::Look { .. } => 0,
            Words::Seen { .. } => 1,
            Words::Prepare { .. } => 2,
            Words::Prepared { .. } => 3,
            Words::Commit => 4,
            Words::Done { .. } => 5,
            Words::Abort => 6,
            Words::InDoubt => 7,
        };
        to.write(&(FIRST + kind));
        to.write(&self.txn);
        to.write(&self.shard);
        match &self.words {
            Words::Look { frees, wants } => {
                to.write(frees);
                to.write(wants);
            }
            Words::Seen { status, told, inode_count } => {
                to.write(status);
                to.write(told);
                to.write(inode_count);
            }
            Words::Prepare { part } => to.write(part),
            Words::Prepared { status } => to.write(status),
            Words::Done { inode_count } => to.write(inode_count),
            Words::Commit | Words::Abort | Words::InDoubt => {}
        }
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind = u8::decode(from)?.wrapping_sub(FIRST);
        let (txn, shard) = (from.read()?, from.read()?);
        let words = match kind {
            0 => Words::Look { frees: from.read()?, wants: from.read()? },
            1 => {
                Words::Seen { status: from.read()?, told: from.read()?, inode_count: from.read()? }
            }
            2 => Words::Prepare { part: from.read()? },
            3 => Words::Prepared { status: from.read()? },
            4 => Words::Commit,
            5 => Words::Done { inode_count: from.read()? },
            6 => Words::Abort,
            7 => Words::InDoubt,
            _ => return Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        };
        Ok(Self { txn, shard, words })
    }
}
