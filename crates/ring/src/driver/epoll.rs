//! The driver on epoll: operations that are ready are done at once, operations that block by worker
//! threads.
//!
//! ```text
//! enter: queued operations ─▶ sockets: tried, or watched until they are ready
//!                        └▶ files: from or to the page cache if possible, else by a worker thread
//!        epoll_pwait2 ─▶ ready operations are tried ─▶ completions, also of worker threads
//! ```
//! Descriptors and their waiting operations are in `watch`. Invariants: those of [`super`];
//! operations are started and cancelled in the order in which they were queued; one `enter`
//! completes a bounded number of ready operations.

use super::files::{self, last_errno};
use super::op::drop_completion;
use super::pool::Pool;
use super::watch::{Side, Waiting, Watches, cancelled, file_of};
use super::{Completion, Kind, Op, Token, Wait, sockets};
use interface::Errno;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno as Failure;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

/// Ready descriptors per call.
const EVENT_COUNT: usize = 512;
/// Connections accepted when a listener is ready, before other descriptors get their turn.
const ACCEPT_COUNT_MAX: usize = 64;
/// Worker threads of a lane: as many object flushes may run concurrently, which the file system
/// then combines.
const THREAD_COUNT_MAX: usize = 8;
/// Marks events of the worker threads' eventfd.
const WAKEUP: u64 = u64::MAX;
const NOT_SUPPORTED: Errno = Errno(95);

/// A lane's epoll.
pub(crate) struct Epoll {
    watches: Watches,
    pool: Pool,
    /// Queued operations.
    fresh: Vec<(Token, Op)>,
    done: VecDeque<Completion>,
    /// A pending completion must end a wait.
    ends_wait: bool,
    in_flight_count: usize,
    enter_count: u64,
    call_count: u64,
    /// Object reads and writes that worker threads did.
    offloaded_count: u64,
    events: Vec<epoll::Event>,
    /// The file system can write to the page cache without blocking.
    can_write_nowait: bool,
    /// Only timeouts in milliseconds are allowed here.
    is_coarse: bool,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        let (watches, pool) = (Watches::new()?, Pool::new("files", THREAD_COUNT_MAX)?);
        watches.watch_wakeup(pool.wakeup().event(), WAKEUP)?;
        Ok(Self {
            watches,
            pool,
            fresh: Vec::new(),
            done: VecDeque::new(),
            ends_wait: false,
            in_flight_count: 0,
            enter_count: 0,
            call_count: 0,
            offloaded_count: 0,
            events: Vec::with_capacity(EVENT_COUNT),
            can_write_nowait: true,
            is_coarse: false,
        })
    }

    pub(super) fn work_on(&mut self, cores: &[u16]) {
        self.pool.work_on(cores);
    }

    pub(super) const fn enter_count(&self) -> u64 {
        self.enter_count
    }

    pub(super) const fn call_count(&self) -> u64 {
        self.call_count + self.watches.call_count()
    }

    /// Object reads and writes by worker threads, and the number of threads.
    pub(super) fn offloaded(&self) -> (u64, u64) {
        (self.offloaded_count, self.pool.thread_count())
    }

    pub(super) fn has_completions(&self) -> bool {
        !self.done.is_empty()
    }

    pub(super) fn has_sends_at_once(&self) -> bool {
        self.fresh.iter().any(|(_, op)| op.at_once_bytes().is_some())
    }

    /// # Safety
    /// As `Driver::queue`.
    pub(super) unsafe fn queue(&mut self, token: Token, op: Op) {
        if !matches!(op, Op::Cancel { .. }) {
            self.in_flight_count += 1;
        }
        self.fresh.push((token, op));
    }

    pub(super) fn complete_now(&mut self, token: Token, result: Result<u32, Errno>) {
        self.in_flight_count += 1;
        self.end(token, result);
    }

    pub(super) fn forget(&mut self, file: RawFd) {
        self.watches.forget(file);
    }

    /// The success of a send at once does not count as pending.
    pub(super) fn is_pending(&self) -> bool {
        self.ends_wait || self.pool.wakeup().has_notices()
    }

    /// A round is one poll of the ready descriptors, which is a system call.
    pub(super) fn poll(&mut self, round_count: u64, mut has_other: impl FnMut() -> bool) -> bool {
        for _ in 0..round_count {
            if self.is_pending() || has_other() {
                return true;
            }
            // `enter` meets a failure again.
            self.poll_ready(Wait::No).ok();
        }
        false
    }

    pub(super) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let mut fresh = std::mem::take(&mut self.fresh);
        for (token, op) in fresh.drain(..) {
            self.begin(token, op);
        }
        self.fresh = fresh;
        self.poll_ready(wait)
    }

    pub(super) fn reap(&mut self, completions: &mut Vec<Completion>, count_max: usize) {
        let space_count = count_max.saturating_sub(completions.len());
        let reaped_count = self.done.len().min(space_count);
        let reaped = self.done.drain(..reaped_count);
        let mut ended_count = 0;
        completions.extend(reaped.inspect(|done| ended_count += usize::from(!done.more)));
        self.ends_wait = !self.done.is_empty();
        assert!(ended_count <= self.in_flight_count, "more completions than operations");
        self.in_flight_count -= ended_count;
    }

    pub(super) fn quiesce(&mut self) -> bool {
        self.fresh.clear();
        self.watches.clear();
        self.done.drain(..).for_each(drop_completion);
        self.pool.end()
    }

    // --- starting operations ---------------------------------------------------------------------

    fn begin(&mut self, token: Token, op: Op) {
        let waiting = Waiting { token, op, moved_bytes: 0 };
        match op {
            Op::AcceptMany { listener } => match sockets::set_nonblocking(listener) {
                Ok(()) => self.watches.wait(listener, Side::Reader, waiting),
                Err(errno) => self.end(token, Err(errno)),
            },
            // Watched without an attempt: arrived bytes have usually been received already.
            Op::Recv { socket: file, .. }
            | Op::ReadEvent { event: file, .. }
            | Op::ReadRequest { device: file, .. } => {
                self.watches.wait(file, Side::Reader, waiting);
            }
            Op::Writable { socket } => self.watches.wait(socket, Side::Writer, waiting),
            Op::Connect { socket, .. } => {
                // SAFETY: the caller of `queue` vouches for the address.
                match unsafe { sockets::connect(op, &mut self.call_count) } {
                    Some(result) => self.end(token, result),
                    None => self.watches.wait(socket, Side::Writer, waiting),
                }
            }
            Op::Send { socket, .. } | Op::SendGathered { socket, .. } => match op.at_once_bytes() {
                Some(send_bytes) => self.send_at_once(waiting, send_bytes),
                None => self.attempt(socket, Side::Writer, waiting, true),
            },
            Op::Read { .. } | Op::Write { .. } => self.move_bytes(token, op),
            Op::WriteDurable { .. }
            | Op::Sync { .. }
            | Op::Allocate { .. }
            | Op::Truncate { .. }
            | Op::Open { .. }
            | Op::MakeDir { .. }
            | Op::Remove { .. } => self.offload(token, op),
            Op::WriteReply { reply_bytes, .. } => self.send_at_once(waiting, reply_bytes),
            Op::Kernel { .. } => self.end(token, Err(NOT_SUPPORTED)),
            Op::Cancel { token, file } => {
                if let Some(waiting) = self.watches.find(file, token) {
                    self.complete(cancelled(waiting));
                }
            }
        }
    }

    /// Its success ends no wait.
    fn send_at_once(&mut self, mut waiting: Waiting, send_bytes: u32) {
        // SAFETY: the caller of `queue` vouches for the bytes.
        let result = unsafe { sockets::attempt(&mut waiting, &mut self.call_count) };
        let result = result.unwrap_or(Err(Errno(11)));
        self.ends_wait |= result != Ok(send_bytes);
        self.done.push_back(Completion { token: waiting.token, result, more: false });
    }

    /// Transfers at once what the page cache has or takes. A direct transfer waits for the disk.
    fn move_bytes(&mut self, token: Token, op: Op) {
        let direct = matches!(op, Op::Read { direct: true, .. } | Op::Write { direct: true, .. });
        let reads = matches!(op, Op::Read { .. });
        if !direct && (reads || self.can_write_nowait) {
            self.call_count += 1;
            // SAFETY: the caller of `queue` vouches for the bytes.
            match unsafe { files::now(op) } {
                Some(result) => return self.end(token, result),
                None if !reads => self.can_write_nowait = last_errno() != NOT_SUPPORTED,
                None => {}
            }
        }
        self.offloaded_count += u64::from(token.kind == Kind::Job);
        self.offload(token, op);
    }

    fn offload(&mut self, token: Token, op: Op) {
        // SAFETY: the caller of `queue` vouches.
        self.call_count += unsafe { self.pool.begin(token, op) };
    }

    // --- ready descriptors -----------------------------------------------------------------------

    /// Waits, then tries the ready operations.
    fn poll_ready(&mut self, wait: Wait) -> io::Result<()> {
        let Self { watches, done, ends_wait, .. } = self;
        watches.settle(|refused| {
            *ends_wait = true;
            done.push_back(refused);
        });
        let sleeps = wait != Wait::No && !self.ends_wait && self.pool.wakeup().fall_asleep();
        let waited = self.wait(if sleeps { wait } else { Wait::No });
        self.pool.wakeup().wake_up();
        waited?;
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            // Fields of a packed struct must be copied.
            let (data, flags) = (event.data.u64(), event.flags);
            if data != WAKEUP {
                self.on_ready(file_of(data), flags);
            }
        }
        self.events = events;
        let Self { pool, done, ends_wait, .. } = self;
        pool.take(|token, result| {
            *ends_wait = true;
            done.push_back(Completion { token, result, more: false });
        });
        Ok(())
    }

    fn wait(&mut self, wait: Wait) -> io::Result<()> {
        let timeout = match wait {
            Wait::No => Some(0),
            Wait::Ns(ns) if self.is_coarse => Some(ns.next_multiple_of(1_000_000)),
            Wait::Ns(ns) => Some(ns),
            Wait::Ever => None,
        };
        let timeout = timeout.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        });
        self.enter_count += 1;
        self.events.clear();
        let space = spare_capacity(&mut self.events);
        match epoll::wait(self.watches.epoll(), space, timeout.as_ref()) {
            Ok(_) | Err(Failure::INTR) => Ok(()),
            // An old container's seccomp profile does not know the call with nanoseconds.
            Err(Failure::NOSYS | Failure::PERM) if !self.is_coarse => {
                self.is_coarse = true;
                self.wait(wait)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn on_ready(&mut self, file: RawFd, flags: epoll::EventFlags) {
        for side in self.watches.on_ready(file, flags).into_iter().flatten() {
            let Some(waiting) = self.watches.take(file, side) else { continue };
            if matches!(waiting.op, Op::AcceptMany { .. }) {
                self.accept(file, waiting);
            } else {
                self.attempt(file, side, waiting, false);
            }
        }
    }

    /// Tries an operation; if it is not ready, it waits: newly (`is_new`) or again.
    fn attempt(&mut self, file: RawFd, side: Side, mut waiting: Waiting, is_new: bool) {
        // SAFETY: the caller of `queue` vouches until the completion, which has not happened yet.
        match unsafe { sockets::attempt(&mut waiting, &mut self.call_count) } {
            Some(result) => self.end(waiting.token, result),
            None if is_new => self.watches.wait(file, side, waiting),
            None => self.watches.put_back(file, side, waiting),
        }
    }

    fn accept(&mut self, listener: RawFd, waiting: Waiting) {
        let token = waiting.token;
        for _ in 0..ACCEPT_COUNT_MAX {
            match sockets::accept(listener, &mut self.call_count) {
                Some(result @ Ok(_)) => self.complete(Completion { token, result, more: true }),
                Some(failed) => return self.end(token, failed),
                None => break,
            }
        }
        self.watches.put_back(listener, Side::Reader, waiting);
    }

    fn end(&mut self, token: Token, result: Result<u32, Errno>) {
        self.complete(Completion { token, result, more: false });
    }

    fn complete(&mut self, completion: Completion) {
        self.ends_wait = true;
        self.done.push_back(completion);
    }
}
