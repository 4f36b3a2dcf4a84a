//! Messages between the lanes of one mount or client.

use wire::{HandleId, InodeNo, SetLock, Status, Timestamp};

/// A client lane's request to the peer lane that manages a file's locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockRequest {
    /// Lock or unlock. The managing lane numbers the wait; a `wait_id` other than 0 asks for one.
    Set {
        /// The lock.
        lock: SetLock,
        /// Through which open file.
        handle: HandleId,
    },
    /// A process closed the file: release all fcntl locks of this owner.
    Flush {
        /// The file.
        inode: InodeNo,
        /// The lock owner.
        owner: u64,
    },
}

/// What a file's contents are recognized by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileVersion {
    /// Time of the last change.
    pub ctime: Timestamp,
    /// Time of the last change of contents.
    pub mtime: Timestamp,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// A message between the lanes of one mount or client: delivered once, in order per pair of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountMessage {
    /// Mount: the kernel interrupts its request `unique`; the lane that has it acts on it.
    Interrupt {
        /// The kernel's number of the request.
        unique: u64,
    },
    /// Mount: the kernel released a handle that the receiver opened.
    Release {
        /// The handle.
        handle: HandleId,
    },
    /// Mount: the kernel has moved a directory to another parent; both by their node ids.
    Moved {
        /// The directory.
        node: u64,
        /// Its parent now.
        parent: u64,
    },
    /// Mount: the kernel can forget all names at once, as INIT has shown.
    ForgetsNames,
    /// Mount: the pages that the kernel has of a file are of this version.
    Pages {
        /// The file.
        inode: InodeNo,
        /// The version; `None`: the file is changing.
        version: Option<FileVersion>,
        /// The open file whose reply makes the kernel drop earlier pages.
        opened: Option<u64>,
    },
    /// Mount: the kernel no longer knows a file.
    Forgotten {
        /// The file.
        inode: InodeNo,
    },
    /// Mount: the server must know that a file is open, if the receiver has it open without that.
    Register {
        /// The file.
        inode: InodeNo,
    },
    /// Mount: a file is to be opened for writing at the server, if the receiver has it open to read and
    /// write without that.
    OpenToWrite {
        /// The file.
        inode: InodeNo,
    },
    /// Mount: what was under way of a file that is written behind is over.
    Written {
        /// The file.
        inode: InodeNo,
    },
    /// Mount: the file system was unmounted; end.
    Unmounted,
    /// Client: acknowledged changes of this file are lost.
    Lost {
        /// The file.
        inode: InodeNo,
    },
    /// Client: the sender was evicted this many times and has reported all its losses.
    Evicted {
        /// The count.
        count: u64,
    },
    /// Client: must a loss still be reported through this handle, which the receiver opened? The
    /// reply counts as the report.
    QueryLoss {
        /// The handle.
        handle: HandleId,
        /// The sender's own number, repeated in the reply.
        job: u64,
    },
    /// Client: a lock request to the lane that manages the file's locks.
    Lock {
        /// The sender's own number, repeated in the reply.
        job: u64,
        /// The request.
        request: LockRequest,
    },
    /// Client: the outcome of [`MountMessage::Lock`].
    LockDone {
        /// The requester's own number.
        job: u64,
        /// The outcome.
        result: Result<(), Status>,
    },
    /// Client: cancel a pending lock request.
    LockInterrupt {
        /// The requester's own number.
        job: u64,
    },
    /// Client: an open file was closed by its last holder; release the locks taken through it.
    LockRelease {
        /// The file.
        inode: InodeNo,
        /// The open file.
        handle: HandleId,
    },
    /// Client: locks on this file may exist from now on, or none do. While they may, the receiver
    /// reports its closes.
    LocksPresent {
        /// The file.
        inode: InodeNo,
        /// Whether locks may exist.
        present: bool,
    },
    /// Client: acknowledges [`MountMessage::LocksPresent`].
    LocksPresentSeen {
        /// The file.
        inode: InodeNo,
    },
    /// Client: the caller of a change of this file was answered before its end, or such a change is
    /// over.
    Abandoned {
        /// The file.
        inode: InodeNo,
        /// It is over.
        is_over: bool,
    },
    /// Client: the reply to [`MountMessage::QueryLoss`].
    LossReply {
        /// The requester's own number.
        job: u64,
        /// Whether a loss must be reported.
        lost: bool,
    },
}
