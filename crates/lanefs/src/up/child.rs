//! One child process of `up`: its start, output and end.

use super::place::Place;
use super::plan::{EXPORT, Plan};
use super::rates::Rates;
use crate::address;
use crate::args::units::time_text;
use crate::args::{Granting, certificate_texts};
use crate::background::myself;
use crate::notify;
use anyhow::{Context as _, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::time::Instant;
use wire::ClientUuid;

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// `lanefs serve`: of several its number, from 1; 0 of the only one.
    Server(u16),
    /// `lanefs mount`.
    Mount,
}

impl Role {
    /// For people.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Server(0) => "server".to_owned(),
            Self::Server(number) => format!("server {number}"),
            Self::Mount => "mount".to_owned(),
        }
    }
}

/// What the supervisor hears.
#[derive(Debug)]
pub(crate) enum ChildEvent {
    /// A child wrote a line to its stdout.
    Line(Role, String),
    /// A child wrote a line to its stderr.
    Complaint(Role, String),
    /// A child ended, after all its lines.
    Ended(Role, ExitStatus),
    /// We are asked to end.
    Signal,
    /// The server is to read its secret and certificates again.
    Reload,
    /// What a server does, once a second.
    Rates(Role, Rates),
}

/// A running child.
#[derive(Debug)]
pub(crate) struct Child {
    pid_fd: OwnedFd,
    /// When it was started.
    pub(crate) started: Instant,
    /// It has said that it does its work.
    pub(crate) ready: bool,
}

impl Child {
    /// Starts a child. Its lines and its end come as events.
    pub(crate) fn start(
        role: Role,
        mut command: Command,
        events: &Sender<ChildEvent>,
    ) -> Result<Self> {
        // A group of its own: Ctrl-C is for us, who end our children in the right order.
        // Only `up` itself notifies the service manager.
        command.env_remove(notify::SOCKET);
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let spawned = command.spawn();
        let process = spawned.with_context(|| format!("cannot start the {}", role.text()))?;
        let pid_fd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty())?;
        listen_to(role, process, events.clone())?;
        Ok(Self { pid_fd, started, ready: false })
    }

    /// Sends a signal; one that has ended already does not hear it.
    pub(crate) fn signal(&self, signal: Signal) {
        // Its end is in the events already or will be.
        let _ended = pidfd_send_signal(&self.pid_fd, signal);
    }
}

/// A server; with `only` set it refuses another file system's store.
pub(crate) fn server_command(plan: &Plan, place: &Place, only: Option<&str>) -> Result<Command> {
    let mut command = myself();
    command.arg("serve").arg("--parent-pid").arg(std::process::id().to_string());
    command.arg("--store").arg(&place.store);
    command.arg("--secret-file").arg(&plan.secret_file);
    command.arg("--export").arg(format!("{EXPORT}=no-root-squash"));
    command.arg("--listen").arg(place.address.to_string()).arg("--listen-on-stdin");
    command.arg("--spin").arg(time_text(plan.spin));
    command.arg("--driver").arg(plan.driver.kind.text());
    command.arg("--pin").arg(plan.pin.text());
    command.args(plan.serving.texts()).args(plan.seal.texts()).args(plan.log_level.texts());
    command.args(plan.certificates.iter().flat_map(certificate_texts));
    if place.address == plan.first.address {
        command.args(plan.metrics.texts());
    }
    if let Some(cluster) = &plan.cluster {
        command.arg("--cluster").arg(&cluster.url);
    }
    if let Some(lanes) = plan.lanes {
        command.arg("--lanes").arg(lanes.to_string());
    }
    if let Some(fs) = only {
        command.arg("--only").arg(fs);
    }
    command.stdin(OwnedFd::from(place.listener.try_clone()?));
    Ok(command)
}

/// A mount called `client`, in the place of one that has ended; [`ClientUuid::NONE`] if there was none.
pub(crate) fn mount_command(plan: &Plan, client: ClientUuid, predecessor: ClientUuid) -> Command {
    let mut command = myself();
    command.arg("mount").arg("--parent-pid").arg(std::process::id().to_string());
    // Arguments are for everybody to read.
    command.env("LANEFS_MOUNT_CLIENT", client.to_string());
    command.env("LANEFS_MOUNT_PREDECESSOR", predecessor.to_string());
    command.arg("--export").arg(EXPORT);
    command.arg("--secret-file").arg(&plan.secret_file).arg("--fuse").arg(plan.fuse.text());
    command.arg("--spin").arg(time_text(plan.spin));
    command.arg("--driver").arg(plan.mount_driver.text());
    command.arg("--pin").arg(plan.pin.text());
    if let Some(lanes) = plan.lanes {
        command.arg("--lanes").arg(lanes.to_string());
    }
    command.arg("--slow").arg(time_text(plan.serving.slow.slow));
    if plan.serving.lease_grants.leases == Granting::Off {
        command.args(["--leases", "off"]);
    }
    command.args(plan.powers.texts()).args(plan.seal.texts()).args(plan.log_level.texts());
    command.stdin(Stdio::null());
    let addresses: Vec<String> = plan.servers().map(own_address).collect();
    command.arg("--").arg(addresses.join(",")).arg(&plan.dir);
    command
}

/// Where this machine reaches a server.
pub(crate) fn own_address(place: &Place) -> String {
    address::loopback_if_unspecified(place.address).to_string()
}

/// Two threads that read what the child writes; when both streams have ended, its end is waited
/// for, so that its last words come before it.
fn listen_to(role: Role, mut process: Process, events: Sender<ChildEvent>) -> Result<()> {
    let stdout = process.stdout.take();
    let stderr = process.stderr.take();
    let complaints = events.clone();
    let spawn = |name: &str| std::thread::Builder::new().name(format!("{} {name}", role.text()));
    let second = spawn("stderr").spawn(move || {
        forward(stderr, |line| complaints.send(ChildEvent::Complaint(role, line)).is_ok());
    });
    let second = second.context("cannot start a thread")?;
    let first = spawn("stdout").spawn(move || {
        forward(stdout, |line| events.send(ChildEvent::Line(role, line)).is_ok());
        // It cannot panic: the process would have been aborted.
        let _joined = second.join();
        if let Ok(status) = process.wait() {
            // Nobody listens any more when `up` itself is about to end.
            let _unheard = events.send(ChildEvent::Ended(role, status));
        }
    });
    first.context("cannot start a thread")?;
    Ok(())
}

fn forward(stream: Option<impl Read>, mut hear: impl FnMut(String) -> bool) {
    let Some(stream) = stream else { return };
    for line in BufReader::new(stream).split(b'\n') {
        let Ok(line) = line else { return };
        if !hear(String::from_utf8_lossy(&line).into_owned()) {
            return;
        }
    }
}
