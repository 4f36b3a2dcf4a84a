//! The boot counter: raised durably at every opening, before anything else is written. It names the
//! logs of a boot, so a number is never used twice.

use crate::{StoreError, StoreFault, files};
use disk::Fault;
use std::path::Path;

/// Name of the counter's file.
pub(crate) const BOOT: &str = "boot";

/// Writes the counter of a store that is being made: never opened yet.
pub(crate) fn begin(path: &Path) -> Result<(), StoreError> {
    files::place(&path.join(BOOT), b"0\n").map(drop)
}

/// The next boot's number, durable. It lies above `logged`, the highest boot that left a log, even
/// if an older counter was brought back from a copy.
pub(crate) fn raise(path: &Path, logged: u64) -> Result<u64, StoreError> {
    let file = path.join(BOOT);
    if !file.exists() {
        return Err(StoreError::new(&file, StoreFault::Missing));
    }
    let bytes = files::read(&file)?;
    let last: u64 = std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| {
            let fault = Fault::new("the boot counter is no number", 0);
            StoreError::new(&file, StoreFault::Damage(fault))
        })?;
    let boot_id = last.max(logged).saturating_add(1);
    files::place(&file, format!("{boot_id}\n").as_bytes())?;
    Ok(boot_id)
}
