//! Signals of processes that wait for a reply.
//!
//! The kernel reports every signal, once, also those that a program handles and continues after:
//! timers, children, a language runtime's signals. A local file system ignores them in mkdir or
//! fsync, and so does this one: a request is abandoned only if its process is being killed or
//! terminated, according to `/proc`. Most requests are answered before that check. A process may be
//! killed after the kernel has reported a harmless signal, so it is checked as long as it waits.

use crate::abi::Opcode;
use crate::args::split;
use crate::call_ids::call_id;
use crate::lane::MountLane;
use crate::pending::Wait;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{Action, KernelAction, Mono, MountMessage, PeerAction, Span, Ticket, Turn};
use wire::{LaneId, Status};

/// The time from a signal to the first check of its process.
const FIRST_CHECK_MS: u64 = 20;
/// The time between further checks.
const CHECK_MS: u64 = 250;
/// Over io_uring the kernel (6.18) does not report a signal that arrived while the request was in
/// the kernel's queue, so the process of a request that waits this long is checked anyway.
const LONG_WAIT_MS: u64 = 1_000;

/// The process of requests that the kernel makes for nobody: it writes back what was stored to through
/// a mapping, and drops those bytes if that fails. Also that of processes that this mount cannot see.
const NO_PROCESS: u32 = 0;

const COUNT_MAX: usize = 64;

/// When requests are looked through again, as long as there are any.
#[derive(Debug, Default)]
pub(crate) struct Looks(Option<Mono>);

impl Looks {
    /// There are none.
    pub(crate) const fn end(&mut self) {
        self.0 = None;
    }

    /// Whether it is time to, which it is each `pause_ms`; the lane wakes up for the next time.
    pub(crate) fn are_due(&mut self, turn: &mut Turn<'_>, pause_ms: u64) -> bool {
        let (now, next) = (turn.now.mono, turn.now.mono.after_ms(pause_ms));
        let at = *self.0.get_or_insert(next);
        let is_due = at <= now;
        let at = if is_due { next } else { at };
        self.0 = Some(at);
        turn.act(Action::WakeAt { at });
        is_due
    }
}

#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// Interrupts without a request here: a peer lane may have it, or it may arrive later. The
    /// oldest is dropped first.
    uniques: VecDeque<u64>,
    /// Requests of this lane whose processes had a signal, and when to check them.
    checks: Vec<(Mono, u64)>,
    /// When requests that wait long are searched for.
    long_waits: Looks,
}

impl Interrupts {
    fn remember(&mut self, unique: u64) {
        if self.uniques.contains(&unique) {
            return;
        }
        if self.uniques.len() == COUNT_MAX {
            self.uniques.pop_front();
        }
        self.uniques.push_back(unique);
    }

    /// Schedules a check of a request's process, unless there is one.
    fn check_at(&mut self, at: Mono, unique: u64) {
        if !self.checks.iter().any(|(_, known)| *known == unique) {
            self.checks.push((at, unique));
        }
    }

    /// Whether this request was interrupted before it arrived. Forgets it.
    pub(crate) fn take(&mut self, unique: u64) -> bool {
        let at = self.uniques.iter().position(|known| *known == unique);
        at.and_then(|at| self.uniques.remove(at)).is_some()
    }
}

impl MountLane {
    /// Whether no further request may wait for a lock.
    pub(crate) fn is_full_of_waits(&self) -> bool {
        let count_max = self.config.lock_wait_count_max;
        count_max < usize::MAX && self.pendings.lock_wait_count() >= count_max
    }

    pub(crate) fn send_to_peer_lanes(&self, turn: &mut Turn<'_>, message: MountMessage) {
        for lane in (0..self.client.lane_count()).map(LaneId) {
            if lane != self.client.lane() {
                turn.act(PeerAction::Message { to: lane, message });
            }
        }
    }

    /// The kernel interrupts a request.
    pub(crate) fn on_interrupt(&mut self, turn: &mut Turn<'_>, unique: u64, forward: bool) {
        let Some(pending_id) = self.pendings.by_unique(unique) else {
            self.interrupts.remember(unique);
            if forward {
                self.send_to_peer_lanes(turn, MountMessage::Interrupt { unique });
            }
            return;
        };
        let pending = self.pendings.get(pending_id);
        let header = pending.and_then(|pending| split(&pending.request).ok());
        if header.is_some_and(|(header, _)| header.opcode == Opcode::Setlkw as u32) {
            self.abandon(turn, pending_id);
        } else {
            self.interrupts.check_at(turn.now.mono.after_ms(FIRST_CHECK_MS), unique);
        }
    }

    /// Schedules checks for requests that wait long.
    fn check_long_waits(&mut self, turn: &mut Turn<'_>) {
        if !self.config.over_io_uring || self.pendings.count() == 0 {
            return self.interrupts.long_waits.end();
        }
        if !self.interrupts.long_waits.are_due(turn, LONG_WAIT_MS) {
            return;
        }
        let now = turn.now.mono;
        for pending_id in self.pendings.all() {
            let Some(pending) = self.pendings.get(pending_id) else { continue };
            if pending.pid != NO_PROCESS
                && !pending.abandoned
                && pending.since.after_ms(LONG_WAIT_MS) <= now
            {
                self.interrupts.check_at(now, pending.unique);
            }
        }
    }

    /// Requests the signals of processes whose check is due.
    pub(crate) fn check_interrupted(&mut self, turn: &mut Turn<'_>) {
        self.check_long_waits(turn);
        let now = turn.now.mono;
        let mut next: Option<Mono> = None;
        let pendings = &self.pendings;
        self.interrupts.checks.retain(|(at, unique)| {
            let Some(pending) = pendings.by_unique(*unique).and_then(|id| pendings.get(id)) else {
                return false;
            };
            if *at > now {
                next = Some(next.map_or(*at, |next| next.min(*at)));
                return true;
            }
            turn.act(KernelAction::CallerSignals { ticket: Ticket(*unique), pid: pending.pid });
            false
        });
        if let Some(at) = next {
            turn.act(Action::WakeAt { at });
        }
    }

    pub(crate) fn on_signals(&mut self, turn: &mut Turn<'_>, ticket: Ticket, ends: bool) {
        let unique = ticket.0;
        if !ends {
            self.interrupts.check_at(turn.now.mono.after_ms(CHECK_MS), unique);
        } else if let Some(pending_id) = self.pendings.by_unique(unique) {
            self.abandon(turn, pending_id);
        }
    }

    /// A request has begun to wait: an interrupt applies to all that it waits for.
    pub(crate) fn note_abandoned(&mut self, pending_id: usize) {
        if self.pendings.get(pending_id).is_some_and(|pending| pending.abandoned) {
            self.abandon_again.push(pending_id);
        }
    }

    /// Abandons those again. Returns whether there were any.
    pub(crate) fn abandon_again(&mut self, turn: &mut Turn<'_>) -> bool {
        let again = core::mem::take(&mut self.abandon_again);
        for pending_id in &again {
            // Its number may be that of another request meanwhile.
            if self.pendings.get(*pending_id).is_some_and(|pending| pending.abandoned) {
                self.abandon(turn, *pending_id);
            }
        }
        !again.is_empty()
    }

    /// Abandons a request: its process does not read the reply. One that waits here for others, which
    /// the server may not answer either, has done nothing yet and is over.
    pub(crate) fn abandon(&mut self, turn: &mut Turn<'_>, pending_id: usize) {
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        pending.abandoned = true;
        let is_over = match core::mem::replace(&mut pending.wait, Wait::Call) {
            Wait::Groups => {
                pending.wait = Wait::Groups;
                return;
            }
            Wait::Call => self.behind.end_wait_of(pending_id) || self.ahead.end_wait_of(pending_id),
            Wait::Written(ended) => {
                self.behind.end_wait_of(pending_id);
                ended.is_some()
            }
        };
        if is_over {
            self.reply(turn, pending_id, Status::Interrupted, Span::default(), None);
        } else {
            self.client.interrupt(turn, call_id(pending_id));
        }
    }
}
