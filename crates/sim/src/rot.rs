//! What is wrong with the disk beside what a crash leaves: actions that fail, and bits at rest that
//! become others.

use crate::flight::Flight;
use crate::number::{narrow, wide};
use crate::plan::{DiskMood, Planted};
use crate::world::World;
use disk::BlockSum;
use interface::Object;

impl World {
    /// Whatever the power did, what is recorded of contents holds. A file that is not there was being
    /// removed: that is recorded afterwards.
    pub(crate) fn check_sums(&mut self) {
        if self.plan.faults.disk == DiskMood::Lying {
            return;
        }
        let wrong = self.cold.sums().into_iter().find_map(|(object, block, sum)| {
            let from = narrow(block * u64::from(self.plan.block_bytes));
            let exists = self.disk.size(object).is_some() && !self.rotten.contains_key(&object);
            let bytes = self.disk.read(object, from, narrow(u64::from(sum.covered_bytes)));
            let same = wide(bytes.len()) == u64::from(sum.covered_bytes)
                && wire::crc32c(&bytes) == sum.crc32c;
            (exists && !same).then(|| format!("{object}: block {block} is not {sum:?}: {bytes:?}"))
        });
        if let Some(wrong) = wrong {
            self.breaks(format!("boot {}: {wrong}", self.server.boot_id));
        }
        if self.plan.rots && self.plan.faults.disk == DiskMood::Honest {
            self.rot();
        }
    }

    /// The medium has another bit than was written to it, in a block that has a checksum.
    pub(crate) fn rot(&mut self) {
        let sums = self.cold.sums();
        let kept = sums.into_iter().filter(|(object, ..)| self.disk.size(*object).is_some());
        let kept: Vec<_> = kept.collect();
        // Of an open region nothing is known, and an object rots once.
        let gone = self.rotten.iter().filter(|(object, block)| {
            !kept.iter().any(|(other, known, _)| (other, known) == (*object, *block))
        });
        self.unprotected.extend(gone.map(|(object, _)| object.inode));
        let kept: Vec<_> =
            kept.into_iter().filter(|(object, ..)| !self.rotten.contains_key(object)).collect();
        self.rot_one_of(&kept);
    }

    /// Whether the page cache lacks some of an object that is read. It may have dropped it just now, and
    /// the medium may have changed since.
    pub(crate) fn misses(&mut self, object: Object) -> bool {
        let may_rot = self.plan.rots && self.plan.faults.disk == DiskMood::Honest && !self.calm;
        if may_rot && self.dice.one_in(3) && self.disk.evict(object) && self.dice.one_in(2) {
            self.rot_served(object);
        }
        self.disk.is_evicted(object)
    }

    /// A bit of an object changes that nobody writes to and that has its checksums. Not while what was
    /// just compared is read: that takes no time on a machine.
    fn rot_served(&mut self, object: Object) {
        let mut flights = self.server.seats.iter().flat_map(|seat| seat.flights.values());
        let is_used = flights.any(|flight| match flight {
            Flight::Read { object: other, only_cached: false, .. }
            | Flight::ReadList { object: other, only_cached: false, .. }
            | Flight::Sums { object: other, .. }
            | Flight::Patch { object: other, .. }
            | Flight::Sync { object: other, .. }
            | Flight::Remove { object: other, .. } => *other == object,
            Flight::Read { only_cached: true, .. }
            | Flight::ReadList { only_cached: true, .. }
            | Flight::Log { .. }
            | Flight::Stat { .. }
            | Flight::Seek { .. }
            | Flight::Space { .. }
            | Flight::Usage { .. }
            | Flight::Cold { .. } => false,
        });
        let is_told = self.server.seats.iter().any(|seat| !seat.desk.inbox.is_empty());
        if is_used || is_told || self.rotten.contains_key(&object) {
            return;
        }
        let block_bytes = narrow(u64::from(self.plan.block_bytes));
        let mut kept = self.cold.sums();
        kept.retain(|(other, block, sum)| {
            let count = narrow(u64::from(sum.covered_bytes));
            let bytes = self.disk.read(*other, narrow(*block) * block_bytes, count);
            *other == object && bytes.len() == count && wire::crc32c(&bytes) == sum.crc32c
        });
        if self.rot_one_of(&kept) {
            self.rotten_since.insert(object);
        }
    }

    /// A bit of one of these blocks changes.
    fn rot_one_of(&mut self, kept: &[(Object, u64, BlockSum)]) -> bool {
        let Some((object, block, sum)) = self.dice.pick(kept) else { return false };
        let at = block * u64::from(self.plan.block_bytes)
            + self.dice.throw() % u64::from(sum.covered_bytes);
        self.tell(|| format!("the disk rots: byte {at} of {object}"));
        self.rotten.insert(object, block);
        self.disk.rot(object, narrow(at), &mut self.dice);
        true
    }

    pub(crate) fn disk_fails(&mut self, lane: usize, flight: &Flight) -> bool {
        let failing = self.plan.faults.disk == DiskMood::Failing && !self.mended;
        let ails = self.plan.faults.ails;
        let per_mille = match flight {
            Flight::Log { .. } => ails.log,
            Flight::Patch { .. } | Flight::Remove { .. } => ails.change,
            Flight::Sync { .. } => ails.sync,
            Flight::Read { .. }
            | Flight::ReadList { .. }
            | Flight::Sums { .. }
            | Flight::Stat { .. }
            | Flight::Seek { .. }
            | Flight::Space { .. }
            | Flight::Cold { .. }
            | Flight::Usage { .. } => ails.look,
        };
        let fails = failing && self.dice.per_mille(per_mille);
        if fails {
            self.tell(|| format!("the disk fails server lane {lane}: {flight:?}"));
        }
        fails
    }

    /// A disk that lied, or a fault planted into this world.
    pub(crate) fn lose_what_was_durable(&mut self) {
        const BATCH_COUNT_MAX: usize = 3;
        let planted = self.plan.planted == Some(Planted::LostBatch);
        let lies = self.plan.faults.disk == DiskMood::Lying && self.dice.one_in(2);
        let count = if lies { 1 + self.choose(BATCH_COUNT_MAX) } else { usize::from(planted) };
        for _ in 0..count {
            // What was applied is in the rows as well.
            let behind = (lies && self.plan.applies).then_some(&self.cold.behind);
            let lost = self.disk.lose_last_batch(&mut self.dice, |lane, batch| {
                behind.is_none_or(|behind| {
                    behind.iter().any(|(at, waits)| *at == lane && waits == batch)
                })
            });
            let Some(batch) = lost else { return };
            self.tell(|| format!("the disk lied, lost: {}", crate::tap::describe(&batch)));
            self.tap.on_lost(&batch);
            if lies {
                self.lies.lose(self.server.boot_id, &batch);
            }
        }
    }
}
