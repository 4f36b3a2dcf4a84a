//! Notices from other threads to a lane, and the eventfd wakeup for them.
//!
//! Invariant: the lane sees a notice that was pushed before it checked, and is woken by one that is
//! pushed after it set its sleep flag: the lane sets the flag and checks once more, the other
//! thread pushes and checks the flag, both in one total order.

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
    /// Whether a notice was pushed and not taken.
    pub(super) fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Acquire)
    }

    /// Sets the sleep flag. Returns whether the lane may sleep.
    pub(super) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !self.has_notices.load(Ordering::SeqCst)
    }

    /// Clears the sleep flag.
    pub(super) fn wake_up(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// An eventfd that is readable when the lane must wake. Reading it blocks.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn wake(&self) {
        self.has_notices.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let asleep = self.sleeping.load(Ordering::Relaxed);
        if asleep && self.sleeping.swap(false, Ordering::SeqCst) {
            // Fails only if the counter is full, after 2^64 - 2 unread wakeups.
            rustix::io::write(&self.event, &1_u64.to_ne_bytes()).ok();
        }
    }
}

/// A list of notices to a lane, in order, with its wakeup.
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

    /// Pushes a notice, from any thread.
    pub(super) fn push(&self, notice: T) {
        lock(&self.list).push(notice);
        self.wakeup.wake();
    }

    /// Takes all notices; `into` is empty, and its memory is used for the next ones.
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

/// Locks; a poisoned lock is used, because every critical section leaves the data consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
