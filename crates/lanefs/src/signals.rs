//! Signals that ask for an end, and the death of a parent.

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::fs::File;

/// The signals that ask this process to end. From here on they no longer kill it.
pub(crate) fn endings() -> Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")
}

/// Whether this process has a controlling terminal. Then SIGHUP means that the terminal was closed.
pub(crate) fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Calls `then` on its own thread for every termination signal.
pub(crate) fn on_ending(mut then: impl FnMut(i32) + Send + 'static) -> Result<Handle> {
    let mut signals = endings()?;
    let handle = signals.handle();
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let spawned = thread.spawn(move || {
        for signal in signals.forever() {
            then(signal);
        }
    });
    spawned.context("cannot start a thread")?;
    Ok(handle)
}

/// Asks the kernel to send SIGTERM to this process when its parent ends, however it ends. Returns
/// whether the parent still lives.
pub(crate) fn tie_to_parent(parent_pid: u32) -> Result<bool> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot tie to the parent")?;
    // It may have ended before the line above; then the parent has changed.
    let parent = getppid().map(Pid::as_raw_nonzero);
    Ok(parent.is_some_and(|parent| parent.get().cast_unsigned() == parent_pid))
}
