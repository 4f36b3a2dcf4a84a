//! Messages about export containment: whether an inode lies below the directory that a client's
//! export is bound to.

use super::tagged::tagged;
use wire::{ClientUuid, DecodeError, InodeNo, PeerLane, Reader, Squash, Wire, Writer};

/// A client's rights to an inode.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Use {
    /// Know that it exists.
    pub(crate) known: bool,
    /// Read it.
    pub(crate) read: bool,
    /// Change its contents.
    pub(crate) write: bool,
    /// Execute it, which reads its contents.
    pub(crate) execute: bool,
}

impl Wire<'_> for Use {
    fn encode(&self, to: &mut Writer<'_>) {
        [self.known, self.read, self.write, self.execute].iter().for_each(|right| to.write(right));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            known: from.read()?,
            read: from.read()?,
            write: from.read()?,
            execute: from.read()?,
        })
    }
}

tagged! {
    /// A question to the lane that owns an inode.
    ContainmentQuery {
        /// Does directory `dir`, which the receiver owns, lie below `top`?
        1 Below {
            /// The lane that asks.
            by: PeerLane,
            /// The possible ancestor.
            top: InodeNo,
            /// The export's root directory.
            dir: InodeNo,
        }
        /// Which rights does a client have to `inode`, which the receiver owns, in an export of
        /// `top`?
        2 Use {
            /// The lane that asks.
            by: PeerLane,
            /// The inode.
            inode: InodeNo,
            /// The client.
            client: ClientUuid,
            /// The directory.
            top: InodeNo,
            /// The identity that the client's users are mapped to.
            squash: Squash,
            /// The question's number, repeated in the reply.
            number: u64,
        }
    }
}

tagged! {
    /// A message about containment. `moves` sums the ids of all directory moves that its sender had
    /// applied. A receiver whose own sum differs does not cache the answer and asks again.
    ContainmentMessage {
        /// A question.
        1 Ask { query: ContainmentQuery }
        /// The reply to [`ContainmentQuery::Below`].
        2 Below {
            /// The upper one.
            top: InodeNo,
            /// The lower one.
            dir: InodeNo,
            /// Whether it lies below.
            below: bool,
            /// No other server had a part in the answer.
            stays: bool,
            /// See above.
            moves: u64,
        }
        /// The reply to [`ContainmentQuery::Use`].
        3 MayUse {
            /// The inode.
            inode: InodeNo,
            /// The client.
            client: ClientUuid,
            /// The rights.
            granted: Use,
            /// The question's number.
            number: u64,
            /// No other server had a part in the answer.
            stays: bool,
            /// See above.
            moves: u64,
        }
        /// Earlier replies about this inode may be stale.
        4 Changed {
            /// The inode.
            inode: InodeNo,
        }
        /// A directory was moved to another parent.
        5 Moved {
            /// The move's random id.
            id: u64,
        }
        /// `inode`, which the receiver owns, has a name in `dir`.
        6 Found {
            /// The inode.
            inode: InodeNo,
            /// The directory.
            dir: InodeNo,
        }
    }
}
