//! Changes of clients and their sessions: tags 13 to 17, 27 and 28.

use crate::SessionRow;
use wire::{ClientUuid, DecodeError, Reader, SessionId, Writer};

/// A change of a lane's clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientChange {
    /// A session that has changed nothing here may hold leases: the next recovery waits for it.
    SessionOpened {
        /// Which.
        session: SessionId,
        /// Its client.
        row: SessionRow,
    },
    /// A session ended regularly: its slots are dropped.
    SessionRemoved {
        /// Which.
        session: SessionId,
    },
    /// A session has been disconnected for long and has nothing to replay here: the next recovery
    /// does not wait for it. Its slots stay; its next record reopens it.
    SessionAway {
        /// Which.
        session: SessionId,
    },
    /// A client was evicted: this uuid is never accepted again (docs/protocol.md §11).
    Evicted {
        /// Which.
        client: ClientUuid,
        /// The evicting boot.
        boot_id: u64,
    },
    /// A version check of this client's replays failed; the client is evicted when the recovery
    /// ends.
    VbrFailed {
        /// Which.
        client: ClientUuid,
    },
    /// An evicted client is forgotten, except that a client of this boot was evicted.
    EvictionOver {
        /// Which.
        client: ClientUuid,
        /// The evicting boot.
        boot_id: u64,
    },
    /// A recovery of this shard has ended: lost changes with numbers below this record's have been
    /// replayed by now, or never will be (docs/protocol.md §9).
    Recovered,
}

impl ClientChange {
    pub(super) const fn tag(&self) -> u8 {
        match self {
            Self::SessionOpened { .. } => 28,
            Self::SessionRemoved { .. } => 13,
            Self::SessionAway { .. } => 14,
            Self::Evicted { .. } => 15,
            Self::VbrFailed { .. } => 16,
            Self::EvictionOver { .. } => 17,
            Self::Recovered => 27,
        }
    }

    pub(super) fn encode_fields(&self, to: &mut Writer<'_>) {
        match self {
            Self::SessionOpened { session, row } => {
                to.write(session);
                to.write(row);
            }
            Self::SessionRemoved { session } | Self::SessionAway { session } => to.write(session),
            Self::Evicted { client, boot_id } | Self::EvictionOver { client, boot_id } => {
                to.write(client);
                to.write(boot_id);
            }
            Self::VbrFailed { client } => to.write(client),
            Self::Recovered => {}
        }
    }

    /// `None` for another tag.
    pub(super) fn decode_fields(
        tag: u8,
        from: &mut Reader<'_>,
    ) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match tag {
            13 => Self::SessionRemoved { session: from.read()? },
            14 => Self::SessionAway { session: from.read()? },
            15 => Self::Evicted { client: from.read()?, boot_id: from.read()? },
            16 => Self::VbrFailed { client: from.read()? },
            17 => Self::EvictionOver { client: from.read()?, boot_id: from.read()? },
            27 => Self::Recovered,
            28 => Self::SessionOpened { session: from.read()?, row: from.read()? },
            _ => return Ok(None),
        }))
    }
}
