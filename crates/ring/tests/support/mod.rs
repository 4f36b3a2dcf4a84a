//! Shared by the ring's tests: cores made of closures, lanes on threads, frames.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

use interface::{
    Action, Core, Event, NetAction, NetEvent, Object, ObjectAction, ObjectEvent, Ticket, Turn,
};
use procfs::process::Process;
use ring::{Config, Counters, DriverChoice, Mailbox, Mesh, Ring, Stopper};
use std::fmt::Debug;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire::{
    FrameKind, Getattr, HEADER_BYTES, Header, InodeNo, LaneId, Lengths, Op, Request, SessionId,
    Wire, Xid,
};

/// A core that is one closure.
pub struct Closure<F>(pub F);

impl<F: FnMut(&mut Turn<'_>, Event)> Core for Closure<F> {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        // Every client of these tests is on this host.
        if !matches!(event, Event::Net(NetEvent::FromThisHost { .. })) {
            (self.0)(turn, event);
        }
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

/// How long an event may take before a test fails; no test waits for it.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

/// In milliseconds, longer than any test takes.
pub const NEVER_MS: u64 = 3_600_000;

/// Takes turns until `until` returns true. A test that gives up prints its core's events.
#[track_caller]
pub fn turns<B: Core + Debug>(
    ring: &mut Ring,
    core: &mut B,
    mut until: impl FnMut(&mut B) -> bool,
) {
    if until(core) {
        return;
    }
    let given_up = Instant::now() + GIVE_UP_AFTER;
    // Otherwise a lane without events would sleep for ever.
    ring.with(|turn| {
        let at = turn.now.mono.after_ms(u64::try_from(GIVE_UP_AFTER.as_millis()).unwrap());
        turn.act(Action::WakeAt { at });
    });
    while !until(core) {
        let counters = ring.counters();
        assert!(Instant::now() < given_up, "not in {GIVE_UP_AFTER:?}: {core:?}, {counters:?}");
        ring.turn(core).unwrap();
    }
}

/// A core that records its events and their contents.
#[derive(Default)]
pub struct Recorder {
    pub events: Vec<Event>,
    pub frames: Vec<Vec<u8>>,
    pub maps: Vec<wire::Map>,
    /// Checksums, each with the number of bytes that it covers.
    pub sums: Vec<Vec<(u32, u32)>>,
    /// Bytes for the log, as encoded.
    pub loaded: Vec<Vec<u8>>,
}

impl Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let frame_bytes: Vec<usize> = self.frames.iter().map(Vec::len).collect();
        write!(f, "events {:?}, frames of {frame_bytes:?} bytes", self.events)
    }
}

impl Core for Recorder {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        if let Event::Net(NetEvent::Frame { frame, .. })
        | Event::Net(NetEvent::HandedOver { hello: frame, .. }) = event
        {
            self.frames.push(turn.arena.get(frame).to_vec());
        }
        if let Event::Map(map) = event {
            self.maps.push(wire::Map::decode_all(turn.arena.get(map)).unwrap());
        }
        if let Event::Object(ObjectEvent::Sums { result: Ok(sums), .. })
        | Event::Object(ObjectEvent::Written { result: Ok(sums), .. }) = event
        {
            let numbers: Vec<u32> = turn
                .arena
                .get(sums)
                .chunks(4)
                .map(|number| u32::from_le_bytes(number.try_into().unwrap()))
                .collect();
            self.sums.push(numbers.chunks(2).map(|sum| (sum[0], sum[1])).collect());
        }
        if let Event::Object(ObjectEvent::Loaded { result: Ok(loaded), .. }) = event {
            self.loaded.push(turn.arena.get(loaded).to_vec());
        }
        if !matches!(event, Event::Tick | Event::Net(NetEvent::FromThisHost { .. })) {
            self.events.push(event);
        }
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

/// Performs an action and takes turns until the next event.
pub fn ask(ring: &mut Ring, recorder: &mut Recorder, action: Action) -> Event {
    let known_count = recorder.events.len();
    ring.with(|turn| turn.act(action));
    turns(ring, recorder, |recorder| recorder.events.len() > known_count);
    recorder.events[known_count]
}

/// Writes bytes to an object at an offset and returns the result. `block_bytes` is that of
/// [`ObjectAction::Write`].
pub fn write(
    ring: &mut Ring,
    recorder: &mut Recorder,
    (ticket, object, object_offset): (Ticket, Object, u64),
    block_bytes: u32,
    bytes: &[u8],
) -> Event {
    let bulk = ring.bulk_of(bytes).unwrap();
    let known_count = recorder.events.len();
    ring.with(|turn| {
        turn.act(ObjectAction::Write { ticket, object, object_offset, bulk, block_bytes });
        turn.act(Action::Release { buf: bulk.buf });
    });
    turns(ring, recorder, |recorder| recorder.events.len() > known_count);
    recorder.events[known_count]
}

/// A lane on a thread of its own.
pub struct Lane {
    pub stopper: Stopper,
    pub thread: JoinHandle<Counters>,
}

impl Lane {
    pub fn stop(self) -> Counters {
        self.stopper.stop();
        self.thread.join().unwrap()
    }
}

/// Records a skipped test, where `cargo xtask ci` reads it.
pub fn skip(what: &str, why: &str) {
    eprintln!("SKIPPED: {what}: {why}");
    if let Some(path) = std::env::var_os("LANEFS_SKIPPED_FILE") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("{what}: {why}\n").as_bytes()).unwrap();
    }
}

/// The configuration of a ring on the tested driver. Its deadlines are out of reach: a test of one
/// of them sets it.
pub fn ring_config(lane: LaneId) -> Config {
    let mut config = Config::new(lane);
    config.driver = DriverChoice::Only(super::DRIVER);
    config.engine = super::ENGINE;
    config.direct = super::DIRECT && takes_direct();
    config.limits.handshake_ms_max = NEVER_MS;
    config.limits.stall_ms_max = NEVER_MS;
    config.limits.starving_stall_ms_max = NEVER_MS;
    config.limits.frame_ms_max = NEVER_MS;
    config.limits.close_ms_max = NEVER_MS;
    config.limits.stop_ms_max = NEVER_MS;
    config
}

/// Whether the tests' files can be read past the page cache.
pub fn takes_direct() -> bool {
    let dir = File::open(std::env::temp_dir()).unwrap();
    let taken = ring::check_direct(&dir);
    if let Err(error) = &taken {
        static SAID: std::sync::Once = std::sync::Once::new();
        SAID.call_once(|| skip("objects past the page cache", &error.to_string()));
    }
    taken.is_ok()
}

/// Starts a lane. The configuration and the core are made on its thread.
pub fn start<B: Core>(
    mailbox: Mailbox,
    make: impl FnOnce(&mut Config) -> B + Send + 'static,
) -> Lane {
    let stopper = mailbox.stopper();
    let thread = std::thread::spawn(move || {
        let mut config = ring_config(mailbox.lane());
        config.mailbox = Some(mailbox);
        let mut core = make(&mut config);
        let mut ring = Ring::new(config).unwrap();
        while ring.turn(&mut core).unwrap() {}
        ring.counters()
    });
    Lane { stopper, thread }
}

pub fn only_mailbox() -> Mailbox {
    Mesh::mailboxes(1).unwrap().pop().unwrap()
}

/// Echoes frames with their bulk, admits every client, reports how connections ended and which
/// certificates were presented.
pub fn echo(ended: Sender<Event>) -> Closure<impl FnMut(&mut Turn<'_>, Event)> {
    Closure(move |turn: &mut Turn<'_>, event| match event {
        Event::Net(NetEvent::Frame { conn, frame, bulk }) => {
            turn.act(NetAction::admit(conn));
            turn.act(NetAction::Send { conn, frame, bulk });
            if let Some(bulk) = bulk {
                turn.act(Action::Release { buf: bulk.buf });
            }
        }
        Event::Stop => turn.act(Action::Stopped),
        Event::Net(NetEvent::Closed { .. })
        | Event::Net(NetEvent::CertificateRefused { .. })
        | Event::Net(NetEvent::Sealed { holder: Some(_), .. }) => {
            // Not every test receives it.
            ended.send(event).ok();
        }
        _ => {}
    })
}

/// An echo server on a thread.
pub fn echo_server(
    tune: impl FnOnce(&mut Config) + Send + 'static,
) -> (Lane, SocketAddr, Receiver<Event>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    let lane = start(only_mailbox(), move |config| {
        config.listener = Some(listener.into());
        tune(config);
        echo(sender)
    });
    (lane, address, receiver)
}

/// A request frame with its bulk behind it.
pub fn frame(xid: u64, bulk: &[u8]) -> Vec<u8> {
    let session = SessionId(1);
    let request = Request { session, xid: Xid(xid), conn_epoch: 1, ..Request::of(Op::Getattr) };
    let mut frame = Vec::new();
    let lengths = (u32::try_from(bulk.len()).unwrap(), Some(wire::crc32c(bulk)));
    let lengths = if bulk.is_empty() { None } else { Some(lengths) };
    let body = Getattr { inode: InodeNo(xid) };
    Header::Request(request).encode(&mut frame, lengths, |to| body.encode(to));
    Header::put_sums(&mut frame, None);
    frame.extend_from_slice(bulk);
    frame
}

/// A handshake frame.
pub fn hello(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Header::Handshake(FrameKind::Hello).encode(&mut frame, None, |to| wire::Bytes(body).encode(to));
    Header::put_sums(&mut frame, None);
    frame
}

/// Reads one frame with its bulk.
pub fn read_frame(from: &mut impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut head = [0; HEADER_BYTES];
    from.read_exact(&mut head)?;
    let lengths = Lengths::peek(&head).unwrap();
    let mut frame = head.to_vec();
    frame.resize(lengths.frame_bytes + lengths.bulk_bytes as usize, 0);
    from.read_exact(&mut frame[HEADER_BYTES..])?;
    Ok(frame)
}

/// Pseudo-random bytes from a seed.
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| rng.u8(..)).collect()
}

/// Waits until the peer's kernel has acknowledged all but so many sent bytes.
pub fn taken_but(stream: &TcpStream, left_bytes: usize) {
    let given_up = Instant::now() + GIVE_UP_AFTER;
    loop {
        let mut unacked_bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one integer, for which there is space.
        let result =
            unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut unacked_bytes) };
        assert_eq!(result, 0, "ioctl TIOCOUTQ");
        if usize::try_from(unacked_bytes).unwrap() <= left_bytes {
            return;
        }
        assert!(Instant::now() < given_up, "{unacked_bytes} bytes are not taken");
        std::thread::yield_now();
    }
}

/// A directory of the test's own.
pub fn tempdir() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// One on tmpfs, where there is one: then only the test determines what is in the page cache.
pub fn tempdir_in_memory() -> TempDir {
    let place = Path::new("/dev/shm");
    let is_there = File::open(place).is_ok_and(|place| is_tmpfs(&place));
    if is_there { TempDir::new_in(place).unwrap() } else { tempdir() }
}

/// Whether the file is on tmpfs.
pub fn is_tmpfs(file: &File) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let kind = rustix::fs::fstatfs(file).unwrap().f_type;
    u64::try_from(kind).unwrap() == TMPFS_MAGIC
}

/// Cores of this process's threads with that name, as ranges.
pub fn cores_of(name: &str) -> Vec<Vec<(u32, u32)>> {
    // Threads of other tests come and go.
    let tasks = Process::myself().unwrap().tasks().unwrap().flatten();
    let statuses = tasks.filter_map(|task| task.status().ok());
    let found = statuses.filter(|status| status.name == name);
    found.map(|status| status.cpus_allowed_list.unwrap()).collect()
}

/// Encoded pieces of one object.
pub fn pieces_of(stripe_index: u32, pieces: &[(u64, u32)]) -> Vec<u8> {
    let piece = |&(object_offset, piece_bytes): &(u64, u32)| {
        interface::ObjectPiece { stripe_index, object_offset, piece_bytes }.to_bytes()
    };
    pieces.iter().flat_map(piece).collect()
}
