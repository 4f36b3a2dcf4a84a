//! A server for tests, on the runtime in memory: connections, operations of the store that end in an
//! order drawn from a PRNG, and crashes that lose what was not durable.
//!
//! It performs every action of a server lane and checks what would harm a real runtime: a buffer
//! released twice or never, two appends at a time. Frames to peers lie in their inboxes.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

use crate::{Affinity, Config, Export, FsKey, Lane, Limits, Promised, Restore};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
pub(crate) use delivery::Delivery;
use disk::Creation;
use fastrand::Rng;
use interface::{
    Action, ConnId, Core, Errno, Event, LaneTime, LogSpace, Mono, NetAction, NetEvent, Now,
    PeerAction, ProtocolPoint, Span, StoreAction, StoreEvent, Ticket, Turn,
};
pub(crate) use operations::{Kind, LANE_TIME, USAGE};
use test_runtime::{Incoming, LaneState, LogId, Operation, Prng, Store};
use wire::{
    FsUuid, Inspect, LaneId, Layout, Map, Question, Rules, Secret, ServerAddress, ServerId,
    ShardCounts, Status, Term,
};

const AT_NS: u64 = 1_600_000_000_000_000_000;
const MADE: Creation =
    Creation { at_ns: AT_NS, uid: 0, gid: 0, mode: 0o755, layout: Layout::DEFAULT };

mod clock;
mod delivery;
mod operations;
mod proxies;

/// A frame that reached a peer.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) frame: Vec<u8>,
    pub(crate) bulk: Vec<u8>,
}

/// The other end of a connection.
#[derive(Default, Debug)]
struct Peer {
    lane: usize,
    proxy: usize,
    inbox: Vec<ReceivedRequest>,
    admitted: bool,
    /// Its bulk is not discarded.
    may_write: bool,
    closed: bool,
}

/// A lane and its part of the runtime.
struct LaneHost {
    lane: Lane,
    state: LaneState,
    log: LogId,
    operations: Vec<Operation>,
}

/// So long a buffer is held at most when nothing else happens, in milliseconds.
const HELD_MS_MAX: u32 = 40;

/// The server: its lanes, disks and peers.
pub(crate) struct TestServer {
    pub(crate) rng: Rng,
    pub(crate) now: Now,
    pub(crate) boot_id: u64,
    /// The shards of the store.
    pub(crate) shard_counts: ShardCounts,
    /// The map of the last start, or the one that came later.
    pub(crate) map: Map,
    /// Which of the map's servers it is.
    pub(crate) server: ServerId,
    /// The layout of new files.
    pub(crate) layout: Layout,
    pub(crate) fs_key: [u8; 32],
    /// Connections that lanes ask for: the lane, its ticket, and the address.
    pub(crate) dials: Vec<(usize, Ticket, ServerAddress)>,
    pub(crate) limits: Limits,
    pub(crate) secret: Secret,
    pub(crate) lines: Vec<String>,
    /// The inspection requests; `None`: the end of the connection's inspection.
    pub(crate) inspections: Vec<(ConnId, Option<Inspect>)>,
    /// Fault injection: the next actions of these kinds fail with this errno.
    pub(crate) failing: Vec<(Kind, Errno)>,
    /// The medium has more log space, which awaits a checkpoint.
    pub(crate) awaits_checkpoint: bool,
    /// The free log space of every lane.
    pub(crate) space_bytes: u64,
    pub(crate) handed_over_count: usize,
    pub(crate) affinity: Affinity,
    /// The number of timers that lanes have set.
    pub(crate) wake_count: usize,
    /// What was promised since a recovery was completed.
    pub(crate) promised: Option<Promised>,
    /// An append ends this many times more slowly than everything else.
    pub(crate) log_slowness: usize,
    /// The rules of the protocol that hold.
    pub(crate) rules: Rules,
    /// Evicted clients remembered over a start.
    pub(crate) evicted_count_max: usize,
    /// Answers to other threads.
    answers: Vec<(Ticket, Vec<u8>)>,
    recovered_count: u16,
    /// How often each point in the protocol was passed.
    pub(crate) points: BTreeMap<ProtocolPoint, usize>,
    /// The server crashes when it passes this point for the n-th time.
    pub(crate) dies_at: Option<(ProtocolPoint, usize)>,
    /// Faults of the messages between lanes.
    pub(crate) delivery: Delivery,
    hosts: Vec<LaneHost>,
    peers: BTreeMap<ConnId, Peer>,
    conn_count: u64,
    store: Store,
    /// The limit of the memory of names.
    names_bytes_max: Option<u64>,
}

pub(crate) const FS: FsUuid = FsUuid([7; 16]);
pub(crate) const SHARD_COUNTS: ShardCounts = ShardCounts { meta: 2, data: 4 };

impl TestServer {
    /// A new store, not started.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            now: Now { mono: Mono(1_000_000_000), wall_ns: 1_700_000_000_000_000_000 },
            boot_id: 0,
            shard_counts: SHARD_COUNTS,
            map: Map::single_server(1, SHARD_COUNTS, Term(1)),
            server: ServerId::FIRST,
            layout: Layout::DEFAULT,
            fs_key: [4; 32],
            dials: Vec::new(),
            limits: Limits::default(),
            secret: Secret::new([3; 32]),
            lines: Vec::new(),
            inspections: Vec::new(),
            failing: Vec::new(),
            space_bytes: u64::MAX,
            awaits_checkpoint: false,
            handed_over_count: 0,
            affinity: Affinity::default(),
            wake_count: 0,
            promised: None,
            log_slowness: 0,
            rules: Rules::default(),
            evicted_count_max: 4096,
            answers: Vec::new(),
            recovered_count: 0,
            points: BTreeMap::new(),
            dies_at: None,
            delivery: Delivery::of_seed(seed),
            hosts: Vec::new(),
            peers: BTreeMap::new(),
            conn_count: 0,
            store: Store::new(4096),
            names_bytes_max: None,
        }
    }

    /// A new store with a running server.
    pub(crate) fn started(seed: u64, lane_count: u16) -> Self {
        let mut server = Self::new(seed);
        server.start(lane_count);
        server
    }

    /// Starts the only server on the durable state.
    pub(crate) fn start(&mut self, lane_count: u16) {
        let term = Term::of_boot(self.boot_id + 1);
        self.start_as(Map::single_server(lane_count, self.shard_counts, term));
    }

    /// Starts a server that a map names.
    pub(crate) fn start_as(&mut self, map: Map) {
        self.boot_id += 1;
        self.map = map;
        let lane_count = self.lane_count();
        let (map, server) = (self.map.clone(), self.server);
        self.recovered_count = 0;
        let promised = self.limits.promised();
        let promised = self.promised.map_or(promised, |before| before.and(promised));
        self.promised = Some(promised);
        let mut restore = self.restore();
        restore.remember_evicted(self.evicted_count_max);
        for (index, restored) in restore.into_lanes_of(&map, server).into_iter().enumerate() {
            let mut seed = [index as u8; 32];
            (seed[0], seed[1]) = (self.boot_id as u8, server.0 as u8);
            let lane_id = LaneId(index as u16);
            let export = |name: &str, root_trusted| Export { name: name.to_string(), root_trusted };
            let config = Config {
                lane: lane_id,
                map: self.map.clone(),
                server,
                fs: FS,
                secrets: self.secret.into(),
                boot_id: self.boot_id,
                exports: vec![export("own", true), export("guests", false)],
                seed,
                limits: self.limits,
                fs_key: FsKey::new(self.fs_key),
                promised,
                rules: self.rules,
                affinity: self.affinity,
            };
            let log = (self.boot_id, lane_id.0);
            self.store.new_log(log, FS, lane_count, self.log_space());
            let mut state = LaneState::default();
            state.deliver(Event::Tick);
            let lane = Lane::new(config, restored);
            self.hosts.push(LaneHost { lane, state, log, operations: Vec::new() });
        }
    }

    const fn log_space(&self) -> LogSpace {
        LogSpace { space_bytes: self.space_bytes, awaits_checkpoint: self.awaits_checkpoint }
    }

    /// The lanes of the last start.
    pub(crate) fn lane_count(&self) -> u16 {
        self.map.lane_count(self.server).unwrap()
    }

    /// Brings the rows up to the ends of the logs, and loads them.
    fn restore(&mut self) -> Restore {
        let made = Creation { layout: self.layout, ..MADE };
        self.store.rows.begin(made).unwrap();
        self.store.redo(wire::Rules::default()).unwrap();
        let mut restore = Restore::new(self.shard_counts, made);
        if let Some(bytes_max) = self.names_bytes_max {
            restore.bound(bytes_max);
        }
        restore.load(|range, take| self.store.rows.each(range, take)).unwrap()
    }

    /// Crashes the server; all actions in flight are lost.
    pub(crate) fn crash_losing_all(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.operations.clear());
        self.crash();
    }

    /// Crashes the server: connections end, and a random part of the actions in flight takes
    /// effect.
    pub(crate) fn crash(&mut self) {
        let mut prng = Prng::new(self.rng.u64(..));
        for operation in self.hosts.drain(..).flat_map(|host| host.operations) {
            self.store.interrupt(operation, &mut prng);
        }
        self.store.crash(&mut prng);
        self.store.rows.behind.clear();
        self.peers.values_mut().for_each(|peer| peer.closed = true);
        self.dials.clear();
    }

    // ---- peers ----

    /// A peer connects to the listening lane.
    pub(crate) fn connect(&mut self) -> ConnId {
        self.conn_count += 1;
        let conn = ConnId(self.conn_count);
        let lane = self.rng.usize(..self.hosts.len());
        self.peers.insert(conn, Peer { lane, proxy: lane, ..Peer::default() });
        conn
    }

    /// A peer sends a frame.
    pub(crate) fn send(&mut self, conn: ConnId, frame: Vec<u8>, bulk: Option<Vec<u8>>) {
        let Some(peer) = self.peers.get(&conn).filter(|peer| !peer.closed) else { return };
        self.hosts[peer.lane].state.deliver(Incoming::frame(conn, frame, bulk));
    }

    /// Cuts a peer's connection; frames on their way to it are lost.
    pub(crate) fn cut(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get_mut(&conn).filter(|peer| !peer.closed) else { return };
        peer.closed = true;
        peer.inbox.clear();
        let reason = interface::CloseReason::Ended;
        self.hosts[peer.lane].state.deliver(NetEvent::Closed { conn, reason });
    }

    /// A lane's attempt to connect has succeeded.
    pub(crate) fn dialled(&mut self, lane: usize, ticket: Ticket) -> ConnId {
        self.conn_count += 1;
        let conn = ConnId(self.conn_count);
        self.peers.insert(conn, Peer { lane, proxy: lane, ..Peer::default() });
        self.hosts[lane].state.deliver(NetEvent::Connected { ticket, conn });
        conn
    }

    /// A lane's attempt to connect has failed.
    pub(crate) fn not_dialled(&mut self, lane: usize, ticket: Ticket) {
        let reason = interface::CloseReason::Failed(Errno(111));
        self.hosts[lane].state.deliver(NetEvent::ConnectFailed { ticket, reason });
    }

    /// Whether clients may connect: all lanes know the exports.
    pub(crate) fn knows_exports(&self) -> bool {
        self.hosts.iter().all(|host| host.lane.knows_exports())
    }

    /// The lanes learn of another map.
    pub(crate) fn set_map(&mut self, map: &Map) {
        self.map = map.clone();
        let bytes = wire::Wire::to_bytes(map);
        for host in &mut self.hosts {
            host.state.deliver(Incoming::new(Event::Map(Span::default()), bytes.clone()));
        }
    }

    /// Answers the last inspection request of a connection.
    pub(crate) fn inspected(&mut self, conn: ConnId, status: Status, reply: &[u8]) {
        let event = StoreEvent::Inspected { conn, status, reply: Span::default() };
        let lane = self.peers[&conn].lane;
        self.hosts[lane].state.deliver(Incoming::new(event, reply.to_vec()));
    }

    /// Takes the frames that have reached a peer.
    pub(crate) fn take(&mut self, conn: ConnId) -> Vec<ReceivedRequest> {
        self.peers.get_mut(&conn).map(|peer| core::mem::take(&mut peer.inbox)).unwrap_or_default()
    }

    pub(crate) fn is_closed(&self, conn: ConnId) -> bool {
        self.peers[&conn].closed
    }

    pub(crate) fn is_admitted(&self, conn: ConnId) -> bool {
        self.peers[&conn].admitted
    }

    /// Whether the bulk of a connection is not discarded.
    pub(crate) fn may_write(&self, conn: ConnId) -> bool {
        self.peers[&conn].may_write
    }

    pub(crate) fn lane_of(&self, conn: ConnId) -> usize {
        self.peers[&conn].lane
    }

    // ---- the course of the run ----

    pub(crate) fn lane(&self, index: usize) -> &Lane {
        &self.hosts[index].lane
    }

    /// The counters of a lane, with those of the runtime.
    pub(crate) fn counters(&self, index: usize) -> wire::Stats {
        self.lane(index).counters(&USAGE)
    }

    pub(crate) fn event(&mut self, index: usize, event: Event) {
        self.hosts[index].state.deliver(event);
    }

    pub(crate) fn is_down(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.hosts.iter().all(|host| host.state.stopped)
    }

    /// Sets the free log space of every lane.
    pub(crate) fn set_space(&mut self, space_bytes: u64) {
        self.space_bytes = space_bytes;
        let space = self.log_space();
        for host in &mut self.hosts {
            self.store.set_space(host.log, space);
            host.state.deliver(StoreEvent::LogSpace(space));
        }
    }

    /// The number of objects.
    pub(crate) fn object_count(&self) -> usize {
        self.store.objects().len()
    }

    /// One step: an action ends or a lane takes a turn. `false`: nothing is left to do.
    pub(crate) fn step(&mut self) -> bool {
        let can: Vec<usize> = (0..self.hosts.len())
            .filter(|index| {
                let host = &self.hosts[*index];
                !host.operations.is_empty() || !host.state.inbox.is_empty()
            })
            .collect();
        if can.is_empty() {
            return false;
        }
        self.now.mono.0 += 1000;
        self.now.wall_ns += 1000;
        let index = can[self.rng.usize(..can.len())];
        self.checkpoint();
        let host = &self.hosts[index];
        let turn = host.operations.is_empty()
            || (!host.state.inbox.is_empty() && self.rng.usize(..2) == 0);
        if turn {
            self.turn(index)
        } else {
            self.end_some(index)
        }
        true
    }

    /// Runs until nothing is left to do.
    pub(crate) fn run(&mut self) {
        // Buffers of writes that were answered before they are in their objects are held for longer.
        for _ in 0..HELD_MS_MAX {
            while self.step() || self.pass_redelivery() {}
            if self.unreleased_count() == 0 {
                return;
            }
            self.pass_ms(1);
        }
        panic!("{} buffers were never released", self.unreleased_count());
    }

    fn unreleased_count(&self) -> usize {
        let unreleased = |host: &LaneHost| {
            host.state.bufs.count().saturating_sub(host.lane.waiters.buffer_count())
        };
        self.hosts.iter().map(unreleased).sum()
    }

    fn turn(&mut self, index: usize) {
        let LaneHost { lane, state, .. } = &mut self.hosts[index];
        let peers = &self.peers;
        state.inbox.retain(|incoming| match incoming.event {
            Event::Net(NetEvent::Frame { conn, .. }) => !peers[&conn].closed,
            _ => true,
        });
        let mut actions = Vec::new();
        // Some events wait for a later turn, in order.
        let events = state.events(1 + self.rng.usize(..state.inbox.len().max(1)));
        let mut turn = Turn { now: self.now, arena: &mut state.arena, actions: &mut actions };
        events.into_iter().for_each(|event| lane.apply(&mut turn, event));
        lane.settle(&mut turn);
        for action in actions {
            if let Action::Point(point) = action
                && self.passes(point)
            {
                return self.crash();
            }
            self.perform(index, action);
        }
    }

    /// Counts a passed point. Returns whether the server crashes there.
    fn passes(&mut self, point: ProtocolPoint) -> bool {
        *self.points.entry(point).or_default() += 1;
        match &mut self.dies_at {
            Some((dies_at, count)) if *dies_at == point => {
                *count -= 1;
                *count == 0
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn perform(&mut self, index: usize, action: Action) {
        let LaneHost { state, .. } = &mut self.hosts[index];
        match action {
            Action::Net(NetAction::Send { conn, frame, bulk }) => {
                let frame = state.arena.get(frame).to_vec();
                let bulk = bulk.map(|bulk| state.bufs.get(bulk)).unwrap_or_default();
                if let Some(peer) = self.peers.get_mut(&conn).filter(|peer| !peer.closed) {
                    assert_eq!(peer.lane, index, "a lane has only its own connections");
                    peer.inbox.push(ReceivedRequest { frame, bulk });
                }
            }
            Action::Net(NetAction::Connect { ticket, address }) => {
                self.dials.push((index, ticket, address));
            }
            Action::Net(NetAction::Admit { conn, writes, .. }) => {
                let peer = self.peers.get_mut(&conn).unwrap();
                (peer.admitted, peer.may_write) = (true, writes);
            }
            Action::Net(NetAction::Close { conn }) => {
                self.peers.get_mut(&conn).unwrap().closed = true;
            }
            Action::Net(NetAction::HandOver { conn, lane, hello })
            | Action::Net(NetAction::Proxy { conn, lane, hello }) => {
                let hello = state.arena.get(hello).to_vec();
                let peer = self.peers.get_mut(&conn).unwrap();
                peer.lane = usize::from(lane.0);
                if matches!(action, Action::Net(NetAction::HandOver { .. })) {
                    self.handed_over_count += 1;
                    peer.proxy = peer.lane;
                }
                let event = NetEvent::HandedOver { conn, hello: Span::default() };
                self.hosts[usize::from(lane.0)].state.deliver(Incoming::new(event, hello));
            }
            Action::Peer(PeerAction::Send { to, body }) => {
                assert_ne!(usize::from(to.0), index, "a lane sends no message to itself");
                assert!(body.bytes_count() <= interface::PEER_MESSAGE_BYTES_MAX);
                let (from, body) = (LaneId(index as u16), state.arena.get(body).to_vec());
                self.deliver(to, from, body);
            }
            Action::Recovered => {
                self.recovered_count += 1;
                if self.recovered_count == self.lane_count() {
                    self.promised = Some(self.limits.promised());
                }
            }
            Action::Point(_) => {}
            Action::Store(StoreAction::Inspect { conn, ask }) => {
                self.inspections.push((conn, Some(ask)))
            }
            Action::Store(StoreAction::InspectEnd { conn }) => self.inspections.push((conn, None)),
            Action::Store(StoreAction::HoldRows { .. }) => self.store.hold_rows(),
            Action::Store(StoreAction::ReleaseRows { has_failed, .. }) => {
                self.store.release_rows(has_failed);
            }
            Action::Release { buf } => state.bufs.release(buf),
            Action::Answer { ticket, answer } => {
                self.answers.push((ticket, state.arena.get(answer).to_vec()));
            }
            Action::Usage { ticket } => {
                state.deliver(Event::LaneTime(LaneTime { now: self.now.mono, ..LANE_TIME }));
                state.deliver(Event::Usage { ticket, usage: USAGE });
            }
            Action::Log { line, .. } => {
                self.lines.push(String::from_utf8(state.arena.get(line).to_vec()).unwrap());
            }
            Action::Stopped => state.stopped = true,
            Action::WakeAt { at } => {
                self.wake_count += 1;
                state.wake_at = Some(at);
            }
            other => self.begin(index, other),
        }
    }
}

impl TestServer {
    /// The answer of a lane to another thread of its process.
    pub(crate) fn asked(&mut self, lane: usize, question: &Question) -> Vec<u8> {
        let event = Event::Asked { ticket: Ticket(5), question: Span::default() };
        self.hosts[lane].state.deliver(Incoming::new(event, question.encode()));
        self.run();
        assert_eq!(self.answers.len(), 1, "each question has one answer");
        let (ticket, answer) = self.answers.remove(0);
        assert_eq!(ticket, Ticket(5));
        answer
    }

    /// A lane takes turns, one event each, until none is left; no action ends meanwhile.
    pub(crate) fn run_turns_only(&mut self, index: usize) {
        while !self.hosts[index].state.inbox.is_empty() {
            let later = self.hosts[index].state.inbox.split_off(1);
            self.turn(index);
            self.hosts[index].state.inbox.extend(later);
        }
    }
}
