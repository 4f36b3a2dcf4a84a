//! The registry of a cluster, as commands and servers ask it: where it is, what is there, and its faults.

use crate::args::EtcdArg;
use crate::exit::{Code, Exit};
use anyhow::{Context as _, Result, bail};
use registry::{Access, Cluster, Etcd, RegistryError, Server, ServerState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use wire::FsUuid;

/// The address of a server that was never started: nothing listens at the discard port.
pub(super) const NEVER_STARTED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9);

/// An error of the registry, with its exit code.
pub(super) fn failed(error: RegistryError) -> anyhow::Error {
    match error {
        RegistryError::Away { .. } => Exit::new(Code::Unreachable, error.to_string()).into(),
        RegistryError::Refused(_)
        | RegistryError::Malformed(_)
        | RegistryError::Compacted
        | RegistryError::Entry { .. }
        | RegistryError::State(_) => error.into(),
    }
}

pub(super) fn etcd(access: &Access) -> Result<Etcd> {
    Etcd::new(access).map_err(failed)
}

/// What the registry has of a cluster, which must be there.
pub(super) fn read(etcd: &Etcd, fs: FsUuid) -> Result<Cluster> {
    existing(read_any(etcd, fs)?, etcd, fs)
}

/// The entries of a cluster, unless there are none.
pub(super) fn existing(cluster: Cluster, etcd: &Etcd, fs: FsUuid) -> Result<Cluster> {
    if !cluster.exists() {
        bail!(
            "the etcd at {} knows no cluster of file system {fs}: it is another etcd, or has lost its \
             data",
            etcd.access()
        );
    }
    Ok(cluster)
}

/// What the registry has of a file system, if anything.
pub(super) fn read_any(etcd: &Etcd, fs: FsUuid) -> Result<Cluster> {
    let snapshot = etcd.read(&registry::prefix(fs.0)).map_err(failed)?;
    Cluster::read(fs.0, &snapshot).map_err(failed)
}

/// An entry of the registry.
pub(super) fn server_of(
    uuid: [u8; 16],
    weight: u32,
    (address, lanes): (SocketAddr, u16),
) -> Server {
    Server { uuid: hex::encode(uuid), weight, state: ServerState::Active, address, lanes }
}

/// How the registry is reached: as options say, or else as the store remembers.
pub(crate) fn access(path: &Path, named: Option<&str>, options: &EtcdArg) -> Result<Access> {
    if let Some(urls) = named {
        return options.access(urls);
    }
    if *options != EtcdArg::default() {
        return Err(Exit::usage("the --etcd- options need the addresses of etcd, too").into());
    }
    let Some(text) = store::cluster_access(path)? else {
        let path = path.display();
        let line = format!("{path} does not say where its etcd is: name its addresses");
        return Err(Exit::usage(line).into());
    };
    // A store that was served before etcd could have certificates has the addresses alone.
    if text.starts_with("http") {
        return Ok(Access::to_endpoints(&text));
    }
    let damaged = || format!("the file of {} that says where its etcd is", path.display());
    serde_json::from_str(&text).with_context(damaged)
}

/// The access as a store remembers it.
pub(super) fn remembered(access: &Access) -> Result<String> {
    Ok(serde_json::to_string(access)?)
}

pub(super) fn not_of_cluster(path: &Path) -> String {
    let path = path.display();
    format!(
        "{path} is no store of a cluster: `lanefs cluster init --store {path} --etcd URL` makes its \
         server the first one of a new cluster"
    )
}
