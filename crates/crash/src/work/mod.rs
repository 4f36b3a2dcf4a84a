//! The random workload: operations, their journal, and the check of the result.

mod check;
mod client;
mod frontend;
mod item;
mod journal;
mod walk;

pub(crate) use check::{Findings, Loss, check};
pub(crate) use client::{ClientArgs, SUBCOMMAND, own_dir, run};
pub(crate) use item::CONTENTS_MARK;
pub(crate) use journal::Journal;
pub(crate) use walk::read_tree;

/// Directories that all clients work in. The deeper ones are on the shard of their parent, the
/// others are spread over all shards.
pub(crate) const SHARED_DIRS: [&str; 5] = ["s0", "s1", "s2", "s0/deep", "s0/deep/er"];
/// The file that every program on a mount appends to.
pub(crate) const SHARED_LOG: &str = "s1/log";
