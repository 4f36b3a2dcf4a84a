//! The server to connect to, and the credentials.

use crate::Certificates;
use ring::{DriverChoice, Sealing};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use wire::{Purpose, Secret};

/// The options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The server.
    pub address: SocketAddr,
    /// The shared secret: the store's, or the export's own.
    pub secret: Secret,
    /// The secret's file: read again when the server refuses the secret, so that a new secret is
    /// used as soon as the file has it. `None`: the secret does not change.
    pub secret_file: Option<PathBuf>,
    /// The export; empty for the default one.
    pub export: String,
    /// The purpose: [`Purpose::Administer`] is for [`crate::Volume::exports`] and related methods.
    pub purpose: Purpose,
    /// The identity of operations.
    pub identity: Identity,
    /// How long a connection may take, at first or after a loss.
    pub connect_timeout: Duration,
    /// The driver of the ring: io_uring where this process may use it, else epoll
    /// ([`DriverChoice::Auto`]), or a chosen one.
    pub driver: DriverChoice,
    /// Whether connections use TLS: if the address is not loopback ([`Sealing::Auto`]), always or
    /// never. If the server is configured otherwise, it refuses the handshake.
    pub sealing: Sealing,
    /// Certificates, which replace the secret; all connections use TLS then.
    pub certificates: Option<Certificates>,
}

impl ConnectOptions {
    /// Options with certificates, without a secret.
    #[must_use]
    pub fn certified(address: SocketAddr, certificates: Certificates) -> Self {
        let sealing = Sealing::All;
        let certificates = Some(certificates);
        Self { sealing, certificates, ..Self::new(address, Secret::certified()) }
    }

    /// Options for the default export of a server, as this process's user, with a timeout of ten
    /// seconds.
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
    /// The umask for new files, unless the directory has a default ACL.
    pub umask: u32,
    /// Supplementary group ids, 4 bytes little-endian each, as in requests.
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

/// The umask, read without setting it: other threads may create files meanwhile.
fn umask_of_process() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0)
}
