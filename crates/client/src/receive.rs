//! Frames from the server: finds the request of a reply, frees what it held, and advances its plan.

use crate::client::Client;
use crate::grants::ReplyGrant;
use crate::jobs::First;
use crate::link::Link;
use crate::plan::{Body, NewRequest, Next, Plan, PlanReply};
use crate::remote_inode::remote_inode;
use crate::replay::Entry;
use crate::requests::{Exchange, Place};
use crate::server::Server;
use crate::session::RECOVERY;
use alloc::vec::Vec;
use interface::{Action, Arena, Bulk, ConnId, Span, Turn};
use wire::{
    Bytes, Challenge, CommitNotification, Created, DecodeError, FrameKind, Grant, HEADER_BYTES,
    Header, Map, Op, ProtocolError, Refusal, Replay, Reply, ReplyParts, Route, Rule, Status,
    Transno, Welcome, Wire, Writer, reply_flag,
};

/// The most redirects of a request from lane to lane before it fails.
const WRONG_LANE_COUNT_MAX: u8 = 8;

/// How long a request waits that was refused for its map, by a server without a newer one.
const STALE_MAP_PAUSE_MS: u64 = 100;

/// A decoded frame, independent of the arena.
enum ServerFrame {
    Challenge(Challenge),
    Welcome(Welcome),
    Refusal(Refusal),
    /// With its body, which is decoded by the request's op.
    Reply(Reply, Span),
    CommitNotification(Span),
    Grant(Grant),
    Recall(Span),
    MapNote(Span),
}

/// A reply's body, split into message and token.
struct Parts {
    /// The message, for status `Ok` only.
    body: Option<Body>,
    /// The encoded [`wire::Replay`], if the change may still be lost.
    replay: Option<Vec<u8>>,
    grant: ReplyGrant,
}

impl Client {
    pub(crate) fn on_frame(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        frame: Span,
        bulk: Option<Bulk>,
    ) {
        let mut unclaimed = bulk;
        if let Some(link_index) = self.servers.link_of(conn) {
            let found = decode(turn.arena, frame);
            let outcome = match found {
                Ok(ServerFrame::Challenge(challenge)) => {
                    self.on_challenge(turn, link_index, challenge);
                    Ok(())
                }
                Ok(ServerFrame::Welcome(welcome)) => {
                    self.on_welcome(turn, link_index, welcome);
                    Ok(())
                }
                Ok(ServerFrame::Refusal(refusal)) => {
                    self.on_refusal(turn, link_index, refusal);
                    Ok(())
                }
                Ok(ServerFrame::Reply(reply, body)) => {
                    self.on_reply(turn, link_index, (&reply, body), &mut unclaimed)
                }
                Ok(ServerFrame::CommitNotification(body)) => {
                    self.on_commit_notification(turn, link_index, body)
                }
                Ok(ServerFrame::Grant(grant)) => {
                    self.on_grant(grant);
                    Ok(())
                }
                Ok(ServerFrame::MapNote(body)) => self.on_map_note(turn, link_index, body),
                Ok(ServerFrame::Recall(body)) => message(turn.arena.get(body))
                    .and_then(|recall| self.on_recall(turn.now.mono, link_index, &recall)),
                Err(protocol_error) => Err(protocol_error),
            };
            if outcome.is_err() {
                self.on_protocol_error(turn, link_index);
            }
        }
        if let Some(bulk) = unclaimed {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// A newer map, from a server that serves this client.
    fn on_map_note(
        &mut self,
        turn: &mut Turn<'_>,
        link_index: usize,
        body: Span,
    ) -> Result<(), ProtocolError> {
        if !self.servers.link(link_index).is_some_and(Link::is_up) {
            return Err(ProtocolError::Kind);
        }
        let map: Map = message(turn.arena.get(body))?;
        if !self.servers.may_be_of_this(&map) {
            return Err(ProtocolError::Malformed);
        }
        self.adopt_map(turn, &map, Some(link_index));
        Ok(())
    }

    fn on_reply(
        &mut self,
        turn: &mut Turn<'_>,
        link_index: usize,
        (reply, span): (&Reply, Span),
        bulk: &mut Option<Bulk>,
    ) -> Result<(), ProtocolError> {
        if !self.servers.link(link_index).is_some_and(Link::is_up) {
            return Err(ProtocolError::Kind);
        }
        let session_index = self.session_of(link_index, reply)?;
        let exchange_id =
            self.servers.session(session_index).and_then(|session| session.find(reply.xid));
        let exchange_id = match exchange_id {
            Some(RECOVERY) => {
                let place = (link_index, session_index);
                return self.on_recovery_reply(turn, place, reply, span);
            }
            Some(exchange_id) => exchange_id,
            None => {
                if !self.on_replayed(link_index, session_index, reply)? {
                    self.counters.stray_reply_count += 1;
                }
                return Ok(());
            }
        };
        let Some(exchange) = self.requests.get(exchange_id) else {
            return Err(ProtocolError::Sequence);
        };
        let due = exchange.place == Place::Sent && exchange.link_index == link_index;
        if !due || exchange.op != reply.op || exchange.slot != reply.slot {
            return Err(ProtocolError::Sequence);
        }
        let Parts { body, replay, grant } = part(turn.arena, reply, span)?;
        let bulk_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes as usize);
        let reply_bytes = HEADER_BYTES + span.bytes_count() + bulk_bytes;
        let times = (exchange.sent_at, turn.now.mono);
        self.counts.count_reply(reply, u64::try_from(reply_bytes).unwrap_or(u64::MAX), times);
        self.end_exchange(exchange_id);
        let Some(exchange) = self.requests.get(exchange_id) else {
            return Err(ProtocolError::Sequence);
        };
        let wanted = self.jobs.get(exchange.job_id).is_some_and(|job| job.call.is_some());
        let body = claim_bulk(exchange, wanted, body, bulk)?;
        let goes_to = self.servers.link_beside(link_index, reply.lane_hint);
        if reply.status == Status::WrongLane && goes_to.is_none() {
            return Err(ProtocolError::Route);
        }
        let is_stale = reply.status == Status::StaleMap;
        let newer = is_stale.then(|| message::<Map>(turn.arena.get(span))).transpose()?;
        let is_behind = exchange.is_behind();
        self.give_credit(link_index, reply);
        if let Some(link) = self.servers.link_mut(link_index) {
            let behind = link.outstanding_behind.saturating_sub(u16::from(is_behind));
            link.outstanding_behind = behind.min(link.outstanding);
        }
        self.see_clock(turn.now.mono, link_index, reply);
        if let Some(new_files) = grant.new_files {
            self.add_new_files(link_index, reply.boot_id, new_files);
        }
        self.on_granted(turn.now.mono, (link_index, exchange_id), grant);
        // An error with a transaction number was executed, but its record could not be written.
        if reply.status == Status::Ok && reply.transno > Transno(0) {
            self.remember(turn, (exchange_id, session_index), reply, (body, replay));
        }
        if reply.op.row().route != Route::Lane {
            self.on_committed(session_index, reply.committed);
        }
        if reply.status == Status::RetryLater {
            let pause_ms = self.pause_ms(exchange_id, reply.retry_after_ms);
            let at = turn.now.mono.after_ms(pause_ms);
            self.postpone(exchange_id, at);
            return Ok(());
        }
        if let Some(map) = newer {
            self.on_stale_map(turn, exchange_id, &map);
            return Ok(());
        }
        self.release_xid(exchange_id);
        if reply.status == Status::MustWiden && self.on_must_widen(exchange_id) {
            return Ok(());
        }
        let from_slot = reply.flags & reply_flag::FROM_SLOT != 0;
        match (reply.status, body) {
            (Status::Ok, Some(body)) => self.advance(exchange_id, Ok(body), from_slot),
            (Status::WrongLane, _) => self.on_wrong_lane(exchange_id, goes_to),
            (status, _) => self.advance(exchange_id, Err(status), from_slot),
        }
        Ok(())
    }

    /// The request was refused for the map by which it was sent: it goes where the newer map says,
    /// under its xid, because it may have been executed before its shard moved.
    fn on_stale_map(&mut self, turn: &mut Turn<'_>, exchange_id: usize, map: &Map) {
        self.adopt_map(turn, map, None);
        let map_epoch = self.servers.map_epoch();
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        if exchange.place != Place::Sent {
            return; // It was routed anew with its connection.
        }
        if exchange.op == Op::Goodbye
            && let Some(link) = self.servers.link_mut(exchange.link_index)
        {
            link.goodbye_sent = false; // The server has not looked at it.
        }
        if exchange.map_epoch < map_epoch {
            exchange.place = Place::Queued;
            self.forget_lane_xid(exchange_id);
            return self.route(exchange_id);
        }
        // The server has no newer map, and does not go by this one.
        let at = turn.now.mono.after_ms(STALE_MAP_PAUSE_MS);
        self.requests.wait_until(at, exchange_id);
    }

    /// Applies a reply's effects on its connection.
    pub(crate) fn give_credit(&mut self, link_index: usize, reply: &Reply) {
        if let Some(link) = self.servers.link_mut(link_index) {
            link.outstanding = link.outstanding.saturating_sub(1);
            link.credits = reply.credits.max(1);
            link.failure_count = 0;
            link.temporary_refusal = None;
        }
    }

    /// Adds an answered change to the replay list, or records that it is durable.
    fn remember(
        &mut self,
        turn: &mut Turn<'_>,
        (exchange_id, session_index): (usize, usize),
        reply: &Reply,
        (body, replay): (Option<Body>, Option<Vec<u8>>),
    ) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        let boot_id = self.servers.server_of(exchange.link_index).map(Server::boot_id);
        let Some(session) = self.servers.session_mut(session_index) else { return };
        if !self.config.rules.hold(Rule::LateReplies) && Some(reply.boot_id) != boot_id {
            return;
        }
        let replay = replay.filter(|_| reply.transno > reply.committed);
        let Some(replay) = replay else {
            session.known_committed = session.known_committed.max(reply.transno);
            return;
        };
        let inode = exchange.inode();
        let made = match body {
            Some(Body::Created(created)) => Some(created.attr.inode),
            Some(Body::Entry(attr)) => Some(attr.inode),
            Some(
                Body::Empty
                | Body::Target(_)
                | Body::Listing(_)
                | Body::Found(_)
                | Body::Value(_)
                | Body::Space(_)
                | Body::Bytes(_)
                | Body::List(..)
                | Body::Written(_)
                | Body::Contents(_)
                | Body::Sought(_)
                | Body::Renamed(_)
                | Body::LockSet(_)
                | Body::LockFound(_)
                | Body::LockCancelled(_)
                | Body::Stats(_)
                | Body::Counters(_)
                | Body::Traces(_)
                | Body::Exports(_)
                | Body::Frozen(_)
                | Body::Inspected(_),
            )
            | None => None,
        };
        let made = made.filter(|made| *made != inode);
        let mut retained = exchange.retained.take();
        if let Some(bulk) = exchange.bulk {
            retained = Some(self.replay_space.copy(turn, bulk));
        }
        if let Some(Body::Written(written)) = body
            && let Some(bulk) = retained
            && written.written_bytes != bulk.bulk_bytes
        {
            // An interrupted write that had not been executed, and was sent again without bytes.
            self.replay_space.release(bulk);
            retained = None;
        }
        let entry = Entry {
            transno: reply.transno,
            xid: reply.xid,
            slot: reply.slot,
            op: reply.op,
            inode,
            made,
            boot_id: reply.boot_id,
            body: replay,
            retained,
        };
        self.replay_space.add(&entry);
        if let Some(old) = session.replay.insert(entry) {
            self.forget_entry(old);
        }
    }

    /// Applies a commit notification.
    fn on_commit_notification(
        &mut self,
        turn: &mut Turn<'_>,
        link_index: usize,
        body: Span,
    ) -> Result<(), ProtocolError> {
        if !self.servers.link(link_index).is_some_and(Link::is_up) {
            return Err(ProtocolError::Kind);
        }
        let notification: CommitNotification<'_> = message(turn.arena.get(body))?;
        for row in notification.rows.iter() {
            let session_index =
                self.servers.session_index(row.shard).ok_or(ProtocolError::Route)?;
            if self.servers.is_at_server(row.shard, link_index) {
                self.on_committed(session_index, row.committed);
            }
        }
        Ok(())
    }

    fn session_of(&self, link_index: usize, reply: &Reply) -> Result<usize, ProtocolError> {
        let session = self.servers.server_of(link_index).map(Server::session);
        if Some(reply.session) != session {
            return Err(ProtocolError::Sequence);
        }
        if reply.op.row().route == Route::Lane {
            return Ok(self.servers.lane_session_index(link_index));
        }
        self.servers.session_index(reply.shard).ok_or(ProtocolError::Route)
    }

    /// Ends a request's xid: its slot is free.
    pub(crate) fn release_xid(&mut self, exchange_id: usize) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        let Some(session) = self.servers.session_mut(exchange.session_index) else { return };
        exchange.resent = false;
        let ended = exchange.xid.take();
        if let Some(xid) = ended {
            session.end(xid);
        }
        // Only lanes that speak for each other publish it.
        let acks = self.received.as_ref().and(ended).map(|_| session.acks());
        self.replay_space.end_promise(exchange);
        let slot = core::mem::take(&mut exchange.slot);
        let (link_index, session_index) = (exchange.link_index, exchange.session_index);
        let (shard, is_of_shard) = (exchange.shard, exchange.op.row().route != Route::Lane);
        if slot > 0 {
            session.free_slot(slot);
            self.wake_slot_waiter(link_index, session_index);
        }
        if let Some(acks) = acks.filter(|_| is_of_shard) {
            self.publish_received(shard, acks);
        }
    }

    /// Passes a reply to its plan.
    pub(crate) fn advance(
        &mut self,
        exchange_id: usize,
        outcome: Result<Body, Status>,
        from_slot: bool,
    ) {
        let Some(exchange) = self.requests.remove(exchange_id) else { return };
        let Exchange { job_id, op, target, shard, mut body, part, link_index, .. } = exchange;
        let Exchange { retained, layout, .. } = exchange;
        if let Some(retained) = retained {
            self.replay_space.release(retained);
        }
        if op == Op::Goodbye && outcome.is_ok() {
            self.on_goodbye_done(link_index);
        }
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        job.pending_count -= 1;
        let last = job.pending_count == 0;
        let states_layout = layout.is_some();
        let has_contents = |inode| {
            let map = self.servers.map();
            map.is_some_and(|map| self.servers.is_at_server(map.data_shard(inode, 0), link_index))
        };
        let grants_contents = job.grants.contents.is_some()
            && matches!(outcome, Ok(Body::Entry(attr)) if has_contents(attr.inode));
        if let Plan::Open(open) = &job.plan
            && open.asks_at_once()
            && matches!(outcome, Ok(Body::Entry(attr)) if attr.is_size_at_data())
        {
            // The size that was asked for at once may be that of before the grant.
            job.grants.attributes = None;
        }
        let mut reply =
            PlanReply { outcome, from_slot, op, part, last, states_layout, grants_contents };
        if let Plan::LockTask(key) = job.plan {
            self.jobs.remove(job_id);
            self.requests.spare(body);
            return self.on_lock_reply(key, outcome, from_slot);
        }
        job.has_begun = true;
        if let Ok(Body::Entry(attr) | Body::Created(Created { attr, .. })) = outcome
            && let Some(layout) = attr.layout
            && (op.row().opens || layout.is_spread())
        {
            self.layouts.learn(attr.inode, layout);
        }
        if job.append.is_some() {
            let answer = self.on_append_reply(job_id, reply);
            let Some(answer) = answer else { return self.requests.spare(body) };
            reply = answer;
        }
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        if job.by_part.is_some() {
            let joined = self.join_by_part(job_id, reply);
            let Some(joined) = joined else { return self.requests.spare(body) };
            reply = joined;
        }
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        if job.spread.is_some() {
            let Some(joined) = self.join(job_id, reply) else { return self.requests.spare(body) };
            reply = joined;
        }
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        if let Some(found) = remote_inode(&job.plan, &reply) {
            let retry_count = job.first.take().map_or(0, |first| first.retry_count + 1);
            job.first = Some(First { op, target, body, retry_count });
            return self.follow_remote_inode(job_id, found);
        }
        if let (Op::Mkdir, Ok(Body::Entry(made))) = (op, outcome)
            && self.asks_for_made(job_id, (shard, &made))
        {
            self.ask_for_made(job_id, made);
            return self.requests.spare(body);
        }
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        if op == Op::Tmpfile && from_slot {
            let retry_count = job.first.take().map_or(0, |first| first.retry_count + 1);
            job.first = Some(First { op, target, body: body.clone(), retry_count });
        }
        match job.plan.next(reply, &mut self.handles) {
            Next::Send(plan, follow_up) => {
                body.clear();
                follow_up.encode(&[], &mut Writer::new(&mut body));
                let request = NewRequest::new(plan, follow_up.op(), follow_up.target());
                return self.submit(job_id, request, body);
            }
            Next::SendAll(plan, follow_ups) => self.submit_all(job_id, plan, follow_ups),
            Next::Wait(plan) => job.plan = plan,
            Next::EndSync(plan, file) => {
                job.plan = plan;
                self.look_for_losses(job_id, file);
            }
            Next::OtherLanes(plan) => self.ask_other_lanes(job_id, plan),
            Next::Retry => self.retry_first(job_id),
            Next::Done(result) => {
                assert!(reply.last, "a plan ends behind its last reply");
                self.finish(job_id, result);
            }
        }
        self.requests.spare(body);
    }

    fn on_wrong_lane(&mut self, exchange_id: usize, goes_to: Option<usize>) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        exchange.wrong_lane_count += 1;
        let redirects = exchange.wrong_lane_count <= WRONG_LANE_COUNT_MAX;
        let Some(link_index) = goes_to.filter(|_| redirects) else {
            return self.advance(exchange_id, Err(Status::Io), false);
        };
        exchange.link_index = link_index;
        self.queue(exchange_id, Place::Queued);
    }
}

/// Only a read's reply may carry bulk, and no more than was requested; a list's exactly the bytes
/// that its file has. The bulk is taken if the request has a caller.
fn claim_bulk(
    exchange: &Exchange,
    wanted: bool,
    body: Option<Body>,
    bulk: &mut Option<Bulk>,
) -> Result<Option<Body>, ProtocolError> {
    if let Some(Body::List(_, read)) = body {
        let requested =
            wire::ReadList::decode_all(&exchange.body).map_err(|_| ProtocolError::Malformed)?;
        let found_bytes = bulk.map_or(0, |found| found.bulk_bytes);
        if requested.pieces.within(read.size_bytes).total_bytes() != found_bytes {
            return Err(ProtocolError::Malformed);
        }
        let found = if wanted { bulk.take() } else { None };
        return Ok(Some(Body::List(found, read)));
    }
    let Some(found) = *bulk else { return Ok(body) };
    if exchange.op != Op::Read || body.is_none() {
        return Err(ProtocolError::Malformed);
    }
    let requested = wire::Read::decode_all(&exchange.body).map_err(|_| ProtocolError::Malformed)?;
    if found.bulk_bytes > requested.read_bytes {
        return Err(ProtocolError::TooLong);
    }
    if !wanted {
        return Ok(body);
    }
    // The frontend owns it from here on.
    *bulk = None;
    Ok(Some(Body::Bytes(Some(found))))
}

/// Splits the body of a reply into message, lease and token.
fn part(arena: &Arena, reply: &Reply, span: Span) -> Result<Parts, ProtocolError> {
    let parts = ReplyParts::split(reply, arena.get(span))?;
    let grant = ReplyGrant::of(&parts)?;
    let ReplyParts { message, token, .. } = parts;
    if reply.status != Status::Ok {
        // A failed request has changed nothing.
        return if token.is_some() {
            Err(ProtocolError::Malformed)
        } else {
            Ok(Parts { body: None, replay: None, grant })
        };
    }
    let span = span.part(0, message.len()).ok_or(ProtocolError::Malformed)?;
    let body = Some(Body::decode(reply.op, message, span)?);
    let Some(token) = token else {
        return Ok(Parts { body, replay: None, grant });
    };
    if reply.transno == Transno(0) {
        return Err(ProtocolError::Malformed);
    }
    // The token is signed with the message alone.
    let replay = Replay { reply: Bytes(message), token: Bytes(token) }.to_bytes();
    Ok(Parts { body, replay: Some(replay), grant })
}

fn decode(arena: &Arena, frame: Span) -> Result<ServerFrame, ProtocolError> {
    let bytes = arena.get(frame);
    let (head, body) = Header::decode(bytes)?;
    let span = || frame.part(HEADER_BYTES, body.len()).ok_or(ProtocolError::Malformed);
    match head {
        Header::Handshake(FrameKind::Challenge) => message(body).map(ServerFrame::Challenge),
        Header::Handshake(FrameKind::Welcome) => message(body).map(ServerFrame::Welcome),
        Header::Handshake(FrameKind::Refusal) => message(body).map(ServerFrame::Refusal),
        Header::Handshake(
            FrameKind::Hello
            | FrameKind::Proof
            | FrameKind::Request
            | FrameKind::Reply
            | FrameKind::CommitNotification
            | FrameKind::Grant
            | FrameKind::Recall
            | FrameKind::RecallAck
            | FrameKind::Received
            | FrameKind::PeerHello
            | FrameKind::PeerChallenge
            | FrameKind::PeerProof
            | FrameKind::PeerMessage
            | FrameKind::MapNote,
        )
        | Header::Request(_)
        | Header::RecallAck
        | Header::Received
        | Header::PeerMessage => Err(ProtocolError::Kind),
        Header::MapNote => Ok(ServerFrame::MapNote(span()?)),
        Header::Recall => Ok(ServerFrame::Recall(span()?)),
        Header::CommitNotification => Ok(ServerFrame::CommitNotification(span()?)),
        Header::Grant => message(body).map(ServerFrame::Grant),
        Header::Reply(reply) => Ok(ServerFrame::Reply(reply, span()?)),
    }
}

fn message<'a, T: Wire<'a>>(body: &'a [u8]) -> Result<T, ProtocolError> {
    T::decode_all(body).map_err(|flaw| match flaw {
        DecodeError::ProtocolError(protocol_error) => protocol_error,
        DecodeError::Status(_) => ProtocolError::Malformed,
    })
}
