//! Objects: one file each under the store, opened when needed, kept open while space allows.
//!
//! It owns paths, descriptors and the order of what is done to one object; each thing to be done
//! is a [`Job`] and its steps are in `job`. Invariants: an object with jobs is never forgotten;
//! jobs of one object start in the order they came; truncate and remove run alone, a sync starts
//! when all before it have ended. Reads and writes of one object that overlap in time and range
//! are the core's to avoid.

use crate::config::Counters;
use crate::job::{Job, JobKind};
use crate::number::{errno_of, u32_of};
use crate::path::ObjectPath;
use crate::tools::Tools;
use interface::{Errno, Event, Object, StoreEvent, StoreSpace, Ticket};
use rustix::fs::{fstatfs, fstatvfs};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Whether an object's file is open.
pub(crate) enum FileState {
    /// Nobody has looked.
    Unknown,
    /// The front job is opening it.
    Opening,
    /// Here it is; `direct` is the same file past the page cache, where that is wanted and possible.
    Open { file: Arc<OwnedFd>, direct: Option<OwnedFd> },
}

impl FileState {
    /// An open file is about to be closed by being dropped, which is a system call.
    pub(crate) fn count_close(&self, tools: &mut Tools) {
        tools.counters.syscall_count += match self {
            Self::Open { direct: Some(_), .. } => 2,
            Self::Open { direct: None, .. } => 1,
            Self::Unknown | Self::Opening => 0,
        };
    }
}

/// What is known of an object.
pub(crate) struct OpenObject {
    pub(crate) object: Object,
    pub(crate) file: FileState,
    /// Its directory entry is known to be durable.
    pub(crate) entry_durable: bool,
    running_count: u32,
    /// Reads and writes that the driver has.
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
    /// Large reads may stay in the file.
    pub(crate) uses_file_ranges: bool,
    /// The kernel can tell what the page cache has.
    pub(crate) knows_cached: bool,
    /// Objects are opened once more, past the page cache.
    pub(crate) direct: bool,
    /// Reads and writes that the driver has, of all objects.
    moving_count: u32,
    open_count_max: usize,
    /// See `segments`.
    pub(crate) segment_bytes: u64,
    /// Objects that have, or had, more than one. Whoever uses an object has asked for its size first.
    pub(crate) segmented: HashSet<Object>,
    slots: Vec<Option<OpenObject>>,
    free: Vec<u32>,
    by_object: HashMap<Object, u32>,
    /// Of the eviction clock.
    hand: usize,
    /// Boxed, because the kernel reads paths in them.
    jobs: Vec<Option<Box<Job>>>,
    idle_jobs: Vec<u32>,
    /// Boxes of jobs that have ended.
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    spare: Vec<Box<Job>>,
    /// Jobs that wait for a buffer.
    starved: VecDeque<u32>,
    /// Directories (shard, and directory in it) whose own entries are durable.
    pub(crate) durable_dirs: HashSet<(u16, u8)>,
    /// Whoever syncs a file that was just made has its name, and those of its directories, durable.
    pub(crate) names_follow_files: bool,
    removals: Removals,
}

/// Removals whose names are gone and not yet durably so. One of them at a time syncs its directory, for
/// all whose names went before: the file system's log has them in their order.
#[derive(Default)]
struct Removals {
    /// Somebody syncs.
    has_leader: bool,
    /// For whom he does.
    followers_of_leader: Vec<u32>,
    /// Who came meanwhile.
    waiting: Vec<u32>,
}

/// Whether a file system makes durable, with a file, all that was done to names before. These three
/// do: their log is durable up to the file's last change, and making it came before that
/// (`docs/decisions/object-names.md`). Of others nothing is taken for granted.
fn names_follow_files(dir: &OwnedFd) -> bool {
    /// What the kernel calls them: ext4, XFS, btrfs.
    const MAGICS: [i64; 3] = [0xEF53, 0x5846_5342, 0x9123_683E];
    fstatfs(dir).is_ok_and(|found| MAGICS.contains(&found.f_type))
}

impl Objects {
    /// `names`: whether they follow files, if not as the file system is known to have it.
    pub(crate) fn new(
        dir: OwnedFd,
        (open_count_max, segment_bytes): (usize, u64),
        (uses_file_ranges, direct): (bool, bool),
        names: Option<bool>,
    ) -> Self {
        let names_follow_files = names.unwrap_or_else(|| names_follow_files(&dir));
        Self {
            names_follow_files,
            removals: Removals::default(),
            dir: Arc::new(dir),
            segment_bytes,
            segmented: HashSet::new(),
            uses_file_ranges,
            knows_cached: true,
            direct,
            moving_count: 0,
            open_count_max: open_count_max.max(1),
            slots: Vec::new(),
            free: Vec::new(),
            by_object: HashMap::new(),
            hand: 0,
            jobs: Vec::new(),
            idle_jobs: Vec::new(),
            spare: Vec::new(),
            starved: VecDeque::new(),
            durable_dirs: HashSet::new(),
        }
    }

    /// Space under the store.
    pub(crate) fn space(&self, ticket: Ticket, tools: &mut Tools) -> Event {
        tools.counters.syscall_count += 1;
        let result = fstatvfs(&*self.dir).map_err(errno_of).map(|found| StoreSpace {
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            free_bytes: found.f_bfree.saturating_mul(found.f_frsize),
            available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            available_file_count: (found.f_files > 0).then_some(found.f_favail),
        });
        Event::Store(StoreEvent::Space { ticket, result })
    }

    /// Begins something.
    pub(crate) fn begin(&mut self, object: Object, kind: JobKind, tools: &mut Tools) {
        let object_index = self.slot_of(object, tools);
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
        self.start_waiting(object_index, tools);
    }

    /// Starts the jobs at the front that may start.
    fn start_waiting(&mut self, object_index: u32, tools: &mut Tools) {
        loop {
            let slot = self.slot(object_index);
            let Some(job_index) = slot.waiting.front().copied() else { return };
            let kind = self.job(job_index).kind;
            let (mut alone, last) = kind.order();
            // What makes a second segment finds nobody in the first one.
            let object = self.slot(object_index).object;
            alone |= kind.creates()
                && kind.end() > self.segment_bytes
                && !self.segmented.contains(&object);
            let slot = self.slot(object_index);
            let opening = matches!(slot.file, FileState::Opening);
            let closed = matches!(slot.file, FileState::Unknown);
            let blocked = slot.alone || opening || (slot.running_count > 0 && (alone || last));
            // While the object is not open the front job alone runs: it opens it.
            if blocked || (closed && slot.running_count > 0) {
                return;
            }
            slot.waiting.pop_front();
            slot.running_count += 1;
            slot.alone = alone;
            self.step(job_index, None, tools);
        }
    }

    /// An operation of a job has completed.
    pub(crate) fn on_job(&mut self, index: u32, result: Result<u32, Errno>, tools: &mut Tools) {
        let object_index = self.job(index).object_index;
        self.step(index, Some(result), tools);
        // It may have opened the object or made space for what must run alone.
        self.start_waiting(object_index, tools);
    }

    fn step(&mut self, index: u32, result: Option<Result<u32, Errno>>, tools: &mut Tools) {
        let Some(mut job) = self.jobs[index as usize].take() else {
            panic!("job {index} is not running")
        };
        if job.step(index, result, self, tools) {
            self.idle_jobs.push(index);
            let slot = self.slot(job.object_index);
            slot.running_count -= 1;
            slot.alone = false;
            let leader_synced = job.leads.then_some(job.synced);
            self.spare.push(job);
            if let Some(synced) = leader_synced {
                self.on_leader_synced(synced, tools);
            }
        } else {
            self.jobs[index as usize] = Some(job);
        }
    }

    /// A name is gone: whether its job is the one that syncs.
    pub(crate) fn join_removals(&mut self, index: u32) -> bool {
        if std::mem::replace(&mut self.removals.has_leader, true) {
            self.removals.waiting.push(index);
            return false;
        }
        true
    }

    /// Who synced for others is done: so are they, and the last who came meanwhile is the next.
    fn on_leader_synced(&mut self, synced: Option<Result<(), Errno>>, tools: &mut Tools) {
        self.removals.has_leader = false;
        let followers = std::mem::take(&mut self.removals.followers_of_leader);
        match synced {
            Some(result) => {
                for index in followers {
                    self.on_job(index, result.map(|()| 0), tools);
                }
            }
            // His directory was not there, so there was nothing to sync.
            None => self.removals.waiting.extend(followers),
        }
        if let Some(next) = self.removals.waiting.pop() {
            self.removals.has_leader = true;
            self.removals.followers_of_leader = std::mem::take(&mut self.removals.waiting);
            self.step(next, None, tools);
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

    /// Whether something is being done to an object.
    pub(crate) const fn is_busy(&self) -> bool {
        self.idle_jobs.len() < self.jobs.len()
    }

    /// Lets jobs that waited for a buffer try again.
    pub(crate) fn feed(&mut self, tools: &mut Tools) {
        for _ in 0..self.starved.len() {
            let Some(job_index) = self.starved.pop_front() else { break };
            let object_index = self.job(job_index).object_index;
            self.step(job_index, None, tools);
            self.start_waiting(object_index, tools);
        }
    }

    // --- slots -----------------------------------------------------------------------------------

    fn slot_of(&mut self, object: Object, tools: &mut Tools) -> u32 {
        if let Some(index) = self.by_object.get(&object) {
            let index = *index;
            self.slot(index).used = true;
            return index;
        }
        if self.by_object.len() >= self.open_count_max {
            self.forget_one(tools);
        }
        let slot = Some(OpenObject {
            object,
            file: FileState::Unknown,
            entry_durable: false,
            running_count: 0,
            moving_count: 0,
            alone: false,
            waiting: VecDeque::new(),
            used: true,
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                u32_of(self.slots.len() - 1)
            }
        };
        self.by_object.insert(object, index);
        index
    }

    /// Closes an object that was not used lately. Those with jobs stay, be they as many as may be.
    fn forget_one(&mut self, tools: &mut Tools) {
        for _ in 0..2 * self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = self.slots[self.hand].as_mut() else { continue };
            let busy = slot.running_count > 0 || !slot.waiting.is_empty();
            if busy || std::mem::take(&mut slot.used) {
                continue;
            }
            self.by_object.remove(&slot.object);
            slot.file.count_close(tools);
            self.slots[self.hand] = None;
            self.free.push(u32_of(self.hand));
            return;
        }
    }

    pub(crate) fn slot(&mut self, index: u32) -> &mut OpenObject {
        let Some(slot) = self.slots[index as usize].as_mut() else {
            panic!("object slot {index} is empty")
        };
        slot
    }

    /// The driver gets a read or write of an object.
    pub(crate) fn count_move_begun(&mut self, object_index: u32, counters: &mut Counters) {
        self.moving_count += 1;
        counters.object_under_way_max = counters.object_under_way_max.max(self.moving_count);
        let slot = self.slot(object_index);
        slot.moving_count += 1;
        counters.object_under_way_one_max =
            counters.object_under_way_one_max.max(slot.moving_count);
    }

    /// It has answered.
    pub(crate) fn count_move_ended(&mut self, object_index: u32) {
        self.moving_count -= 1;
        self.slot(object_index).moving_count -= 1;
    }

    fn job(&self, index: u32) -> &Job {
        let Some(job) = self.jobs[index as usize].as_ref() else { panic!("job {index} is gone") };
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
