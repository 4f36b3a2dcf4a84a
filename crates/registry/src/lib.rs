//! The registry of a cluster: which servers there are, which shards each has, and who is alive. It lies
//! in etcd; every change is a compare-and-swap of the versions that were read.
//!
//! It is for the control thread of a server and for commands: calls block, and none is on the way of a
//! request. Nothing secret lies there. `docs/cluster.md` describes the keys.
#![forbid(unsafe_code)]

mod access;
mod cluster;
mod error;
mod etcd;
mod follow;
mod gateway;
mod local;

pub use access::Access;
pub use cluster::{
    Alive, Brought, Cluster, Founding, Server, ServerState, Shards, change, file_systems, join_key,
    prefix,
};
pub use error::RegistryError;
pub use etcd::{Etcd, LeaseId, Snapshot, Versioned, Write};
pub use follow::{Step, follow};
pub use local::{LocalError, LocalEtcd};
