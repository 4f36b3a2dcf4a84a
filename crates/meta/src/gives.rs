//! What running a file gives, told to its data shard while somebody has the file open for writing.
//!
//! Whoever opens a file sees what it gives, and takes that away at his first write. What is given
//! later he does not see: his writes come to the data shard, which refuses them (`NeedClearPrivileges`) until
//! it is taken away. Nobody asks here because of a write to a file that gives nothing.

use crate::state::Inode;
use crate::txn::Txn;
use crate::xattr;
use wire::{FileKind, InodeNo, PrivilegedBits};

impl Txn<'_> {
    /// Something about a file was changed, or who writes it.
    pub(crate) fn look_at_gives(&mut self, inode: InodeNo) {
        let known = self.state.inode(inode).filter(|_| self.handles.is_being_written(inode));
        let gives = known.map_or(PrivilegedBits::default(), gives_of);
        if self.handles.tell_gives(inode, gives) {
            self.gives = Some((inode, gives));
        }
    }
}

fn gives_of(inode: &Inode) -> PrivilegedBits {
    if inode.row.kind != FileKind::File {
        return PrivilegedBits::default();
    }
    let capability = inode.xattrs.contains_key(xattr::CAPABILITY);
    PrivilegedBits { capability, ..inode.row.attr().gives() }
}
