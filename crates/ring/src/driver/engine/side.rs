//! The engine beside a driver: it takes reads and writes of objects, and its completions become the
//! driver's.

use super::inline::Inline;
use super::stay::Stay;
use super::thread_per_op::ThreadPerOp;
use super::{Engine, IoEngine, Wakeup, Work};
use crate::driver::backend::Backend;
use crate::driver::{Completion, Kind, Offloaded, Op, Token, Wait};
use crate::pin::usable_cores;
use std::io;
use std::os::fd::AsRawFd as _;

/// The engine beside a driver.
pub(crate) struct EngineSide {
    engine: Box<dyn Engine>,
    /// Queued operations.
    fresh: Vec<Work>,
    /// The driver is reading the wakeup's eventfd.
    armed: bool,
    /// What it reads to.
    count: Box<[u8; 8]>,
    /// The driver was given completions that were not reaped.
    answered: bool,
}

impl EngineSide {
    /// The engine, unless it is the driver. Its threads may run on these cores.
    pub(crate) fn new(engine: IoEngine, cores: &[u16]) -> io::Result<Option<Self>> {
        // Threads inherit the lane's cores, so only a pinned lane must set theirs.
        let cores = if usable_cores()? == cores { &[] } else { cores };
        let engine: Box<dyn Engine> = match engine {
            IoEngine::Auto | IoEngine::Uring => return Ok(None),
            IoEngine::Inline => Box::<Inline>::default(),
            IoEngine::Pool => Box::new(Stay::new(cores)?),
            IoEngine::ThreadPerOp => Box::new(ThreadPerOp::new(cores)?),
            #[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
            IoEngine::PosixAio => Box::new(super::posix_aio::PosixAio::new(cores)?),
            #[cfg(not(all(target_env = "gnu", target_pointer_width = "64")))]
            IoEngine::PosixAio => return Err(io::ErrorKind::Unsupported.into()),
        };
        let (fresh, count) = (Vec::new(), Box::new([0; 8]));
        Ok(Some(Self { engine, fresh, armed: false, count, answered: false }))
    }

    /// Whether the engine performs an operation. A page-cache-only read does not block, and is the
    /// driver's.
    pub(crate) fn takes(token: Token, op: Op) -> bool {
        let moves = matches!(op, Op::Read { cached: false, .. } | Op::Write { .. });
        token.kind == Kind::Job && moves
    }

    /// # Safety
    /// As `Driver::queue`.
    pub(crate) unsafe fn queue(&mut self, token: Token, op: Op) {
        self.fresh.push(Work { token, op });
    }

    pub(crate) fn offloaded(&self) -> Offloaded {
        self.engine.offloaded()
    }

    pub(crate) fn call_count(&self) -> u64 {
        self.engine.call_count()
    }

    /// Whether the engine has notices.
    pub(crate) fn has_notices(&self) -> bool {
        self.engine.wakeup().is_some_and(Wakeup::has_notices)
    }

    /// Whether completions wait to be reaped.
    pub(crate) const fn has_completions(&self) -> bool {
        self.answered
    }

    /// Starts the queued operations, then as `Driver::enter`.
    pub(crate) fn enter(&mut self, wait: Wait, backend: &mut Backend) -> io::Result<()> {
        if !self.fresh.is_empty() {
            for work in self.fresh.drain(..) {
                // SAFETY: the caller of `queue` vouches.
                unsafe { self.engine.begin(work) };
            }
            self.engine.begun();
        }
        self.collect(backend);
        self.arm(backend);
        let may_sleep = wait != Wait::No
            && !self.answered
            && self.engine.wakeup().is_none_or(Wakeup::fall_asleep);
        let wait = match (may_sleep, wait, self.engine.sleep_ns_max()) {
            (false, _, _) => Wait::No,
            (true, Wait::Ns(ns), Some(ns_max)) => Wait::Ns(ns.min(ns_max)),
            (true, Wait::Ever, Some(ns_max)) => Wait::Ns(ns_max),
            (true, wait, _) => wait,
        };
        let entered = backend.enter(wait);
        if let Some(wakeup) = self.engine.wakeup() {
            wakeup.wake_up();
        }
        self.collect(backend);
        entered
    }

    /// Passes completed operations to the driver.
    fn collect(&mut self, backend: &mut Backend) {
        let answered = &mut self.answered;
        self.engine.take(&mut |token, result| {
            *answered = true;
            backend.complete(token, result);
        });
    }

    fn arm(&mut self, backend: &mut Backend) {
        let Some(wakeup) = self.engine.wakeup().filter(|_| !self.armed) else { return };
        self.armed = true;
        let op = Op::ReadEvent { event: wakeup.event().as_raw_fd(), at: self.count.as_mut_ptr() };
        // SAFETY: the eight bytes are boxed and the event is the engine's; both live as long as the
        // driver, which its owner keeps until its operations have ended.
        unsafe { backend.queue(Token::new(Kind::EngineWakeup, 0), op) };
    }

    /// Removes the engine's wakeups from the reaped completions.
    pub(crate) fn reaped(&mut self, completions: &mut Vec<Completion>) {
        self.answered = false;
        let (armed, mut wakeup_read) = (&mut self.armed, false);
        completions.retain(|completion| {
            let is_wakeup = completion.token.kind == Kind::EngineWakeup;
            wakeup_read |= is_wakeup;
            !is_wakeup
        });
        *armed &= !wakeup_read;
    }

    /// As `Driver::quiesce`, for the engine's operations.
    pub(crate) fn end(&mut self) -> bool {
        self.fresh.clear();
        self.engine.end()
    }
}
