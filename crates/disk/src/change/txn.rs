//! Transactions over several shards: tags 20 to 24.

use crate::TxnId;
use wire::{Bytes, DecodeError, List, Reader, ShardId, Writer};

/// A step of a transaction over several shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnChange<'a> {
    /// This shard has prepared its part and holds what the part needs until the coordinator's
    /// decision.
    Prepared {
        /// Which.
        txn: TxnId,
        /// The part: changes without versions, and with cookie 0 for a new entry. Versions and
        /// cookies are assigned when it is applied.
        part: Bytes<'a>,
    },
    /// Coordinator: the transaction is committed. The coordinator's own part is in this record.
    Decided {
        /// Which.
        txn: TxnId,
        /// The other shards that prepared.
        shards: List<'a, ShardId>,
    },
    /// The prepared part is applied: its changes are in this record.
    Done {
        /// The transaction.
        txn: TxnId,
    },
    /// The prepared part is dropped.
    Aborted {
        /// The transaction.
        txn: TxnId,
    },
    /// Coordinator: all shards have applied their parts durably.
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

    /// `None` for another tag.
    pub(super) fn decode_fields(
        tag: u8,
        from: &mut Reader<'a>,
    ) -> Result<Option<Self>, DecodeError> {
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
