//! Whether objects can be read and written past the page cache (O_DIRECT).
//!
//! Invariant: a file system without support is refused at start, not by a failing operation.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// Alignment of offset, length and memory of a direct transfer; every buffer is aligned so.
pub(crate) const DIRECT_BYTES: u64 = 4096;
/// `STATX_DIOALIGN`, Linux 6.1.
const DIRECT_ALIGNMENT: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// Tries, with an unnamed file, whether files in a directory can be opened with O_DIRECT and accept
/// transfers of 4096 bytes.
///
/// # Errors
/// When they cannot; the text says what to do.
pub fn check_direct(dir: impl AsFd) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = match openat(&dir, c".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::INVAL) => return Err(refused("takes no O_DIRECT")),
        // The file system has no unnamed files, so this cannot be tried; the first
        // open of an object reports the error.
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let found = statx(&file, c"", AtFlags::EMPTY_PATH, DIRECT_ALIGNMENT)?;
    if found.stx_mask & DIRECT_ALIGNMENT.bits() == 0 {
        // The kernel does not report it; files opened with O_DIRECT accept whole pages.
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
