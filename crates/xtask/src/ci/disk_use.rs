//! The disk space that a run takes at its maximum.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the free space is read.
const EACH: Duration = Duration::from_secs(1);

/// A thread that reads the free space of a folder's file system. It counts what other programs
/// write there too.
pub(crate) struct DiskUse {
    end: Sender<()>,
    watching: JoinHandle<u64>,
}

impl DiskUse {
    /// Starts it. Existing contents of the folder count as used by the run.
    pub(crate) fn watch(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let before_bytes = bytes_below(folder);
        let free_bytes_at_start = free_bytes(folder)?;
        let folder = PathBuf::from(folder);
        let (end, ended) = channel();
        let watching = thread::spawn(move || {
            let mut free_bytes_min = free_bytes_at_start;
            while ended.recv_timeout(EACH) == Err(RecvTimeoutError::Timeout) {
                free_bytes_min = free_bytes_min.min(free_bytes(&folder).unwrap_or(u64::MAX));
            }
            before_bytes + (free_bytes_at_start - free_bytes_min)
        });
        Ok(Self { end, watching })
    }

    /// Stops it; returns the maximum of bytes in use.
    pub(crate) fn bytes_max(self) -> Option<u64> {
        drop(self.end);
        self.watching.join().ok()
    }
}

fn free_bytes(folder: &Path) -> Result<u64> {
    let of = rustix::fs::statvfs(folder).with_context(|| folder.display().to_string())?;
    Ok(of.f_bavail * of.f_frsize)
}

/// Bytes of all files below a folder; files that disappear meanwhile do not count.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_that_exist_already_are_counted() {
        let folder = crate::run::target_dir().join("ci/disk-use-test");
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::write(folder.join("inner/file"), vec![7; 100_000]).unwrap();
        let bytes = DiskUse::watch(&folder).unwrap().bytes_max().unwrap();
        assert!(bytes >= 100_000, "{bytes}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
