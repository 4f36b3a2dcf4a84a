//! What a record says of changes over several shards: tags 20 to 24.

use crate::TxnId;
use wire::{Bytes, Flaw, List, Reader, ShardId, Writer};

/// A step of a change over several shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnChange<'a> {
    /// This shard will make its part if the coordinator says so, and keeps what that needs until it
    /// knows.
    Prepared {
        /// Which.
        txn: TxnId,
        /// The part: changes without versions and with cookie 0 for a new place. Both are given
        /// when it is made.
        part: Bytes<'a>,
    },
    /// Coordinator: it happens. Its own part stands in this record.
    Decided {
        /// Which.
        txn: TxnId,
        /// The other shards that prepared.
        shards: List<'a, ShardId>,
    },
    /// The part that was prepared is made: it stands in this record.
    Done {
        /// Of which.
        txn: TxnId,
    },
    /// The part that was prepared will not be made.
    Aborted {
        /// Of which.
        txn: TxnId,
    },
    /// Coordinator: all shards have made their part, durably.
    Forgotten {
        /// Which.
        txn: TxnId,
    },
}

impl<'a> TxnChange<'a> {
    pub(super) const fn tag(&self) -> u8 {
        match self {
            Self::Prepared { .. } => 20,
            Self::Decided { .. } => 21,
            Self::Done { .. } => 22,
            Self::Aborted { .. } => 23,
            Self::Forgotten { .. } => 24,
        }
    }

    pub(super) fn encode_fields(&self, to: &mut Writer<'_>) {
        match self {
            Self::Prepared { txn, part } => {
                to.write(txn);
                to.write(part);
            }
            Self::Decided { txn, shards } => {
                to.write(txn);
                to.write(shards);
            }
            Self::Done { txn } | Self::Aborted { txn } | Self::Forgotten { txn } => to.write(txn),
        }
    }

    /// `None` for a tag that is none of these.
    pub(super) fn decode_fields(tag: u8, from: &mut Reader<'a>) -> Result<Option<Self>, Flaw> {
        Ok(Some(match tag {
            20 => Self::Prepared { txn: from.read()?, part: from.read()? },
            21 => Self::Decided { txn: from.read()?, shards: from.read()? },
            22 => Self::Done { txn: from.read()? },
            23 => Self::Aborted { txn: from.read()? },
            24 => Self::Forgotten { txn: from.read()? },
            _ => return Ok(None),
        }))
    }
}
