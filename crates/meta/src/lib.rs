//! `meta`: the name space of one metadata shard: inodes, names, attributes, open handles.
//!
//! It owns what an operation on names means and who may do it. It leaves sessions, slots, logs and
//! replies to the lane, and file contents to the data shards. Invariants: an operation that fails
//! changes nothing; what one changed, its [`disk::Change`]s change again in the same way, because
//! they are how it was changed.
//!
//! ```text
//! Ask ─▶ dispatch ─▶ decode ─▶ ops::<op>::needs ─▶ resident? ─▶ ops::<op>::execute
//!                                                                 │ checks, then
//!                                            state ◀── apply ◀── Txn ──▶ encoded changes
//!                                                        ▲
//!                                                      replay
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod acl;
mod across;
mod directory;
mod dispatch;
mod export;
mod file_locks;
mod fits;
mod gives;
mod handles;
mod hash;
mod inodes;
mod locks;
mod mode;
mod needs;
mod ops;
mod reach;
mod residency;
mod shard;
mod state;
mod txn;
mod uses;
mod who;
mod xattr;

pub use acl::{BYTES_MAX as ACL_BYTES_MAX, ENTRY_COUNT_MAX as ACL_ENTRY_COUNT_MAX};
pub use across::{Plan, View, Want};
pub use export::{Above, Rights};
pub use file_locks::{FileLocks, LockAsker, LockOwner, LockWait, Woken};
pub use ops::LINK_COUNT_MAX;
pub use residency::Unit;
pub use shard::{Access, Ask, Effect, Shard, Spread};
pub use uses::{How, Key, Use};
pub use xattr::{LIST_BYTES_MAX as XATTR_LIST_BYTES_MAX, TOTAL_BYTES_MAX as XATTR_TOTAL_BYTES_MAX};

#[cfg(test)]
mod tests;
