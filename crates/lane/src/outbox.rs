//! Replies on their way out: at once, or all that waited for a batch in one wave.

use crate::Lane;
use crate::commit::{Held, HeldSaid};
use crate::session::{Done, State, Target};
use alloc::vec::Vec;
use interface::{Action, Bulk, ConnId, NetAction, Turn};
use wire::{Header, Op, Reply, Request, SessionId, ShardId, Status, Transno, Xid, reply_flag};

/// When who finds the log too long shall come again.
const RETRY_AFTER_MS: u32 = 20;

/// What a reply repeats of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    pub(crate) shard: ShardId,
    pub(crate) slot: u16,
    pub(crate) session: SessionId,
    pub(crate) xid: Xid,
    pub(crate) trace_id: u64,
}

impl From<&Request> for Asked {
    fn from(request: &Request) -> Self {
        Self {
            op: request.op,
            shard: request.shard,
            slot: request.slot,
            session: request.session,
            xid: request.xid,
            trace_id: request.trace_id,
        }
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a> {
    pub(crate) status: Status,
    pub(crate) transno: Transno,
    pub(crate) committed: Transno,
    pub(crate) flags: u16,
    pub(crate) body: &'a [u8],
    /// Redo token; empty without.
    pub(crate) token: &'a [u8],
    pub(crate) bulk: Option<Bulk>,
}

/// What is sent of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telling<'a> {
    pub(crate) target: Target,
    pub(crate) done: &'a Done,
    pub(crate) flags: u16,
    /// Redo token; empty without.
    pub(crate) token: &'a [u8],
}

impl<'a> Said<'a> {
    /// An answer that changed nothing.
    pub(crate) const fn plain(status: Status, body: &'a [u8]) -> Self {
        let (transno, committed) = (Transno(0), Transno(0));
        Self { status, transno, committed, flags: 0, body, token: &[], bulk: None }
    }
}

impl Lane {
    /// Sends a reply, if its connection is still there.
    pub(crate) fn send(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        asked: &Asked,
        said: &Said<'_>,
    ) {
        if self.settled(conn) {
            self.say_reply(turn, conn, asked, said);
        }
    }

    /// Sends a reply to a request that was never outstanding.
    pub(crate) fn say_reply(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        asked: &Asked,
        said: &Said<'_>,
    ) {
        self.stats.request_count += 1;
        let lane_hint = if said.status == Status::WrongLane {
            self.config.map.lane(asked.shard)
        } else {
            self.config.lane
        };
        let token = if said.token.is_empty() { 0 } else { reply_flag::TOKEN };
        self.stats.reply_gating.token_count += u64::from(token != 0);
        let head = Header::Reply(Reply {
            op: asked.op,
            lane_hint,
            shard: asked.shard,
            slot: asked.slot,
            flags: said.flags | token,
            session: asked.session,
            xid: asked.xid,
            transno: said.transno,
            committed: said.committed,
            status: said.status,
            credits: self.config.limits.credits,
            retry_after_ms: if said.status == Status::RetryLater { RETRY_AFTER_MS } else { 0 },
            boot_id: self.config.boot_id,
            trace_id: asked.trace_id,
            op_time_ns: turn.now.wall_ns,
        });
        let lengths = said.bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        let frame = turn.arena.write(|out: &mut Vec<u8>| {
            head.encode(out, lengths, |to| {
                to.put(said.body);
                if token != 0 {
                    Header::put_token(to, said.token);
                }
            });
        });
        turn.act(NetAction::Send { conn, frame, bulk: said.bulk });
    }

    /// A batch is durable: what waited for it goes out.
    pub(crate) fn release(&mut self, turn: &mut Turn<'_>, held: &[Held]) {
        for held in held {
            self.stats.reply_gating.released_count += 1;
            let table = self.slots.get_mut(&(held.shard, held.session));
            let Some(table) = table else { continue };
            let slot = table.slot(held.slot);
            let state = core::mem::replace(&mut slot.state, State::Free);
            let State::Held(target, done, token) = state else {
                slot.state = state;
                continue;
            };
            let (xid, op) = (slot.xid, slot.op);
            let durable = if held.shard.is_data() {
                done.transno <= self.commit.shard(held.shard).durable
            } else {
                self.commit.until(slot.batch_no).is_none()
            };
            assert!(durable || !token.is_empty(), "what may be lost is given to the client");
            let token = if durable { &[][..] } else { &token };
            let telling = Telling { target, done: &done, flags: reply_flag::GATED, token };
            self.answer_slot(turn, held, (xid, op), &telling);
            if let Some(table) = self.slots.get_mut(&(held.shard, held.session)) {
                table.slot(held.slot).state = State::Done(done);
            }
        }
    }

    /// The same for replies without a slot.
    pub(crate) fn release_said(&mut self, turn: &mut Turn<'_>, held: &mut Vec<HeldSaid>) {
        for HeldSaid { conn, asked, status, body, bulk } in held.drain(..) {
            self.stats.reply_gating.released_count += 1;
            let committed = self.committed(asked.shard, asked.session);
            let flags = reply_flag::GATED;
            let said = Said { committed, flags, bulk, ..Said::plain(status, &body) };
            self.send(turn, conn, &asked, &said);
            if let Some(bulk) = bulk {
                turn.act(Action::Release { buf: bulk.buf });
            }
        }
    }

    /// Sends what a slot's request came to.
    pub(crate) fn answer_slot(
        &mut self,
        turn: &mut Turn<'_>,
        held: &Held,
        (xid, op): (Xid, Op),
        telling: &Telling<'_>,
    ) {
        let Held { shard, session, slot } = *held;
        let Telling { target, done, flags, token } = *telling;
        let asked = Asked { op, shard, slot, session, xid, trace_id: target.trace_id };
        let committed = self.committed(shard, session);
        self.told(
            turn,
            held,
            (committed, if token.is_empty() { None } else { Some(done.transno) }),
        );
        let body = &done.body;
        let (status, transno, bulk) = (done.status, done.transno, None);
        let said = Said { status, transno, committed, flags, body, token, bulk };
        self.send(turn, target.conn, &asked, &said);
    }

    /// What a session may be told is durable at a shard: all of its changes up to there.
    pub(crate) fn committed(&self, shard: ShardId, session: SessionId) -> Transno {
        if self.recovery.is_over() && !self.fenced {
            return self.commit.shard(shard).durable;
        }
        // Others' replays may be durable before ones of this session that are older than they.
        let client = self.sessions.get(&session).map(|session| session.row.client);
        if client.is_some_and(|client| self.recovery.failed.contains(&client)) {
            return Transno(0);
        }
        self.slots.get(&(shard, session)).map_or(Transno(0), |table| table.committed)
    }
}
