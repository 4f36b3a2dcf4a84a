//! The boot counter: incremented durably at every open, before anything else is written. It names
//! the logs of a boot, so a number is never reused.
//!
//! The rows and the logs name the boots as well. So a counter that is missing, damaged or an older
//! copy is rewritten.

use crate::{StoreError, files};
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
    files::place(&path.join(BOOT), format!("{number} {sum:08x}\n").as_bytes()).map(drop)
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
