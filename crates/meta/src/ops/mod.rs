//! The operations, one file each: `needs` names what must be in memory, `execute` executes it.

pub(crate) mod access;
pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod find;
pub(crate) mod getattr;
pub(crate) mod getxattr;
pub(crate) mod link;
pub(crate) mod listxattr;
pub(crate) mod lookup;
pub(crate) mod mkdir;
pub(crate) mod mknod;
pub(crate) mod open;
pub(crate) mod readdir;
pub(crate) mod readlink;
pub(crate) mod removexattr;
pub(crate) mod rename;
pub(crate) mod reopen;
pub(crate) mod rmdir;
pub(crate) mod setattr;
pub(crate) mod setxattr;
pub(crate) mod symlink;
pub(crate) mod tmpfile;
pub(crate) mod unlink;

/// Most links of an inode.
pub const LINK_COUNT_MAX: u32 = u32::MAX - 1;
