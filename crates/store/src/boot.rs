//! The boot counter: incremented durably at every open, before anything else is written. It names
//! the logs of a boot, so a number is never reused.
//!
//! The rows and the logs name the boots as well. So a counter that is missing, damaged or an older
//! copy is rewritten.

use crate::{StoreError, files};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Name of the counter's file.
pub(crate) const BOOT: &str = "boot";

/// Writes the counter of a new store, which was never opened.
pub(crate) fn begin(path: &Path) -> Result<(), StoreError> {
    set(path, 0)
}

/// Writes the counter, durably.
pub(crate) fn set(path: &Path, boot_id: u64) -> Result<(), StoreError> {
    let number = format!("{boot_id}");
    let sum = wire::crc32c(number.as_bytes());
    let (file, line) = (path.join(BOOT), format!("{number} {sum:08x}\n"));
    match files::place(&file, line.as_bytes()) {
        Err(error) if error.is_of_space() && file.exists() => overwrite(&file, line.as_bytes()),
        placed => placed.map(drop),
    }
}

/// Writes the counter over the last one, because the disk has no space for another file. What a crash
/// leaves of both is no valid counter, and is rewritten.
fn overwrite(file: &Path, line: &[u8]) -> Result<(), StoreError> {
    match fs::remove_file(files::unfinished(file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StoreError::io("remove", &files::unfinished(file), error));
        }
        Ok(()) | Err(_) => {}
    }
    let written = OpenOptions::new().write(true).open(file).and_then(|opened| {
        opened.write_all_at(line, 0)?;
        opened.set_len(u64::try_from(line.len()).unwrap_or(u64::MAX))?;
        opened.sync_all()
    });
    written.map_err(|error| StoreError::io("write", file, error))
}

/// The message after a counter was rewritten.
pub(crate) fn repaired(path: &Path) -> String {
    let file = path.join(BOOT);
    format!("{} was missing, damaged or an older copy; it was rewritten", file.display())
}

/// The number of the last boot; `None` without a valid counter.
pub(crate) fn last(path: &Path) -> Result<Option<u64>, StoreError> {
    let file = path.join(BOOT);
    if !file.exists() {
        return Ok(None);
    }
    let bytes = files::read(&file)?;
    let read = || {
        let text = std::str::from_utf8(&bytes).ok()?.strip_suffix('\n')?;
        let (number, sum) = text.split_once(' ')?;
        let fits = sum == format!("{:08x}", wire::crc32c(number.as_bytes()));
        fits.then(|| number.parse().ok()).flatten()
    };
    Ok(read())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn without_space_the_counter_takes_the_place_of_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        set(folder.path(), 9).unwrap();
        let file = folder.path().join(BOOT);
        fs::write(files::unfinished(&file), "").unwrap();
        let line = format!("10 {:08x}\n", wire::crc32c(b"10"));
        overwrite(&file, line.as_bytes()).unwrap();
        assert_eq!(last(folder.path()).unwrap(), Some(10));
        assert!(!files::unfinished(&file).exists(), "an inode for the next file");
    }
}
