//! Interrupted calls: requests not yet sent are dropped; requests sent get a short time for their
//! reply and are then abandoned (I18).
//!
//! An abandoned write is not executed later, over newer writes. Its slot must still learn whether
//! it took effect, so the client sends the same xid again as a write of no bytes: the slot replies
//! if the write was executed; otherwise the empty write changes nothing. A copy of the bytes is
//! retained meanwhile, because an executed write may have to be replayed.

use crate::CallId;
use crate::client::Client;
use crate::exchange::Place;
use crate::plan::Plan;
use alloc::vec::Vec;
use interface::Turn;
use wire::{InodeNo, Op, Status, Wire, Writer};

/// How long an interrupted call waits for its reply. Programs that handle signals expect EINTR from
/// reads of a terminal, but not from mkdir: as long as the server replies, a signal does not
/// abandon a call, nor one that is about to be sent.
const GRACE_MS: u64 = 1_000;

impl Client {
    /// Interrupts the caller of `call`. It is soon answered: with its result or, if there is no
    /// connection or no reply, with `Interrupted`. False when there is no such call (any more).
    pub fn interrupt(&mut self, turn: &mut Turn<'_>, call: CallId) -> bool {
        let Some(job_id) = self.job_of(call) else { return false };
        if let Some(Plan::LockCall { inode }) = self.jobs.get(job_id).map(|job| job.plan) {
            self.interrupt_lock(turn, job_id, inode);
            return true;
        }
        if !self.is_reachable(job_id) {
            self.abandon(turn, job_id);
        } else if !self.interrupts.iter().any(|(_, known)| *known == call) {
            self.interrupts.push((turn.now.mono.after_ms(GRACE_MS), call));
        }
        true
    }

    /// Abandons interrupted calls whose time is up, or whose connection was lost.
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
            // No send from that memory may be in flight once the caller has its answer.
            self.drop_link(turn, link_index);
        }
        if self.is_unwanted(exchange_id) {
            self.forget(exchange_id);
        } else if let Some(exchange) = self.exchanges.get_mut(exchange_id)
            && let Some(bulk) = exchange.bulk.take()
        {
            exchange.retained = Some(self.retained.keep(turn, bulk));
            write_nothing(exchange.op, &mut exchange.body);
        }
    }

    /// Whether a request without a caller may be dropped: it is not on a connection, and either was
    /// never sent or changes nothing.
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
                | Plan::Goodbye { .. }
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
        let Some(exchange) = self.exchanges.try_remove(exchange_id) else { return };
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
                    link.urgent.retain(|id| *id != exchange_id);
                    link.resends.retain(|id| *id != exchange_id);
                    link.fresh.retain(|id| *id != exchange_id);
                }
                // It may have been woken for a free slot, which another waiter takes now.
                self.wake_slot_waiter(exchange.session_index);
            }
        }
        if let Some(retained) = exchange.retained {
            self.retained.release(retained);
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

/// Replaces an encoded write, or list, by one of no bytes to the same file.
fn write_nothing(op: Op, body: &mut Vec<u8>) {
    let clears = wire::ClearPrivileges::Nothing;
    if op == Op::WriteList {
        let inode = wire::WriteList::decode_all(body).map_or(InodeNo(0), |write| write.inode);
        body.clear();
        let pieces = wire::Pieces::NONE;
        return wire::WriteList { inode, pieces, clears }.encode(&mut Writer::new(body));
    }
    debug_assert_eq!(op, Op::Write, "only writes and lists have bytes to send");
    let inode = wire::Write::decode_all(body).map_or(InodeNo(0), |write| write.inode);
    body.clear();
    let nothing = wire::Write { inode, file_offset: 0, append: false, clears };
    nothing.encode(&mut Writer::new(body));
}
