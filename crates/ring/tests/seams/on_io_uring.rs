//! The seams on io_uring.

/// The driver of every ring here.
pub const DRIVER: ring::DriverKind = ring::DriverKind::IoUring;

#[path = "bulk.rs"]
mod bulk;
#[path = "counts.rs"]
mod counts;
#[path = "files.rs"]
mod files;
#[path = "lists.rs"]
mod lists;
#[path = "mesh.rs"]
mod mesh;
#[path = "segments.rs"]
mod segments;
#[path = "sockets.rs"]
mod sockets;
#[path = "../support/mod.rs"]
pub mod support;
