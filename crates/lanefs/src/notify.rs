//! What a service manager is told, where one asks by `NOTIFY_SOCKET` (sd_notify(3)); elsewhere nothing happens.
//!
//! Invariant: a manager that cannot be told stops nothing.

use sd_notify::NotifyState::{MainPid, Ready, Reloading, Status, Stopping};
use sd_notify::{NotifyState, notify};
use tracing::debug;

/// The variable that names the manager's socket.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// It does its work: `status` says which.
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

/// It reads again what can be read again, until it is [`ready`].
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
        debug!("cannot tell the service manager: {error}");
    }
}
