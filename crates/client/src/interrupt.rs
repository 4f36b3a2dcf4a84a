//! Interrupted calls: requests not yet sent are dropped; requests sent get a short time for their
//! reply and are then abandoned (I18).
//!
//! An abandoned write is not executed later, over newer writes. Its slot must still learn whether
//! it took effect, so the client sends the same xid again as a write of no bytes: the slot replies
//! if the write was executed; otherwise the empty write changes nothing. A copy of the bytes is
//! retained meanwhile, because an executed write may have to be replayed.

use crate::client::Client;
use crate::link::Link;
use crate::plan::{Next, Plan, PlanReply};
use crate::requests::{Place, Requests};
use crate::servers::Servers;
use crate::{Answer, CallId};
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
        let Some(job_id) = self.jobs.of_call(call) else { return false };
        if let Some(Plan::LockCall { inode }) = self.jobs.get(job_id).map(|job| job.plan) {
            self.interrupt_lock(turn, job_id, inode);
            return true;
        }
        // A sync may take long, and leaves nothing undone.
        let plan = self.jobs.get(job_id).map(|job| job.plan);
        let at_once = matches!(plan, Some(Plan::Sync { .. } | Plan::Goodbye));
        if !at_once && is_reachable(&self.requests, &self.servers, job_id) {
            self.jobs.limit_wait(turn.now.mono.after_ms(GRACE_MS), call);
        } else {
            self.abandon(turn, job_id);
        }
        true
    }

    /// Gives up a call at once: the frontend takes back what it has lent to it. It is answered, with
    /// `Interrupted`, and nothing of it is sent any more.
    pub fn give_up(&mut self, turn: &mut Turn<'_>, call: CallId) {
        let Some(job_id) = self.jobs.of_call(call) else { return };
        match self.jobs.get(job_id).map(|job| job.plan) {
            Some(Plan::LockCall { inode }) => self.interrupt_lock(turn, job_id, inode),
            Some(_) | None => self.abandon(turn, job_id),
        }
    }

    /// Abandons interrupted calls whose time is up, or whose connection was lost.
    pub(crate) fn give_up_interrupted(&mut self, turn: &mut Turn<'_>) {
        loop {
            let (requests, servers) = (&self.requests, &self.servers);
            let now = turn.now.mono;
            let abandoned = self.jobs.take_interrupted(|jobs, at, call| {
                let job_id = jobs.of_call(call).filter(|_| at > now);
                job_id.is_some_and(|job_id| is_reachable(requests, servers, job_id))
            });
            let Some(call) = abandoned else { return };
            if let Some(job_id) = self.jobs.of_call(call) {
                self.abandon(turn, job_id);
            }
        }
    }

    fn abandon(&mut self, turn: &mut Turn<'_>, job_id: usize) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        if let Some(call) = job.call.take() {
            let made = if let Plan::Made(attr) = job.plan { Some(attr) } else { None };
            self.jobs.answer(call, made.map(Answer::Entry).ok_or(Status::Interrupted));
        }
        if self.end_ahead(job_id).is_some()
            && self.jobs.get(job_id).is_some_and(|job| job.pending_count == 0)
        {
            return self.finish(job_id, Err(Status::Interrupted));
        }
        let requests: Vec<usize> = self.requests.of_job(job_id).map(|(id, _)| id).collect();
        for exchange_id in requests {
            self.abandon_request(turn, exchange_id);
        }
        self.note_abandoned(job_id);
    }

    fn abandon_request(&mut self, turn: &mut Turn<'_>, exchange_id: usize) {
        let Some(exchange) = self.requests.get(exchange_id) else { return };
        let link_index = exchange.link_index;
        if exchange.bulk.is_some() && exchange.place == Place::Sent {
            // No send from that memory may be in flight once the caller has its answer.
            self.drop_link(turn, link_index);
        }
        if self.is_unwanted(exchange_id) {
            self.forget(exchange_id);
        } else if let Some(exchange) = self.requests.get_mut(exchange_id)
            && let Some(bulk) = exchange.bulk.take()
        {
            exchange.retained = Some(self.replay_space.copy(turn, bulk));
            let is_spread = exchange.layout.is_some_and(|layout| layout.is_spread());
            write_nothing(exchange.op, is_spread, &mut exchange.body);
        }
    }

    /// Whether a request without a caller may be dropped: it is not on a connection, and either was
    /// never sent or changes nothing.
    pub(crate) fn is_unwanted(&self, exchange_id: usize) -> bool {
        let Some(exchange) = self.requests.get(exchange_id) else { return false };
        let Some(job) = self.jobs.get(exchange.job_id) else { return true };
        let must_go_on = matches!(
            job.plan,
            Plan::Close(_)
                | Plan::Reopen { .. }
                | Plan::Register { .. }
                | Plan::Claim { .. }
                | Plan::LockTask(_)
                | Plan::Relock { .. }
                | Plan::Layout { .. }
                | Plan::Widen { .. }
                | Plan::MapAsk
                | Plan::Sync { .. }
                | Plan::Goodbye
                | Plan::Durable { .. }
                | Plan::EndAppend { .. }
        );
        let harmless = exchange.xid.is_none() || exchange.repeats();
        job.call.is_none() && !must_go_on && exchange.place != Place::Sent && harmless
    }

    /// Drops a request. Its job ends with its last one.
    pub(crate) fn forget(&mut self, exchange_id: usize) {
        let Some(exchange) = self.requests.get(exchange_id) else { return };
        let (job_id, op, part) = (exchange.job_id, exchange.op, exchange.part);
        self.forget_exchange(exchange_id);
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        if job.pending_count <= 1 {
            return self.finish(job_id, Err(Status::Interrupted));
        }
        job.pending_count -= 1;
        let (outcome, from_slot, last) = (Err(Status::Interrupted), false, false);
        let (states_layout, grants_contents) = (false, false);
        let reply =
            PlanReply { outcome, from_slot, op, part, last, states_layout, grants_contents };
        if let Next::Wait(plan) = job.plan.next(reply, &mut self.handles) {
            job.plan = plan;
        }
    }

    /// Drops all requests of a job, which is about to end.
    pub(crate) fn forget_requests(&mut self, job_id: usize) {
        let requests: Vec<usize> = self.requests.of_job(job_id).map(|(id, _)| id).collect();
        requests.into_iter().for_each(|exchange_id| self.forget_exchange(exchange_id));
    }

    pub(crate) fn forget_exchange(&mut self, exchange_id: usize) {
        self.end_steps(exchange_id);
        self.release_xid(exchange_id);
        let Some(exchange) = self.requests.remove(exchange_id) else { return };
        match exchange.place {
            Place::SpaceWait => self.replay_space.end_wait(exchange_id),
            Place::Unrouted | Place::Later => self.requests.end_wait(exchange_id),
            Place::AppendWait => self.appends.end_wait(exchange.inode(), exchange_id),
            Place::CloseWait => self.abandoned.end_wait(exchange_id),
            Place::LayoutWait => self.layouts.end_wait(exchange.inode(), exchange_id),
            Place::SlotWait => {
                if let Some(session) = self.servers.session_mut(exchange.session_index) {
                    session.slot_waiters.retain(|id| *id != exchange_id);
                }
            }
            Place::Queued | Place::Sent => {
                if let Some(link) = self.servers.link_mut(exchange.link_index) {
                    link.dequeue(exchange_id);
                }
                // It may have been woken for a free slot, which another waiter takes now.
                self.wake_slot_waiter(exchange.link_index, exchange.session_index);
            }
        }
        if let Some(retained) = exchange.retained {
            self.replay_space.release(retained);
        }
        self.requests.spare(exchange.body);
    }
}

/// Whether all requests of a job can be answered now.
fn is_reachable(requests: &Requests, servers: &Servers, job_id: usize) -> bool {
    let mut links = requests.of_job(job_id).map(|(_, request)| servers.link(request.link_index));
    let is_up = |link: Option<&Link>| link.is_some_and(Link::is_up);
    links.next().is_some_and(is_up) && links.all(is_up)
}

/// Replaces an encoded write, or list, by one of no bytes to the same file.
fn write_nothing(op: Op, is_spread: bool, body: &mut Vec<u8>) {
    let clears = wire::ClearPrivileges::Nothing;
    if op == Op::WriteList {
        let inode = wire::WriteList::decode_all(body).map_or(InodeNo(0), |write| write.inode);
        body.clear();
        let pieces = wire::Pieces::NONE;
        return wire::WriteList { inode, pieces, clears }.encode(&mut Writer::new(body));
    }
    debug_assert_eq!(op, Op::Write, "only writes and lists have bytes to send");
    // The offset says at which shard it was to be written.
    let (inode, file_offset) = wire::Write::decode_all(body).map_or((InodeNo(0), 0), |write| {
        (write.inode, if write.append && !is_spread { 0 } else { write.file_offset })
    });
    body.clear();
    let nothing = wire::Write { inode, file_offset, append: false, clears };
    nothing.encode(&mut Writer::new(body));
}
