//! Threads that work on a stack of paths until it is empty.
//!
//! Invariant: a path that was pushed is visited once, unless the pool is stopped.

use super::walk::{Visit, Walk};
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Files beyond these are visited by the thread that found them.
const FILE_COUNT_MAX: usize = 4096;

/// What waits, and how much is under way.
#[derive(Default)]
struct Stack {
    visits: Vec<Visit>,
    running_count: usize,
}

impl Stack {
    fn is_done(&self) -> bool {
        self.visits.is_empty() && self.running_count == 0
    }
}

struct Shared {
    walk: Walk,
    stack: Mutex<Stack>,
    /// Something was pushed, or all is done: for threads of the pool.
    changed: Condvar,
    /// All is done: for who waits for that.
    done: Condvar,
    stopped: Arc<AtomicBool>,
}

/// The threads of one pass.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// Begins with one path. `stopped`: nothing further is begun.
    pub(super) fn start(
        walk: Walk,
        path: PathBuf,
        thread_count: u16,
        stopped: Arc<AtomicBool>,
    ) -> Result<Self> {
        let stack = Mutex::new(Stack { visits: vec![Visit::First(path)], running_count: 0 });
        let (changed, done) = (Condvar::new(), Condvar::new());
        let pool = Self { shared: Arc::new(Shared { walk, stack, changed, done, stopped }) };
        for _ in 0..thread_count {
            let shared = pool.shared.clone();
            let thread = std::thread::Builder::new().name("warm".to_owned());
            // Not joined: one that waits for a server ends with the process.
            let started = thread.spawn(move || shared.work());
            if let Err(error) = started {
                pool.clear();
                return Err(error).context("cannot start a thread");
            }
        }
        Ok(pool)
    }

    pub(super) fn walk(&self) -> &Walk {
        &self.shared.walk
    }

    /// What waits is left undone.
    fn clear(&self) {
        self.shared.lock().visits.clear();
        self.shared.changed.notify_all();
    }

    /// Waits so long for the end; whether it was reached.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        if self.shared.stopped.load(Ordering::Relaxed) {
            self.clear();
        }
        let deadline = Instant::now() + patience;
        let mut stack = self.shared.lock();
        while !stack.is_done() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.done.wait_timeout(stack, left);
            stack = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Stack> {
        // A thread that panics ends the process.
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(visit) = self.next() {
            self.walk.visit(&visit, &self.stopped, &mut |found| self.push(found));
            let mut stack = self.lock();
            stack.running_count -= 1;
            if stack.is_done() {
                self.changed.notify_all();
                self.done.notify_all();
            }
        }
    }

    /// The latest one, so that the stack stays small; `None` at the end.
    fn next(&self) -> Option<Visit> {
        let mut stack = self.lock();
        loop {
            if let Some(visit) = stack.visits.pop() {
                stack.running_count += 1;
                return Some(visit);
            }
            if stack.is_done() {
                return None;
            }
            stack = self.changed.wait(stack).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// For any thread, unless there are too many: then it comes back.
    fn push(&self, visit: Visit) -> Option<Visit> {
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let mut stack = self.lock();
        if !visit.is_dir() && stack.visits.len() >= FILE_COUNT_MAX {
            return Some(visit);
        }
        stack.visits.push(visit);
        drop(stack);
        self.changed.notify_one();
        None
    }
}
