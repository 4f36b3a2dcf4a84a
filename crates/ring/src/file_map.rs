//! A file mapped for reading, as programs do that read by `mmap`.
//!
//! Only benchmarks use it. Invariant: no reference into the mapping leaves a call, because other
//! processes change its bytes at any time.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;

/// Bytes that one access reads.
const WORD_BYTES: usize = size_of::<u64>();

/// The first bytes of a file, mapped shared. A reader behind the end of the file is killed by SIGBUS.
#[derive(Debug)]
pub struct FileMap {
    start: *const u64,
    word_count: usize,
}

impl FileMap {
    /// Maps so many words of 8 bytes from the start of `file`, at least one.
    ///
    /// # Errors
    /// When the kernel or the file system does not map it.
    pub fn new(file: &File, word_count: usize) -> io::Result<Self> {
        assert!(word_count > 0, "an empty mapping is none");
        let byte_count = word_count * WORD_BYTES;
        let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: without an address the kernel places the mapping where nothing else is; the
        // descriptor is open during the call, and the mapping does not depend on it afterwards.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), byte_count, access, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), word_count })
    }

    /// Copies words from word `first` on into `out`, in the machine's byte order.
    pub fn read(&self, first: usize, out: &mut [u64]) {
        assert!(first <= self.word_count, "the first word lies in the mapping");
        assert!(out.len() <= self.word_count - first, "the last word lies in the mapping");
        for (index, word) in out.iter_mut().enumerate() {
            // SAFETY: the word lies in the mapping by the assertions above, the mapping lives as
            // long as `self`, and a page is aligned for words. The access is volatile: another
            // process may change the bytes, and every value of them is a u64.
            *word = unsafe { self.start.wrapping_add(first + index).read_volatile() };
        }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        let byte_count = self.word_count * WORD_BYTES;
        // SAFETY: the mapping is ours, of this length, and no reference into it exists.
        let result = unsafe { libc::munmap(self.start.cast_mut().cast(), byte_count) };
        assert!(result == 0, "a mapping that exists can be removed");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_map_shows_what_the_file_has_now() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 4096]).unwrap();
        let map = FileMap::new(&file, 512).unwrap();
        let mut words = [0; 2];
        map.read(510, &mut words);
        assert_eq!(words, [0x0101_0101_0101_0101; 2]);
        file.write_all_at(&[2; 8], 8 * 511).unwrap();
        map.read(510, &mut words);
        assert_eq!(words, [0x0101_0101_0101_0101, 0x0202_0202_0202_0202]);
    }
}
