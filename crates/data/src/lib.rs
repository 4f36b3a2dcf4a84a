//! `data`: the data shards of one lane: which bytes an object has, in which order writes happen,
//! and when they may be called durable.
//!
//! It owns the state of objects and the order of operations on each. It leaves the bytes to the
//! world, and records, slots and replies to the lane. Invariants: an [`Outcome::Changed`] leaves
//! only when its bytes are durable in the object; operations on one object whose order matters
//! (appends, truncations, removal) never overlap; every buffer is released exactly once.
//!
//! ```text
//! ask ─▶ queue ─▶ size known? ─▶ ObjectWrite ─▶ done ─▶ ObjectSync ─▶ Changed ─▶ (lane: record)
//!          ▲          │ no                       └─ waits for the sync in flight, if any
//!          └─ ObjectStat
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod hash;
mod object;
mod outcome;
mod recorded;
mod request;
mod shards;
mod work;

pub use hash::{Mix, Seed};
pub use outcome::{Answer, Ask, Outcome, Token};
pub use recorded::Recorded;
pub use shards::{Shape, Shards};

#[cfg(test)]
mod tests;
