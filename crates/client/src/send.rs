//! Sending requests: the destination lane, the slot, and the limit of requests in flight per
//! connection.
//!
//! ```text
//! Unrouted ─map─▶ Queued ─credit, slot─▶ Sent      Queued ─no slot─▶ SlotWait ─slot─▶ Queued
//! ```

use crate::Answer;
use crate::client::Client;
use crate::link::{Link, LinkState};
use crate::plan::{FollowUp, NewRequest, Plan, Target};
use crate::replay::cost_bytes;
use crate::requests::{Exchange, Place};
use crate::server::Server;
use crate::servers::INITIAL;
use crate::session::SlotClass;
use crate::wait_cause::WaitCause;
use alloc::vec::Vec;
use interface::{ConnId, Mono, NetAction, Turn};
use wire::{
    Header, InodeNo, Map, Op, Request, Retry, Rule, ShardCounts, Status, Transno, Writer,
    request_flag,
};

/// So many requests in flight over a connection may only be changes behind, where there are at least
/// [`CREDITS_MIN`].
const CREDITS_BEHIND: u16 = 4;
const CREDITS_MIN: u16 = 16;

impl Client {
    /// Makes a job's next request, and the one beside it, and queues them.
    pub(crate) fn submit(&mut self, job_id: usize, request: NewRequest, body: Vec<u8>) {
        let NewRequest { plan, beside, .. } = request;
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.plan = plan;
            job.pending_count += 1 + usize::from(beside.is_some());
        }
        let beside = beside.map(|beside| self.encoded(plan, beside));
        self.make((job_id, 0), request, body);
        if let Some((request, body)) = beside {
            self.make((job_id, 1), request, body);
        }
    }

    /// Makes several requests of a job and queues them.
    pub(crate) fn submit_all(&mut self, job_id: usize, plan: Plan, all: Vec<FollowUp>) {
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.plan = plan;
            // Before the first one is made, which may fail at once.
            job.pending_count += all.len();
        }
        for (part, follow_up) in (0..).zip(all) {
            let (request, body) = self.encoded(plan, follow_up);
            self.make((job_id, part), request, body);
        }
    }

    fn encoded(&mut self, plan: Plan, follow_up: FollowUp) -> (NewRequest, Vec<u8>) {
        let mut body = self.requests.take_body();
        follow_up.encode(&[], &mut Writer::new(&mut body));
        let request = NewRequest::new(plan, follow_up.op(), follow_up.target());
        (NewRequest { flags: follow_up.flags(), ..request }, body)
    }

    fn make(&mut self, (job_id, part): (usize, u16), request: NewRequest, body: Vec<u8>) {
        let NewRequest { op, target, bulk, sync, flags, plan, .. } = request;
        let new = Exchange::new(job_id, op, target);
        let urgent = plan.is_urgent();
        self.add_and_route(Exchange { part, body, bulk, sync, flags, urgent, ..new });
    }

    /// Adds a request and routes it.
    pub(crate) fn add_and_route(&mut self, exchange: Exchange) {
        let exchange_id = self.requests.add(exchange);
        self.route(exchange_id);
        self.count_wait_of(exchange_id);
    }

    /// Finds a request's shard, session and lane by the map and queues it; without a map it waits.
    pub(crate) fn route(&mut self, exchange_id: usize) {
        if self.holds_back(exchange_id) {
            return;
        }
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        let Some(map) = self.servers.map() else {
            exchange.place = Place::Unrouted;
            return self.requests.wait_for_map(exchange_id);
        };
        let known = map.generation();
        let is_split_op = is_split_op(exchange.op, exchange.target);
        if let Target::Contents(inode, _) | Target::DataShard(inode) = exchange.target {
            let layout = exchange.layout.or_else(|| self.layouts.get(inode));
            let is_about_bytes = matches!(exchange.target, Target::Contents(..));
            let states_it = is_about_bytes && exchange.op.row().retry == Retry::Once;
            // Its metadata shard has the map that says where the contents of a new generation are.
            let is_later = inode.generation() > known;
            let needs_it = states_it || is_later || self.layouts.must_be_known(inode);
            if needs_it && layout.is_none() {
                exchange.place = Place::LayoutWait;
                return self.await_layout(inode, exchange_id);
            }
            if is_about_bytes {
                exchange.layout = layout;
            }
            if let Some(layout) = layout
                && is_about_bytes
                && layout.must_widen(exchange.file_end())
            {
                return self.await_wide(exchange_id, (inode, layout));
            }
            if let Some(layout) = layout.filter(wire::Layout::is_spread) {
                if is_split_op && !exchange.is_split {
                    self.split(exchange_id, inode, layout);
                }
            } else if exchange.op == Op::Sync {
                exchange.sync_narrow(inode);
            }
        }
        let Some(exchange) = self.requests.get(exchange_id) else { return };
        if exchange.place == Place::AppendWait {
            return;
        }
        let (op, target, layout) = (exchange.op, exchange.target, exchange.layout);
        let Some(destination) = self.servers.destination(op, target, layout) else {
            return self.await_shard(exchange_id, known);
        };
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        exchange.shard = destination.shard;
        exchange.session_index = destination.session_index;
        exchange.link_index = destination.link_index;
        self.queue(exchange_id, Place::Queued);
    }

    /// The map has no such shard. An inode of a later generation, of which another lane of the client has
    /// learned, is at a new server: its request waits until a server answers with the map that has it, or none
    /// of them has a newer one.
    fn await_shard(&mut self, exchange_id: usize, known: u8) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        let inode = exchange.inode();
        let may_exist = inode.generation() > known && inode.shard().index() < ShardCounts::MAX;
        let is_asked = core::mem::replace(&mut exchange.map_asked, true);
        if !may_exist || (is_asked && self.map_ask_count == 0) {
            // The server would reject such a number as a protocol error.
            return self.advance(exchange_id, Err(Status::Stale), false);
        }
        exchange.place = Place::Unrouted;
        self.requests.wait_for_map(exchange_id);
        if self.map_ask_count == 0 {
            self.ask_for_map();
        }
    }

    /// Asks each server: one with a newer map answers with it, before the request itself.
    fn ask_for_map(&mut self) {
        let asked = self.servers.first_lanes();
        self.map_ask_count = asked.len();
        for link_index in asked {
            let request = NewRequest::new(Plan::MapAsk, Op::Ping, Target::Link(link_index));
            let body = self.requests.take_body();
            self.begin_job(None, request, body);
        }
    }

    /// A server has answered. Behind the last one no request waits any more.
    pub(crate) fn on_map_asked(&mut self) {
        self.map_ask_count = self.map_ask_count.saturating_sub(1);
        if self.map_ask_count == 0 {
            let waiting = self.requests.take_waiting_for_map();
            waiting.into_iter().for_each(|exchange_id| self.route(exchange_id));
        }
    }

    /// The request waits for its file's layout, which is requested unless that was done before.
    fn await_layout(&mut self, inode: InodeNo, exchange_id: usize) {
        if self.layouts.wait(inode, exchange_id) {
            let getattr = FollowUp::Getattr(wire::Getattr { inode });
            self.begin_without_caller(Plan::Layout { inode }, getattr);
        }
    }

    /// A file's layout has come, or will not: what waits for it is routed, or fails.
    pub(crate) fn on_layout(&mut self, inode: InodeNo, result: Result<Answer, Status>) {
        let found = match result {
            // Only files have one.
            Ok(Answer::Entry(attr)) => attr.layout.ok_or(Status::Invalid),
            Ok(_) => Err(Status::Protocol),
            Err(status) => Err(status),
        };
        if let Ok(layout) = found {
            self.layouts.learn(inode, layout);
        }
        for exchange_id in self.layouts.take_waiting(inode) {
            match found {
                Ok(_) => self.route(exchange_id),
                Err(status) => self.advance(exchange_id, Err(status), false),
            }
        }
    }

    /// Puts a routed request into its link's queue: new ones at the end, resends (and ones that
    /// just got a slot, `SlotWait`) before them.
    pub(crate) fn queue(&mut self, exchange_id: usize, from: Place) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        exchange.place = Place::Queued;
        let Some(link) = self.servers.link_mut(exchange.link_index) else { return };
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
        let caught_up = self.peer_lanes_caught_up() && !self.identity.secrets.is_reading();
        let Some(link) = self.servers.link(link_index) else { return };
        match link.state {
            LinkState::Up { conn } => self.pump(turn, link_index, conn),
            LinkState::Idle => {
                let wants_map = link_index == INITIAL && self.requests.wait_for_a_map();
                let wanted = link.is_wanted() || wants_map;
                if wanted && caught_up && self.identity.refused().is_none() {
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
        self.send_dropped(turn, link_index, conn);
        if self.must_drop_first(link_index) {
            return;
        }
        if self.servers.link(link_index).is_some_and(|link| link.recovering) {
            self.recover(turn, link_index, conn);
        }
        loop {
            let server = self.servers.server_of(link_index);
            let reopening = server.is_some_and(Server::is_registering);
            let Some(link) = self.servers.link_mut(link_index) else { return };
            if link.recovering || link.goodbye_sent || !link.has_credit() {
                return;
            }
            let mut next = link.urgent.pop_front();
            // Others wait for writes behind, and requests of this client may wait for others.
            let is_short = self.leases.writes_behind
                && link.credits >= CREDITS_MIN
                && link.outstanding.saturating_sub(link.outstanding_behind) + CREDITS_BEHIND
                    >= link.credits;
            if next.is_none() && !reopening && is_short {
                let requests = &self.requests;
                next = link.take_first(|id| requests.get(id).is_some_and(Exchange::is_behind));
            } else if next.is_none() && !reopening {
                next = link.resends.pop_front().or_else(|| link.fresh.pop_front());
            }
            let Some(exchange_id) = next else { return };
            self.send(turn, exchange_id, conn);
        }
    }

    fn send(&mut self, turn: &mut Turn<'_>, exchange_id: usize, conn: ConnId) {
        let map_epoch = self.servers.map_epoch();
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        let indices = (exchange.link_index, exchange.session_index);
        let changes_contents = exchange.op.row().retry == Retry::Once && exchange.shard.is_data();
        if changes_contents && self.config.rules.hold(Rule::SessionShards) {
            self.servers.use_data_shards(exchange.link_index);
        }
        let Some((server, link, session)) = self.servers.parts_mut(indices.0, indices.1) else {
            return;
        };
        let mut flags = if exchange.sync { request_flag::SYNC } else { 0 };
        // An open is asked behind as the lane's leases say now.
        let is_open = exchange.op == Op::Open;
        let of_leases = request_flag::LEASES | if is_open { request_flag::BEHIND } else { 0 };
        flags |= exchange.flags & !of_leases;
        flags |= self.leases.flag(exchange) | self.leases.claim(exchange);
        let xid = match exchange.xid {
            Some(xid) => {
                flags |= request_flag::RESENT;
                self.counters.resend_count += 1;
                exchange.resent = true;
                xid
            }
            None => {
                if exchange.op.row().retry == Retry::Once {
                    let waits = !exchange.is_awaited && !exchange.is_behind();
                    if waits && !self.replay_space.has_space_for(exchange) {
                        exchange.place = Place::SpaceWait;
                        self.begin_wait(exchange_id, WaitCause::ReplaySpace);
                        return self.replay_space.wait(exchange_id);
                    }
                    let wanted = (exchange.slot_class(), self.leases.writes_behind);
                    let slot = session.take_slot(server.slot_count(), wanted);
                    let Some(slot) = slot else {
                        exchange.place = Place::SlotWait;
                        session.slot_waiters.push_back(exchange_id);
                        return self.begin_wait(exchange_id, WaitCause::Slot);
                    };
                    exchange.slot = slot;
                    self.replay_space.promise(exchange);
                }
                // A session that is granted leases is recorded as one that changes something is:
                // the next recovery awaits it.
                let is_recorded =
                    exchange.op.row().retry == Retry::Once || flags & request_flag::LEASES != 0;
                if is_recorded {
                    session.set_used(link.boot_id);
                }
                let xid = session.begin(exchange_id);
                exchange.xid = Some(xid);
                exchange.sent_at = turn.now.mono;
                xid
            }
        };
        exchange.place = Place::Sent;
        exchange.map_epoch = map_epoch;
        link.outstanding += 1;
        link.outstanding_behind += u16::from(exchange.is_behind());
        link.leases.asked_at = turn.now.mono;
        self.counters.request_count += 1;
        let acks = session.acks();
        let trace_id = u64::from(self.trace_tag) << 32 | exchange.sequence_no & u64::from(u32::MAX);
        let leaves = (exchange.op == Op::Goodbye).then_some(exchange.link_index);
        link.goodbye_sent |= leaves.is_some();
        let head = Header::Request(Request {
            op: exchange.op,
            lane_hint: link.lane(),
            shard: exchange.shard,
            slot: exchange.slot,
            flags,
            session: server.session(),
            xid,
            ack_xid: acks.ack_xid,
            sack: acks.sack,
            conn_epoch: link.conn_epoch,
            layout: exchange.layout,
            transno: Transno(0),
            trace_id,
            map_epoch,
        });
        let (shard, slot) = (exchange.shard, exchange.slot);
        let bulk = exchange.bulk;
        let sizes = bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        let body = &exchange.body;
        let frame = turn.arena.write(|out| head.encode(out, sizes, |to| to.put(body)));
        let bulk_bytes = bulk.map_or(0, |bulk| u64::from(bulk.bulk_bytes));
        let frame_bytes = u64::try_from(frame.bytes_count()).unwrap_or(u64::MAX);
        self.counts.count_sent(exchange.op, frame_bytes + bulk_bytes);
        if slot > 0 {
            self.tell_received(turn, conn, shard);
            self.publish_sent(shard, xid);
        }
        turn.act(NetAction::Send { conn, frame, bulk });
        self.end_wait(exchange_id);
        if let Some(link_index) = leaves {
            self.clear_known_committed(link_index);
        }
    }

    /// Replay space was freed: queues as many waiting requests as fit.
    pub(crate) fn wake_space_waiters(&mut self) {
        let requests = &self.requests;
        let cost_bytes = |exchange_id| {
            let exchange = requests.get(exchange_id);
            exchange.map_or(0, |exchange| cost_bytes(exchange.body.len(), exchange.bulk))
        };
        for exchange_id in self.replay_space.take_fitting(cost_bytes) {
            self.queue(exchange_id, Place::SpaceWait);
        }
    }

    /// A slot was freed: queues the next request that waits for one.
    pub(crate) fn wake_slot_waiter(&mut self, link_index: usize, session_index: usize) {
        let parts = self.servers.parts_mut(link_index, session_index);
        let Some((server, _, session)) = parts else { return };
        let requests = &self.requests;
        let keeps_behind = self.leases.writes_behind;
        for class in [SlotClass::Awaited, SlotClass::Behind, SlotClass::Other] {
            let is_of = |id: &usize| requests.get(*id).is_some_and(|it| it.slot_class() == class);
            let Some(at) = session.slot_waiters.iter().position(is_of) else { continue };
            if !session.has_slot(server.slot_count(), (class, keeps_behind)) {
                continue;
            }
            if let Some(exchange_id) = session.slot_waiters.remove(at) {
                return self.queue(exchange_id, Place::SlotWait);
            }
        }
    }

    /// A connection was lost: queues its requests for a resend, in the order of their xids;
    /// requests without a caller that change nothing are dropped.
    pub(crate) fn take_back(&mut self, link_index: usize) {
        self.stop_recovery(link_index);
        let mut sent = Vec::new();
        for (exchange_id, exchange) in self.requests.iter() {
            if exchange.link_index == link_index && exchange.place == Place::Sent {
                sent.push((exchange.session_index, exchange.xid, exchange_id));
            }
        }
        sent.sort_unstable();
        for (_, _, exchange_id) in sent.into_iter().rev() {
            let Some(exchange) = self.requests.get_mut(exchange_id) else { continue };
            exchange.place = Place::Queued;
            let urgent = exchange.urgent;
            if self.is_unwanted(exchange_id) {
                self.forget(exchange_id);
                continue;
            }
            self.begin_wait(exchange_id, WaitCause::Connection);
            if let Some(link) = self.servers.link_mut(link_index) {
                let queue = if urgent { &mut link.urgent } else { &mut link.resends };
                queue.push_front(exchange_id);
            }
        }
        if let Some(link) = self.servers.link_mut(link_index) {
            (link.outstanding, link.outstanding_behind) = (0, 0);
        }
    }

    /// Replaces the map, and routes by it whatever is not on a connection. Closes the connections to
    /// lanes that have lost a shard, but not that of `kept_link`. Slots are left alone.
    pub(crate) fn adopt_map(&mut self, turn: &mut Turn<'_>, map: &Map, kept_link: Option<usize>) {
        if !self.servers.wants(map) {
            return;
        }
        self.forget_told();
        let places_same = self.servers.map().is_some_and(|known| known.places_all_as(map));
        let changed = self.servers.set_map(map.clone(), self.identity.random());
        // A Welcome says more of its own server than the terms do.
        let server_of = |link_index| self.servers.link(link_index).map(Link::server_index);
        let welcoming = kept_link.and_then(server_of);
        let drains = self.config.rules.hold(Rule::DrainPeerLanes);
        let mut started = changed.restarted_servers;
        started.retain(|server| Some(*server) != welcoming);
        let restarted = changed.restarted.into_iter();
        let restarted = restarted.filter(|link_index| {
            let is_up = self.servers.link(*link_index).is_some_and(Link::is_up);
            drains && is_up && server_of(*link_index) != welcoming
        });
        let restarted: Vec<usize> = restarted.collect();
        for link_index in changed.left.into_iter().chain(restarted) {
            let has_conn = self.servers.link(link_index).is_some_and(|link| link.conn().is_some());
            if Some(link_index) != kept_link && has_conn {
                self.drop_link(turn, link_index);
            }
        }
        if !places_same {
            self.route_all();
        }
        for link_index in 0..self.servers.links().len() {
            let has_lane = self.servers.has_lane(link_index);
            if let Some(link) = self.servers.link_mut(link_index)
                && !has_lane
                && Some(link_index) != kept_link
            {
                link.state = LinkState::Idle;
            }
        }
        for link_index in changed.moved.into_iter().filter(|index| Some(*index) != kept_link) {
            self.connect_anew(turn, link_index);
        }
        // It waits for those of before; their lane may have another number now.
        for server_index in started {
            self.wake_links(server_index, turn.now.mono);
        }
    }

    /// Takes the requests out of all queues, but those that wait for a time.
    pub(crate) fn clear_queues(&mut self) {
        self.requests.end_waits_for_map();
        self.replay_space.end_waits();
        self.servers.links_mut().iter_mut().for_each(Link::clear_queues);
        for session in self.servers.sessions_mut() {
            session.slot_waiters.clear();
        }
    }

    /// Routes all requests anew that are not on a connection and do not wait for a time.
    pub(crate) fn route_all(&mut self) {
        self.clear_queues();
        let queued = self.requests.iter().filter(|(_, exchange)| {
            use Place::{CloseWait, Later, LayoutWait, Sent};
            !matches!(exchange.place, LayoutWait | CloseWait | Later | Sent)
        });
        let mut queued: Vec<_> = queued
            .map(|(id, exchange)| (exchange.session_index, exchange.xid, exchange.sequence_no, id))
            .collect();
        queued.sort_unstable();
        for (_, _, _, exchange_id) in queued {
            self.forget_lane_xid(exchange_id);
            self.route(exchange_id);
        }
    }

    /// The session of a request to a lane ends with the lane; a new xid is safe for it.
    pub(crate) fn forget_lane_xid(&mut self, exchange_id: usize) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        if let (Target::Lane(_) | Target::Link(_), Some(xid)) = (exchange.target, exchange.xid) {
            exchange.xid = None;
            if let Some(session) = self.servers.session_mut(exchange.session_index) {
                session.end(xid);
            }
        }
    }

    /// How long a request pauses that the server wants later. An append soon asks again, and less
    /// often the longer another one takes.
    pub(crate) fn pause_ms(&mut self, exchange_id: usize, retry_after_ms: u32) -> u64 {
        const TRIES: u8 = 8;
        const DOUBLED_MAX: u8 = 5;
        let pause_ms = u64::from(retry_after_ms.max(1));
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return pause_ms };
        if exchange.op != Op::Reserve {
            return pause_ms;
        }
        exchange.later_count = exchange.later_count.saturating_add(1);
        pause_ms << (exchange.later_count / TRIES).min(DOUBLED_MAX)
    }

    /// The server has not touched the request's slot and wants the request later. It gets a new
    /// xid, unless it was sent more than once: a copy may still be in flight, and the slot tells
    /// copies apart by their xid.
    pub(crate) fn postpone(&mut self, exchange_id: usize, at: Mono) {
        self.begin_wait(exchange_id, WaitCause::Retry);
        if self.requests.get(exchange_id).is_some_and(|exchange| !exchange.resent) {
            self.release_xid(exchange_id);
        }
        self.requests.wait_until(at, exchange_id);
    }
}

/// Whether a request of this op is split where a file's stripes are spread.
const fn is_split_op(op: Op, target: Target) -> bool {
    match target {
        Target::Contents(..) => {
            matches!(
                op,
                Op::Read | Op::ReadList | Op::Write | Op::WriteList | Op::Allocate | Op::Seek
            )
        }
        Target::DataShard(_) => matches!(op, Op::Sync),
        Target::Inode(_)
        | Target::MetaShard(_)
        | Target::Shard(_)
        | Target::Lane(_)
        | Target::Link(_) => false,
    }
}
