//! `fuse`: the kernel's file system requests on one side, the client's calls on the other.
//!
//! It decodes the kernel's protocol (7.31 and later), asks the [`client::Client`] it owns, and
//! encodes the answers. It leaves `/dev/fuse`, its io_uring queues and buffers to the world, and
//! everything that POSIX means to the server. Invariants: every request that takes an answer gets
//! one; whatever bytes come in, nothing panics.
//!
//! ```text
//! KernelEvent::Request ─▶ begin: decode ─▶ Client::call ─▶ finish: encode ─▶ KernelAction::Reply
//! ```
//! A node id is the inode number, of a directory with a tag (`node`), a file handle the
//! [`wire::HandleId`], and all time-outs are 0: the kernel keeps no names and attributes, so FORGET needs
//! no bookkeeping.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod abi;
mod args;
mod begin;
mod contents;
mod finish;
mod handle;
mod init;
mod interrupts;
mod lane;
mod listing;
mod node;
mod out;
mod pending;
#[cfg(test)]
mod tests;

pub use lane::{Config, MountLane};
