//! Notifications to a service manager, if `NOTIFY_SOCKET` is set (sd_notify(3)).
//!
//! Invariant: a failed notification does not affect the process.

use sd_notify::NotifyState::{MainPid, Ready, Reloading, Status, Stopping};
use sd_notify::{NotifyState, notify};
use tracing::debug;

/// The variable that names the manager's socket.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// The process is ready; `status` describes its work.
pub(crate) fn ready(status: &str) {
    send(&[Ready, Status(status)]);
}

/// It works on after [`reloading`], as before.
pub(crate) fn ready_again() {
    send(&[Ready]);
}

/// The same of a process that this one has left in the background.
pub(crate) fn ready_in_background(pid: u32) {
    send(&[MainPid(pid), Ready]);
}

/// What it does changed.
pub(crate) fn status(status: &str) {
    send(&[Status(status)]);
}

/// The process reloads its configuration, until it is [`ready`].
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[Reloading, now]),
        Err(error) => debug!("no time for the service manager: {error}"),
    }
}

/// It begins to end.
pub(crate) fn stopping() {
    send(&[Stopping, Status("ending")]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        debug!("cannot notify the service manager: {error}");
    }
}
