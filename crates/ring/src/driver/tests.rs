//! Tests that both drivers must pass alike.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod engines;
mod files;
mod model;
mod sockets;

use super::*;
use procfs::process::Process;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const CANCELLED: Errno = Errno(125);

/// Runs a test on each driver that this process may use, and reports which it may not. Each has a
/// thread of its own: the kernel tears a ring down by task work that interrupts sleeps of the
/// thread that made it.
fn on_both(test: &str, run: impl Fn(&mut Harness) + Sync) {
    for kind in DriverKind::ALL {
        on_one(test, kind, IoEngine::Auto, &run);
    }
}

/// The same with each engine beside each driver.
fn on_every_engine(test: &str, run: impl Fn(&mut Harness) + Sync) {
    for kind in DriverKind::ALL {
        for engine in IoEngine::ALL {
            if engine.check(kind).is_ok() {
                on_one(test, kind, engine, &run);
            }
        }
    }
}

fn on_one(test: &str, kind: DriverKind, engine: IoEngine, run: &(impl Fn(&mut Harness) + Sync)) {
    let run_one = || match Driver::new(DriverChoice::Only(kind), false) {
        Ok(mut driver) => {
            driver.set_engine(engine).unwrap();
            run(&mut Harness { driver, reaped: Vec::new(), engine });
        }
        Err(_) => skip(&format!("{test} on {}", kind.name()), "it cannot be used in this run"),
    };
    let ended = std::thread::scope(|scope| scope.spawn(run_one).join());
    if let Err(panic) = ended {
        eprintln!("on {}, engine {}", kind.text(), engine.text());
        std::panic::resume_unwind(panic);
    }
}

/// Whether a thread of this process with that name lives. A thread that ended and was joined is
/// listed for a moment longer, with `PF_EXITING` in `flags`, field 9 of `proc_pid_stat(5)`.
fn lives(name: &str) -> bool {
    const PF_EXITING: u32 = 0x4;
    // Threads of other tests come and go.
    let mut tasks = Process::myself().unwrap().tasks().unwrap().flatten();
    tasks.any(|task| task.stat().is_ok_and(|it| it.comm == name && it.flags & PF_EXITING == 0))
}

#[test]
fn a_thread_is_listed_until_it_was_joined() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let started = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("joined-in-test".to_owned());
        let started = &started;
        let thread = thread.spawn_scoped(scope, move || {
            started.wait();
            wait.recv().unwrap();
        });
        started.wait();
        assert!(lives("joined-in-test"));
        done.send(()).unwrap();
        thread.unwrap().join().unwrap();
        assert!(!lives("joined-in-test"));
    });
}

/// Records a skipped test, where `cargo xtask ci` reads it.
pub(crate) fn skip(what: &str, why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !SAID.lock().unwrap().insert(what.to_owned()) {
        return;
    }
    eprintln!("SKIPPED: {what}: {why}");
    if let Some(path) = std::env::var_os("LANEFS_SKIPPED_FILE") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, format!("{what}: {why}\n").as_bytes()).unwrap();
    }
}

/// A driver, and the completions of its operations.
struct Harness {
    driver: Driver,
    reaped: Vec<Completion>,
    engine: IoEngine,
}

impl Drop for Harness {
    fn drop(&mut self) {
        let is_quiet = self.driver.quiesce();
        assert!(is_quiet || std::thread::panicking(), "nothing is left in flight");
    }
}

impl Harness {
    fn kind(&self) -> DriverKind {
        self.driver.kind()
    }

    /// Queues an operation on memory that outlives it in every test.
    fn queue(&mut self, token: Token, op: Op) {
        // SAFETY: every test keeps what it names until it has the completion, or ends in between
        // and frees nothing before the harness.
        unsafe { self.driver.queue(token, op) };
    }

    fn enter(&mut self, wait: Wait) {
        self.driver.enter(wait).unwrap();
        let mut completions = Vec::new();
        self.driver.reap(&mut completions, 1024);
        completions.retain(|completion| completion.token.kind != Kind::Cancel);
        self.reaped.extend(completions);
    }

    /// Waits for the next completion.
    fn next(&mut self) -> Completion {
        // The success of a send at once ends no wait.
        self.enter(Wait::No);
        while self.reaped.is_empty() {
            self.enter(Wait::Ever);
        }
        self.reaped.remove(0)
    }

    /// Waits for the completion of this operation.
    fn result(&mut self, token: Token) -> Result<u32, Errno> {
        let completion = self.next();
        assert_eq!((completion.token, completion.more), (token, false));
        completion.result
    }

    /// Performs one operation.
    fn ask(&mut self, token: Token, op: Op) -> Result<u32, Errno> {
        self.queue(token, op);
        self.result(token)
    }

    /// How many enters it takes until a wait lasts its full time.
    fn sleep_count(&mut self, wait: Duration) -> usize {
        for count in 1..1000 {
            let began = Instant::now();
            self.enter(Wait::Ns(u64::try_from(wait.as_nanos()).unwrap()));
            if began.elapsed() >= wait {
                return count;
            }
        }
        panic!("it never sleeps");
    }
}

fn recv(socket: RawFd, space: &mut [u8]) -> Op {
    let space_bytes = u32::try_from(space.len()).unwrap();
    Op::Recv { socket, at: space.as_mut_ptr(), space_bytes, whole: false, discard: false }
}

fn recv_whole(socket: RawFd, space: &mut [u8]) -> Op {
    let space_bytes = u32::try_from(space.len()).unwrap();
    Op::Recv { socket, at: space.as_mut_ptr(), space_bytes, whole: true, discard: false }
}

fn send(socket: RawFd, bytes: &[u8], at_once: bool) -> Op {
    let send_bytes = u32::try_from(bytes.len()).unwrap();
    Op::Send { socket, at: bytes.as_ptr(), send_bytes, at_once }
}

const RECV: Token = Token::new(Kind::Recv, 1);
const SEND: Token = Token::new(Kind::Send, 1);
const WAIT: Token = Token::new(Kind::Writable, 1);
const JOB: Token = Token::new(Kind::Job, 1);

#[test]
fn a_completion_without_the_kernel_is_available_at_once() {
    on_both("an_answer_that_needs_no_kernel", |harness| {
        harness.driver.complete(JOB, Err(Errno(5)));
        assert!(harness.driver.has_completions());
        harness.enter(Wait::No);
        assert_eq!(harness.result(JOB), Err(Errno(5)));
        assert!(!harness.driver.has_completions());
    });
}

#[test]
fn a_wait_lasts_its_full_time() {
    on_both("a_sleep_lasts", |harness| {
        let (began, before) = (Instant::now(), harness.driver.enter_count());
        assert_eq!(harness.sleep_count(Duration::from_micros(2300)), 1);
        assert!(began.elapsed() >= Duration::from_micros(2300));
        assert_eq!(harness.driver.enter_count(), before + 1);
    });
}

#[test]
fn an_eventfd_read_completes_only_after_a_write() {
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsRawFd as _;
    on_both("an_event_is_read", |harness| {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut count = [0; 8];
        let token = Token::new(Kind::Wake, 0);
        for round in 1..=3_u64 {
            harness
                .queue(token, Op::ReadEvent { event: event.as_raw_fd(), at: count.as_mut_ptr() });
            harness.enter(Wait::No);
            assert!(harness.reaped.is_empty(), "nothing was written");
            rustix::io::write(&event, &round.to_ne_bytes()).unwrap();
            assert_eq!(harness.result(token), Ok(8));
            assert_eq!(u64::from_ne_bytes(count), round);
        }
        harness.driver.forget(event.as_raw_fd());
    });
}

#[test]
fn a_request_is_read_only_after_a_write_as_often_as_it_is_asked_for() {
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsRawFd as _;
    on_both("a_request_is_read", |harness| {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut count = [0; 8];
        for round in 1..=3_u64 {
            let (device, at) = (event.as_raw_fd(), count.as_mut_ptr());
            harness.queue(JOB, Op::ReadRequest { device, at, space_bytes: 8 });
            harness.enter(Wait::No);
            assert!(harness.reaped.is_empty(), "nothing was written");
            rustix::io::write(&event, &round.to_ne_bytes()).unwrap();
            assert_eq!(harness.result(JOB), Ok(8));
            assert_eq!(u64::from_ne_bytes(count), round);
        }
        harness.driver.forget(event.as_raw_fd());
    });
}

#[test]
fn cancelling_an_unknown_operation_does_nothing() {
    on_both("what_is_unknown_to_cancel", |harness| {
        harness.driver.cancel(RECV, 0);
        harness.enter(Wait::No);
        assert!(harness.reaped.is_empty());
    });
}
