//! Which files the lanes of a mount have open without the server ([`crate::local_opens`]): a table that
//! all of them read and write without locks. A file has one place, and a place one file at a time.

use crate::shared::{lane_bit, place_of};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use wire::{InodeNo, LaneId, Status};

/// The most files that are open so at a time.
const COUNT: usize = 1024;
/// What a place names while its waiters are taken.
const ENDING: u64 = u64::MAX;

/// The files that are open so, at any lane of the mount.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    places: Box<[Place]>,
    count: AtomicUsize,
}

#[derive(Default, Debug)]
struct Place {
    /// 0: none.
    inode: AtomicU64,
    /// Lanes that wait, by their bits.
    waiters: AtomicU64,
    /// Why the server has refused to open the file for writing; 0: it has not.
    refused: AtomicU64,
}

impl Default for LocalFiles {
    fn default() -> Self {
        let places = (0..COUNT).map(|_| Place::default()).collect();
        Self { places, count: AtomicUsize::new(0) }
    }
}

impl LocalFiles {
    fn place(&self, inode: InodeNo) -> &Place {
        &self.places[place_of(inode.0, COUNT)]
    }

    /// Whether no file is open so.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// A file is about to be opened. Returns whether there is a place for it.
    pub(crate) fn begin(&self, inode: InodeNo) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst);
        let taken = &self.place(inode).inode;
        let is_begun =
            taken.compare_exchange(0, inode.0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !is_begun {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        // A lane whose term ends sees the place, or this one sees that the term has ended.
        fence(Ordering::SeqCst);
        is_begun
    }

    /// It is registered or closed. Returns the lanes that wait for that.
    pub(crate) fn end(&self, inode: InodeNo) -> u64 {
        let place = self.place(inode);
        // No other file gets the place before its waiters are known.
        place.inode.store(ENDING, Ordering::SeqCst);
        let waiters = place.waiters.swap(0, Ordering::SeqCst);
        place.refused.store(0, Ordering::SeqCst);
        place.inode.store(0, Ordering::SeqCst);
        self.count.fetch_sub(1, Ordering::SeqCst);
        waiters
    }

    /// The server refuses to open it for writing: what waits for that fails, until the file is closed.
    /// Returns the lanes that wait.
    pub(crate) fn refuse(&self, inode: InodeNo, status: Status) -> u64 {
        let place = self.place(inode);
        place.refused.store(status.number().into(), Ordering::SeqCst);
        place.waiters.swap(0, Ordering::SeqCst)
    }

    /// Why the server has refused that.
    pub(crate) fn refused(&self, inode: InodeNo) -> Option<Status> {
        let place = self.place(inode);
        let refused = place.refused.load(Ordering::SeqCst);
        let is_its = refused > 0 && place.inode.load(Ordering::SeqCst) == inode.0;
        is_its.then(|| {
            let status = u16::try_from(refused).ok().and_then(Status::from_number);
            status.unwrap_or(Status::Io)
        })
    }

    /// Whether a file is open so; if it is, this lane is told when that is over.
    pub(crate) fn waits(&self, inode: InodeNo, lane: LaneId) -> bool {
        let place = self.place(inode);
        let is_local = || place.inode.load(Ordering::SeqCst) == inode.0;
        if !is_local() {
            return false;
        }
        place.waiters.fetch_or(lane_bit(lane), Ordering::SeqCst);
        is_local()
    }

    /// The first file that is open so; this lane is told when that is over.
    pub(crate) fn any_waits(&self, lane: LaneId) -> Option<InodeNo> {
        self.all().into_iter().find(|inode| self.waits(*inode, lane))
    }

    /// All files that are open so.
    pub(crate) fn all(&self) -> Vec<InodeNo> {
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return Vec::new();
        }
        let all = self.places.iter().map(|place| place.inode.load(Ordering::SeqCst));
        all.filter(|inode| *inode != 0 && *inode != ENDING).map(InodeNo).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that are made one after the other at several shards.
    #[test]
    fn files_with_numbers_in_order_have_places_of_their_own() {
        let table = LocalFiles::default();
        let shards = 0..10_u64;
        let files =
            shards.flat_map(|shard| (1..=10).map(move |count| shard << 48 | 2 << 20 | count));
        let begun_count = files.filter(|inode| table.begin(InodeNo(*inode))).count();
        assert!(begun_count >= 90, "{begun_count} of 100");
    }
}
