//! `meta`: the name space of one metadata shard: inodes, names, attributes, open handles.
//!
//! It owns the semantics and permissions of operations on names. It leaves sessions, slots, logs
//! and replies to the lane, and file contents to the data shards. Invariants: an operation that
//! fails changes nothing; an operation changes the state only through its [`disk::Change`]s, so
//! redoing them gives the same state.
//!
//! ```text
//! MetaRequest ─▶ dispatch ─▶ decode ─▶ ops::<op>::needs ─▶ resident? ─▶ ops::<op>::execute
//!                                                                 │ checks, then
//!                                            state ◀── apply ◀── Txn ──▶ encoded changes
//!                                                        ▲
//!                                                      replay
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod acl;
mod behind;
mod credentials;
mod decoded;
mod directory;
mod dispatch;
mod export;
mod file_locks;
mod fits;
mod handles;
mod hash;
mod inode;
mod inodes;
mod leases;
mod locks;
mod mode;
mod multi_shard;
mod needs;
mod ops;
mod privileged_bits;
mod removed_links;
mod requirements;
mod residency;
mod shard;
mod state;
mod txn;
mod uses;
mod xattr;

pub use acl::{BYTES_MAX as ACL_BYTES_MAX, ENTRY_COUNT_MAX as ACL_ENTRY_COUNT_MAX};
pub use export::{ParentLink, Rights};
pub use file_locks::{EndedWait, FileLocks, LockCaller, LockOwner, LockWait, ShownWait};
pub use leases::{LeaseConflict, LeaseKey};
pub use multi_shard::{Plan, Requirement, View};
pub use ops::LINK_COUNT_MAX;
pub use residency::Unit;
pub use shard::{Access, DirectoryPlacement, Effect, MetaRequest, Shard};
pub use uses::{AccessMode, DependencyKey, KeyAccess};
pub use xattr::{LIST_BYTES_MAX as XATTR_LIST_BYTES_MAX, TOTAL_BYTES_MAX as XATTR_TOTAL_BYTES_MAX};

#[cfg(test)]
mod tests;
