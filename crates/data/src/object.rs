//! One file's contents: their known state, its queue, and its changes that are not durable yet.
//!
//! ```text
//! queue ─▶ running (reads, writes: together) or exclusive (append, list, truncate,
//!              │                                             allocate, remove: alone)
//!              └─ done ─▶ written ─▶ syncing (or being loaded for the log) ─▶ out
//! fences: a truncation or allocation whose record is not durable; no change begins before it is:
//!         after a crash log and object would have different sizes, and a later write would be
//!         replayed before the client resends the change that removed its range.
//! doubtful: a change failed half-way. When all running operations have ended, the file is examined
//!         and set to the known size: a longer file is cut, a shorter size is recorded.
//! ```

use crate::blocks::Blocks;
use crate::request::QueuedOp;
use crate::unstable::UnstableRanges;
use crate::{Answer, Token};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use disk::ContentsChange;
use interface::{Bulk, Mono, ObjectStat};
use wire::{ClientUuid, Contents, Layout, Timestamp, Transno};

/// A change that was applied to the object but is not durable there yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Effect {
    pub(crate) token: Token,
    pub(crate) change: ContentsChange,
    pub(crate) answer: Answer,
    pub(crate) client: ClientUuid,
    /// For a replay the old one; otherwise assigned when the change is in the object.
    pub(crate) transno: Transno,
    /// Its position in its shard's order, once assigned.
    pub(crate) place_no: u64,
    /// The object's change number when the change was applied.
    pub(crate) change_no: u64,
}

impl Effect {
    /// The end of the written range; 0 for other changes.
    pub(crate) fn end(&self) -> u64 {
        match &self.change {
            ContentsChange::Write { object_offset, write_bytes, .. } => {
                object_offset.saturating_add(u64::from(*write_bytes))
            }
            ContentsChange::WriteList { pieces, .. } => pieces.end(),
            ContentsChange::Truncate { .. }
            | ContentsChange::Allocate { .. }
            | ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Sums { .. }
            | ContentsChange::SumsRemoved { .. }
            | ContentsChange::Stripe { .. }
            | ContentsChange::Logged { .. } => 0,
        }
    }

    /// The time of the change: a replay has it already, another change gets it now.
    pub(crate) fn time_ns(&mut self, now_ns: u64) -> u64 {
        match &mut self.change {
            ContentsChange::Write { write_time_ns, .. }
            | ContentsChange::WriteList { write_time_ns, .. }
            | ContentsChange::Truncate { write_time_ns, .. }
            | ContentsChange::Allocate { write_time_ns, .. } => {
                if *write_time_ns == 0 {
                    *write_time_ns = now_ns;
                }
                *write_time_ns
            }
            ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Sums { .. }
            | ContentsChange::SumsRemoved { .. }
            | ContentsChange::Stripe { .. }
            | ContentsChange::Logged { .. } => now_ns,
        }
    }
}

/// The recorded state of an object, before its file is examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoggedState {
    /// The size in the log of earlier boots; `None`: the object was examined in this boot and its
    /// own size is valid.
    pub(crate) size_bytes: Option<u64>,
    /// When the contents were last changed; an object in memory has a newer time.
    pub(crate) write_time_ns: u64,
}

/// A write that the log may have before its object has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogFirst {
    pub(crate) bulk: Bulk,
    /// Of the hold on the rows.
    pub(crate) number: u64,
    /// When the object is written at the latest, unless its log record is on the way.
    pub(crate) until: Mono,
    pub(crate) transno: Transno,
}

/// The state of a missing object.
pub(crate) const NOTHING: ObjectStat = ObjectStat { size_bytes: 0, allocated_bytes: 0 };

/// An object's state.
#[derive(Debug)]
pub(crate) struct Object {
    /// `None`: must be queried before anything else. For a doubtful object, the state after the
    /// last successful change.
    pub(crate) stat: Option<ObjectStat>,
    /// When the contents were last changed, in nanoseconds since 1970; 0: never.
    pub(crate) write_time_ns: u64,
    /// When a read was last reported to its metadata shard, likewise; 0: not since it changed.
    pub(crate) accessed_ns: u64,
    /// A stat is in flight, or the object is being cut to its recorded size.
    pub(crate) stat_running: bool,
    /// A change failed half-way: the file may be longer or shorter than known.
    pub(crate) doubtful: bool,
    /// Acknowledged changes are missing in it and exist at their client only: it must not be read
    /// in this state.
    pub(crate) lost: bool,
    /// Number of changes since the object is known; shows whether the allocated bytes are fresh.
    pub(crate) change_no: u64,
    /// `change_no` when the allocated bytes were queried.
    pub(crate) allocated_change_no: u64,
    pub(crate) queue: VecDeque<QueuedOp>,
    pub(crate) running_count: u32,
    /// The writes among them.
    pub(crate) writing_count: u32,
    pub(crate) exclusive: bool,
    pub(crate) fence_count: u32,
    pub(crate) written: Vec<Effect>,
    pub(crate) syncing: Vec<Effect>,
    pub(crate) sync_running: bool,
    /// Its first write, which has its number already and is not in the object yet.
    pub(crate) log_first: Option<LogFirst>,
    /// Its changes are being loaded for the log, which stands for the sync: no other change begins.
    pub(crate) load_running: bool,
    /// The bytes of `written`, and when the first of them came.
    pub(crate) unsynced_bytes: u64,
    pub(crate) unsynced_since: Mono,
    /// A request waits for its durability.
    pub(crate) urgent: bool,
    /// Changes whose records are not durable.
    pub(crate) unstable: UnstableRanges,
    /// Nothing was ever written to it: there is no file.
    pub(crate) absent: bool,
    /// Used since the last eviction scan.
    pub(crate) used: bool,
    /// The blocks whose checksums are changing.
    pub(crate) blocks: Blocks,
    /// The record that makes the file wide is not durable.
    pub(crate) widening: bool,
    /// The file's layout, if a request has stated it.
    pub(crate) layout: Option<Layout>,
    /// Of a file with objects behind the first: the lengths of those that exist.
    pub(crate) stripe_bytes: BTreeMap<u32, u64>,
    /// And those that changed since the last sync.
    pub(crate) unsynced_stripes: BTreeSet<u32>,
}

impl Object {
    pub(crate) const fn new(write_time_ns: u64) -> Self {
        Self {
            stat: None,
            write_time_ns,
            accessed_ns: 0,
            stat_running: false,
            doubtful: false,
            lost: false,
            change_no: 0,
            allocated_change_no: 0,
            queue: VecDeque::new(),
            running_count: 0,
            writing_count: 0,
            exclusive: false,
            fence_count: 0,
            written: Vec::new(),
            syncing: Vec::new(),
            sync_running: false,
            log_first: None,
            load_running: false,
            unsynced_bytes: 0,
            unsynced_since: Mono(0),
            urgent: false,
            unstable: UnstableRanges::new(),
            absent: false,
            used: true,
            blocks: Blocks::new(),
            widening: false,
            layout: None,
            stripe_bytes: BTreeMap::new(),
            unsynced_stripes: BTreeSet::new(),
        }
    }

    /// A change or a sync failed: the size is unknown, and whether the file's bytes are on the
    /// disk.
    pub(crate) const fn doubt(&mut self) {
        self.doubtful = true;
        self.blocks.unsynced = true;
    }

    /// Whether the first queued operation needs the size, and it must be queried.
    pub(crate) fn must_stat(&self) -> bool {
        let wanted = self.queue.front().is_some_and(|first| *first != QueuedOp::Remove);
        let doubtful = self.doubtful && self.running_count == 0 && !self.exclusive;
        wanted && (self.stat.is_none() || doubtful) && !self.stat_running
    }

    /// Whether the first queued operation is a write to a file that its writer has just created, so
    /// that it makes the object if there is none.
    pub(crate) fn is_made_next(&self) -> bool {
        matches!(self.queue.front(), Some(QueuedOp::Append { at: Some(0), bulk: Some(_), .. }))
    }

    /// Where an append begins. Of a file over several data shards it lies in a stripe of this part,
    /// which may be behind stripes of others.
    pub(crate) fn append_offset(&self, at: Option<u64>) -> u64 {
        let is_spread = self.layout.is_some_and(|layout| layout.is_spread());
        at.filter(|_| is_spread).unwrap_or_else(|| self.size_bytes())
    }

    /// Whether a truncation at the front of the queue may begin.
    pub(crate) const fn may_begin_alone(&self) -> bool {
        let known = self.stat.is_some() && !self.doubtful && !self.stat_running;
        let alone = self.running_count == 0 && !self.exclusive && !self.load_running;
        known && alone && self.fence_count == 0
    }

    /// Takes the first queued operation, if it may begin.
    pub(crate) fn next(&mut self) -> Option<QueuedOp> {
        let first = self.queue.front()?;
        if self.exclusive || self.stat_running || (self.load_running && first.is_change()) {
            return None;
        }
        let alone = self.running_count == 0;
        let unfenced = self.fence_count == 0;
        let known = self.stat.is_some() && !self.doubtful;
        let settled = self.written.is_empty() && !self.sync_running;
        let may_begin = match first {
            QueuedOp::Read { kept: true, .. } => known && self.writing_count == 0,
            QueuedOp::Glimpse(glimpsing) => known && (alone || !glimpsing.alone),
            QueuedOp::Read { .. } | QueuedOp::ReadList(_) | QueuedOp::Seek(_) => known,
            QueuedOp::Write { .. } => known && unfenced,
            QueuedOp::Append { .. }
            | QueuedOp::WriteList(_)
            | QueuedOp::Truncate(_)
            | QueuedOp::Allocate(_)
            | QueuedOp::Widen { .. }
            | QueuedOp::Replay { .. } => known && unfenced && alone,
            QueuedOp::Remove => unfenced && alone && settled,
        };
        if !may_begin {
            return None;
        }
        let is_removal = *first == QueuedOp::Remove;
        self.absent &= is_removal || !first.is_change();
        self.queue.pop_front()
    }

    /// Whether the object can be dropped from memory without loss.
    pub(crate) fn is_idle(&self) -> bool {
        let quiet = self.queue.is_empty() && self.running_count == 0 && !self.exclusive;
        let durable = self.written.is_empty() && !self.sync_running && self.fence_count == 0;
        let stable = self.unstable.is_empty();
        let stable = stable && self.blocks.is_idle();
        quiet && durable && stable && !self.stat_running && !self.doubtful && !self.lost
    }

    /// Its contents, with this size and space.
    pub(crate) fn contents(&self, stat: ObjectStat) -> Contents {
        let ObjectStat { size_bytes, allocated_bytes } = stat;
        let written = (self.write_time_ns > 0).then_some(self.write_time_ns);
        Contents { size_bytes, allocated_bytes, write_time: written.map(Timestamp::from_ns) }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.stat.map_or(0, |stat| stat.size_bytes)
    }

    /// The time of a change made now. Every change has a later time than the one before, so that
    /// times order the states that clients have seen.
    pub(crate) fn next_time_ns(&self, now_ns: u64) -> u64 {
        now_ns.max(self.write_time_ns.saturating_add(1))
    }

    /// Whether a read now must be reported: the first one after a change, and one a day.
    pub(crate) fn access_is_due(&mut self, now_ns: u64) -> bool {
        const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;
        let old = now_ns.saturating_sub(self.accessed_ns) >= DAY_NS;
        let is_due = old || self.accessed_ns <= self.write_time_ns;
        if is_due {
            self.accessed_ns = now_ns.max(self.write_time_ns.saturating_add(1));
        }
        is_due
    }

    /// Applies a change to the known state: a new one now, a replayed one with its old time.
    pub(crate) fn changed(&mut self, size_bytes: impl FnOnce(u64) -> u64, time_ns: u64) {
        self.change_no += 1;
        self.write_time_ns = self.write_time_ns.max(time_ns);
        if let Some(stat) = &mut self.stat {
            stat.size_bytes = size_bytes(stat.size_bytes);
        }
    }

    /// A file was created with a new inode number: it has no object.
    pub(crate) fn made(&mut self) {
        if self.stat.is_none() && self.is_idle() {
            self.stat = Some(ObjectStat { size_bytes: 0, allocated_bytes: 0 });
            self.absent = true;
        }
    }

    /// Its unsynced changes are loaded for the log, in place of a sync.
    pub(crate) const fn begin_load(&mut self) {
        (self.sync_running, self.load_running) = (true, true);
        (self.unsynced_bytes, self.urgent) = (0, false);
        core::mem::swap(&mut self.written, &mut self.syncing);
    }

    /// Takes all queued changes.
    pub(crate) fn take_changes(&mut self) -> VecDeque<QueuedOp> {
        let (changes, rest) = self.queue.drain(..).partition(QueuedOp::is_change);
        self.queue = rest;
        changes
    }
}
