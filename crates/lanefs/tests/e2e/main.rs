//! End to end: the real binary, real mounts, real kills. Every test has a store, a secret and
//! ports of its own, and waits for lines and conditions, never for time to pass.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod acl;
mod away;
mod bench;
mod beside;
mod between;
mod coherence;
mod contents;
mod crash;
mod death;
mod drivers;
mod exchanges;
mod files;
mod find;
mod hostile;
mod idle;
mod lifecycle;
mod listings;
mod locks;
mod memory;
mod mount_by_type;
mod mount_options;
mod names;
mod networks;
mod null;
mod owners;
mod private;
mod programs;
mod programs_postgres;
mod programs_sqlite;
mod programs_suites;
mod programs_trees;
mod rights;
mod scripts;
mod setid;
mod shards;
mod special;
mod stage;
mod times;
mod transports;
mod twins;
mod two_mounts;
mod two_mounts_programs;
mod unprivileged;
mod xattrs;
