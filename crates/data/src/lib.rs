//! `data`: the data shards of one lane: the bytes of objects, the order of writes, and when they
//! are durable.
//!
//! It owns the state of objects and the order of operations on each. It leaves the bytes to the
//! runtime, and records, slots and replies to the lane. Invariants: an [`Outcome::Changed`] is
//! emitted only when its bytes are durable in the object or are in this outcome or an earlier one,
//! and in the order of its shard's transactions; operations on one object whose order matters (appends, truncations, replays,
//! removal) never overlap; every buffer is released exactly once.
//!
//! ```text
//! ask ─▶ queue ─▶ size known? ─▶ ObjectWrite ─▶ Written ─▶ ObjectSync ─▶ Changed ─▶ (lane: record)
//!          ▲          │ no                          └─ soon, or on a durability request
//!          └─ ObjectStat
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod access;
mod allocate;
mod blocks;
mod closing;
mod config;
mod decode;
mod fan_out;
mod fresh;
mod glimpse;
mod in_flight;
mod integrity;
mod list;
mod log;
mod log_first;
mod object;
mod order;
mod outcome;
mod parts;
mod ranges;
mod reading;
mod recorded;
mod request;
mod shards;
mod stripes;
mod sums;
mod unstable;
mod widen;
mod work;
mod written;

pub use config::{DataConfig, SumRecording};
pub use fresh::Fresh;
pub use outcome::{Answer, Damage, DataRequest, LostWrite, Outcome, Token};
pub use parts::WholeFile;
pub use recorded::Recorded;
pub use shards::Shards;
pub use unstable::Dependencies;
pub use widen::Width;

#[cfg(test)]
mod tests;
