//! Whether parts of a file are in the page cache.
//!
//! The result may be outdated at once: pages can be evicted right after the call.

use crate::number::{errno_from_raw, u64_of};
use interface::Errno;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct cachestat_range`.
#[repr(C)]
struct CacheRange {
    offset: u64,
    range_bytes: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached_count: u64,
    dirty_count: u64,
    writeback_count: u64,
    evicted_count: u64,
    recently_evicted_count: u64,
}

const _: () = assert!(size_of::<CacheRange>() == 16, "struct cachestat_range");
const _: () = assert!(size_of::<CacheStat>() == 40, "struct cachestat");

/// One number on all architectures, as for every recent call (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;

/// Whether all pages of a part of a file are in the page cache. The part must not be empty.
///
/// # Errors
/// When the kernel is too old, or does not count the pages of this kind of file.
pub(crate) fn is_cached(file: BorrowedFd<'_>, part: Range<u64>) -> Result<bool, Errno> {
    assert!(part.start < part.end, "an empty part is neither here nor there");
    let page_bytes = u64_of(rustix::param::page_size());
    let page_count = (part.end - 1) / page_bytes - part.start / page_bytes + 1;
    let range = CacheRange { offset: part.start, range_bytes: part.end - part.start };
    let mut stat = CacheStat::default();
    // SAFETY: both structs have the kernel's layout and live until the call returns; it writes only
    // the second.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0)
    };
    if result == 0 {
        return Ok(stat.cached_count >= page_count);
    }
    Err(errno_from_raw(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)))
}
