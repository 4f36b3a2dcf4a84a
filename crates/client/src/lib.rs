//! `client`: the client side of the protocol, one per client lane: connections, sessions, calls.
//!
//! It turns a [`Call`] into requests to the lanes that own the shards, executes each of them
//! exactly once despite lost connections and server restarts, and returns the [`Answer`]. Sockets
//! belong to the runtime; the interface to the caller (kernel, library) belongs to the frontend.
//!
//! A frontend drives it from its own `Core`:
//!
//! ```text
//! apply(event):  client.apply(turn, event)      frames, connections, peer messages, ticks
//!                client.call(turn, id, call)    the frontend's calls
//! settle:        loop { client.settle(turn);
//!                       while let Some((id, result)) = client.next_answer() { ... }
//!                       until there was no answer }
//! ```
//! A frontend that caches asks for leases ([`Client::with_leases`]) and takes answers together with
//! what it may cache of them ([`Client::next_granted_answer`]), recalls and drops:
//!
//! ```text
//! settle:        as above; take_drop ─▶ dropped, next_recall ─▶ acknowledge, then client.settle
//! ```
//! Invariants: every call is answered once; calls wait while the server is away and do not fail; a
//! modifying request keeps its slot until its outcome is known (I3, I18).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod abandoned;
mod appends;
mod by_part;
mod cache;
mod call;
mod client;
mod counts;
mod evict;
mod grants;
mod handles;
mod handshake;
mod identity;
mod interrupt;
mod jobs;
mod kept;
mod layouts;
mod leases;
mod link;
mod local_opens;
mod local_writers;
mod locks;
mod losses;
mod new_files;
mod peer_lanes;
mod peers;
mod plan;
mod receive;
mod received;
mod recovery;
mod refused;
mod remote_inode;
mod replay;
mod replay_space;
mod report;
mod requests;
mod secrets;
mod send;
mod server;
mod servers;
mod session;
mod spread;
mod sync;
#[cfg(test)]
mod tests;
mod traces;
mod wait_cause;
mod widen;

pub use cache::{Asked, Cache, CacheCounts, CacheSize, Found, KNOWN_NAME_COUNT_MAX, TakenAnswer};
pub use call::{
    Answer, Call, CallId, Create, MakeBehind, Open, ReadList, Resize, SetLock, Sync, Tmpfile,
    Write, WriteList,
};
pub use client::{Client, Config, REPLAY_BYTES_MAX};
pub use counts::Counters;
pub use handles::handle_lane;
pub use kept::KeptOpen;
pub use leases::{Granted, GrantedAttributes, RecallId, RecalledKey, Term, USED_MS_MAX};
pub use local_opens::LOCAL_MS_MAX;
pub use new_files::{NUMBER_BLOCK, NUMBER_STEP_MAX};
pub use received::ReceivedByLanes;
pub use refused::Refused;
pub use report::Report;
pub use traces::Step;
