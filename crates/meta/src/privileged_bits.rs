//! Privileged bits of files: sent to a file's data shard while the file is open for writing.
//!
//! A client that opens a file sees its privileged bits and clears them at its first write. It does
//! not see bits set later: the data shard refuses its writes (`NeedClearPrivileges`) until they are
//! cleared. A write to a file without privileged bits needs no extra request.

use crate::inode::Inode;
use crate::txn::Txn;
use crate::xattr;
use wire::{FileKind, InodeNo, PrivilegedBits};

impl Txn<'_> {
    /// A file's attributes or its writers changed.
    pub(crate) fn refresh_privileged_bits(&mut self, inode: InodeNo) {
        let known = self.state.inode(inode).filter(|_| self.handles.is_being_written(inode));
        let privileged_bits = known.map_or(PrivilegedBits::default(), privileged_bits_of);
        if self.handles.update_privileged_bits(inode, privileged_bits) {
            self.privileged_bits = Some((inode, privileged_bits));
        }
    }
}

fn privileged_bits_of(inode: &Inode) -> PrivilegedBits {
    if inode.row.kind != FileKind::File {
        return PrivilegedBits::default();
    }
    let capability = inode.xattrs.contains_key(xattr::CAPABILITY);
    PrivilegedBits { capability, ..inode.row.attr().privileged_bits() }
}
