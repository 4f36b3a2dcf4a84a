//! The numbers that a check collects of an inode.

use wire::{FileKind, InodeNo};

/// What was seen of an inode.
#[derive(Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) kind: FileKind,
    /// Names in directories.
    pub(crate) name_count: u32,
    /// A directory's entries that are directories.
    pub(crate) subdir_count: u32,
    /// A directory's entries.
    pub(crate) entry_count: u64,
    /// The first directory that has a name of it.
    pub(crate) within: Option<InodeNo>,
    /// Its parent's row names a directory that has a name of it.
    pub(crate) parent_fits: bool,
    pub(crate) parent: InodeNo,
}
