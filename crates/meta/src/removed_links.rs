//! Targets of symbolic links that were removed a moment ago.
//!
//! A path is walked in two requests: a lookup of the link and a read of its target. If another client
//! replaces the link in between, the second one would be refused, and the kernel tries a walk anew
//! only once. A local file system has no such moment, because the walk holds the inode. A link's
//! target never changes, so answering with it is right for a walk that began before the removal.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use wire::InodeNo;

/// Of all targets of a shard, and their entries.
const BYTES_MAX: usize = 16 << 10;
/// An entry beside its target.
const ENTRY_BYTES: usize = 32;

/// The targets of the links that were removed last. A restart forgets them.
#[derive(Default, Debug)]
pub(crate) struct RemovedLinks {
    links: VecDeque<(InodeNo, Box<[u8]>)>,
    used_bytes: usize,
}

impl RemovedLinks {
    /// A link is removed. The oldest ones are forgotten for it.
    pub(crate) fn add(&mut self, inode: InodeNo, target: Box<[u8]>) {
        self.used_bytes += target.len() + ENTRY_BYTES;
        self.links.push_back((inode, target));
        while self.used_bytes > BYTES_MAX
            && let Some((_, forgotten)) = self.links.pop_front()
        {
            self.used_bytes -= forgotten.len() + ENTRY_BYTES;
        }
    }

    /// The target of a removed link, while it is known.
    pub(crate) fn target(&self, inode: InodeNo) -> Option<&[u8]> {
        self.links.iter().find(|(removed, _)| *removed == inode).map(|(_, target)| &**target)
    }
}
