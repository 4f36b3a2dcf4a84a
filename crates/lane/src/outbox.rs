//! Replies on their way out: at once, or all that depend on a batch together.

use crate::Lane;
use crate::acknowledgements::Gate;
use crate::counters::bytes_of;
use crate::request::ReceivedRequest;
use crate::request_header::{RequestHeader, SlotId, Target};
use crate::response::{DeferredReply, Response, SlotReply};
use crate::session::State;
use alloc::vec::Vec;
use interface::{Action, ConnId, NetAction, Turn};
use wire::{Header, Op, Reply, ReplyParts, SessionId, ShardId, Status, Transno, Xid, reply_flag};

/// The delay of a resend after a refusal because of a long log.
const RETRY_AFTER_MS: u32 = 20;
/// An append ends soon.
const RESERVE_AFTER_MS: u32 = 2;

impl Lane {
    /// Answers a request without a body, with its session's highest durable transaction.
    pub(crate) fn answer_committed(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
        let committed = self.committed(received.request.shard, received.request.session);
        let response = Response { committed, ..Response::plain(Status::Ok, &[]) };
        self.send_reply(turn, received.conn, &received.header(), &response);
    }

    /// Sends a reply, if its connection is still open.
    pub(crate) fn send(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        header: &RequestHeader,
        response: &Response<'_>,
    ) {
        if self.connections.settled(conn) {
            self.send_reply(turn, conn, header, response);
        }
    }

    /// Sends a reply to a request that was never outstanding.
    pub(crate) fn send_reply(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        header: &RequestHeader,
        response: &Response<'_>,
    ) {
        let lane_hint = if response.status == Status::WrongLane {
            self.config.map.lane(header.shard)
        } else {
            self.config.lane
        };
        let token = Some(response.token).filter(|token| !token.is_empty());
        self.stats.reply_gating.token_count += u64::from(token.is_some());
        let parts = ReplyParts {
            message: response.body,
            lease: response.lease.map(|lease| lease.grant),
            further: response.lease.map_or(&[], |lease| &lease.further),
            new_files: response.lease.and_then(|lease| lease.new_files),
            named: response.lease.and_then(|lease| lease.named),
            token,
        };
        let head = Header::Reply(Reply {
            op: header.op,
            lane_hint,
            shard: header.shard,
            slot: header.slot,
            flags: response.flags | parts.flags(),
            session: header.session,
            xid: header.xid,
            transno: response.transno,
            committed: response.committed,
            status: response.status,
            credits: self.config.limits.credits,
            retry_after_ms: retry_after_ms(response.status, header.op).max(response.retry_after_ms),
            boot_id: self.config.boot_id,
            trace_id: header.trace_id,
            op_time_ns: turn.now.wall_ns,
        });
        let lengths = response.bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        let frame = turn.arena.write(|out: &mut Vec<u8>| {
            head.encode(out, lengths, |to| parts.put(to));
        });
        let bulk_bytes = response.bulk.map_or(0, |bulk| bulk.bulk_bytes);
        let out_bytes = bytes_of(frame, bulk_bytes);
        self.count_reply(turn.now.mono, conn, header, (response.status, out_bytes));
        if let Some(inode) = self.telling.awaited_by(header) {
            return self.telling.defer(inode, conn, turn.arena.get(frame).to_vec());
        }
        if response.bulk.is_none() && self.peers.defers_replies() {
            return self.peers.defer(conn, turn.arena.get(frame).to_vec());
        }
        turn.act(NetAction::Send { conn, frame, bulk: response.bulk });
    }

    /// What the deferred reply in a slot depends on is safe: sends it.
    pub(crate) fn release(&mut self, turn: &mut Turn<'_>, slot_id: &SlotId) {
        self.stats.reply_gating.released_count += 1;
        let Some(slot) = self.sessions.slot(slot_id) else { return };
        let state = core::mem::replace(&mut slot.state, State::Free);
        let State::Deferred(target, done, token) = state else {
            slot.state = state;
            return;
        };
        let (xid, op, lease) = (slot.xid, slot.op, slot.lease.take());
        let durable = if slot_id.shard.is_data() {
            done.transno <= self.commit.shard(slot_id.shard).durable
        } else {
            self.commit.is_safe(Gate::of(slot_id.shard, slot.batch_no))
        };
        assert!(durable || !token.is_empty(), "what may be lost is given to the client");
        let token = if durable { &[][..] } else { &token };
        let (flags, lease) = (reply_flag::GATED, lease.as_ref());
        let slot_reply = SlotReply { target, done: &done, flags, lease, token };
        self.answer_slot(turn, slot_id, (xid, op), &slot_reply);
        if let Some(slot) = self.sessions.slot(slot_id) {
            slot.state = State::Done(done);
        }
    }

    /// The same for a reply without a slot.
    pub(crate) fn release_reply(&mut self, turn: &mut Turn<'_>, reply: DeferredReply) {
        let DeferredReply { conn, header, status, body, bulk } = reply;
        self.stats.reply_gating.released_count += 1;
        let committed = self.committed(header.shard, header.session);
        let flags = reply_flag::GATED;
        let response = Response { committed, flags, bulk, ..Response::plain(status, &body) };
        self.send(turn, conn, &header, &response);
        if let Some(bulk) = bulk {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// Sends the outcome of a slot's request.
    pub(crate) fn answer_slot(
        &mut self,
        turn: &mut Turn<'_>,
        slot_id: &SlotId,
        (xid, op): (Xid, Op),
        slot_reply: &SlotReply<'_>,
    ) {
        let SlotId { shard, session, slot } = *slot_id;
        let SlotReply { target, done, flags, lease, token } = *slot_reply;
        let Target { trace_id, times, .. } = target;
        let header = RequestHeader { op, shard, slot, session, xid, trace_id, times };
        let committed = self.committed(shard, session);
        self.track_committed_sent(
            turn,
            slot_id,
            (committed, if token.is_empty() { None } else { Some(done.transno) }),
        );
        let body = &done.body;
        let (status, transno) = (done.status, done.transno);
        let plain = Response::plain(status, body);
        let response = Response { transno, committed, flags, lease, token, ..plain };
        self.send(turn, target.conn, &header, &response);
    }

    /// The transaction up to which all changes of a session at a shard are durable.
    pub(crate) fn committed(&self, shard: ShardId, session: SessionId) -> Transno {
        if self.recovery.is_over() && !self.commit.has_failed() {
            return self.commit.shard(shard).durable;
        }
        // Other sessions' replays may be durable before older ones of this session.
        let client = self.sessions.client_of(session);
        if client.is_some_and(|client| self.recovery.failed.contains(&client)) {
            return Transno(0);
        }
        self.sessions.table((shard, session)).map_or(Transno(0), |table| table.committed)
    }
}

/// When a request that is refused is to be sent again.
fn retry_after_ms(status: Status, op: Op) -> u32 {
    match status == Status::RetryLater {
        true if op == Op::Reserve => RESERVE_AFTER_MS,
        true => RETRY_AFTER_MS,
        false => 0,
    }
}
