//! The load: many clients on one ring, each keeping so many operations under way, and the time of
//! each operation.
//!
//! It speaks the protocol itself, as simply as possible: no resending, no routing, no caching, so
//! that one CPU of it keeps one CPU of a server busy. Invariants: an operation counts only if it
//! began and ended within the measured time and its reply says that it succeeded; however slow the
//! machine, every client was answered before that time begins, unless a rate is set, and it does
//! not end before an operation was counted.

mod client;
mod work;

pub(crate) use client::Handshake;
pub(crate) use work::{Pieces, Strided, Work};

use crate::number::number;
use crate::usage::LaneUsage;
use anyhow::{Result, anyhow, bail};
use client::{Client, Heard, State};
use hashbrown::HashMap;
use hdrhistogram::Histogram;
use interface::{
    Action, CloseReason, ConnId, Core, Event, Mono, NetAction, NetEvent, Span, Ticket, Turn,
};
use wire::{
    Channel, FrameKind, Header, LaneId, Lengths, Reply, ServerAddress, Stats, Status, Wire as _,
};

/// Handshakes at a time: a server refuses too many unauthenticated connections at once.
const HANDSHAKE_COUNT_MAX: usize = 32;
/// How often a load wakes even without events, so that its owner can end it.
const WAKE_MS: u64 = 50;
/// The shortest time between two wakeups for operations that are due.
const DUE_NS_MIN: u64 = 50_000;
/// The longest time that a histogram records.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// The parameters of a load.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) client_count: u32,
    pub(crate) depth: u32,
    pub(crate) work: Work,
    pub(crate) handshake: Handshake,
    /// One further connection to each of these lanes requests counters; none for servers without
    /// counters.
    pub(crate) counted_lane_count: u16,
}

/// The phase of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The clients' handshakes.
    Connecting,
    /// Connected, without requests.
    Idle,
    /// Operations run and are not counted until then; the measured time has so many nanoseconds.
    Warming { until: Mono, measured_ns: u64 },
    /// Operations are counted from then to then.
    Measuring { from: Mono, until: Mono },
    /// No further operation begins.
    Draining,
}

/// The counts of a run.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) op_count: u64,
    pub(crate) moved_bytes: u64,
    /// Nanoseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) measured_ns: u64,
}

impl Tally {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { op_count: 0, moved_bytes: 0, latency: latencies()?, measured_ns: 0 })
    }
}

/// For nanoseconds, with three digits.
pub(crate) fn latencies() -> Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_NS_MAX, 3).map_err(|error| anyhow!(error))
}

/// The state machine of the generator.
pub(crate) struct Load {
    shape: Shape,
    clients: Vec<Client>,
    by_conn: HashMap<ConnId, usize>,
    /// Connections begun so far.
    connect_count: usize,
    /// Clients without a reply in this run so far.
    unanswered_count: usize,
    phase: Phase,
    tally: Tally,
    /// Counters of the server's lanes: at the beginning and at the end of the measured time.
    counters: [Option<LaneUsage>; 2],
    stats_wanted: usize,
    failed: Option<String>,
    wake_at: Mono,
    rate: Option<Rate>,
    /// A connection under TLS whose handshake is ending.
    sealed: Option<(ConnId, Channel)>,
}

/// So many operations a second, whether or not those before have been answered.
#[derive(Clone, Copy, Debug)]
struct Rate {
    ns_per_op: f64,
    began: Mono,
    asked_count: u64,
    /// The next client.
    next: usize,
}

impl Rate {
    /// When the next operation is due. A late one counts from then.
    fn due(&self) -> Mono {
        #[expect(clippy::cast_possible_truncation, reason = "a span of nanoseconds")]
        #[expect(clippy::cast_sign_loss, reason = "time goes on")]
        let ns = (number(self.asked_count) * self.ns_per_op) as u64;
        after_ns(self.began, ns)
    }
}

impl Load {
    /// A load that has not connected yet.
    ///
    /// # Errors
    /// When the shape makes no sense.
    pub(crate) fn new(shape: Shape) -> Result<Self> {
        let slot_count_max = shape.work.depth_max();
        if shape.client_count == 0 || shape.depth == 0 {
            bail!("a load needs at least one client and one operation under way");
        }
        if shape.depth > slot_count_max {
            bail!("a client of this load keeps at most {slot_count_max} operations under way");
        }
        let workers = (0..shape.client_count).map(|index| {
            Client::new(shape.depth, shape.work.server_lane(index, shape.handshake.map()), false)
        });
        let counters = (0..shape.counted_lane_count).map(|lane| Client::new(1, LaneId(lane), true));
        let clients = workers.chain(counters).collect();
        Ok(Self {
            clients,
            by_conn: HashMap::new(),
            connect_count: 0,
            unanswered_count: 0,
            phase: Phase::Connecting,
            tally: Tally::new()?,
            counters: [None; 2],
            stats_wanted: 0,
            failed: None,
            wake_at: Mono(0),
            rate: None,
            sealed: None,
            shape,
        })
    }

    /// Begins to connect all clients.
    pub(crate) fn connect(&mut self, turn: &mut Turn<'_>) {
        (0..HANDSHAKE_COUNT_MAX).for_each(|_| self.connect_next(turn));
    }

    fn connect_next(&mut self, turn: &mut Turn<'_>) {
        if self.connect_count < self.clients.len() {
            turn.act(NetAction::Connect {
                ticket: Ticket(self.connect_count as u64),
                address: ServerAddress::Initial,
            });
            self.connect_count += 1;
        }
    }

    /// Clears the counts of the last run.
    ///
    /// # Errors When there is no memory for new counters.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        self.tally = Tally::new()?;
        self.counters = [None; 2];
        Ok(())
    }

    /// From the next run on so many operations a second begin, if clients have free places; `None`:
    /// as many as possible.
    pub(crate) fn set_rate(&mut self, ops_per_s: Option<f64>) {
        self.rate = ops_per_s.map(|ops_per_s| Rate {
            ns_per_op: 1e9 / ops_per_s,
            began: Mono(0),
            asked_count: 0,
            next: 0,
        });
    }

    /// Begins a run: operations start, and are counted after the warm-up.
    pub(crate) fn begin(&mut self, turn: &mut Turn<'_>, (warm_ns, measured_ns): (u64, u64)) {
        assert!(self.phase == Phase::Idle, "one run at a time, of connected clients");
        self.phase = Phase::Warming { until: after_ns(turn.now.mono, warm_ns), measured_ns };
        for client in &mut self.clients {
            client.answered = false;
        }
        if let Some(rate) = &mut self.rate {
            (rate.began, rate.asked_count) = (turn.now.mono, 0);
            self.unanswered_count = 0;
            self.ask_due(turn);
        } else {
            self.unanswered_count = self.clients.iter().filter(|client| !client.counts).count();
            for index in 0..self.clients.len() {
                if !self.clients[index].counts {
                    while self.ask_next(turn, index, turn.now.mono) {}
                }
            }
        }
        self.wake_at = turn.now.mono.after_ms(WAKE_MS);
        turn.act(Action::WakeAt { at: self.wake_at });
    }

    /// The phase.
    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// The counts of the last run, and those of the server's lanes.
    pub(crate) fn results(&self) -> (&Tally, Option<(LaneUsage, LaneUsage)>) {
        let [before, after] = self.counters;
        (&self.tally, before.zip(after))
    }

    /// Fails if something went wrong.
    ///
    /// # Errors What went wrong.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.failed {
            Some(line) => bail!("{line}"),
            None => Ok(()),
        }
    }

    fn fail(&mut self, line: impl Into<String>) {
        self.failed.get_or_insert_with(|| line.into());
    }

    // ---- operations ----

    /// Begins the operations that are due, all clients in turn, and schedules a wakeup for the
    /// next.
    fn ask_due(&mut self, turn: &mut Turn<'_>) {
        let Some(mut rate) = self.rate else { return };
        let mut refused_count = 0;
        while rate.due() <= turn.now.mono && refused_count < self.clients.len() {
            rate.next = (rate.next + 1) % self.clients.len();
            if !self.clients[rate.next].counts && self.ask_next(turn, rate.next, rate.due()) {
                rate.asked_count += 1;
                refused_count = 0;
            } else {
                refused_count += 1;
            }
        }
        self.rate = Some(rate);
        if matches!(self.phase, Phase::Warming { .. } | Phase::Measuring { .. }) {
            let at = rate.due().max(after_ns(turn.now.mono, DUE_NS_MIN));
            turn.act(Action::WakeAt { at });
        }
    }

    /// Begins a client's operation, due at a time, if the client has a free place; returns whether
    /// it did.
    fn ask_next(&mut self, turn: &mut Turn<'_>, index: usize, due: Mono) -> bool {
        if !matches!(self.phase, Phase::Warming { .. } | Phase::Measuring { .. }) {
            return false;
        }
        let client = &mut self.clients[index];
        let Some(place) = client.free.pop() else { return false };
        client.began[usize::from(place)] = due;
        let map = self.shape.handshake.map();
        if map.is_none() {
            client.order.push_back(place);
        }
        self.shape.work.ask(turn, (client, place), (index, map));
        true
    }

    fn ask_stats(&mut self, turn: &mut Turn<'_>) {
        for client in self.clients.iter_mut().filter(|client| client.counts) {
            self.stats_wanted += 1;
            work::ask_stats(turn, client, self.shape.handshake.map());
        }
    }

    fn on_frame(&mut self, turn: &mut Turn<'_>, index: usize, frame: Span) {
        let client = &mut self.clients[index];
        if !matches!(client.state, State::Up { .. }) {
            match client.on_handshake(turn, frame, &self.shape.handshake) {
                Ok(Heard::More) => {}
                Ok(Heard::Up) => self.on_up(turn),
                Err(line) => self.fail(line),
            }
            return;
        }
        if is_notification(turn.arena.get(frame)) {
            return; // A load replays nothing, so what became durable is nothing to it.
        }
        if client.counts {
            return self.on_stats(turn, frame);
        }
        let place = match self.shape.handshake {
            // Such a server sends no other reply.
            Handshake::None | Handshake::Ping => client.oldest(),
            Handshake::Full { .. } => match done_place(turn.arena.get(frame), client.depth()) {
                Ok(Done::Place(place)) => place,
                Ok(Done::Again(place)) => {
                    client.free.push(place);
                    self.continue_client(turn, index);
                    return;
                }
                Err(line) => return self.fail(line),
            },
        };
        let began = client.began[usize::from(place)];
        client.free.push(place);
        if !std::mem::replace(&mut client.answered, true) {
            self.unanswered_count = self.unanswered_count.saturating_sub(1);
        }
        if let Phase::Measuring { from, .. } = self.phase
            && began >= from
        {
            let latency_ns = turn.now.mono.since_ns(began);
            self.tally.op_count += 1;
            let got_bytes = bulk_bytes(turn.arena.get(frame));
            self.tally.moved_bytes += got_bytes.max(self.shape.work.sent_bytes());
            self.tally.latency.saturating_record(latency_ns);
        }
        self.continue_client(turn, index);
    }

    /// The client has a free place.
    fn continue_client(&mut self, turn: &mut Turn<'_>, index: usize) {
        if self.rate.is_none() {
            self.ask_next(turn, index, turn.now.mono);
        }
    }

    fn on_up(&mut self, turn: &mut Turn<'_>) {
        let up = |client: &Client| matches!(client.state, State::Up { .. });
        if self.clients.iter().all(up) {
            self.phase = Phase::Idle;
        }
        self.connect_next(turn);
    }

    fn on_stats(&mut self, turn: &Turn<'_>, frame: Span) {
        let decoded = Header::decode(turn.arena.get(frame));
        let stats = decoded.ok().and_then(|(_, body)| Stats::decode_all(body).ok());
        let Some(stats) = stats else {
            return self.fail("the server's counters make no sense; is it of another version?");
        };
        self.stats_wanted -= 1;
        let end = usize::from(matches!(self.phase, Phase::Draining));
        let so_far = self.counters[end].unwrap_or_default();
        self.counters[end] = Some(so_far.plus(&LaneUsage::of(&stats)));
    }

    fn on_time(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        match self.phase {
            Phase::Warming { until, measured_ns } if now >= until && self.unanswered_count == 0 => {
                self.phase = Phase::Measuring { from: now, until: after_ns(now, measured_ns) };
                self.ask_stats(turn);
            }
            Phase::Measuring { from, until }
                if now >= until && self.stats_wanted == 0 && self.tally.op_count > 0 =>
            {
                self.tally.measured_ns = now.since_ns(from);
                self.phase = Phase::Draining;
                self.ask_stats(turn);
            }
            Phase::Draining if self.stats_wanted == 0 && self.is_quiet() => {
                self.phase = Phase::Idle;
            }
            Phase::Connecting
            | Phase::Idle
            | Phase::Warming { .. }
            | Phase::Measuring { .. }
            | Phase::Draining => {}
        }
    }

    fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| client.counts || client.is_idle())
    }
}

impl Core for Load {
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else comes is an error")]
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                if let Some(index) = self.by_conn.get(&conn).copied() {
                    self.on_frame(turn, index, frame);
                }
            }
            Event::Net(NetEvent::Sealed { conn, channel, .. }) => {
                self.sealed = Some((conn, channel))
            }
            Event::Net(NetEvent::Connected { ticket, conn }) => {
                let sealed = self.sealed.take().filter(|(sealed, _)| *sealed == conn);
                let channel = sealed.map_or(wire::PLAIN, |(_, channel)| channel);
                let index = usize::try_from(ticket.0).unwrap_or(usize::MAX);
                self.by_conn.insert(conn, index);
                let client = &mut self.clients[index];
                match client.send_hello(turn, (conn, channel), &self.shape.handshake) {
                    Ok(()) if matches!(client.state, State::Up { .. }) => self.on_up(turn),
                    Ok(()) => {}
                    Err(error) => self.fail(format!("{error:#}")),
                }
            }
            Event::Net(NetEvent::ConnectFailed { reason: CloseReason::Failed(errno), .. }) => {
                let error = std::io::Error::from_raw_os_error(i32::from(errno.0));
                self.fail(format!("cannot connect to the server: {error}"));
            }
            Event::Net(NetEvent::ConnectFailed { reason, .. }) => {
                self.fail(format!("cannot connect to the server: {reason:?}"));
            }
            Event::Net(NetEvent::Closed { reason, .. }) => {
                self.fail(format!("the server closed a connection: {reason:?}"));
            }
            Event::Tick | Event::Stop => {}
            other => self.fail(format!("{other:?} is nothing that a load asked for")),
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        self.on_time(turn);
        self.ask_due(turn);
        if self.phase != Phase::Idle && turn.now.mono >= self.wake_at {
            self.wake_at = turn.now.mono.after_ms(WAKE_MS);
            turn.act(Action::WakeAt { at: self.wake_at });
        }
        let due = match self.phase {
            Phase::Warming { until, .. } | Phase::Measuring { until, .. } => until,
            Phase::Connecting | Phase::Idle | Phase::Draining => return,
        };
        // Late operations wait for a reply.
        if due < self.wake_at && due > turn.now.mono {
            turn.act(Action::WakeAt { at: due });
        }
    }
}

const fn after_ns(from: Mono, ns: u64) -> Mono {
    Mono(from.0.saturating_add(ns))
}

/// Bytes of the bulk behind a frame; the ring has discarded them.
fn bulk_bytes(frame: &[u8]) -> u64 {
    let head = frame.first_chunk().and_then(|head| Lengths::peek(head).ok());
    head.map_or(0, |lengths| u64::from(lengths.bulk_bytes))
}

fn is_notification(frame: &[u8]) -> bool {
    let head = frame.first_chunk().and_then(|head| Lengths::peek(head).ok());
    head.is_some_and(|lengths| lengths.kind == FrameKind::CommitNotification)
}

/// The result of an operation, by its place.
enum Done {
    /// It succeeded.
    Place(u16),
    /// The log is full at present: send it again.
    Again(u16),
}

/// The place of a reply, if its operation succeeded or is to be sent again.
fn done_place(frame: &[u8], depth: u32) -> Result<Done, String> {
    let (head, _) =
        Header::decode(frame).map_err(|protocol_error| protocol_error.text().to_owned())?;
    let Header::Reply(Reply { status, op, trace_id, .. }) = head else {
        return Err("the server sent something that is no reply".to_owned());
    };
    let again = status == Status::RetryLater;
    if status != Status::Ok && !again {
        return Err(format!("{} failed: {}", op.row().name, status.text()));
    }
    match u16::try_from(trace_id) {
        Ok(place) if u32::from(place) < depth && again => Ok(Done::Again(place)),
        Ok(place) if u32::from(place) < depth => Ok(Done::Place(place)),
        Ok(_) | Err(_) => Err("a reply belongs to no request".to_owned()),
    }
}
