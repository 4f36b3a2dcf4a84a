//! Small writes that follow one another: while one is under way, further ones at the end of the file are
//! answered as well, and made together when it is over, as one write.
//!
//! ```text
//! WRITE ─▶ under way ─ WRITE, WRITE: kept ─ answered ─▶ one write of both ─▶ under way
//! ```
//! Only the lane that has the write under way keeps others. As soon as anything waits for the file, no
//! further one is kept: so nobody waits longer than for two writes.

use crate::behind::{Behind, Extent, How, Place, bit, error_in, is_setting};
use crate::early::QueuedWrite;
use crate::lane::MountLane;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use interface::{Bulk, Turn};
use wire::{BULK_BYTES_MAX, ClearPrivileges, InodeNo, Status};

/// The most writes that are joined.
const COUNT_MAX: usize = 256;

/// What is written with one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// As many writes of its callers.
    pub(crate) write_count: u64,
    pub(crate) write_bytes: u64,
}

impl Behind {
    /// A write begins while something is under way: whether it is made together with others.
    pub(crate) fn join(&self, (place, state): (&Place, u64), extent: Extent) -> How<u64> {
        let Extent { file_offset, write_bytes, is_awaited, joinable_bytes } = extent;
        let others = bit::REMOVING | bit::AWAITED | bit::ENDED | bit::LOST | bit::PLAIN;
        let is_only_written = state & bit::WRITING != 0
            && state & others == 0
            && error_in(state) == 0
            && !is_setting(state)
            && place.wanted.load(Ordering::SeqCst) == 0;
        let size_bytes = place.size_bytes.load(Ordering::SeqCst);
        let is_at_end = file_offset.is_none_or(|offset| offset == size_bytes);
        let end = size_bytes.saturating_add(write_bytes);
        let under_way = self.bytes.load(Ordering::SeqCst).saturating_add(write_bytes);
        let fits = under_way <= wire::BEHIND_BYTES_MAX && i64::try_from(end).is_ok();
        let joins = is_only_written
            && is_at_end
            && fits
            && !is_awaited
            && (1..=joinable_bytes).contains(&write_bytes);
        if !joins {
            return How::Later;
        }
        place.size_bytes.store(end, Ordering::SeqCst);
        self.bytes.fetch_add(write_bytes, Ordering::SeqCst);
        How::Joined(size_bytes)
    }

    /// A write behind was answered.
    fn count_write(&self, written: Written, result: Result<(), Status>) {
        let Written { write_count, write_bytes } = written;
        self.bytes.fetch_sub(write_bytes, Ordering::SeqCst);
        let (count, bytes) = match result {
            Ok(()) => (&self.written_count, &self.written_bytes),
            Err(_) => (&self.lost_count, &self.lost_bytes),
        };
        count.fetch_add(write_count, Ordering::Relaxed);
        bytes.fetch_add(write_bytes, Ordering::Relaxed);
    }

    /// The same for the last one of a file. Returns the lanes that wait.
    pub(crate) fn end_write(
        &self,
        inode: InodeNo,
        written: Written,
        result: Result<(), Status>,
    ) -> u64 {
        self.count_write(written, result);
        self.end_one(inode, |state| state & !bit::WRITING, result)
    }

    /// The same, and what was joined behind it follows.
    fn end_write_of_several(&self, written: Written) {
        self.count_write(written, Ok(()));
    }
}

impl MountLane {
    /// So many bytes may be joined to what this lane has under way of a file.
    pub(crate) fn joinable_bytes(&self, inode: InodeNo) -> u64 {
        let kept = self.behind.joined.get(&inode).filter(|kept| kept.len() < COUNT_MAX);
        let Some(kept) = kept else { return 0 };
        let kept_bytes: u64 = kept.iter().map(|write| u64::from(write.copy.bulk_bytes)).sum();
        u64::from(BULK_BYTES_MAX).saturating_sub(kept_bytes)
    }

    /// A write of this lane is under way.
    pub(crate) fn begin_joining(&mut self, inode: InodeNo) {
        self.behind.joined.entry(inode).or_default();
    }

    /// A write was answered that is made later.
    pub(crate) fn keep_joined(&mut self, inode: InodeNo, write: QueuedWrite) {
        self.behind.joined.entry(inode).or_default().push(write);
    }

    /// A write is over: what was kept meanwhile follows it, or is lost with it. Returns what else is
    /// over.
    pub(crate) fn go_on_with_joined(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, write): (InodeNo, QueuedWrite),
        outcome: Result<(), Status>,
    ) -> Option<Written> {
        let kept = self.behind.joined.remove(&inode).unwrap_or_default();
        let write_bytes = u64::from(write.copy.bulk_bytes);
        let own = Written { write_count: write.write_count, write_bytes };
        let copies: Vec<Bulk> = kept.iter().map(|write| write.copy).collect();
        copies.iter().for_each(|copy| self.client.release_copy(*copy));
        let Some(first) = kept.first().filter(|_| outcome.is_ok()) else {
            let kept_bytes: u64 = copies.iter().map(|copy| u64::from(copy.bulk_bytes)).sum();
            let write_count = own.write_count.saturating_add(len(&kept));
            let write_bytes = write_bytes.saturating_add(kept_bytes);
            return Some(Written { write_count, write_bytes });
        };
        let clears = kept.iter().map(|write| write.clears);
        let clears = clears.fold(first.clears, |all, clears| match (all, clears) {
            (ClearPrivileges::All, _) | (_, ClearPrivileges::All) => ClearPrivileges::All,
            _ => all,
        });
        // The copies are released at the end of the turn.
        let copy = self.client.join_copies(turn, &copies);
        let (file_offset, write_count) = (first.file_offset, len(&kept));
        if let Some(table) = &self.behind.table {
            table.end_write_of_several(own);
        }
        self.begin_joining(inode);
        self.write_behind(turn, inode, QueuedWrite { file_offset, copy, clears, write_count });
        None
    }
}

fn len(kept: &[QueuedWrite]) -> u64 {
    u64::try_from(kept.len()).unwrap_or(u64::MAX)
}
