//! A freeze: changes wait for a while, so that what is on the disk is the state of one moment. Reads go on.
//!
//! ```text
//! Freeze ─▶ on: what comes waits, what had begun ends    Freeze again: longer    Freeze 0, lease over ─▶ off
//! ```
//! Invariants: the lease ends by itself, whatever becomes of who asked; a lane that says that no change
//! is left begins none before that, but for what a change that began at another lane asks of it.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::outbox::{Asked, Said};
use crate::recovery::Early;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use door::{Action, ConnId, Mono, Say, Turn};
use wire::{Breach, FREEZE_MS_MAX, Freeze, Frozen, HEAD_BYTES, Op, Request, Retry, Status, Wire};

/// Whether changes wait, and which.
#[derive(Default, Debug)]
pub(crate) struct Freezing {
    /// Until then.
    pub(crate) until: Option<Mono>,
    waiting: VecDeque<Early>,
}

impl Freezing {
    /// Whether changes wait.
    pub(crate) const fn is_on(&self) -> bool {
        self.until.is_some()
    }
}

/// Whether a request changes what is stored.
pub(crate) fn changes(request: &Request) -> bool {
    request.op.row().retry == Retry::Once || request.op == Op::SetExport
}

impl Lane {
    /// Begins a freeze, prolongs it or ends it.
    pub(crate) fn on_freeze(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
    ) -> Result<(), Breach> {
        let body = &turn.arena.get(arrived.frame)[HEAD_BYTES..];
        let Freeze { lease_ms } = Freeze::decode_all(body).map_err(|_| Breach::Malformed)?;
        let asked = Asked::from(arrived.request);
        if !arrived.open.binding.administers || lease_ms > FREEZE_MS_MAX {
            let allowed = arrived.open.binding.administers;
            let status = if allowed { Status::Invalid } else { Status::NotPermitted };
            self.say_reply(turn, arrived.conn, &asked, &Said::plain(status, &[]));
            return Ok(());
        }
        let held_on = self.freeze.is_on();
        if lease_ms == 0 {
            self.thaw(turn);
        } else {
            self.freeze.until = Some(turn.now.mono.after_ms(lease_ms.into()));
        }
        let change_count = u64::try_from(self.change_count()).unwrap_or(u64::MAX);
        let frozen = Frozen { held_on, change_count }.to_bytes();
        self.say_reply(turn, arrived.conn, &asked, &Said::plain(Status::Ok, &frozen));
        Ok(())
    }

    /// Changes that have begun and not ended.
    fn change_count(&self) -> usize {
        let across = usize::from(!self.txns.is_at_rest());
        let cold = usize::from(self.cold.has_waiting());
        self.pending.change_count()
            + self.replaying.len()
            + self.sizing.len()
            + self.destroying_count()
            + across
            + cold
    }

    /// A change waits for the end of the freeze.
    pub(crate) fn await_thaw(&mut self, turn: &Turn<'_>, arrived: &Arrived<'_>) {
        self.count_outstanding(arrived);
        let frame: Vec<u8> = turn.arena.get(arrived.frame).to_vec();
        let early = Early { conn: arrived.conn, frame, bulk: arrived.bulk, reopens: false };
        self.freeze.waiting.push_back(early);
    }

    /// Ends the freeze when its lease is over.
    pub(crate) fn settle_freeze(&mut self, turn: &mut Turn<'_>) {
        if self.freeze.until.is_some_and(|until| until <= turn.now.mono) {
            self.say(turn, Say::Warning, "a freeze was not ended by who began it; changes go on");
            self.thaw(turn);
        }
    }

    /// What waited goes on, in the order in which it came.
    fn thaw(&mut self, turn: &mut Turn<'_>) {
        self.freeze.until = None;
        let waiting = core::mem::take(&mut self.freeze.waiting);
        waiting.into_iter().for_each(|early| self.run_deferred(turn, early));
    }

    /// A connection is gone, and what came over it and waits.
    pub(crate) fn drop_frozen_of(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        self.freeze.waiting.retain(|early| {
            if let Some(bulk) = early.bulk.filter(|_| early.conn == conn) {
                turn.act(Action::Release { buf: bulk.buf });
            }
            early.conn != conn
        });
    }
}
