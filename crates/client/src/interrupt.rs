//! Calls that the caller gives up: what was not sent is dropped, what was sent is either answered
//! within a moment or left to run out with nobody waiting (I18).
//!
//! A write that nobody waits for any more is not done late, over what came after it. Its slot must
//! still learn whether it took effect: the same xid is sent again as a write of no bytes, which the
//! slot answers if the write was done and which does nothing if it was not. A copy of the bytes is
//! kept meanwhile: a write that was done may have to be replayed.

use crate::CallId;
use crate::client::Client;
use crate::exchange::Place;
use crate::plan::Plan;
use alloc::vec::Vec;
use interface::Turn;
use wire::{InodeNo, Op, Status, Wire, Writer};

/// How long a reply is waited for after an interrupt. Programs that handle signals know that reads
/// of a terminal may fail with EINTR, but not that mkdir may: as long as the server answers, a
/// signal is no reason to give up, and what is not sent yet is as good as sent.
const PATIENCE_MS: u64 = 1_000;

impl Client {
    /// The caller of `call` has been interrupted. It is answered soon: with its outcome or, if there
    /// is no connection or no reply, with `Interrupted`. False when there is no such call (any more).
    pub fn interrupt(&mut self, turn: &mut Turn<'_>, call: CallId) -> bool {
        let Some(job_id) = self.job_of(call) else { return false };
        if let Some(Plan::LockCall { inode }) = self.jobs.get(job_id).map(|job| job.plan) {
            self.interrupt_lock(turn, job_id, inode);
            return true;
        }
        if !self.is_reachable(job_id) {
            self.abandon(turn, job_id);
        } else if !self.interrupts.iter().any(|(_, known)| *known == call) {
            self.interrupts.push((turn.now.mono.after_ms(PATIENCE_MS), call));
        }
        true
    }

    /// Interrupted calls whose time is up, or whose connection is gone.
    pub(crate) fn give_up_interrupted(&mut self, turn: &mut Turn<'_>) {
        let mut index = 0;
        while let Some((at, call)) = self.interrupts.get(index).copied() {
            let job_id = self.job_of(call);
            let waits = job_id.is_some_and(|job_id| self.is_reachable(job_id));
            let waits = waits && at > turn.now.mono;
            if waits {
                index += 1;
                continue;
            }
            self.interrupts.swap_remove(index);
            if let Some(job_id) = job_id {
                self.abandon(turn, job_id);
            }
        }
    }

    fn abandon(&mut self, turn: &mut Turn<'_>, job_id: usize) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let exchange_id = job.exchange_id;
        if let Some(call) = job.call.take() {
            self.answers.push_back((call, Err(Status::Interrupted)));
        }
        let Some(exchange) = self.exchanges.get(exchange_id) else { return };
        let link_index = exchange.link_index;
        if exchange.bulk.is_some() && exchange.place == Place::Sent {
            // No send from that memory may be under way once the caller has its answer.
            self.drop_link(turn, link_index);
        }
        if self.is_unwanted(exchange_id) {
            self.forget(exchange_id);
        } else if let Some(exchange) = self.exchanges.get_mut(exchange_id)
            && let Some(bulk) = exchange.bulk.take()
        {
            exchange.kept = Some(self.kept.keep(turn, bulk));
            write_nothing(exchange.op, &mut exchange.body);
        }
    }

    /// Whether a request that is not on a connection may be dropped: nobody waits for it, and
    /// either it never was sent or it changes nothing.
    pub(crate) fn is_unwanted(&self, exchange_id: usize) -> bool {
        let Some(exchange) = self.exchanges.get(exchange_id) else { return false };
        let Some(job) = self.jobs.get(exchange.job_id) else { return true };
        let must_go_on = matches!(
            job.plan,
            Plan::Close(_)
                | Plan::Reopen(_)
                | Plan::LockTask(_)
                | Plan::Relock { .. }
                | Plan::Part { .. }
                | Plan::Leave { .. }
                | Plan::Durable { .. }
        );
        let harmless = exchange.xid.is_none() || exchange.repeats();
        job.call.is_none() && !must_go_on && exchange.place != Place::Sent && harmless
    }

    /// Drops a request and its job.
    pub(crate) fn forget(&mut self, exchange_id: usize) {
        let Some(exchange) = self.exchanges.get(exchange_id) else { return };
        let job_id = exchange.job_id;
        self.forget_exchange(exchange_id);
        self.finish(job_id, Err(Status::Interrupted));
    }

    pub(crate) fn forget_exchange(&mut self, exchange_id: usize) {
        self.release_xid(exchange_id);
        let Some(exchange) = self.exchanges.remove(exchange_id) else { return };
        match exchange.place {
            Place::SpaceWait => self.space_waiters.retain(|id| *id != exchange_id),
            Place::Unrouted => self.unrouted.retain(|id| *id != exchange_id),
            Place::Later => self.later.retain(|(_, id)| *id != exchange_id),
            Place::SlotWait => {
                if let Some(session) = self.sessions.get_mut(exchange.session_index) {
                    session.slot_waiters.retain(|id| *id != exchange_id);
                }
            }
            Place::Queued | Place::Sent => {
                if let Some(link) = self.links.get_mut(exchange.link_index) {
                    link.first.retain(|id| *id != exchange_id);
                    link.again.retain(|id| *id != exchange_id);
                    link.fresh.retain(|id| *id != exchange_id);
                }
                // It may have been the one that a free slot woke: somebody else takes it.
                self.wake_slot_waiter(exchange.session_index);
            }
        }
        if let Some(kept) = exchange.kept {
            self.kept.release(kept);
        }
        self.spare(exchange.body);
    }

    fn job_of(&self, call: CallId) -> Option<usize> {
        self.jobs.iter().find(|(_, job)| job.call == Some(call)).map(|(job_id, _)| job_id)
    }

    fn is_reachable(&self, job_id: usize) -> bool {
        let exchange = self.jobs.get(job_id).and_then(|job| self.exchanges.get(job.exchange_id));
        let link = exchange.and_then(|exchange| self.links.get(exchange.link_index));
        link.is_some_and(crate::link::Link::is_up)
    }
}

/// Makes of an encoded write, or list, one of no bytes to the same file.
fn write_nothing(op: Op, body: &mut Vec<u8>) {
    let clears = wire::ClearPrivileges::Nothing;
    if op == Op::WriteList {
        let inode = wire::WriteList::decode_all(body).map_or(InodeNo(0), |write| write.inode);
        body.clear();
        let pieces = wire::Pieces::NONE;
        return wire::WriteList { inode, pieces, clears }.encode(&mut Writer::new(body));
    }
    debug_assert_eq!(op, Op::Write, "no other op has bytes to send");
    let inode = wire::Write::decode_all(body).map_or(InodeNo(0), |write| write.inode);
    body.clear();
    let nothing = wire::Write { inode, file_offset: 0, append: false, clears };
    nothing.encode(&mut Writer::new(body));
}
