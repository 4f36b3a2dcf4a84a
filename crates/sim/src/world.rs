//! The world: who is in it, what is due when, and the loop that lets it happen.
//!
//! Time is a number; whatever takes time is put on the agenda and happens when nothing else is due
//! earlier. One thread, one seed, no clock.

use crate::audit::Audit;
use crate::bytes::Done;
use crate::clients::Mount;
use crate::cold::Cold;
use crate::desk::{Coming, Desk};
use crate::dice::{Dice, Trace};
use crate::disk::Disk;
use crate::liar::Liar;
use crate::lies::Lies;
use crate::net::{Conn, End};
use crate::number::narrow;
use crate::plan::{Plan, Planted};
use crate::rotation::{Rotation, Step};
use crate::server::Server;
use crate::story::Told;
use crate::tap::Tap;
use crate::work::Asked;
use interface::{ConnId, Event, Mono, NetEvent, Now, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use wire::{FileKind, FsUuid, InodeNo, Secret, ShardId};

/// Whose desk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Server(usize),
    Client(usize, usize),
}

/// A fault that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mishap {
    ServerCrash,
    ClientCrash,
    Cut,
    Partition,
    Pause,
    Clock,
    Interrupt,
}

/// Something that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    Turn(Place, u64),
    Wake(Place, u64),
    Arrive(ConnId, End),
    Hang(ConnId, End),
    Connect { client: usize, lane: usize, life: u64, ticket: Ticket },
    Land { lane: usize, life: u64, flight_no: u64 },
    Think { client: usize, lane: usize },
    Mishap(Mishap),
    Start,
    Apply,
    Act,
    Lie,
    Rotation(Step),
}

/// What a run found.
pub(crate) type Verdict = Result<(), String>;

/// The world.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    pub(crate) trace: Trace,
    pub(crate) now_ns: u64,
    pub(crate) wall_skew_ns: u64,
    agenda: BTreeMap<(u64, u64), Due>,
    due_count: u64,
    pub(crate) event_count: u64,
    pub(crate) disk: Disk,
    pub(crate) cold: Cold,
    pub(crate) server: Server,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) conn_count: u64,
    pub(crate) tap: Tap,
    /// Every call, by its tag minus one.
    pub(crate) asked: Vec<Asked>,
    pub(crate) deeds: BTreeMap<InodeNo, Vec<(u32, Done)>>,
    pub(crate) write_count: u64,
    /// Inodes that were seen, the latest last.
    pub(crate) seen: Vec<(InodeNo, FileKind)>,
    /// From here on nothing goes wrong any more.
    pub(crate) calm: bool,
    /// From here on no disk fails any more.
    pub(crate) mended: bool,
    pub(crate) lies: Lies,
    /// Objects with a bit that nobody wrote.
    pub(crate) rotten: BTreeMap<interface::Object, u64>,
    /// Of them, those that became so while they were served.
    pub(crate) rotten_since: BTreeSet<interface::Object>,
    /// Of all of them, those whose checksums a crash or a write took: nobody can tell.
    pub(crate) unprotected: BTreeSet<wire::InodeNo>,
    /// In some runs.
    pub(crate) liar: Option<Liar>,
    pub(crate) crash_count: u64,
    /// What a sync found durable: changes at a shard that were answered before.
    pub(crate) synced: BTreeMap<(ShardId, u64), u64>,
    /// Bytes of a file that were written before.
    pub(crate) synced_files: BTreeMap<(InodeNo, u64), u64>,
    /// Somebody was away for so long that the server may go on without him.
    pub(crate) absent: bool,
    pub(crate) fs: FsUuid,
    /// The first one.
    pub(crate) secret: Secret,
    pub(crate) rotation: Rotation,
    pub(crate) audit: Audit,
    pub(crate) told: Told,
    pub(crate) broken: Option<String>,
    pub(crate) log: Option<Vec<String>>,
}

/// Events of one run at most: more means that it does not come to rest.
const EVENT_COUNT_MAX: u64 = 400_000;

impl World {
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::roll(&mut dice, planted);
        let plan = match planted {
            Some(Planted::Rule(rule) | Planted::Control(rule)) => plan.favour(rule),
            Some(Planted::LostBatch | Planted::LostResend | Planted::LostSync) | None => plan,
        };
        let secret = Secret::new(dice.bytes());
        Self {
            trace: Trace::new(),
            now_ns: 1_000_000_000,
            wall_skew_ns: 1_700_000_000_000_000_000,
            agenda: BTreeMap::new(),
            due_count: 0,
            event_count: 0,
            disk: Disk::default(),
            cold: Cold::default(),
            server: Server::default(),
            mounts: Vec::new(),
            conns: BTreeMap::new(),
            conn_count: 0,
            tap: Tap::new(plan.sync),
            asked: Vec::new(),
            deeds: BTreeMap::new(),
            write_count: 0,
            seen: vec![(InodeNo::ROOT, FileKind::Directory)],
            calm: false,
            mended: false,
            lies: Lies::default(),
            rotten: BTreeMap::new(),
            rotten_since: BTreeSet::new(),
            unprotected: BTreeSet::new(),
            liar: Liar::of_seed(seed),
            crash_count: 0,
            fs: FsUuid(dice.bytes()),
            secret,
            rotation: Rotation::new(seed, secret),
            synced: BTreeMap::new(),
            synced_files: BTreeMap::new(),
            absent: false,
            audit: Audit::default(),
            told: Told::default(),
            broken: None,
            log: None,
            plan,
            dice,
        }
    }

    pub(crate) fn breaks(&mut self, line: String) {
        self.broken.get_or_insert(line);
    }

    /// A line for whoever looks at one run closely.
    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        let now_us = self.now_ns / 1000;
        if let Some(log) = &mut self.log {
            log.push(format!("{now_us:>10} {}", line()));
        }
    }

    // ---- the agenda ----

    pub(crate) fn put(&mut self, at_ns: u64, due: Due) {
        self.due_count += 1;
        self.agenda.insert((at_ns.max(self.now_ns), self.due_count), due);
    }

    pub(crate) fn put_in(&mut self, mean_ns: u64, due: Due) {
        let delay_ns = self.dice.span_ns(mean_ns);
        self.put(self.now_ns + delay_ns, due);
    }

    pub(crate) const fn now(&self) -> Now {
        Now { mono: Mono(self.now_ns), wall_ns: self.wall_skew_ns + self.now_ns }
    }

    /// Lets things happen until `done` says so or the time is over; whether it was said.
    pub(crate) fn run_until(&mut self, end_ns: u64, done: impl Fn(&Self) -> bool) -> bool {
        loop {
            if let Some(line) = self.tap.broken.take() {
                self.breaks(line);
            }
            if self.broken.is_some() || done(self) {
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
            self.happen(due);
        }
    }

    fn happen(&mut self, due: Due) {
        self.event_count += 1;
        match due {
            Due::Turn(place, life) => self.turn(place, life),
            Due::Wake(place, life) => self.wake(place, life),
            Due::Arrive(conn, end) => self.arrive(conn, end),
            Due::Hang(conn, end) => self.hang(conn, end),
            Due::Connect { client, lane, life, ticket } => {
                self.connect(client, lane, life, ticket);
            }
            Due::Land { lane, life, flight_no } => self.land(lane, life, flight_no),
            Due::Think { client, lane } => self.think(client, lane),
            Due::Mishap(mishap) => self.mishap(mishap),
            Due::Start => self.start_server(),
            Due::Apply => self.advance_cold(),
            Due::Act => self.act(),
            Due::Lie => self.lie(),
            Due::Rotation(step) => self.step_rotation(step),
        }
    }

    // ---- desks ----

    /// The desk of a lane that lives.
    pub(crate) fn desk(&mut self, place: Place) -> Option<&mut Desk> {
        match place {
            Place::Server(lane) => self.server.seats.get_mut(lane).map(|seat| &mut seat.desk),
            Place::Client(client, lane) => {
                let mount = self.mounts.get_mut(client).filter(|mount| mount.alive)?;
                mount.seats.get_mut(lane).map(|seat| &mut seat.desk)
            }
        }
    }

    pub(crate) fn life(&self, place: Place) -> u64 {
        match place {
            Place::Server(_) => self.server.life,
            Place::Client(client, _) => {
                self.mounts.get(client).map_or(0, |mount| u64::from(mount.alive))
            }
        }
    }

    /// Something came for a lane: it takes a turn soon.
    pub(crate) fn bring(&mut self, place: Place, coming: Coming) {
        let Some(desk) = self.desk(place) else { return };
        desk.inbox.push_back(coming);
        self.call(place);
    }

    pub(crate) fn call(&mut self, place: Place) {
        let turn_ns = self.plan.speeds.turn_ns;
        let delay_ns = self.dice.span_ns(turn_ns);
        let (now_ns, life) = (self.now_ns, self.life(place));
        let Some(desk) = self.desk(place) else { return };
        if desk.called {
            return;
        }
        desk.called = true;
        let at_ns = (now_ns + delay_ns).max(desk.paused_until_ns);
        self.put(at_ns, Due::Turn(place, life));
    }

    fn turn(&mut self, place: Place, life: u64) {
        if life != self.life(place) {
            return;
        }
        let now_ns = self.now_ns;
        let Some(desk) = self.desk(place) else { return };
        if desk.paused_until_ns > now_ns {
            let at_ns = desk.paused_until_ns;
            return self.put(at_ns, Due::Turn(place, life));
        }
        desk.called = false;
        let waiting_count = desk.inbox.len();
        // Some of what came may wait for a later turn.
        let taken_count =
            if self.dice.one_in(4) { 1 + self.dice.below(waiting_count) } else { waiting_count };
        let Some(desk) = self.desk(place) else { return };
        let events = desk.events(taken_count);
        let rest = !desk.inbox.is_empty();
        self.trace.note(now_ns);
        for event in &events {
            self.note_event(place, event);
        }
        match place {
            Place::Server(lane) => self.server_turn(lane, events),
            Place::Client(client, lane) => self.client_turn(client, lane, events),
        }
        if rest {
            self.call(place);
        }
    }

    fn note_event(&mut self, place: Place, event: &Event) {
        let number = match place {
            Place::Server(lane) => crate::number::wide(lane),
            Place::Client(client, lane) => 1000 + crate::number::wide(client * 10 + lane),
        };
        self.trace.note(number);
        let Event::Net(NetEvent::Frame { conn, frame, .. }) = event else { return };
        self.trace.note(conn.0);
        if let Some(desk) = self.desk(place) {
            let bytes = desk.arena.get(*frame).to_vec();
            self.trace.note_bytes(&bytes);
        }
    }

    /// A lane asks to be woken.
    pub(crate) fn ask_wake(&mut self, place: Place, at: Mono) {
        let life = self.life(place);
        if let Some(desk) = self.desk(place) {
            desk.wake_at_ns = Some(at.0);
            self.put(at.0, Due::Wake(place, life));
        }
    }

    fn wake(&mut self, place: Place, life: u64) {
        let now_ns = self.now_ns;
        if life != self.life(place) {
            return;
        }
        let Some(desk) = self.desk(place) else { return };
        if desk.wake_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            desk.wake_at_ns = None;
            self.bring(place, Coming::Plain(Event::Tick));
        }
    }

    /// A number of 0 .. `count`.
    pub(crate) fn choose(&mut self, count: usize) -> usize {
        self.dice.below(count)
    }

    /// Calls that are not answered, of clients that live.
    pub(crate) fn unanswered_count(&self) -> usize {
        let of = |mount: &Mount| -> usize {
            mount.seats.iter().map(|seat| seat.outstanding.len()).sum::<usize>()
        };
        self.mounts.iter().filter(|mount| mount.alive).map(of).sum()
    }

    /// Nobody has anything to do, and nothing is on its way to the server.
    pub(crate) fn is_quiet(&self) -> bool {
        let idle = |seat: &crate::server::ServerSeat| {
            let done = seat.flights.is_empty() && seat.desk.inbox.is_empty();
            done && !seat.desk.called && !seat.core.is_waiting()
        };
        let empty = |conn: &Conn| {
            conn.server_life != self.server.life || conn.up.closed || conn.up.queue.is_empty()
        };
        // Who sleeps may have been evicted, and does not know it yet. Who has gone on as somebody new
        // has not registered its open files before it is connected; until then the server has the
        // sizes of those that a peer lane goes on writing from before.
        let awake = |desk: &Desk| desk.inbox.is_empty() || desk.paused_until_ns <= self.now_ns;
        let rests = |seat: &crate::clients::ClientSeat| {
            let calm = seat.core.busy_count() == 0 && !seat.core.may_reopen();
            calm && awake(&seat.desk)
        };
        let done = |mount: &Mount| mount.seats.iter().all(rests);
        let clients_done = self.mounts.iter().filter(|mount| mount.alive).all(done);
        let server_done = self.server.up && self.server.seats.iter().all(idle);
        clients_done && server_done && self.conns.values().all(empty)
    }

    /// The call of a tag.
    pub(crate) fn asked(&self, tag: u32) -> Option<&Asked> {
        self.asked.get(narrow(u64::from(tag)).checked_sub(1)?)
    }
}
