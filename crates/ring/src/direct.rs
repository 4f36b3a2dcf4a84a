//! Whether objects can be read and written past the page cache.
//!
//! Invariant: what a file system cannot do is said before anything is served, not met by an operation.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// What place, length and memory of a piece must be multiples of; every buffer begins so.
pub(crate) const DIRECT_BYTES: u64 = 4096;
/// `STATX_DIOALIGN`, Linux 6.1.
const DIRECT_ALIGNMENT: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// Tries out, with a file that has no name, whether files below a directory can be opened with O_DIRECT
/// and take pieces of 4096 bytes.
///
/// # Errors
/// When they cannot; the text says what to do.
pub fn check_direct(dir: impl AsFd) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = match openat(&dir, c".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::INVAL) => return Err(refused("takes no O_DIRECT")),
        // It knows no files without names, so that nothing can be tried out; each object tells.
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let found = statx(&file, c"", AtFlags::EMPTY_PATH, DIRECT_ALIGNMENT)?;
    if found.stx_mask & DIRECT_ALIGNMENT.bits() == 0 {
        // It does not say; what has opened a file takes whole pages.
        return Ok(());
    }
    let fits =
        |align_bytes: u32| align_bytes > 0 && DIRECT_BYTES.is_multiple_of(u64::from(align_bytes));
    if fits(found.stx_dio_mem_align) && fits(found.stx_dio_offset_align) {
        return Ok(());
    }
    Err(refused("takes no O_DIRECT in pieces of 4096 bytes"))
}

fn refused(what: &str) -> io::Error {
    let line = format!(
        "the file system under the store {what}: leave --io-direct out, or put the store on one that \
         does, such as ext4 or XFS on a disk"
    );
    io::Error::new(io::ErrorKind::Unsupported, line)
}
