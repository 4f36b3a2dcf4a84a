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
//!                      ◀─  QueryOutcome, after a second of silence: Commit, Abort, or no answer yet
//!   InDoubt            ─▶  fails waiters of its locks: the decision's log has failed
//! ```

use crate::peers::tagged::tagged;
use disk::TxnId;
use wire::{Bytes, ClientUuid, DecodeError, Reader, ShardId, Status, Wire, Writer};

/// A message about a transaction and one participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TxnMessage<'a> {
    pub(crate) txn: TxnId,
    /// The participant, which is the sender or the receiver.
    pub(crate) shard: ShardId,
    pub(crate) kind: TxnMessageKind<'a>,
}

impl<'a> Wire<'a> for TxnMessage<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.txn);
        to.write(&self.shard);
        to.write(&self.kind);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { txn: from.read()?, shard: from.read()?, kind: from.read()? })
    }
}

tagged! {
    /// The kind of a message.
    TxnMessageKind<'a> {
        /// Lock and report the state, for a change of this client. `frees`: it frees space.
        1 Look { client: ClientUuid, frees: bool, wants: Bytes<'a> }
        /// The state found, or why not.
        2 Seen { status: Status, found: Bytes<'a>, inode_count: u64 }
        /// Prepare this part.
        3 Prepare { part: Bytes<'a> }
        /// Durably prepared; or refused.
        4 Prepared { status: Status }
        /// Apply the part.
        5 Commit {}
        /// Durably applied.
        6 Done { inode_count: u64 }
        /// Drop the part.
        7 Abort {}
        /// The outcome is known only at the next start.
        8 InDoubt {}
        /// A participant has heard nothing about what it has prepared.
        9 QueryOutcome {}
    }
}
