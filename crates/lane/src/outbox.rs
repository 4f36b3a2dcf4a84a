//! Replies on their way out: at once, or all that waited for a batch in one wave.

use crate::Lane;
use crate::commit::Held;
use crate::session::{Done, State, Target};
use alloc::vec::Vec;
use door::{Action, Bulk, ConnId, Turn};
use wire::{Head, Op, Reply, Request, SessionId, ShardId, Status, Transno, Xid, reply_flag};

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
    pub(crate) bulk: Option<Bulk>,
}

impl<'a> Said<'a> {
    /// An answer that changed nothing.
    pub(crate) const fn plain(status: Status, body: &'a [u8]) -> Self {
        let (transno, committed) = (Transno(0), Transno(0));
        Self { status, transno, committed, flags: 0, body, bulk: None }
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
        let head = Head::Reply(Reply {
            op: asked.op,
            lane_hint,
            shard: asked.shard,
            slot: asked.slot,
            flags: said.flags,
            session: asked.session,
            xid: asked.xid,
            transno: said.transno,
            committed: said.committed,
            status: said.status,
            credits: self.config.limits.credits,
            retry_after_ms: 0,
            boot_id: self.config.boot_id,
            trace_id: asked.trace_id,
            op_time_ns: turn.now.wall_ns,
        });
        let lengths = said.bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        let frame =
            turn.arena.write(|out: &mut Vec<u8>| head.encode(out, lengths, |to| to.put(said.body)));
        turn.act(Action::Send { conn, frame, bulk: said.bulk });
    }

    /// A batch is durable: so is what these replies say.
    pub(crate) fn release(&mut self, turn: &mut Turn<'_>, held: &[Held]) {
        for held in held {
            let table = self.slots.get_mut(&(held.shard, held.session));
            let Some(table) = table else { continue };
            let committed = table.committed;
            let slot = table.slot(held.slot);
            let state = core::mem::replace(&mut slot.state, State::Free);
            let State::Held(target, done) = state else {
                slot.state = state;
                continue;
            };
            let (xid, op) = (slot.xid, slot.op);
            assert!(done.transno > Transno(0), "what is held has changed something");
            table.committed = committed.max(done.transno);
            self.stats.held_count += 1;
            self.stats.change_count += 1;
            self.answer_slot(turn, held, (xid, op), (target, &done, reply_flag::GATED));
            if let Some(table) = self.slots.get_mut(&(held.shard, held.session)) {
                table.slot(held.slot).state = State::Done(done);
            }
        }
    }

    /// Sends what a slot's request came to.
    pub(crate) fn answer_slot(
        &mut self,
        turn: &mut Turn<'_>,
        held: &Held,
        (xid, op): (Xid, Op),
        (target, done, flags): (Target, &Done, u16),
    ) {
        let Held { shard, session, slot } = *held;
        let asked = Asked { op, shard, slot, session, xid, trace_id: target.trace_id };
        let committed =
            self.slots.get(&(shard, session)).map_or(Transno(0), |table| table.committed);
        let said = Said {
            status: done.status,
            transno: done.transno,
            committed,
            flags,
            body: &done.body,
            bulk: None,
        };
        self.send(turn, target.conn, &asked, &said);
    }
}
