//! An inode in memory, with its parts.

use crate::directory::Directory;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use disk::InodeRow;
use wire::FileKind;

/// An inode with its parts.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) row: InodeRow,
    pub(crate) body: Body,
    pub(crate) xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
}

/// The part of an inode that depends on its kind.
#[derive(Debug)]
pub(crate) enum Body {
    /// Contents, with the data shards.
    File,
    /// Entries.
    Directory(Box<Directory>),
    /// A target.
    Symlink(Box<[u8]>),
    /// Nothing: a fifo, socket or device.
    Special,
}

impl Body {
    pub(crate) fn new(kind: FileKind) -> Self {
        match kind {
            FileKind::File => Self::File,
            FileKind::Directory => Self::Directory(Box::default()),
            FileKind::Symlink => Self::Symlink(Box::default()),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                Self::Special
            }
        }
    }
}
