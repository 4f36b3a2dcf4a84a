//! From a frame to what it means: whose reply it is, what that frees, and what its plan wants next.

use crate::client::Client;
use crate::exchange::{Exchange, Place};
use crate::link::Link;
use crate::plan::begin::{Begun, Target};
use crate::plan::{Body, Got, Next};
use crate::send::session_index;
use door::{Action, Arena, Bulk, ConnId, Span, Turn};
use wire::{
    Breach, Challenge, Flaw, FrameKind, HEAD_BYTES, Head, Op, Refusal, Reply, Route, Status,
    Welcome, Wire, Writer, reply_flag,
};

/// How often a request may be sent from lane to lane before it fails.
const WRONG_LANE_COUNT_MAX: u8 = 8;

/// A frame that made sense, free of the arena.
enum Found {
    Challenge(Challenge),
    Welcome(Welcome),
    Refusal(Refusal),
    /// The body is decoded for status `Ok` only.
    Reply(Reply, Option<Body>),
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
                    self.on_reply(turn, link_index, &reply, body, &mut unclaimed)
                }
                Err(breach) => Err(breach),
            };
            if outcome.is_err() {
                self.on_breach(turn, link_index);
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
        reply: &Reply,
        body: Option<Body>,
        bulk: &mut Option<Bulk>,
    ) -> Result<(), Breach> {
        if !self.links.get(link_index).is_some_and(Link::is_up) {
            return Err(Breach::Kind);
        }
        let session_index = self.session_of(link_index, reply)?;
        let exchange_id =
            self.sessions.get(session_index).and_then(|session| session.find(reply.xid));
        let Some(exchange_id) = exchange_id else {
            self.counters.stray_reply_count += 1;
            return Ok(());
        };
        let Some(exchange) = self.exchanges.get(exchange_id) else { return Err(Breach::Sequence) };
        let due = exchange.place == Place::Sent && exchange.link_index == link_index;
        if !due || exchange.op != reply.op || exchange.slot != reply.slot {
            return Err(Breach::Sequence);
        }
        let wanted = self.jobs.get(exchange.job_id).is_some_and(|job| job.call.is_some());
        let body = claim_bulk(exchange, wanted, body, bulk)?;
        if reply.status == Status::WrongLane && usize::from(reply.lane_hint.0) >= self.links.len() {
            return Err(Breach::Route);
        }
        if let Some(link) = self.links.get_mut(link_index) {
            link.outstanding = link.outstanding.saturating_sub(1);
            link.credits = reply.credits.max(1);
            link.failure_count = 0;
        }
        self.release_xid(exchange_id);
        match (reply.status, body) {
            (Status::Ok, Some(body)) => {
                let from_slot = reply.flags & reply_flag::FROM_SLOT != 0;
                self.advance(exchange_id, Got { outcome: Ok(body), from_slot });
            }
            (Status::WrongLane, _) => self.on_wrong_lane(exchange_id, reply),
            (Status::RetryLater, _) => {
                let at = turn.now.mono.after_ms(u64::from(reply.retry_after_ms.max(1)));
                self.postpone(exchange_id, at);
            }
            (status, _) => {
                let from_slot = reply.flags & reply_flag::FROM_SLOT != 0;
                self.advance(exchange_id, Got { outcome: Err(status), from_slot });
            }
        }
        Ok(())
    }

    fn session_of(&self, link_index: usize, reply: &Reply) -> Result<usize, Breach> {
        let map = self.map.ok_or(Breach::Route)?;
        if reply.session != self.session {
            return Err(Breach::Sequence);
        }
        if reply.op.row().route == Route::Lane {
            let shards = usize::from(map.meta_shard_count) + usize::from(map.data_shard_count);
            return Ok(shards + link_index);
        }
        if !map.has(reply.shard) {
            return Err(Breach::Route);
        }
        Ok(session_index(map, reply.shard))
    }

    /// A request's number has had its reply: its slot is free.
    pub(crate) fn release_xid(&mut self, exchange_id: usize) {
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        let Some(session) = self.sessions.get_mut(exchange.session_index) else { return };
        if let Some(xid) = exchange.xid.take() {
            session.end(xid);
        }
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
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let mut body = exchange.body;
        match job.plan.next(got, &mut self.handles) {
            Next::Ask(plan, ask) => {
                body.clear();
                ask.encode(&mut Writer::new(&mut body));
                let target = Target::Inode(ask.inode());
                self.submit(job_id, Begun { plan, op: ask.op(), target, bulk: None }, body);
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

/// A reply may carry bulk only if it is a read's, and no more than was asked for. It is taken if
/// somebody waits for it.
fn claim_bulk(
    exchange: &Exchange,
    wanted: bool,
    body: Option<Body>,
    bulk: &mut Option<Bulk>,
) -> Result<Option<Body>, Breach> {
    let Some(found) = *bulk else { return Ok(body) };
    if exchange.op != Op::Read || body.is_none() {
        return Err(Breach::Malformed);
    }
    let asked = wire::Read::decode_all(&exchange.body).map_err(|_| Breach::Malformed)?;
    if found.bulk_bytes > asked.read_bytes {
        return Err(Breach::TooLong);
    }
    if !wanted {
        return Ok(body);
    }
    // From here on it is the face's.
    *bulk = None;
    Ok(Some(Body::Bytes(Some(found))))
}

fn decode(arena: &Arena, frame: Span) -> Result<Found, Breach> {
    let bytes = arena.get(frame);
    let (head, body) = Head::decode(bytes)?;
    match head {
        Head::Greeting(FrameKind::Challenge) => message(body).map(Found::Challenge),
        Head::Greeting(FrameKind::Welcome) => message(body).map(Found::Welcome),
        Head::Greeting(FrameKind::Refusal) => message(body).map(Found::Refusal),
        Head::Greeting(
            FrameKind::Hello
            | FrameKind::Proof
            | FrameKind::Request
            | FrameKind::Reply
            | FrameKind::Note,
        )
        | Head::Note
        | Head::Request(_) => Err(Breach::Kind),
        Head::Reply(reply) => {
            if reply.status != Status::Ok {
                return Ok(Found::Reply(reply, None));
            }
            let span = frame.part(HEAD_BYTES, body.len()).ok_or(Breach::Malformed)?;
            Ok(Found::Reply(reply, Some(Body::decode(reply.op, body, span)?)))
        }
    }
}

fn message<'a, T: Wire<'a>>(body: &'a [u8]) -> Result<T, Breach> {
    T::decode_all(body).map_err(|flaw| match flaw {
        Flaw::Breach(breach) => breach,
        Flaw::Status(_) => Breach::Malformed,
    })
}
