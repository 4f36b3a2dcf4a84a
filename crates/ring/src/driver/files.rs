//! File operations: at once if that cannot block, else on a thread that may block.
//!
//! Invariant: a result is the kernel's own, as io_uring would return it; a call interrupted by a
//! signal reports that.

use super::Op;
use crate::number::{errno_from_raw, u32_of, usize_of};
use interface::Errno;
use std::io;

/// The result of a system call.
pub(super) fn outcome(result: impl TryInto<u64>) -> Result<u32, Errno> {
    match result.try_into() {
        Ok(count) => Ok(u32_of(usize_of(count))),
        Err(_) => Err(last_errno()),
    }
}

pub(super) fn last_errno() -> Errno {
    errno_from_raw(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Reads or writes a file as far as possible without blocking; `None`: it would block, or the file
/// system does not support non-blocking I/O.
///
/// # Safety
/// The memory that `op` names is valid, and untouched if it is to be written.
pub(super) unsafe fn now(op: Op) -> Option<Result<u32, Errno>> {
    // SAFETY: the caller vouches.
    let result = unsafe { moved(op, libc::RWF_NOWAIT) }?;
    match result {
        // A page-cache-only read does not wait for the rest.
        result if matches!(op, Op::Read { cached: true, .. }) => Some(result),
        Err(Errno(errno)) => {
            let waits = [libc::EAGAIN, libc::EOPNOTSUPP, libc::EINTR, libc::EINVAL, libc::ENOSYS];
            let waits = waits.contains(&i32::from(errno));
            (!waits).then_some(Err(Errno(errno)))
        }
        moved @ Ok(_) => Some(moved),
    }
}

/// Performs an operation, and blocks as long as it takes.
///
/// # Safety
/// What `op` names is valid until this returns, and memory that it writes is untouched.
pub(super) unsafe fn perform(op: Op) -> Result<u32, Errno> {
    match op {
        // SAFETY: the caller vouches, here and below.
        Op::Read { .. } | Op::Write { .. } => unsafe { moved(op, 0) }.unwrap_or(Err(NOT_HERE)),
        Op::WriteDurable { .. } => {
            // SAFETY: as above.
            unsafe { moved(op, libc::RWF_DSYNC) }.unwrap_or(Err(NOT_HERE))
        }
        // SAFETY: it names no memory.
        Op::Sync { file, data_only: true } => outcome(unsafe { libc::fdatasync(file) }),
        // SAFETY: as above.
        Op::Sync { file, data_only: false } => outcome(unsafe { libc::fsync(file) }),
        Op::Allocate { file, offset, range_bytes, mode } => {
            let (Some(offset), Some(range_bytes)) = (place(offset), place(range_bytes)) else {
                return Err(TOO_FAR);
            };
            // SAFETY: as above.
            outcome(unsafe { libc::fallocate64(file, mode, offset, range_bytes) })
        }
        Op::Truncate { file, size_bytes } => match place(size_bytes) {
            // SAFETY: as above.
            Some(size_bytes) => outcome(unsafe { libc::ftruncate64(file, size_bytes) }),
            None => Err(TOO_FAR),
        },
        Op::Open { dir, path, flags } => {
            // SAFETY: the caller vouches for the path.
            outcome(unsafe { libc::openat(dir, path, flags | libc::O_CLOEXEC, 0o600) })
        }
        // SAFETY: as above.
        Op::MakeDir { dir, path } => outcome(unsafe { libc::mkdirat(dir, path, 0o700) }),
        // SAFETY: as above.
        Op::Remove { dir, path } => outcome(unsafe { libc::unlinkat(dir, path, 0) }),
        Op::AcceptMany { .. }
        | Op::Connect { .. }
        | Op::Recv { .. }
        | Op::Send { .. }
        | Op::SendGathered { .. }
        | Op::ReadEvent { .. }
        | Op::ReadRequest { .. }
        | Op::WriteReply { .. }
        | Op::Writable { .. }
        | Op::Kernel { .. }
        | Op::Cancel { .. } => Err(NOT_HERE),
    }
}

/// The error of fallocate(2) and ftruncate(2) for such an offset.
const TOO_FAR: Errno = Errno(22);
const NOT_HERE: Errno = Errno(95);

/// An offset in a file, in the kernel's type.
fn place(offset: u64) -> Option<i64> {
    i64::try_from(offset).ok()
}

/// Reads or writes; `None`: `op` does neither.
///
/// # Safety
/// As [`perform`].
unsafe fn moved(op: Op, flags: i32) -> Option<Result<u32, Errno>> {
    let (file, at, piece_bytes, offset, reads) =
        if let Op::Read { file, at, read_bytes, offset, .. } = op {
            (file, at, read_bytes, offset, true)
        } else {
            let (Op::Write { file, at, write_bytes, offset, .. }
            | Op::WriteDurable { file, at, write_bytes, offset }) = op
            else {
                return None;
            };
            (file, at.cast_mut(), write_bytes, offset, false)
        };
    let Some(offset) = place(offset) else { return Some(Err(TOO_FAR)) };
    let iovec = libc::iovec { iov_base: at.cast(), iov_len: piece_bytes as usize };
    let result = if reads {
        // SAFETY: the caller vouches for the memory, which nothing else touches.
        unsafe { libc::preadv2(file, &raw const iovec, 1, offset, flags) }
    } else {
        // SAFETY: the caller vouches for the memory, which is only read.
        unsafe { libc::pwritev2(file, &raw const iovec, 1, offset, flags) }
    };
    Some(outcome(result))
}
