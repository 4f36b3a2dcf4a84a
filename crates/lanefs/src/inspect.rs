//! `lanefs check`, `dump` and `backup` of a store by the address of its server.
//!
//! ```text
//! client (remote) ── Op::Inspect ──▶ lane ──▶ thread (processes) ── pipes ──▶ process beside the server (child)
//! ```
//! The server starts its own binary on its store; the output is a stream of frames (`check::stream`). For a
//! consistent view the process sends a frame, and the client freezes changes.
//! Invariant: the process ends when the connection of its client does, or the server.

pub(crate) mod child;
pub(crate) mod processes;
pub(crate) mod remote;
