//! The random workload: what a client does, writes down, and what must be found afterwards.

mod check;
mod client;
mod face;
mod item;
mod journal;
mod look;

pub(crate) use check::{Findings, Loss, check};
pub(crate) use client::{ClientArgs, SUBCOMMAND, own_dir, run};
pub(crate) use item::CONTENTS_MARK;
pub(crate) use journal::Journal;
pub(crate) use look::look;

/// Directories that all clients work in; the deeper ones stay with their parents' shard, the
/// others are spread.
pub(crate) const SHARED_DIRS: [&str; 5] = ["s0", "s1", "s2", "s0/deep", "s0/deep/er"];
/// The file that everybody with a mount appends to.
pub(crate) const SHARED_LOG: &str = "s1/log";
