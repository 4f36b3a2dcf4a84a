//! How things are submitted and completed: what stands between a lane and the kernel.
//!
//! What is to be done is an [`Op`]; what came of it is a [`Completion`] under the same [`Token`].
//! Two drivers do it: `uring`, one io_uring of the lane, and `epoll`, which tries what is ready and has
//! a few threads do what would block, where io_uring is forbidden or missing. Nothing else in this crate
//! knows which it is, but the FUSE queues, which are io_uring's own. Reads and writes of objects may be
//! given to an [`engine`] beside either. Invariants, of all: memory named by
//! an [`Op`] belongs to the driver until its completion was reaped; nothing blocks the lane but
//! [`Driver::enter`], as long as it was told (and [`IoEngine::Inline`], which is there to do that).

mod backend;
mod choice;
mod engine;
mod epoll;
mod files;
mod notices;
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

use crate::number::usize_of;
use crate::pin::usable_cores;
use backend::Backend;
use engine::EngineSide;
use interface::Errno;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Whose completion it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Cancel,
    Accept,
    Wake,
    Recv,
    Send,
    Writable,
    Connect,
    LogWrite,
    LogReserve,
    LogZero,
    Job,
    KernelReadable,
    KernelEntry,
    /// An engine has something to tell; never reaped.
    EngineWakeup,
}

impl Kind {
    const ALL: [Self; 14] = [
        Self::Cancel,
        Self::Accept,
        Self::Wake,
        Self::Recv,
        Self::Send,
        Self::Writable,
        Self::Connect,
        Self::LogWrite,
        Self::LogReserve,
        Self::LogZero,
        Self::Job,
        Self::KernelReadable,
        Self::KernelEntry,
        Self::EngineWakeup,
    ];
}

/// Names an operation: its kind, and the index of what it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) index: u32,
}

impl Token {
    pub(crate) const fn new(kind: Kind, index: u32) -> Self {
        Self { kind, index }
    }

    const fn pack(self) -> u64 {
        ((self.kind as u64) << 32) | self.index as u64
    }

    fn unpack(packed: u64) -> Self {
        let index = u32::try_from(packed & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self { kind: Kind::ALL[usize_of(packed >> 32)], index }
    }
}

/// Something for the kernel to do. Pointers: see [`Driver::queue`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    AcceptMany {
        listener: RawFd,
    },
    Connect {
        socket: RawFd,
        address: *const libc::sockaddr,
        address_bytes: u32,
    },
    /// `whole`: complete only when all is there (or the peer is gone). `discard`: the bytes are
    /// thrown away, and nothing is written.
    Recv {
        socket: RawFd,
        at: *mut u8,
        space_bytes: u32,
        whole: bool,
        discard: bool,
    },
    /// `at_once`: sent while it is submitted, or not at all. Its success is told with the next
    /// completions and ends no wait, so that a turn is not woken by its own replies; what the
    /// socket has no space for has_other back as a short count or EAGAIN, and that does end it.
    Send {
        socket: RawFd,
        at: *const u8,
        send_bytes: u32,
        at_once: bool,
    },
    SendGathered {
        socket: RawFd,
        message: *const libc::msghdr,
    },
    /// Reads an eventfd's eight bytes once somebody has written to it.
    ReadEvent {
        event: RawFd,
        at: *mut u8,
    },
    /// Of a regular file. `direct`: the descriptor goes past the page cache, so that it waits for the
    /// medium whenever it is tried. `cached`: only what the page cache has; EAGAIN if that is nothing, and
    /// another error where the file system cannot tell.
    Read {
        file: RawFd,
        at: *mut u8,
        read_bytes: u32,
        offset: u64,
        direct: bool,
        cached: bool,
    },
    Write {
        file: RawFd,
        at: *const u8,
        write_bytes: u32,
        offset: u64,
        direct: bool,
    },
    /// Durable when it completes, and never on this thread.
    WriteDurable {
        file: RawFd,
        at: *const u8,
        write_bytes: u32,
        offset: u64,
    },
    Sync {
        file: RawFd,
        data_only: bool,
    },
    /// The mode is fallocate(2)'s.
    Allocate {
        file: RawFd,
        offset: u64,
        range_bytes: u64,
        mode: i32,
    },
    Truncate {
        file: RawFd,
        size_bytes: u64,
    },
    Open {
        dir: RawFd,
        path: *const libc::c_char,
        flags: i32,
    },
    MakeDir {
        dir: RawFd,
        path: *const libc::c_char,
    },
    Remove {
        dir: RawFd,
        path: *const libc::c_char,
    },
    Readable {
        file: RawFd,
    },
    /// Completes when the socket has space again, or is broken.
    Writable {
        socket: RawFd,
    },
    /// FUSE over io_uring; `iovecs` are two.
    Kernel {
        file: RawFd,
        command: u32,
        iovecs: *const libc::iovec,
        body: [u8; 24],
    },
    /// Asks to end an operation on this file early; its own completion tells what came of it.
    Cancel {
        token: Token,
        file: RawFd,
    },
}

/// What came of an [`Op`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Completion {
    pub(crate) token: Token,
    pub(crate) result: Result<u32, Errno>,
    /// The operation goes on and completes again.
    pub(crate) more: bool,
}

/// How long a turn may wait for something to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// At most this long.
    Ns(u64),
    /// For ever.
    Ever,
}

/// What became of the reads and writes of objects, as far as this process can tell.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Offloaded {
    /// Those that were given to another thread.
    pub(crate) offloaded_count: u64,
    /// Threads that were started for it.
    pub(crate) thread_count: u64,
}

/// A lane's driver.
pub(crate) struct Driver {
    backend: Backend,
    /// Who reads and writes objects, if not `backend`.
    engine: Option<EngineSide>,
    cores: Vec<u16>,
}

impl Driver {
    /// Sets a driver up for the calling thread. `polls`: for [`Self::poll`].
    ///
    /// # Errors
    /// When the one that is wanted is not to be had; the text says what to do.
    pub(crate) fn new(choice: DriverChoice, polls: bool) -> io::Result<Self> {
        Ok(Self { backend: Backend::new(choice, polls)?, engine: None, cores: usable_cores()? })
    }

    /// Which it is.
    pub(crate) const fn kind(&self) -> DriverKind {
        self.backend.kind()
    }

    /// Where the threads that do what would block may run, the kernel's or ours.
    pub(crate) fn work_on(&mut self, cores: &[u16]) -> io::Result<()> {
        self.cores = cores.to_vec();
        self.backend.work_on(cores)
    }

    /// Says who reads and writes objects; has_other after [`Self::work_on`] and before all operations.
    ///
    /// # Errors
    /// When it cannot, here or with this driver; the text says what to do.
    pub(crate) fn set_engine(&mut self, engine: IoEngine) -> io::Result<()> {
        engine.check(self.kind())?;
        self.engine = EngineSide::new(engine, &self.cores)?;
        Ok(())
    }

    /// Whether [`Op::Truncate`] exists (io_uring: Linux 6.9).
    pub(crate) const fn truncates(&self) -> bool {
        self.backend.truncates()
    }

    /// Calls so far that wait for the kernel or look what it has: io_uring_enter, or epoll_pwait2.
    pub(crate) const fn enter_count(&self) -> u64 {
        self.backend.enter_count()
    }

    /// All other system calls that the driver made on this thread so far; a thread that it started
    /// counts as one.
    pub(crate) fn call_count(&self) -> u64 {
        self.backend.call_count() + self.engine.as_ref().map_or(0, EngineSide::call_count)
    }

    /// What became of the reads and writes of objects. Of io_uring's own threads nothing is known.
    pub(crate) fn offloaded(&self) -> Offloaded {
        let Some(engine) = &self.engine else {
            let (offloaded_count, thread_count) = self.backend.offloaded();
            return Offloaded { offloaded_count, thread_count };
        };
        // What `backend` has threads for beside it is no object's.
        engine.offloaded()
    }

    /// Whether completions are known already.
    pub(crate) fn has_completions(&self) -> bool {
        self.backend.has_completions()
    }

    /// Queues an operation; it leaves with the next [`Self::enter`].
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

    /// Asks to end an operation on this file early; its completion tells what came of it.
    pub(crate) fn cancel(&mut self, token: Token, file: RawFd) {
        // SAFETY: a cancellation names no memory.
        unsafe { self.backend.queue(Token::new(Kind::Cancel, 0), Op::Cancel { token, file }) };
    }

    /// A descriptor that sockets or events were named by leaves this lane, open or about to be
    /// closed; no operation on it may be in flight.
    pub(crate) fn forget(&mut self, file: RawFd) {
        self.backend.forget(file);
    }

    /// Completes an operation that needs no kernel.
    pub(crate) fn complete(&mut self, token: Token, result: Result<u32, Errno>) {
        self.backend.complete(token, result);
    }

    /// Looks out for completions without a clock and without sleeping, and for what else may come.
    /// Whether anything came within so many rounds.
    pub(crate) fn poll(&mut self, round_count: u64, mut has_other: impl FnMut() -> bool) -> bool {
        let Self { backend, engine, .. } = self;
        let engine_has_notices = || engine.as_ref().is_some_and(EngineSide::has_notices);
        backend.poll(round_count, || has_other() || engine_has_notices())
    }

    /// Whether there are completions, or would be some if the kernel were entered, as far as memory
    /// tells.
    pub(crate) fn is_pending(&mut self) -> bool {
        let engine_pending = self
            .engine
            .as_ref()
            .is_some_and(|engine| engine.has_notices() || engine.has_completions());
        engine_pending || self.backend.is_pending()
    }

    /// Submits what was queued, waits for a completion if asked to.
    pub(crate) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        match &mut self.engine {
            Some(engine) => engine.enter(wait, &mut self.backend),
            None => self.backend.enter(wait),
        }
    }

    /// Takes what has completed, about `count_max` at most.
    pub(crate) fn reap(&mut self, completions: &mut Vec<Completion>, count_max: usize) {
        self.backend.reap(completions, count_max);
        if let Some(engine) = &mut self.engine {
            engine.reaped(completions);
        }
    }

    /// Ends everything that is in flight and waits for it, bounded. Completions are dropped.
    /// Returns whether nothing is left.
    pub(crate) fn quiesce(&mut self) -> bool {
        let engine_quiet = self.engine.as_mut().is_none_or(EngineSide::end);
        self.backend.quiesce() && engine_quiet
    }
}

/// Drops what came of an operation, with the connection that it may have brought.
fn drop_completion(completion: Completion) {
    if let (Kind::Accept, Ok(socket)) = (completion.token.kind, completion.result) {
        drop(owned(socket));
    }
}

/// The descriptor that an accept or open has just given.
pub(crate) fn owned(file: u32) -> OwnedFd {
    let Ok(file) = i32::try_from(file) else { panic!("{file} is no descriptor") };
    // SAFETY: the kernel has just made it for this driver; nobody else has it.
    unsafe { OwnedFd::from_raw_fd(file) }
}
