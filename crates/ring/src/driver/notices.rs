//! What other threads tell a lane, and the wakeup that wakes it.
//!
//! Invariant: what was told before the lane looked is seen, and what is told after the lane said that it
//! sleeps wakes it: the lane sets its flag and looks once more, the teller tells and looks at the flag,
//! both in one total order.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Wakes a lane.
pub(super) struct Wakeup {
    has_notices: AtomicBool,
    /// The lane waits for the event.
    sleeping: AtomicBool,
    event: OwnedFd,
}

impl Wakeup {
    /// Whether something was told that was not taken yet.
    pub(super) fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Acquire)
    }

    /// Says that the lane is about to sleep. Returns whether it may.
    pub(super) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !self.has_notices.load(Ordering::SeqCst)
    }

    /// Says that the lane is up.
    pub(super) fn wake_up(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// An eventfd that is readable when the lane is to be woken. Reading it waits.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn wake(&self) {
        self.has_notices.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let asleep = self.sleeping.load(Ordering::Relaxed);
        if asleep && self.sleeping.swap(false, Ordering::SeqCst) {
            // Fails only when 2^64 - 2 rings were not heard.
            rustix::io::write(&self.event, &1_u64.to_ne_bytes()).ok();
        }
    }
}

/// What a lane is told, in order, with its wakeup.
pub(super) struct Notices<T> {
    list: Mutex<Vec<T>>,
    wakeup: Wakeup,
}

impl<T> Notices<T> {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let wakeup =
            Wakeup { has_notices: AtomicBool::new(false), sleeping: AtomicBool::new(false), event };
        Ok(Self { list: Mutex::default(), wakeup })
    }

    /// Tells something, from any thread.
    pub(super) fn push(&self, notice: T) {
        lock(&self.list).push(notice);
        self.wakeup.wake();
    }

    /// Takes what was told; `into` is empty and its space is used for what has_other next.
    pub(super) fn take(&self, into: &mut Vec<T>) {
        if !self.wakeup.has_notices() {
            return;
        }
        let mut list = lock(&self.list);
        self.wakeup.has_notices.store(false, Ordering::SeqCst);
        std::mem::swap(&mut *list, into);
    }

    pub(super) const fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }
}

/// A lock that nobody holds for long; its data stays right whoever panics.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
