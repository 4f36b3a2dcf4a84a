//! One client lane on the calling thread: a ring, a client, and the calls in flight.
//!
//! Paths belong to [`crate::session`]. Invariant: no answer is lost, and while the server is away
//! no call takes longer than the connect timeout.

use crate::{ConnectOptions, Error, secret};
use bytes::Bytes;
use client::{Answer, Call, CallId, Client, Refused};
use futures::channel::oneshot;
use interface::{Action, Bulk, Core, Event, Mono, NetEvent, Turn};
use ring::{Mailbox, Ring};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;
use wire::{
    Attr, ClientUuid, Found, Header, LABEL_BYTES_MAX, LaneId, Listing, RefusalReason, Status,
    Wire as _,
};

/// The most calls of one volume in flight.
const CALL_COUNT_MAX: usize = 64;
/// The most open files of one volume.
const HANDLE_COUNT_MAX: usize = 4096;
/// The connect timeout of a volume that is dropped.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the time without a connection is checked.
const CHECK_MS: u64 = 50;

/// An answer that is valid after its turn.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The client's answer; its spans are invalid.
    pub(crate) answer: Answer,
    /// The bytes of its span.
    pub(crate) small: Vec<u8>,
    /// The bytes of its bulk.
    pub(crate) bulk: Bytes,
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

    /// The found entries of an answer that has them.
    pub(crate) fn found(&self) -> Option<Found<'_>> {
        let Answer::Found(_) = self.answer else { return None };
        Found::decode_all(&self.small).ok()
    }
}

/// The frontend that the ring drives: the client, and its answers.
#[derive(Debug)]
struct Frontend {
    client: Client,
    arrived: Vec<(CallId, Result<Answer, Status>, Vec<u8>)>,
    away_since: Option<Mono>,
    now: Mono,
    /// The server's clock in its last reply.
    server_time_ns: Option<u64>,
}

impl Core for Frontend {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        if let Event::Net(NetEvent::Frame { frame, .. }) = &event {
            let time_ns = Header::reply_time_ns(turn.arena.get(*frame));
            self.server_time_ns = time_ns.or(self.server_time_ns);
        }
        self.client.apply(turn, event);
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        self.client.settle(turn);
        while let Some((id, result)) = self.client.next_answer() {
            let small = result.map_or(Vec::new(), |answer| small_of(&answer, turn));
            self.arrived.push((id, result, small));
        }
        self.now = turn.now.mono;
        if self.client.is_connected() {
            self.away_since = None;
        } else {
            self.away_since.get_or_insert(self.now);
            turn.act(Action::WakeAt { at: self.now.after_ms(CHECK_MS) });
        }
    }
}

/// The bytes of an answer's span, which is valid in this turn.
fn small_of(answer: &Answer, turn: &Turn<'_>) -> Vec<u8> {
    match answer {
        Answer::Target(span)
        | Answer::Listing(span)
        | Answer::Found(span)
        | Answer::Exports(span)
        | Answer::Inspected(span)
        | Answer::Stats(span)
        | Answer::Counters(span)
        | Answer::Traces(span)
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
        | Answer::Frozen(_) => Vec::new(),
    }
}

/// The bytes of a bulk, which is released; without a copy if they are many.
fn take_bulk(ring: &mut Ring, bulk: Bulk) -> Bytes {
    if let Some(bytes) = ring.detach_bulk(bulk) {
        return Bytes::from_owner(bytes);
    }
    let bytes = Bytes::copy_from_slice(ring.bulk_bytes(bulk));
    ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
    bytes
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server's status.
    Status(Status),
    /// There has been no connection for the connect timeout; `busy`: the server refused because it
    /// has its maximum.
    Away { busy: bool },
    /// The handshake failed.
    Refused(Refused),
    /// The ring failed.
    Ring(io::ErrorKind, String),
}

/// The result of a call, when it is there.
pub(crate) type PendingAnswer = oneshot::Receiver<Result<Reply, Failure>>;

/// The client lane.
pub(crate) struct ClientLane {
    ring: Ring,
    frontend: Frontend,
    connect_timeout: Duration,
    call_last: u64,
    /// Calls in flight, with the receivers of their results.
    calls: HashMap<CallId, oneshot::Sender<Result<Reply, Failure>>>,
    /// Callers that wait until fewer calls are in flight, oldest first.
    queue: VecDeque<oneshot::Sender<()>>,
}

impl ClientLane {
    /// A lane that connects in its next turns. `mailbox`: for wakeups by other threads.
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
        // Errors report a lost connection instead of log lines.
        config.say = Box::new(|_, _| {});
        let ring = Ring::new(config).map_err(Error::Ring)?;
        let client = Client::new(client_config(options).map_err(Error::Ring)?);
        let frontend = Frontend {
            client,
            arrived: Vec::new(),
            away_since: None,
            now: Mono::default(),
            server_time_ns: None,
        };
        Ok(Self {
            ring,
            frontend,
            connect_timeout: options.connect_timeout,
            call_last: 0,
            calls: HashMap::new(),
            queue: VecDeque::new(),
        })
    }

    /// Whether all callers get other ids.
    pub(crate) fn are_ids_replaced(&self) -> bool {
        self.frontend.client.are_ids_replaced()
    }

    /// Whether the server trusts this client's root.
    pub(crate) fn is_root_trusted(&self) -> bool {
        self.frontend.client.is_root_trusted()
    }

    /// Whether the export is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.frontend.client.is_read_only()
    }

    /// The server's clock in its last reply, nanoseconds since 1970.
    pub(crate) const fn server_time_ns(&self) -> Option<u64> {
        self.frontend.server_time_ns
    }

    /// The export's root inode, once a Welcome was received.
    pub(crate) const fn root(&self) -> Option<wire::InodeNo> {
        self.frontend.client.root()
    }

    /// The server's map, once a Welcome was received.
    pub(crate) fn map(&self) -> Option<&wire::Map> {
        self.frontend.client.map()
    }

    /// Whether a call may begin now.
    pub(crate) fn has_space(&self) -> bool {
        self.calls.len() < CALL_COUNT_MAX
    }

    /// Completes when the next call may begin; `None`: now.
    pub(crate) fn permit(&mut self) -> Option<oneshot::Receiver<()>> {
        if self.has_space() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.queue.push_back(sender);
        Some(receiver)
    }

    /// Begins a call; fewer than the maximum are in flight.
    pub(crate) fn begin(&mut self, call: &Call<'_>) -> PendingAnswer {
        self.call_last += 1;
        let id = CallId(self.call_last);
        let (sender, receiver) = oneshot::channel();
        self.calls.insert(id, sender);
        let frontend = &mut self.frontend;
        self.ring.with(|turn| {
            frontend.client.call(turn, id, *call);
            // Sent now: the next turn sleeps until an event.
            frontend.settle(turn);
        });
        receiver
    }

    /// Delivers the answers that arrived; if there are none, sleeps until an event. When there is
    /// no connection for too long, all calls fail. When the ring fails, all calls fail and there
    /// will be no further event: `false`.
    pub(crate) fn turn(&mut self) -> bool {
        if self.take_answers() {
            return true;
        }
        if !self.calls.is_empty() && self.is_away() {
            let client = &self.frontend.client;
            let busy = client.temporary_refusal() == Some(RefusalReason::Busy);
            let away = Failure::Away { busy };
            let failure = client.certificate_refusal().map_or(away, Failure::Refused);
            self.fail(&failure);
            return true;
        }
        match self.ring.turn(&mut self.frontend) {
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
            // The caller may have given up waiting.
            drop(caller.send(Err(failure.clone())));
        }
        self.admit_waiting();
    }

    /// Copies bytes to a buffer of the ring.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<Bulk, Error> {
        let full = || Error::Ring(io::Error::new(io::ErrorKind::OutOfMemory, "no buffer free"));
        self.ring.bulk_of(bytes).ok_or_else(full)
    }

    /// Releases such a buffer.
    pub(crate) fn release(&mut self, bulk: Bulk) {
        self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
    }

    /// From now on an absent server is given up soon.
    pub(crate) fn shorten_timeout(&mut self) {
        self.connect_timeout = self.connect_timeout.min(LEAVE_TIMEOUT);
        // The server may be reachable again: the timeout restarts.
        self.frontend.away_since = None;
    }

    /// The reports since the last call.
    pub(crate) fn take_reports(&mut self) -> Vec<client::Report> {
        self.frontend.client.take_reports()
    }

    /// Delivers answers; whether there were any.
    fn take_answers(&mut self) -> bool {
        let arrived = !self.frontend.arrived.is_empty();
        let refusal = self.frontend.client.refusal();
        for (id, result, small) in self.frontend.arrived.drain(..) {
            let bulk = match result {
                Ok(Answer::Bytes(Some(bulk)) | Answer::List { bulk: Some(bulk), .. }) => {
                    take_bulk(&mut self.ring, bulk)
                }
                Ok(_) | Err(_) => Bytes::new(),
            };
            let Some(caller) = self.calls.remove(&id) else { continue };
            let result = result.map(|answer| Reply { answer, small, bulk });
            let fail = |status| refusal.map_or(Failure::Status(status), Failure::Refused);
            drop(caller.send(result.map_err(fail)));
        }
        self.admit_waiting();
        arrived
    }

    /// Lets waiting callers begin their calls.
    fn admit_waiting(&mut self) {
        let free_count = CALL_COUNT_MAX.saturating_sub(self.calls.len());
        for waiting in self.queue.drain(..free_count.min(self.queue.len())) {
            // The caller may have given up waiting.
            waiting.send(()).ok();
        }
    }

    fn is_away(&self) -> bool {
        let Some(since) = self.frontend.away_since else { return false };
        Duration::from_nanos(self.frontend.now.since_ns(since)) >= self.connect_timeout
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
        host_name: host_name(),
        job: job(),
        predecessor: ClientUuid::NONE,
        seed: random()?,
        calls_max: CALL_COUNT_MAX,
        handles_max: HANDLE_COUNT_MAX,
        replay_bytes_max: client::REPLAY_BYTES_MAX,
        rules: wire::Rules::default(),
    })
}

/// The name of this host.
#[must_use]
pub fn host_name() -> Vec<u8> {
    label_of(rustix::system::uname().nodename().to_bytes())
}

/// What this process is used for, for the counters of servers: `LANEFS_JOB`.
fn job() -> Vec<u8> {
    label_of(std::env::var_os("LANEFS_JOB").unwrap_or_default().as_bytes())
}

fn label_of(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(LABEL_BYTES_MAX)].to_vec()
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

/// The first 32 hexadecimal digits of a file as 16 bytes; zeros without a file. `/etc/machine-id`
/// has the host's id, `/proc/sys/kernel/random/boot_id` that of its boot.
#[must_use]
pub fn hex_file(path: &str) -> [u8; 16] {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    let mut bytes = [0; 16];
    // A shorter file is none.
    hex::decode_to_slice(digits, &mut bytes).ok();
    bytes
}
