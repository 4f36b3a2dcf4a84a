//! The simulation: its state, the queue of due events, and the loop that performs them.
//!
//! Time is a number. An action that takes time schedules an event, and the event with the earliest
//! time is performed next. One thread, one seed, no clock.

use crate::audit::{Audit, LossyRead};
use crate::bytes::TimedChange;
use crate::cache_check::Shown;
use crate::clients::Mount;
use crate::cluster::Parted;
use crate::cuts::CutsSeen;
use crate::due::{CLOCK_RATE, Due, End, Place};
use crate::early::EarlyModes;
use crate::early_names::EarlyNames;
use crate::etcd::Etcd;
use crate::lying_disk::LyingDisk;
use crate::malicious_client::MaliciousClient;
use crate::membership::Member;
use crate::net::Conn;
use crate::number::narrow;
use crate::plan::{DiskBehaviour, Injection, Plan};
use crate::rotation::Rotation;
use crate::run_hash::RunHash;
use crate::server::Server;
use crate::servers::Lives;
use crate::tap::Tap;
use crate::trace::TraceProgress;
use crate::work::{CallRecord, CallSpec};
use interface::{ConnId, Event, Mono, NetEvent, Now};
use std::collections::{BTreeMap, BTreeSet};
use test_runtime::{Incoming, LaneState, Prng};
use wire::{FileKind, FsUuid, HandleId, InodeNo, Secret, ShardId};

/// The state of a run.
pub(crate) struct Simulation {
    pub(crate) plan: Plan,
    pub(crate) prng: Prng,
    pub(crate) run_hash: RunHash,
    pub(crate) now_ns: u64,
    pub(crate) wall_skew_ns: u64,
    agenda: BTreeMap<(u64, u64), Due>,
    due_count: u64,
    pub(crate) event_count: u64,
    pub(crate) servers: Vec<Server>,
    /// The first servers, which the map names.
    pub(crate) joined_count: usize,
    pub(crate) etcd: Etcd,
    /// The processes in the registry: the servers', and an administrator's.
    pub(crate) members: Vec<Member>,
    pub(crate) parted: Parted,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) conn_count: u64,
    pub(crate) tap: Tap,
    /// Every call; its tag is its index plus one.
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) file_changes: BTreeMap<InodeNo, Vec<(u32, TimedChange)>>,
    pub(crate) lossy_reads: Vec<LossyRead>,
    pub(crate) late_messages: crate::peer_faults::LateMessages,
    pub(crate) write_count: u64,
    /// What clients were shown, for the checks of their caches.
    pub(crate) shown: Shown,
    pub(crate) early_modes: EarlyModes,
    pub(crate) early_names: EarlyNames,
    /// Inodes that replies named, the latest last.
    pub(crate) seen: Vec<(InodeNo, FileKind)>,
    /// No fault is injected any more.
    pub(crate) faults_stopped: bool,
    /// No disk operation fails any more.
    pub(crate) mended: bool,
    pub(crate) lying_disk: LyingDisk,
    /// Objects with a flipped bit, and its block.
    pub(crate) flipped: BTreeMap<interface::Object, u64>,
    /// Those of them whose bit flipped while the server was running.
    pub(crate) rotten_since: BTreeSet<interface::Object>,
    /// Files whose flipped bits cannot be detected: a crash or a write took their checksums.
    pub(crate) unprotected: BTreeSet<wire::InodeNo>,
    /// The malicious client, in every fourth run.
    pub(crate) malicious: Option<MaliciousClient>,
    pub(crate) crash_count: u64,
    /// Crashes of each server.
    pub(crate) crashes: Vec<(usize, u64)>,
    /// Writes that are made when set-id bits are cleared, by the call that clears them.
    pub(crate) retries: BTreeMap<u32, CallSpec>,
    /// By client: files that had set-id bits when they were opened.
    pub(crate) opened_with_set_id: BTreeSet<(usize, HandleId)>,
    pub(crate) cuts_seen: CutsSeen,
    /// By shard and server process: changes answered before this time are durable by a sync.
    pub(crate) synced: BTreeMap<(ShardId, u64), u64>,
    /// By file and server processes: bytes written before this time are durable by a sync.
    pub(crate) synced_files: BTreeMap<(InodeNo, Lives), u64>,
    /// A client was absent for so long that the server may have continued without it.
    pub(crate) absent: bool,
    pub(crate) fs: FsUuid,
    /// The secret at the start.
    pub(crate) secret: Secret,
    pub(crate) rotation: Rotation,
    pub(crate) audit: Audit,
    pub(crate) trace_progress: TraceProgress,
    pub(crate) violation: Option<String>,
    pub(crate) log: Option<Vec<String>>,
}

/// Events of a run at most. A run with more does not come to rest; one in which etcd is away for a minute
/// has some 600,000.
const EVENT_COUNT_MAX: u64 = 1_000_000;

impl Simulation {
    pub(crate) fn new(seed: u64, injection: Option<Injection>) -> Self {
        let mut prng = Prng::new(seed);
        let plan = Plan::roll(&mut prng, injection);
        let plan = match injection {
            Some(Injection::Rule(rule) | Injection::Control(rule)) => plan.for_rule(rule),
            Some(Injection::LostBatch | Injection::LostResend | Injection::LostSync) | None => plan,
        };
        let plan = plan.with_servers(seed).with_set_id(seed).with_kills(seed);
        let joined_count = plan.server_count - narrow(plan.faults.join_count);
        let secret = Secret::new(prng.bytes());
        Self {
            run_hash: RunHash::new(),
            now_ns: 1_000_000_000,
            wall_skew_ns: 1_700_000_000_000_000_000,
            agenda: BTreeMap::new(),
            due_count: 0,
            event_count: 0,
            servers: (0..plan.server_count).map(|_| Server::new()).collect(),
            joined_count,
            etcd: Etcd::new(seed),
            members: (0..=plan.server_count).map(|_| Member::default()).collect(),
            parted: Parted::default(),
            mounts: Vec::new(),
            conns: BTreeMap::new(),
            conn_count: 0,
            tap: Tap::new(plan.sync),
            calls: Vec::new(),
            file_changes: BTreeMap::new(),
            lossy_reads: Vec::new(),
            late_messages: crate::peer_faults::LateMessages::default(),
            write_count: 0,
            shown: Shown::default(),
            early_modes: EarlyModes::default(),
            early_names: EarlyNames::default(),
            seen: vec![(InodeNo::ROOT, FileKind::Directory)],
            faults_stopped: false,
            mended: false,
            lying_disk: LyingDisk::default(),
            flipped: BTreeMap::new(),
            rotten_since: BTreeSet::new(),
            unprotected: BTreeSet::new(),
            malicious: MaliciousClient::of_seed(seed),
            crash_count: 0,
            crashes: Vec::new(),
            retries: BTreeMap::new(),
            opened_with_set_id: BTreeSet::new(),
            cuts_seen: CutsSeen::default(),
            fs: FsUuid(prng.bytes()),
            secret,
            rotation: Rotation::new(seed, secret),
            synced: BTreeMap::new(),
            synced_files: BTreeMap::new(),
            absent: false,
            audit: Audit::default(),
            trace_progress: TraceProgress::default(),
            violation: None,
            log: None,
            plan,
            prng,
        }
    }

    pub(crate) fn violates(&mut self, line: String) {
        self.violation.get_or_insert(line);
    }

    /// Adds a line to the event log, if the run has one.
    pub(crate) fn log_line(&mut self, line: impl FnOnce() -> String) {
        let now_us = self.now_ns / 1000;
        if let Some(log) = &mut self.log {
            log.push(format!("{now_us:>10} {}", line()));
        }
    }

    // ---- the event queue ----

    pub(crate) fn schedule_at(&mut self, at_ns: u64, due: Due) {
        self.due_count += 1;
        self.agenda.insert((at_ns.max(self.now_ns), self.due_count), due);
    }

    pub(crate) fn schedule_in(&mut self, mean_ns: u64, due: Due) {
        let delay_ns = self.prng.span_ns(mean_ns);
        self.schedule_at(self.now_ns + delay_ns, due);
    }

    pub(crate) const fn now(&self) -> Now {
        Now { mono: Mono(self.now_ns), wall_ns: self.wall_skew_ns + self.now_ns }
    }

    /// The time at a lane: the monotonic clocks of clients have their own rates.
    pub(crate) fn now_at(&self, place: Place) -> Now {
        let rate = self.clock_rate(place);
        let mono =
            Mono(self.now_ns / CLOCK_RATE * rate + self.now_ns % CLOCK_RATE * rate / CLOCK_RATE);
        Now { mono, ..self.now() }
    }

    /// When a lane's clock shows this.
    fn time_of(&self, place: Place, mono: Mono) -> u64 {
        let rate = self.clock_rate(place);
        (mono.0 / rate)
            .saturating_mul(CLOCK_RATE)
            .saturating_add((mono.0 % rate * CLOCK_RATE).div_ceil(rate))
    }

    fn clock_rate(&self, place: Place) -> u64 {
        match place {
            Place::Server(..) => CLOCK_RATE,
            Place::Client(client, _) => self.mounts[client].clock_rate,
        }
    }

    /// Performs events until `done` is true (returns true), or until `end_ns` or the last event
    /// (false).
    pub(crate) fn run_until(&mut self, end_ns: u64, done: impl Fn(&Self) -> bool) -> bool {
        loop {
            if let Some(line) = self.tap.violation.take() {
                self.violates(line);
            }
            if self.violation.is_some() || done(self) {
                return true;
            }
            if self.event_count >= EVENT_COUNT_MAX {
                return false;
            }
            let Some((&(at_ns, number), _)) = self.agenda.first_key_value() else { return false };
            if at_ns > end_ns {
                return false;
            }
            let Some(due) = self.agenda.remove(&(at_ns, number)) else { return false };
            self.now_ns = at_ns;
            self.perform(due);
        }
    }

    fn perform(&mut self, due: Due) {
        self.event_count += 1;
        match due {
            Due::Turn(place, life) => self.turn(place, life),
            Due::Wake(place, life) => self.wake(place, life),
            Due::Arrive(conn, end) => self.arrive(conn, end),
            Due::CloseEnd(conn, end) => self.close_end(conn, end),
            Due::Connect { by, life, ticket, to } => self.connect(by, life, (ticket, to)),
            Due::Complete { at, life, operation_no } => {
                self.complete_operation(at, life, operation_no)
            }
            Due::NextCall { client, lane } => self.next_call(client, lane),
            Due::Recall { client, lane } => self.schedule_turn(Place::Client(client, lane)),
            Due::Fault(fault) => self.inject_fault(fault),
            Due::StartServer(server) => self.start_server(server),
            Due::ApplyBatch(server) => self.apply_next_batch(server),
            Due::Etcd(number) => self.move_etcd_call(number),
            Due::Member(by, life) => self.on_member_due(by, life),
            Due::Watch(server, life) => self.watch(server, life),
            Due::TraceStep => self.take_trace_step(),
            Due::MaliciousFrame => self.run_malicious_client(),
            Due::Rotation(step) => self.step_rotation(step),
            Due::PeerMessage { server, life, number } => {
                self.receive_late(server, (life, number));
            }
        }
    }

    // ---- lanes ----

    /// The state of a lane, if its process is alive.
    pub(crate) fn lane_state(&mut self, place: Place) -> Option<&mut LaneState> {
        match place {
            Place::Server(server, lane) => {
                let lanes = &mut self.servers.get_mut(server)?.lanes;
                lanes.get_mut(lane).map(|sim_lane| &mut sim_lane.state)
            }
            Place::Client(client, lane) => {
                let mount = self.mounts.get_mut(client).filter(|mount| mount.alive)?;
                mount.lanes.get_mut(lane).map(|sim_lane| &mut sim_lane.state)
            }
        }
    }

    pub(crate) fn life(&self, place: Place) -> u64 {
        match place {
            Place::Server(server, _) => self.servers.get(server).map_or(0, |server| server.life),
            Place::Client(client, _) => {
                self.mounts.get(client).map_or(0, |mount| u64::from(mount.alive))
            }
        }
    }

    /// Delivers an event to a lane and schedules the lane's turn.
    pub(crate) fn deliver(&mut self, place: Place, incoming: impl Into<Incoming>) {
        let Some(state) = self.lane_state(place) else { return };
        state.deliver(incoming);
        self.schedule_turn(place);
    }

    pub(crate) fn schedule_turn(&mut self, place: Place) {
        let turn_ns = self.plan.speeds.turn_ns;
        let delay_ns = self.prng.span_ns(turn_ns);
        let (now_ns, life) = (self.now_ns, self.life(place));
        let Some(state) = self.lane_state(place) else { return };
        if state.turn_is_due {
            return;
        }
        state.turn_is_due = true;
        let at_ns = (now_ns + delay_ns).max(state.paused_until_ns);
        self.schedule_at(at_ns, Due::Turn(place, life));
    }

    fn turn(&mut self, place: Place, life: u64) {
        if life != self.life(place) {
            return;
        }
        let now_ns = self.now_ns;
        let Some(state) = self.lane_state(place) else { return };
        if state.paused_until_ns > now_ns {
            let at_ns = state.paused_until_ns;
            return self.schedule_at(at_ns, Due::Turn(place, life));
        }
        state.turn_is_due = false;
        let waiting_count = state.inbox.len();
        // Some of the delivered events may wait for a later turn.
        let taken_count =
            if self.prng.one_in(4) { 1 + self.prng.below(waiting_count) } else { waiting_count };
        let Some(state) = self.lane_state(place) else { return };
        let events = state.events(taken_count);
        let rest = !state.inbox.is_empty();
        self.run_hash.add(now_ns);
        for event in &events {
            self.hash_event(place, event);
        }
        match place {
            Place::Server(server, lane) => self.server_turn((server, lane), events),
            Place::Client(client, lane) => self.client_turn(client, lane, events),
        }
        if rest {
            self.schedule_turn(place);
        }
    }

    fn hash_event(&mut self, place: Place, event: &Event) {
        let number = match place {
            Place::Server(server, lane) => crate::number::wide(server * 100 + lane),
            Place::Client(client, lane) => 1000 + crate::number::wide(client * 10 + lane),
        };
        self.run_hash.add(number);
        let Event::Net(NetEvent::Frame { conn, frame, .. }) = event else { return };
        self.run_hash.add(conn.0);
        if let Some(state) = self.lane_state(place) {
            let bytes = state.arena.get(*frame).to_vec();
            self.run_hash.add_bytes(&bytes);
        }
    }

    /// Schedules a lane's requested wakeup.
    pub(crate) fn schedule_wake(&mut self, place: Place, at: Mono) {
        let (life, at_ns) = (self.life(place), self.time_of(place, at));
        if let Some(state) = self.lane_state(place) {
            state.wake_at = Some(Mono(at_ns));
            self.schedule_at(at_ns, Due::Wake(place, life));
        }
    }

    /// Schedules a turn of a client lane for files that are open without the server. It does not
    /// replace the wakeup that its core has requested.
    pub(crate) fn schedule_registration(
        &mut self,
        (client, lane): (usize, usize),
        at: Option<Mono>,
    ) {
        let Some(at) = at else { return };
        let place = Place::Client(client, lane);
        let (life, at_ns) = (self.life(place), self.time_of(place, at));
        let sim_lane = &mut self.mounts[client].lanes[lane];
        if sim_lane.register_at_ns.replace(at_ns) != Some(at_ns) {
            self.schedule_at(at_ns, Due::Wake(place, life));
        }
    }

    fn wake(&mut self, place: Place, life: u64) {
        let now_ns = self.now_ns;
        if life != self.life(place) {
            return;
        }
        let Some(state) = self.lane_state(place) else { return };
        let wakes = state.wake_at.take_if(|at| at.0 <= now_ns).is_some();
        let registers = match place {
            Place::Client(client, lane) => {
                let sim_lane = &mut self.mounts[client].lanes[lane];
                sim_lane.register_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some()
            }
            Place::Server(..) => false,
        };
        if wakes || registers {
            self.deliver(place, Event::Tick);
        }
    }

    /// A number in 0 .. `count`.
    pub(crate) fn choose(&mut self, count: usize) -> usize {
        self.prng.below(count)
    }

    /// Unanswered calls of living clients.
    pub(crate) fn unanswered_count(&self) -> usize {
        let of = |mount: &Mount| -> usize {
            mount.lanes.iter().map(|sim_lane| sim_lane.outstanding.len()).sum::<usize>()
        };
        self.mounts.iter().filter(|mount| mount.alive).map(of).sum()
    }

    /// No lane has work to do, and no frame is under way to a server.
    pub(crate) fn is_quiet(&self) -> bool {
        // A log that has failed keeps changes in doubt. One server ends them when it starts.
        let fails = self.plan.faults.disk == DiskBehaviour::Failing && !self.mended;
        let all_end = self.servers.len() > 1 && !fails;
        let idle = |sim_lane: &crate::server::ServerLane| {
            let done = sim_lane.operations.is_empty() && sim_lane.state.inbox.is_empty();
            let is_over = !all_end || !sim_lane.core.has_transactions();
            done && is_over && !sim_lane.state.turn_is_due && !sim_lane.core.is_waiting()
        };
        let empty = |conn: &Conn| {
            [(End::Listener, &conn.up), (End::Dialler, &conn.down)].iter().all(
                |(end, direction)| {
                    let (place, life) = conn.at(*end);
                    let to_server = matches!(place, Place::Server(..));
                    let is_over = life != self.life(place) || direction.closed;
                    !to_server || is_over || direction.queue.is_empty()
                },
            )
        };
        // A paused client lane may have been evicted and not know it yet. An evicted client that
        // continues with a new uuid registers its open files only once it is connected; until then
        // the server has file sizes from before writes of a peer lane that still uses the old uuid.
        let awake =
            |state: &LaneState| state.inbox.is_empty() || state.paused_until_ns <= self.now_ns;
        let is_calm = |sim_lane: &crate::client_lane::ClientLane| {
            let calm = sim_lane.core.busy_count() == 0 && !sim_lane.core.may_reopen();
            calm && awake(&sim_lane.state)
        };
        let done = |mount: &Mount| mount.lanes.iter().all(is_calm);
        let clients_done = self.mounts.iter().filter(|mount| mount.alive).all(done);
        let rests = |server: &Server| server.up && server.lanes.iter().all(idle);
        let server_done = self.servers[..self.joined_count].iter().all(rests);
        clients_done && server_done && self.conns.values().all(empty)
    }

    /// The call of a tag.
    pub(crate) fn call_of(&self, tag: u32) -> Option<&CallRecord> {
        self.calls.get(narrow(u64::from(tag)).checked_sub(1)?)
    }
}
