//! Engines: what reads and writes objects, the lane's driver or an alternative beside it.
//!
//! ```text
//! Op::Read, Op::Write of a job ─▶ auto, uring: the driver      all others, and page-cache-only
//!                              │                               reads ─▶ the driver
//!                              └▶ inline, pool, thread-per-op, posix-aio: the engine ─▶ its eventfd,
//!                                 which the driver reads like any other ─▶ completions of the driver
//! ```
//! Invariants: no engine has a queue per file (except glibc, behind `posix-aio`); an operation is
//! queued first and started by the next `enter`, with every engine; an engine's notices wake a
//! sleeping lane with either driver.

mod inline;
#[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
mod posix_aio;
mod stay;
mod thread_per_op;

use super::backend::Backend;
use super::notices::Wakeup;
use super::pool::Work;
use super::{Completion, DriverKind, Kind, Offloaded, Op, Token, Wait};
use crate::pin::usable_cores;
use interface::Errno;
use std::io;
use std::os::fd::AsRawFd as _;

/// What reads and writes objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum IoEngine {
    /// The driver: io_uring, or epoll's worker threads.
    #[default]
    Auto,
    /// io_uring only.
    Uring,
    /// glibc's POSIX AIO: a thread and a queue per file, and a new thread to notify of each
    /// completion.
    PosixAio,
    /// A new thread for each operation.
    ThreadPerOp,
    /// A pool of worker threads.
    Pool,
    /// The lane's thread, which blocks for each.
    Inline,
}

impl IoEngine {
    /// All engines.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Uring, Self::PosixAio, Self::ThreadPerOp, Self::Pool, Self::Inline];

    /// Its name on the command line.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::PosixAio => "posix-aio",
            Self::ThreadPerOp => "thread-per-op",
            Self::Pool => "pool",
            Self::Inline => "inline",
        }
    }

    /// Checks whether it is available here, with lanes on this driver.
    ///
    /// # Errors
    /// When it is not; the text says what to do.
    pub fn check(self, driver: DriverKind) -> io::Result<()> {
        let has_aio = cfg!(all(target_env = "gnu", target_pointer_width = "64"));
        let line = match self {
            Self::Uring if driver != DriverKind::IoUring => {
                "the engine uring needs lanes on io_uring, and these are on epoll: take --io-engine \
                 auto, or --driver io-uring where io_uring may be used"
            }
            Self::PosixAio if !has_aio => {
                "the engine posix-aio is glibc's, and this program was built with another C library: \
                 take another --io-engine"
            }
            Self::Auto
            | Self::Uring
            | Self::PosixAio
            | Self::ThreadPerOp
            | Self::Pool
            | Self::Inline => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::Unsupported, line))
    }

    /// Whether it is the driver itself.
    pub(crate) const fn is_driver(self) -> bool {
        match self {
            Self::Auto | Self::Uring => true,
            Self::PosixAio | Self::ThreadPerOp | Self::Pool | Self::Inline => false,
        }
    }
}

/// An engine beside the driver.
trait Engine {
    /// Starts an operation, or performs it.
    ///
    /// # Safety
    /// As `Driver::queue`.
    unsafe fn begin(&mut self, work: Work);

    /// All queued operations were started.
    fn begun(&mut self) {}

    /// Takes completed operations, and starts those that had to wait.
    fn take(&mut self, taken: &mut dyn FnMut(Token, Result<u32, Errno>));

    /// The wakeup that other threads use when an operation has completed.
    fn wakeup(&self) -> Option<&Wakeup>;

    /// Longest sleep while operations are in flight, in nanoseconds; `None`: every completion
    /// wakes.
    fn sleep_ns_max(&self) -> Option<u64> {
        None
    }

    /// Starts nothing more and waits for operations in flight, bounded; returns whether all have
    /// completed. Their results are dropped.
    fn end(&mut self) -> bool;

    /// Statistics of operations on other threads.
    fn offloaded(&self) -> Offloaded;

    /// System calls on the lane's thread.
    fn call_count(&self) -> u64;
}

/// The engine beside a driver.
pub(super) struct EngineSide {
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
    pub(super) fn new(engine: IoEngine, cores: &[u16]) -> io::Result<Option<Self>> {
        // Threads inherit the lane's cores, so only a pinned lane must set theirs.
        let cores = if usable_cores()? == cores { &[] } else { cores };
        let engine: Box<dyn Engine> = match engine {
            IoEngine::Auto | IoEngine::Uring => return Ok(None),
            IoEngine::Inline => Box::<inline::Inline>::default(),
            IoEngine::Pool => Box::new(stay::Stay::new(cores)?),
            IoEngine::ThreadPerOp => Box::new(thread_per_op::ThreadPerOp::new(cores)?),
            #[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
            IoEngine::PosixAio => Box::new(posix_aio::PosixAio::new(cores)?),
            #[cfg(not(all(target_env = "gnu", target_pointer_width = "64")))]
            IoEngine::PosixAio => return Err(io::ErrorKind::Unsupported.into()),
        };
        let (fresh, count) = (Vec::new(), Box::new([0; 8]));
        Ok(Some(Self { engine, fresh, armed: false, count, answered: false }))
    }

    /// Whether the engine performs an operation. A page-cache-only read does not block, and is the
    /// driver's.
    pub(super) fn takes(token: Token, op: Op) -> bool {
        let moves = matches!(op, Op::Read { cached: false, .. } | Op::Write { .. });
        token.kind == Kind::Job && moves
    }

    /// # Safety
    /// As `Driver::queue`.
    pub(super) unsafe fn queue(&mut self, token: Token, op: Op) {
        self.fresh.push(Work { token, op });
    }

    pub(super) fn offloaded(&self) -> Offloaded {
        self.engine.offloaded()
    }

    pub(super) fn call_count(&self) -> u64 {
        self.engine.call_count()
    }

    /// Whether the engine has notices.
    pub(super) fn has_notices(&self) -> bool {
        self.engine.wakeup().is_some_and(Wakeup::has_notices)
    }

    /// Whether completions wait to be reaped.
    pub(super) const fn has_completions(&self) -> bool {
        self.answered
    }

    /// Starts the queued operations, then as `Driver::enter`.
    pub(super) fn enter(&mut self, wait: Wait, backend: &mut Backend) -> io::Result<()> {
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
    pub(super) fn reaped(&mut self, completions: &mut Vec<Completion>) {
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
    pub(super) fn end(&mut self) -> bool {
        self.fresh.clear();
        self.engine.end()
    }
}
