//! The server process: starting on what the disk has, its lanes' turns, what they ask for, and its
//! sudden end.

use crate::desk::{Coming, Desk};
use crate::disk::put_sum;
use crate::flight::Flight;
use crate::liar::Liar;
use crate::net::{End, Parcel};
use crate::number::{low_u8, narrow, narrow_u16, wide};
use crate::plan::{DiskMood, Planted};
use crate::world::{Due, Place, World};
use disk::{Creation, Fault};
use interface::{
    Action, Bulk, Core, Errno, Event, LogSpace, NetAction, ObjectEvent, ObjectStat, PeerAction,
    PeerEvent, ProtocolPoint, StoreEvent, StoreSpace, Turn, Usage,
};
use lane::{Affinity, Config, Export, Lane, Limits, Restore, Share};
use std::collections::BTreeMap;
use wire::{LaneId, Map};

const MADE: Creation = Creation { at_ns: 1_600_000_000_000_000_000, uid: 0, gid: 0, mode: 0o755 };
const EIO: Errno = Errno(5);

/// A server lane and its part of the world.
pub(crate) struct ServerSeat {
    pub(crate) core: Lane,
    pub(crate) desk: Desk,
    pub(crate) flights: BTreeMap<u64, Flight>,
    space_bytes: u64,
}

/// The server process.
#[derive(Default)]
pub(crate) struct Server {
    pub(crate) up: bool,
    /// Counts processes.
    pub(crate) life: u64,
    pub(crate) boot_id: u64,
    pub(crate) seats: Vec<ServerSeat>,
    pub(crate) flight_count: u64,
    /// Which replies wait in this boot.
    pub(crate) share: Share,
    /// What the store remembers: the weakest mode since the last recovery that was completed.
    pub(crate) share_kept: Share,
    recovered_count: usize,
}

impl World {
    /// Starts a server on what is durable, as `store` and `serve` do.
    pub(crate) fn start_server(&mut self) {
        if self.server.up {
            return;
        }
        let lane_count =
            narrow_u16(narrow(1 + self.dice.throw() % self.plan.server_lane_count_max));
        self.server.life += 1;
        self.server.boot_id += 1;
        let boot_id = self.server.boot_id;
        let map = Map {
            lane_count,
            meta_shard_count: self.plan.meta_shard_count,
            data_shard_count: self.plan.data_shard_count,
        };
        let restore = match self.restore(map) {
            Ok(restore) => restore,
            Err(fault) => {
                return self.breaks(format!("I17: boot {boot_id} cannot start: {fault:?}"));
            }
        };
        let share_before = self.choose_share();
        let share = self.server.share;
        self.tell(|| format!("server: boot {boot_id}, {lane_count} lanes, {share:?}"));
        for restored in restore.into_lanes(lane_count, boot_id) {
            let lane = self.server.seats.len();
            self.disk.new_log(self.fs, boot_id, narrow_u16(lane), lane_count);
            let mut seed = [low_u8(wide(lane)); 32];
            seed[..8].copy_from_slice(&self.dice.throw().to_le_bytes());
            let config = Config {
                lane: LaneId(narrow_u16(lane)),
                map,
                fs: self.fs,
                secrets: self.rotation.kept,
                redo_key: lane::RedoKey::new([7; 32]),
                share_before,
                rules: crate::rules::of_run(self.plan.planted),
                affinity: affinity_of(boot_id),
                boot_id,
                exports: vec![
                    Export { name: String::new(), root_trusted: true },
                    Export { name: crate::liar::EXPORT.to_owned(), root_trusted: false },
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
            self.server.seats.push(ServerSeat {
                core: Lane::new(config, restored),
                desk: Desk::default(),
                flights: BTreeMap::new(),
                space_bytes: self.plan.log_space_bytes,
            });
            let room =
                LogSpace { space_bytes: self.plan.log_space_bytes, awaits_checkpoint: false };
            self.server.up = true;
            self.bring(
                Place::Server(lane),
                Coming::Plain(Event::Store(StoreEvent::LogSpace(room))),
            );
        }
    }

    /// What the logs say goes into the rows, and these into memory.
    fn restore(&mut self, map: Map) -> Result<Restore, Fault> {
        self.cold.begin(MADE)?;
        for log in self.disk.logs() {
            self.cold.redo(log)?;
        }
        self.check_sums();
        self.cold.restore(map, MADE, self.plan.meta_memory_bytes)
    }

    /// The applier takes the next batch behind the lanes.
    pub(crate) fn advance_cold(&mut self) {
        let Some(advanced) = self.cold.advance() else { return };
        match advanced {
            Ok((lane, applied)) => {
                for (shard, lsn, transno) in applied {
                    let event = Event::Store(StoreEvent::Checkpointed { shard, lsn, transno });
                    self.bring(Place::Server(lane), Coming::Plain(event));
                }
            }
            Err(fault) => self.breaks(format!("the applier stumbles: {fault:?}")),
        }
    }

    /// The mode of this boot; what the store remembered of the boots before.
    fn choose_share(&mut self) -> Share {
        let modes = [Share::Off, Share::Write, Share::Strict];
        let first = self.server.boot_id == 1;
        self.server.share = if self.plan.share_changes {
            self.dice.pick(&modes).unwrap_or_default()
        } else {
            self.plan.share
        };
        let kept = if first { self.server.share } else { self.server.share_kept };
        let before = kept.min(self.server.share);
        self.server.share_kept = before;
        self.server.recovered_count = 0;
        before
    }

    /// A lane's recovery is over. When all are, only this boot's mode counts.
    fn on_recovered(&mut self, lane: usize) {
        self.tell(|| format!("server lane {lane}: recovered"));
        self.server.recovered_count += 1;
        if self.server.recovered_count == self.server.seats.len() {
            self.server.share_kept = self.server.share;
        }
    }

    /// A lane of the server takes a turn.
    pub(crate) fn server_turn(&mut self, lane: usize, events: Vec<Event>) {
        let now = self.now();
        let Some(seat) = self.server.seats.get_mut(lane) else { return };
        let mut actions = Vec::new();
        let mut turn = Turn { now, arena: &mut seat.desk.arena, actions: &mut actions };
        for event in events {
            seat.core.apply(&mut turn, event);
        }
        seat.core.settle(&mut turn);
        for action in actions {
            if !self.server.up {
                return;
            }
            self.server_acts(lane, action);
        }
    }

    pub(crate) fn server_bulk(&mut self, lane: usize, bulk: Bulk) -> Option<Vec<u8>> {
        let bytes = self.server.seats.get(lane)?.desk.bufs.get(bulk);
        if bytes.is_none() {
            self.breaks(format!("server lane {lane}: a buffer is used after its release"));
        }
        bytes
    }

    fn server_acts(&mut self, lane: usize, action: Action) {
        let place = Place::Server(lane);
        let Some(seat) = self.server.seats.get_mut(lane) else { return };
        match action {
            Action::Net(action) => self.server_acts_on_net(lane, action),
            Action::Peer(PeerAction::Message { to, message }) => {
                let from = LaneId(narrow_u16(lane));
                let event = Event::Peer(PeerEvent::Message { from, message });
                self.bring(Place::Server(usize::from(to.0)), Coming::Plain(event));
            }
            Action::Peer(PeerAction::Encoded { to, body }) => {
                let body = seat.desk.arena.get(body).to_vec();
                let from = LaneId(narrow_u16(lane));
                let to = Place::Server(usize::from(to.0));
                self.bring(to, Coming::Letter { from, body });
            }
            Action::Store(action) => {
                let flight = self.store_flight(lane, action);
                self.launch(lane, flight);
            }
            Action::Object(action) => {
                let flight = self.object_flight(lane, action);
                self.launch(lane, flight);
            }
            Action::Usage { ticket } => self.launch(lane, Some(Flight::Usage { ticket })),
            Action::Release { buf } => {
                if !seat.desk.bufs.release(buf) {
                    self.breaks(format!("server lane {lane}: a buffer is released twice"));
                }
            }
            Action::Retain { as_buf, bulk } => {
                if !seat.desk.bufs.keep(as_buf, bulk) {
                    self.breaks(format!("server lane {lane}: a buffer cannot be kept"));
                }
            }
            Action::WakeAt { at } => self.ask_wake(place, at),
            Action::Log { level, line } => {
                let line = String::from_utf8_lossy(seat.desk.arena.get(line)).into_owned();
                self.tell(|| format!("server says {level:?}: {line}"));
                let lies = self.plan.faults.disk == DiskMood::Lying;
                let rotten = self.rotten.keys().any(|object| line.contains(&object.to_string()));
                if line.starts_with("contents are damaged") && !lies && !rotten {
                    self.breaks(format!("server lane {lane}: {line}"));
                }
            }
            Action::Stopped => seat.desk.stopped = true,
            Action::Recovered => self.on_recovered(lane),
            Action::Point(point) => self.pass(lane, point),
            Action::ReadSecrets | Action::Kernel(_) => {
                self.breaks(format!("a server does not do this: {action:?}"));
            }
        }
    }

    fn server_acts_on_net(&mut self, lane: usize, action: NetAction) {
        let Some(seat) = self.server.seats.get_mut(lane) else { return };
        match action {
            NetAction::Send { conn, frame, bulk } => {
                let frame = seat.desk.arena.get(frame).to_vec();
                let bulk = bulk.and_then(|bulk| self.server_bulk(lane, bulk));
                if Liar::has(conn) {
                    return self.liar_hears(conn, &frame);
                }
                if let Some(liar) = &mut self.liar {
                    liar.overhears(&frame);
                }
                self.tap.on_sent(conn, &frame);
                self.send(conn, End::Client, Parcel { frame, bulk });
            }
            NetAction::Admit { .. } => {}
            NetAction::Close { conn } if Liar::has(conn) => self.liar_moves(conn, None),
            NetAction::Close { conn } => self.close(conn, End::Server),
            // Who has the socket makes no difference here.
            NetAction::HandOver { conn, lane: to, hello }
            | NetAction::Proxy { conn, lane: to, hello } => {
                let hello = seat.desk.arena.get(hello).to_vec();
                let to = usize::from(to.0);
                if let Some(known) = self.conns.get_mut(&conn) {
                    known.server_lane = to;
                }
                if Liar::has(conn) {
                    self.liar_moves(conn, Some(to));
                }
                self.bring(Place::Server(to), Coming::Adopted { conn, hello });
            }
            NetAction::Connect { .. } => {
                self.breaks(format!("a server does not do this: {action:?}"));
            }
        }
    }

    /// The lane passes a delicate place: the process may end right there.
    fn pass(&mut self, lane: usize, point: ProtocolPoint) {
        self.tell(|| format!("server lane {lane}: {point:?}"));
        if !self.calm && self.dice.per_mille(self.plan.faults.point_per_mille) {
            self.crash_server();
        }
    }

    /// An action ends.
    pub(crate) fn land(&mut self, lane: usize, life: u64, flight_no: u64) {
        if life != self.server.life {
            return;
        }
        let Some(seat) = self.server.seats.get_mut(lane) else { return };
        let Some(flight) = seat.flights.remove(&flight_no) else { return };
        let failed = self.disk_fails(lane, &flight);
        let result = if failed { Err(EIO) } else { Ok(()) };
        let coming = match flight {
            Flight::Log { ticket, batch } => Coming::Plain(Event::Store(StoreEvent::Logged {
                ticket,
                result: self.append(lane, &batch, failed),
            })),
            Flight::Read { ticket, object, only_cached: true, .. }
            | Flight::ReadList { ticket, object, only_cached: true, .. }
                if !failed && self.misses(object) =>
            {
                Coming::Plain(Event::Object(ObjectEvent::Uncached { ticket }))
            }
            Flight::Read { ticket, object, from, count, .. } => {
                self.disk.bring(object);
                let bytes = self.disk.read(object, from, count);
                Coming::Read { ticket, result: result.map(|()| bytes) }
            }
            Flight::ReadList { ticket, object, pieces, .. } => {
                self.disk.bring(object);
                let mut bytes = Vec::new();
                for piece in pieces.iter() {
                    let count = narrow(u64::from(piece.piece_bytes));
                    let mut read = self.disk.read(object, narrow(piece.file_offset), count);
                    read.resize(count, 0);
                    bytes.append(&mut read);
                }
                Coming::Read { ticket, result: result.map(|()| bytes) }
            }
            Flight::Sums { ticket, object, ranges } => {
                let from_disk = self.disk.bring(object);
                let mut sums = Vec::new();
                for (from, count) in ranges {
                    put_sum(&mut sums, &self.disk.read(object, from, count));
                }
                Coming::Sums { ticket, result: result.map(|()| sums), from_disk }
            }
            Flight::Patch { ticket, object, patch, block_bytes } => {
                // Of what was compared before the disk rotted, the rest of a block is taken for good.
                if self.rotten_since.contains(&object) {
                    self.unprotected.insert(object.inode);
                }
                let patch = if failed { patch.half_done(&mut self.dice) } else { Some(patch) };
                let mut sums = Vec::new();
                if let Some(patch) = patch {
                    sums = patch.sums(block_bytes);
                    self.disk.patch(object, patch);
                }
                match block_bytes {
                    0 => Coming::Plain(Event::Object(ObjectEvent::Done { ticket, result })),
                    _ => Coming::Written { ticket, result: result.map(|()| sums) },
                }
            }
            Flight::Sync { ticket, object, patch_no } => {
                match (failed, self.plan.planted) {
                    (true, _) => self.disk.sync_failed(object, patch_no),
                    (false, Some(Planted::LostSync)) => {}
                    (false, _) => self.disk.sync(object, patch_no),
                }
                Coming::Plain(Event::Object(ObjectEvent::Done { ticket, result }))
            }
            Flight::Stat { ticket, object } => {
                let stat = self.disk.size(object).map(|size| ObjectStat {
                    size_bytes: wide(size),
                    allocated_bytes: wide(size.next_multiple_of(4096)),
                });
                Coming::Plain(Event::Object(ObjectEvent::Stat {
                    ticket,
                    result: result.map(|()| stat),
                }))
            }
            Flight::Seek { ticket, object, from, hole } => {
                let found = self.disk.seek(object, from, hole).map(wide);
                Coming::Plain(Event::Object(ObjectEvent::Sought {
                    ticket,
                    result: result.map(|()| found),
                }))
            }
            Flight::Remove { ticket, object } => {
                if !failed {
                    self.disk.remove(object);
                }
                Coming::Plain(Event::Object(ObjectEvent::Done { ticket, result }))
            }
            Flight::Space { ticket } => {
                let (total_bytes, free_bytes) = (1 << 40, 1 << 39);
                let space = StoreSpace {
                    total_bytes,
                    free_bytes,
                    available_bytes: free_bytes,
                    available_file_count: None,
                };
                Coming::Plain(Event::Store(StoreEvent::Space {
                    ticket,
                    result: result.map(|()| space),
                }))
            }
            Flight::Cold { ticket, from, until, row_count_max } => {
                let row_count_max = narrow(u64::from(row_count_max));
                let rows = self.cold.read(&from, &until, row_count_max);
                Coming::Rows { ticket, result: result.map(|()| rows) }
            }
            Flight::Usage { ticket } => {
                Coming::Plain(Event::Usage { ticket, usage: Usage::default() })
            }
        };
        self.bring(Place::Server(lane), coming);
    }

    /// A batch reaches the log, or does not; one that failed may be there all the same.
    fn append(&mut self, lane: usize, batch: &[u8], failed: bool) -> Result<LogSpace, Errno> {
        let boot_id = self.server.boot_id;
        if failed {
            if self.disk.crash_append((boot_id, narrow_u16(lane)), batch, &mut self.dice) {
                self.note_durable(batch);
            }
            return Err(EIO);
        }
        self.disk.append(boot_id, narrow_u16(lane), batch);
        self.tell(|| crate::tap::describe(batch));
        self.note_durable(batch);
        if self.plan.applies {
            self.cold.behind.push_back((lane, batch.to_vec()));
            self.put_in(self.plan.speeds.restart_ns, Due::Apply);
        }
        let Some(seat) = self.server.seats.get_mut(lane) else { return Err(EIO) };
        seat.space_bytes = seat.space_bytes.saturating_sub(wide(batch.len()));
        Ok(LogSpace { space_bytes: seat.space_bytes, awaits_checkpoint: false })
    }

    fn note_durable(&mut self, batch: &[u8]) {
        self.tap.on_durable(batch);
        self.lies.keep(batch);
    }

    /// The server process dies, and with it whatever was not durable.
    pub(crate) fn crash_server(&mut self) {
        if !std::mem::replace(&mut self.server.up, false) {
            return;
        }
        self.tell(|| "server: crash".to_owned());
        self.liar_is_alone();
        self.crash_count += 1;
        let boot_id = self.server.boot_id;
        self.server.life += 1;
        let seats = std::mem::take(&mut self.server.seats);
        for (lane, seat) in seats.into_iter().enumerate() {
            for flight in seat.flights.into_values() {
                self.crash_flight((boot_id, narrow_u16(lane)), flight);
            }
        }
        self.disk.crash_objects(&mut self.dice);
        self.lose_what_was_durable();
        self.cold.behind.clear();
        let conns: Vec<_> = self.conns.keys().copied().collect();
        for conn in conns {
            let ours = self.conns.get(&conn).is_some_and(|conn| !conn.up.closed);
            if ours {
                self.end_gone(conn, End::Server);
            }
        }
        self.put_in(self.plan.speeds.restart_ns, Due::Start);
    }

    fn crash_flight(&mut self, log: (u64, u16), flight: Flight) {
        match flight {
            Flight::Log { batch, .. } => {
                if self.disk.crash_append(log, &batch, &mut self.dice) {
                    self.note_durable(&batch);
                }
            }
            Flight::Patch { object, patch, .. } if self.dice.one_in(2) => {
                self.disk.patch(object, patch);
            }
            Flight::Remove { object, .. } if self.dice.one_in(2) => self.disk.remove(object),
            Flight::Patch { .. }
            | Flight::Remove { .. }
            | Flight::Read { .. }
            | Flight::ReadList { .. }
            | Flight::Sync { .. }
            | Flight::Sums { .. }
            | Flight::Stat { .. }
            | Flight::Seek { .. }
            | Flight::Space { .. }
            | Flight::Cold { .. }
            | Flight::Usage { .. } => {}
        }
    }
}

/// Which lane keeps sockets in this boot. What is said has one way in this world, whoever has the
/// socket; what the cores decide about it is theirs.
const fn affinity_of(boot_id: u64) -> Affinity {
    match boot_id % 3 {
        2 => Affinity::Client,
        0 => Affinity::Random,
        _ => Affinity::Object,
    }
}
