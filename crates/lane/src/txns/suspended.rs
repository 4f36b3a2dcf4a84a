//! Suspended requests: they wait for a lock of a cross-shard transaction, or for non-resident
//! names. They are stored as they arrived and executed when the wait ends.

use super::Lane;
use crate::commit::{DeferredReply, SlotId};
use crate::config::Share;
use crate::conn::{Conn, Open};
use crate::dispatch::ReceivedRequest;
use crate::outbox::{RequestHeader, Response};
use crate::session::{State, Target};
use alloc::vec::Vec;
use disk::TxnId;
use interface::{ConnId, Turn};
use meta::Unit;
use wire::{Header, Request, Retry, ShardId, Status};

/// A suspended request.
#[derive(Clone, Debug)]
pub(crate) struct SuspendedRequest {
    conn: ConnId,
    open: Open,
    frame: Vec<u8>,
    /// The units that must stay resident for it.
    pub(crate) pins: Vec<Unit>,
}

impl Lane {
    /// Suspends a request until the lock or the units that blocked its execution are available.
    pub(crate) fn suspend(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
        let request = received.request;
        if request.op.row().retry == Retry::Once {
            let target = Target { conn: received.conn, trace_id: request.trace_id };
            let key = (request.shard, request.session);
            let slot = self.slots.entry(key).or_default().slot(request.slot);
            (slot.xid, slot.op) = (request.xid, request.op);
            slot.state = State::Running(target);
        }
        let frame = turn.arena.get(received.frame).to_vec();
        let suspended =
            SuspendedRequest { conn: received.conn, open: received.open, frame, pins: Vec::new() };
        match self.metas[self.meta_index(request.shard)].blocker() {
            Some(blocker) => {
                self.txns.suspended.entry((request.shard, blocker)).or_default().push(suspended);
            }
            None => self.suspend_for_rows(turn, request.shard, suspended),
        }
    }

    /// A suspended read is outstanding, unlike one that is answered at once.
    pub(crate) fn count_suspended(&mut self, conn: ConnId) {
        if let Some(Conn::Open(open)) = self.conns.get_mut(&conn) {
            open.outstanding_count += 1;
        }
    }

    /// Releases the locks of a transaction at a shard, and resumes the requests that they blocked.
    pub(super) fn release_locks(&mut self, shard: ShardId, txn: TxnId) {
        let index = self.meta_index(shard);
        self.metas[index].release(txn);
        self.containment.due = true;
        let metas = &self.metas;
        let free = self
            .txns
            .accessed
            .extract_if(.., |(inode, _)| inode.shard() == shard && !metas[index].is_locked(*inode));
        self.txns.accessed_due.extend(free);
        if let Some(all) = self.txns.suspended.remove(&(shard, txn)) {
            self.txns.due.extend(all);
        }
    }

    /// The log has failed: fails the suspended requests, whose locks may never be released.
    pub(super) fn fail_suspended(&mut self, turn: &mut Turn<'_>) {
        let suspended = core::mem::take(&mut self.txns.suspended);
        suspended.into_values().flatten().for_each(|suspended| self.fail_one(turn, suspended));
    }

    /// Fails a suspended request.
    pub(crate) fn fail_one(&mut self, turn: &mut Turn<'_>, suspended: SuspendedRequest) {
        let SuspendedRequest { conn, frame, pins, .. } = suspended;
        let Ok((Header::Request(request), _)) = Header::decode(&frame) else { return };
        let Request { shard, session, slot, .. } = request;
        let index = self.meta_index(shard);
        self.metas[index].unpin(&pins);
        match request.op.row().retry {
            Retry::Once => self.fail_slot(turn, &SlotId { shard, session, slot }),
            Retry::Repeat => {
                let response = Response::plain(Status::Io, &[]);
                self.send(turn, conn, &RequestHeader::from(&request), &response);
            }
        }
    }

    /// Executes a suspended request whose wait is over. Its units stay pinned until then.
    pub(super) fn resume(&mut self, turn: &mut Turn<'_>, suspended: SuspendedRequest) {
        if self.stopping {
            return; // It will be sent again to the next boot.
        }
        let Ok((Header::Request(request), _)) = Header::decode(&suspended.frame) else { return };
        let index = self.meta_index(request.shard);
        self.resume_pinned(turn, &suspended, &request);
        self.metas[index].unpin(&suspended.pins);
    }

    fn resume_pinned(
        &mut self,
        turn: &mut Turn<'_>,
        suspended: &SuspendedRequest,
        request: &Request,
    ) {
        let frame = turn.arena.put(&suspended.frame);
        let waited = !suspended.pins.is_empty();
        let received = ReceivedRequest {
            conn: suspended.conn,
            open: suspended.open,
            request,
            frame,
            bulk: None,
            denied: None,
        };
        match request.op.row().retry {
            Retry::Repeat => self.resume_read(turn, &received),
            Retry::Once => {
                // The client may have resent it since, over another connection.
                let key = (request.shard, request.session);
                let Some(table) = self.slots.get_mut(&key) else { return };
                let slot = table.slot(request.slot);
                let State::Running(target) = slot.state else { return };
                if slot.xid != request.xid {
                    return;
                }
                let request = Request { trace_id: target.trace_id, ..*request };
                let received = ReceivedRequest { conn: target.conn, request: &request, ..received };
                // Other requests may have used the log space meanwhile, or the log may have failed.
                let refused = if waited { self.refused(turn, &received) } else { None };
                if let Some(status) = refused {
                    if self.is_retried(status) {
                        self.reset_slot(&received);
                    }
                    return self.end_refused(turn, &received, status);
                }
                if let Err(protocol_error) = self.run(turn, &received) {
                    self.protocol_error(turn, received.conn, protocol_error);
                }
            }
        }
    }

    fn resume_read(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
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
        let (conn, header) = (received.conn, RequestHeader::from(received.request));
        let strict = self.config.limits.share == Share::Strict;
        let dependency = strict.then(|| self.dependency(received, &effect)).flatten();
        let body = core::mem::take(&mut self.reply);
        if let Some(dependency) = dependency {
            let (status, body) = (effect.status, body.clone());
            self.hold_reply(DeferredReply { conn, header, status, body, bulk: None }, dependency);
        } else {
            self.send(turn, conn, &header, &Response::plain(effect.status, &body));
        }
        self.reply = body;
    }
}
