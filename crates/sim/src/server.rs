//! Server processes: start from the disk, turns of their lanes, their actions, and crashes.

use crate::bytes::PAGE_BYTES;
use crate::cluster::{id_of, server_at};
use crate::due::{Due, End, Place, ServerLaneId};
use crate::early::EarlyModes;
use crate::early_names::EarlyNames;
use crate::malicious_client::MaliciousClient;
use crate::net::SentFrame;
use crate::number::{low_u8, narrow, narrow_u16, wide};
use crate::plan::{DiskBehaviour, Injection};
use crate::simulation::Simulation;
use disk::{Creation, Fault};
use interface::{
    Action, Core, Errno, Event, LogSpace, NetAction, NetEvent, ObjectEvent, PeerAction,
    ProtocolPoint, Span, StoreAction, StoreEvent, Turn, Usage,
};
use lane::{Affinity, Config, Export, Lane, Limits, Promised, Restore, Share};
use std::collections::BTreeMap;
use test_runtime::{Incoming, LaneState, LogId, Operation, Store};
use wire::{LaneId, Layout, Map};

const CREATION: Creation = Creation {
    at_ns: 1_600_000_000_000_000_000,
    uid: 0,
    gid: 0,
    mode: 0o755,
    layout: Layout::DEFAULT,
};
const EIO: Errno = Errno(5);

/// The core of a server lane and its simulated surroundings.
pub(crate) struct ServerLane {
    pub(crate) core: Lane,
    pub(crate) state: LaneState,
    pub(crate) operations: BTreeMap<u64, Operation>,
}

/// A server: its store, and the process.
pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) up: bool,
    /// Counts processes.
    pub(crate) life: u64,
    pub(crate) boot_id: u64,
    /// Lanes of the last start.
    pub(crate) lane_count: u16,
    pub(crate) lanes: Vec<ServerLane>,
    pub(crate) operation_count: u64,
    /// What this boot promises.
    promises: Option<Promised>,
    /// What the store has recorded: what was promised since the last completed recovery.
    promised: Option<Promised>,
    recovered_count: usize,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            store: Store::new(narrow(PAGE_BYTES)),
            up: false,
            life: 0,
            boot_id: 0,
            lane_count: 0,
            lanes: Vec::new(),
            operation_count: 0,
            promises: None,
            promised: None,
            recovered_count: 0,
        }
    }
}

impl Simulation {
    /// Starts all servers. The first map names all of them.
    pub(crate) fn start_servers(&mut self) {
        if self.servers.len() > 1 {
            return self.begin_cluster();
        }
        self.start_server(0);
    }

    /// Starts a server, if it is down; one of several when it has begun that in the registry.
    pub(crate) fn start_server(&mut self, server: usize) {
        if self.servers[server].up || self.is_at_work(server) {
            return;
        }
        self.begin_start(server);
        if self.servers.len() > 1 {
            return self.begin_in_registry(server);
        }
        let map = self.map();
        self.launch(server, &map);
    }

    /// Servers that are down start now.
    pub(crate) fn schedule_starts(&mut self) {
        for server in 0..self.joined_count {
            self.schedule_at(self.now_ns, Due::StartServer(server));
        }
    }

    /// Another start of a server, with its number of lanes.
    pub(crate) fn begin_start(&mut self, server: usize) {
        let lane_count =
            narrow_u16(narrow(1 + self.prng.number() % self.plan.server_lane_count_max));
        let started = &mut self.servers[server];
        started.life += 1;
        started.boot_id += 1;
        started.lane_count = lane_count;
    }

    /// Starts the lanes of a server from the durable state, as `store` and `serve` do.
    pub(crate) fn launch(&mut self, server: usize, map: &Map) {
        let boot_id = self.servers[server].boot_id;
        let restore = match self.restore(server, map) {
            Ok(restore) => restore,
            Err(fault) => {
                return self.violates(format!("I17: boot {boot_id} cannot start: {fault:?}"));
            }
        };
        let promises = self.choose_promises(server);
        let started = &mut self.servers[server];
        let promised = started.promised.map_or(promises, |before| before.and(promises));
        (started.promises, started.promised) = (Some(promises), Some(promised));
        let Promised { share, lease_term_ms } = promises;
        let (id, lane_count) = (id_of(server), started.lane_count);
        self.log_line(|| format!("server {server}: boot {boot_id}, {lane_count} lanes, {share:?}"));
        for restored in restore.into_lanes_of(map, id) {
            let started = &mut self.servers[server];
            let lane = started.lanes.len();
            let space =
                LogSpace { space_bytes: self.plan.log_space_bytes, awaits_checkpoint: false };
            started.store.new_log((boot_id, narrow_u16(lane)), self.fs, lane_count, space);
            let mut seed = [low_u8(wide(lane)); 32];
            seed[..8].copy_from_slice(&self.prng.number().to_le_bytes());
            let config = Config {
                lane: LaneId(narrow_u16(lane)),
                map: map.clone(),
                server: id,
                fs: self.fs,
                secrets: self.rotation.server_secrets,
                fs_key: lane::FsKey::new([7; 32]),
                promised,
                rules: crate::rules::of_run(self.plan.injection),
                affinity: affinity_of(boot_id),
                boot_id,
                exports: vec![
                    Export { name: String::new(), root_trusted: true },
                    Export {
                        name: crate::malicious_client::EXPORT.to_owned(),
                        root_trusted: false,
                    },
                ],
                seed,
                limits: Limits {
                    slot_count: self.plan.slot_count,
                    share,
                    sync: self.plan.sync,
                    log_ms: self.plan.log_ms,
                    message_ms: self.plan.message_ms,
                    logged_bytes_max: self.plan.logged_bytes_max,
                    page_bytes: self.plan.page_bytes,
                    block_bytes: self.plan.block_bytes,
                    quiet_ms: self.plan.quiet_ms,
                    lease_term_ms,
                    ..Limits::default()
                },
            };
            let started = &mut self.servers[server];
            started.lanes.push(ServerLane {
                core: Lane::new(config, restored),
                state: LaneState::default(),
                operations: BTreeMap::new(),
            });
            started.up = true;
            self.deliver(Place::Server(server, lane), StoreEvent::LogSpace(space));
        }
    }

    /// Applies the logs to the rows, and loads the rows into memory.
    fn restore(&mut self, server: usize, map: &Map) -> Result<Restore, Fault> {
        let made = Creation { layout: self.plan.layout(), ..CREATION };
        let store = &mut self.servers[server].store;
        store.rows.begin(made)?;
        store.redo(crate::rules::of_run(self.plan.injection))?;
        self.check_sums(server);
        let mut restore = Restore::new(map.shard_counts(), made);
        if let Some(bytes_max) = self.plan.meta_memory_bytes {
            restore.bound(bytes_max);
        }
        let store = &self.servers[server].store;
        restore.load(|range, take| store.rows.each(range, take))
    }

    /// The applier applies the next batch.
    pub(crate) fn apply_next_batch(&mut self, server: usize) {
        let rules = crate::rules::of_run(self.plan.injection);
        let Some(advanced) = self.servers[server].store.advance(rules) else { return };
        match advanced {
            Ok((lane, applied)) => {
                for (shard, lsn, transno) in applied {
                    let event = StoreEvent::Checkpointed { shard, lsn, transno };
                    self.deliver(Place::Server(server, lane), event);
                }
            }
            Err(fault) => self.violates(format!("the applier fails: {fault:?}")),
        }
    }

    /// Chooses what this boot promises.
    fn choose_promises(&mut self, server: usize) -> Promised {
        self.servers[server].recovered_count = 0;
        let modes = [Share::Off, Share::Write, Share::Strict];
        let share = if self.plan.share_changes {
            self.prng.pick(&modes).unwrap_or_default()
        } else {
            self.plan.share
        };
        let lease_term_ms = if self.plan.term_changes {
            self.prng.pick(&[0, 1_000, 10_000]).unwrap_or_default()
        } else {
            self.plan.lease_term_ms
        };
        Promised { share, lease_term_ms }
    }

    /// A lane's recovery is complete. When all are, only this boot's promises count.
    fn on_recovered(&mut self, at: ServerLaneId) {
        self.log_line(|| format!("server lane {at:?}: recovered"));
        let server = &mut self.servers[at.0];
        server.recovered_count += 1;
        if server.recovered_count == server.lanes.len() {
            server.promised = server.promises;
        }
    }

    /// A lane of a server, if its process is alive.
    fn server_lane(&mut self, (server, lane): ServerLaneId) -> Option<&mut ServerLane> {
        self.servers.get_mut(server)?.lanes.get_mut(lane)
    }

    /// A lane of a server takes a turn.
    pub(crate) fn server_turn(&mut self, at: ServerLaneId, events: Vec<Event>) {
        let now = self.now();
        let Some(sim_lane) = self.server_lane(at) else { return };
        let mut actions = Vec::new();
        let mut turn = Turn { now, arena: &mut sim_lane.state.arena, actions: &mut actions };
        for event in events {
            sim_lane.core.apply(&mut turn, event);
        }
        sim_lane.core.settle(&mut turn);
        self.see_taken_leases(at);
        for action in actions {
            if !self.servers[at.0].up {
                return;
            }
            self.on_server_action(at, action);
        }
    }

    fn on_server_action(&mut self, at: ServerLaneId, action: Action) {
        let place = Place::Server(at.0, at.1);
        let Some(sim_lane) = self.server_lane(at) else { return };
        match action {
            Action::Net(action) => self.on_server_net_action(at, action),
            Action::Peer(PeerAction::Send { to, body }) => {
                let body = sim_lane.state.arena.get(body).to_vec();
                let from = LaneId(narrow_u16(at.1));
                self.send_to_peer((at.0, usize::from(to.0)), from, body);
            }
            Action::Store(StoreAction::Inspect { .. } | StoreAction::InspectEnd { .. }) => {
                self.violates(format!("no client of a run inspects: {action:?}"));
            }
            Action::Store(StoreAction::HoldRows { .. }) => self.servers[at.0].store.hold_rows(),
            Action::Store(StoreAction::ReleaseRows { has_failed, .. }) => {
                self.servers[at.0].store.release_rows(has_failed);
            }
            Action::Store(_) | Action::Object(_) => self.start_operation(at, action),
            Action::Usage { ticket } => {
                self.deliver(place, Event::Usage { ticket, usage: Usage::default() })
            }
            Action::Release { buf } => sim_lane.state.bufs.release(buf),
            Action::Retain { as_buf, bulk } => sim_lane.state.bufs.retain(as_buf, bulk),
            Action::Zeros { as_buf, bulk_bytes } => sim_lane.state.bufs.make(as_buf, bulk_bytes),
            Action::Copy { to, at, bulk } => sim_lane.state.bufs.fill((to, at), bulk),
            Action::WakeAt { at: wake_at } => self.schedule_wake(place, wake_at),
            Action::Log { level, line } => {
                let line = String::from_utf8_lossy(sim_lane.state.arena.get(line)).into_owned();
                self.log_line(|| format!("server {} logs {level:?}: {line}", at.0));
                let lies = self.plan.faults.disk == DiskBehaviour::Lying;
                let flipped = self.flipped.keys().any(|object| line.contains(&object.to_string()));
                if line.starts_with("contents are damaged") && !lies && !flipped {
                    self.violates(format!("server lane {at:?}: {line}"));
                }
            }
            Action::Stopped => sim_lane.state.stopped = true,
            Action::Recovered => self.on_recovered(at),
            Action::Point(point) => self.on_point(at, point),
            Action::ReadSecrets
            | Action::Answer { .. }
            | Action::Kernel(_)
            | Action::Peer(PeerAction::Message { .. }) => {
                self.violates(format!("a server must not ask for this: {action:?}"));
            }
        }
    }

    fn on_server_net_action(&mut self, at: ServerLaneId, action: NetAction) {
        let place = Place::Server(at.0, at.1);
        let Some(sim_lane) = self.server_lane(at) else { return };
        match action {
            NetAction::Send { conn, frame, bulk } => {
                let frame = sim_lane.state.arena.get(frame).to_vec();
                let bulk = bulk.map(|bulk| sim_lane.state.bufs.get(bulk));
                if MaliciousClient::has(conn) {
                    return self.deliver_to_malicious_client(conn, &frame);
                }
                if let Some(malicious) = &mut self.malicious {
                    malicious.eavesdrop(&frame);
                }
                self.tap.on_sent(conn, &frame);
                let to = self.end_of(conn, place).other();
                self.send(conn, to, SentFrame { frame, bulk });
            }
            NetAction::Admit { .. } => {}
            NetAction::Close { conn } if MaliciousClient::has(conn) => {
                self.move_malicious_conn(conn, None)
            }
            NetAction::Close { conn } => self.close(conn, self.end_of(conn, place)),
            // The lane that owns the socket makes no difference to this network.
            NetAction::HandOver { conn, lane: to, hello }
            | NetAction::Proxy { conn, lane: to, hello } => {
                let hello = sim_lane.state.arena.get(hello).to_vec();
                let to = usize::from(to.0);
                if let Some(known) = self.conns.get_mut(&conn) {
                    known.server_lane = to;
                }
                if MaliciousClient::has(conn) {
                    self.move_malicious_conn(conn, Some(to));
                }
                let event = NetEvent::HandedOver { conn, hello: Span::default() };
                self.deliver(Place::Server(at.0, to), Incoming::new(event, hello));
            }
            NetAction::Connect { ticket, address } => {
                let Some(to) = server_at(address) else {
                    return self.violates(format!("a server has no address: {action:?}"));
                };
                let (mean_ns, life) = (self.plan.speeds.request_ns, self.life(place));
                self.schedule_in(mean_ns, Due::Connect { by: place, life, ticket, to });
            }
        }
    }

    /// A lane passes a marked point: the process may crash there.
    fn on_point(&mut self, at: ServerLaneId, point: ProtocolPoint) {
        self.log_line(|| format!("server lane {at:?}: {point:?}"));
        if !self.faults_stopped && self.prng.per_mille(self.plan.faults.point_per_mille) {
            self.crash_server(at.0);
        }
    }

    /// Starts an operation.
    fn start_operation(&mut self, at: ServerLaneId, action: Action) {
        let server = &mut self.servers[at.0];
        let log = (server.boot_id, narrow_u16(at.1));
        let Some(sim_lane) = server.lanes.get_mut(at.1) else { return };
        let operation = Operation::of(action, log, &sim_lane.state, server.store.patch_count());
        let is_log = operation.is_log();
        if is_log && sim_lane.operations.values().any(Operation::is_log) {
            return self.violates(format!("server lane {at:?}: two appends at a time"));
        }
        let (speeds, life) = (&self.plan.speeds, server.life);
        let delay_ns = self.prng.span_ns(if is_log { speeds.log_ns } else { speeds.object_ns });
        server.operation_count += 1;
        let operation_no = server.operation_count;
        sim_lane.operations.insert(operation_no, operation);
        self.schedule_at(self.now_ns + delay_ns, Due::Complete { at, life, operation_no });
    }

    /// Completes an operation.
    pub(crate) fn complete_operation(&mut self, at: ServerLaneId, life: u64, operation_no: u64) {
        let server = at.0;
        if life != self.servers[server].life {
            return;
        }
        let Some(sim_lane) = self.server_lane(at) else { return };
        let Some(operation) = sim_lane.operations.remove(&operation_no) else { return };
        let failed = self.disk_fails(at, &operation);
        let result = if failed { Err(EIO) } else { Ok(()) };
        let place = Place::Server(at.0, at.1);
        match &operation {
            Operation::Log { log, batch, .. } => self.on_append(at, *log, batch, failed),
            Operation::Read { ticket, object, only_cached: true, .. }
                if !failed && self.misses_cache(server, *object) =>
            {
                return self.deliver(place, ObjectEvent::Uncached { ticket: *ticket });
            }
            Operation::ReadList { ticket, object, pieces, only_cached: true }
                if !failed && self.misses_any(server, *object, pieces) =>
            {
                return self.deliver(place, ObjectEvent::Uncached { ticket: *ticket });
            }
            Operation::Patch { object, patch, .. } => {
                // A write to a block in part trusts the rest, which was compared before the bit
                // flipped.
                if self.rotten_since.contains(object) {
                    self.unprotected.insert(object.inode);
                }
                if failed && let Some(patch) = patch.clone().half_done(&mut self.prng) {
                    self.servers[server].store.patch(*object, patch);
                }
            }
            Operation::Sync { object, patch_no, .. } if failed => {
                self.servers[server].store.sync_failed(*object, *patch_no);
            }
            Operation::Sync { ticket, .. } if self.plan.injection == Some(Injection::LostSync) => {
                return self.deliver(place, ObjectEvent::Done { ticket: *ticket, result });
            }
            _ => {}
        }
        let incoming = self.servers[server].store.complete(operation, result);
        self.deliver(place, incoming);
    }

    /// A batch is about to be in its log. A failed append may have written the whole batch.
    fn on_append(&mut self, at: ServerLaneId, log: LogId, batch: &[u8], failed: bool) {
        let store = &mut self.servers[at.0].store;
        if failed {
            if store.tear_append(log, batch, &mut self.prng) {
                self.record_durable(batch);
            }
            return;
        }
        if self.plan.applies {
            store.rows.behind.push_back((at.1, batch.to_vec()));
        }
        self.log_line(|| crate::tap::describe(batch));
        self.record_durable(batch);
        if self.plan.applies {
            self.schedule_in(self.plan.speeds.restart_ns, Due::ApplyBatch(at.0));
        }
    }

    fn record_durable(&mut self, batch: &[u8]) {
        self.tap.on_durable(batch);
        self.lying_disk.on_durable(batch);
    }

    /// A server process crashes and loses everything that is not durable.
    pub(crate) fn crash_server(&mut self, server: usize) {
        if !std::mem::replace(&mut self.servers[server].up, false) {
            return self.crash_starting(server);
        }
        self.log_line(|| format!("server {server}: crash"));
        self.drop_malicious_conns(server);
        self.shown.forget_attributes();
        self.early_modes = EarlyModes::default();
        self.early_names = EarlyNames::default();
        self.crash_count += 1;
        self.crashes.push((server, self.now_ns));
        self.end_in_registry(server);
        self.servers[server].life += 1;
        for sim_lane in std::mem::take(&mut self.servers[server].lanes) {
            for operation in sim_lane.operations.into_values() {
                let store = &mut self.servers[server].store;
                if let Some(batch) = store.interrupt(operation, &mut self.prng) {
                    self.record_durable(&batch);
                }
            }
        }
        self.servers[server].store.crash(&mut self.prng);
        self.lose_durable_batches(server);
        self.servers[server].store.rows.behind.clear();
        let conns: Vec<_> = self.conns.keys().copied().collect();
        for conn in conns {
            let Some(known) = self.conns.get(&conn) else { continue };
            let dialled = matches!(known.dialler, Place::Server(by, _) if by == server);
            if known.server == server && !known.up.closed {
                self.end_died(conn, End::Listener);
            } else if dialled && !known.down.closed {
                self.end_died(conn, End::Dialler);
            }
        }
        self.schedule_in(self.plan.speeds.restart_ns, Due::StartServer(server));
    }

    /// A server process that has begun a start, and no lanes yet, may crash as well.
    fn crash_starting(&mut self, server: usize) {
        if server < self.joined_count && self.is_at_work(server) && self.prng.one_in(2) {
            self.log_line(|| format!("server {server}: crash as it starts"));
            self.end_in_registry(server);
            self.servers[server].life += 1;
            self.schedule_in(self.plan.speeds.restart_ns, Due::StartServer(server));
        }
    }
}

/// Which lane owns sockets in this boot. The network delivers the same either way; the lanes act
/// differently.
const fn affinity_of(boot_id: u64) -> Affinity {
    match boot_id % 3 {
        2 => Affinity::Client,
        0 => Affinity::Random,
        _ => Affinity::Object,
    }
}
