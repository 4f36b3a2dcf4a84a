//! The registry of a cluster: which servers there are, which shards each has, and who is alive. It lies
//! in etcd; every change is a compare-and-swap of the versions that were read.
//!
//! It is for the control thread of a server and for commands: calls block, and none is on the way of a
//! request. What a server decides in its cluster is in [`Start`], [`Keep`], [`Following`] and [`Own`],
//! without I/O. Nothing secret lies there. `docs/cluster.md` describes the keys.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
mod access;
mod call;
mod cluster;
mod entry;
mod error;
#[cfg(feature = "client")]
mod etcd;
mod follow;
#[cfg(feature = "client")]
mod gateway;
mod keep;
mod local;
#[cfg(feature = "memory")]
mod memory;
mod own;
mod start;
#[cfg(feature = "client")]
mod watch;

#[cfg(feature = "client")]
pub use access::Access;
pub use call::{Answer, Call, Next, TTL_S};
pub use cluster::{
    Alive, Brought, Cluster, Compared, Founding, Known, Loss, Server, ServerState, Shards,
    join_key, prefix,
};
pub use entry::{LeaseId, Snapshot, Versioned, Write};
pub use error::RegistryError;
#[cfg(feature = "client")]
pub use etcd::{Etcd, change, file_systems};
pub use follow::{Following, Retry};
pub use keep::{KEEP_MS, Keep};
pub use local::{LocalError, LocalEtcd};
#[cfg(feature = "memory")]
pub use memory::MemoryEtcd;
pub use own::{News, Own};
pub use start::{Start, Starting};
#[cfg(feature = "client")]
pub use watch::{Step, follow};
