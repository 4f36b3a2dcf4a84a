//! How things are submitted and completed: the one io_uring of a lane.
//!
//! What is to be done is an [`Op`]; what came of it is a [`Completion`] under the same [`Token`].
//! Nothing else in this crate knows io_uring, so that another driver can stand here. Invariant:
//! memory named by an [`Op`] belongs to the ring until its completion was reaped.

use crate::number::{errno_from_raw, u32_of, u64_of, usize_of};
use door::Errno;
use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

const SUBMISSION_COUNT: u32 = 512;
const COMPLETION_COUNT: u32 = 4096;
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 8;

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
    Cancel {
        token: Token,
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

/// A lane's io_uring.
pub(crate) struct Driver {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Completions that did not need the kernel.
    known: Vec<Completion>,
    /// Sends at once that the kernel complains of only if they fail.
    at_once: Vec<(Token, u32)>,
    in_flight_count: usize,
    enter_count: u64,
    truncates: bool,
    /// The kernel says in memory when it has something to do for us.
    polls: bool,
}

impl Driver {
    /// Sets the ring up for the calling thread. `polls`: for [`Self::poll`].
    pub(crate) fn new(polls: bool) -> io::Result<Self> {
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        if polls {
            builder.setup_taskrun_flag();
        }
        let ring = builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(COMPLETION_COUNT)
            .setup_submit_all()
            .build(SUBMISSION_COUNT)
            .map_err(|error| explain(&error))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let truncates = probe.is_supported(opcode::Ftruncate::CODE);
        Ok(Self {
            ring,
            known: Vec::new(),
            at_once: Vec::new(),
            in_flight_count: 0,
            enter_count: 0,
            truncates,
            polls,
        })
    }

    /// Where the kernel's threads for this ring may run.
    pub(crate) fn work_on(&self, cores: &[u16]) -> io::Result<()> {
        // SAFETY: a set of cores is plain bits; none set is a valid one.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for core in cores.iter().map(|core| usize::from(*core)) {
            if core < 8 * size_of::<libc::cpu_set_t>() {
                // SAFETY: the set is ours and has a bit of that number.
                unsafe { libc::CPU_SET(core, &mut set) };
            }
        }
        self.ring.submitter().register_iowq_aff(&set)
    }

    /// Whether [`Op::Truncate`] exists (Linux 6.9).
    pub(crate) const fn truncates(&self) -> bool {
        self.truncates
    }

    /// System calls made so far.
    pub(crate) const fn enter_count(&self) -> u64 {
        self.enter_count
    }

    /// Whether completions are known already.
    pub(crate) const fn is_answered(&self) -> bool {
        !self.known.is_empty()
    }

    /// Queues an operation; it leaves with the next [`Self::enter`].
    ///
    /// # Safety
    /// Memory and descriptors that `op` names stay valid, and memory that it writes stays
    /// untouched, until its completion was reaped.
    pub(crate) unsafe fn queue(&mut self, token: Token, op: Op) {
        let entry = entry_of(op).user_data(token.pack());
        self.in_flight_count += 1;
        if let Op::Send { send_bytes, at_once: true, .. } = op {
            self.at_once.push((token, send_bytes));
        }
        loop {
            // SAFETY: the caller vouches for the memory that the entry names.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_ok() {
                return;
            }
            // The queue is full: let the kernel take it. An error here is met again by `enter`.
            if self.ring.submit().is_err() {
                std::thread::yield_now();
            }
            self.enter_count += 1;
        }
    }

    /// Asks to end an operation early; its completion tells what came of it.
    pub(crate) fn cancel(&mut self, token: Token) {
        // SAFETY: a cancellation names no memory.
        unsafe { self.queue(Token::new(Kind::Cancel, 0), Op::Cancel { token }) };
    }

    /// Completes an operation that needs no kernel.
    pub(crate) fn answer(&mut self, token: Token, result: Result<u32, Errno>) {
        self.in_flight_count += 1;
        self.known.push(Completion { token, result, more: false });
    }

    /// Looks out for completions without a system call and without a clock, as far as memory tells
    /// of them, and for what else may come. Whether anything came within so many rounds.
    pub(crate) fn poll(&mut self, round_count: u64, mut comes: impl FnMut() -> bool) -> bool {
        for _ in 0..round_count {
            if self.is_pending() || comes() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Whether the kernel has completions, or would have some if it were entered.
    pub(crate) fn is_pending(&mut self) -> bool {
        self.wants_enter() || !self.ring.completion().is_empty()
    }

    /// Whether the kernel has to be entered before its completions are seen.
    fn wants_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    /// Submits what was queued, waits for a completion if asked to: one system call, or none when
    /// nothing is to be submitted, to be done or to be waited for.
    pub(crate) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let submit_count = u32_of(self.ring.submission().len());
        if self.polls && wait == Wait::No && submit_count == 0 && !self.wants_enter() {
            return Ok(());
        }
        let timespec;
        let mut args = SubmitArgs::new();
        let want_count = match wait {
            Wait::No => 0,
            Wait::Ever => 1,
            Wait::Ns(ns) => {
                timespec = Timespec::from(std::time::Duration::from_nanos(ns));
                args = args.timespec(&timespec);
                1
            }
        };
        self.enter_count += 1;
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: the argument is the extended one that the flag announces and lives until the
        // call returns.
        let entered =
            unsafe { self.ring.submitter().enter(submit_count, want_count, flags, Some(&args)) };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(()),
            // Time is over, a signal came, or completions must be reaped first: go on.
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Takes what has completed, at most `count_max`.
    pub(crate) fn reap(&mut self, completions: &mut Vec<Completion>, count_max: usize) {
        completions.append(&mut self.known);
        for entry in self.ring.completion() {
            completions.push(completion_of(&entry));
            if completions.len() >= count_max {
                break;
            }
        }
        self.end_sends_at_once(completions);
        let ended_count = completions.iter().filter(|completion| !completion.more).count();
        assert!(ended_count <= self.in_flight_count, "more completions than operations");
        self.in_flight_count -= ended_count;
    }

    /// Completes the sends at once that nothing was complained of. They ended within the call that
    /// submitted them, so that is known when the kernel has taken all submissions and all its
    /// completions were seen.
    fn end_sends_at_once(&mut self, completions: &mut Vec<Completion>) {
        if self.at_once.is_empty() {
            return;
        }
        for completion in completions.iter().filter(|known| known.token.kind == Kind::Send) {
            self.at_once.retain(|(token, _)| *token != completion.token);
        }
        let submission = self.ring.submission();
        let all_seen = submission.is_empty() && !submission.cq_overflow();
        drop(submission);
        if all_seen && self.ring.completion().is_empty() {
            completions.extend(self.at_once.drain(..).map(|(token, send_bytes)| Completion {
                token,
                result: Ok(send_bytes),
                more: false,
            }));
        }
    }

    /// Ends everything that is in flight and waits for it, bounded. Completions are dropped.
    /// Returns whether nothing is left.
    pub(crate) fn quiesce(&mut self) -> bool {
        let mut completions = Vec::new();
        for _ in 0..100 {
            if self.in_flight_count == 0 {
                return true;
            }
            // What is only queued cannot be cancelled: let the kernel take it first.
            if self.enter(Wait::No).is_err() {
                return false;
            }
            let at_once = Some(Timespec::new());
            // Not found, or not yet ended: the loop asks again.
            self.ring.submitter().register_sync_cancel(at_once, CancelBuilder::any().all()).ok();
            self.reap(&mut completions, usize::MAX);
            completions.drain(..).for_each(forget);
            if self.in_flight_count > 0 && self.enter(Wait::Ns(10_000_000)).is_err() {
                return false;
            }
        }
        self.in_flight_count == 0
    }
}

/// Drops what came of an operation, with the connection that it may have brought.
fn forget(completion: Completion) {
    if let (Kind::Accept, Ok(socket)) = (completion.token.kind, completion.result) {
        drop(owned(socket));
    }
}

/// The descriptor that an accept or open has just given.
pub(crate) fn owned(file: u32) -> OwnedFd {
    let Ok(file) = i32::try_from(file) else { panic!("{file} is no descriptor") };
    // SAFETY: the kernel has just made it for this ring; nobody else has it.
    unsafe { OwnedFd::from_raw_fd(file) }
}

fn completion_of(entry: &cqueue::Entry) -> Completion {
    let result = match u32::try_from(entry.result()) {
        Ok(count) => Ok(count),
        Err(_) => Err(errno_from_raw(-entry.result())),
    };
    let more = cqueue::more(entry.flags());
    Completion { token: Token::unpack(entry.user_data()), result, more }
}

fn entry_of(op: Op) -> squeue::Entry128 {
    let whole_flag = |whole| if whole { libc::MSG_WAITALL } else { 0 };
    // With MSG_WAITALL the kernel itself goes on after a short send.
    let send_flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
    match op {
        Op::AcceptMany { listener } => {
            opcode::AcceptMulti::new(Fd(listener)).flags(libc::SOCK_CLOEXEC).build()
        }
        Op::Connect { socket, address, address_bytes } => {
            opcode::Connect::new(Fd(socket), address, address_bytes).build()
        }
        Op::Recv { socket, at, room_bytes, whole, discard } => {
            // tcp(7): with MSG_TRUNC received bytes are discarded.
            let flags = whole_flag(whole) | if discard { libc::MSG_TRUNC } else { 0 };
            opcode::Recv::new(Fd(socket), at, room_bytes).flags(flags).build()
        }
        Op::Send { socket, at, send_bytes, at_once: false } => {
            opcode::Send::new(Fd(socket), at, send_bytes).flags(send_flags).build()
        }
        Op::Send { socket, at, send_bytes, at_once: true } => {
            // WAITALL makes a short send a failure, and failures complete in spite of SKIP_SUCCESS.
            let flags = send_flags | libc::MSG_DONTWAIT;
            let send = opcode::Send::new(Fd(socket), at, send_bytes).flags(flags).build();
            send.flags(squeue::Flags::SKIP_SUCCESS)
        }
        Op::SendGathered { socket, message } => {
            let flags = send_flags.unsigned_abs();
            opcode::SendMsg::new(Fd(socket), message).flags(flags).build()
        }
        Op::Read { file, at, read_bytes, offset } => {
            opcode::Read::new(Fd(file), at, read_bytes).offset(offset).build()
        }
        Op::Write { file, at, write_bytes, offset } => {
            opcode::Write::new(Fd(file), at, write_bytes).offset(offset).build()
        }
        Op::WriteDurable { file, at, write_bytes, offset } => {
            let write = opcode::Write::new(Fd(file), at, write_bytes).offset(offset);
            // ASYNC: a file system that can write without blocking would sync on this thread.
            write.rw_flags(libc::RWF_DSYNC).build().flags(squeue::Flags::ASYNC)
        }
        Op::Sync { file, data_only } => {
            let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            opcode::Fsync::new(Fd(file)).flags(flags).build()
        }
        Op::Allocate { file, offset, range_bytes, mode } => {
            opcode::Fallocate::new(Fd(file), range_bytes).offset(offset).mode(mode).build()
        }
        Op::Truncate { file, size_bytes } => opcode::Ftruncate::new(Fd(file), size_bytes).build(),
        Op::Open { dir, path, flags } => {
            opcode::OpenAt::new(Fd(dir), path).flags(flags | libc::O_CLOEXEC).mode(0o600).build()
        }
        Op::MakeDir { dir, path } => opcode::MkDirAt::new(Fd(dir), path).mode(0o700).build(),
        Op::Remove { dir, path } => opcode::UnlinkAt::new(Fd(dir), path).build(),
        Op::Readable { file } => {
            opcode::PollAdd::new(Fd(file), u32::from(libc::POLLIN.unsigned_abs())).build()
        }
        Op::Writable { socket } => {
            opcode::PollAdd::new(Fd(socket), u32::from(libc::POLLOUT.unsigned_abs())).build()
        }
        Op::Kernel { file, command, iovecs, body } => {
            return kernel_entry(file, command, iovecs, body);
        }
        Op::Cancel { token } => opcode::AsyncCancel::new(token.pack()).build(),
    }
    .into()
}

/// A FUSE command. The crate's builder cannot set `len`, which names the number of iovecs.
fn kernel_entry(
    file: RawFd,
    command: u32,
    iovecs: *const libc::iovec,
    body: [u8; 24],
) -> squeue::Entry128 {
    /// Offset of `len` in `struct io_uring_sqe`.
    const LEN_OFFSET: usize = 24;
    const { assert!(size_of::<squeue::Entry128>() == 128, "an entry is the kernel's layout") };
    let mut cmd = [0; 80];
    cmd[..24].copy_from_slice(&body);
    let address = u64_of(iovecs.addr());
    iovecs.expose_provenance();
    let mut entry = opcode::UringCmd80::new(Fd(file), command).cmd(cmd).addr(Some(address)).build();
    let at = (&raw mut entry).cast::<u8>().wrapping_add(LEN_OFFSET).cast::<u32>();
    // SAFETY: an entry is `repr(C)` over the kernel's 128-byte struct, in which 4 bytes at 24 are
    // `len`; `entry` is ours and any alignment will do.
    unsafe { at.write_unaligned(2) };
    entry
}

fn explain(error: &io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            "this kernel has no io_uring, or a container forbids it: Linux 6.1 or later is needed, \
             and the system calls io_uring_setup and io_uring_enter must be allowed"
        }
        Some(libc::EPERM) => {
            "io_uring is forbidden here: allow it in the container's seccomp profile, or set \
             /proc/sys/kernel/io_uring_disabled to 0"
        }
        Some(libc::EINVAL) => "the kernel is too old: Linux 6.1 or later is needed",
        Some(libc::ENOMEM) => "not enough memory that may be locked: raise `ulimit -l`",
        _ => "see the error",
    };
    io::Error::new(error.kind(), format!("io_uring could not be set up ({error}): {why}"))
}
