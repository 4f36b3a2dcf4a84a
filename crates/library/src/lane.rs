//! One client lane on the calling thread: a ring, a client, and the calls under way.
//!
//! It leaves paths to [`crate::session`]. Invariant: no answer is lost, and no call is under way for
//! longer than the connect timeout while the server is away.

use crate::{ConnectOptions, Error, secret};
use client::{Answer, Call, CallId, Client, Refused};
use futures::channel::oneshot;
use interface::{Action, Bulk, Core, Event, Mono, Turn};
use ring::{Mailbox, Ring};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use wire::{Attr, ClientUuid, Found, LaneId, Listing, RefusalReason, Status, Wire as _};

/// Calls of one volume that may be under way together.
const CALL_COUNT_MAX: usize = 64;
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

/// The core that the ring drives: the client, and the answers that came.
#[derive(Debug)]
struct Face {
    client: Client,
    came: Vec<(CallId, Result<Answer, Status>, Vec<u8>)>,
    away_since: Option<Mono>,
    now: Mono,
}

impl Core for Face {
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
        | Answer::Exports(span)
        | Answer::Inspected(span)
        | Answer::Value(span) => turn.arena.get(*span).to_vec(),
        Answer::Done
        | Answer::Entry(_)
        | Answer::Created { .. }
        | Answer::Opened { .. }
        | Answer::Space(_)
        | Answer::Bytes(_)
        | Answer::List { .. }
        | Answer::Written(_)
        | Answer::Sought(_)
        | Answer::Renamed(_)
        | Answer::LockFound(_)
        | Answer::Frozen(_)
        | Answer::Stats(_) => Vec::new(),
    }
}

/// Why a call has no answer of the server.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server's word.
    Status(Status),
    /// There is no connection, and there was none for as long as may be; whether the server said that
    /// it has too many.
    Away { busy: bool },
    /// The handshake ended with a no.
    Refused(Refused),
    /// The ring itself is broken.
    Ring(io::ErrorKind, String),
}

/// What comes of a call.
pub(crate) type Answered = oneshot::Receiver<Result<Reply, Failure>>;

/// The lane.
pub(crate) struct ClientLane {
    ring: Ring,
    face: Face,
    connect_timeout: Duration,
    call_last: u64,
    /// Calls under way, and who is to be told.
    calls: HashMap<CallId, oneshot::Sender<Result<Reply, Failure>>>,
    /// Calls that wait for fewer being under way, oldest first.
    queue: VecDeque<oneshot::Sender<()>>,
}

impl ClientLane {
    /// A lane that connects in its next turns. `mailbox`: for being woken by other threads.
    pub(crate) fn new(options: &ConnectOptions, mailbox: Option<Mailbox>) -> Result<Self, Error> {
        let mut config = ring::Config::new(LaneId(0));
        config.driver = options.driver;
        config.server = Some(options.address);
        config.sealing = options.sealing;
        if let Some(certificates) = &options.certificates {
            config.sealing = ring::Sealing::All;
            config.client_seals = Some(certificates.seals());
        }
        config.mailbox = mailbox;
        if let Some(path) = options.secret_file.clone() {
            config.read_secrets = Some(Arc::new(move || secret::read_all(&path).ok()));
        }
        // What the client has to say about a lost connection, our errors say.
        config.say = Box::new(|_, _| {});
        let ring = Ring::new(config).map_err(Error::Ring)?;
        let client = Client::new(client_config(options).map_err(Error::Ring)?);
        let face = Face { client, came: Vec::new(), away_since: None, now: Mono::default() };
        Ok(Self {
            ring,
            face,
            connect_timeout: options.connect_timeout,
            call_last: 0,
            calls: HashMap::new(),
            queue: VecDeque::new(),
        })
    }

    /// Whether the server lets our root act as root.
    pub(crate) const fn is_root_trusted(&self) -> bool {
        self.face.client.is_root_trusted()
    }

    /// Whether nothing is changed through this export.
    pub(crate) const fn is_read_only(&self) -> bool {
        self.face.client.is_read_only()
    }

    /// The inode that is the root, once a Welcome has told it.
    pub(crate) const fn root(&self) -> Option<wire::InodeNo> {
        self.face.client.root()
    }

    /// The server's shape, once a Welcome has told it.
    pub(crate) fn map(&self) -> Option<wire::Map> {
        self.face.client.map()
    }

    /// Told when the next call may begin; `None`: now.
    pub(crate) fn room(&mut self) -> Option<oneshot::Receiver<()>> {
        if self.calls.len() < CALL_COUNT_MAX {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.queue.push_back(sender);
        Some(receiver)
    }

    /// Begins a call, for which there is room.
    pub(crate) fn begin(&mut self, call: &Call<'_>) -> Answered {
        self.call_last += 1;
        let id = CallId(self.call_last);
        let (sender, receiver) = oneshot::channel();
        self.calls.insert(id, sender);
        let face = &mut self.face;
        self.ring.with(|turn| {
            face.client.call(turn, id, *call);
            // Sent now: the next turn sleeps until something happens.
            face.settle(turn);
        });
        receiver
    }

    /// Hands out the answers that came; if there were none, sleeps until something happens. When there
    /// is no connection for too long, all calls fail; so they do when the ring is broken, and then
    /// nothing will ever happen again: `false`.
    pub(crate) fn turn(&mut self) -> bool {
        if self.take_answers() {
            return true;
        }
        if !self.calls.is_empty() && self.is_away() {
            let client = &self.face.client;
            let busy = client.turned_away() == Some(RefusalReason::Busy);
            let away = Failure::Away { busy };
            let failure = client.waits_for().map_or(away, Failure::Refused);
            self.fail(&failure);
            return true;
        }
        match self.ring.turn(&mut self.face) {
            Ok(_) => {
                self.take_answers();
                true
            }
            Err(error) => {
                self.fail(&Failure::Ring(error.kind(), error.to_string()));
                false
            }
        }
    }

    fn fail(&mut self, failure: &Failure) {
        for (_, caller) in self.calls.drain() {
            // Who does not wait any more need not be told.
            drop(caller.send(Err(failure.clone())));
        }
        self.let_begin();
    }

    /// Puts bytes where the ring can send them from.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<Bulk, Error> {
        let full = || Error::Ring(io::Error::new(io::ErrorKind::OutOfMemory, "no buffer free"));
        self.ring.bulk_of(bytes).ok_or_else(full)
    }

    /// PrivilegedBits such bytes back.
    pub(crate) fn release(&mut self, bulk: Bulk) {
        self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
    }

    /// From here on a server that is away is given up soon.
    pub(crate) fn hurry(&mut self) {
        self.connect_timeout = self.connect_timeout.min(LEAVE_TIMEOUT);
        // It may be back by now: the time counts from the next look.
        self.face.away_since = None;
    }

    /// What people must be told since the last time.
    pub(crate) fn take_reports(&mut self) -> Vec<client::Report> {
        self.face.client.take_reports()
    }

    /// Whether any came.
    fn take_answers(&mut self) -> bool {
        let came = !self.face.came.is_empty();
        let refusal = self.face.client.refusal();
        for (id, result, mut small) in self.face.came.drain(..) {
            if let Ok(Answer::Bytes(Some(bulk)) | Answer::List { bulk: Some(bulk), .. }) = result {
                small.extend_from_slice(self.ring.bulk_bytes(bulk));
                self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
            }
            let Some(caller) = self.calls.remove(&id) else { continue };
            let result = result.map(|answer| Reply { answer, small });
            let fail = |status| refusal.map_or(Failure::Status(status), Failure::Refused);
            drop(caller.send(result.map_err(fail)));
        }
        self.let_begin();
        came
    }

    /// Tells those that wait for room.
    fn let_begin(&mut self) {
        let room = CALL_COUNT_MAX.saturating_sub(self.calls.len());
        for waiting in self.queue.drain(..room.min(self.queue.len())) {
            // Whoever waited and is gone needs no room.
            waiting.send(()).ok();
        }
    }

    fn is_away(&self) -> bool {
        let Some(since) = self.face.away_since else { return false };
        Duration::from_nanos(self.face.now.since_ns(since)) >= self.connect_timeout
    }
}

fn client_config(options: &ConnectOptions) -> io::Result<client::Config> {
    Ok(client::Config {
        client: ClientUuid(random()?),
        lane: LaneId(0),
        lane_count: 1,
        secrets: match options.certificates {
            Some(_) => wire::Secret::certified(),
            None => options.secret,
        }
        .into(),
        export: options.export.as_bytes().to_vec(),
        purpose: options.purpose,
        root: None,
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
