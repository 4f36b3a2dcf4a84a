//! Waiters behind a failed log: their cause never ends, so they fail.

use super::{Cause, Waiter};
use crate::Lane;
use crate::request::SuspendedRequest;
use crate::request_header::{RequestHeader, SlotId};
use crate::response::Response;
use disk::TxnId;
use interface::Turn;
use wire::{Header, Request, Retry, ShardId, Status};

impl Lane {
    /// Fails what waits for the log, at the end of every turn behind a fence. Returns whether
    /// there was anything.
    pub(crate) fn fail_unsafe(&mut self, turn: &mut Turn<'_>) -> bool {
        let waiters = self.waiters.take_unsafe();
        let any = !waiters.is_empty();
        for waiter in waiters {
            match waiter {
                // Its session will not be recorded: it is executed, or refused, as without that.
                Waiter::Suspended(suspended) => self.waiters.resume_soon(*suspended),
                Waiter::Slot(_)
                | Waiter::Reply(_)
                | Waiter::Size(..)
                | Waiter::Part(..)
                | Waiter::Step(_)
                | Waiter::Grant(_)
                | Waiter::Received(_) => self.fail_waiter(turn, waiter),
            }
        }
        any
    }

    /// Fails all requests that are suspended by locks, which may never be released.
    pub(crate) fn fail_locked(&mut self, turn: &mut Turn<'_>) {
        let waiters = self.waiters.take_locked();
        waiters.into_iter().for_each(|waiter| self.fail_waiter(turn, waiter));
    }

    /// Fails the requests that are suspended by one transaction's locks at a shard.
    pub(crate) fn fail_locked_by(&mut self, turn: &mut Turn<'_>, shard: ShardId, txn: TxnId) {
        self.fail_cause(turn, &Cause::Lock(shard, txn));
    }

    /// Fails what waits for a cause.
    pub(crate) fn fail_cause(&mut self, turn: &mut Turn<'_>, cause: &Cause) {
        let waiters = self.waiters.release(cause);
        waiters.into_iter().for_each(|waiter| self.fail_waiter(turn, waiter));
    }

    fn fail_waiter(&mut self, turn: &mut Turn<'_>, waiter: Waiter) {
        match waiter {
            Waiter::Slot(slot_id) => self.fail_slot(turn, &slot_id),
            Waiter::Reply(reply) => self.fail_reply(turn, reply),
            Waiter::Step(step) => self.fail_awaited(turn, step),
            // The wait has ended all the same.
            Waiter::Grant(ended) => self.send_grant(turn, ended),
            Waiter::Suspended(suspended) => self.fail_suspended(turn, *suspended),
            // The size is asked for again by the next boot.
            Waiter::Size(..) => {}
            Waiter::Part(work, _) => self.tell_part(turn, work, None),
            // The log fails after recovery as well as during it: these are executed or dropped.
            Waiter::Received(_) => {}
        }
    }

    fn fail_suspended(&mut self, turn: &mut Turn<'_>, suspended: SuspendedRequest) {
        let SuspendedRequest { conn, times, frame, pins, lease_keys, .. } = suspended;
        self.leases.end_wait(&lease_keys, turn.now.mono);
        let Ok((Header::Request(request), _)) = Header::decode(&frame) else { return };
        let Request { shard, session, slot, .. } = request;
        let index = self.meta_index(shard);
        self.metas[index].unpin(&pins);
        match request.op.row().retry {
            Retry::Once => self.fail_slot(turn, &SlotId { shard, session, slot }),
            Retry::Repeat => {
                let response = Response::plain(Status::Io, &[]);
                let header = RequestHeader { times, ..RequestHeader::from(&request) };
                self.send(turn, conn, &header, &response);
            }
        }
    }
}
