//! Whom to connect to, and as whom.

use std::net::SocketAddr;
use std::time::Duration;
use wire::Secret;

/// How to reach a volume.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The server.
    pub address: SocketAddr,
    /// The secret it shares with us.
    pub secret: Secret,
    /// The export wanted; empty for the default one.
    pub export: String,
    /// As whom operations are done.
    pub identity: Identity,
    /// How long a first or lost connection may take to be there.
    pub connect_timeout: Duration,
}

/// The ids of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids, 4 bytes little-endian each, as they travel.
    groups: Vec<u8>,
}

impl Identity {
    /// These ids.
    #[must_use]
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let groups = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
        Self { uid, gid, groups }
    }

    /// The effective ids and groups of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups: Vec<u32> = groups.into_iter().map(rustix::process::Gid::as_raw).collect();
        let uid = rustix::process::geteuid().as_raw();
        Self::new(uid, rustix::process::getegid().as_raw(), &groups)
    }

    pub(crate) fn caller(&self) -> wire::Caller<'_> {
        let groups = wire::Groups::Known(&self.groups);
        wire::Caller { uid: self.uid, gid: self.gid, groups }
    }
}
