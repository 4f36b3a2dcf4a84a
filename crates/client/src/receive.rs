//! From a frame to what it means: whose reply it is, what that frees, and what its plan wants next.

use crate::client::Client;
use crate::elsewhere::elsewhere;
use crate::exchange::{Exchange, First, Place};
use crate::link::Link;
use crate::plan::begin::{Begun, Target};
use crate::plan::{Body, Got, Next, Plan};
use crate::recovery::RECOVERY;
use crate::replay::Entry;
use crate::send::session_index;
use alloc::vec::Vec;
use interface::{Action, Arena, Bulk, ConnId, Span, Turn};
use wire::{
    Bytes, Challenge, CommitNotification, DecodeError, FrameKind, Grant, HEADER_BYTES, Header,
    InodeNo, Op, ProtocolError, Refusal, Replay, Reply, Route, Rule, Status, Transno, Welcome,
    Wire, Writer, reply_flag,
};

/// How often a request may be sent from lane to lane before it fails.
const WRONG_LANE_COUNT_MAX: u8 = 8;

/// A frame that made sense, free of the arena.
enum Found {
    Challenge(Challenge),
    Welcome(Welcome),
    Refusal(Refusal),
    /// With its body, which means something only to whom it is for.
    Reply(Reply, Span),
    CommitNotification(Span),
    Grant(Grant),
}

/// A reply's body, taken apart.
struct Parts {
    /// Decoded, for status `Ok` only.
    body: Option<Body>,
    /// The encoded [`wire::Replay`], if the change may still be lost.
    replay: Option<Vec<u8>>,
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
        if let Some(link_index) = self.link_of(conn) {
            let found = decode(turn.arena, frame);
            let outcome = match found {
                Ok(Found::Challenge(challenge)) => {
                    self.on_challenge(turn, link_index, challenge);
                    Ok(())
                }
                Ok(Found::Welcome(welcome)) => {
                    self.on_welcome(turn, link_index, welcome);
                    Ok(())
                }
                Ok(Found::Refusal(refusal)) => {
                    self.on_refusal(turn, link_index, refusal);
                    Ok(())
                }
                Ok(Found::Reply(reply, body)) => {
                    self.on_reply(turn, link_index, (&reply, body), &mut unclaimed)
                }
                Ok(Found::CommitNotification(body)) => self.on_note(turn, link_index, body),
                Ok(Found::Grant(grant)) => {
                    self.on_grant(grant);
                    Ok(())
                }
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

    fn on_reply(
        &mut self,
        turn: &mut Turn<'_>,
        link_index: usize,
        (reply, span): (&Reply, Span),
        bulk: &mut Option<Bulk>,
    ) -> Result<(), ProtocolError> {
        if !self.links.get(link_index).is_some_and(Link::is_up) {
            return Err(ProtocolError::Kind);
        }
        let session_index = self.session_of(link_index, reply)?;
        let exchange_id =
            self.sessions.get(session_index).and_then(|session| session.find(reply.xid));
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
        let Some(exchange) = self.exchanges.get(exchange_id) else {
            return Err(ProtocolError::Sequence);
        };
        let due = exchange.place == Place::Sent && exchange.link_index == link_index;
        if !due || exchange.op != reply.op || exchange.slot != reply.slot {
            return Err(ProtocolError::Sequence);
        }
        let Parts { body, replay } = part(turn.arena, reply, span)?;
        let wanted = self.jobs.get(exchange.job_id).is_some_and(|job| job.call.is_some());
        let body = claim_bulk(exchange, wanted, body, bulk)?;
        if reply.status == Status::WrongLane && usize::from(reply.lane_hint.0) >= self.links.len() {
            return Err(ProtocolError::Route);
        }
        self.give_credit(link_index, reply);
        // An error with a number: it was executed, and its record could not be written.
        if reply.status == Status::Ok && reply.transno > Transno(0) {
            self.remember(turn, (exchange_id, session_index), reply, (body, replay));
        }
        if reply.op.row().route != Route::Lane {
            self.told_committed(session_index, reply.committed);
        }
        if reply.status == Status::RetryLater {
            let at = turn.now.mono.after_ms(u64::from(reply.retry_after_ms.max(1)));
            self.postpone(exchange_id, at);
            return Ok(());
        }
        self.release_xid(exchange_id);
        let from_slot = reply.flags & reply_flag::FROM_SLOT != 0;
        match (reply.status, body) {
            (Status::Ok, Some(body)) => {
                self.advance(exchange_id, Got { outcome: Ok(body), from_slot })
            }
            (Status::WrongLane, _) => self.on_wrong_lane(exchange_id, reply),
            (status, _) => self.advance(exchange_id, Got { outcome: Err(status), from_slot }),
        }
        Ok(())
    }

    /// What every reply says of its connection.
    pub(crate) fn give_credit(&mut self, link_index: usize, reply: &Reply) {
        if let Some(link) = self.links.get_mut(link_index) {
            link.outstanding = link.outstanding.saturating_sub(1);
            link.credits = reply.credits.max(1);
            link.failure_count = 0;
            link.turned_away = None;
        }
    }

    /// A change was answered: it goes to the replay list, or is known to be durable.
    fn remember(
        &mut self,
        turn: &mut Turn<'_>,
        (exchange_id, session_index): (usize, usize),
        reply: &Reply,
        (body, replay): (Option<Body>, Option<Vec<u8>>),
    ) {
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        let Some(session) = self.sessions.get_mut(session_index) else { return };
        if !self.config.rules.hold(Rule::LateReplies) && reply.boot_id != self.boot_id {
            return;
        }
        let replay = replay.filter(|_| reply.transno > reply.committed);
        let Some(replay) = replay else {
            session.known_committed = session.known_committed.max(reply.transno);
            return;
        };
        let inode = match exchange.target {
            Target::Inode(inode) | Target::MetaShard(inode) | Target::DataShard(inode) => inode,
            Target::Shard(_) | Target::Lane(_) => InodeNo(0),
        };
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
                | Body::Exports(_)
                | Body::Frozen(_)
                | Body::Inspected(_),
            )
            | None => None,
        };
        let made = made.filter(|made| *made != inode);
        let mut kept = exchange.kept.take();
        if let Some(bulk) = exchange.bulk {
            kept = Some(self.kept.keep(turn, bulk));
        }
        if let Some(Body::Written(written)) = body
            && let Some(bulk) = kept
            && written.written_bytes != bulk.bulk_bytes
        {
            // An interrupted write that had not been done, and was then asked for without bytes.
            self.kept.release(bulk);
            kept = None;
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
            kept,
        };
        self.replay_bytes += entry.bytes();
        if let Some(old) = session.replay.insert(entry) {
            self.forget_entry(old);
        }
    }

    /// What has become durable.
    fn on_note(
        &mut self,
        turn: &mut Turn<'_>,
        link_index: usize,
        body: Span,
    ) -> Result<(), ProtocolError> {
        if !self.links.get(link_index).is_some_and(Link::is_up) {
            return Err(ProtocolError::Kind);
        }
        let map = self.map.ok_or(ProtocolError::Route)?;
        let note: CommitNotification<'_> = message(turn.arena.get(body))?;
        for row in note.rows.iter() {
            if !map.has(row.shard) {
                return Err(ProtocolError::Route);
            }
            self.told_committed(session_index(map, row.shard), row.committed);
        }
        Ok(())
    }

    fn session_of(&self, link_index: usize, reply: &Reply) -> Result<usize, ProtocolError> {
        let map = self.map.ok_or(ProtocolError::Route)?;
        if reply.session != self.session {
            return Err(ProtocolError::Sequence);
        }
        if reply.op.row().route == Route::Lane {
            let shards = usize::from(map.meta_shard_count) + usize::from(map.data_shard_count);
            return Ok(shards + link_index);
        }
        if !map.has(reply.shard) {
            return Err(ProtocolError::Route);
        }
        Ok(session_index(map, reply.shard))
    }

    /// A request's number has had its reply: its slot is free.
    pub(crate) fn release_xid(&mut self, exchange_id: usize) {
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        let Some(session) = self.sessions.get_mut(exchange.session_index) else { return };
        exchange.resent = false;
        if let Some(xid) = exchange.xid.take() {
            session.end(xid);
        }
        self.promised_bytes -= core::mem::take(&mut exchange.promised_bytes);
        let slot = core::mem::take(&mut exchange.slot);
        let session_index = exchange.session_index;
        if slot > 0 {
            session.free_slot(slot);
            self.wake_slot_waiter(session_index);
        }
    }

    /// Hands a reply to the plan that waits for it.
    pub(crate) fn advance(&mut self, exchange_id: usize, got: Got) {
        let Some(exchange) = self.exchanges.remove(exchange_id) else { return };
        let job_id = exchange.job_id;
        if let Some(kept) = exchange.kept {
            self.kept.release(kept);
        }
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let (op, target, mut body) = (exchange.op, exchange.target, exchange.body);
        if let Plan::LockTask(key) = job.plan {
            self.jobs.remove(job_id);
            self.spare(body);
            return self.on_lock_reply(key, got);
        }
        job.has_begun = true;
        if let Some(found) = elsewhere(&got) {
            let again_count = job.first.take().map_or(0, |first| first.again_count + 1);
            job.first = Some(First { op, target, body, again_count });
            return self.go_elsewhere(job_id, found);
        }
        if op == Op::Tmpfile && got.from_slot {
            let again_count = job.first.take().map_or(0, |first| first.again_count + 1);
            job.first = Some(First { op, target, body: body.clone(), again_count });
        }
        match job.plan.next(got, &mut self.handles) {
            Next::Ask(plan, ask) => {
                body.clear();
                ask.encode(&[], &mut Writer::new(&mut body));
                let target = Target::Inode(ask.inode());
                self.submit(
                    job_id,
                    Begun { plan, op: ask.op(), target, bulk: None, sync: false },
                    body,
                );
            }
            Next::Again => {
                self.spare(body);
                self.ask_again(job_id);
            }
            Next::Done(result) => {
                self.spare(body);
                self.finish(job_id, result);
            }
        }
    }

    fn on_wrong_lane(&mut self, exchange_id: usize, reply: &Reply) {
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        exchange.wrong_lane_count += 1;
        if exchange.wrong_lane_count > WRONG_LANE_COUNT_MAX {
            self.advance(exchange_id, Got { outcome: Err(Status::Io), from_slot: false });
            return;
        }
        exchange.link_index = usize::from(reply.lane_hint.0);
        self.queue(exchange_id, Place::Queued);
    }
}

/// A reply may carry bulk only if it is a read's, and no more than was asked for; of a list exactly
/// what its file has. It is taken if somebody waits for it.
fn claim_bulk(
    exchange: &Exchange,
    wanted: bool,
    body: Option<Body>,
    bulk: &mut Option<Bulk>,
) -> Result<Option<Body>, ProtocolError> {
    if let Some(Body::List(_, read)) = body {
        let asked =
            wire::ReadList::decode_all(&exchange.body).map_err(|_| ProtocolError::Malformed)?;
        let found_bytes = bulk.map_or(0, |found| found.bulk_bytes);
        if asked.pieces.within(read.size_bytes).total_bytes() != found_bytes {
            return Err(ProtocolError::Malformed);
        }
        let found = if wanted { bulk.take() } else { None };
        return Ok(Some(Body::List(found, read)));
    }
    let Some(found) = *bulk else { return Ok(body) };
    if exchange.op != Op::Read || body.is_none() {
        return Err(ProtocolError::Malformed);
    }
    let asked = wire::Read::decode_all(&exchange.body).map_err(|_| ProtocolError::Malformed)?;
    if found.bulk_bytes > asked.read_bytes {
        return Err(ProtocolError::TooLong);
    }
    if !wanted {
        return Ok(body);
    }
    // From here on it is the face's.
    *bulk = None;
    Ok(Some(Body::Bytes(Some(found))))
}

/// Takes the body of a reply apart: message and token.
fn part(arena: &Arena, reply: &Reply, span: Span) -> Result<Parts, ProtocolError> {
    let bytes = arena.get(span);
    let tokened = reply.flags & reply_flag::TOKEN != 0;
    if reply.status != Status::Ok {
        // What failed has changed nothing.
        return if tokened {
            Err(ProtocolError::Malformed)
        } else {
            Ok(Parts { body: None, replay: None })
        };
    }
    if !tokened {
        let body = Some(Body::decode(reply.op, bytes, span)?);
        return Ok(Parts { body, replay: None });
    }
    if reply.transno == Transno(0) {
        return Err(ProtocolError::Malformed);
    }
    let (message, token) = Header::split_token(bytes)?;
    let span = span.part(0, message.len()).ok_or(ProtocolError::Malformed)?;
    let body = Some(Body::decode(reply.op, message, span)?);
    let replay = Replay { reply: Bytes(message), token: Bytes(token) }.to_bytes();
    Ok(Parts { body, replay: Some(replay) })
}

fn decode(arena: &Arena, frame: Span) -> Result<Found, ProtocolError> {
    let bytes = arena.get(frame);
    let (head, body) = Header::decode(bytes)?;
    let span = || frame.part(HEADER_BYTES, body.len()).ok_or(ProtocolError::Malformed);
    match head {
        Header::Handshake(FrameKind::Challenge) => message(body).map(Found::Challenge),
        Header::Handshake(FrameKind::Welcome) => message(body).map(Found::Welcome),
        Header::Handshake(FrameKind::Refusal) => message(body).map(Found::Refusal),
        Header::Handshake(
            FrameKind::Hello
            | FrameKind::Proof
            | FrameKind::Request
            | FrameKind::Reply
            | FrameKind::CommitNotification
            | FrameKind::Grant,
        )
        | Header::Request(_) => Err(ProtocolError::Kind),
        Header::CommitNotification => Ok(Found::CommitNotification(span()?)),
        Header::Grant => message(body).map(Found::Grant),
        Header::Reply(reply) => Ok(Found::Reply(reply, span()?)),
    }
}

fn message<'a, T: Wire<'a>>(body: &'a [u8]) -> Result<T, ProtocolError> {
    T::decode_all(body).map_err(|flaw| match flaw {
        DecodeError::ProtocolError(protocol_error) => protocol_error,
        DecodeError::Status(_) => ProtocolError::Malformed,
    })
}
