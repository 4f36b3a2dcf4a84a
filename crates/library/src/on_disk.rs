//! Files that a process keeps: opened without waiting, and compared with what they were.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// A file for reading. A FIFO in its place is not waited for: what is no regular file is the caller's to refuse.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

/// Which file a path led to, and its state then, without reading it: another one where it was replaced or
/// changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    /// Seconds and nanoseconds.
    modified_at: (i64, i64),
    changed_at: (i64, i64),
}

impl Stamp {
    /// `None` where nothing is, or nothing can be seen.
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
