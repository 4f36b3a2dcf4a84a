//! End to end: the real binary, real mounts, real kills. Every test has a store, a secret and
//! ports of its own, and waits for lines and conditions, never for time to pass.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod away;
mod bench;
mod coherence;
mod crash;
mod death;
mod files;
mod hostile;
mod idle;
mod lifecycle;
mod memory;
mod null;
mod programs;
mod programs_postgres;
mod programs_sqlite;
mod programs_suites;
mod programs_trees;
mod rights;
mod shards;
mod stage;
mod transports;
mod two_mounts;
