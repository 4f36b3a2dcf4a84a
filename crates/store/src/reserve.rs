//! The reserve: a file of nothing that takes space while there is some, so that a start on a full
//! disk, and the rows of what is in the logs already, have space to take.
//!
//! It is given back when the disk is full at a start or the rows have no space left, and made again
//! when there is room. Invariant: it is never more than a small part of the disk.

use crate::files;
use rustix::fs::{FallocateFlags, StatVfs, fallocate, statvfs};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Name of its file.
pub(crate) const RESERVE: &str = "reserve";

const BYTES_MAX: u64 = 64 << 20;
/// Less is of no use; a disk so small goes without.
const BYTES_MIN: u64 = 256 << 10;
/// Which part of the disk it is at most.
const PARTS: u64 = 64;
/// It grows by such a part of itself at least.
const GROWTH_PARTS: u64 = 8;

/// Lets the reserve of the store at `path` grow as far as it should, by half of what is free at
/// most. Without space, or where space cannot be reserved, it stays as it is.
pub(crate) fn fill(path: &Path) {
    let Some((full_bytes, free_bytes)) = space(path) else { return };
    let file = path.join(RESERVE);
    let own_bytes = file.metadata().map_or(0, |found| found.len());
    let wanted_bytes = full_bytes.min(own_bytes + free_bytes / 2);
    if wanted_bytes < own_bytes + full_bytes / GROWTH_PARTS {
        return;
    }
    let opened =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&file);
    // Nobody waits for it to be durable: if it is lost, it is made again.
    let taken =
        opened.is_ok_and(|file| fallocate(&file, FallocateFlags::empty(), 0, wanted_bytes).is_ok());
    if !taken {
        give(path);
    }
}

/// PrivilegedBits its space back when there is less than that much left.
pub(crate) fn give_when_full(path: &Path) {
    if space(path).is_some_and(|(full_bytes, free_bytes)| free_bytes < full_bytes) {
        give(path);
    }
}

/// PrivilegedBits its space back; whether there was any.
pub(crate) fn give(path: &Path) -> bool {
    let file = path.join(RESERVE);
    let given = file.metadata().is_ok_and(|found| found.len() > 0);
    // Only when the name is durably gone the space can be had for certain.
    given && files::remove(&file).is_ok() && files::sync_folder(path).is_ok()
}

/// What is free on the disk of this path.
pub(crate) fn free_bytes(path: &Path) -> u64 {
    statvfs(path).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

/// How large a reserve should be on this disk, and what is free on it; `None` on a small one.
fn space(path: &Path) -> Option<(u64, u64)> {
    let StatVfs { f_frsize, f_blocks, f_bavail, .. } = statvfs(path).ok()?;
    let full_bytes = (f_blocks.saturating_mul(f_frsize) / PARTS).min(BYTES_MAX);
    (full_bytes >= BYTES_MIN).then_some((full_bytes, f_bavail.saturating_mul(f_frsize)))
}
