//! Messages between lanes about cross-shard transactions.
//!
//! ```text
//! coordinator                  participant
//!   Look (wants)       ─▶  locks
//!                      ◀─  Seen (the state found, or why not)
//!   Prepare (part)     ─▶  Prepared record
//!                      ◀─  Prepared, when that is durable
//!   Decided record
//!   Commit, when durable ─▶ Done record, releases locks
//!                      ◀─  Done, when that is durable
//!   Abort              ─▶  releases locks, Aborted record if one was prepared
//!   InDoubt            ─▶  fails waiters of its locks: the decision's log has failed
//! ```
//! The first byte distinguishes these messages from others: 0x20 ..= 0x27.

use disk::TxnId;
use wire::{Bytes, DecodeError, ProtocolError, Reader, ShardId, Status, Wire, Writer};

/// The first byte of the first kind.
const FIRST: u8 = 0x20;
/// Kinds.
const COUNT: u8 = 8;

/// Whether a message is about a cross-shard transaction.
pub(crate) const fn is_ours(first: u8) -> bool {
    first >= FIRST && first < FIRST + COUNT
}

/// A message about a transaction and one participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TxnMessage<'a> {
    pub(crate) txn: TxnId,
    /// The participant, which is the sender or the receiver.
    pub(crate) shard: ShardId,
    pub(crate) kind: TxnMessageKind<'a>,
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TxnMessageKind<'a> {
    /// Lock and report the state. `frees`: the change frees space.
    Look { frees: bool, wants: Bytes<'a> },
    /// The state found, or why not.
    Seen { status: Status, found: Bytes<'a>, inode_count: u64 },
    /// Prepare this part.
    Prepare { part: Bytes<'a> },
    /// Durably prepared; or refused.
    Prepared { status: Status },
    /// Apply the part.
    Commit,
    /// Durably applied.
    Done { inode_count: u64 },
    /// Drop the part.
    Abort,
    /// The outcome is known only at the next start.
    InDoubt,
}

impl<'a> Wire<'a> for TxnMessage<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        let tag: u8 = match &self.kind {
            TxnMessageKind::Look { .. } => 0,
            TxnMessageKind::Seen { .. } => 1,
            TxnMessageKind::Prepare { .. } => 2,
            TxnMessageKind::Prepared { .. } => 3,
            TxnMessageKind::Commit => 4,
            TxnMessageKind::Done { .. } => 5,
            TxnMessageKind::Abort => 6,
            TxnMessageKind::InDoubt => 7,
        };
        to.write(&(FIRST + tag));
        to.write(&self.txn);
        to.write(&self.shard);
        match &self.kind {
            TxnMessageKind::Look { frees, wants } => {
                to.write(frees);
                to.write(wants);
            }
            TxnMessageKind::Seen { status, found, inode_count } => {
                to.write(status);
                to.write(found);
                to.write(inode_count);
            }
            TxnMessageKind::Prepare { part } => to.write(part),
            TxnMessageKind::Prepared { status } => to.write(status),
            TxnMessageKind::Done { inode_count } => to.write(inode_count),
            TxnMessageKind::Commit | TxnMessageKind::Abort | TxnMessageKind::InDoubt => {}
        }
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let tag = u8::decode(from)?.wrapping_sub(FIRST);
        let (txn, shard) = (from.read()?, from.read()?);
        let kind = match tag {
            0 => TxnMessageKind::Look { frees: from.read()?, wants: from.read()? },
            1 => TxnMessageKind::Seen {
                status: from.read()?,
                found: from.read()?,
                inode_count: from.read()?,
            },
            2 => TxnMessageKind::Prepare { part: from.read()? },
            3 => TxnMessageKind::Prepared { status: from.read()? },
            4 => TxnMessageKind::Commit,
            5 => TxnMessageKind::Done { inode_count: from.read()? },
            6 => TxnMessageKind::Abort,
            7 => TxnMessageKind::InDoubt,
            _ => return Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        };
        Ok(Self { txn, shard, kind })
    }
}
