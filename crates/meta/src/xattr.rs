//! Extended attributes: namespaces, permissions, and their limits, as on Linux without a
//! security module.
//!
//! ```text
//! user.      files and directories; read and write permission; sticky directories: owner writes
//! trusted.   root only, invisible to others
//! security.  all read, root writes; writers of a file may remove its capabilities
//! system.    the two access control lists: all read, the owner writes; no others
//! lanefs.layout   the layout of a file, and that of new files in a directory: all read, the owner
//!            sets that of a directory
//! all others: not supported
//! ```

use crate::acl::{self, Acl};
use crate::credentials::{Credentials, Permissions, STICKY};
pub(crate) use crate::inode::CAPABILITY;
use crate::inode::Inode;
use wire::{FileKind, Layout, Status, XATTR_NAME_BYTES_MAX};

/// Most bytes of names and values of one inode. Two of the longest values fit.
pub const TOTAL_BYTES_MAX: usize = 144 * 1024;
/// Most bytes of a list of names, each ended by NUL, as on Linux.
pub const LIST_BYTES_MAX: usize = 65_536;

const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";

/// Checks whether the caller may read or write the attribute.
pub(crate) fn permit(
    inode: &Inode,
    name: &[u8],
    write: bool,
    credentials: &Credentials<'_>,
) -> Result<(), Status> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Status::Range);
    }
    if name.contains(&0) || [USER, TRUSTED, SECURITY].contains(&name) {
        return Err(Status::Invalid);
    }
    let hidden = if write { Status::NotPermitted } else { Status::NoData };
    let row = &inode.row;
    if name.starts_with(USER) {
        if !matches!(row.kind, FileKind::File | FileKind::Directory) {
            return Err(hidden);
        }
        let sticky = row.kind == FileKind::Directory && row.mode & STICKY != 0;
        if write && sticky && !credentials.owns(row) {
            return Err(Status::NotPermitted);
        }
        credentials.permit(
            row,
            Acl::access(inode),
            if write { Permissions::WRITE } else { Permissions::READ },
        )
    } else if name.starts_with(TRUSTED) {
        if credentials.is_root() { Ok(()) } else { Err(hidden) }
    } else if name.starts_with(SECURITY) {
        if credentials.is_root() || !write { Ok(()) } else { Err(Status::NotPermitted) }
    } else if name == Layout::XATTR && matches!(row.kind, FileKind::File | FileKind::Directory) {
        if write && !credentials.owns(row) {
            return Err(Status::NotPermitted);
        }
        if write && row.kind == FileKind::File { Err(Status::Exists) } else { Ok(()) }
    } else if !write && [acl::ACCESS, acl::DEFAULT].contains(&name) {
        if row.kind == FileKind::Symlink { Err(Status::NotSupported) } else { Ok(()) }
    } else {
        Err(Status::NotSupported)
    }
}

/// Whether the caller sees the attribute in a list.
pub(crate) fn is_visible(name: &[u8], credentials: &Credentials<'_>) -> bool {
    credentials.is_root() || !name.starts_with(TRUSTED)
}

/// Checks the limits for setting an attribute.
pub(crate) fn check_space(inode: &Inode, name: &[u8], value_bytes: usize) -> Result<(), Status> {
    let (mut total_bytes, mut list_bytes) = (name.len() + value_bytes, name.len() + 1);
    for (other, value) in inode.xattrs.iter().filter(|(other, _)| ***other != *name) {
        total_bytes += other.len() + value.len();
        list_bytes += other.len() + 1;
    }
    let fits = total_bytes <= TOTAL_BYTES_MAX && list_bytes <= LIST_BYTES_MAX;
    if fits { Ok(()) } else { Err(Status::NoSpace) }
}
