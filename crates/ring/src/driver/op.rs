//! Operations of a driver, and their completions.

use crate::number::usize_of;
use interface::Errno;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// The kind of an operation.
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
    KernelRead,
    KernelReply,
    KernelEntry,
    /// An engine's wakeup; never reaped.
    EngineWakeup,
}

impl Kind {
    const ALL: [Self; 15] = [
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
        Self::KernelRead,
        Self::KernelReply,
        Self::KernelEntry,
        Self::EngineWakeup,
    ];
}

/// Identifies an operation: its kind, and the index of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) index: u32,
}

impl Token {
    pub(crate) const fn new(kind: Kind, index: u32) -> Self {
        Self { kind, index }
    }

    pub(super) const fn pack(self) -> u64 {
        ((self.kind as u64) << 32) | self.index as u64
    }

    pub(super) fn unpack(packed: u64) -> Self {
        let index = u32::try_from(packed & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self { kind: Kind::ALL[usize_of(packed >> 32)], index }
    }
}

/// An operation. Pointers: see [`super::Driver::queue`].
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
    /// `whole`: complete only when all bytes have come (or the peer has ended). `discard`: bytes
    /// are discarded, nothing is written.
    Recv {
        socket: RawFd,
        at: *mut u8,
        space_bytes: u32,
        whole: bool,
        discard: bool,
    },
    /// `at_once`: sent within the submitting call, as far as the socket has space. Its success is
    /// reported with the next completions and ends no wait, so that a lane is not woken by its own
    /// replies; a short count or EAGAIN for lack of space in the socket does end a wait.
    Send {
        socket: RawFd,
        at: *const u8,
        send_bytes: u32,
        at_once: bool,
    },
    /// `send_bytes`: of all pieces.
    SendGathered {
        socket: RawFd,
        message: *const libc::msghdr,
        send_bytes: u32,
        at_once: bool,
    },
    /// Reads an eventfd's eight bytes once it was written to.
    ReadEvent {
        event: RawFd,
        at: *mut u8,
    },
    /// Of a regular file. `direct`: the descriptor bypasses the page cache, so each attempt waits
    /// for the disk. `cached`: reads only what is in the page cache; EAGAIN if nothing is, and
    /// another error where the file system does not support this.
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
    /// Durable when it completes; never done on the lane's thread.
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
    /// The mode of fallocate(2).
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
    /// Waits until a device of requests is readable, and reads one. Of the lanes that wait so, one
    /// is woken for a request; one whose request another lane has read meanwhile waits on, and is
    /// woken beside others until it has read one.
    ReadRequest {
        device: RawFd,
        at: *mut u8,
        space_bytes: u32,
    },
    /// Writes a reply to a device of requests, at once: as [`Op::Send`], its success ends no wait.
    WriteReply {
        device: RawFd,
        at: *const u8,
        reply_bytes: u32,
    },
    /// Completes when the socket has send space again, or is broken.
    Writable {
        socket: RawFd,
    },
    /// FUSE over io_uring, with two iovecs.
    Kernel {
        file: RawFd,
        command: u32,
        iovecs: *const libc::iovec,
        body: [u8; 24],
    },
    /// Cancels an operation on this file; that operation's completion has the result.
    Cancel {
        token: Token,
        file: RawFd,
    },
}

impl Op {
    /// The bytes of a send at once, whose success ends no wait.
    pub(super) const fn at_once_bytes(self) -> Option<u32> {
        if let Self::Send { send_bytes, at_once: true, .. }
        | Self::SendGathered { send_bytes, at_once: true, .. }
        | Self::WriteReply { reply_bytes: send_bytes, .. } = self
        {
            Some(send_bytes)
        } else {
            None
        }
    }
}

/// The result of an [`Op`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Completion {
    pub(crate) token: Token,
    pub(crate) result: Result<u32, Errno>,
    /// The operation continues and completes again.
    pub(crate) more: bool,
}

/// How long a turn may wait for a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// At most this long.
    Ns(u64),
    /// For ever.
    Ever,
}

/// Statistics of object reads and writes, as far as this process knows them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Offloaded {
    /// Operations that ran on another thread.
    pub(crate) offloaded_count: u64,
    /// Threads started for them.
    pub(crate) thread_count: u64,
}

/// Drops a completion, and closes the connection that it may have brought.
pub(super) fn drop_completion(completion: Completion) {
    if let (Kind::Accept, Ok(socket)) = (completion.token.kind, completion.result) {
        drop(owned(socket));
    }
}

/// Owns the descriptor that an accept or open has just returned.
pub(crate) fn owned(file: u32) -> OwnedFd {
    let Ok(file) = i32::try_from(file) else { panic!("{file} is no descriptor") };
    // SAFETY: the kernel has just made it for this driver, which is its only owner.
    unsafe { OwnedFd::from_raw_fd(file) }
}
