//! One client lane on the calling thread: a ring, a client and the waiting for answers.
//!
//! It leaves paths to [`crate::volume`]. Invariant: no answer is lost, and no wait is longer than
//! the connect timeout while the server is away.

use crate::volume::refused;
use crate::{ConnectOptions, Error};
use client::{Answer, Call, CallId, Client};
use door::{Action, Brain, Bulk, Event, Mono, Turn};
use ring::Ring;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::{Attr, ClientUuid, Found, HandleId, LaneId, Listing, Status, Wire as _};

/// Calls of one volume that may be under way together.
const CALL_COUNT_MAX: usize = 64;
/// Closes of one volume that may be under way together.
const CLOSE_COUNT_MAX: usize = 32;
/// Files of one volume that may be open together.
const HANDLE_COUNT_MAX: usize = 4096;
/// How long one that nobody waits for looks for its server.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the time without a server is looked at.
const LOOK_MS: u64 = 50;

/// An answer that outlives its turn.
#[derive(Debug)]
pub(crate) struct Reply {
    /// What the client answered; its spans are void.
    pub(crate) answer: Answer,
    /// The bytes of its span, or of what it read.
    pub(crate) small: Vec<u8>,
}

impl Reply {
    /// The attributes of an answer that has them.
    pub(crate) fn entry(&self) -> Option<Attr> {
        if let Answer::Entry(attr) = self.answer { Some(attr) } else { None }
    }

    /// The listing of an answer that has one.
    pub(crate) fn listing(&self) -> Option<Listing<'_>> {
        let Answer::Listing(_) = self.answer else { return None };
        Listing::decode_all(&self.small).ok()
    }

    /// What was found, of an answer that has that.
    pub(crate) fn found(&self) -> Option<Found<'_>> {
        let Answer::Found(_) = self.answer else { return None };
        Found::decode_all(&self.small).ok()
    }
}

/// The brain that the ring drives: the client, and the answers that came.
#[derive(Debug)]
struct Face {
    client: Client,
    came: Vec<(CallId, Result<Answer, Status>, Vec<u8>)>,
    away_since: Option<Mono>,
    now: Mono,
}

impl Brain for Face {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        self.client.apply(turn, event);
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        self.client.settle(turn);
        while let Some((id, result)) = self.client.next_answer() {
            let small = result.map_or(Vec::new(), |answer| small_of(&answer, turn));
            self.came.push((id, result, small));
        }
        self.now = turn.now.mono;
        if self.client.is_connected() {
            self.away_since = None;
        } else {
            self.away_since.get_or_insert(self.now);
            turn.act(Action::WakeAt { at: self.now.after_ms(LOOK_MS) });
        }
    }
}

/// The bytes behind an answer, which are of this turn.
fn small_of(answer: &Answer, turn: &Turn<'_>) -> Vec<u8> {
    match answer {
        Answer::Target(span)
        | Answer::Listing(span)
        | Answer::Found(span)
        | Answer::Value(span) => turn.arena.get(*span).to_vec(),
        Answer::Done
        | Answer::Entry(_)
        | Answer::Created { .. }
        | Answer::Opened { .. }
        | Answer::Space(_)
        | Answer::Bytes(_)
        | Answer::Written(_)
        | Answer::Sought(_)
        | Answer::LockFound(_)
        | Answer::Stats(_) => Vec::new(),
    }
}

/// The lane.
pub(crate) struct ClientLane {
    ring: Ring,
    face: Face,
    address: SocketAddr,
    connect_timeout: Duration,
    call_last: u64,
    /// Closes that nobody has waited for yet, oldest first.
    closing: VecDeque<(CallId, PathBuf)>,
    /// The goodbye was said.
    left: bool,
    answers: HashMap<CallId, Result<Reply, Status>>,
}

impl ClientLane {
    /// Connects and waits for the welcome.
    pub(crate) fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let mut config = ring::Config::new(LaneId(0));
        config.driver = options.driver;
        config.server = Some(options.address);
        // What the client has to say about a lost connection, our errors say.
        config.say = Box::new(|_, _| {});
        let ring = Ring::new(config).map_err(Error::Ring)?;
        let client = Client::new(client_config(options).map_err(Error::Ring)?);
        let face = Face { client, came: Vec::new(), away_since: None, now: Mono::default() };
        let mut lane = Self {
            ring,
            face,
            address: options.address,
            connect_timeout: options.connect_timeout,
            call_last: 0,
            closing: VecDeque::new(),
            left: false,
            answers: HashMap::new(),
        };
        lane.ask("ping", Path::new("/"), &Call::Ping(LaneId(0)))?;
        Ok(lane)
    }

    /// Whether the server lets our root act as root.
    pub(crate) const fn is_root_trusted(&self) -> bool {
        self.face.client.is_root_trusted()
    }

    /// The server's shape, once a Welcome has told it.
    pub(crate) fn map(&self) -> Option<wire::Map> {
        self.face.client.map()
    }

    /// Asks and waits for the answer.
    pub(crate) fn ask(
        &mut self,
        op: &'static str,
        path: &Path,
        call: &Call<'_>,
    ) -> Result<Reply, Error> {
        let id = self.begin(call);
        self.wait(op, path, id)
    }

    /// Begins a call; [`Self::wait`] for it later.
    pub(crate) fn begin(&mut self, call: &Call<'_>) -> CallId {
        self.call_last += 1;
        let id = CallId(self.call_last);
        let face = &mut self.face;
        self.ring.with(|turn| {
            face.client.call(turn, id, *call);
            // Sent now: the next turn sleeps until something happens.
            face.settle(turn);
        });
        id
    }

    /// Waits for the answer of a call that was begun.
    pub(crate) fn wait(
        &mut self,
        op: &'static str,
        path: &Path,
        id: CallId,
    ) -> Result<Reply, Error> {
        loop {
            self.take_answers();
            if let Some(result) = self.answers.remove(&id) {
                return result.map_err(|status| self.error(op, path, status));
            }
            self.check_away()?;
            self.ring.turn(&mut self.face).map_err(Error::Ring)?;
        }
    }

    /// Puts bytes where the ring can send them from.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<Bulk, Error> {
        let full = || Error::Ring(io::Error::new(io::ErrorKind::OutOfMemory, "no buffer free"));
        self.ring.bulk_of(bytes).ok_or_else(full)
    }

    /// Waits until everything that was answered is durable, and has the server forget us.
    pub(crate) fn leave(&mut self) -> Result<(), Error> {
        let root = Path::new("/");
        if std::mem::replace(&mut self.left, true) {
            return Ok(());
        }
        let closed = self.reap_closes(0);
        let synced = self.ask("sync", root, &Call::SyncAll).map(drop);
        if matches!(synced, Ok(()) | Err(Error::Op { .. })) {
            // Without it the server remembers us for a while, which harms nobody.
            drop(self.ask("goodbye", root, &Call::Goodbye));
        }
        closed.and(synced)
    }

    /// As [`Self::leave`], but a server that is away is given up soon.
    pub(crate) fn leave_soon(&mut self) -> Result<(), Error> {
        self.connect_timeout = self.connect_timeout.min(LEAVE_TIMEOUT);
        // It may be back by now: the time counts from the next look.
        self.face.away_since = None;
        self.leave()
    }

    /// Closes a file without waiting for it. An error is an earlier close's.
    pub(crate) fn close(&mut self, handle: HandleId, path: PathBuf) -> Result<(), Error> {
        let id = self.begin(&Call::Close(handle));
        self.closing.push_back((id, path));
        self.reap_closes(CLOSE_COUNT_MAX)
    }

    /// Waits until no more than so many closes are under way; the first error of those that ended.
    pub(crate) fn reap_closes(&mut self, left_count: usize) -> Result<(), Error> {
        let mut outcome = Ok(());
        while self.closing.len() > left_count {
            let Some((id, path)) = self.closing.pop_front() else { break };
            let closed = self.wait("close", &path, id).map(drop);
            outcome = outcome.and(closed);
        }
        outcome
    }

    /// What people must be told since the last time.
    pub(crate) fn take_reports(&mut self) -> Vec<client::Report> {
        self.face.client.take_reports()
    }

    /// Gives such bytes back.
    pub(crate) fn release(&mut self, bulk: Bulk) {
        self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
    }

    fn take_answers(&mut self) {
        for (id, result, mut small) in self.face.came.drain(..) {
            if let Ok(Answer::Bytes(Some(bulk))) = result {
                small.extend_from_slice(self.ring.bulk_bytes(bulk));
                self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
            }
            self.answers.insert(id, result.map(|answer| Reply { answer, small }));
        }
    }

    fn check_away(&self) -> Result<(), Error> {
        let Some(since) = self.face.away_since else { return Ok(()) };
        if Duration::from_nanos(self.face.now.since_ns(since)) < self.connect_timeout {
            return Ok(());
        }
        Err(Error::Unreachable { address: self.address })
    }

    fn error(&self, op: &'static str, path: &Path, status: Status) -> Error {
        match self.face.client.refusal() {
            Some(reason) => Error::Refused { address: self.address, reason },
            None => refused(op, path, status),
        }
    }
}

fn client_config(options: &ConnectOptions) -> io::Result<client::Config> {
    Ok(client::Config {
        client: ClientUuid(random()?),
        lane: LaneId(0),
        lane_count: 1,
        secret: options.secret.clone(),
        export: options.export.as_bytes().to_vec(),
        host_id: hex_file("/etc/machine-id"),
        host_boot_id: hex_file("/proc/sys/kernel/random/boot_id"),
        predecessor: ClientUuid::NONE,
        seed: random()?,
        calls_max: CALL_COUNT_MAX,
        handles_max: HANDLE_COUNT_MAX,
        replay_bytes_max: client::REPLAY_BYTES_MAX,
        rules: wire::Rules::default(),
    })
}

/// Random bytes from the kernel.
///
/// # Errors
/// When the kernel has none to give.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled_bytes = 0;
    while filled_bytes < N {
        let rest = &mut bytes[filled_bytes..];
        filled_bytes += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// The first 32 hexadecimal digits of a file as 16 bytes; zeros where there is no such file. The
/// host's id is in `/etc/machine-id`, its boot's in `/proc/sys/kernel/random/boot_id`.
#[must_use]
pub fn hex_file(path: &str) -> [u8; 16] {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let digits = text.chars().filter_map(|digit| digit.to_digit(16));
    let digits: Vec<u8> = digits.filter_map(|digit| u8::try_from(digit).ok()).take(32).collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |value, digit| value << 4 | digit);
    }
    bytes
}
