//! `test-runtime`: a runtime in memory, for the tests of the state machines and for the simulator.
//!
//! It has what surrounds a state machine: events that wait for its next turn, buffers, a store of
//! logs, objects and rows, and the operations that are under way there. When an operation ends, in
//! which order, and which one fails, its user decides.
//!
//! ```text
//! Incoming ─▶ LaneState ─▶ Event ─▶ core ─▶ Action ─▶ Operation ─▶ Store::complete ─▶ Incoming
//!                                                        └─ crash ─▶ Store::interrupt
//! ```
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "for tests alone")]
#![allow(clippy::cast_possible_truncation, reason = "everything is small in a test")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails")]

mod lane_state;
mod operation;
mod patch;
mod prng;
mod rows;
mod scripted;
mod store;

pub use lane_state::{Bufs, Incoming, LaneState};
pub use operation::{LogId, Operation};
pub use patch::{Patch, put_sum};
pub use prng::Prng;
pub use rows::{Applied, RowStore, records};
pub use scripted::{
    ReceivedRequest, SECOND, SECOND_SESSION, SECRET, SESSION, ScriptedServer, second_address,
};
pub use store::Store;
