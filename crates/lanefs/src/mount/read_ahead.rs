//! How far the kernel reads ahead of a program that reads a cached file in order. INIT can only
//! lower the kernel's default.

use std::fs;
use tracing::debug;

/// Two READs of the largest size: while a program copies one, the other is under way. The kernel's
/// default is 128 KiB, in READs of 64 KiB.
const READ_AHEAD_KIB: u32 = 2048;

/// Raises it for the mount with this `MAJOR:MINOR`. Only root may, and not in every container:
/// elsewhere streams are slower.
pub(super) fn raise(device_number: Option<&str>) {
    let Some(number) = device_number else { return };
    let path = format!("/sys/class/bdi/{number}/read_ahead_kb");
    if let Err(error) = fs::write(&path, READ_AHEAD_KIB.to_string()) {
        debug!("{path}: {error}");
    }
}
