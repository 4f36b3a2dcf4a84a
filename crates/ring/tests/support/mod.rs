//! What the tests of the ring share: brains made of closures, lanes on threads, frames.
#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

use door::{Action, Brain, Event, Turn};
use ring::{Config, Counters, DriverChoice, Mesh, Post, Ring, Stopper};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use wire::{
    FrameKind, Getattr, HEAD_BYTES, Head, InodeNo, LaneId, Lengths, Op, Request, SessionId, Wire,
    Xid,
};

/// A brain that is one closure.
pub struct Closure<F>(pub F);

impl<F: FnMut(&mut Turn<'_>, Event)> Brain for Closure<F> {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        (self.0)(turn, event);
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

/// Takes turns until `until` says so; a turn that never comes hangs the test, which is a failure.
pub fn turns<B: Brain>(ring: &mut Ring, brain: &mut B, mut until: impl FnMut(&mut B) -> bool) {
    for _ in 0..100_000 {
        if until(brain) {
            return;
        }
        ring.turn(brain).unwrap();
    }
    panic!("nothing came of 100,000 turns");
}

/// A brain that keeps its events, and what they said.
#[derive(Default)]
pub struct Diary {
    pub events: Vec<Event>,
    pub frames: Vec<Vec<u8>>,
}

impl Brain for Diary {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        if let Event::Frame { frame, .. } | Event::Adopted { hello: frame, .. } = event {
            self.frames.push(turn.arena.get(frame).to_vec());
        }
        if event != Event::Tick {
            self.events.push(event);
        }
    }
    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

/// Asks for something and takes turns until the next event.
pub fn ask(ring: &mut Ring, diary: &mut Diary, action: Action) -> Event {
    let known_count = diary.events.len();
    ring.with(|turn| turn.act(action));
    turns(ring, diary, |diary| diary.events.len() > known_count);
    diary.events[known_count]
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

/// Says what was left out, where `cargo xtask ci` reads it.
pub fn skip(what: &str, why: &str) {
    eprintln!("SKIPPED: {what}: {why}");
    if let Some(path) = std::env::var_os("LANEFS_SKIPPED_FILE") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("{what}: {why}\n").as_bytes()).unwrap();
    }
}

/// The configuration of a ring on the driver that is tested.
pub fn ring_config(lane: LaneId) -> Config {
    Config {
        driver: DriverChoice::Only(super::DRIVER),
        engine: super::ENGINE,
        direct: super::DIRECT && takes_direct(),
        ..Config::new(lane)
    }
}

/// Whether files of tests can be read past the page cache.
pub fn takes_direct() -> bool {
    let dir = std::fs::File::open(std::env::temp_dir()).unwrap();
    let taken = ring::check_direct(&dir);
    if let Err(error) = &taken {
        skip("objects past the page cache", &error.to_string());
    }
    taken.is_ok()
}

/// Starts a lane. The configuration and the brain are made on its thread.
pub fn start<B: Brain>(post: Post, make: impl FnOnce(&mut Config) -> B + Send + 'static) -> Lane {
    let stopper = post.stopper();
    let thread = std::thread::spawn(move || {
        let mut config = ring_config(post.lane());
        config.post = Some(post);
        let mut brain = make(&mut config);
        let mut ring = Ring::new(config).unwrap();
        while ring.turn(&mut brain).unwrap() {}
        ring.counters()
    });
    Lane { stopper, thread }
}

pub fn lonely_post() -> Post {
    Mesh::posts(1).unwrap().pop().unwrap()
}

/// Echoes frames with their bulk, admits everybody, reports how connections ended.
pub fn echo(ended: Sender<Event>) -> Closure<impl FnMut(&mut Turn<'_>, Event)> {
    Closure(move |turn: &mut Turn<'_>, event| match event {
        Event::Frame { conn, frame, bulk } => {
            turn.act(Action::Admit { conn });
            turn.act(Action::Send { conn, frame, bulk });
            if let Some(bulk) = bulk {
                turn.act(Action::Release { buf: bulk.buf });
            }
        }
        Event::Stop => turn.act(Action::Stopped),
        Event::Closed { .. } => {
            // Not every test listens.
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
    let lane = start(lonely_post(), move |config| {
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
    Head::Request(request).encode(&mut frame, lengths, |to| body.encode(to));
    frame.extend_from_slice(bulk);
    frame
}

/// A greeting frame.
pub fn hello(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Head::Greeting(FrameKind::Hello).encode(&mut frame, None, |to| wire::Bytes(body).encode(to));
    frame
}

/// Reads one frame with its bulk.
pub fn read_frame(from: &mut impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head)?;
    let lengths = Lengths::peek(&head).unwrap();
    let mut frame = head.to_vec();
    frame.resize(lengths.frame_bytes + lengths.bulk_bytes as usize, 0);
    from.read_exact(&mut frame[HEAD_BYTES..])?;
    Ok(frame)
}

/// Bytes that differ from each other, from a seed.
pub fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..count).map(|_| next()).collect()
}

/// A directory of the test's own, removed when dropped.
pub struct Dir(pub std::path::PathBuf);

impl Dir {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!(
            "lanefs-ring-{name}-{}-{}-{}",
            super::DRIVER.text(),
            super::ENGINE.text(),
            std::process::id()
        ));
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Where threads of this process with that name may run.
pub fn cores_of(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        // Threads of other tests come and go.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        if field("Name:").map(str::trim) == Some(name) {
            found.push(field("Cpus_allowed_list:").unwrap().trim().to_owned());
        }
    }
    found
}
