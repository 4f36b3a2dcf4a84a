//! The registry of a cluster: which servers there are, which shards each has, and who is alive. It lies
//! in etcd; every change is a compare-and-swap of the versions that were read.
//!
//! It is for the control thread of a server and for commands: calls block, and none is on the way of a
//! request. What a server decides in its cluster is in [`Start`], [`Keep`], [`Following`] and [`Own`],
//! without I/O. Nothing secret lies there. `docs/cluster.md` describes the keys.
#![forbid(unsafe_code)]

mod access;
mod call;
mod cluster;
mod error;
mod etcd;
mod follow;
mod gateway;
mod keep;
mod local;
#[cfg(feature = "memory")]
mod memory;
mod own;
mod start;

pub use access::Access;
pub use call::{Answer, Call, Next, TTL_S};
pub use cluster::{
    Alive, Brought, Cluster, Founding, Server, ServerState, Shards, change, file_systems, join_key,
    prefix,
};
pub use error::RegistryError;
pub use etcd::{Etcd, LeaseId, Snapshot, Versioned, Write};
pub use follow::{Following, Retry, Step, follow};
pub use keep::{KEEP_MS, Keep};
pub use local::{LocalError, LocalEtcd};
#[cfg(feature = "memory")]
pub use memory::MemoryEtcd;
pub use own::{News, Own};
pub use start::{Start, Starting};
