//! One object: what is known of it, what waits for it, what is not durable yet.
//!
//! ```text
//! queue ─▶ running (reads, writes: together) or exclusive (append, list, truncate, allocate, remove: alone)
//!              └─ done ─▶ written ─▶ syncing ─▶ out
//! fences: a truncation or allocation whose record is not durable; until it is, no change begins: after
//!         a crash the log would tell another size than the object has, and a later write would come
//!         back before what took its range away is asked for again.
//! doubtful: something failed half-way. When what runs has ended, the object is looked at and gets the
//!         size back that is known: what is longer is cut, what is shorter is recorded.
//! ```

use crate::blocks::Blocks;
use crate::request::Pending;
use crate::unstable::Unstable;
use crate::{Answer, Token};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use disk::ContentsChange;
use interface::{Mono, ObjectStat};
use wire::{ClientUuid, Contents, InodeNo, Timestamp, Transno};

/// A change that is in the object but not yet durable there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Effect {
    pub(crate) token: Token,
    pub(crate) change: ContentsChange,
    pub(crate) answer: Answer,
    pub(crate) client: ClientUuid,
    /// Of a replay the old one; otherwise given when it is in the object.
    pub(crate) transno: Transno,
    /// Its place in its shard's order, once it has one.
    pub(crate) place_no: u64,
    /// The object's change number when it was in the object.
    pub(crate) change_no: u64,
}

impl Effect {
    /// The first byte behind what was written; 0 of what writes nothing.
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
            | ContentsChange::SumsRemoved { .. } => 0,
        }
    }

    /// The time of the change: a replay has it already, anything else gets it now.
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
            | ContentsChange::SumsRemoved { .. } => now_ns,
        }
    }
}

/// An object's state.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) name: interface::Object,
    /// `None`: ask the world before anything else. Of a doubtful object, what it had of what succeeded.
    pub(crate) stat: Option<ObjectStat>,
    /// When the contents were last changed, in nanoseconds since 1970; 0: never.
    pub(crate) write_time_ns: u64,
    /// When its metadata shard was last told that it is read, likewise; 0: not since it changed.
    pub(crate) accessed_ns: u64,
    /// The world was asked, or the object is being cut to what was recorded.
    pub(crate) asking: bool,
    /// Something failed half-way: it may be longer or shorter than is known.
    pub(crate) doubtful: bool,
    /// What was acknowledged of it is not in it and with its client alone: nobody may see it so.
    pub(crate) lost: bool,
    /// Changes since the object is known; tells whether the allocated bytes are fresh.
    pub(crate) change_no: u64,
    /// `change_no` when the allocated bytes were asked for.
    pub(crate) allocated_change_no: u64,
    pub(crate) queue: VecDeque<Pending>,
    pub(crate) running_count: u32,
    pub(crate) exclusive: bool,
    pub(crate) fence_count: u32,
    pub(crate) written: Vec<Effect>,
    pub(crate) syncing: Vec<Effect>,
    pub(crate) sync_running: bool,
    /// Of `written`: bytes, and when the first came.
    pub(crate) unsynced_bytes: u64,
    pub(crate) unsynced_since: Mono,
    /// Somebody waits for its being durable.
    pub(crate) urgent: bool,
    /// Changes whose records are not durable.
    pub(crate) unstable: Unstable,
    /// Nothing was ever written to it: the disk has no name of it.
    pub(crate) absent: bool,
    /// Used since the cache last looked.
    pub(crate) used: bool,
    /// Of its checksums what is in motion.
    pub(crate) blocks: Blocks,
}

impl Object {
    pub(crate) const fn new(shard_index: u16, inode: InodeNo, write_time_ns: u64) -> Self {
        Self {
            name: interface::Object { shard_index, stripe_index: 0, inode },
            stat: None,
            write_time_ns,
            accessed_ns: 0,
            asking: false,
            doubtful: false,
            lost: false,
            change_no: 0,
            allocated_change_no: 0,
            queue: VecDeque::new(),
            running_count: 0,
            exclusive: false,
            fence_count: 0,
            written: Vec::new(),
            syncing: Vec::new(),
            sync_running: false,
            unsynced_bytes: 0,
            unsynced_since: Mono(0),
            urgent: false,
            unstable: Unstable::new(),
            absent: false,
            used: true,
            blocks: Blocks::new(),
        }
    }

    /// A change or a sync failed: neither the size is known nor whether what is in the file is on the disk.
    pub(crate) const fn doubt(&mut self) {
        self.doubtful = true;
        self.blocks.unsynced = true;
    }

    /// Whether the first that waits must wait for the size, and the size has to be asked for.
    pub(crate) fn must_ask(&self) -> bool {
        let wanted = self.queue.front().is_some_and(|first| *first != Pending::Remove);
        let doubtful = self.doubtful && self.running_count == 0 && !self.exclusive;
        wanted && (self.stat.is_none() || doubtful) && !self.asking
    }

    /// Takes the first that waits, if its time has come.
    pub(crate) fn next(&mut self) -> Option<Pending> {
        let first = self.queue.front()?;
        if self.exclusive || self.asking {
            return None;
        }
        let alone = self.running_count == 0;
        let unfenced = self.fence_count == 0;
        let known = self.stat.is_some() && !self.doubtful;
        let settled = self.written.is_empty() && !self.sync_running;
        let may_begin = match first {
            Pending::Read { .. }
            | Pending::ReadList(_)
            | Pending::Glimpse(_)
            | Pending::Seek(_) => known,
            Pending::Write { .. } => known && unfenced,
            Pending::Append { .. }
            | Pending::WriteList(_)
            | Pending::Truncate { .. }
            | Pending::Allocate(_)
            | Pending::Replay { .. } => known && unfenced && alone,
            Pending::Remove => unfenced && alone && settled,
        };
        if !may_begin {
            return None;
        }
        let is_removal = *first == Pending::Remove;
        self.absent &= is_removal || !first.is_change();
        self.queue.pop_front()
    }

    /// Whether nothing would be lost by forgetting it.
    pub(crate) fn is_idle(&self) -> bool {
        let quiet = self.queue.is_empty() && self.running_count == 0 && !self.exclusive;
        let durable = self.written.is_empty() && !self.sync_running && self.fence_count == 0;
        let stable = self.unstable.is_empty();
        let stable = stable && self.blocks.is_idle();
        quiet && durable && stable && !self.asking && !self.doubtful && !self.lost
    }

    /// What is told of it, if these are size and space.
    pub(crate) fn contents(&self, stat: ObjectStat) -> Contents {
        let ObjectStat { size_bytes, allocated_bytes } = stat;
        let written = (self.write_time_ns > 0).then_some(self.write_time_ns);
        Contents { size_bytes, allocated_bytes, write_time: written.map(Timestamp::from_ns) }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.stat.map_or(0, |stat| stat.size_bytes)
    }

    /// The time of a change that is made now. Every change has a later time than the one before, so
    /// that of two who looked it can be told who saw more.
    pub(crate) fn next_time_ns(&self, now_ns: u64) -> u64 {
        now_ns.max(self.write_time_ns.saturating_add(1))
    }

    /// Whether a read now must be told: the first one after a change, and one a day.
    pub(crate) fn tells_access(&mut self, now_ns: u64) -> bool {
        const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;
        let old = now_ns.saturating_sub(self.accessed_ns) >= DAY_NS;
        let tells = old || self.accessed_ns <= self.write_time_ns;
        if tells {
            self.accessed_ns = now_ns.max(self.write_time_ns.saturating_add(1));
        }
        tells
    }

    /// What was just done to it is there to be seen: now, or what was lost and came back, as late as
    /// it was then.
    pub(crate) fn changed(&mut self, size_bytes: impl FnOnce(u64) -> u64, time_ns: u64) {
        self.change_no += 1;
        self.write_time_ns = self.write_time_ns.max(time_ns);
        if let Some(stat) = &mut self.stat {
            stat.size_bytes = size_bytes(stat.size_bytes);
        }
    }

    /// A file was made whose number nobody ever had: there is nothing of it to be found.
    pub(crate) fn made(&mut self) {
        if self.stat.is_none() && self.is_idle() {
            self.stat = Some(ObjectStat { size_bytes: 0, allocated_bytes: 0 });
            self.absent = true;
        }
    }

    /// Takes all that waits and would change it.
    pub(crate) fn take_changes(&mut self) -> VecDeque<Pending> {
        let (changes, rest) = self.queue.drain(..).partition(Pending::is_change);
        self.queue = rest;
        changes
    }
}
