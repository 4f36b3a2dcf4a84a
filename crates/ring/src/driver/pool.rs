//! The few threads that do what would block a lane without io_uring, as the kernel's own workers do with it.
//!
//! They are started when they are needed, stay, and do what came first first; what makes the log durable
//! goes before all else. Invariants: what was begun is answered, or the process ends; what a thread told
//! before the lane looked is seen, and what it tells after the lane said that it sleeps wakes it.

use super::{Op, Token, files};
use crate::pin::may_run_on;
use door::Errno;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads of a lane: as many flushes of objects may be under way together, which the file system then
/// makes one of.
const THREAD_COUNT_MAX: usize = 8;
/// They call the kernel and nothing else.
const STACK_BYTES: usize = 128 * 1024;
/// How long the end waits for what was begun.
const END: Duration = Duration::from_secs(1);

/// Something to be done.
#[derive(Clone, Copy)]
struct Work {
    token: Token,
    op: Op,
}

// SAFETY: what an operation names stays valid, and is nobody else's, until its completion was reaped
// (`Driver::queue`); which thread does it is all the same to the kernel.
unsafe impl Send for Work {}

/// What came of it.
struct Ended {
    work: Work,
    result: Result<u32, Errno>,
}

#[derive(Default)]
struct Jobs {
    urgent: VecDeque<Work>,
    waiting: VecDeque<Work>,
    idle_count: usize,
    running_count: usize,
    over: bool,
}

impl Jobs {
    fn take(&mut self) -> Option<Work> {
        self.urgent.pop_front().or_else(|| self.waiting.pop_front())
    }

    fn waiting_count(&self) -> usize {
        self.urgent.len() + self.waiting.len()
    }
}

struct Shared {
    jobs: Mutex<Jobs>,
    /// There is something to be done.
    more: Condvar,
    /// Something that was begun has ended.
    less: Condvar,
    ended: Mutex<Vec<Ended>>,
    has_ended: AtomicBool,
    /// The lane waits for its bell.
    sleeping: AtomicBool,
    bell: OwnedFd,
}

/// A lane's threads.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    cores: Vec<u16>,
    spare: Vec<Ended>,
}

impl Pool {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared {
            jobs: Mutex::default(),
            more: Condvar::new(),
            less: Condvar::new(),
            ended: Mutex::default(),
            has_ended: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            bell,
        };
        let shared = Arc::new(shared);
        Ok(Self { shared, threads: Vec::new(), cores: Vec::new(), spare: Vec::new() })
    }

    /// Where threads that are started from now on may run.
    pub(super) fn work_on(&mut self, cores: &[u16]) {
        self.cores = cores.to_vec();
    }

    /// Has something done. Returns system calls made.
    ///
    /// # Safety
    /// As `Driver::queue`.
    pub(super) unsafe fn begin(&mut self, token: Token, op: Op) -> u64 {
        let work = Work { token, op };
        let mut jobs = lock(&self.shared.jobs);
        let is_urgent = matches!(op, Op::WriteDurable { .. });
        if is_urgent { &mut jobs.urgent } else { &mut jobs.waiting }.push_back(work);
        let idle_count = jobs.idle_count;
        let lacks = jobs.waiting_count() > idle_count;
        drop(jobs);
        if idle_count > 0 {
            self.shared.more.notify_one();
        }
        let starts = lacks && self.threads.len() < THREAD_COUNT_MAX;
        if starts && !self.start() && self.threads.is_empty() {
            // Better late than not at all.
            while let Some(work) = self.shared.next_now() {
                self.shared.perform(work);
            }
        }
        u64::from(idle_count > 0)
    }

    fn start(&mut self) -> bool {
        let (shared, cores) = (Arc::clone(&self.shared), self.cores.clone());
        // As the kernel's workers are called after the thread that they work for.
        let name = format!("files-{}", rustix::thread::gettid().as_raw_nonzero());
        let builder = std::thread::Builder::new().name(name).stack_size(STACK_BYTES);
        let started = builder.spawn(move || {
            // Refused where a container allows fewer cores than the process was told.
            may_run_on(&cores).ok();
            while let Some(work) = shared.next() {
                shared.perform(work);
            }
        });
        match started {
            Ok(thread) => {
                self.threads.push(thread);
                true
            }
            Err(_) => false,
        }
    }

    /// Readable when the lane is to be woken.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// Whether something has ended that was not taken yet.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }

    /// Says that the lane is about to sleep. Returns whether it may.
    pub(super) fn fall_asleep(&self) -> bool {
        self.shared.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !self.shared.has_ended.load(Ordering::SeqCst)
    }

    /// Says that the lane is up.
    pub(super) fn wake_up(&self) {
        self.shared.sleeping.store(false, Ordering::Relaxed);
    }

    /// Takes what has ended.
    pub(super) fn take(&mut self, mut taken: impl FnMut(Token, Result<u32, Errno>)) {
        if !self.has_ended() {
            return;
        }
        let mut ended = lock(&self.shared.ended);
        self.shared.has_ended.store(false, Ordering::SeqCst);
        std::mem::swap(&mut *ended, &mut self.spare);
        drop(ended);
        for Ended { work, result } in self.spare.drain(..) {
            taken(work.token, result);
        }
    }

    /// Begins nothing more and waits for what was begun, bounded; whether all of that has ended. What
    /// comes of it is dropped.
    pub(super) fn end(&mut self) -> bool {
        let mut jobs = lock(&self.shared.jobs);
        jobs.over = true;
        jobs.urgent.clear();
        jobs.waiting.clear();
        self.shared.more.notify_all();
        let waited = self.shared.less.wait_timeout_while(jobs, END, |jobs| jobs.running_count > 0);
        let (jobs, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let all = jobs.running_count == 0;
        drop(jobs);
        for Ended { work, result } in lock(&self.shared.ended).drain(..) {
            if let (Op::Open { .. }, Ok(file)) = (work.op, result) {
                drop(super::owned(file));
            }
        }
        if all {
            for thread in self.threads.drain(..) {
                // It has nothing to do any more; had it panicked, so had the process.
                thread.join().ok();
            }
        }
        all
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends the process if a thread panics: somebody would wait for its answer for ever.
struct Answering;

impl Drop for Answering {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl Shared {
    /// The next work, waited for; `None` at the end.
    fn next(&self) -> Option<Work> {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(work) = jobs.take() {
                jobs.running_count += 1;
                return Some(work);
            }
            if jobs.over {
                return None;
            }
            jobs.idle_count += 1;
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle_count -= 1;
        }
    }

    fn next_now(&self) -> Option<Work> {
        let mut jobs = lock(&self.jobs);
        let work = jobs.take()?;
        jobs.running_count += 1;
        Some(work)
    }

    fn perform(&self, work: Work) {
        let answering = Answering;
        // SAFETY: whoever queued it vouches until the completion is reaped, which is told below.
        let result = unsafe { files::perform(work.op) };
        lock(&self.ended).push(Ended { work, result });
        self.has_ended.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let asleep = self.sleeping.load(Ordering::Relaxed);
        if asleep && self.sleeping.swap(false, Ordering::SeqCst) {
            // Fails only when 2^64 - 2 rings were not heard.
            rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
        }
        lock(&self.jobs).running_count -= 1;
        self.less.notify_all();
        drop(answering);
    }
}

/// A lock that nobody holds for long; its data stays right whoever panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
