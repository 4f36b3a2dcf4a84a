//! The runtime's tests on epoll.

/// The driver of every ring here.
pub const DRIVER: ring::DriverKind = ring::DriverKind::Epoll;

/// What reads and writes objects.
pub const ENGINE: ring::IoEngine = ring::IoEngine::Auto;
/// Whether that bypasses the page cache.
pub const DIRECT: bool = false;

#[path = "bulk.rs"]
mod bulk;
#[path = "certified.rs"]
mod certified;
#[path = "counts.rs"]
mod counts;
#[path = "engines.rs"]
mod engines;
#[path = "files.rs"]
mod files;
#[path = "inspect.rs"]
mod inspect;
#[path = "lists.rs"]
mod lists;
#[path = "mesh.rs"]
mod mesh;
#[path = "questions.rs"]
mod questions;
#[path = "relay.rs"]
mod relay;
#[path = "sealed.rs"]
mod sealed;
#[path = "secrets.rs"]
mod secrets;
#[path = "shares.rs"]
mod shares;
#[path = "sockets.rs"]
mod sockets;
#[path = "stripes.rs"]
mod stripes;
#[path = "../support/mod.rs"]
pub mod support;
mod with_inline;
mod with_thread_per_op;
