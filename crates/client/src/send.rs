//! Sending requests: the destination lane, the slot, and the limit of requests in flight per
//! connection.
//!
//! ```text
//! Unrouted ─map─▶ Queued ─credit, slot─▶ Sent      Queued ─no slot─▶ SlotWait ─slot─▶ Queued
//! ```

use crate::client::Client;
use crate::exchange::{Exchange, Place};
use crate::link::LinkState;
use crate::plan::PlanReply;
use crate::plan::begin::{NewRequest, Target};
use crate::replay::cost_bytes;
use crate::session::Session;
use alloc::vec::Vec;
use interface::{ConnId, Mono, NetAction, Turn};
use wire::{
    Header, InodeNo, LaneId, Map, MapEpoch, Op, Request, Retry, ShardId, Status, Transno,
    request_flag,
};

impl Client {
    /// Makes a job's next request and queues it.
    pub(crate) fn submit(&mut self, job_id: usize, request: NewRequest, body: Vec<u8>) {
        self.sequence_last += 1;
        let exchange = Exchange {
            job_id,
            op: request.op,
            target: request.target,
            body,
            bulk: request.bulk,
            retained: None,
            sync: request.sync,
            urgent: request.plan.is_urgent(),
            place: Place::Unrouted,
            shard: ShardId(0),
            session_index: 0,
            link_index: 0,
            xid: None,
            slot: 0,
            resent: false,
            promised_bytes: 0,
            wrong_lane_count: 0,
            sequence_no: self.sequence_last,
        };
        let exchange_id = self.exchanges.insert(exchange);
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.exchange_id = exchange_id;
            job.plan = request.plan;
        }
        self.route(exchange_id);
    }

    /// Finds a request's shard, session and lane by the map and queues it; without a map it waits.
    pub(crate) fn route(&mut self, exchange_id: usize) {
        let Some(map) = &self.map else {
            self.unrouted.push_back(exchange_id);
            return;
        };
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        let lanes_start =
            usize::from(map.shard_counts().meta) + usize::from(map.shard_counts().data);
        let shard = match exchange.target {
            Target::Inode(inode) => owner(map, exchange.op, inode),
            Target::MetaShard(inode) => owner(map, Op::Getattr, inode),
            Target::DataShard(inode) => owner(map, Op::Glimpse, inode),
            Target::Shard(shard) => map.has(shard).then_some(shard),
            Target::Lane(lane) => {
                exchange.shard = ShardId(0);
                exchange.link_index = usize::from(lane.0 % map.first_server().lane_count);
                exchange.session_index = lanes_start + exchange.link_index;
                self.queue(exchange_id, Place::Queued);
                return;
            }
        };
        let Some(shard) = shard else {
            // The server would reject such a number as a protocol error.
            self.advance(exchange_id, PlanReply { outcome: Err(Status::Stale), from_slot: false });
            return;
        };
        exchange.shard = shard;
        exchange.session_index = session_index(map, shard);
        exchange.link_index = usize::from(map.lane(shard).0);
        self.queue(exchange_id, Place::Queued);
    }

    /// Puts a routed request into its link's queue: new ones at the end, resends (and ones that
    /// just got a slot, `SlotWait`) before them.
    pub(crate) fn queue(&mut self, exchange_id: usize, from: Place) {
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        exchange.place = Place::Queued;
        let Some(link) = self.links.get_mut(exchange.link_index) else { return };
        if exchange.urgent {
            link.urgent.push_back(exchange_id);
        } else if exchange.xid.is_some() {
            link.resends.push_back(exchange_id);
        } else if matches!(from, Place::SlotWait) {
            link.fresh.push_front(exchange_id);
        } else {
            link.fresh.push_back(exchange_id);
        }
    }

    /// Advances a link: connects it if it is wanted, sends requests.
    pub(crate) fn drive(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        let now = turn.now.mono;
        let caught_up = self.peer_lanes_caught_up() && !self.secrets.is_reading();
        let Some(link) = self.links.get(link_index) else { return };
        match link.state {
            LinkState::Up { conn } => self.pump(turn, link_index, conn),
            LinkState::Idle => {
                let wanted = link.is_wanted() || (link_index == 0 && !self.unrouted.is_empty());
                if wanted && caught_up && self.refused.is_none() {
                    self.connect(turn, link_index);
                }
            }
            LinkState::Pausing { until } => {
                if until <= now && caught_up {
                    self.connect(turn, link_index);
                }
            }
            LinkState::Connecting { .. } => {}
            LinkState::AwaitChallenge { conn, until, .. }
            | LinkState::AwaitWelcome { conn, until, .. } => {
                if until <= now {
                    turn.act(NetAction::Close { conn });
                    self.on_link_down(turn, link_index);
                }
            }
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>, link_index: usize, conn: ConnId) {
        if self.links.get(link_index).is_some_and(|link| link.recovering) {
            self.recover(turn, link_index, conn);
        }
        loop {
            let reopening = self.reopening_count > 0;
            let Some(link) = self.links.get_mut(link_index) else { return };
            if link.recovering || link.goodbye_sent || !link.has_credit() {
                return;
            }
            let mut next = link.urgent.pop_front();
            if next.is_none() && !reopening {
                next = link.resends.pop_front().or_else(|| link.fresh.pop_front());
            }
            let Some(exchange_id) = next else { return };
            self.send(turn, exchange_id, conn);
        }
    }

    fn send(&mut self, turn: &mut Turn<'_>, exchange_id: usize, conn: ConnId) {
        let taken_bytes = self.replay_bytes + self.promised_bytes;
        let space_bytes_max = self.config.replay_bytes_max;
        // One request is always allowed, or a small limit would stop all changes.
        let has_space =
            |cost_bytes: usize| taken_bytes == 0 || taken_bytes + cost_bytes <= space_bytes_max;
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        let Some(session) = self.sessions.get_mut(exchange.session_index) else { return };
        let Some(link) = self.links.get_mut(exchange.link_index) else { return };
        let mut flags = if exchange.sync { request_flag::SYNC } else { 0 };
        let xid = match exchange.xid {
            Some(xid) => {
                flags |= request_flag::RESENT;
                self.counters.resend_count += 1;
                exchange.resent = true;
                xid
            }
            None => {
                if exchange.op.row().retry == Retry::Once {
                    let cost_bytes = cost_bytes(exchange.body.len(), exchange.bulk);
                    if !exchange.urgent && !has_space(cost_bytes) {
                        exchange.place = Place::SpaceWait;
                        self.space_waiters.push_back(exchange_id);
                        return;
                    }
                    let Some(slot) = session.take_slot(self.slot_count, exchange.urgent) else {
                        exchange.place = Place::SlotWait;
                        session.slot_waiters.push_back(exchange_id);
                        return;
                    };
                    exchange.slot = slot;
                    exchange.promised_bytes = cost_bytes;
                    self.promised_bytes += cost_bytes;
                    if !session.used {
                        session.used = true;
                        session.boot_id = link.boot_id;
                    }
                }
                let xid = session.begin(exchange_id);
                exchange.xid = Some(xid);
                xid
            }
        };
        exchange.place = Place::Sent;
        link.outstanding += 1;
        self.counters.request_count += 1;
        let acks = session.acks();
        let leaves = (exchange.op == Op::Goodbye).then_some(exchange.link_index);
        link.goodbye_sent |= leaves.is_some();
        let map_epoch = self.map.as_ref().map_or(MapEpoch(0), Map::epoch);
        let head = Header::Request(Request {
            op: exchange.op,
            lane_hint: LaneId(u16::try_from(exchange.link_index).unwrap_or(u16::MAX)),
            shard: exchange.shard,
            slot: exchange.slot,
            flags,
            session: self.session,
            xid,
            ack_xid: acks.ack_xid,
            sack: acks.sack,
            conn_epoch: link.conn_epoch,
            deadline_ms: 0,
            transno: Transno(0),
            trace_id: 0,
            map_epoch,
        });
        let bulk = exchange.bulk;
        let sizes = bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        let body = &exchange.body;
        let frame = turn.arena.write(|out| head.encode(out, sizes, |to| to.put(body)));
        turn.act(NetAction::Send { conn, frame, bulk });
        if let Some(link_index) = leaves {
            self.clear_known_committed(link_index);
        }
    }

    /// Replay space was freed: queues as many waiting requests as fit.
    pub(crate) fn wake_space_waiters(&mut self) {
        let mut taken_bytes = self.replay_bytes + self.promised_bytes;
        while let Some(exchange_id) = self.space_waiters.front().copied() {
            let exchange = self.exchanges.get(exchange_id);
            let cost = exchange.map_or(0, |it| cost_bytes(it.body.len(), it.bulk));
            if taken_bytes > 0 && taken_bytes + cost > self.config.replay_bytes_max {
                return;
            }
            taken_bytes += cost;
            self.space_waiters.pop_front();
            self.queue(exchange_id, Place::SpaceWait);
        }
    }

    /// A slot was freed: queues the next request that waits for one.
    pub(crate) fn wake_slot_waiter(&mut self, session_index: usize) {
        let Some(session) = self.sessions.get_mut(session_index) else { return };
        let exchanges = &self.exchanges;
        let urgent_at = session
            .slot_waiters
            .iter()
            .position(|id| exchanges.get(*id).is_some_and(|exchange| exchange.urgent));
        let at = urgent_at.unwrap_or(0);
        if !session.has_slot(self.slot_count, urgent_at.is_some()) {
            return;
        }
        if let Some(exchange_id) = session.slot_waiters.remove(at) {
            self.queue(exchange_id, Place::SlotWait);
        }
    }

    /// A connection was lost: queues its requests for a resend, in the order of their xids;
    /// requests without a caller that change nothing are dropped.
    pub(crate) fn take_back(&mut self, link_index: usize) {
        self.stop_recovery(link_index);
        let mut sent = Vec::new();
        for (exchange_id, exchange) in self.exchanges.iter() {
            if exchange.link_index == link_index && exchange.place == Place::Sent {
                sent.push((exchange.session_index, exchange.xid, exchange_id));
            }
        }
        sent.sort_unstable();
        for (_, _, exchange_id) in sent.into_iter().rev() {
            let Some(exchange) = self.exchanges.get_mut(exchange_id) else { continue };
            exchange.place = Place::Queued;
            let urgent = exchange.urgent;
            if self.is_unwanted(exchange_id) {
                self.forget(exchange_id);
                continue;
            }
            if let Some(link) = self.links.get_mut(link_index) {
                let queue = if urgent { &mut link.urgent } else { &mut link.resends };
                queue.push_front(exchange_id);
            }
        }
        if let Some(link) = self.links.get_mut(link_index) {
            link.outstanding = 0;
        }
    }

    /// Makes the sessions and links of a map and routes everything anew. All connections are closed
    /// but that of `kept_link`.
    pub(crate) fn reshape(&mut self, turn: &mut Turn<'_>, map: Map, kept_link: usize) {
        for link_index in 0..self.links.len() {
            self.take_back(link_index);
        }
        let mut links = core::mem::take(&mut self.links);
        self.links.resize_with(usize::from(map.first_server().lane_count), crate::link::Link::new);
        for (link_index, link) in links.iter_mut().enumerate() {
            link.urgent.clear();
            link.resends.clear();
            link.fresh.clear();
            if link_index != kept_link
                && let Some(conn) = link.conn()
            {
                turn.act(NetAction::Close { conn });
            }
        }
        if let (Some(link), Some(place)) =
            (links.into_iter().nth(kept_link), self.links.get_mut(kept_link))
        {
            *place = link;
        }
        let shards = usize::from(map.shard_counts().meta) + usize::from(map.shard_counts().data);
        let sessions_count = shards + usize::from(map.first_server().lane_count);
        while self.sessions.len() < sessions_count {
            // Random, and far from the largest number.
            let xid_start = (self.random() >> 2) | (1 << 61);
            self.sessions.push(Session::new(xid_start));
        }
        self.map = Some(map);
        self.unrouted.clear();
        let mut all: Vec<_> = self
            .exchanges
            .iter()
            .filter(|(_, exchange)| exchange.place != Place::Later)
            .map(|(id, exchange)| (exchange.session_index, exchange.xid, exchange.sequence_no, id))
            .collect();
        all.sort_unstable();
        for session in &mut self.sessions {
            session.slot_waiters.clear();
        }
        self.space_waiters.clear();
        for (_, _, _, exchange_id) in all {
            self.forget_lane_xid(exchange_id);
            self.route(exchange_id);
        }
    }

    /// The session of a request to a lane ends with the lane; a new xid is safe for it.
    fn forget_lane_xid(&mut self, exchange_id: usize) {
        let Some(exchange) = self.exchanges.get_mut(exchange_id) else { return };
        if let (Target::Lane(_), Some(xid)) = (exchange.target, exchange.xid) {
            exchange.xid = None;
            if let Some(session) = self.sessions.get_mut(exchange.session_index) {
                session.end(xid);
            }
        }
    }

    /// The server has not touched the request's slot and wants the request later. It gets a new
    /// xid, unless it was sent more than once: a copy may still be in flight, and the slot tells
    /// copies apart by their xid.
    pub(crate) fn postpone(&mut self, exchange_id: usize, at: Mono) {
        if self.exchanges.get(exchange_id).is_some_and(|exchange| !exchange.resent) {
            self.release_xid(exchange_id);
        }
        if let Some(exchange) = self.exchanges.get_mut(exchange_id) {
            exchange.place = Place::Later;
            self.later.push((at, exchange_id));
        }
    }
}

/// The shard for a request about `inode`; `None` for inode numbers that no shard assigns.
fn owner(map: &Map, op: Op, inode: InodeNo) -> Option<ShardId> {
    let exists = inode.count() > 0 && map.has(inode.shard());
    map.shard(op, inode).filter(|_| exists)
}

pub(crate) fn session_index(map: &Map, shard: ShardId) -> usize {
    let index = usize::from(shard.index());
    if shard.is_data() { usize::from(map.shard_counts().meta) + index } else { index }
}
