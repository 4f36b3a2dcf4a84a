//! The server process: start from the disk, turns of its lanes, their actions, and crashes.

use crate::disk::put_sum;
use crate::due::{Due, Place};
use crate::lane_state::{Incoming, LaneState};
use crate::malicious_client::MaliciousClient;
use crate::net::{End, SentFrame};
use crate::number::{low_u8, narrow, narrow_u16, wide};
use crate::operation::Operation;
use crate::plan::{DiskBehaviour, Injection};
use crate::simulation::Simulation;
use disk::{Creation, Fault};
use interface::{
    Action, Bulk, Core, Errno, Event, LogSpace, NetAction, Object, ObjectEvent, ObjectPiece,
    ObjectStat, PeerAction, ProtocolPoint, StoreEvent, StoreSpace, Turn, Usage,
};
use lane::{Affinity, Config, Export, Lane, Limits, Restore, Share};
use std::collections::BTreeMap;
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
    space_bytes: u64,
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
    /// Which replies wait for durability in this boot.
    pub(crate) share: Share,
    /// What the store has recorded: the weakest mode since the last completed recovery.
    pub(crate) share_weakest: Share,
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
        let share_before = self.choose_share();
        let share = self.server.share;
        self.log_line(|| format!("server: boot {boot_id}, {lane_count} lanes, {share:?}"));
        for restored in restore.into_lanes(lane_count, boot_id) {
            let lane = self.server.lanes.len();
            self.disk.new_log(self.fs, boot_id, narrow_u16(lane), lane_count);
            let mut seed = [low_u8(wide(lane)); 32];
            seed[..8].copy_from_slice(&self.prng.number().to_le_bytes());
            let config = Config {
                lane: LaneId(narrow_u16(lane)),
                map: map.clone(),
                server: ServerId::FIRST,
                fs: self.fs,
                secrets: self.rotation.server_secrets,
                fs_key: lane::FsKey::new([7; 32]),
                share_before,
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
                    block_bytes: self.plan.block_bytes,
                    quiet_ms: self.plan.quiet_ms,
                    ..Limits::default()
                },
            };
            self.server.lanes.push(ServerLane {
                core: Lane::new(config, restored),
                state: LaneState::default(),
                operations: BTreeMap::new(),
                space_bytes: self.plan.log_space_bytes,
            });
            let space =
                LogSpace { space_bytes: self.plan.log_space_bytes, awaits_checkpoint: false };
            self.server.up = true;
            self.deliver(
                Place::Server(lane),
                Incoming::Plain(Event::Store(StoreEvent::LogSpace(space))),
            );
        }
    }

    /// Applies the logs to the rows, and loads the rows into memory.
    fn restore(&mut self, shards: ShardCounts) -> Result<Restore, Fault> {
        let made = Creation { layout: self.plan.layout(), ..CREATION };
        self.row_store.begin(made)?;
        for log in self.disk.logs() {
            self.row_store.redo(log)?;
        }
        self.check_sums();
        self.row_store.restore(shards, made, self.plan.meta_memory_bytes)
    }

    /// The applier applies the next batch.
    pub(crate) fn apply_next_batch(&mut self) {
        let Some(advanced) = self.row_store.advance() else { return };
        match advanced {
            Ok((lane, applied)) => {
                for (shard, lsn, transno) in applied {
                    let event = Event::Store(StoreEvent::Checkpointed { shard, lsn, transno });
                    self.deliver(Place::Server(lane), Incoming::Plain(event));
                }
            }
            Err(fault) => self.violates(format!("the applier fails: {fault:?}")),
        }
    }

    /// Chooses the mode of this boot; returns the weakest mode of the boots before.
    fn choose_share(&mut self) -> Share {
        let modes = [Share::Off, Share::Write, Share::Strict];
        let first = self.server.boot_id == 1;
        self.server.share = if self.plan.share_changes {
            self.prng.pick(&modes).unwrap_or_default()
        } else {
            self.plan.share
        };
        let weakest = if first { self.server.share } else { self.server.share_weakest };
        let before = weakest.min(self.server.share);
        self.server.share_weakest = before;
        self.server.recovered_count = 0;
        before
    }

    /// A lane's recovery is complete. When all are, only this boot's mode counts.
    fn on_recovered(&mut self, lane: usize) {
        self.log_line(|| format!("server lane {lane}: recovered"));
        self.server.recovered_count += 1;
        if self.server.recovered_count == self.server.lanes.len() {
            self.server.share_weakest = self.server.share;
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
        for action in actions {
            if !self.server.up {
                return;
            }
            self.on_server_action(lane, action);
        }
    }

    pub(crate) fn server_bulk(&mut self, lane: usize, bulk: Bulk) -> Option<Vec<u8>> {
        let bytes = self.server.lanes.get(lane)?.state.bufs.get(bulk);
        if bytes.is_none() {
            self.violates(format!("server lane {lane}: a buffer is used after its release"));
        }
        bytes
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
            Action::Store(action) => {
                let operation = self.store_operation(lane, action);
                self.start_operation(lane, operation);
            }
            Action::Object(action) => {
                let operation = self.object_operation(lane, action);
                self.start_operation(lane, operation);
            }
            Action::Usage { ticket } => {
                self.start_operation(lane, Some(Operation::Usage { ticket }))
            }
            Action::Release { buf } => {
                if !sim_lane.state.bufs.release(buf) {
                    self.violates(format!("server lane {lane}: a buffer is released twice"));
                }
            }
            Action::Retain { as_buf, bulk } => {
                if !sim_lane.state.bufs.retain(as_buf, bulk) {
                    self.violates(format!("server lane {lane}: a buffer cannot be retained"));
                }
            }
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
            Action::ReadSecrets | Action::Kernel(_) | Action::Peer(PeerAction::Message { .. }) => {
                self.violates(format!("a server must not ask for this: {action:?}"));
            }
        }
    }

    fn on_server_net_action(&mut self, lane: usize, action: NetAction) {
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return };
        match action {
            NetAction::Send { conn, frame, bulk } => {
                let frame = sim_lane.state.arena.get(frame).to_vec();
                let bulk = bulk.and_then(|bulk| self.server_bulk(lane, bulk));
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
                self.deliver(Place::Server(to), Incoming::HandedOver { conn, hello });
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

    /// Completes an operation.
    pub(crate) fn complete_operation(&mut self, lane: usize, life: u64, operation_no: u64) {
        if life != self.server.life {
            return;
        }
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return };
        let Some(operation) = sim_lane.operations.remove(&operation_no) else { return };
        let failed = self.disk_fails(lane, &operation);
        let result = if failed { Err(EIO) } else { Ok(()) };
        let incoming = match operation {
            Operation::Log { ticket, batch } => Incoming::Plain(Event::Store(StoreEvent::Logged {
                ticket,
                result: self.append(lane, &batch, failed),
            })),
            Operation::Read { ticket, object, only_cached: true, .. }
                if !failed && self.misses_cache(object) =>
            {
                Incoming::Plain(Event::Object(ObjectEvent::Uncached { ticket }))
            }
            Operation::ReadList { ticket, object, ref pieces, only_cached: true }
                if !failed && self.misses_any(object, pieces) =>
            {
                Incoming::Plain(Event::Object(ObjectEvent::Uncached { ticket }))
            }
            Operation::Read { ticket, object, from, count, .. } => {
                self.disk.load_into_cache(object);
                let bytes = self.disk.read(object, from, count);
                Incoming::Read { ticket, result: result.map(|()| bytes) }
            }
            Operation::ReadList { ticket, object, pieces, .. } => {
                let mut bytes = Vec::new();
                for ObjectPiece { stripe_index, object_offset, piece_bytes } in pieces {
                    let object = Object { stripe_index, ..object };
                    self.disk.load_into_cache(object);
                    let count = narrow(u64::from(piece_bytes));
                    let mut read = self.disk.read(object, narrow(object_offset), count);
                    read.resize(count, 0);
                    bytes.append(&mut read);
                }
                Incoming::Read { ticket, result: result.map(|()| bytes) }
            }
            Operation::Sums { ticket, object, ranges } => {
                let from_disk = self.disk.load_into_cache(object);
                let mut sums = Vec::new();
                for (from, count) in ranges {
                    put_sum(&mut sums, &self.disk.read(object, from, count));
                }
                Incoming::Sums { ticket, result: result.map(|()| sums), from_disk }
            }
            Operation::Patch { ticket, object, patch, block_bytes } => {
                // A write to a block in part trusts the rest, which was compared before the bit
                // flipped.
                if self.rotten_since.contains(&object) {
                    self.unprotected.insert(object.inode);
                }
                let patch = if failed { patch.half_done(&mut self.prng) } else { Some(patch) };
                let mut sums = Vec::new();
                if let Some(patch) = patch {
                    sums = patch.sums(block_bytes);
                    self.disk.patch(object, patch);
                }
                match block_bytes {
                    0 => Incoming::Plain(Event::Object(ObjectEvent::Done { ticket, result })),
                    _ => Incoming::Written { ticket, result: result.map(|()| sums) },
                }
            }
            Operation::Sync { ticket, object, patch_no } => {
                match (failed, self.plan.injection) {
                    (true, _) => self.disk.sync_failed(object, patch_no),
                    (false, Some(Injection::LostSync)) => {}
                    (false, _) => self.disk.sync(object, patch_no),
                }
                Incoming::Plain(Event::Object(ObjectEvent::Done { ticket, result }))
            }
            Operation::Stat { ticket, object } => {
                let stat = self.disk.size(object).map(|size| ObjectStat {
                    size_bytes: wide(size),
                    allocated_bytes: wide(size.next_multiple_of(4096)),
                });
                Incoming::Plain(Event::Object(ObjectEvent::Stat {
                    ticket,
                    result: result.map(|()| stat),
                }))
            }
            Operation::Seek { ticket, object, from, hole } => {
                let found = self.disk.seek(object, from, hole).map(wide);
                Incoming::Plain(Event::Object(ObjectEvent::Sought {
                    ticket,
                    result: result.map(|()| found),
                }))
            }
            Operation::Remove { ticket, object } => {
                if !failed {
                    self.disk.remove(object);
                }
                Incoming::Plain(Event::Object(ObjectEvent::Done { ticket, result }))
            }
            Operation::Space { ticket } => {
                let (total_bytes, free_bytes) = (1 << 40, 1 << 39);
                let space = StoreSpace {
                    total_bytes,
                    free_bytes,
                    available_bytes: free_bytes,
                    available_file_count: None,
                };
                Incoming::Plain(Event::Store(StoreEvent::Space {
                    ticket,
                    result: result.map(|()| space),
                }))
            }
            Operation::ReadRows { ticket, from, until, row_count_max } => {
                let row_count_max = narrow(u64::from(row_count_max));
                let rows = self.row_store.read(&from, &until, row_count_max);
                Incoming::Rows { ticket, result: result.map(|()| rows) }
            }
            Operation::Usage { ticket } => {
                Incoming::Plain(Event::Usage { ticket, usage: Usage::default() })
            }
        };
        self.deliver(Place::Server(lane), incoming);
    }

    /// Appends a batch to the log. A failed append may have written the whole batch.
    fn append(&mut self, lane: usize, batch: &[u8], failed: bool) -> Result<LogSpace, Errno> {
        let boot_id = self.server.boot_id;
        if failed {
            if self.disk.crash_append((boot_id, narrow_u16(lane)), batch, &mut self.prng) {
                self.record_durable(batch);
            }
            return Err(EIO);
        }
        self.disk.append(boot_id, narrow_u16(lane), batch);
        self.log_line(|| crate::tap::describe(batch));
        self.record_durable(batch);
        if self.plan.applies {
            self.row_store.behind.push_back((lane, batch.to_vec()));
            self.schedule_in(self.plan.speeds.restart_ns, Due::ApplyBatch);
        }
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return Err(EIO) };
        sim_lane.space_bytes = sim_lane.space_bytes.saturating_sub(wide(batch.len()));
        Ok(LogSpace { space_bytes: sim_lane.space_bytes, awaits_checkpoint: false })
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
        self.crash_count += 1;
        let boot_id = self.server.boot_id;
        self.server.life += 1;
        let lanes = std::mem::take(&mut self.server.lanes);
        for (lane, sim_lane) in lanes.into_iter().enumerate() {
            for operation in sim_lane.operations.into_values() {
                self.crash_operation((boot_id, narrow_u16(lane)), operation);
            }
        }
        self.disk.crash_objects(&mut self.prng);
        self.lose_durable_batches();
        self.row_store.behind.clear();
        let conns: Vec<_> = self.conns.keys().copied().collect();
        for conn in conns {
            let ours = self.conns.get(&conn).is_some_and(|conn| !conn.up.closed);
            if ours {
                self.end_died(conn, End::Server);
            }
        }
        self.schedule_in(self.plan.speeds.restart_ns, Due::StartServer);
    }

    fn crash_operation(&mut self, log: (u64, u16), operation: Operation) {
        match operation {
            Operation::Log { batch, .. } => {
                if self.disk.crash_append(log, &batch, &mut self.prng) {
                    self.record_durable(&batch);
                }
            }
            Operation::Patch { object, patch, .. } if self.prng.one_in(2) => {
                self.disk.patch(object, patch);
            }
            Operation::Remove { object, .. } if self.prng.one_in(2) => self.disk.remove(object),
            Operation::Patch { .. }
            | Operation::Remove { .. }
            | Operation::Read { .. }
            | Operation::ReadList { .. }
            | Operation::Sync { .. }
            | Operation::Sums { .. }
            | Operation::Stat { .. }
            | Operation::Seek { .. }
            | Operation::Space { .. }
            | Operation::ReadRows { .. }
            | Operation::Usage { .. } => {}
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
