//! Arguments and results of operations.

use std::ffi::OsString;
use std::path::PathBuf;
use wire::{Attr, FileKind, HandleId, InodeNo, SetTime};

/// An open file.
#[derive(Debug)]
pub struct File {
    /// The path by which it was opened.
    pub path: PathBuf,
    /// Its attributes at the open.
    pub attr: Attr,
    pub(crate) handle: HandleId,
}

impl File {
    /// The same open file, for use on another thread while its caller holds it.
    pub(crate) fn same(&self) -> Self {
        Self { path: self.path.clone(), ..*self }
    }
}

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenFor {
    /// For reading.
    Read,
    /// For writing.
    Write,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name.
    pub name: OsString,
    /// The attributes; sizes of files that are being written may be stale.
    pub attr: Attr,
}

/// A directory being listed.
#[derive(Clone, Debug)]
pub struct Dir {
    pub(crate) path: PathBuf,
    pub(crate) inode: InodeNo,
    pub(crate) parent: Option<InodeNo>,
    pub(crate) cookie: u64,
    pub(crate) end: bool,
}

impl Dir {
    /// The parent directory, known once entries were read.
    #[must_use]
    pub const fn parent(&self) -> Option<InodeNo> {
        self.parent
    }
}

/// The arguments of `mknod`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Special {
    /// Fifo, socket or device.
    pub kind: FileKind,
    /// Permission bits, before the identity's umask.
    pub mode: u32,
    /// The device number, as in [`Attr::rdev`]; ignored for other kinds.
    pub rdev: u32,
}

/// Attributes to set; `None` and [`SetTime::Keep`] do not change them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

impl Default for SetAttr {
    fn default() -> Self {
        Self { mode: None, uid: None, gid: None, atime: SetTime::Keep, mtime: SetTime::Keep }
    }
}
