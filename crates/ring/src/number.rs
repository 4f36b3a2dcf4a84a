//! Conversions between integer widths that are lossless in this crate.
//!
//! Every count here is far below 4 GiB (a frame, a buffer, an iovec) or is a 64-bit offset on a
//! 64-bit machine; a value outside is a bug and stops the process.

use interface::Errno;

const _: () = assert!(size_of::<usize>() == 8, "ring is written for 64-bit machines");

/// A byte count or index as `u32`.
#[track_caller]
pub(crate) fn u32_of(count: usize) -> u32 {
    let Ok(count) = u32::try_from(count) else { panic!("{count} does not fit 32 bits") };
    count
}

/// A 64-bit number as a count of things in memory.
#[track_caller]
pub(crate) fn usize_of(count: u64) -> usize {
    let Ok(count) = usize::try_from(count) else { panic!("{count} does not fit the memory") };
    count
}

/// A count as a 64-bit number.
pub(crate) const fn u64_of(count: usize) -> u64 {
    count as u64
}

/// The errno of a failed system call.
pub(crate) fn errno_of(error: rustix::io::Errno) -> Errno {
    errno_from_raw(error.raw_os_error())
}

/// A positive errno number; EIO for what is none.
pub(crate) fn errno_from_raw(number: i32) -> Errno {
    Errno(u16::try_from(number).ok().filter(|number| *number > 0).unwrap_or(5))
}
