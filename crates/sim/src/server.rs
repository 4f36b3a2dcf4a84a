//! The server process: start from the disk, turns of its lanes, their actions, and crashes.

use crate::due::{Due, Place};
use crate::malicious_client::MaliciousClient;
use crate::net::{End, SentFrame};
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
use test_runtime::{Incoming, LaneState, LogId, Operation};
use wire::{LaneId, Layout, Map, ServerId, ShardCounts, Term};

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

/// The server process.
#[derive(Default)]
pub(crate) struct Server {
    pub(crate) up: bool,
    /// Counts processes.
    pub(crate) life: u64,
    pub(crate) boot_id: u64,
    pub(crate) lanes: Vec<ServerLane>,
    pub(crate) operation_count: u64,
    /// What this boot promises.
    promises: Option<Promised>,
    /// What the store has recorded: what was promised since the last completed recovery.
    promised: Option<Promised>,
    recovered_count: usize,
}

impl Simulation {
    /// Starts a server from the durable state, as `store` and `serve` do.
    pub(crate) fn start_server(&mut self) {
        if self.server.up {
            return;
        }
        let lane_count =
            narrow_u16(narrow(1 + self.prng.number() % self.plan.server_lane_count_max));
        self.server.life += 1;
        self.server.boot_id += 1;
        let boot_id = self.server.boot_id;
        let shards =
            ShardCounts { meta: self.plan.meta_shard_count, data: self.plan.data_shard_count };
        let map = Map::single_server(lane_count, shards, Term::of_boot(boot_id));
        let restore = match self.restore(shards) {
            Ok(restore) => restore,
            Err(fault) => {
                return self.violates(format!("I17: boot {boot_id} cannot start: {fault:?}"));
            }
        };
        let promises = self.choose_promises();
        let promised = self.server.promised.map_or(promises, |before| before.and(promises));
        (self.server.promises, self.server.promised) = (Some(promises), Some(promised));
        let Promised { share, lease_term_ms } = promises;
        self.log_line(|| format!("server: boot {boot_id}, {lane_count} lanes, {share:?}"));
        for restored in restore.into_lanes(lane_count, boot_id) {
            let lane = self.server.lanes.len();
            let space =
                LogSpace { space_bytes: self.plan.log_space_bytes, awaits_checkpoint: false };
            self.store.new_log((boot_id, narrow_u16(lane)), self.fs, lane_count, space);
            let mut seed = [low_u8(wide(lane)); 32];
            seed[..8].copy_from_slice(&self.prng.number().to_le_bytes());
            let config = Config {
                lane: LaneId(narrow_u16(lane)),
                map: map.clone(),
                server: ServerId::FIRST,
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
                    logged_bytes_max: self.plan.logged_bytes_max,
                    page_bytes: self.plan.page_bytes,
                    block_bytes: self.plan.block_bytes,
                    quiet_ms: self.plan.quiet_ms,
                    lease_term_ms,
                    ..Limits::default()
                },
            };
            self.server.lanes.push(ServerLane {
                core: Lane::new(config, restored),
                state: LaneState::default(),
                operations: BTreeMap::new(),
            });
            self.server.up = true;
            self.deliver(Place::Server(lane), StoreEvent::LogSpace(space));
        }
    }

    /// Applies the logs to the rows, and loads the rows into memory.
    fn restore(&mut self, shards: ShardCounts) -> Result<Restore, Fault> {
        let made = Creation { layout: self.plan.layout(), ..CREATION };
        self.store.rows.begin(made)?;
        self.store.redo(crate::rules::of_run(self.plan.injection))?;
        self.check_sums();
        let mut restore = Restore::new(shards, made);
        if let Some(bytes_max) = self.plan.meta_memory_bytes {
            restore.bound(bytes_max);
        }
        restore.load(|range, take| self.store.rows.each(range, take))
    }

    /// The applier applies the next batch.
    pub(crate) fn apply_next_batch(&mut self) {
        let Some(advanced) = self.store.advance(crate::rules::of_run(self.plan.injection)) else {
            return;
        };
        match advanced {
            Ok((lane, applied)) => {
                for (shard, lsn, transno) in applied {
                    let event = StoreEvent::Checkpointed { shard, lsn, transno };
                    self.deliver(Place::Server(lane), event);
                }
            }
            Err(fault) => self.violates(format!("the applier fails: {fault:?}")),
        }
    }

    /// Chooses what this boot promises.
    fn choose_promises(&mut self) -> Promised {
        self.server.recovered_count = 0;
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
    fn on_recovered(&mut self, lane: usize) {
        self.log_line(|| format!("server lane {lane}: recovered"));
        self.server.recovered_count += 1;
        if self.server.recovered_count == self.server.lanes.len() {
            self.server.promised = self.server.promises;
        }
    }

    /// A lane of the server takes a turn.
    pub(crate) fn server_turn(&mut self, lane: usize, events: Vec<Event>) {
        let now = self.now();
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return };
        let mut actions = Vec::new();
        let mut turn = Turn { now, arena: &mut sim_lane.state.arena, actions: &mut actions };
        for event in events {
            sim_lane.core.apply(&mut turn, event);
        }
        sim_lane.core.settle(&mut turn);
        self.see_taken_leases(lane);
        for action in actions {
            if !self.server.up {
                return;
            }
            self.on_server_action(lane, action);
        }
    }

    fn on_server_action(&mut self, lane: usize, action: Action) {
        let place = Place::Server(lane);
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return };
        match action {
            Action::Net(action) => self.on_server_net_action(lane, action),
            Action::Peer(PeerAction::Send { to, body }) => {
                let body = sim_lane.state.arena.get(body).to_vec();
                let from = LaneId(narrow_u16(lane));
                self.send_to_peer(usize::from(to.0), from, body);
            }
            Action::Store(StoreAction::Inspect { .. } | StoreAction::InspectEnd { .. }) => {
                self.violates(format!("no client of a run inspects: {action:?}"));
            }
            Action::Store(_) | Action::Object(_) => self.start_operation(lane, action),
            Action::Usage { ticket } => {
                self.deliver(place, Event::Usage { ticket, usage: Usage::default() })
            }
            Action::Release { buf } => sim_lane.state.bufs.release(buf),
            Action::Retain { as_buf, bulk } => sim_lane.state.bufs.retain(as_buf, bulk),
            Action::WakeAt { at } => self.schedule_wake(place, at),
            Action::Log { level, line } => {
                let line = String::from_utf8_lossy(sim_lane.state.arena.get(line)).into_owned();
                self.log_line(|| format!("server logs {level:?}: {line}"));
                let lies = self.plan.faults.disk == DiskBehaviour::Lying;
                let flipped = self.flipped.keys().any(|object| line.contains(&object.to_string()));
                if line.starts_with("contents are damaged") && !lies && !flipped {
                    self.violates(format!("server lane {lane}: {line}"));
                }
            }
            Action::Stopped => sim_lane.state.stopped = true,
            Action::Recovered => self.on_recovered(lane),
            Action::Point(point) => self.on_point(lane, point),
            Action::ReadSecrets
            | Action::Answer { .. }
            | Action::Kernel(_)
            | Action::Peer(PeerAction::Message { .. }) => {
                self.violates(format!("a server must not ask for this: {action:?}"));
            }
        }
    }

    fn on_server_net_action(&mut self, lane: usize, action: NetAction) {
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return };
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
                self.send(conn, End::Client, SentFrame { frame, bulk });
            }
            NetAction::Admit { .. } => {}
            NetAction::Close { conn } if MaliciousClient::has(conn) => {
                self.move_malicious_conn(conn, None)
            }
            NetAction::Close { conn } => self.close(conn, End::Server),
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
                self.deliver(Place::Server(to), Incoming::new(event, hello));
            }
            NetAction::Connect { .. } => {
                self.violates(format!("a server must not ask for this: {action:?}"));
            }
        }
    }

    /// A lane passes a marked point: the process may crash there.
    fn on_point(&mut self, lane: usize, point: ProtocolPoint) {
        self.log_line(|| format!("server lane {lane}: {point:?}"));
        if !self.faults_stopped && self.prng.per_mille(self.plan.faults.point_per_mille) {
            self.crash_server();
        }
    }

    /// Starts an operation.
    fn start_operation(&mut self, lane: usize, action: Action) {
        let log = (self.server.boot_id, narrow_u16(lane));
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return };
        let operation = Operation::of(action, log, &sim_lane.state, self.store.patch_count());
        let is_log = operation.is_log();
        if is_log && sim_lane.operations.values().any(Operation::is_log) {
            return self.violates(format!("server lane {lane}: two appends at a time"));
        }
        let (speeds, life) = (&self.plan.speeds, self.server.life);
        let delay_ns = self.prng.span_ns(if is_log { speeds.log_ns } else { speeds.object_ns });
        self.server.operation_count += 1;
        let operation_no = self.server.operation_count;
        sim_lane.operations.insert(operation_no, operation);
        self.schedule_at(self.now_ns + delay_ns, Due::Complete { lane, life, operation_no });
    }

    /// Completes an operation.
    pub(crate) fn complete_operation(&mut self, lane: usize, life: u64, operation_no: u64) {
        if life != self.server.life {
            return;
        }
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return };
        let Some(operation) = sim_lane.operations.remove(&operation_no) else { return };
        let failed = self.disk_fails(lane, &operation);
        let result = if failed { Err(EIO) } else { Ok(()) };
        let place = Place::Server(lane);
        match &operation {
            Operation::Log { log, batch, .. } => self.on_append(lane, *log, batch, failed),
            Operation::Read { ticket, object, only_cached: true, .. }
                if !failed && self.misses_cache(*object) =>
            {
                return self.deliver(place, ObjectEvent::Uncached { ticket: *ticket });
            }
            Operation::ReadList { ticket, object, pieces, only_cached: true }
                if !failed && self.misses_any(*object, pieces) =>
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
                    self.store.patch(*object, patch);
                }
            }
            Operation::Sync { object, patch_no, .. } if failed => {
                self.store.sync_failed(*object, *patch_no);
            }
            Operation::Sync { ticket, .. } if self.plan.injection == Some(Injection::LostSync) => {
                return self.deliver(place, ObjectEvent::Done { ticket: *ticket, result });
            }
            _ => {}
        }
        let incoming = self.store.complete(operation, result);
        self.deliver(place, incoming);
    }

    /// A batch is about to be in its log. A failed append may have written the whole batch.
    fn on_append(&mut self, lane: usize, log: LogId, batch: &[u8], failed: bool) {
        if failed {
            if self.store.tear_append(log, batch, &mut self.prng) {
                self.record_durable(batch);
            }
            return;
        }
        self.log_line(|| crate::tap::describe(batch));
        self.record_durable(batch);
        if self.plan.applies {
            self.store.rows.behind.push_back((lane, batch.to_vec()));
            self.schedule_in(self.plan.speeds.restart_ns, Due::ApplyBatch);
        }
    }

    fn record_durable(&mut self, batch: &[u8]) {
        self.tap.on_durable(batch);
        self.lying_disk.on_durable(batch);
    }

    /// The server process crashes and loses everything that is not durable.
    pub(crate) fn crash_server(&mut self) {
        if !std::mem::replace(&mut self.server.up, false) {
            return;
        }
        self.log_line(|| "server: crash".to_owned());
        self.drop_malicious_conns();
        self.shown.forget_attributes();
        self.crash_count += 1;
        self.server.life += 1;
        for sim_lane in std::mem::take(&mut self.server.lanes) {
            for operation in sim_lane.operations.into_values() {
                if let Some(batch) = self.store.interrupt(operation, &mut self.prng) {
                    self.record_durable(&batch);
                }
            }
        }
        self.store.crash(&mut self.prng);
        self.lose_durable_batches();
        self.store.rows.behind.clear();
        let conns: Vec<_> = self.conns.keys().copied().collect();
        for conn in conns {
            let ours = self.conns.get(&conn).is_some_and(|conn| !conn.up.closed);
            if ours {
                self.end_died(conn, End::Server);
            }
        }
        self.schedule_in(self.plan.speeds.restart_ns, Due::StartServer);
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
