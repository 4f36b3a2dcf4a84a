//! What lanes of a server ask each other for clients who may see one directory and what lies below it.

use wire::{ClientUuid, InodeNo, LaneId, Squash};

/// What a client may do with an inode.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Use {
    /// Know of it.
    pub known: bool,
    /// Read it.
    pub read: bool,
    /// Change its contents.
    pub write: bool,
    /// Run it, which reads its contents.
    pub execute: bool,
}

/// What a lane asks another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContainmentQuery {
    /// Does this directory of yours lie below that one?
    Below {
        /// Who asks.
        by: LaneId,
        /// The upper one.
        top: InodeNo,
        /// The lower one.
        dir: InodeNo,
    },
    /// What may a client do with this inode of yours, below that directory?
    Use {
        /// Who asks.
        by: LaneId,
        /// The inode.
        inode: InodeNo,
        /// The client.
        client: ClientUuid,
        /// The directory.
        top: InodeNo,
        /// As whom the client acts.
        squash: Squash,
        /// The question's number, given back.
        number: u64,
    },
}

/// A letter about that. `moves` is the sum of all moves of directories that its writer had heard of:
/// whoever has heard of others does not keep the answer, and asks again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContainmentMessage {
    /// A question.
    Ask(ContainmentQuery),
    /// It does, or does not.
    Below {
        /// The upper one.
        top: InodeNo,
        /// The lower one.
        dir: InodeNo,
        /// Which.
        below: bool,
        /// See above.
        moves: u64,
    },
    /// This much.
    MayUse {
        /// The inode.
        inode: InodeNo,
        /// The client.
        client: ClientUuid,
        /// What.
        granted: Use,
        /// The question's number.
        number: u64,
        /// See above.
        moves: u64,
    },
    /// What was said of this inode may be otherwise now.
    Changed {
        /// The inode.
        inode: InodeNo,
    },
    /// A directory got another parent.
    Moved {
        /// Which move it was; random.
        id: u64,
    },
    /// An inode of yours has a name in this directory.
    Found {
        /// The inode.
        inode: InodeNo,
        /// The directory.
        dir: InodeNo,
    },
}
