//! The lock: one server per store. The kernel releases it when the process ends, in whatever way.

use crate::{StoreError, StoreFault};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Name of the lock's file.
pub(crate) const LOCK: &str = "lock";

/// Holds the lock. The file stays; only the kernel's lock on it counts.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of the store at `path`; the error names the process that has it.
    pub(crate) fn take(path: &Path) -> Result<Self, StoreError> {
        let lock_path = path.join(LOCK);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|error| StoreError::io("open", &lock_path, error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = pid_in(&mut file);
                return Err(StoreError::new(path, StoreFault::Locked { pid }));
            }
            Err(errno) => return Err(StoreError::io("lock", &lock_path, errno)),
        }
        let pid = std::process::id();
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{pid}"));
        // The number is for the message of a second start only: a full disk must not prevent this one.
        drop(written);
        Ok(Self { _file: file })
    }
}

fn pid_in(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
