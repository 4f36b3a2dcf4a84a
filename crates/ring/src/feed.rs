//! `Feed`: state shared by a lane and the threads that maintain the row store: its log's durable
//! position, further log files, row queries and their replies.
//!
//! Invariants: a lane never waits here, and makes a system call only to wake a sleeping thread; the
//! applier sees every position announced before its check, and a position announced after it set its
//! sleep flag wakes it.
//! ```text
//! lane ─ durable up to ─▶ applier ─ next file, freed bytes, checkpoints ─▶ lane
//! lane ─ row query ─▶ readers ─ rows ─▶ lane
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

/// A log file to continue in: its header is written, space is reserved, all durable.
#[derive(Debug)]
pub struct Segment {
    /// Open for writing.
    pub file: OwnedFd,
    /// Its number.
    pub segment_no: u32,
    /// Offset of its first batch.
    pub start_offset: u64,
    /// Space reserved from there on.
    pub reserved_bytes: u64,
}

/// Length limits of a lane's log and of its files, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLengths {
    /// Maximum of log bytes that are not yet applied.
    pub log_bytes_max: u64,
    /// Length at which the log continues in another file.
    pub segment_bytes: u64,
}

impl Default for LogLengths {
    fn default() -> Self {
        Self { log_bytes_max: 1 << 30, segment_bytes: 64 << 20 }
    }
}

/// A query for rows.
#[derive(Debug)]
pub struct RowQuery {
    /// The asking lane.
    pub lane: LaneId,
    /// Returned with the reply.
    pub ticket: Ticket,
    /// First key.
    pub from: Box<[u8]>,
    /// Exclusive end; empty: only `from`.
    pub until: Box<[u8]>,
    /// Maximum number of rows.
    pub row_count_max: u32,
}

/// A notification to a lane.
#[derive(Debug)]
pub enum RowReply {
    /// The reply to a [`RowQuery`]: rows encoded as in [`interface::StoreEvent::Rows`].
    Rows {
        /// Of the query.
        ticket: Ticket,
        /// The rows.
        result: Result<Box<[u8]>, Errno>,
    },
    /// The row store has applied a shard's log up to here.
    Checkpointed {
        /// The shard.
        shard: ShardId,
        /// Its last applied record.
        lsn: u64,
        /// Its highest transaction so far.
        transno: Transno,
    },
}

/// Wakeups of the thread that applies logs, and the durable position of each lane's log.
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

    /// The durable position of each lane's log.
    fn positions(&self) -> Vec<LogPosition> {
        let position =
            |position: &AtomicU64| LogPosition::unpacked(position.load(Ordering::Acquire));
        self.durable.iter().map(position).collect()
    }

    fn durable(&self, lane: LaneId) -> &AtomicU64 {
        &self.durable[usize::from(lane.0)]
    }

    /// Registers the calling thread as the applier.
    pub fn begin(&self) {
        // Only the first call counts; there is one such thread.
        self.thread.get_or_init(std::thread::current);
    }

    /// Sets the sleep flag. The thread must check for announcements once more before it sleeps.
    pub fn fall_asleep(&self) {
        self.idle.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Clears the sleep flag.
    pub fn wake_up(&self) {
        self.idle.store(false, Ordering::SeqCst);
    }

    /// Whether urgent work was announced since the last call.
    pub fn take_urgent(&self) -> bool {
        self.urgent.swap(false, Ordering::SeqCst)
    }

    /// Whether urgent work is announced.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
    }

    /// Announces work without urgency. Returns whether the thread was woken.
    fn announce(&self) -> bool {
        fence(Ordering::SeqCst);
        let asleep = self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::SeqCst);
        if asleep {
            self.wake();
        }
        asleep
    }

    /// Announces urgent work.
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

/// Row queries of all lanes, for the threads that read rows.
#[derive(Debug, Default)]
pub struct RowQueries {
    waiting: Mutex<(VecDeque<RowQuery>, bool)>,
    more: Condvar,
}

impl RowQueries {
    /// Waits for the next query. `None`: the server ends.
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

    /// Ends [`Self::next`] of all threads.
    pub fn end(&self) {
        lock(&self.waiting).1 = true;
        self.more.notify_all();
    }

    fn push_query(&self, query: RowQuery) {
        lock(&self.waiting).0.push_back(query);
        self.more.notify_one();
    }
}

#[derive(Debug)]
struct Shared {
    lane: LaneId,
    /// The packed position up to which the rows may take over the log.
    ready: AtomicU64,
    /// A write failed whose bytes the log may have alone.
    has_failed_contents: AtomicBool,
    /// Log bytes that were written and are no longer needed.
    freed_bytes: AtomicU64,
    lengths: LogLengths,
    next: Mutex<Option<Segment>>,
    next_wanted: AtomicBool,
    /// Space reserved in the next segment; 0 if there is none.
    next_bytes: AtomicU64,
    retired: Mutex<Vec<OwnedFd>>,
    replies: Mutex<Vec<RowReply>>,
    applier: Arc<Applier>,
    queries: Arc<RowQueries>,
    waker: Waker,
}

/// The feed of one lane. Clones share it.
#[derive(Clone, Debug)]
pub struct Feed {
    shared: Arc<Shared>,
}

impl Feed {
    /// The feed of the lane that `waker` wakes; its log begins at `start`.
    #[must_use]
    pub fn new(
        waker: Waker,
        start: LogPosition,
        lengths: LogLengths,
        applier: Arc<Applier>,
        queries: Arc<RowQueries>,
    ) -> Self {
        applier.durable(waker.lane()).store(start.packed(), Ordering::Release);
        let shared = Shared {
            lane: waker.lane(),
            ready: AtomicU64::new(start.packed()),
            has_failed_contents: AtomicBool::new(false),
            freed_bytes: AtomicU64::new(0),
            lengths,
            next: Mutex::new(None),
            next_wanted: AtomicBool::new(false),
            next_bytes: AtomicU64::new(0),
            retired: Mutex::new(Vec::new()),
            replies: Mutex::new(Vec::new()),
            applier,
            queries,
            waker,
        };
        Self { shared: Arc::new(shared) }
    }

    // --- for the applier and the row readers -----------------------------------------------------

    /// The lane it belongs to.
    #[must_use]
    pub fn lane(&self) -> LaneId {
        self.shared.lane
    }

    /// File length at which the log continues in another file, in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.shared.lengths.segment_bytes
    }

    /// Everything before this position is durable.
    #[must_use]
    pub fn durable(&self) -> LogPosition {
        LogPosition::unpacked(self.shared.applier.durable(self.shared.lane).load(Ordering::Acquire))
    }

    /// Everything before this position is durable, and the writes that it may have bytes of have
    /// ended.
    #[must_use]
    pub fn ready(&self) -> LogPosition {
        LogPosition::unpacked(self.shared.ready.load(Ordering::Acquire))
    }

    /// Whether such a write has failed: its object lacks bytes that the log may have.
    #[must_use]
    pub fn has_failed_contents(&self) -> bool {
        self.shared.has_failed_contents.load(Ordering::Acquire)
    }

    /// Whether the lane will need another file soon and has none.
    #[must_use]
    pub fn needs_segment(&self) -> bool {
        self.shared.next_wanted.load(Ordering::Acquire) && lock(&self.shared.next).is_none()
    }

    /// Provides the file to continue in.
    pub fn set_next_segment(&self, segment: Segment) {
        let reserved_bytes = segment.reserved_bytes;
        *lock(&self.shared.next) = Some(segment);
        self.shared.next_bytes.store(reserved_bytes, Ordering::Release);
    }

    /// Files that the lane has left, to be closed by the caller.
    #[must_use]
    pub fn take_retired(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut *lock(&self.shared.retired))
    }

    /// The total of this log's bytes that are no longer needed. The lane reads it when it is
    /// notified.
    pub fn set_freed(&self, freed_bytes: u64) {
        self.shared.freed_bytes.store(freed_bytes, Ordering::Release);
    }

    /// Sends replies to the lane, and wakes it.
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

    // --- for the lane ----------------------------------------------------------------------------

    /// Sets the log's durable position.
    pub(crate) fn set_durable(&self, position: LogPosition) {
        self.shared.applier.durable(self.shared.lane).store(position.packed(), Ordering::Release);
    }

    /// Sets the position up to which the rows may take over the log. Returns whether a thread was
    /// woken, which is a system call.
    pub(crate) fn set_ready(&self, position: LogPosition) -> bool {
        self.shared.ready.store(position.packed(), Ordering::Release);
        self.shared.applier.announce()
    }

    /// A write failed whose bytes the log may have alone: nothing is taken over any more. Returns
    /// whether a thread was woken.
    pub(crate) fn fail_contents(&self) -> bool {
        if self.shared.has_failed_contents.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.shared.applier.mark_urgent();
        true
    }

    /// The durable position of each lane's log.
    pub(crate) fn positions(&self) -> Vec<LogPosition> {
        self.shared.applier.positions()
    }

    /// Bytes of a trailer with these positions.
    pub(crate) fn trailer_bytes(&self) -> usize {
        Trailer::bytes_count(self.shared.applier.durable.len())
    }

    /// Makes the applier work at once when half of the log limit is still to be applied.
    pub(crate) fn hurry(&self, written_bytes: u64) {
        let is_long = self.space_bytes(written_bytes) < self.shared.lengths.log_bytes_max / 2;
        if is_long && !self.shared.applier.is_urgent() {
            self.shared.applier.mark_urgent();
        }
    }

    /// Requests a file to continue in, once.
    pub(crate) fn request_segment(&self) -> bool {
        let wanted = self.shared.next_wanted.swap(true, Ordering::AcqRel);
        if !wanted {
            self.shared.applier.mark_urgent();
        }
        !wanted
    }

    /// Takes the next file, if it is ready and has so many bytes reserved.
    pub(crate) fn take_segment(&self, reserved_bytes: u64) -> Option<Segment> {
        let mut next = self.shared.next.try_lock().ok()?;
        let segment = next.take_if(|next| next.reserved_bytes >= reserved_bytes)?;
        self.shared.next_bytes.store(0, Ordering::Release);
        self.shared.next_wanted.store(false, Ordering::Release);
        Some(segment)
    }

    /// Space reserved in the next file; 0 while there is none.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.shared.next_bytes.load(Ordering::Acquire)
    }

    /// Passes a file on to be closed: closing it on the lane's thread could block for long.
    pub(crate) fn retire(&self, file: OwnedFd) {
        lock(&self.shared.retired).push(file);
    }

    /// How many bytes may still be appended until the applier has caught up.
    pub(crate) fn space_bytes(&self, written_bytes: u64) -> u64 {
        let behind_bytes =
            written_bytes.saturating_sub(self.shared.freed_bytes.load(Ordering::Acquire));
        self.shared.lengths.log_bytes_max.saturating_sub(behind_bytes)
    }

    pub(crate) fn push_query(&self, query: RowQuery) {
        self.shared.queries.push_query(query);
    }

    pub(crate) fn take_replies(&self) -> Vec<RowReply> {
        std::mem::take(&mut *lock(&self.shared.replies))
    }
}

/// Locks; a poisoned lock is used, because every critical section leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
