//! An inode in memory, with its parts.

use crate::directory::Directory;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use disk::InodeRow;
use wire::{Attr, FileKind, attr_flag};

/// The name of the extended attribute with the capabilities of an executable file.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// An inode with its parts.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) row: InodeRow,
    pub(crate) body: Body,
    pub(crate) xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
}

impl Inode {
    /// Its attributes as a message.
    pub(crate) fn attr(&self) -> Attr {
        let attr = self.row.attr();
        Attr { flags: attr.flags | self.flags(), ..attr }
    }

    /// The flags of its attributes that do not follow from its row.
    pub(crate) fn flags(&self) -> u32 {
        let capable = self.xattrs.contains_key(CAPABILITY);
        let capability = if capable { attr_flag::CAPABILITY } else { 0 };
        let any = if self.xattrs.is_empty() { 0 } else { attr_flag::XATTRS };
        capability | any
    }
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
