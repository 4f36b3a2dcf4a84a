//! `sim`: the production cores in a world made of dice.
//!
//! It stands where `ring` and `store` stand: it performs what `lane::Lane` and `client::Client` ask
//! for, badly on purpose. Connections are cut, frames come late, disks lose what was not synced and
//! fail, processes die at any point, clocks jump, the secret is changed. Everything, the workload and its limits too, comes
//! from one seed, on one thread, so that a run can be made again.
//!
//! What is checked:
//! - at once: a transaction number names one request (I4), one request is in the log once (I3),
//!   nothing is called committed that is not durable (I10), buffers are given back once, every start
//!   succeeds (I17), every call is answered once, bytes that are read were written;
//! - where a disk lied about its log: whoever had been told that something is durable that is lost
//!   hears nothing good of that shard any more, raises an alarm and falls silent; where it only fails,
//!   every call ends also before it is mended;
//! - when the faults have stopped: every call of a living client ends in bounded time, every call
//!   that was acknowledged to one is there and took effect once (I3, I5), what began after another's
//!   answer comes after it, and a fresh client reads back exactly the tree that a sequential model
//!   comes to by executing what is durable in the order of transactions (I1, I2, I15), with bytes
//!   that writes explain.
//!
//! What is not: times, space, permissions, statuses of calls that failed, listings read while names
//! change. They have tests of their own beside the code.
#![forbid(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "checks pick out the few kinds of calls and ops that they are about"
)]

mod audit;
mod bytes;
mod clients;
mod control;
mod disk;
mod durability;
mod faults;
mod lane_state;
mod liar;
mod lying_disk;
mod model;
mod net;
mod number;
mod operation;
mod order;
mod plan;
mod prng;
mod rot;
mod rotation;
mod row_store;
mod rules;
mod run;
mod search;
mod server;
mod simulation;
mod tap;
mod trace;
mod wires;
mod work;

pub use plan::Planted;
pub use run::{Outcome, run, run_logged};
pub use search::{Counts, Verdict, quiet_panics, search, try_seed};
pub use wire::Rule;
