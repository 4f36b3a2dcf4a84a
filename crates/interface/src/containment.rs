//! Messages between a server's lanes about export containment: whether an inode lies below the
//! directory that a client's export is bound to.

use wire::{ClientUuid, InodeNo, LaneId, Squash};

/// A client's rights to an inode.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Use {
    /// Know that it exists.
    pub known: bool,
    /// Read it.
    pub read: bool,
    /// Change its contents.
    pub write: bool,
    /// Execute it, which reads its contents.
    pub execute: bool,
}

/// A question to the lane that owns an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContainmentQuery {
    /// Does directory `dir`, which the receiver owns, lie below `top`?
    Below {
        /// The lane that asks.
        by: LaneId,
        /// The possible ancestor.
        top: InodeNo,
        /// The export's root directory.
        dir: InodeNo,
    },
    /// Which rights does a client have to `inode`, which the receiver owns, in an export of `top`?
    Use {
        /// The lane that asks.
        by: LaneId,
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
    },
}

/// A message about containment. `moves` sums the ids of all directory moves that its sender had
/// applied. A receiver whose own sum differs does not cache the answer and asks again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContainmentMessage {
    /// A question.
    Ask(ContainmentQuery),
    /// The reply to [`ContainmentQuery::Below`].
    Below {
        /// The upper one.
        top: InodeNo,
        /// The lower one.
        dir: InodeNo,
        /// Whether it lies below.
        below: bool,
        /// See above.
        moves: u64,
    },
    /// The reply to [`ContainmentQuery::Use`].
    MayUse {
        /// The inode.
        inode: InodeNo,
        /// The client.
        client: ClientUuid,
        /// The rights.
        granted: Use,
        /// The question's number.
        number: u64,
        /// See above.
        moves: u64,
    },
    /// Earlier replies about this inode may be stale.
    Changed {
        /// The inode.
        inode: InodeNo,
    },
    /// A directory was moved to another parent.
    Moved {
        /// The move's random id.
        id: u64,
    },
    /// `inode`, which the receiver owns, has a name in `dir`.
    Found {
        /// The inode.
        inode: InodeNo,
        /// The directory.
        dir: InodeNo,
    },
}
