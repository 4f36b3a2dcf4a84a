//! The reserve: an empty file that reserves space, so that a start on a full disk, and the rows of
//! records that are in the logs already, have space.
//!
//! It is freed when the disk is full at a start or the rows have no space left, and made again when
//! there is space. Invariant: it is never more than a small part of the disk.

use crate::files;
use rustix::fs::{FallocateFlags, StatVfs, fallocate, statvfs};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The name of the file.
pub(crate) const RESERVE: &str = "reserve";

const BYTES_MAX: u64 = 64 << 20;
/// A smaller reserve is useless; such a small disk has none.
const BYTES_MIN: u64 = 256 << 10;
/// The largest part of the disk.
const PARTS: u64 = 64;
/// The smallest growth, as a part of its size.
const GROWTH_PARTS: u64 = 8;

/// Lets the reserve of the store at `path` grow to its full size, by at most half of the free
/// space. Without space, or where space cannot be reserved, it stays as it is.
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
    // It need not be durable: if it is lost, it is made again.
    let taken =
        opened.is_ok_and(|file| fallocate(&file, FallocateFlags::empty(), 0, wanted_bytes).is_ok());
    if !taken {
        free(path);
    }
}

/// Frees the reserve when there is less free space than its full size.
pub(crate) fn free_when_full(path: &Path) {
    if space(path).is_some_and(|(full_bytes, free_bytes)| free_bytes < full_bytes) {
        free(path);
    }
}

/// Frees the reserve; returns whether there was one.
pub(crate) fn free(path: &Path) -> bool {
    let file = path.join(RESERVE);
    let existed = file.metadata().is_ok_and(|found| found.len() > 0);
    // The space is available only after the removal is durable.
    existed && files::remove(&file).is_ok() && files::sync_folder(path).is_ok()
}

/// The free space on the disk of this path.
pub(crate) fn free_bytes(path: &Path) -> u64 {
    statvfs(path).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

/// The reserve's full size on this disk, and the free space; `None` on a small disk.
fn space(path: &Path) -> Option<(u64, u64)> {
    let StatVfs { f_frsize, f_blocks, f_bavail, .. } = statvfs(path).ok()?;
    let full_bytes = (f_blocks.saturating_mul(f_frsize) / PARTS).min(BYTES_MAX);
    (full_bytes >= BYTES_MIN).then_some((full_bytes, f_bavail.saturating_mul(f_frsize)))
}
