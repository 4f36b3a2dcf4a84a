//! Files of a running process: opened without blocking, and checked for changes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a file for reading. A FIFO in its place does not block; the caller refuses special files.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

/// The identity and state of the file at a path, without reading it: a replaced or changed file has
/// another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    /// Seconds and nanoseconds.
    modified_at: (i64, i64),
    changed_at: (i64, i64),
}

impl FileStamp {
    /// `None` if there is no file, or it is not accessible.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            modified_at: (metadata.mtime(), metadata.mtime_nsec()),
            changed_at: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}
