//! Requests that wait. One that was begun needs a lock of a cross-shard transaction, non-resident
//! names, the end of leases or the record of its session; one that was received and not begun waits for recovery, a freeze or an answer about
//! containment. Both are stored as they arrived and executed when the wait ends.

use super::{Cause, Waiter};
use crate::Lane;
use crate::acknowledgements::Gate;
use crate::config::Share;
use crate::leases::LeaseWait;
use crate::request::{ReceivedFrame, ReceivedRequest, SuspendedRequest};
use crate::request_header::{RequestHeader, Times};
use crate::response::{DeferredReply, Response};
use crate::session::State;
use crate::traces::shown;
use alloc::boxed::Box;
use alloc::vec::Vec;
use interface::{Action, ConnId, Turn};
use wire::traces::WaitCause;
use wire::{Header, Request, Retry, Status};

impl Lane {
    /// Suspends a received request before anything of it is executed; it is outstanding meanwhile.
    pub(crate) fn suspend_received(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
        cause: Cause,
    ) {
        self.count_outstanding(received);
        let frame = turn.arena.get(received.frame).to_vec();
        let (conn, bulk, times) = (received.conn, received.bulk, received.times);
        self.trace_wait(turn, received, (shown(&cause), Vec::new()));
        let received = ReceivedFrame { conn, times, frame, bulk };
        self.waiters.suspend(cause, Waiter::Received(received));
    }

    /// A cause has ended: executes the received requests that waited for it, in their order.
    pub(crate) fn run_received(&mut self, turn: &mut Turn<'_>, cause: &Cause) {
        for waiter in self.waiters.release(cause) {
            let Waiter::Received(received) = waiter else { continue };
            let ReceivedFrame { conn, times, frame, bulk } = received;
            self.traces.end_wait(times.trace, turn.now.mono);
            if self.connections.settled(conn) {
                let frame = turn.arena.put(&frame);
                self.on_request(turn, conn, (frame, bulk), Some(times));
            } else if let Some(bulk) = bulk {
                turn.act(Action::Release { buf: bulk.buf });
            }
        }
    }

    /// A connection has ended: drops its requests that were not begun.
    pub(crate) fn cancel_received(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        let of_conn = |waiter: &Waiter| match waiter {
            Waiter::Received(received) if received.conn == conn => {
                Some((received.times.trace, Header::decode(&received.frame).ok()?.0))
            }
            Waiter::Received(_)
            | Waiter::Slot(_)
            | Waiter::Reply(_)
            | Waiter::Size(..)
            | Waiter::Part(..)
            | Waiter::Step(_)
            | Waiter::Grant(_)
            | Waiter::Suspended(_) => None,
        };
        for (_, waiter) in self.waiters.all() {
            let Some((trace, header)) = of_conn(waiter) else { continue };
            self.traces.forget(trace);
            if let Header::Request(request) = header {
                self.recovery.on_reopen_dropped(&request);
            }
        }
        for bulk in self.waiters.cancel(conn) {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// Suspends a request until the lock or the units that blocked its execution are available.
    pub(crate) fn suspend(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
        let request = received.request;
        let suspended = self.begin_suspension(turn, received);
        match self.metas[self.meta_index(request.shard)].blocker() {
            Some(blocker) => {
                let cause = Cause::Lock(request.shard, blocker);
                let whom = self.txns.client_of(blocker).into_iter().collect();
                self.trace_wait(turn, received, (shown(&cause), whom));
                self.waiters.suspend(cause, Waiter::Suspended(Box::new(suspended)));
            }
            None => {
                self.trace_wait(turn, received, (WaitCause::Rows, Vec::new()));
                self.suspend_for_rows(turn, request.shard, suspended);
            }
        }
    }

    /// Suspends a request until leases of other clients have ended.
    pub(crate) fn suspend_for_leases(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
        (first, lease_keys): LeaseWait,
    ) {
        let suspended = self.begin_suspension(turn, received);
        let suspended = SuspendedRequest { lease_keys, ..suspended };
        let holders = self.leases.recalled_from(first, turn.now.mono);
        let whom = self.clients_of(&holders);
        self.trace_wait(turn, received, (WaitCause::Lease, whom));
        self.waiters.suspend(Cause::Lease(first), Waiter::Suspended(Box::new(suspended)));
    }

    /// Suspends a request until its session is durably recorded.
    pub(crate) fn suspend_for_record(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
        until: Gate,
    ) {
        let suspended = self.begin_suspension(turn, received);
        let suspended = SuspendedRequest { for_record: true, ..suspended };
        let cause = Cause::Batch(until);
        self.trace_wait(turn, received, (shown(&cause), Vec::new()));
        self.waiters.suspend(cause, Waiter::Suspended(Box::new(suspended)));
    }

    fn begin_suspension(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> SuspendedRequest {
        let request = received.request;
        if request.op.row().retry == Retry::Once {
            let target = received.target();
            let key = (request.shard, request.session);
            let slot = self.sessions.table_or_new(key).slot(request.slot);
            (slot.xid, slot.op) = (request.xid, request.op);
            slot.state = State::Running(target);
        }
        let frame = turn.arena.get(received.frame).to_vec();
        let (conn, open, times) = (received.conn, received.open, received.times);
        let (bulk, pins, lease_keys) = (received.bulk, Vec::new(), Box::default());
        let for_record = false;
        SuspendedRequest { conn, open, times, frame, bulk, pins, lease_keys, for_record }
    }

    /// Executes a suspended request whose wait is over. Its units stay pinned until then.
    pub(crate) fn resume(&mut self, turn: &mut Turn<'_>, suspended: SuspendedRequest) {
        self.leases.end_wait(&suspended.lease_keys, turn.now.mono);
        self.traces.end_wait(suspended.times.trace, turn.now.mono);
        if !self.resume_pinned(turn, &suspended)
            && let Some(bulk) = suspended.bulk
        {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// Returns whether its bulk has another owner from here on.
    fn resume_pinned(&mut self, turn: &mut Turn<'_>, suspended: &SuspendedRequest) -> bool {
        if self.is_stopping() {
            return false; // It will be sent again to the next boot.
        }
        let Ok((Header::Request(request), _)) = Header::decode(&suspended.frame) else {
            return false;
        };
        let frame = turn.arena.put(&suspended.frame);
        let waited =
            !suspended.pins.is_empty() || !suspended.lease_keys.is_empty() || suspended.for_record;
        let SuspendedRequest { conn, open, bulk, .. } = *suspended;
        let (request, denied) = (&request, None);
        let times = Times::of(Some(suspended.times), turn.now.mono);
        let received = ReceivedRequest { conn, open, request, frame, bulk, denied, times };
        if request.shard.is_data() {
            return self.resume_once(turn, &received, waited);
        }
        let index = self.meta_index(request.shard);
        let owned = match request.op.row().retry {
            Retry::Repeat => {
                self.resume_read(turn, &received);
                false
            }
            Retry::Once => self.resume_once(turn, &received, waited),
        };
        self.metas[index].unpin(&suspended.pins);
        owned
    }

    /// Executes a suspended request that must take effect exactly once. Returns whether its bulk
    /// has another owner from here on.
    fn resume_once(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        waited: bool,
    ) -> bool {
        // The client may have resent it since, over another connection.
        let request = received.request;
        let key = (request.shard, request.session);
        let Some(table) = self.sessions.table_mut(key) else { return false };
        let slot = table.slot(request.slot);
        let State::Running(target) = slot.state else { return false };
        if slot.xid != request.xid {
            return false;
        }
        let request = &Request { trace_id: target.trace_id, ..*request };
        let received = &ReceivedRequest { conn: target.conn, request, ..*received };
        // Other requests may have used the log space meanwhile, or the log may have failed.
        let refused = if waited { self.refused(turn, received) } else { None };
        if let Some(status) = refused {
            if self.is_retried(status) {
                self.reset_slot(received);
            }
            self.end_refused(turn, received, status);
            return false;
        }
        if waited && request.shard.is_data() && self.hinders_append_after_wait(turn, received) {
            return false;
        }
        let run = if request.shard.is_data() {
            self.run_data(turn, received).map(|()| true)
        } else {
            self.run(turn, received).map(|()| false)
        };
        run.unwrap_or_else(|protocol_error| {
            self.protocol_error(turn, received.conn, protocol_error);
            request.shard.is_data()
        })
    }

    fn resume_read(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
        if self.waits_for_writers(turn, received) || self.waits_for_record(turn, received) {
            return;
        }
        let effect = match self.execute(turn, received) {
            Ok(effect) => effect,
            Err(protocol_error) => return self.protocol_error(turn, received.conn, protocol_error),
        };
        if effect.status == Status::Busy {
            return self.suspend(turn, received);
        }
        self.send_found(turn, effect.found);
        self.report_open_files(turn, received, effect.status);
        self.on_access_of(turn, received, effect.access);
        let (conn, header) = (received.conn, received.header());
        let strict = self.config.limits.share == Share::Strict;
        let dependency = strict.then(|| self.dependency(received, &effect)).flatten();
        let is_deferred = dependency.is_some();
        let lease = if is_deferred { None } else { self.grant(turn, received, effect.status) };
        let body = self.scratch.take_reply();
        if let Some(dependency) = dependency {
            let (status, body) = (effect.status, body.clone());
            let header = RequestHeader { times: header.times.done(turn.now.mono), ..header };
            self.hold_reply(DeferredReply { conn, header, status, body, bulk: None }, dependency);
        } else {
            let lease = lease.as_ref();
            let response = Response { lease, ..Response::plain(effect.status, &body) };
            self.send(turn, conn, &header, &response);
        }
        self.scratch.return_reply(body);
    }
}
