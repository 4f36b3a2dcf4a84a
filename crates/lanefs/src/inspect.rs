//! `lanefs check`, `dump` and `backup` of a store by the address of its server.
//!
//! ```text
//! client (remote) ── Op::Inspect ──▶ lane ──▶ thread (processes) ── pipes ──▶ process beside the server (child)
//! ```
//! The server starts its own binary on its store; what that writes travels as a stream of frames (`check::stream`).
//! When the store is to be seen as of one moment, the process asks for it in the stream, and the client lets changes wait.
//! Invariant: the process ends when the connection of its client does, or the server.

pub(crate) mod child;
pub(crate) mod processes;
pub(crate) mod remote;
