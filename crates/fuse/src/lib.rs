//! `fuse`: a frontend of the client for the kernel's file system requests.
//!
//! It decodes the kernel's protocol (7.31 and later), makes calls of the [`client::Client`] it
//! owns, and encodes the answers. `/dev/fuse`, its io_uring queues and buffers belong to the
//! runtime, POSIX semantics to the server. Invariants: every request that has a reply gets one; no
//! input causes a panic.
//!
//! ```text
//! KernelEvent::Request ─▶ begin: decode ─▶ Client::call ─▶ finish: encode ─▶ KernelAction::Reply
//!                                   └────── cache ─────────▲
//! ```
//! A node id is the inode number, for a directory with a tag (`node`); a file handle is the
//! [`wire::HandleId`]. The kernel caches what leases cover, and only for their rest (`leases`), so
//! FORGET needs no bookkeeping.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod abi;
mod args;
mod begin;
mod behind;
mod behind_counts;
mod behind_waits;
mod cache;
mod call_ids;
mod contents;
pub mod control;
mod counts;
mod create_behind;
mod early;
mod end;
mod files_ahead;
mod finish;
mod handle;
mod init;
mod interrupts;
mod joined;
mod lane;
mod leases;
mod listing;
mod listings_ahead;
mod local_files;
mod local_opens;
mod local_writes;
mod names;
mod names_behind;
mod node;
mod opened_behind;
mod opens;
mod out;
mod pending;
mod profile;
mod recalls;
mod shared;
mod soft;
mod sync_ahead;
#[cfg(test)]
mod tests;
mod traces;
mod write_behind;

pub use behind::Behind;
pub use behind_counts::BehindCounts;
pub use lane::{Config, MountLane};
