//! Worker threads for operations that would block a lane without io_uring, like the kernel's own
//! workers.
//!
//! They are started on demand, stay, and take operations in order; log writes precede all others.
//! Invariants: every started operation completes, or the process ends; a completion wakes the lane
//! as [`Notices`] guarantees.

use super::notices::{Notices, Wakeup, lock};
use super::{Op, Token, files};
use crate::number::u64_of;
use crate::pin::may_run_on;
use interface::Errno;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// They only call the kernel.
pub(super) const STACK_BYTES: usize = 128 * 1024;
/// How long the end waits for operations in flight. In tests, which check the result, as long as it
/// takes.
pub(super) const END: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 1 });

/// An operation for a thread.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) token: Token,
    pub(super) op: Op,
}

// SAFETY: what an operation names stays valid and exclusive until its completion was reaped
// (`Driver::queue`); the kernel does not care which thread performs it.
unsafe impl Send for Work {}

/// Its result.
pub(super) struct Ended {
    pub(super) work: Work,
    pub(super) result: Result<u32, Errno>,
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
    /// There is an operation to perform.
    more: Condvar,
    /// An operation has completed.
    less: Condvar,
    notices: Notices<Ended>,
}

/// A lane's worker threads.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    thread_count_max: usize,
    /// Prefix of their names; the lane's thread id follows.
    name: &'static str,
    cores: Vec<u16>,
    spare: Vec<Ended>,
}

impl Pool {
    pub(super) fn new(name: &'static str, thread_count_max: usize) -> io::Result<Self> {
        let shared = Shared {
            jobs: Mutex::default(),
            more: Condvar::new(),
            less: Condvar::new(),
            notices: Notices::new()?,
        };
        let shared = Arc::new(shared);
        let (threads, cores, spare) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { shared, threads, thread_count_max, name, cores, spare })
    }

    /// Sets the cores of threads that are started from now on.
    pub(super) fn work_on(&mut self, cores: &[u16]) {
        self.cores = cores.to_vec();
    }

    /// Starts an operation. Returns system calls made.
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
        let starts = lacks && self.threads.len() < self.thread_count_max;
        if starts && !self.start() && self.threads.is_empty() {
            // No thread can be started: the lane's thread does it.
            while let Some(work) = self.shared.next_now() {
                self.shared.perform(work);
            }
        }
        u64::from(idle_count > 0)
    }

    fn start(&mut self) -> bool {
        let (shared, cores) = (Arc::clone(&self.shared), self.cores.clone());
        // The kernel names its workers after their thread in the same way.
        let name = format!("{}-{}", self.name, rustix::thread::gettid().as_raw_nonzero());
        let builder = std::thread::Builder::new().name(name).stack_size(STACK_BYTES);
        let started = builder.spawn(move || {
            // Refused where a container allows fewer cores than the process was given.
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

    /// The wakeup for completed operations.
    pub(super) fn wakeup(&self) -> &Wakeup {
        self.shared.notices.wakeup()
    }

    /// Threads started so far.
    pub(super) fn thread_count(&self) -> u64 {
        u64_of(self.threads.len())
    }

    /// Takes completed operations.
    pub(super) fn take(&mut self, mut taken: impl FnMut(Token, Result<u32, Errno>)) {
        self.shared.notices.take(&mut self.spare);
        for Ended { work, result } in self.spare.drain(..) {
            taken(work.token, result);
        }
    }

    /// Starts nothing more and waits for operations in flight, bounded; returns whether all have
    /// completed. Their results are dropped.
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
        self.shared.notices.take(&mut self.spare);
        for Ended { work, result } in self.spare.drain(..) {
            if let (Op::Open { .. }, Ok(file)) = (work.op, result) {
                drop(super::owned(file));
            }
        }
        if all {
            for thread in self.threads.drain(..) {
                // The thread has ended normally; a panic would have ended the process.
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

/// Ends the process if a thread panics: otherwise the lane would wait for its completion for ever.
pub(super) struct Answering;

impl Drop for Answering {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl Shared {
    /// Waits for the next operation; `None` at the end.
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
        // SAFETY: the caller of `begin` vouches until the completion is reaped, which is pushed
        // below.
        let result = unsafe { files::perform(work.op) };
        self.notices.push(Ended { work, result });
        lock(&self.jobs).running_count -= 1;
        self.less.notify_all();
        drop(answering);
    }
}
