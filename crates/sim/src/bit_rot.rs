//! Disk faults besides crashes: operations that fail, and bit rot.

use crate::due::ServerLaneId;
use crate::number::{narrow, wide};
use crate::plan::{DiskBehaviour, Injection};
use crate::simulation::Simulation;
use disk::rows::{Range, Row};
use disk::{BlockSum, BlockSums, GROUP_BLOCK_COUNT};
use interface::{Object, ObjectPiece};
use std::collections::BTreeSet;
use test_runtime::Operation;
use wire::{ShardId, Wire};

impl Simulation {
    /// The checksums that the rows have, by object and block of the object.
    fn sums(&self, server: usize) -> Vec<(Object, u64, BlockSum)> {
        let unit_blocks = self.plan.layout().stripe_unit_bytes / u64::from(self.plan.block_bytes);
        let mut all = Vec::new();
        let of = |shard: ShardId, inode, block: u64, sum| {
            let stripe_index = u32::try_from(block / unit_blocks).unwrap_or(u32::MAX);
            let object = Object { shard_index: shard.index(), stripe_index, inode };
            (object, block % unit_blocks, sum)
        };
        let read = self.servers[server].store.rows.each(&Range::all(), |row| {
            match row {
                Row::Object { shard, inode, row } => {
                    all.push(of(*shard, *inode, 0, row.first_sum));
                }
                Row::Sums { shard, inode, group, sums } => {
                    let sums = BlockSums::decode_all(sums).unwrap_or_default();
                    let blocks = (group * GROUP_BLOCK_COUNT..).zip(sums.0);
                    all.extend(blocks.map(|(block, sum)| of(*shard, *inode, block, sum)));
                }
                _ => {}
            }
            Ok(())
        });
        assert_eq!(read, Ok(()), "the rows decode");
        all.retain(|(_, _, sum)| !sum.is_none());
        all
    }

    /// Checks at a start that the recorded checksums match the contents after the crash. A file that
    /// is missing, or that the start has made again, was being removed; that is recorded afterwards.
    pub(crate) fn check_sums(&mut self, server: usize) {
        if self.plan.faults.disk == DiskBehaviour::Lying {
            return;
        }
        let store = &self.servers[server].store;
        let wrong = self.sums(server).into_iter().find_map(|(object, block, sum)| {
            let from = narrow(block * u64::from(self.plan.block_bytes));
            let exists = store.size(object).is_some()
                && !store.was_removed(object)
                && !self.flipped.contains_key(&object);
            let bytes = store.read(object, from, narrow(u64::from(sum.covered_bytes)));
            let same = wide(bytes.len()) == u64::from(sum.covered_bytes)
                && wire::crc32c(&bytes) == sum.crc32c;
            (exists && !same).then(|| format!("{object}: block {block} is not {sum:?}: {bytes:?}"))
        });
        if let Some(wrong) = wrong {
            self.violates(format!("boot {}: {wrong}", self.servers[server].boot_id));
        }
        if self.plan.has_bit_rot && self.plan.faults.disk == DiskBehaviour::Honest {
            self.flip_bit(server);
        }
    }

    /// Flips a bit in a block that has a checksum.
    pub(crate) fn flip_bit(&mut self, server: usize) {
        let (sums, store) = (self.sums(server), &self.servers[server].store);
        let blocks = sums.into_iter().filter(|(object, ..)| store.size(*object).is_some());
        let blocks: Vec<_> = blocks.collect();
        // An open region has no checksum, and at most one bit of an object flips.
        let lost = self.flipped.iter().filter(|(object, block)| {
            !blocks.iter().any(|(other, known, _)| (other, known) == (*object, *block))
        });
        self.unprotected.extend(lost.map(|(object, _)| object.inode));
        let blocks: Vec<_> =
            blocks.into_iter().filter(|(object, ..)| !self.flipped.contains_key(object)).collect();
        self.rot_one_of(server, &blocks);
    }

    /// Whether some of an object that is read is missing from the page cache. The page cache may
    /// evict the object just now, and a bit may flip since.
    pub(crate) fn misses_cache(&mut self, server: usize, object: Object) -> bool {
        let may_flip = self.plan.has_bit_rot
            && self.plan.faults.disk == DiskBehaviour::Honest
            && !self.faults_stopped;
        let store = &mut self.servers[server].store;
        if may_flip && self.prng.one_in(3) && store.evict(object) && self.prng.one_in(2) {
            self.rot_served(server, object);
        }
        self.servers[server].store.is_evicted(object)
    }

    /// The same for a list: its objects are read at once.
    pub(crate) fn misses_any(
        &mut self,
        server: usize,
        object: Object,
        pieces: &[ObjectPiece],
    ) -> bool {
        let stripes: BTreeSet<u32> = pieces.iter().map(|piece| piece.stripe_index).collect();
        let mut stripes = stripes.into_iter();
        stripes.any(|stripe_index| self.misses_cache(server, Object { stripe_index, ..object }))
    }

    /// Flips a bit of an object without operations under way that has its checksums. Not between
    /// the comparison of a block and the read that follows: a machine does both in one step.
    fn rot_served(&mut self, server: usize, object: Object) {
        let lanes = &self.servers[server].lanes;
        let mut operations = lanes.iter().flat_map(|sim_lane| sim_lane.operations.values());
        let is_used = operations.any(|operation| match operation {
            // What compares or reads several stripes goes on when it is done with all of them.
            Operation::Read { object: other, only_cached: false, .. }
            | Operation::ReadList { object: other, only_cached: false, .. }
            | Operation::Sums { object: other, .. }
            | Operation::Load { object: other, .. } => other.inode == object.inode,
            Operation::Patch { object: other, .. }
            | Operation::Sync { object: other, .. }
            | Operation::Remove { object: other, .. } => *other == object,
            Operation::Read { only_cached: true, .. }
            | Operation::ReadList { only_cached: true, .. }
            | Operation::Log { .. }
            | Operation::Stat { .. }
            | Operation::Seek { .. }
            | Operation::LoadWrite { .. }
            | Operation::Space { .. }
            | Operation::ReadRows { .. } => false,
        });
        let has_events = lanes.iter().any(|sim_lane| !sim_lane.state.inbox.is_empty());
        if is_used || has_events || self.flipped.contains_key(&object) {
            return;
        }
        let block_bytes = narrow(u64::from(self.plan.block_bytes));
        let (mut blocks, store) = (self.sums(server), &self.servers[server].store);
        blocks.retain(|(other, block, sum)| {
            let count = narrow(u64::from(sum.covered_bytes));
            let bytes = store.read(*other, narrow(*block) * block_bytes, count);
            *other == object && bytes.len() == count && wire::crc32c(&bytes) == sum.crc32c
        });
        if self.rot_one_of(server, &blocks) {
            self.rotten_since.insert(object);
        }
    }

    /// Flips a bit of one of these blocks.
    fn rot_one_of(&mut self, server: usize, blocks: &[(Object, u64, BlockSum)]) -> bool {
        let Some((object, block, sum)) = self.prng.pick(blocks) else { return false };
        let at = block * u64::from(self.plan.block_bytes)
            + self.prng.number() % u64::from(sum.covered_bytes);
        self.log_line(|| format!("bit rot: byte {at} of {object}"));
        self.flipped.insert(object, block);
        self.servers[server].store.flip_bit(object, narrow(at), &mut self.prng);
        true
    }

    pub(crate) fn disk_fails(&mut self, at: ServerLaneId, operation: &Operation) -> bool {
        let failing = self.plan.faults.disk == DiskBehaviour::Failing && !self.mended;
        let disk_rates = self.plan.faults.disk_rates;
        let per_mille = match operation {
            // It reads memory.
            Operation::LoadWrite { .. } => 0,
            Operation::Log { .. } => disk_rates.log,
            Operation::Patch { .. } | Operation::Remove { .. } => disk_rates.change,
            Operation::Sync { .. } => disk_rates.sync,
            Operation::Read { .. }
            | Operation::ReadList { .. }
            | Operation::Sums { .. }
            | Operation::Load { .. }
            | Operation::Stat { .. }
            | Operation::Seek { .. }
            | Operation::Space { .. }
            | Operation::ReadRows { .. } => disk_rates.read,
        };
        let fails = failing && self.prng.per_mille(per_mille);
        if fails {
            self.log_line(|| format!("the disk fails server lane {at:?}: {operation:?}"));
        }
        fails
    }

    /// Loses batches that were reported durable: a lying disk or an injected fault.
    pub(crate) fn lose_durable_batches(&mut self, server: usize) {
        const BATCH_COUNT_MAX: usize = 3;
        let injection = self.plan.injection == Some(Injection::LostBatch);
        let lies = self.plan.faults.disk == DiskBehaviour::Lying && self.prng.one_in(2);
        let count = if lies { 1 + self.choose(BATCH_COUNT_MAX) } else { usize::from(injection) };
        for _ in 0..count {
            // A batch that was applied is in the rows as well.
            let unapplied = lies && self.plan.applies;
            let store = &mut self.servers[server].store;
            let lost = store.lose_last_batch(&mut self.prng, unapplied);
            let Some(batch) = lost else { return };
            self.log_line(|| format!("the disk lied, lost: {}", crate::tap::describe(&batch)));
            self.tap.on_lost(&batch);
            if lies {
                let boot_id = self.servers[server].boot_id;
                self.lying_disk.on_lost((boot_id, self.now_ns), &batch);
            }
        }
    }
}
