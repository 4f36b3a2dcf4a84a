//! What a record says of clients and their sessions: tags 13 to 17 and 27.

use wire::{ClientUuid, Flaw, Reader, SessionId, Writer};

/// An effect on what a lane knows of its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientChange {
    /// A session has left this shard in order: its slots are forgotten.
    SessionRemoved {
        /// Which.
        session: SessionId,
    },
    /// A session has been away for long and has nothing to replay here: the next recovery does not
    /// wait for it. Its slots stay; its next record names it again.
    SessionAway {
        /// Which.
        session: SessionId,
    },
    /// A client was evicted: it never comes back under this uuid (PROTOCOL.md §16).
    Evicted {
        /// Which.
        client: ClientUuid,
        /// The boot that did it.
        boot_id: u64,
    },
    /// A replay of this client did not fit; it will be evicted when the recovery ends.
    VbrFailed {
        /// Which.
        client: ClientUuid,
    },
    /// A client that was evicted is not remembered any more, only that one of this boot was.
    EvictionOver {
        /// Which.
        client: ClientUuid,
        /// The boot that evicted it.
        boot_id: u64,
    },
    /// A recovery of this shard has come to its end: whoever had lost something by a number below
    /// this record's has brought it back by now, or never will (PROTOCOL.md §11).
    Recovered,
}

impl ClientChange {
    pub(super) const fn tag(&self) -> u8 {
        match self {
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
            Self::SessionRemoved { session } | Self::SessionAway { session } => to.write(session),
            Self::Evicted { client, boot_id } | Self::EvictionOver { client, boot_id } => {
                to.write(client);
                to.write(boot_id);
            }
            Self::VbrFailed { client } => to.write(client),
            Self::Recovered => {}
        }
    }

    /// `None` for a tag that is none of these.
    pub(super) fn decode_fields(tag: u8, from: &mut Reader<'_>) -> Result<Option<Self>, Flaw> {
        Ok(Some(match tag {
            13 => Self::SessionRemoved { session: from.read()? },
            14 => Self::SessionAway { session: from.read()? },
            15 => Self::Evicted { client: from.read()?, boot_id: from.read()? },
            16 => Self::VbrFailed { client: from.read()? },
            17 => Self::EvictionOver { client: from.read()?, boot_id: from.read()? },
            27 => Self::Recovered,
            _ => return Ok(None),
        }))
    }
}
