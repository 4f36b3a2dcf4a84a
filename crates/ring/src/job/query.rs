//! Queries that a file answers at once.

use interface::ObjectStat;
use rustix::fs::{AtFlags, SeekFrom, StatxFlags, seek, statx};
use std::os::fd::BorrowedFd;

/// The first data, or the first hole, from here on.
pub(super) fn seek_in(
    file: BorrowedFd<'_>,
    offset: u64,
    hole: bool,
) -> rustix::io::Result<Option<u64>> {
    match seek(file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) }) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Size and allocated space.
pub(super) fn stat_of(file: BorrowedFd<'_>) -> rustix::io::Result<ObjectStat> {
    /// Unit of `stx_blocks`, whatever the file system's block size.
    const STAT_BLOCK_BYTES: u64 = 512;
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    Ok(ObjectStat {
        size_bytes: found.stx_size,
        allocated_bytes: found.stx_blocks.saturating_mul(STAT_BLOCK_BYTES),
    })
}
