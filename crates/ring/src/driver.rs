//! The driver: submits a lane's operations to the kernel and collects their completions.
//!
//! An operation is an [`Op`]; its result is a [`Completion`] with the same [`Token`]. There are two
//! drivers: `uring`, one io_uring of the lane, and `epoll`, for where io_uring is forbidden or
//! missing, which does at once what is ready and uses worker threads for operations that block. The
//! rest of this crate does not depend on which it is, except the FUSE queues, which require
//! io_uring. Object reads and writes may use an [`engine`] beside either. Invariants: memory named
//! by an [`Op`] belongs to the driver until its completion was reaped; only [`Driver::enter`]
//! blocks the lane, for as long as its argument says (and [`IoEngine::Inline`], by design).

mod backend;
mod choice;
mod engine;
mod epoll;
mod files;
mod notices;
mod op;
mod pool;
mod sockets;
mod uring;
mod watch;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::skip;

pub use choice::{DriverChoice, DriverFound, DriverKind};
pub use engine::IoEngine;
pub(crate) use op::{Completion, Kind, Offloaded, Op, Token, Wait, owned};

use crate::pin::usable_cores;
use backend::Backend;
use engine::side::EngineSide;
use interface::Errno;
use std::io;
use std::os::fd::RawFd;

/// A lane's driver.
pub(crate) struct Driver {
    backend: Backend,
    /// The engine for object reads and writes, if not the backend.
    engine: Option<EngineSide>,
    cores: Vec<u16>,
}

impl Driver {
    /// Sets a driver up for the calling thread. `polls`: for [`Self::poll`].
    ///
    /// # Errors
    /// When the chosen one is not available; the text says what to do.
    pub(crate) fn new(choice: DriverChoice, polls: bool) -> io::Result<Self> {
        Ok(Self { backend: Backend::new(choice, polls)?, engine: None, cores: usable_cores()? })
    }

    /// Its kind.
    pub(crate) const fn kind(&self) -> DriverKind {
        self.backend.kind()
    }

    /// Sets the cores of worker threads, the kernel's or ours.
    pub(crate) fn work_on(&mut self, cores: &[u16]) -> io::Result<()> {
        self.cores = cores.to_vec();
        self.backend.work_on(cores)
    }

    /// Chooses what reads and writes objects; called after [`Self::work_on`] and before all
    /// operations.
    ///
    /// # Errors
    /// When the engine is not available here or with this driver; the text says what to do.
    pub(crate) fn set_engine(&mut self, engine: IoEngine) -> io::Result<()> {
        engine.check(self.kind())?;
        self.engine = EngineSide::new(engine, &self.cores)?;
        Ok(())
    }

    /// Whether [`Op::Truncate`] exists (io_uring: Linux 6.9).
    pub(crate) const fn truncates(&self) -> bool {
        self.backend.truncates()
    }

    /// Calls so far that wait for or poll the kernel: io_uring_enter, or epoll_pwait2.
    pub(crate) const fn enter_count(&self) -> u64 {
        self.backend.enter_count()
    }

    /// All other system calls of the driver on this thread so far; starting a thread counts as one.
    pub(crate) fn call_count(&self) -> u64 {
        self.backend.call_count() + self.engine.as_ref().map_or(0, EngineSide::call_count)
    }

    /// Statistics of object reads and writes. Those of io_uring's own threads are unknown.
    pub(crate) fn offloaded(&self) -> Offloaded {
        let Some(engine) = &self.engine else {
            let (offloaded_count, thread_count) = self.backend.offloaded();
            return Offloaded { offloaded_count, thread_count };
        };
        // The backend's own worker threads then do no object I/O.
        engine.offloaded()
    }

    /// Whether completions are already known.
    pub(crate) fn has_completions(&self) -> bool {
        self.backend.has_completions()
    }

    /// Whether sends at once were queued, whose success would end no wait.
    pub(crate) fn has_sends_at_once(&self) -> bool {
        self.backend.has_sends_at_once()
    }

    /// Queues an operation; the next [`Self::enter`] submits it.
    ///
    /// # Safety
    /// Memory and descriptors that `op` names stay valid, and memory that it writes stays
    /// untouched, until its completion was reaped.
    pub(crate) unsafe fn queue(&mut self, token: Token, op: Op) {
        match &mut self.engine {
            // SAFETY: the caller vouches.
            Some(engine) if EngineSide::takes(token, op) => unsafe { engine.queue(token, op) },
            // SAFETY: the caller vouches.
            Some(_) | None => unsafe { self.backend.queue(token, op) },
        }
    }

    /// Cancels an operation on this file; that operation's completion has the result.
    pub(crate) fn cancel(&mut self, token: Token, file: RawFd) {
        // SAFETY: a cancellation names no memory.
        unsafe { self.backend.queue(Token::new(Kind::Cancel, 0), Op::Cancel { token, file }) };
    }

    /// A descriptor of sockets or events leaves this lane, open or about to be closed; no operation
    /// on it may be in flight.
    pub(crate) fn forget(&mut self, file: RawFd) {
        self.backend.forget(file);
    }

    /// Completes an operation without the kernel.
    pub(crate) fn complete(&mut self, token: Token, result: Result<u32, Errno>) {
        self.backend.complete(token, result);
    }

    /// Busy-polls for completions and for `has_other`, without sleeping or reading a clock. Returns
    /// whether anything came within so many rounds.
    pub(crate) fn poll(&mut self, round_count: u64, mut has_other: impl FnMut() -> bool) -> bool {
        let Self { backend, engine, .. } = self;
        let engine_has_notices = || engine.as_ref().is_some_and(EngineSide::has_notices);
        backend.poll(round_count, || has_other() || engine_has_notices())
    }

    /// Whether there are completions, or entering the kernel would bring some, as far as shared
    /// memory shows.
    pub(crate) fn is_pending(&mut self) -> bool {
        let engine_pending = self
            .engine
            .as_ref()
            .is_some_and(|engine| engine.has_notices() || engine.has_completions());
        engine_pending || self.backend.is_pending()
    }

    /// Submits the queued operations, and waits for a completion if `wait` says so.
    pub(crate) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        match &mut self.engine {
            Some(engine) => engine.enter(wait, &mut self.backend),
            None => self.backend.enter(wait),
        }
    }

    /// Takes completions, about `count_max` at most.
    pub(crate) fn reap(&mut self, completions: &mut Vec<Completion>, count_max: usize) {
        self.backend.reap(completions, count_max);
        if let Some(engine) = &mut self.engine {
            engine.reaped(completions);
        }
    }

    /// Cancels everything in flight and waits for it, bounded. Completions are dropped. Returns
    /// whether nothing is left in flight.
    pub(crate) fn quiesce(&mut self) -> bool {
        let engine_quiet = self.engine.as_mut().is_none_or(EngineSide::end);
        self.backend.quiesce() && engine_quiet
    }
}
