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
pub(super) mod side;
mod stay;
mod thread_per_op;

use super::notices::Wakeup;
use super::pool::Work;
use super::{DriverKind, Offloaded, Token};
use interface::Errno;
use std::io;

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
