//! Whom to connect to, and as whom.

use crate::Certificates;
use ring::{DriverChoice, Sealing};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use wire::{Purpose, Secret};

/// How to reach a volume.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The server.
    pub address: SocketAddr,
    /// The secret it shares with us: the store's, or the export's own.
    pub secret: Secret,
    /// The file that it is from: read again when the server refuses what we hold, so that a new secret is
    /// taken up when it lies there. `None`: the secret stays what it is.
    pub secret_file: Option<PathBuf>,
    /// The export wanted; empty for the default one.
    pub export: String,
    /// What for: [`Purpose::Administer`] is for [`crate::Volume::exports`] and its peer lanes.
    pub purpose: Purpose,
    /// As whom operations are done.
    pub identity: Identity,
    /// How long a first or lost connection may take to be there.
    pub connect_timeout: Duration,
    /// What the volume reaches the kernel through: io_uring where this process may use it, else epoll
    /// ([`DriverChoice::Auto`]), or the one that is named.
    pub driver: DriverChoice,
    /// Whether connections are under TLS: where the address is not loopback ([`Sealing::Auto`]), always
    /// or never. Where the server is of another mind, the handshake is refused.
    pub sealing: Sealing,
    /// Certificates instead of the secret, which is not looked at then; all connections are under TLS.
    pub certificates: Option<Certificates>,
}

impl ConnectOptions {
    /// The same by certificate, without a secret.
    #[must_use]
    pub fn certified(address: SocketAddr, certificates: Certificates) -> Self {
        let sealing = Sealing::All;
        let certificates = Some(certificates);
        Self { sealing, certificates, ..Self::new(address, Secret::certified()) }
    }

    /// The default export of a server, as this process's user, with ten seconds of patience.
    #[must_use]
    pub fn new(address: SocketAddr, secret: Secret) -> Self {
        Self {
            address,
            secret,
            secret_file: None,
            export: String::new(),
            purpose: Purpose::Use,
            driver: DriverChoice::Auto,
            sealing: Sealing::Auto,
            certificates: None,
            identity: Identity::of_process(),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// The ids of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Permission bits that what it makes does not get, unless the directory has a default ACL.
    pub umask: u32,
    /// Supplementary group ids, 4 bytes little-endian each, as they travel.
    groups: Vec<u8>,
}

impl Identity {
    /// These ids, without a umask.
    #[must_use]
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let groups = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
        Self { uid, gid, umask: 0, groups }
    }

    /// The effective ids, groups and umask of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups: Vec<u32> = groups.into_iter().map(rustix::process::Gid::as_raw).collect();
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Self { umask: umask_of_process(), ..Self::new(uid, gid, &groups) }
    }

    pub(crate) fn caller(&self) -> wire::Caller<'_> {
        let groups = wire::Groups::Known(&self.groups);
        wire::Caller { uid: self.uid, gid: self.gid, groups }
    }
}

/// The umask, read where reading does not set it: other threads make files meanwhile.
fn umask_of_process() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0)
}
