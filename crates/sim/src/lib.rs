//! `sim`: runs the production state machines (`lane::Lane` and `client::Client`) under a simulated
//! network, disk, clock and power supply.
//!
//! It takes the place of `ring` and `store`: it performs the actions that lanes and clients ask
//! for, with faults. Connections are cut, frames are delayed, disks lose unsynced data and fail,
//! processes crash at any point, clocks jump, the secret is rotated. The workload, its limits and
//! all faults follow from one seed on one thread, so that a seed repeats its run.
//!
//! A third of the runs has two to four servers, each with a store and lanes of its own, and an etcd. They
//! die one by one, start and join through the registry, learn of maps at different times, and lose each
//! other or single clients, also in one direction only. etcd is away, loses answers, ends leases, and is
//! restored from an older copy.
//!
//! In some runs the clients set set-id bits, which most writes must clear. Programs are killed and close
//! their files, and mounts are started again.
//!
//! In half of the runs the clients cache under leases as their kernels do, also while their processes
//! are stopped, and their clocks run faster or slower than the server's.
//!
//! Checks during a run:
//! - a transaction number names one request (I4); a request is in the log once (I3); no transaction
//!   is reported committed before it is durable (I10); a buffer is released once; every start
//!   succeeds (I17); every call is answered once; bytes that a read returns were written.
//! - What a process reads from a cache, and what is cached when another client's change is answered,
//!   is the newest state that anybody was shown (L1, L2).
//! - What another client's mount has answered early is seen by all that look later, or never executed
//!   (L3). A truncation does not cut what was written behind it (R13.32).
//! - After a disk lost a batch that it had reported durable: a client that had received the
//!   acknowledgement gets no successful reply from that shard any more, raises an alarm and stops
//!   sending. After a disk that only fails: every call ends, also before the disk is mended.
//!
//! Checks after the last fault:
//! - Every call of a living client ends within a time limit.
//! - Every acknowledged call of a living client is in the log and took effect once (I3, I5).
//! - A call that began after the reply to another comes after it in the order of transactions.
//! - Nothing of a change over several servers is left: no lock, no prepared part, no decision.
//! - No set-id bit is left by a write that followed what has shown it, and no write is refused for bits
//!   that are known to be gone (R12.18).
//! - An inode that was made and has a name in the end was there all the time in between.
//! - A new client reads exactly the tree that a sequential model reaches by executing the durable
//!   transactions in their order (I1, I2, I15), with file contents that writes explain.
//!
//! Not checked: timestamps, free space, permissions, statuses of calls that failed, listings read
//! while names change. Unit tests of the crates check those.
#![forbid(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "checks pick out the few kinds of calls and ops that they are about"
)]

mod audit;
mod bit_rot;
mod bytes;
mod cache;
mod cache_check;
mod client_lane;
mod clients;
mod cluster;
mod control;
mod cuts;
mod due;
mod durability;
mod early;
mod early_names;
mod etcd;
mod etcd_plan;
mod faults;
mod generations;
mod kills;
mod local_opens;
mod logged;
mod lying_disk;
mod malicious_client;
mod membership;
mod model;
mod mount_cache;
mod net;
mod number;
mod order;
mod peer_faults;
mod plan;
mod privileges;
mod reply;
mod rotation;
mod rules;
mod run;
mod run_hash;
mod search;
mod seeks;
mod server;
mod servers;
mod simulation;
mod tap;
mod trace;
mod wires;
mod work;

pub use plan::Injection;
pub use run::{Outcome, run, run_logged};
pub use search::{Counts, Until, Verdict, quiet_panics, search, try_seed};
pub use wire::Rule;
