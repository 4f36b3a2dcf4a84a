//! The kernel's switch for FUSE over io_uring: on while tests or measurements run, then restored.

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::path::Path;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Restores the switch when dropped, and when the process gets a signal to end.
pub(crate) struct UringOn {
    before: String,
}

impl UringOn {
    /// Turns it on. `None` where the kernel has no such switch, with the reason.
    pub(crate) fn new() -> Result<Result<Self, String>> {
        if !Path::new(SWITCH).exists() {
            return Ok(Err(format!("{SWITCH} does not exist (Linux before 6.14)")));
        }
        let before = fs::read_to_string(SWITCH)?;
        if let Err(error) = fs::write(SWITCH, "Y") {
            return Ok(Err(format!("cannot write {SWITCH}: {error}")));
        }
        let on_end = before.clone();
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                put_back(&on_end);
                std::process::exit(128 + signal);
            }
        });
        Ok(Ok(Self { before }))
    }
}

impl Drop for UringOn {
    fn drop(&mut self) {
        put_back(&self.before);
    }
}

fn put_back(before: &str) {
    if let Err(error) = fs::write(SWITCH, before.trim_end()) {
        eprintln!("cannot put {SWITCH} back to {}: {error}", before.trim_end());
    }
}
