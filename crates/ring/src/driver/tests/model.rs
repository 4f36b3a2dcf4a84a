//! Random operations: both drivers do what a model of a socket and a file says.

use super::*;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

const SEED_COUNT: u64 = 40;
const STEP_COUNT: usize = 80;
const SPACE_BYTES: usize = 5000;

/// The receive in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PendingRecv {
    space_bytes: usize,
    whole: bool,
}

/// A real socket and file, and their expected state.
struct Fixture {
    socket: UnixStream,
    peer: UnixStream,
    /// Bytes sent by the peer and not received.
    arrived: Vec<u8>,
    ended: bool,
    pending: Option<PendingRecv>,
    space: Vec<u8>,
    file: File,
    contents: Vec<u8>,
    rng: fastrand::Rng,
}

/// The trace, to be compared with the other driver's.
type Log = Vec<(Kind, Result<u32, Errno>)>;

impl Fixture {
    fn new(seed: u64) -> Self {
        let (socket, peer) = UnixStream::pair().unwrap();
        let dir = std::env::temp_dir();
        let file = rustix::fs::open(
            &dir,
            rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        );
        Self {
            socket,
            peer,
            arrived: Vec::new(),
            ended: false,
            pending: None,
            space: vec![0; SPACE_BYTES],
            file: File::from(file.unwrap()),
            contents: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn roll(&mut self, below: usize) -> usize {
        self.rng.usize(..below)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.rng.u8(..)).collect()
    }

    /// The result of the receive in flight, if it must complete now.
    fn due(&self) -> Option<usize> {
        let PendingRecv { space_bytes, whole } = self.pending?;
        let there_bytes = self.arrived.len();
        let is_due = self.ended || there_bytes >= space_bytes || (there_bytes > 0 && !whole);
        is_due.then_some(there_bytes.min(space_bytes))
    }

    fn step(&mut self, harness: &mut Harness, log: &mut Log) {
        match self.roll(9) {
            0 if !self.ended => {
                let count = 1 + self.roll(3000);
                let bytes = self.bytes(count);
                self.peer.write_all(&bytes).unwrap();
                self.arrived.extend(bytes);
            }
            1 if self.roll(20) == 0 => {
                self.peer.shutdown(Shutdown::Write).unwrap();
                self.ended = true;
            }
            2 | 3 if self.pending.is_none() => {
                let space_bytes = 1 + self.roll(SPACE_BYTES);
                let whole = self.roll(2) == 0;
                self.pending = Some(PendingRecv { space_bytes, whole });
                let socket = self.socket.as_raw_fd();
                let space = &mut self.space[..space_bytes];
                let op = if whole { recv_whole(socket, space) } else { recv(socket, space) };
                harness.queue(RECV, op);
            }
            4 if self.pending.is_some() && self.due().is_none() => self.cancel(harness, log),
            5 => self.send(harness, log),
            6 => self.write(harness, log),
            7 => self.read(harness, log),
            8 => self.cut(harness, log),
            _ => harness.enter(Wait::No),
        }
        if let Some(due_bytes) = self.due() {
            let result = harness.result(RECV);
            assert_eq!(result, Ok(u32::try_from(due_bytes).unwrap()), "{:?}", self.pending);
            self.take(result, log);
        } else {
            harness.enter(Wait::No);
            assert_eq!(harness.reaped, [], "nothing is due: {:?}", self.pending);
        }
    }

    fn take(&mut self, result: Result<u32, Errno>, log: &mut Log) {
        let taken = self.arrived.drain(..result.map_or(0, |count| count as usize));
        assert!(taken.as_slice() == &self.space[..taken.len()]);
        drop(taken);
        self.pending = None;
        log.push((Kind::Recv, result));
    }

    /// The completion has the receive's result, or says that it was cancelled.
    fn cancel(&mut self, harness: &mut Harness, log: &mut Log) {
        harness.enter(Wait::No);
        harness.driver.cancel(RECV, self.socket.as_raw_fd());
        let result = harness.result(RECV);
        let expected = match u32::try_from(self.arrived.len()).unwrap() {
            0 => Err(CANCELLED),
            there_bytes => Ok(there_bytes),
        };
        assert_eq!(result, expected);
        self.take(result, log);
    }

    fn send(&mut self, harness: &mut Harness, log: &mut Log) {
        let count = 1 + self.roll(4000);
        let bytes = self.bytes(count);
        let at_once = self.roll(2) == 0;
        let result = harness.ask(SEND, send(self.socket.as_raw_fd(), &bytes, at_once));
        let mut received = vec![0; count];
        self.peer.read_exact(&mut received).unwrap();
        assert!(received == bytes);
        log.push((Kind::Send, result));
    }

    fn write(&mut self, harness: &mut Harness, log: &mut Log) {
        let (offset, count) = (self.roll(20_000), 1 + self.roll(8000));
        let bytes = self.bytes(count);
        let (file, at, write_bytes) = (self.file.as_raw_fd(), bytes.as_ptr(), bytes.len());
        let (write_bytes, place) = (u32::try_from(write_bytes).unwrap(), offset as u64);
        let op = match self.roll(2) {
            0 => Op::Write { file, at, write_bytes, offset: place, direct: false },
            _ => Op::WriteDurable { file, at, write_bytes, offset: place },
        };
        log.push((Kind::Job, harness.ask(JOB, op)));
        let end = offset + count;
        if self.contents.len() < end {
            self.contents.resize(end, 0);
        }
        self.contents[offset..end].copy_from_slice(&bytes);
    }

    /// Short reads are allowed before the end, because a page may not be in memory.
    fn read(&mut self, harness: &mut Harness, log: &mut Log) {
        let (offset, count) = (self.roll(30_000), 1 + self.roll(8000));
        let mut back = vec![0; count];
        let mut moved_bytes = 0;
        while moved_bytes < count {
            let (file, at) = (self.file.as_raw_fd(), back[moved_bytes..].as_mut_ptr());
            let read_bytes = u32::try_from(count - moved_bytes).unwrap();
            let place = (offset + moved_bytes) as u64;
            match harness
                .ask(
                    JOB,
                    Op::Read { file, at, read_bytes, offset: place, direct: false, cached: false },
                )
                .unwrap()
            {
                0 => break,
                read_bytes => moved_bytes += read_bytes as usize,
            }
        }
        let start = offset.min(self.contents.len());
        let expected = &self.contents[start..(offset + count).clamp(start, self.contents.len())];
        assert!(&back[..moved_bytes] == expected);
        log.push((Kind::Job, Ok(u32::try_from(moved_bytes).unwrap())));
    }

    fn cut(&mut self, harness: &mut Harness, log: &mut Log) {
        let file = self.file.as_raw_fd();
        let size = self.roll(20_000);
        if harness.driver.truncates() && self.roll(2) == 0 {
            log.push((Kind::Job, harness.ask(JOB, Op::Truncate { file, size_bytes: size as u64 })));
            self.contents.resize(size, 0);
        } else {
            log.push((
                Kind::Job,
                harness.ask(JOB, Op::Sync { file, data_only: size.is_multiple_of(2) }),
            ));
        }
    }
}

fn live(seed: u64, harness: &mut Harness) -> Log {
    let (mut fixture, mut log) = (Fixture::new(seed), Log::new());
    for _ in 0..STEP_COUNT {
        fixture.step(harness, &mut log);
    }
    if fixture.pending.is_some() && fixture.due().is_none() {
        fixture.cancel(harness, &mut log);
    }
    harness.driver.forget(fixture.socket.as_raw_fd());
    log
}

#[test]
fn both_drivers_agree_with_the_model_in_any_order() {
    for seed in 1..=SEED_COUNT {
        let logs = std::sync::Mutex::new(Vec::new());
        on_both("whatever_the_order", |harness| logs.lock().unwrap().push(live(seed, harness)));
        assert!(logs.lock().unwrap().windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}");
    }
}

#[test]
fn every_engine_agrees_with_the_model_in_any_order() {
    for seed in 1..=SEED_COUNT / 4 {
        let logs = std::sync::Mutex::new(Vec::new());
        on_every_engine("every_engine", |harness| logs.lock().unwrap().push(live(seed, harness)));
        assert!(logs.lock().unwrap().windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}");
    }
}
