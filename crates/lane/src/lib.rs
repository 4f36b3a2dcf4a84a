//! `lane`: the state machine of one server lane, from a request's frame to its reply.
//!
//! It owns connections, sessions with their slots, the log batches and the replies that depend on
//! them. It leaves names to `meta`, contents to `data`, and all waiting to the runtime. Invariants:
//! a change takes effect once, however often its request is sent and whichever side crashes; its
//! reply leaves only when its record is durable, or with a redo token; a peer that breaks the
//! protocol loses its connection and affects no other client.
//!
//! ```text
//! Frame ─▶ handshake                                (until the secret is proven)
//!       ─▶ connections: head valid? ─▶ route: this lane? ─▶ sessions: slot new or seen?
//!                                                         │ new
//!            meta::execute ◀── dispatch ──▶ data::ask ─▶ … ┘
//!                 │ changed something         │ bytes durable
//!                 ▼                           ▼
//!               commit: record into the open batch, reply deferred ─▶ LogAppend ─▶ Logged
//!                                                                   └─▶ outbox: all its replies
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
mod acknowledgements;
mod affinity;
mod ahead;
mod appends;
mod certificate;
mod commit;
mod commit_dependency;
mod config;
mod conn;
mod connections;
mod containment;
mod containment_queries;
mod contents;
mod counters;
mod damage;
mod deadlines;
mod deadlock;
mod dependents;
mod destroy;
mod dispatch;
mod evict;
mod evictions;
mod export;
mod export_ops;
mod file_locks;
mod free_space;
mod freeze;
mod handshake;
mod identity;
mod inspect;
mod keys;
mod lane;
mod last_writer;
mod leases;
mod limits;
mod log_space;
mod map;
mod merge;
mod named_inodes;
mod non_resident;
mod nonces;
mod notifications;
mod ops;
mod outbox;
mod part_pages;
mod peers;
mod phase;
mod questions;
mod received;
mod recovery;
mod reopens;
mod replay;
mod request;
mod request_header;
mod response;
mod restore;
mod scratch;
mod session;
mod sessions;
mod shares;
mod sizes;
mod spread;
mod stats;
mod telling;
mod ticket;
mod token;
mod traces;
mod txns;
mod unstable;
mod waiters;
mod widen;

pub use affinity::Affinity;
pub use config::{Config, Export, Limits, Promised, Share};
pub use export::EXPORTS_BYTES_MAX;
pub use lane::Lane;
pub use restore::{Restore, Restored};
pub use token::FsKey;

#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
