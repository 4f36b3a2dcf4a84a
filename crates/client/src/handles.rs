//! The open files of this client lane, which are reopened at a restarted server. A handle's number
//! names its client lane in the upper 16 bits.

use crate::kept::OpenedBy;
use crate::losses::Losses;
use crate::report::Report;
use alloc::vec::Vec;
use hashbrown::HashMap;
use interface::Seed;
use wire::{Handle, HandleId, InodeNo, LaneId, OpenFor, Status};

const LANE_SHIFT: u32 = 48;

/// The client lane that opened a handle.
#[must_use]
pub fn handle_lane(handle: HandleId) -> LaneId {
    LaneId(u16::try_from(handle.0 >> LANE_SHIFT).unwrap_or(u16::MAX))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: InodeNo,
    pub(crate) open_for: OpenFor,
    /// The server has confirmed the open and not yet the close.
    pub(crate) open: bool,
    /// A close was begun.
    pub(crate) closing: bool,
    /// A reopen is under way.
    pub(crate) reopening: bool,
    /// A later open of a kept file: the server knows the first.
    is_later: bool,
    pub(crate) by: OpenedBy,
    /// The number of the last loss that its holder need not get an error for.
    losses_seen: u64,
}

#[derive(Debug)]
pub(crate) struct Handles {
    lane: LaneId,
    count_last: u64,
    count_max: usize,
    /// The limit was reported.
    reported: bool,
    files: HashMap<HandleId, OpenFile, Seed>,
    /// Open handles that nothing uses, see `kept`: they do not count.
    pub(crate) idle_count: usize,
    /// Files open for writing, each with the number of such handles.
    written: HashMap<InodeNo, usize, Seed>,
    /// Lost changes, by file.
    pub(crate) losses: Losses,
    /// The server may have dropped handles of this client, and removed files that it had open.
    were_dropped: bool,
}

impl Handles {
    pub(crate) fn new(lane: LaneId, count_max: usize) -> Self {
        Self {
            lane,
            count_last: 0,
            count_max,
            reported: false,
            files: HashMap::default(),
            idle_count: 0,
            written: HashMap::default(),
            losses: Losses::default(),
            were_dropped: false,
        }
    }

    /// A new handle that is about to be opened; `None` at the limit.
    pub(crate) fn begin(&mut self, inode: InodeNo, open_for: OpenFor) -> Option<Handle> {
        let (open, closing, reopening, is_later) = (false, false, false, false);
        let (by, losses_seen) = (OpenedBy::default(), 0);
        let file =
            OpenFile { inode, open_for, open, closing, reopening, is_later, by, losses_seen };
        self.insert(file).map(|id| Handle { id, open_for })
    }

    /// Opens a file again, by a handle that the server does not know; `None` at the limit.
    pub(crate) fn open_again(&mut self, handle: HandleId) -> Option<HandleId> {
        let file = self.get(handle)?;
        let losses_seen = self.losses.seen_at_open(file.inode);
        self.insert(OpenFile { is_later: true, losses_seen, ..file })
    }

    /// A handle that the server does not know until it is registered; `None` at the limit.
    pub(crate) fn open_locally(&mut self, inode: InodeNo) -> Option<HandleId> {
        let handle = self.begin(inode, OpenFor::Read)?;
        self.opened(handle.id, inode);
        Some(handle.id)
    }

    /// Uses an idle handle again, as if it was opened now; false at the limit.
    pub(crate) fn use_again(&mut self, handle: HandleId) -> bool {
        if self.files.len() - self.idle_count >= self.count_max {
            return false;
        }
        let Some(file) = self.files.get_mut(&handle) else { return false };
        file.losses_seen = self.losses.seen_at_open(file.inode);
        self.idle_count -= 1;
        true
    }

    fn insert(&mut self, file: OpenFile) -> Option<HandleId> {
        if self.files.len() - self.idle_count >= self.count_max {
            return None;
        }
        self.count_last += 1;
        assert!(self.count_last < 1 << LANE_SHIFT, "a lane opens fewer than 2^48 files");
        let id = HandleId((u64::from(self.lane.0) << LANE_SHIFT) | self.count_last);
        self.files.insert(id, file);
        Some(id)
    }

    /// Who opens a file, or what its open has granted.
    pub(crate) fn set_opened_by(&mut self, handle: HandleId, set: impl FnOnce(&mut OpenedBy)) {
        if let Some(file) = self.files.get_mut(&handle) {
            set(&mut file.by);
        }
    }

    /// The report for a call that ended with `status`: the first time that the limit was hit.
    pub(crate) fn report(&mut self, status: Status) -> Option<Report> {
        let is_first =
            status == Status::TooManyFiles && !core::mem::replace(&mut self.reported, true);
        is_first.then_some(Report::TooManyFiles { count_max: self.count_max })
    }

    /// The server has opened the handle, on this inode.
    pub(crate) fn opened(&mut self, handle: HandleId, inode: InodeNo) {
        let Some(before) = self.files.get(&handle).copied() else { return };
        self.end_writing(before);
        if before.open_for.writes() {
            *self.written.entry(inode).or_insert(0) += 1;
        }
        let losses_seen = self.losses.seen_at_open(inode);
        self.files.insert(handle, OpenFile { inode, open: true, losses_seen, ..before });
    }

    /// Whether the holder of a handle must get an error for a loss; counts as reported from now on.
    pub(crate) fn report_loss(&mut self, handle: HandleId) -> bool {
        let file = self.files.get_mut(&handle).filter(|file| file.open);
        file.is_some_and(|file| self.losses.report_after(file.inode, &mut file.losses_seen))
    }

    /// The server may have dropped handles of this client, also those of its peer lanes.
    pub(crate) const fn set_dropped(&mut self) {
        self.were_dropped = true;
    }

    /// Whether a file that this client has open may have been removed.
    pub(crate) fn may_lack(&mut self, inode: InodeNo) -> bool {
        self.were_dropped || self.losses.has(inode)
    }

    /// Begins a close; `None` when the handle is not open or a close was begun already.
    pub(crate) fn close(&mut self, handle: HandleId) -> Option<OpenFile> {
        let file = self.files.get_mut(&handle).filter(|file| file.open && !file.closing)?;
        file.closing = true;
        Some(*file)
    }

    pub(crate) fn get(&self, handle: HandleId) -> Option<OpenFile> {
        self.files.get(&handle).copied()
    }

    pub(crate) fn remove(&mut self, handle: HandleId) {
        if let Some(file) = self.files.remove(&handle) {
            self.end_writing(file);
        }
    }

    fn end_writing(&mut self, file: OpenFile) {
        if !file.open || !file.open_for.writes() {
            return;
        }
        if let Some(count) = self.written.get_mut(&file.inode) {
            *count -= 1;
            if *count == 0 {
                self.written.remove(&file.inode);
            }
        }
    }

    /// Whether a file is open for writing here: then its data shard has its size.
    pub(crate) fn is_written(&self, inode: InodeNo) -> bool {
        !self.written.is_empty() && self.written.contains_key(&inode)
    }

    pub(crate) fn set_reopening(&mut self, handle: HandleId, reopening: bool) {
        if let Some(file) = self.files.get_mut(&handle) {
            file.reopening = reopening;
        }
    }

    /// Open handles without a reopen under way, in the order they were opened.
    pub(crate) fn to_reopen(&self) -> Vec<(HandleId, OpenFile)> {
        let known = self.files.iter().filter(|(_, file)| file.open && !file.is_later);
        let due = known.filter(|(_, file)| !file.reopening);
        let mut list: Vec<_> = due.map(|(handle, file)| (*handle, *file)).collect();
        list.sort_unstable_by_key(|(handle, _)| *handle);
        list
    }

    /// The open handles, without those that nothing uses.
    pub(crate) fn count(&self) -> usize {
        self.files.len() - self.idle_count
    }
}
