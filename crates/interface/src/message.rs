//! What lanes of one process tell each other.

use crate::ContainmentMessage;
use wire::{Contents, HandleId, InodeNo, PrivilegedBits, SetLock, Status};

/// What a lane of a client asks of the one that keeps a file's locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockAsk {
    /// Lock or unlock. The keeper numbers the wait, if it is one: any `wait_id` but 0 says that.
    Set {
        /// What is asked for.
        lock: SetLock,
        /// Through which open file.
        handle: HandleId,
    },
    /// A process closed the file: all that this owner has with fcntl goes.
    Flush {
        /// The file.
        inode: InodeNo,
        /// Whose.
        owner: u64,
    },
}

/// A letter between peer lanes: delivered once, in order per pair of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mail {
    /// Server: this inode is gone for good, destroy its object at your data shard.
    DestroyObject {
        /// The file.
        inode: InodeNo,
    },
    /// Server: the object is gone, durably.
    ObjectDestroyed {
        /// The file.
        inode: InodeNo,
    },
    /// Server: this file of yours was read. Its contents were last changed then, in nanoseconds since
    /// 1970 (0: never).
    Accessed {
        /// The file.
        inode: InodeNo,
        /// See above.
        write_time_ns: u64,
    },
    /// Server: this file changed otherwise than in its contents, so the next read tells again.
    Changed {
        /// The file.
        inode: InodeNo,
    },
    /// Server: nobody writes to this file any more. Tell what you keep of it when that is durable.
    Settle {
        /// The file.
        inode: InodeNo,
        /// The question's number, given back.
        number: u64,
    },
    /// Server: the answer to [`Mail::Settle`].
    Settled {
        /// The file.
        inode: InodeNo,
        /// The question's number.
        number: u64,
        /// What is kept of it, and durable; `None` if that cannot be had.
        contents: Option<Contents>,
    },
    /// Server: this file, which somebody writes, gives this to whoever runs it: no write that takes
    /// it away goes through.
    PrivilegedBits {
        /// The file.
        inode: InodeNo,
        /// What it gives; nothing any more ends it.
        privileged_bits: PrivilegedBits,
    },
    /// Server: about clients who may not see everything.
    Containment(ContainmentMessage),
    /// Mount: the kernel interrupts its request `unique`; whoever has it, see to it.
    Interrupt {
        /// The kernel's number of the request.
        unique: u64,
    },
    /// Mount: the kernel released a handle that you opened.
    Release {
        /// The handle.
        handle: HandleId,
    },
    /// Mount: the kernel has moved a directory below another parent; both by their node ids.
    Moved {
        /// The directory.
        node: u64,
        /// Its parent now.
        parent: u64,
    },
    /// Mount: the kernel connection is gone (unmounted); end.
    Unmounted,
    /// Client: something of this file was answered and is lost.
    Lost {
        /// The file.
        inode: InodeNo,
    },
    /// Client: this lane was evicted so often, and has said of all its losses.
    Evicted {
        /// How often.
        count: u64,
    },
    /// Client: has the holder of a handle that you opened to be told of a loss? He is now.
    IsLost {
        /// The handle.
        handle: HandleId,
        /// The asker's own number, given back.
        job: u64,
    },
    /// Client: a call about a lock on a file, to the lane that keeps that file's locks.
    Lock {
        /// The asker's own number, given back.
        job: u64,
        /// What is asked.
        ask: LockAsk,
    },
    /// Client: its outcome.
    LockDone {
        /// The asker's own number.
        job: u64,
        /// What came of it.
        result: Result<(), Status>,
    },
    /// Client: whoever asked that gives up.
    LockInterrupt {
        /// The asker's own number.
        job: u64,
    },
    /// Client: an open file is closed for good, the locks that were taken through it go.
    LockRelease {
        /// The file.
        inode: InodeNo,
        /// The open file.
        handle: HandleId,
    },
    /// Client: there may be locks on this file from now on, or there are none: tell of its closes,
    /// or do not.
    LocksAt {
        /// The file.
        inode: InodeNo,
        /// Whether there may be some.
        some: bool,
    },
    /// Client: heard that there may be some.
    LocksSeen {
        /// The file.
        inode: InodeNo,
    },
    /// Client: the answer to [`Mail::IsLost`].
    WasLost {
        /// The asker's own number.
        job: u64,
        /// He has.
        lost: bool,
    },
}
