//! `Feed`: what a lane's log and cold rows share with the threads that keep the cold store.
//!
//! It carries how far the log is durable, files to go on in, questions for rows and their answers.
//! What is in a log or a row is others'. Invariants: a lane never waits here, and makes a system call
//! only to wake somebody who said that he sleeps; what the lane announced before the other side
//! looked is seen, and what it announces after that side said that it sleeps wakes it.
//!
//! ```text
//! lane ─ durable up to ─▶ applier ─ next file, freed bytes, checkpoints ─▶ lane
//! lane ─ cold read ─▶ readers ─ rows ─▶ lane
//! ```

use crate::mailbox::Waker;
use disk::Trailer;
use interface::{Errno, Ticket};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use wire::{LaneId, ShardId, Transno};

pub use disk::LogPosition;

/// A log file to go on in: its head is written, space behind it is reserved, all durable.
#[derive(Debug)]
pub struct Segment {
    /// Open for writing.
    pub file: OwnedFd,
    /// Which it is.
    pub segment_no: u32,
    /// Where its first batch goes.
    pub start_offset: u64,
    /// Space reserved from there on.
    pub reserved_bytes: u64,
}

/// How long a lane's log and its files may get, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLengths {
    /// What is in the log and still needed, at most.
    pub log_bytes_max: u64,
    /// A file, before the log goes on in another one.
    pub segment_bytes: u64,
}

impl Default for LogLengths {
    fn default() -> Self {
        Self { log_bytes_max: 1 << 30, segment_bytes: 64 << 20 }
    }
}

/// A question for rows.
#[derive(Debug)]
pub struct RowQuery {
    /// Who asks.
    pub lane: LaneId,
    /// Given back.
    pub ticket: Ticket,
    /// First key.
    pub from: Box<[u8]>,
    /// Behind the last key; empty: `from` alone.
    pub until: Box<[u8]>,
    /// Rows at most.
    pub row_count_max: u32,
}

/// What a lane is told.
#[derive(Debug)]
pub enum RowReply {
    /// The answer to a [`RowQuery`]: rows as [`interface::StoreEvent::Rows`] has them.
    Rows {
        /// Of the question.
        ticket: Ticket,
        /// What was found.
        result: Result<Box<[u8]>, Errno>,
    },
    /// The cold store has taken over a shard's log up to here.
    Checkpointed {
        /// Which.
        shard: ShardId,
        /// Its last record.
        lsn: u64,
        /// The highest transaction so far.
        transno: Transno,
    },
}

/// The thread that applies logs: whether it sleeps, and how it is woken; and how far each lane's log
/// is durable.
#[derive(Debug)]
pub struct Applier {
    thread: OnceLock<Thread>,
    /// Packed positions, by lane.
    durable: Box<[AtomicU64]>,
    idle: AtomicBool,
    urgent: AtomicBool,
}

impl Applier {
    /// For the logs of so many lanes.
    #[must_use]
    pub fn new(lane_count: u16) -> Self {
        Self {
            thread: OnceLock::new(),
            durable: (0..lane_count).map(|_| AtomicU64::new(0)).collect(),
            idle: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
        }
    }

    /// Where each lane's log is durable.
    fn positions(&self) -> Vec<LogPosition> {
        let position =
            |position: &AtomicU64| LogPosition::unpacked(position.load(Ordering::Acquire));
        self.durable.iter().map(position).collect()
    }

    fn durable(&self, lane: LaneId) -> &AtomicU64 {
        &self.durable[usize::from(lane.0)]
    }

    /// Says which thread it is: the calling one.
    pub fn begin(&self) {
        // Only the first call counts; there is one thread.
        self.thread.get_or_init(std::thread::current);
    }

    /// Says that this thread is about to sleep. It looks at what was announced once more before it
    /// does.
    pub fn fall_asleep(&self) {
        self.idle.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Says that this thread is up.
    pub fn wake_up(&self) {
        self.idle.store(false, Ordering::SeqCst);
    }

    /// Whether somebody could not wait since the last call.
    pub fn take_urgent(&self) -> bool {
        self.urgent.swap(false, Ordering::SeqCst)
    }

    /// Whether somebody cannot wait.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
    }

    /// Something is there to be done, some time. Whether a thread was woken.
    fn announce(&self) -> bool {
        fence(Ordering::SeqCst);
        let asleep = self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::SeqCst);
        if asleep {
            self.wake();
        }
        asleep
    }

    /// Something is to be done soon.
    pub fn mark_urgent(&self) {
        self.urgent.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Questions of all lanes, for whoever reads rows.
#[derive(Debug, Default)]
pub struct RowQueries {
    waiting: Mutex<(VecDeque<RowQuery>, bool)>,
    more: Condvar,
}

impl RowQueries {
    /// The next question; waits for one. `None`: the server ends.
    pub fn next(&self) -> Option<RowQuery> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(query) = waiting.0.pop_front() {
                return Some(query);
            }
            if waiting.1 {
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nobody asks any more.
    pub fn end(&self) {
        lock(&self.waiting).1 = true;
        self.more.notify_all();
    }

    fn ask(&self, query: RowQuery) {
        lock(&self.waiting).0.push_back(query);
        self.more.notify_one();
    }
}

#[derive(Debug)]
struct Shared {
    lane: LaneId,
    /// Bytes of log that were written and are not needed any more.
    freed_bytes: AtomicU64,
    lengths: LogLengths,
    next: Mutex<Option<Segment>>,
    next_wanted: AtomicBool,
    /// Space reserved in it, 0 without.
    next_bytes: AtomicU64,
    retired: Mutex<Vec<OwnedFd>>,
    replies: Mutex<Vec<RowReply>>,
    applier: Arc<Applier>,
    asks: Arc<RowQueries>,
    waker: Waker,
}

/// One lane's. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Feed {
    shared: Arc<Shared>,
}

impl Feed {
    /// The feed of the lane that `waker` wakes, whose log begins at `start`.
    #[must_use]
    pub fn new(
        waker: Waker,
        start: LogPosition,
        lengths: LogLengths,
        applier: Arc<Applier>,
        asks: Arc<RowQueries>,
    ) -> Self {
        applier.durable(waker.lane()).store(start.packed(), Ordering::Release);
        let shared = Shared {
            lane: waker.lane(),
            freed_bytes: AtomicU64::new(0),
            lengths,
            next: Mutex::new(None),
            next_wanted: AtomicBool::new(false),
            next_bytes: AtomicU64::new(0),
            retired: Mutex::new(Vec::new()),
            replies: Mutex::new(Vec::new()),
            applier,
            asks,
            waker,
        };
        Self { shared: Arc::new(shared) }
    }

    // --- what the applier and the readers say ----------------------------------------------------

    /// Whose it is.
    #[must_use]
    pub fn lane(&self) -> LaneId {
        self.shared.lane
    }

    /// How long a file gets before the log goes on in another one, in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.shared.lengths.segment_bytes
    }

    /// Everything before this position is durable.
    #[must_use]
    pub fn durable(&self) -> LogPosition {
        LogPosition::unpacked(self.shared.applier.durable(self.shared.lane).load(Ordering::Acquire))
    }

    /// Whether the lane will need a file soon and has none to go on in.
    #[must_use]
    pub fn needs_segment(&self) -> bool {
        self.shared.next_wanted.load(Ordering::Acquire) && lock(&self.shared.next).is_none()
    }

    /// PrivilegedBits the lane a file to go on in.
    pub fn set_next_segment(&self, segment: Segment) {
        let reserved_bytes = segment.reserved_bytes;
        *lock(&self.shared.next) = Some(segment);
        self.shared.next_bytes.store(reserved_bytes, Ordering::Release);
    }

    /// Files that the lane has left, to be closed elsewhere.
    #[must_use]
    pub fn take_retired(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut *lock(&self.shared.retired))
    }

    /// So many bytes of this log, all in all, are not needed any more. The lane looks when it is
    /// told something.
    pub fn set_freed(&self, freed_bytes: u64) {
        self.shared.freed_bytes.store(freed_bytes, Ordering::Release);
    }

    /// Tells the lane, and wakes it.
    pub fn notify(&self, replies: impl IntoIterator<Item = RowReply>) {
        let mut waiting = lock(&self.shared.replies);
        let known_count = waiting.len();
        waiting.extend(replies);
        let more = waiting.len() > known_count;
        drop(waiting);
        if more {
            self.shared.waker.wake();
        }
    }

    // --- what the lane says ----------------------------------------------------------------------

    /// Says how far the log is durable. Whether a thread was woken, which is a system call.
    pub(crate) fn announce(&self, position: LogPosition) -> bool {
        self.shared.applier.durable(self.shared.lane).store(position.packed(), Ordering::Release);
        self.shared.applier.announce()
    }

    /// Where each lane's log is durable.
    pub(crate) fn positions(&self) -> Vec<LogPosition> {
        self.shared.applier.positions()
    }

    /// Bytes of a trailer that says so.
    pub(crate) fn trailer_bytes(&self) -> usize {
        Trailer::bytes_count(self.shared.applier.durable.len())
    }

    /// Asks the applier not to wait, when half of what the log may hold is still to be applied.
    pub(crate) fn hurry(&self, written_bytes: u64) {
        let is_long = self.space_bytes(written_bytes) < self.shared.lengths.log_bytes_max / 2;
        if is_long && !self.shared.applier.is_urgent() {
            self.shared.applier.mark_urgent();
        }
    }

    /// Asks for a file to go on in, once.
    pub(crate) fn request_segment(&self) -> bool {
        let wanted = self.shared.next_wanted.swap(true, Ordering::AcqRel);
        if !wanted {
            self.shared.applier.mark_urgent();
        }
        !wanted
    }

    /// The file to go on in, if it is there and has so many bytes reserved.
    pub(crate) fn take_segment(&self, reserved_bytes: u64) -> Option<Segment> {
        let mut next = self.shared.next.try_lock().ok()?;
        let segment = next.take_if(|next| next.reserved_bytes >= reserved_bytes)?;
        self.shared.next_bytes.store(0, Ordering::Release);
        self.shared.next_wanted.store(false, Ordering::Release);
        Some(segment)
    }

    /// Space reserved in the file to go on in, 0 while there is none.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.shared.next_bytes.load(Ordering::Acquire)
    }

    /// PrivilegedBits a file away that was left. Closing it here could take long.
    pub(crate) fn retire(&self, file: OwnedFd) {
        lock(&self.shared.retired).push(file);
    }

    /// How many of `written_bytes` may still come until the applier has caught up.
    pub(crate) fn space_bytes(&self, written_bytes: u64) -> u64 {
        let behind_bytes =
            written_bytes.saturating_sub(self.shared.freed_bytes.load(Ordering::Acquire));
        self.shared.lengths.log_bytes_max.saturating_sub(behind_bytes)
    }

    pub(crate) fn ask(&self, query: RowQuery) {
        self.shared.asks.ask(query);
    }

    pub(crate) fn take_replies(&self) -> Vec<RowReply> {
        std::mem::take(&mut *lock(&self.shared.replies))
    }
}

/// A lock that nobody holds for long; its data stays right whoever panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
