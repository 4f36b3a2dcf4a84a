//! Space allocation for a range of a file: free space is checked first, and a failed allocation is
//! undone.
//!
//! A file system that runs out of space in the middle of an allocation may keep what it has
//! allocated so far (ext4 does). Invariant: a refused allocation leaves no space allocated in
//! former holes or behind the end; content and size are unchanged.

use interface::Errno;
use rustix::fs::{FallocateFlags, SeekFrom, fstatvfs, seek};
use rustix::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// Space that an allocation must leave free for logs and metadata: a thirty-second of the file
/// system, at most this.
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// Whether a file system has so many bytes available. One that reports no total has no limit.
pub(crate) fn has_space(file: impl AsFd, wanted_bytes: u64) -> io::Result<bool> {
    let found = fstatvfs(file)?;
    let total_bytes = found.f_blocks.saturating_mul(found.f_frsize);
    let available_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let reserve_bytes = (total_bytes / 32).min(RESERVE_BYTES_MAX);
    Ok(total_bytes == 0 || wanted_bytes <= available_bytes.saturating_sub(reserve_bytes))
}

/// Whether an allocation of this mode consumes space.
pub(crate) const fn takes_space(mode: i32) -> bool {
    mode.cast_unsigned() & FallocateFlags::PUNCH_HOLE.bits() == 0
}

/// Whether an allocation that failed with this errno may have consumed space: no space, quota
/// exceeded, file too long, or an I/O error.
pub(crate) const fn may_leave_space(errno: Errno) -> bool {
    const NO_SPACE: u16 = 28;
    const QUOTA: u16 = 122;
    const TOO_LONG: u16 = 27;
    const IO: u16 = 5;
    matches!(errno.0, NO_SPACE | QUOTA | TOO_LONG | IO)
}

/// Frees what an allocation of a range has left, in a file that had this size before and has it
/// again. Space that was preallocated in the range and never written is freed too.
#[derive(Clone, Debug)]
pub(crate) struct GiveBack {
    /// What is not yet freed.
    range: Range<u64>,
    pub(crate) size_bytes: u64,
}

impl GiveBack {
    pub(crate) const fn new(range: Range<u64>, size_bytes: u64) -> Self {
        Self { range, size_bytes }
    }

    /// The next range to be freed.
    pub(crate) fn next(&mut self, file: BorrowedFd<'_>) -> io::Result<Option<Range<u64>>> {
        let Range { start: at, end } = self.range;
        if at >= end {
            return Ok(None);
        }
        let inside_end = end.min(self.size_bytes);
        let hole = if at < inside_end { next_hole(file, at..inside_end)? } else { None };
        // What lies behind the end comes last: XFS frees that by this call, ext4 when a file is
        // truncated to its own size.
        let hole = hole.unwrap_or(at.max(self.size_bytes)..end);
        self.range.start = hole.end;
        Ok((hole.start < hole.end).then_some(hole))
    }
}

/// The first hole in a part of a file.
fn next_hole(file: BorrowedFd<'_>, part: Range<u64>) -> io::Result<Option<Range<u64>>> {
    let start = match seek(file, SeekFrom::Hole(part.start)) {
        Ok(hole) if hole < part.end => hole,
        Ok(_) | Err(io::Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    match seek(file, SeekFrom::Data(start)) {
        Ok(data) => Ok(Some(start..data.min(part.end))),
        Err(io::Errno::NXIO) => Ok(Some(start..part.end)),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fs::{fallocate, fstat, ftruncate};
    use std::os::unix::fs::FileExt as _;

    const KIB: u64 = 1024;

    #[test]
    fn an_allocation_beyond_the_free_space_is_refused() {
        let file = tempfile();
        assert!(has_space(&file, 4096).unwrap());
        assert!(!has_space(&file, 1 << 60).unwrap());
    }

    #[test]
    fn space_in_holes_and_behind_the_end_is_freed_and_bytes_stay() {
        let file = tempfile();
        file.write_all_at(&[7; 4096], 0).unwrap();
        file.write_all_at(&[9; 4096], 512 * KIB).unwrap();
        file.sync_all().unwrap();
        let before = fstat(&file).unwrap();
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4096 * KIB).unwrap();
        assert!(fstat(&file).unwrap().st_blocks > before.st_blocks);
        let size_bytes = before.st_size.unsigned_abs();
        give_back(file.as_fd(), 0..4096 * KIB, size_bytes).unwrap();
        let after = fstat(&file).unwrap();
        assert_eq!(after.st_size, before.st_size);
        // The extent block that ext4 may have added remains.
        assert!(after.st_blocks <= before.st_blocks + 8, "{} blocks", after.st_blocks);
        let mut bytes = vec![0; 516 << 10];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..4096] == [7; 4096] && bytes[512 << 10..] == [9; 4096]);
        assert!(bytes[4096..512 << 10].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_grown_file_gets_its_former_size() {
        let file = tempfile();
        file.write_all_at(b"bytes", 0).unwrap();
        file.sync_all().unwrap();
        let before = fstat(&file).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 1024 * KIB).unwrap();
        give_back(file.as_fd(), 0..1024 * KIB, before.st_size.unsigned_abs()).unwrap();
        let after = fstat(&file).unwrap();
        assert_eq!((after.st_size, after.st_blocks), (before.st_size, before.st_blocks));
    }

    fn give_back(file: BorrowedFd<'_>, range: Range<u64>, size_bytes: u64) -> io::Result<()> {
        ftruncate(file, size_bytes)?;
        let mut give_back = GiveBack::new(range, size_bytes);
        while let Some(hole) = give_back.next(file)? {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, punch, hole.start, hole.end - hole.start)?;
        }
        Ok(())
    }

    /// An unnamed file.
    fn tempfile() -> std::fs::File {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::RDWR | OFlags::TMPFILE;
        open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR).unwrap().into()
    }
}
