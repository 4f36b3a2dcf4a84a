//! `interface`: the data exchanged by a sans-I/O state machine and its runtime. It is data: a runtime
//! applies an [`Event`], and the state machine answers with [`Action`]s.
//!
//! A state machine ([`Core`]) is one thread's plain fields behind `&mut self`, without clock,
//! socket or file. A runtime (`ring`, or `sim` in simulations) performs the actions and reports
//! their outcomes. File contents never pass: a [`Bulk`] names bytes in a buffer of the runtime.
//! Small bytes lie in an [`Arena`] that is emptied after every turn.
//!
//! ```text
//! runtime: collect events ─▶ core.apply(turn, event) for each ─▶ core.settle(turn) ─▶ perform
//!                               one clock reading, one arena, one list of actions
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// Conversions into an enum from what its variants have.
macro_rules! from_parts {
    ($whole:ident: $($variant:ident($part:ident)),*) => {
        $(impl From<$part> for $whole {
            fn from(part: $part) -> Self {
                Self::$variant(part)
            }
        })*
    };
}

mod action;
mod arena;
mod buffer;
mod event;
mod message;
mod seed;
mod shares;
mod time;

pub use action::{
    Action, KernelAction, KernelNotify, LogLevel, NetAction, ObjectAction, PeerAction, Process,
    ProtocolPoint, StoreAction,
};
pub use arena::{Arena, Span};
pub use buffer::{BufId, Bulk, ContentsMac, NO_MAC, Object, mac_of};
pub use event::{
    BadCertificate, CertificateFlaw, CloseReason, ConnId, Errno, Event, KernelEvent, KernelSlot,
    LaneTime, LogSpace, NetEvent, ObjectEvent, ObjectPiece, ObjectStat, PeerEvent, SendTimes,
    StoreEvent, StoreSpace, SumRange, Ticket, Usage,
};
pub use message::{FileVersion, LockRequest, MountMessage};
pub use seed::Seed;
pub use shares::{Party, Shares};
pub use time::{Mono, Now};

use alloc::vec::Vec;

/// What a state machine works with for one turn.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The turn's one clock reading.
    pub now: Now,
    /// The small bytes of this turn's events and actions.
    pub arena: &'a mut Arena,
    /// What the runtime shall do, in this order.
    pub actions: &'a mut Vec<Action>,
}

impl Turn<'_> {
    /// Adds an action.
    pub fn act(&mut self, action: impl Into<Action>) {
        self.actions.push(action.into());
    }
}

/// A sans-I/O state machine. All its effects are actions.
pub trait Core {
    /// Applies one event.
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event);
    /// Ends the turn, after its last event: commits, sends, sets the timer.
    fn settle(&mut self, turn: &mut Turn<'_>);
}

/// Longest message between lanes of a server, in bytes.
pub const PEER_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// State machines assign buffer ids from here on ([`Action::Retain`]), runtimes those below.
pub const CORE_BUF_ID_MIN: u32 = 1 << 31;

const _: () = assert!(size_of::<Event>() <= 128, "an event fits two cache lines");
const _: () = assert!(size_of::<Action>() <= 128, "an action fits two cache lines");
