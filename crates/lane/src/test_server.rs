//! A small runtime for tests: connections, logs and objects in memory, in-flight actions that end
//! in an order drawn from a PRNG, and crashes that lose what was not durable.
//!
//! It performs every action of a server lane and checks what would harm a real runtime: a buffer
//! released twice or never, two appends at a time. Frames to peers lie in their inboxes.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::wildcard_enum_match_arm)]

use crate::{Affinity, Config, Export, FsKey, Lane, Limits, Restore, Share};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
pub(crate) use delivery::Delivery;
use disk::{Creation, LogHeader, LogReader};
use fastrand::Rng;
use flights::{File, Flight, allocate, mac_of, write};
pub(crate) use flights::{Kind, USAGE};
use interface::{
    Action, Arena, BufId, Bulk, ConnId, Core, Errno, Event, LogSpace, Mono, NetAction, NetEvent,
    Now, Object, ObjectEvent, PeerAction, PeerEvent, ProtocolPoint, StoreAction, StoreEvent,
    Ticket, Turn,
};
use wire::{
    FsUuid, Inspect, LaneId, Layout, Map, Rules, Secret, ServerId, ShardCounts, Status, Term,
};

const AT_NS: u64 = 1_600_000_000_000_000_000;
const MADE: Creation =
    Creation { at_ns: AT_NS, uid: 0, gid: 0, mode: 0o755, layout: Layout::DEFAULT };

mod clock;
mod delivery;
mod flights;
mod proxies;
mod row_store;

/// An event that a lane has not seen yet.
#[derive(Clone, Debug)]
enum PendingEvent {
    Frame { conn: ConnId, frame: Vec<u8>, bulk: Option<Vec<u8>> },
    HandedOver { conn: ConnId, hello: Vec<u8> },
    Read { ticket: Ticket, bytes: Vec<u8> },
    Rows { ticket: Ticket, rows: Vec<u8> },
    Sums { ticket: Ticket, sums: Vec<u8> },
    Written { ticket: Ticket, result: Result<Vec<u8>, Errno> },
    Encoded { from: LaneId, body: Vec<u8> },
    Sealed { conn: ConnId, channel: wire::Channel, holder: Option<Vec<u8>> },
    Inspected { conn: ConnId, status: Status, reply: Vec<u8> },
    Plain(Event),
}

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
    closed: bool,
}

/// A lane and its part of the runtime.
struct LaneHost {
    lane: Lane,
    arena: Arena,
    log: Vec<u8>,
    flights: Vec<Flight>,
    pending_events: Vec<PendingEvent>,
    bufs: BTreeMap<u32, Vec<u8>>,
    buf_count: u32,
    space_bytes: u64,
    wake_at: Option<Mono>,
    stopped: bool,
}

/// The server: its lanes, disks and peers.
pub(crate) struct TestServer {
    pub(crate) rng: Rng,
    pub(crate) now: Now,
    pub(crate) boot_id: u64,
    /// The shards of the store.
    pub(crate) shard_counts: ShardCounts,
    /// The map of the last start.
    pub(crate) map: Map,
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
    /// The weakest sharing mode since a recovery was completed.
    pub(crate) share_before: Option<Share>,
    /// An append ends this many times more slowly than everything else.
    pub(crate) log_slowness: usize,
    /// The rules of the protocol that hold.
    pub(crate) rules: Rules,
    /// Evicted clients remembered over a start.
    pub(crate) evicted_count_max: usize,
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
    logs: Vec<Vec<u8>>,
    files: BTreeMap<Object, File>,
    row_store: Option<row_store::RowStore>,
}

const FS: FsUuid = FsUuid([7; 16]);
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
            share_before: None,
            log_slowness: 0,
            rules: Rules::default(),
            evicted_count_max: 4096,
            recovered_count: 0,
            points: BTreeMap::new(),
            dies_at: None,
            delivery: Delivery::of_seed(seed),
            hosts: Vec::new(),
            peers: BTreeMap::new(),
            conn_count: 0,
            logs: Vec::new(),
            files: BTreeMap::new(),
            row_store: None,
        }
    }

    /// A new store with a running server.
    pub(crate) fn started(seed: u64, lane_count: u16) -> Self {
        let mut server = Self::new(seed);
        server.start(lane_count);
        server
    }

    /// Starts a server on the durable state.
    pub(crate) fn start(&mut self, lane_count: u16) {
        self.boot_id += 1;
        let term = Term::of_boot(self.boot_id);
        self.map = Map::single_server(lane_count, self.shard_counts, term);
        self.recovered_count = 0;
        let share = self.limits.share;
        let share_before = self.share_before.map_or(share, |before| before.min(share));
        self.share_before = Some(share_before);
        let mut restore = self.restore_non_resident().unwrap_or_else(|| self.restore());
        restore.remember_evicted(self.evicted_count_max);
        for (index, restored) in
            restore.into_lanes(lane_count, self.boot_id).into_iter().enumerate()
        {
            let mut seed = [index as u8; 32];
            seed[0] = self.boot_id as u8;
            let lane_id = LaneId(index as u16);
            let export = |name: &str, root_trusted| Export { name: name.to_string(), root_trusted };
            let config = Config {
                lane: lane_id,
                map: self.map.clone(),
                server: ServerId::FIRST,
                fs: FS,
                secrets: self.secret.into(),
                boot_id: self.boot_id,
                exports: vec![export("own", true), export("guests", false)],
                seed,
                limits: self.limits,
                fs_key: FsKey::new([4; 32]),
                share_before,
                rules: self.rules,
                affinity: self.affinity,
            };
            let head = LogHeader::first(FS, self.boot_id, lane_id, lane_count);
            self.hosts.push(LaneHost {
                lane: Lane::new(config, restored),
                arena: Arena::new(),
                log: head.encode().to_vec(),
                flights: Vec::new(),
                pending_events: vec![PendingEvent::Plain(Event::Tick)],
                bufs: BTreeMap::new(),
                buf_count: 0,
                space_bytes: self.space_bytes,
                wake_at: None,
                stopped: false,
            });
        }
    }

    /// The lanes of the last start.
    pub(crate) fn lane_count(&self) -> u16 {
        self.map.lane_count(ServerId::FIRST).unwrap()
    }

    /// Redoes all logs.
    fn restore(&mut self) -> Restore {
        let mut restore = Restore::new(self.shard_counts, MADE);
        for log in &mut self.logs {
            let (_, mut reader) = LogReader::new(log).unwrap();
            while let Some(batch) = reader.next_batch().unwrap() {
                batch.records().for_each(|record| restore.feed(&record).unwrap());
            }
            let valid_bytes = reader.valid_bytes() as usize;
            log.truncate(valid_bytes);
        }
        restore
    }

    /// Crashes the server; all actions in flight are lost.
    pub(crate) fn crash_losing_all(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.flights.clear());
        self.crash();
    }

    /// Crashes the server: connections end, and a random part of the actions in flight takes
    /// effect.
    pub(crate) fn crash(&mut self) {
        let Self { hosts, rng, logs, files, .. } = self;
        for host in hosts.drain(..) {
            let mut log = host.log;
            for flight in host.flights {
                match flight {
                    Flight::Log { bytes, .. } => {
                        let retained = rng.usize(..bytes.len() + 1);
                        // A torn batch, a whole one without its event, or nothing.
                        let retained = if rng.usize(..2) == 0 { bytes.len() } else { retained };
                        log.extend_from_slice(&bytes[..retained]);
                    }
                    Flight::Write { object, from, bytes, .. } if rng.usize(..2) == 0 => {
                        write(files.entry(object).or_default(), from, &bytes);
                    }
                    Flight::Truncate { object, size, .. } if rng.usize(..2) == 0 => {
                        files.entry(object).or_default().seen.resize(size, 0);
                    }
                    Flight::Allocate { action, .. } if rng.usize(..2) == 0 => {
                        allocate(files, action)
                    }
                    Flight::Remove { object, .. } if rng.usize(..2) == 0 => {
                        files.remove(&object);
                    }
                    Flight::Read { .. }
                    | Flight::Sums { .. }
                    | Flight::ReadList { .. }
                    | Flight::Write { .. }
                    | Flight::Truncate { .. }
                    | Flight::Allocate { .. }
                    | Flight::Seek { .. }
                    | Flight::Sync { .. }
                    | Flight::Stat { .. }
                    | Flight::Remove { .. }
                    | Flight::Space { .. }
                    | Flight::ReadRows { .. }
                    | Flight::Usage { .. } => {}
                }
            }
            logs.push(log);
        }
        files.retain(|_, file| {
            // The kernel may have written unsynced contents back.
            let retained =
                if rng.usize(..2) == 0 { Some(file.seen.clone()) } else { file.durable.take() };
            file.seen = retained.clone().unwrap_or_default();
            file.durable.clone_from(&retained);
            retained.is_some()
        });
        self.peers.values_mut().for_each(|peer| peer.closed = true);
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
        self.hosts[peer.lane].pending_events.push(PendingEvent::Frame { conn, frame, bulk });
    }

    /// Cuts a peer's connection; frames on their way to it are lost.
    pub(crate) fn cut(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get_mut(&conn).filter(|peer| !peer.closed) else { return };
        peer.closed = true;
        peer.inbox.clear();
        let reason = interface::CloseReason::Ended;
        self.hosts[peer.lane]
            .pending_events
            .push(PendingEvent::Plain(Event::Net(NetEvent::Closed { conn, reason })));
    }

    /// Answers the last inspection request of a connection.
    pub(crate) fn inspected(&mut self, conn: ConnId, status: Status, reply: &[u8]) {
        let inspected = PendingEvent::Inspected { conn, status, reply: reply.to_vec() };
        self.hosts[self.peers[&conn].lane].pending_events.push(inspected);
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
        self.hosts[index].pending_events.push(PendingEvent::Plain(event));
    }

    pub(crate) fn is_down(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.hosts.iter().all(|host| host.stopped)
    }

    /// Sets the free log space of every lane.
    pub(crate) fn set_space(&mut self, space_bytes: u64) {
        self.space_bytes = space_bytes;
        for host in &mut self.hosts {
            host.space_bytes = space_bytes;
            host.pending_events.push(PendingEvent::Plain(Event::Store(StoreEvent::LogSpace(
                LogSpace { space_bytes, awaits_checkpoint: self.awaits_checkpoint },
            ))));
        }
    }

    /// The number of objects.
    pub(crate) fn object_count(&self) -> usize {
        self.files.len()
    }

    /// One step: an action ends or a lane takes a turn. `false`: nothing is left to do.
    pub(crate) fn step(&mut self) -> bool {
        let can: Vec<usize> = (0..self.hosts.len())
            .filter(|index| {
                let host = &self.hosts[*index];
                !host.flights.is_empty() || !host.pending_events.is_empty()
            })
            .collect();
        if can.is_empty() {
            return false;
        }
        self.now.mono.0 += 1000;
        self.now.wall_ns += 1000;
        let index = can[self.rng.usize(..can.len())];
        self.checkpoint(index);
        let host = &self.hosts[index];
        let turn = host.flights.is_empty()
            || (!host.pending_events.is_empty() && self.rng.usize(..2) == 0);
        if turn {
            self.turn(index)
        } else {
            self.land(index)
        }
        true
    }

    /// Runs until nothing is left to do.
    pub(crate) fn run(&mut self) {
        while self.step() || self.pass_redelivery() {}
        let unreleased_count: usize = self.hosts.iter().map(|host| host.bufs.len()).sum();
        assert_eq!(unreleased_count, 0, "{unreleased_count} buffers were never released");
    }

    fn turn(&mut self, index: usize) {
        let LaneHost { lane, arena, pending_events, bufs, buf_count, .. } = &mut self.hosts[index];
        arena.reset();
        let mut actions = Vec::new();
        // Some events wait for a later turn, in order.
        let count = 1 + self.rng.usize(..pending_events.len().max(1));
        let now: Vec<PendingEvent> =
            pending_events.drain(..count.min(pending_events.len())).collect();
        let mut events = Vec::new();
        let mut buffer = |bytes: Vec<u8>| {
            *buf_count += 1;
            let bulk = Bulk {
                buf: BufId(*buf_count),
                start: 0,
                bulk_bytes: bytes.len() as u32,
                crc32c: Some(wire::crc32c(&bytes)),
                mac: mac_of(&bytes),
            };
            bufs.insert(*buf_count, bytes);
            bulk
        };
        for pending in now {
            events.push(match pending {
                PendingEvent::Plain(event) => event,
                PendingEvent::Sealed { conn, channel, holder } => Event::Net(NetEvent::Sealed {
                    conn,
                    channel,
                    holder: holder.map(|bytes| arena.put(&bytes)),
                }),
                PendingEvent::HandedOver { conn, hello } => {
                    Event::Net(NetEvent::HandedOver { conn, hello: arena.put(&hello) })
                }
                PendingEvent::Frame { conn, frame, bulk } => {
                    if self.peers[&conn].closed {
                        continue;
                    }
                    Event::Net(NetEvent::Frame {
                        conn,
                        frame: arena.put(&frame),
                        bulk: bulk.map(&mut buffer),
                    })
                }
                PendingEvent::Encoded { from, body } => {
                    Event::Peer(PeerEvent::Received { from, body: arena.put(&body) })
                }
                PendingEvent::Rows { ticket, rows } => {
                    Event::Store(StoreEvent::Rows { ticket, result: Ok(arena.put(&rows)) })
                }
                PendingEvent::Sums { ticket, sums } => Event::Object(ObjectEvent::Sums {
                    ticket,
                    result: Ok(arena.put(&sums)),
                    from_disk: false,
                }),
                PendingEvent::Inspected { conn, status, reply } => {
                    Event::Store(StoreEvent::Inspected { conn, status, reply: arena.put(&reply) })
                }
                PendingEvent::Written { ticket, result } => Event::Object(ObjectEvent::Written {
                    ticket,
                    result: result.map(|sums| arena.put(&sums)),
                }),
                PendingEvent::Read { ticket, bytes } => {
                    let bulk = (!bytes.is_empty()).then(|| buffer(bytes));
                    Event::Object(ObjectEvent::Read { ticket, result: Ok(bulk) })
                }
            });
        }
        let mut turn = Turn { now: self.now, arena, actions: &mut actions };
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

    fn perform(&mut self, index: usize, action: Action) {
        let host = &mut self.hosts[index];
        match action {
            Action::Net(NetAction::Send { conn, frame, bulk }) => {
                let frame = host.arena.get(frame).to_vec();
                let bulk = bulk.map(|bulk| bulk_of(host, bulk)).unwrap_or_default();
                if let Some(peer) = self.peers.get_mut(&conn).filter(|peer| !peer.closed) {
                    assert_eq!(peer.lane, index, "a lane has only its own connections");
                    peer.inbox.push(ReceivedRequest { frame, bulk });
                }
            }
            Action::Net(NetAction::Admit { conn, .. }) => {
                self.peers.get_mut(&conn).unwrap().admitted = true;
            }
            Action::Net(NetAction::Close { conn }) => {
                self.peers.get_mut(&conn).unwrap().closed = true;
            }
            Action::Net(NetAction::HandOver { conn, lane, hello })
            | Action::Net(NetAction::Proxy { conn, lane, hello }) => {
                let hello = host.arena.get(hello).to_vec();
                let peer = self.peers.get_mut(&conn).unwrap();
                peer.lane = usize::from(lane.0);
                if matches!(action, Action::Net(NetAction::HandOver { .. })) {
                    self.handed_over_count += 1;
                    peer.proxy = peer.lane;
                }
                self.hosts[usize::from(lane.0)]
                    .pending_events
                    .push(PendingEvent::HandedOver { conn, hello });
            }
            Action::Peer(PeerAction::Send { to, body }) => {
                assert_ne!(usize::from(to.0), index, "a lane sends no message to itself");
                assert!(body.bytes_count() <= interface::PEER_MESSAGE_BYTES_MAX);
                let (from, body) = (LaneId(index as u16), host.arena.get(body).to_vec());
                self.deliver(to, from, body);
            }
            Action::Recovered => {
                self.recovered_count += 1;
                if self.recovered_count == self.lane_count() {
                    self.share_before = Some(self.limits.share);
                }
            }
            Action::Point(_) => {}
            Action::Store(StoreAction::Inspect { conn, ask }) => {
                self.inspections.push((conn, Some(ask)))
            }
            Action::Store(StoreAction::InspectEnd { conn }) => self.inspections.push((conn, None)),
            Action::Release { buf } => {
                assert!(host.bufs.remove(&buf.0).is_some(), "a buffer is released once");
            }
            Action::Log { line, .. } => {
                self.lines.push(String::from_utf8(host.arena.get(line).to_vec()).unwrap());
            }
            Action::Stopped => {
                host.stopped = true;
            }
            Action::WakeAt { at } => {
                self.wake_count += 1;
                host.wake_at = Some(at);
            }
            other => self.launch(index, other),
        }
    }
}

impl TestServer {
    /// A lane takes turns, one event each, until none is left; no action ends meanwhile.
    pub(crate) fn run_turns_only(&mut self, index: usize) {
        while !self.hosts[index].pending_events.is_empty() {
            let later = self.hosts[index].pending_events.split_off(1);
            self.turn(index);
            self.hosts[index].pending_events.extend(later);
        }
    }
}

fn bulk_of(host: &LaneHost, bulk: Bulk) -> Vec<u8> {
    let bytes = &host.bufs[&bulk.buf.0];
    bytes[bulk.start as usize..][..bulk.bulk_bytes as usize].to_vec()
}
