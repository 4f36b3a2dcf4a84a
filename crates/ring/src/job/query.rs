//! Queries that a file answers at once.

use super::{Job, JobKind, Step};
use crate::driver::Token;
use crate::io_context::IoContext;
use crate::objects::Objects;
use interface::{Errno, ObjectStat};
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

impl Job {
    /// The object cannot be made. A query only tried it for the write that follows, which meets the
    /// error.
    pub(super) fn not_made(
        &mut self,
        errno: Errno,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        let JobKind::Stat { ticket, may_make: true } = self.kind else {
            return self.fail(errno, objects, io);
        };
        self.kind = JobKind::Stat { ticket, may_make: false };
        self.go(Step::Open, token, objects, io)
    }
}
