//! The file tests with another engine, through the page cache.

/// The driver of every ring here.
pub const DRIVER: ring::DriverKind = super::DRIVER;
/// What reads and writes objects.
pub const ENGINE: ring::IoEngine = ring::IoEngine::Inline;
/// Whether that bypasses the page cache.
pub const DIRECT: bool = false;

#[path = "../files.rs"]
mod files;
#[path = "../stripes.rs"]
mod stripes;
#[path = "../../support/mod.rs"]
pub mod support;
