//! The driver on io_uring: one system call submits, waits and reaps. A small read of a file that is
//! the only one is tried by itself before: if the page cache has it, its completion is known, and
//! what is queued is submitted by the next call, which may wait.
//!
//! Invariants: those of [`super`]; the kernel has the addresses, so the memory does not move.

use super::files::{self, last_errno};
use super::op::drop_completion;
use super::{Completion, Kind, Op, Token, Wait};
use crate::number::{errno_from_raw, u32_of, u64_of};
use interface::Errno;
use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use std::io;
use std::os::fd::RawFd;

const SUBMISSION_COUNT: u32 = 512;
const COMPLETION_COUNT: u32 = 4096;
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 8;
/// The longest read that is tried by itself.
const ALONE_BYTES_MAX: u32 = 64 * 1024;
/// The error of such a read where the file system does not support it.
const NOT_SUPPORTED: Errno = Errno(95);
/// Operations that a lane requires, with names for error messages.
const NEEDED: [(u8, &str); 15] = [
    (opcode::AcceptMulti::CODE, "accept"),
    (opcode::Connect::CODE, "connect"),
    (opcode::Recv::CODE, "recv"),
    (opcode::Send::CODE, "send"),
    (opcode::SendMsg::CODE, "sendmsg"),
    (opcode::Read::CODE, "read"),
    (opcode::Write::CODE, "write"),
    (opcode::Fsync::CODE, "fsync"),
    (opcode::Fallocate::CODE, "fallocate"),
    (opcode::OpenAt::CODE, "openat"),
    (opcode::MkDirAt::CODE, "mkdirat"),
    (opcode::UnlinkAt::CODE, "unlinkat"),
    (opcode::PollAdd::CODE, "poll"),
    (opcode::AsyncCancel::CODE, "cancel"),
    (opcode::Nop::CODE, "nop"),
];

/// A lane's io_uring.
pub(crate) struct Uring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Completions without the kernel.
    known: Vec<Completion>,
    /// Sends at once; the kernel completes them only if they fail.
    at_once: Vec<(Token, u32)>,
    reads: Reads,
    /// Such reads are supported.
    can_read_alone: bool,
    /// The last call of `enter` did not enter the kernel, because such a read had succeeded.
    is_due: bool,
    in_flight_count: usize,
    enter_count: u64,
    call_count: u64,
    truncates: bool,
    /// The kernel sets a flag in shared memory when it has work for this thread.
    polls: bool,
}

/// The small reads that were queued since the kernel was entered.
#[derive(Clone, Copy)]
enum Reads {
    None,
    /// It is not submitted yet.
    One(Token, Op),
    Many,
}

impl Uring {
    /// Tries a ring: whether this process may have one, and whether it supports all that a lane
    /// needs.
    pub(super) fn try_out() -> io::Result<()> {
        let mut tried = Self::new(false)?;
        let mut probe = Probe::new();
        tried.ring.submitter().register_probe(&mut probe)?;
        if let Some((_, name)) = NEEDED.iter().find(|(code, _)| !probe.is_supported(*code)) {
            let line = format!("this kernel's io_uring has no {name}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, line));
        }
        let nop = squeue::Entry128::from(opcode::Nop::new().build());
        // SAFETY: it names no memory.
        let pushed = unsafe { tried.ring.submission().push(&nop) };
        pushed.map_err(|_| io::Error::other("a new queue has no space"))?;
        tried.ring.submit_and_wait(1)?;
        Ok(())
    }

    /// Sets the ring up for the calling thread. `polls`: for [`Self::poll`].
    pub(super) fn new(polls: bool) -> io::Result<Self> {
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        if polls {
            builder.setup_taskrun_flag();
        }
        let ring = builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(COMPLETION_COUNT)
            .setup_submit_all()
            .build(SUBMISSION_COUNT)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let truncates = probe.is_supported(opcode::Ftruncate::CODE);
        Ok(Self {
            ring,
            known: Vec::new(),
            at_once: Vec::new(),
            reads: Reads::None,
            can_read_alone: true,
            is_due: false,
            in_flight_count: 0,
            enter_count: 0,
            call_count: 0,
            truncates,
            polls,
        })
    }

    /// Sets the cores of the kernel's threads for this ring.
    pub(super) fn work_on(&self, cores: &[u16]) -> io::Result<()> {
        // SAFETY: a set of cores is plain bits; the empty one is valid.
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
    pub(super) const fn truncates(&self) -> bool {
        self.truncates
    }

    /// System calls made so far.
    pub(super) const fn enter_count(&self) -> u64 {
        self.enter_count
    }

    /// Other system calls made so far.
    pub(super) const fn call_count(&self) -> u64 {
        self.call_count
    }

    /// Whether completions are already known.
    pub(super) const fn has_completions(&self) -> bool {
        !self.known.is_empty()
    }

    pub(super) const fn has_sends_at_once(&self) -> bool {
        !self.at_once.is_empty()
    }

    /// Queues an operation; it leaves with the next [`Self::enter`].
    ///
    /// # Safety
    /// Memory and descriptors that `op` names stay valid, and memory that it writes stays
    /// untouched, until its completion was reaped.
    pub(super) unsafe fn queue(&mut self, token: Token, op: Op) {
        self.in_flight_count += 1;
        if matches!(op, Op::Read { direct: false, read_bytes: ..=ALONE_BYTES_MAX, .. })
            && self.can_read_alone
        {
            match std::mem::replace(&mut self.reads, Reads::Many) {
                Reads::None => {
                    self.reads = Reads::One(token, op);
                    return;
                }
                // SAFETY: the caller vouched for it when it was queued.
                Reads::One(token, op) => unsafe { self.push(token, op) },
                Reads::Many => {}
            }
        }
        // SAFETY: the caller vouches.
        unsafe { self.push(token, op) };
    }

    /// # Safety
    /// As [`Self::queue`].
    unsafe fn push(&mut self, token: Token, op: Op) {
        let entry = entry_of(op).user_data(token.pack());
        let first = linked_before(op).map(|first| first.user_data(token.pack()));
        if let Some(send_bytes) = op.at_once_bytes() {
            self.at_once.push((token, send_bytes));
        }
        loop {
            let mut submission = self.ring.submission();
            let pushed = match &first {
                // SAFETY: the caller vouches for the memory that the entry names.
                None => unsafe { submission.push(&entry) },
                // SAFETY: as above; the first entry names no memory.
                Some(first) => unsafe { submission.push_multiple(&[first.clone(), entry.clone()]) },
            };
            drop(submission);
            if pushed.is_ok() {
                return;
            }
            // The queue is full: submit it. `enter` meets an error again.
            if self.ring.submit().is_err() {
                std::thread::yield_now();
            }
            self.enter_count += 1;
        }
    }

    /// Completes an operation without the kernel.
    pub(super) fn complete(&mut self, token: Token, result: Result<u32, Errno>) {
        self.in_flight_count += 1;
        self.known.push(Completion { token, result, more: false });
    }

    /// Busy-polls shared memory for completions, and `has_other`, without system calls or a clock.
    /// Returns whether anything came within so many rounds.
    pub(super) fn poll(&mut self, round_count: u64, mut has_other: impl FnMut() -> bool) -> bool {
        for _ in 0..round_count {
            if self.is_pending() || has_other() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Whether there are completions, or entering the kernel would bring some.
    pub(super) fn is_pending(&mut self) -> bool {
        !self.known.is_empty() || self.wants_enter() || !self.ring.completion().is_empty()
    }

    /// Whether the kernel must be entered to make its completions visible.
    fn wants_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    /// Reads by itself what is the only read, if the page cache has it. Returns whether it has.
    fn read_alone(&mut self) -> bool {
        let Reads::One(token, op) = std::mem::replace(&mut self.reads, Reads::None) else {
            return false;
        };
        self.call_count += 1;
        // SAFETY: the caller of `queue` vouches for the memory until the completion.
        match unsafe { files::now(op) } {
            Some(result) => {
                self.known.push(Completion { token, result, more: false });
                true
            }
            None => {
                self.can_read_alone = last_errno() != NOT_SUPPORTED;
                // SAFETY: as above.
                unsafe { self.push(token, op) };
                false
            }
        }
    }

    /// Submits the queued operations, and waits for a completion if `wait` says so: one system
    /// call, or none when there is nothing to submit, to process or to wait for. A wait that a read
    /// by itself ends submits nothing; the next call does, so that the reply can leave with that.
    pub(super) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let has_read = self.read_alone();
        if has_read && wait != Wait::No && !std::mem::replace(&mut self.is_due, true) {
            return Ok(());
        }
        self.is_due = false;
        let wait = if has_read { Wait::No } else { wait };
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
            // Timeout, signal, or completions that must be reaped first: continue.
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Takes completions, at most `count_max`.
    pub(super) fn reap(&mut self, completions: &mut Vec<Completion>, count_max: usize) {
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

    /// Completes the sends at once that did not fail. They ended within the submitting call, so
    /// their success is known when the kernel has taken all submissions and all its completions
    /// were reaped.
    fn end_sends_at_once(&mut self, completions: &mut Vec<Completion>) {
        if self.at_once.is_empty() {
            return;
        }
        let at_once =
            |known: &&Completion| matches!(known.token.kind, Kind::Send | Kind::KernelReply);
        for completion in completions.iter().filter(at_once) {
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

    /// Cancels everything in flight and waits for it, bounded. Completions are dropped. Returns
    /// whether nothing is left in flight.
    pub(super) fn quiesce(&mut self) -> bool {
        /// Each round waits at most [`ROUND_NS`]. In tests, which check the result, as many as it
        /// takes.
        const ROUND_COUNT: usize = if cfg!(test) { 30_000 } else { 100 };
        const ROUND_NS: u64 = 10_000_000;
        let mut completions = Vec::new();
        for _ in 0..ROUND_COUNT {
            if self.in_flight_count == 0 {
                return true;
            }
            // Queued operations cannot be cancelled: submit them first.
            if self.enter(Wait::No).is_err() {
                return false;
            }
            let at_once = Some(Timespec::new());
            // Not found, or not ended yet: the loop tries again.
            self.ring.submitter().register_sync_cancel(at_once, CancelBuilder::any().all()).ok();
            self.reap(&mut completions, usize::MAX);
            completions.drain(..).for_each(drop_completion);
            if self.in_flight_count > 0 && self.enter(Wait::Ns(ROUND_NS)).is_err() {
                return false;
            }
        }
        self.in_flight_count == 0
    }
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
    // With MSG_WAITALL the kernel continues after a short send.
    let send_flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
    match op {
        Op::AcceptMany { listener } => {
            opcode::AcceptMulti::new(Fd(listener)).flags(libc::SOCK_CLOEXEC).build()
        }
        Op::Connect { socket, address, address_bytes } => {
            opcode::Connect::new(Fd(socket), address, address_bytes).build()
        }
        Op::Recv { socket, at, space_bytes, whole, discard } => {
            // tcp(7): with MSG_TRUNC received bytes are discarded.
            let flags = whole_flag(whole) | if discard { libc::MSG_TRUNC } else { 0 };
            opcode::Recv::new(Fd(socket), at, space_bytes).flags(flags).build()
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
        Op::SendGathered { socket, message, at_once: false, .. } => {
            let flags = send_flags.unsigned_abs();
            opcode::SendMsg::new(Fd(socket), message).flags(flags).build()
        }
        Op::SendGathered { socket, message, at_once: true, .. } => {
            let flags = (send_flags | libc::MSG_DONTWAIT).unsigned_abs();
            let send = opcode::SendMsg::new(Fd(socket), message).flags(flags).build();
            send.flags(squeue::Flags::SKIP_SUCCESS)
        }
        Op::ReadEvent { event, at } => opcode::Read::new(Fd(event), at, 8).build(),
        Op::Read { file, at, read_bytes, offset, cached, .. } => {
            let flags = if cached { libc::RWF_NOWAIT } else { 0 };
            opcode::Read::new(Fd(file), at, read_bytes).offset(offset).rw_flags(flags).build()
        }
        Op::Write { file, at, write_bytes, offset, .. } => {
            opcode::Write::new(Fd(file), at, write_bytes).offset(offset).build()
        }
        Op::WriteDurable { file, at, write_bytes, offset } => {
            let write = opcode::Write::new(Fd(file), at, write_bytes).offset(offset);
            // ASYNC: otherwise a file system that can write without blocking would sync on this
            // thread.
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
        Op::ReadRequest { device, at, space_bytes } => {
            opcode::Read::new(Fd(device), at, space_bytes).build()
        }
        Op::WriteReply { device, at, reply_bytes } => {
            let write = opcode::Write::new(Fd(device), at, reply_bytes).build();
            write.flags(squeue::Flags::SKIP_SUCCESS)
        }
        Op::Writable { socket } => {
            opcode::PollAdd::new(Fd(socket), u32::from(libc::POLLOUT.unsigned_abs())).build()
        }
        Op::Kernel { file, command, iovecs, body } => {
            return kernel_entry(file, command, iovecs, body);
        }
        Op::Cancel { token, .. } => opcode::AsyncCancel::new(token.pack()).build(),
    }
    .into()
}

/// What an operation waits for first. Both have one completion: that of the wait, if it fails, else
/// that of the operation.
fn linked_before(op: Op) -> Option<squeue::Entry128> {
    let Op::ReadRequest { device, .. } = op else { return None };
    let events = libc::EPOLLIN.unsigned_abs() | libc::EPOLLEXCLUSIVE.unsigned_abs();
    let poll = opcode::PollAdd::new(Fd(device), events).build();
    Some(poll.flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS).into())
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
