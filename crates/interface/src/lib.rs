//! `door`: the seam between cores and worlds. It is data: a world hands a core an [`Event`], the
//! core answers with [`Action`]s.
//!
//! A core is one thread's plain fields behind `&mut self`; it knows no clock, socket or file. A
//! world (`ring`, later `sim`) performs the actions and reports what came of them. File contents
//! never pass: a [`Bulk`] names bytes in a buffer the world owns. Small bytes lie in an [`Arena`]
//! that is emptied after every turn.
//!
//! ```text
//! world: collect events ─▶ core.apply(turn, event) for each ─▶ core.settle(turn) ─▶ perform
//!                             one clock reading, one arena, one list of actions
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
mod arena;
mod buffer;
mod containment;
mod event;
mod message;
mod shares;
mod time;

pub use action::{
    Action, KernelAction, NetAction, ObjectAction, PeerAction, Point, Process, Say, StoreAction,
};
pub use arena::{Arena, Span};
pub use buffer::{BufId, Bulk, ContentsMac, NO_MAC, Object, mac_of};
pub use containment::{ContainmentMessage, ContainmentQuery, Use};
pub use event::{
    BadCertificate, CertificateFlaw, CloseReason, ConnId, Errno, Event, KernelEvent, KernelSlot,
    LogSpace, NetEvent, ObjectEvent, ObjectStat, PeerEvent, StoreEvent, StoreSpace, SumRange,
    Ticket, Usage,
};
pub use message::{LockAsk, Mail};
pub use shares::{Party, Shares};
pub use time::{Mono, Now};

use alloc::vec::Vec;

/// What a core works with for the length of one turn.
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

/// A core: a pure state machine. All that it does, it does through actions.
pub trait Core {
    /// Takes one event in.
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event);
    /// Ends the turn, after its last event: commits, sends, asks to be woken.
    fn settle(&mut self, turn: &mut Turn<'_>);
}

/// Longest letter between lanes, in bytes.
pub const LANE_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Numbers of buffers from here on are given by cores ([`Action::Keep`]), those below by worlds.
pub const CORE_BUFS: u32 = 1 << 31;

const _: () = assert!(size_of::<Event>() <= 128, "an event fits two cache lines");
const _: () = assert!(size_of::<Action>() <= 128, "an action fits two cache lines");
