//! What lanes of one process tell each other.

use wire::{HandleId, InodeNo};

/// A letter between sister lanes: delivered once, in order per pair of lanes.
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
    /// Client: the answer to that.
    WasLost {
        /// The asker's own number.
        job: u64,
        /// He has.
        lost: bool,
    },
}
