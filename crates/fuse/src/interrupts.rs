//! Signals of processes that wait for an answer.
//!
//! The kernel tells of every signal, once, also of those that a program handles and goes on after:
//! timers, children, a runtime's own. A local file system lets none of them into mkdir or fsync, so
//! neither do we: a request is given up only if its process is being killed or asked to end, which
//! `/proc` tells. Most requests are answered before that is looked at. A process may be killed after
//! the kernel has told of a harmless signal, so it is looked at again for as long as it waits.

use crate::abi::Opcode;
use crate::args::split;
use crate::lane::{MountLane, call_id};
use crate::pending::Wait;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{Action, KernelAction, LaneMessage, Mono, Ticket, Turn};

/// How long a request may go on after a signal before its process is looked at.
const FIRST_LOOK_MS: u64 = 20;
/// How often it is looked at from then on.
const LOOK_MS: u64 = 250;
/// Over io_uring the kernel (6.18) does not tell of a signal that came while the request was still
/// in its own queue, so whoever waits for so long is looked at without being told.
const LONG_WAIT_MS: u64 = 1_000;

const COUNT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// Interrupts whose request is not here: perhaps a peer lane has it, perhaps it comes later. A
    /// short memory; the oldest is forgotten first.
    uniques: VecDeque<u64>,
    /// Requests here whose processes had a signal, and when to look at them.
    looks: Vec<(Mono, u64)>,
    /// When those that wait for long are looked for.
    long_waits_at: Option<Mono>,
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

    /// A request's process is to be looked at then, unless it is anyway.
    fn look_at(&mut self, at: Mono, unique: u64) {
        if !self.looks.iter().any(|(_, known)| *known == unique) {
            self.looks.push((at, unique));
        }
    }

    /// Whether this request was interrupted before it came. Forgets it.
    pub(crate) fn take(&mut self, unique: u64) -> bool {
        let at = self.uniques.iter().position(|known| *known == unique);
        at.and_then(|at| self.uniques.remove(at)).is_some()
    }
}

impl MountLane {
    /// The process of a request has a signal.
    pub(crate) fn on_interrupt(&mut self, turn: &mut Turn<'_>, unique: u64, tell_peer_lanes: bool) {
        let Some(pending_id) = self.pendings.by_unique(unique) else {
            self.interrupts.remember(unique);
            if tell_peer_lanes {
                self.tell_peer_lanes(turn, LaneMessage::Interrupt { unique });
            }
            return;
        };
        let pending = self.pendings.get(pending_id);
        let header = pending.and_then(|pending| split(&pending.request).ok());
        if header.is_some_and(|(header, _)| header.opcode == Opcode::Setlkw as u32) {
            self.give_up(turn, pending_id);
        } else {
            self.interrupts.look_at(turn.now.mono.after_ms(FIRST_LOOK_MS), unique);
        }
    }

    /// Adds those to the looked at that wait for long.
    fn look_for_long_waits(&mut self, turn: &mut Turn<'_>) {
        if !self.config.over_io_uring || self.pendings.count() == 0 {
            self.interrupts.long_waits_at = None;
            return;
        }
        let now = turn.now.mono;
        let at = *self.interrupts.long_waits_at.get_or_insert(now.after_ms(LONG_WAIT_MS));
        if at > now {
            turn.act(Action::WakeAt { at });
            return;
        }
        for pending_id in self.pendings.all() {
            let Some(pending) = self.pendings.get(pending_id) else { continue };
            if !pending.given_up && pending.since.after_ms(LONG_WAIT_MS) <= now {
                self.interrupts.look_at(now, pending.unique);
            }
        }
        let at = now.after_ms(LONG_WAIT_MS);
        self.interrupts.long_waits_at = Some(at);
        turn.act(Action::WakeAt { at });
    }

    /// Asks for the signals of those that still wait.
    pub(crate) fn look_at_interrupted(&mut self, turn: &mut Turn<'_>) {
        self.look_for_long_waits(turn);
        let now = turn.now.mono;
        let mut next: Option<Mono> = None;
        let pendings = &self.pendings;
        self.interrupts.looks.retain(|(at, unique)| {
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
            self.interrupts.look_at(turn.now.mono.after_ms(LOOK_MS), unique);
        } else if let Some(pending_id) = self.pendings.by_unique(unique) {
            self.give_up(turn, pending_id);
        }
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn give_up(&mut self, turn: &mut Turn<'_>, pending_id: usize) {
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        pending.given_up = true;
        if pending.wait == Wait::Call {
            self.client.interrupt(turn, call_id(pending_id));
        }
    }
}
