//! How things are submitted and completed: what stands between a lane and the kernel.
//!
//! What is to be done is an [`Op`]; what came of it is a [`Completion`] under the same [`Token`].
//! Two drivers do it: `uring`, one io_uring of the lane, and `epoll`, which tries what is ready and has
//! a few threads do what would block, where io_uring is forbidden or missing. Nothing else in this crate
//! knows which it is, but the FUSE queues, which are io_uring's own. Invariants, of both: memory named by
//! an [`Op`] belongs to the driver until its completion was reaped; nothing blocks the lane but
//! [`Driver::enter`], as long as it was told.

mod choice;
mod epoll;
mod files;
mod pool;
mod sockets;
mod uring;
mod watch;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::skip;

pub use choice::{DriverChoice, DriverFound, DriverKind};

use crate::number::usize_of;
use door::Errno;
use epoll::Epoll;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use uring::Uring;

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
}

impl Kind {
    const ALL: [Self; 13] = [
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
        room_bytes: u32,
        whole: bool,
        discard: bool,
    },
    /// `at_once`: sent while it is submitted, or not at all. Its success is told with the next
    /// completions and ends no wait, so that a turn is not woken by its own replies; what the
    /// socket has no room for comes back as a short count or EAGAIN, and that does end it.
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
    /// Of a regular file.
    Read {
        file: RawFd,
        at: *mut u8,
        read_bytes: u32,
        offset: u64,
    },
    Write {
        file: RawFd,
        at: *const u8,
        write_bytes: u32,
        offset: u64,
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
    /// Completes when the socket has room again, or is broken.
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

/// A lane's driver.
pub(crate) enum Driver {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
}

impl Driver {
    /// Sets a driver up for the calling thread. `polls`: for [`Self::poll`].
    ///
    /// # Errors
    /// When the one that is wanted is not to be had; the text says what to do.
    pub(crate) fn new(choice: DriverChoice, polls: bool) -> io::Result<Self> {
        Ok(match choice.find()?.kind {
            DriverKind::Epoll => Self::Epoll(Box::new(Epoll::new()?)),
            DriverKind::IoUring => match Uring::new(polls) {
                Ok(uring) => Self::Uring(Box::new(uring)),
                // There was enough of everything when it was looked for, and is not any more.
                Err(_) if choice == DriverChoice::Auto => Self::Epoll(Box::new(Epoll::new()?)),
                Err(error) => return Err(choice::refused(&error)),
            },
        })
    }

    /// Which it is.
    pub(crate) const fn kind(&self) -> DriverKind {
        match self {
            Self::Uring(_) => DriverKind::IoUring,
            Self::Epoll(_) => DriverKind::Epoll,
        }
    }

    /// Where the threads that do what would block may run, the kernel's or ours.
    pub(crate) fn work_on(&mut self, cores: &[u16]) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.work_on(cores),
            Self::Epoll(epoll) => {
                epoll.work_on(cores);
                Ok(())
            }
        }
    }

    /// Whether [`Op::Truncate`] exists (io_uring: Linux 6.9).
    pub(crate) const fn truncates(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.truncates(),
            Self::Epoll(_) => true,
        }
    }

    /// Calls so far that wait for the kernel or look what it has: io_uring_enter, or epoll_pwait2.
    pub(crate) const fn enter_count(&self) -> u64 {
        match self {
            Self::Uring(uring) => uring.enter_count(),
            Self::Epoll(epoll) => epoll.enter_count(),
        }
    }

    /// All other system calls that the driver made on this thread so far.
    pub(crate) const fn call_count(&self) -> u64 {
        match self {
            Self::Uring(_) => 0,
            Self::Epoll(epoll) => epoll.call_count(),
        }
    }

    /// Whether completions are known already.
    pub(crate) fn is_answered(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.is_answered(),
            Self::Epoll(epoll) => epoll.is_answered(),
        }
    }

    /// Queues an operation; it leaves with the next [`Self::enter`].
    ///
    /// # Safety
    /// Memory and descriptors that `op` names stay valid, and memory that it writes stays
    /// untouched, until its completion was reaped.
    pub(crate) unsafe fn queue(&mut self, token: Token, op: Op) {
        match self {
            // SAFETY: the caller vouches.
            Self::Uring(uring) => unsafe { uring.queue(token, op) },
            // SAFETY: the caller vouches.
            Self::Epoll(epoll) => unsafe { epoll.queue(token, op) },
        }
    }

    /// Asks to end an operation on this file early; its completion tells what came of it.
    pub(crate) fn cancel(&mut self, token: Token, file: RawFd) {
        // SAFETY: a cancellation names no memory.
        unsafe { self.queue(Token::new(Kind::Cancel, 0), Op::Cancel { token, file }) };
    }

    /// A descriptor that sockets or events were named by leaves this lane, open or about to be
    /// closed; no operation on it may be in flight.
    pub(crate) fn forget(&mut self, file: RawFd) {
        match self {
            Self::Uring(_) => {}
            Self::Epoll(epoll) => epoll.forget(file),
        }
    }

    /// Completes an operation that needs no kernel.
    pub(crate) fn answer(&mut self, token: Token, result: Result<u32, Errno>) {
        match self {
            Self::Uring(uring) => uring.answer(token, result),
            Self::Epoll(epoll) => epoll.answer(token, result),
        }
    }

    /// Looks out for completions without a clock and without sleeping, and for what else may come.
    /// Whether anything came within so many rounds.
    pub(crate) fn poll(&mut self, round_count: u64, comes: impl FnMut() -> bool) -> bool {
        match self {
            Self::Uring(uring) => uring.poll(round_count, comes),
            Self::Epoll(epoll) => epoll.poll(round_count, comes),
        }
    }

    /// Whether there are completions, or would be some if the kernel were entered, as far as memory
    /// tells.
    pub(crate) fn is_pending(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.is_pending(),
            Self::Epoll(epoll) => epoll.is_pending(),
        }
    }

    /// Submits what was queued, waits for a completion if asked to.
    pub(crate) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.enter(wait),
            Self::Epoll(epoll) => epoll.enter(wait),
        }
    }

    /// Takes what has completed, about `count_max` at most.
    pub(crate) fn reap(&mut self, completions: &mut Vec<Completion>, count_max: usize) {
        match self {
            Self::Uring(uring) => uring.reap(completions, count_max),
            Self::Epoll(epoll) => epoll.reap(completions, count_max),
        }
    }

    /// Ends everything that is in flight and waits for it, bounded. Completions are dropped.
    /// Returns whether nothing is left.
    pub(crate) fn quiesce(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.quiesce(),
            Self::Epoll(epoll) => epoll.quiesce(),
        }
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
