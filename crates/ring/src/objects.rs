//! Objects: one file each in the store, opened on demand, kept open while the limit allows.
//!
//! This module owns paths, descriptors and the order of operations on one object; each operation is
//! a [`Job`], and `job` has its steps. Invariants: an object with jobs is not closed; jobs of one
//! object start in order; truncate and remove run alone, a sync starts when all earlier jobs are
//! done. The core avoids concurrent reads and writes of overlapping ranges of one object.

use crate::counters::Counters;
use crate::io_context::IoContext;
use crate::job::{Job, JobKind};
use crate::number::{errno_of, u32_of};
use crate::path::ObjectPath;
use interface::{Errno, Event, Object, StoreEvent, StoreSpace, Ticket};
use rustix::fs::{fstatfs, fstatvfs};
use slab::Slab;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Whether an object's file is open.
pub(crate) enum FileState {
    /// Not opened yet.
    Unknown,
    /// The first job is opening it.
    Opening,
    /// Open; `direct` is the same file opened past the page cache, where that is configured and
    /// supported.
    Open { file: Arc<OwnedFd>, direct: Option<OwnedFd> },
}

impl FileState {
    /// Counts the close of an open file that is about to be dropped.
    pub(crate) fn count_close(&self, io: &mut IoContext) {
        io.counters.syscall_count += match self {
            Self::Open { direct: Some(_), .. } => 2,
            Self::Open { direct: None, .. } => 1,
            Self::Unknown | Self::Opening => 0,
        };
    }
}

/// An object's state.
pub(crate) struct OpenObject {
    pub(crate) object: Object,
    pub(crate) file: FileState,
    /// Its directory entry is known to be durable.
    pub(crate) entry_durable: bool,
    running_count: u32,
    /// Reads and writes in flight.
    moving_count: u32,
    /// A job that runs alone is running.
    alone: bool,
    waiting: VecDeque<u32>,
    /// Used since the clock hand last passed.
    used: bool,
}

/// All objects of a lane.
pub(crate) struct Objects {
    pub(crate) dir: Arc<OwnedFd>,
    /// Large reads may be sent from the file.
    pub(crate) uses_file_ranges: bool,
    /// The kernel can report what the page cache has.
    pub(crate) knows_cached: bool,
    /// Objects are also opened past the page cache.
    pub(crate) direct: bool,
    /// With this flag of open(2) a read of an object writes no time of access, which nobody looks at;
    /// 0 when it was refused once, because a file belongs to another user.
    pub(crate) access_flag: libc::c_int,
    /// Reads and writes in flight, of all objects.
    moving_count: u32,
    open_count_max: usize,
    slots: Slab<OpenObject>,
    by_object: HashMap<Object, u32>,
    /// Hand of the eviction clock.
    hand: usize,
    /// Boxed, because the kernel reads paths in them.
    jobs: Vec<Option<Box<Job>>>,
    idle_jobs: Vec<u32>,
    /// Boxes of finished jobs, for reuse.
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    spare: Vec<Box<Job>>,
    /// Jobs that wait for a buffer.
    starved: VecDeque<u32>,
    /// Directories (shard, and directory in it) whose own entries are durable.
    pub(crate) durable_dirs: HashSet<(u16, u8)>,
    /// Syncing a new file makes its name and its directories' names durable.
    pub(crate) names_follow_files: bool,
    removals: Removals,
}

/// Removals whose names are unlinked and not yet durably so. One of them at a time syncs its
/// directory for all earlier ones: the file system's journal keeps their order.
#[derive(Default)]
struct Removals {
    /// A removal is syncing.
    has_leader: bool,
    /// The removals that it syncs for.
    followers_of_leader: Vec<u32>,
    /// Removals that came meanwhile.
    waiting: Vec<u32>,
}

/// Whether a file system makes all earlier directory changes durable with a synced file. These
/// three do: a sync writes their journal up to the file's last change, which follows its creation
/// (`docs/decisions/object-names.md`). Others are not assumed to.
fn names_follow_files(dir: &OwnedFd) -> bool {
    /// The file system types' magic numbers: ext4, XFS, btrfs.
    const MAGICS: [i64; 3] = [0xEF53, 0x5846_5342, 0x9123_683E];
    fstatfs(dir).is_ok_and(|found| MAGICS.contains(&found.f_type))
}

impl Objects {
    /// `names`: whether names follow files; default: by the file system.
    pub(crate) fn new(
        dir: OwnedFd,
        open_count_max: usize,
        (uses_file_ranges, direct): (bool, bool),
        names: Option<bool>,
    ) -> Self {
        let names_follow_files = names.unwrap_or_else(|| names_follow_files(&dir));
        Self {
            names_follow_files,
            removals: Removals::default(),
            dir: Arc::new(dir),
            uses_file_ranges,
            knows_cached: true,
            direct,
            access_flag: libc::O_NOATIME,
            moving_count: 0,
            open_count_max: open_count_max.max(1),
            slots: Slab::new(),
            by_object: HashMap::new(),
            hand: 0,
            jobs: Vec::new(),
            idle_jobs: Vec::new(),
            spare: Vec::new(),
            starved: VecDeque::new(),
            durable_dirs: HashSet::new(),
        }
    }

    /// Space of the store's file system.
    pub(crate) fn space(&self, ticket: Ticket, io: &mut IoContext) -> Event {
        io.counters.syscall_count += 1;
        let result = fstatvfs(&*self.dir).map_err(errno_of).map(|found| StoreSpace {
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            free_bytes: found.f_bfree.saturating_mul(found.f_frsize),
            available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            available_file_count: (found.f_files > 0).then_some(found.f_favail),
        });
        Event::Store(StoreEvent::Space { ticket, result })
    }

    /// Starts an operation.
    pub(crate) fn begin(&mut self, object: Object, kind: JobKind, io: &mut IoContext) {
        let object_index = self.slot_of(object, io);
        let job = Job::new(kind, object_index, ObjectPath::new(object));
        let job = match self.spare.pop() {
            Some(mut spare) => {
                *spare = job;
                spare
            }
            None => Box::new(job),
        };
        let job_index = match self.idle_jobs.pop() {
            Some(index) => {
                self.jobs[index as usize] = Some(job);
                index
            }
            None => {
                self.jobs.push(Some(job));
                u32_of(self.jobs.len() - 1)
            }
        };
        self.slot(object_index).waiting.push_back(job_index);
        self.start_waiting(object_index, io);
    }

    /// Starts waiting jobs, as far as they may start.
    fn start_waiting(&mut self, object_index: u32, io: &mut IoContext) {
        loop {
            let slot = self.slot(object_index);
            let Some(job_index) = slot.waiting.front().copied() else { return };
            let kind = self.job(job_index).kind;
            let (alone, last) = kind.order();
            let slot = self.slot(object_index);
            let opening = matches!(slot.file, FileState::Opening);
            let closed = matches!(slot.file, FileState::Unknown);
            let blocked = slot.alone || opening || (slot.running_count > 0 && (alone || last));
            // While the object is not open, only the first job runs: it opens the object.
            if blocked || (closed && slot.running_count > 0) {
                return;
            }
            slot.waiting.pop_front();
            slot.running_count += 1;
            slot.alone = alone;
            self.step(job_index, None, io);
        }
    }

    /// An operation of a job has completed.
    pub(crate) fn on_job(&mut self, index: u32, result: Result<u32, Errno>, io: &mut IoContext) {
        let object_index = self.job(index).object_index;
        self.step(index, Some(result), io);
        // The job may have opened the object or ended what a waiting job must not run beside.
        self.start_waiting(object_index, io);
    }

    fn step(&mut self, index: u32, result: Option<Result<u32, Errno>>, io: &mut IoContext) {
        let Some(mut job) = self.jobs[index as usize].take() else {
            panic!("job {index} is not running")
        };
        if job.step(index, result, self, io) {
            self.idle_jobs.push(index);
            let slot = self.slot(job.object_index);
            slot.running_count -= 1;
            slot.alone = false;
            let leader_synced = job.leads.then_some(job.synced);
            self.spare.push(job);
            if let Some(synced) = leader_synced {
                self.on_leader_synced(synced, io);
            }
        } else {
            self.jobs[index as usize] = Some(job);
        }
    }

    /// A name was unlinked; returns whether its job is the one that syncs.
    pub(crate) fn join_removals(&mut self, index: u32) -> bool {
        if std::mem::replace(&mut self.removals.has_leader, true) {
            self.removals.waiting.push(index);
            return false;
        }
        true
    }

    /// The syncing removal is done, and with it those that it synced for; the last waiting one
    /// syncs next.
    fn on_leader_synced(&mut self, synced: Option<Result<(), Errno>>, io: &mut IoContext) {
        self.removals.has_leader = false;
        let followers = std::mem::take(&mut self.removals.followers_of_leader);
        match synced {
            Some(result) => {
                for index in followers {
                    self.on_job(index, result.map(|()| 0), io);
                }
            }
            // Its directory did not exist, so nothing was synced.
            None => self.removals.waiting.extend(followers),
        }
        if let Some(next) = self.removals.waiting.pop() {
            self.removals.has_leader = true;
            self.removals.followers_of_leader = std::mem::take(&mut self.removals.waiting);
            self.step(next, None, io);
        }
    }

    /// A job must wait for a buffer.
    pub(crate) fn starve(&mut self, job_index: u32) {
        self.starved.push_back(job_index);
    }

    /// Whether a job waits for a buffer.
    pub(crate) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Whether any job runs.
    pub(crate) const fn is_busy(&self) -> bool {
        self.idle_jobs.len() < self.jobs.len()
    }

    /// Lets jobs that waited for a buffer try again.
    pub(crate) fn feed(&mut self, io: &mut IoContext) {
        for _ in 0..self.starved.len() {
            let Some(job_index) = self.starved.pop_front() else { break };
            let object_index = self.job(job_index).object_index;
            self.step(job_index, None, io);
            self.start_waiting(object_index, io);
        }
    }

    // --- slots -----------------------------------------------------------------------------------

    fn slot_of(&mut self, object: Object, io: &mut IoContext) -> u32 {
        if let Some(index) = self.by_object.get(&object) {
            let index = *index;
            self.slot(index).used = true;
            return index;
        }
        if self.by_object.len() >= self.open_count_max {
            self.forget_one(io);
        }
        let index = u32_of(self.slots.insert(OpenObject {
            object,
            file: FileState::Unknown,
            entry_durable: false,
            running_count: 0,
            moving_count: 0,
            alone: false,
            waiting: VecDeque::new(),
            used: true,
        }));
        self.by_object.insert(object, index);
        index
    }

    /// Closes an object that was not used lately. Objects with jobs stay open, even beyond the
    /// limit.
    fn forget_one(&mut self, io: &mut IoContext) {
        let count = self.slots.capacity();
        for _ in 0..2 * count {
            self.hand = (self.hand + 1) % count;
            let Some(slot) = self.slots.get_mut(self.hand) else { continue };
            let busy = slot.running_count > 0 || !slot.waiting.is_empty();
            if busy || std::mem::take(&mut slot.used) {
                continue;
            }
            self.by_object.remove(&slot.object);
            slot.file.count_close(io);
            self.slots.remove(self.hand);
            return;
        }
    }

    pub(crate) fn slot(&mut self, index: u32) -> &mut OpenObject {
        &mut self.slots[index as usize]
    }

    /// A read or write of an object was started.
    pub(crate) fn count_move_begun(&mut self, object_index: u32, counters: &mut Counters) {
        self.moving_count += 1;
        counters.object_under_way_max = counters.object_under_way_max.max(self.moving_count);
        let slot = self.slot(object_index);
        slot.moving_count += 1;
        counters.object_under_way_one_max =
            counters.object_under_way_one_max.max(slot.moving_count);
    }

    /// It has completed.
    pub(crate) fn count_move_ended(&mut self, object_index: u32) {
        self.moving_count -= 1;
        self.slot(object_index).moving_count -= 1;
    }

    fn job(&self, index: u32) -> &Job {
        let Some(job) = self.jobs[index as usize].as_ref() else { panic!("job {index} has ended") };
        job
    }

    /// The open file of a slot.
    pub(crate) fn raw(&mut self, index: u32) -> RawFd {
        match &self.slot(index).file {
            FileState::Open { file, .. } => file.as_raw_fd(),
            FileState::Unknown | FileState::Opening => -1,
        }
    }
}
