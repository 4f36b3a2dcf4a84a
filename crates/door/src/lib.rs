//! `door`: the seam between brains and worlds. It is data: a world hands a brain an [`Event`], the
//! brain answers with [`Action`]s.
//!
//! A brain is one thread's plain fields behind `&mut self`; it knows no clock, socket or file. A
//! world (`ring`, later `sim`) performs the actions and reports what came of them. File contents
//! never pass: a [`Bulk`] names bytes in a buffer the world owns. Small bytes lie in an [`Arena`]
//! that is emptied after every turn.
//!
//! ```text
//! world: collect events ─▶ brain.apply(turn, event) for each ─▶ brain.settle(turn) ─▶ perform
//!                             one clock reading, one arena, one list of actions
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
mod arena;
mod buffer;
mod event;
mod mail;
mod scope;
mod shares;
mod time;

pub use action::{
    Action, KernelAction, NetAction, ObjectAction, PeerAction, Point, Process, Say, StoreAction,
};
pub use arena::{Arena, Span};
pub use buffer::{BufId, Bulk, ContentsMac, NO_MAC, Object, mac_of};
pub use event::{
    BadCertificate, CertificateFlaw, CloseReason, ConnId, Errno, Event, KernelEvent, KernelSlot,
    LogRoom, NetEvent, ObjectEvent, ObjectStat, PeerEvent, StoreEvent, StoreSpace, SumRange,
    Ticket, Usage,
};
pub use mail::{LockAsk, Mail};
pub use scope::{ScopeMail, ScopeQuestion, Use};
pub use shares::{Party, Shares};
pub use time::{Mono, Now};

use alloc::vec::Vec;

/// What a brain works with for the length of one turn.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The turn's one clock reading.
    pub now: Now,
    /// Small bytes of this turn, of events and actions alike.
    pub arena: &'a mut Arena,
    /// What the world shall do, in this order.
    pub actions: &'a mut Vec<Action>,
}

impl Turn<'_> {
    /// Adds an action.
    pub fn act(&mut self, action: impl Into<Action>) {
        self.actions.push(action.into());
    }
}

/// A brain: a pure state machine. All that it does, it does through actions.
pub trait Brain {
    /// Takes one event in.
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event);
    /// Ends the turn, after its last event: commits, sends, asks to be woken.
    fn settle(&mut self, turn: &mut Turn<'_>);
}

/// Longest letter between lanes, in bytes.
pub const LETTER_BYTES_MAX: usize = 64 * 1024;
/// Numbers of buffers from here on are given by brains ([`Action::Keep`]), those below by worlds.
pub const KEPT_BUFS: u32 = 1 << 31;

const _: () = assert!(size_of::<Event>() <= 128, "an event fits two cache lines");
const _: () = assert!(size_of::<Action>() <= 128, "an action fits two cache lines");
