//! The two drivers behind one interface, one arm for each.
//!
//! Invariants: those of [`super`].

use super::epoll::Epoll;
use super::uring::Uring;
use super::{Completion, DriverChoice, DriverKind, Op, Token, Wait, choice};
use interface::Errno;
use std::io;
use std::os::fd::RawFd;

/// io_uring or epoll.
pub(super) enum Backend {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
}

impl Backend {
    /// Sets a driver up for the calling thread. `polls`: for [`Self::poll`].
    ///
    /// # Errors
    /// When the chosen one is not available; the text says what to do.
    pub(super) fn new(choice: DriverChoice, polls: bool) -> io::Result<Self> {
        Ok(match choice.find()?.kind {
            DriverKind::Epoll => Self::Epoll(Box::new(Epoll::new()?)),
            DriverKind::IoUring => match Uring::new(polls) {
                Ok(uring) => Self::Uring(Box::new(uring)),
                // A resource that was available in the trial has run out since.
                Err(_) if choice == DriverChoice::Auto => Self::Epoll(Box::new(Epoll::new()?)),
                Err(error) => return Err(choice::refused(&error)),
            },
        })
    }

    /// Its kind.
    pub(super) const fn kind(&self) -> DriverKind {
        match self {
            Self::Uring(_) => DriverKind::IoUring,
            Self::Epoll(_) => DriverKind::Epoll,
        }
    }

    /// Sets the cores of worker threads, the kernel's or ours.
    pub(super) fn work_on(&mut self, cores: &[u16]) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.work_on(cores),
            Self::Epoll(epoll) => {
                epoll.work_on(cores);
                Ok(())
            }
        }
    }

    /// Whether [`Op::Truncate`] exists (io_uring: Linux 6.9).
    pub(super) const fn truncates(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.truncates(),
            Self::Epoll(_) => true,
        }
    }

    /// Calls so far that wait for or poll the kernel: io_uring_enter, or epoll_pwait2.
    pub(super) const fn enter_count(&self) -> u64 {
        match self {
            Self::Uring(uring) => uring.enter_count(),
            Self::Epoll(epoll) => epoll.enter_count(),
        }
    }

    /// All other system calls of the driver on this thread so far.
    pub(super) const fn call_count(&self) -> u64 {
        match self {
            Self::Uring(uring) => uring.call_count(),
            Self::Epoll(epoll) => epoll.call_count(),
        }
    }

    /// Object reads and writes on threads of this process, and the number of those threads.
    pub(super) fn offloaded(&self) -> (u64, u64) {
        match self {
            Self::Uring(_) => (0, 0),
            Self::Epoll(epoll) => epoll.offloaded(),
        }
    }

    /// Whether completions are already known.
    pub(super) fn has_completions(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.has_completions(),
            Self::Epoll(epoll) => epoll.has_completions(),
        }
    }

    /// Whether sends at once were queued.
    pub(super) fn has_sends_at_once(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.has_sends_at_once(),
            Self::Epoll(epoll) => epoll.has_sends_at_once(),
        }
    }

    /// Queues an operation; it leaves with the next [`Self::enter`].
    ///
    /// # Safety
    /// Memory and descriptors that `op` names stay valid, and memory that it writes stays
    /// untouched, until its completion was reaped.
    pub(super) unsafe fn queue(&mut self, token: Token, op: Op) {
        match self {
            // SAFETY: the caller vouches.
            Self::Uring(uring) => unsafe { uring.queue(token, op) },
            // SAFETY: the caller vouches.
            Self::Epoll(epoll) => unsafe { epoll.queue(token, op) },
        }
    }

    /// A descriptor of sockets or events leaves this lane, open or about to be closed; no operation
    /// on it may be in flight.
    pub(super) fn forget(&mut self, file: RawFd) {
        match self {
            Self::Uring(_) => {}
            Self::Epoll(epoll) => epoll.forget(file),
        }
    }

    /// Completes an operation without the kernel.
    pub(super) fn complete(&mut self, token: Token, result: Result<u32, Errno>) {
        match self {
            Self::Uring(uring) => uring.complete(token, result),
            Self::Epoll(epoll) => epoll.complete_now(token, result),
        }
    }

    /// Busy-polls for completions and for `has_other`, without sleeping or reading a clock. Returns
    /// whether anything came within so many rounds.
    pub(super) fn poll(&mut self, round_count: u64, has_other: impl FnMut() -> bool) -> bool {
        match self {
            Self::Uring(uring) => uring.poll(round_count, has_other),
            Self::Epoll(epoll) => epoll.poll(round_count, has_other),
        }
    }

    /// Whether there are completions, or entering the kernel would bring some, as far as shared
    /// memory shows.
    pub(super) fn is_pending(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.is_pending(),
            Self::Epoll(epoll) => epoll.is_pending(),
        }
    }

    /// Submits the queued operations, and waits for a completion if `wait` says so.
    pub(super) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.enter(wait),
            Self::Epoll(epoll) => epoll.enter(wait),
        }
    }

    /// Takes completions, about `count_max` at most.
    pub(super) fn reap(&mut self, completions: &mut Vec<Completion>, count_max: usize) {
        match self {
            Self::Uring(uring) => uring.reap(completions, count_max),
            Self::Epoll(epoll) => epoll.reap(completions, count_max),
        }
    }

    /// Cancels everything in flight and waits for it, bounded. Completions are dropped. Returns
    /// whether nothing is left in flight.
    pub(super) fn quiesce(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.quiesce(),
            Self::Epoll(epoll) => epoll.quiesce(),
        }
    }
}
