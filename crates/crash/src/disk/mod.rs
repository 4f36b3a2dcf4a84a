//! A disk that really loses what was not synced, below a real file system.
//!
//! ```text
//! store ─▶ ext4 ─▶ loop device ─▶ FUSE file (server.rs) ─▶ image.rs: what is durable, and what
//!                  REQ_FLUSH becomes FSYNC                           was written since the flush
//! ```
//! The FUSE server is a process of its own, driven by lines on its standard input. Nothing of this
//! is part of the shipped binary.

mod image;
mod kinds;
mod lossy_fs;
mod server;

pub(crate) use image::Tear;
pub(crate) use kinds::LostBytes;
pub(crate) use lossy_fs::{LossyFs, detach, loops_below};
pub(crate) use server::{SUBCOMMAND, serve};
