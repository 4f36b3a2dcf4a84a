//! A freeze: changes wait for a while, so that the disk holds the state of one moment. Reads go on.
//!
//! ```text
//! Freeze ─▶ on: new changes wait, running ones end
//! Freeze again ─▶ longer
//! Freeze 0, or the lease ends ─▶ off
//! ```
//! Invariants: the lease ends by itself, whatever happens to the administrator; once a lane has
//! reported that no change is left, it begins none, except for its part in another lane's
//! transaction.

use crate::Lane;
use crate::dispatch::ReceivedRequest;
use crate::recovery::DeferredRequest;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{Action, ConnId, LogLevel, Mono, Turn};

/// The freeze and the requests that wait for its end.
#[derive(Default, Debug)]
pub(crate) struct Freezing {
    /// The end of the lease.
    pub(crate) until: Option<Mono>,
    waiting: VecDeque<DeferredRequest>,
}

impl Freezing {
    /// Whether changes wait.
    pub(crate) const fn is_on(&self) -> bool {
        self.until.is_some()
    }
}

impl Lane {
    /// The number of changes that have begun and not ended.
    pub(crate) fn change_count(&self) -> usize {
        let across = usize::from(!self.txns.is_at_rest());
        let cold = usize::from(self.non_resident.has_waiting());
        self.pending.change_count()
            + self.replaying.len()
            + self.sizing.len()
            + self.destroying_count()
            + across
            + cold
    }

    /// Defers a change until the end of the freeze.
    pub(crate) fn suspend_frozen(&mut self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) {
        self.count_outstanding(received);
        let frame: Vec<u8> = turn.arena.get(received.frame).to_vec();
        let early =
            DeferredRequest { conn: received.conn, frame, bulk: received.bulk, reopens: false };
        self.freeze.waiting.push_back(early);
    }

    /// Ends the freeze when its lease is over.
    pub(crate) fn settle_freeze(&mut self, turn: &mut Turn<'_>) {
        if self.freeze.until.is_some_and(|until| until <= turn.now.mono) {
            self.log(
                turn,
                LogLevel::Warning,
                "a freeze was not ended by its administrator; changes go on",
            );
            self.thaw(turn);
        }
    }

    /// Executes the deferred requests in the order of their arrival.
    pub(crate) fn thaw(&mut self, turn: &mut Turn<'_>) {
        self.freeze.until = None;
        let waiting = core::mem::take(&mut self.freeze.waiting);
        waiting.into_iter().for_each(|early| self.run_deferred(turn, early));
    }

    /// Drops the deferred requests of a connection that has ended.
    pub(crate) fn drop_frozen_of(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        self.freeze.waiting.retain(|early| {
            if let Some(bulk) = early.bulk.filter(|_| early.conn == conn) {
                turn.act(Action::Release { buf: bulk.buf });
            }
            early.conn != conn
        });
    }
}
