//! `client`: the other end of the protocol, one per client lane: connections, sessions, calls.
//!
//! It turns a [`Call`] into requests to the lanes that own what it is about, sees each of them
//! through lost connections and server restarts exactly once, and gives the [`Answer`]. It leaves
//! sockets to the world and the caller's interface (kernel, library) to the face that owns it.
//!
//! A face drives it from its own `Core`:
//!
//! ```text
//! apply(event):  client.apply(turn, event)      frames, connections, mail, ticks
//!                client.call(turn, id, call)    whatever the face is asked for
//! settle:        loop { client.settle(turn);
//!                       while let Some((id, result)) = client.next_answer() { ... }
//!                       until nothing was answered }
//! ```
//! Invariants: every call is answered once; calls wait while the server is away and are not
//! failed; a modifying request keeps its slot until the server's word on it is known (I3, I18).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod call;
mod client;
mod elsewhere;
mod evict;
mod exchange;
mod handles;
mod handshake;
mod interrupt;
mod link;
mod locks;
mod losses;
mod plan;
mod receive;
mod recovery;
mod refused;
mod replay;
mod report;
mod secrets;
mod send;
mod session;
mod slab;
mod sync;
#[cfg(test)]
mod tests;

pub use call::{
    Answer, Call, CallId, Create, Open, ReadList, Resize, SetLock, Sync, Tmpfile, Write, WriteList,
};
pub use client::{Client, Config, Counters, REPLAY_BYTES_MAX};
pub use handles::handle_lane;
pub use refused::Refused;
pub use report::Report;
