//! A new detached thread for each operation (PVFS2 developers list, 2006: alternate AIO).
//!
//! Invariants: at most [`THREAD_COUNT_MAX`] run at a time, and operations start in order; if a
//! thread cannot be started, a running thread continues with the waiting operations, and if none
//! runs, the lane's thread does them.

use super::super::files;
use super::super::notices::{Notices, lock};
use super::super::pool::{Answering, END, Ended, STACK_BYTES};
use super::{Engine, Offloaded, Token, Wakeup, Work};
use crate::pin::may_run_on;
use interface::Errno;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Maximum of a lane's running threads.
const THREAD_COUNT_MAX: usize = 256;

struct Shared {
    notices: Notices<Ended>,
    /// Threads that have not pushed their result yet.
    running_count: Mutex<usize>,
    less: Condvar,
}

impl Shared {
    fn perform(&self, work: Work) {
        let answering = Answering;
        // SAFETY: the caller of `queue` vouches until the completion is reaped, which is pushed
        // below.
        let result = unsafe { files::perform(work.op) };
        self.notices.push(Ended { work, result });
        *lock(&self.running_count) -= 1;
        self.less.notify_all();
        drop(answering);
    }
}

/// A lane's operations in flight.
pub(super) struct ThreadPerOp {
    shared: Arc<Shared>,
    /// Started and not taken.
    under_way_count: usize,
    waiting: VecDeque<Work>,
    cores: Arc<[u16]>,
    spare: Vec<Ended>,
    offloaded_count: u64,
    thread_count: u64,
}

impl ThreadPerOp {
    /// Without cores, threads run where the lane does.
    pub(super) fn new(cores: &[u16]) -> io::Result<Self> {
        let (running_count, less) = (Mutex::new(0), Condvar::new());
        Ok(Self {
            shared: Arc::new(Shared { notices: Notices::new()?, running_count, less }),
            under_way_count: 0,
            waiting: VecDeque::new(),
            cores: cores.into(),
            spare: Vec::new(),
            offloaded_count: 0,
            thread_count: 0,
        })
    }

    fn start_waiting(&mut self) {
        while self.under_way_count < THREAD_COUNT_MAX {
            let Some(work) = self.waiting.pop_front() else { return };
            *lock(&self.shared.running_count) += 1;
            if self.start(work) {
                self.thread_count += 1;
            } else if self.under_way_count > 0 {
                *lock(&self.shared.running_count) -= 1;
                self.waiting.push_front(work);
                return;
            } else {
                // No thread can be started: the lane's thread does it.
                self.shared.perform(work);
            }
            self.under_way_count += 1;
        }
    }

    fn start(&self, work: Work) -> bool {
        let (shared, cores) = (Arc::clone(&self.shared), Arc::clone(&self.cores));
        let started = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            if !cores.is_empty() {
                // Refused where a container allows fewer cores than the process was given.
                may_run_on(&cores).ok();
            }
            shared.perform(work);
        });
        started.is_ok()
    }
}

impl Engine for ThreadPerOp {
    unsafe fn begin(&mut self, work: Work) {
        self.offloaded_count += 1;
        self.waiting.push_back(work);
        self.start_waiting();
    }

    fn take(&mut self, taken: &mut dyn FnMut(Token, Result<u32, Errno>)) {
        self.shared.notices.take(&mut self.spare);
        if self.spare.is_empty() {
            return;
        }
        self.under_way_count -= self.spare.len();
        for Ended { work, result } in self.spare.drain(..) {
            taken(work.token, result);
        }
        self.start_waiting();
    }

    fn wakeup(&self) -> Option<&Wakeup> {
        Some(self.shared.notices.wakeup())
    }

    fn end(&mut self) -> bool {
        self.waiting.clear();
        let running = lock(&self.shared.running_count);
        let waited = self.shared.less.wait_timeout_while(running, END, |count| *count > 0);
        let (running, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *running == 0
    }

    fn offloaded(&self) -> Offloaded {
        Offloaded { offloaded_count: self.offloaded_count, thread_count: self.thread_count }
    }

    /// Starting a thread counts as one call.
    fn call_count(&self) -> u64 {
        self.thread_count
    }
}

impl Drop for ThreadPerOp {
    fn drop(&mut self) {
        self.end();
    }
}
