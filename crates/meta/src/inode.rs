//! An inode in memory, with its parts.

use crate::directory::Directory;
use crate::xattr;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use disk::InodeRow;
use wire::{Attr, FileKind, attr_flag};

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
        Attr { flags: attr.flags | self.xattr_flags(), ..attr }
    }

    /// The flags of its attributes that follow from its extended ones.
    pub(crate) fn xattr_flags(&self) -> u32 {
        let capable = self.xattrs.contains_key(xattr::CAPABILITY);
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
