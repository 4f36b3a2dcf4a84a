//! The checksums that are known of an object's blocks, in memory.
//!
//! They are those that its rows have, and those of blocks that are open, whose rows have none
//! ([`crate::blocks`]). The first block's takes no memory beside the table: most files have no other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use disk::rows::ObjectRow;
use disk::{BlockSum, BlockSums, ContentsChange, GROUP_BLOCK_COUNT};
use interface::Mono;

/// After this long a block is compared once more when it is read, whatever was seen of it: what brings
/// pages of it back into the page cache need not be a read of ours.
const VERIFIED_S: u32 = 600;

/// A block's checksum, and whether the block was compared with it and has not left the page cache since,
/// as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Entry {
    sum: BlockSum,
    verified: bool,
}

impl Entry {
    pub(crate) const fn new(sum: BlockSum, verified: bool) -> Self {
        Self { sum, verified }
    }

    pub(crate) const fn sum(self) -> BlockSum {
        self.sum
    }

    pub(crate) const fn is_verified(self) -> bool {
        self.verified
    }
}

/// An entry as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Kept {
    crc32c: u32,
    /// The covered bytes; in the highest bits the mark of those that are verified, 0: it never was.
    covered: u32,
}

const _: () = assert!(size_of::<Kept>() == 8, "there is one for each block");

impl Kept {
    const NONE: Self = Self { crc32c: 0, covered: 0 };
    const COVERED_BITS: u32 = 18;
    const COVERED: u32 = (1 << Self::COVERED_BITS) - 1;
    const MARK_MAX: u32 = u32::MAX >> Self::COVERED_BITS;

    const fn new(Entry { sum, verified }: Entry, mark: u32) -> Self {
        const { assert!(disk::BLOCK_BYTES <= Self::COVERED, "a block's bytes and a mark fit") };
        let mark = if verified { mark << Self::COVERED_BITS } else { 0 };
        Self { crc32c: sum.crc32c, covered: sum.covered_bytes & Self::COVERED | mark }
    }

    const fn entry(self, mark: u32) -> Entry {
        let sum = BlockSum { crc32c: self.crc32c, covered_bytes: self.covered & Self::COVERED };
        Entry { sum, verified: self.covered >> Self::COVERED_BITS == mark }
    }

    const fn is_none(self) -> bool {
        self.entry(0).sum.is_none()
    }
}

/// The checksums of one object.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    first: Kept,
    groups: BTreeMap<u64, Vec<Kept>>,
    /// Rises whenever no block is verified any more; the mark of those that are is one more.
    generation: u16,
    /// When it rose last.
    since_s: u32,
}

impl Sums {
    pub(crate) fn get(&self, block: u64) -> Option<Entry> {
        let (group, index) = place(block);
        let kept = match block {
            0 => self.first,
            _ => self.groups.get(&group)?.get(index).copied()?,
        };
        (!kept.is_none()).then_some(kept.entry(self.mark()))
    }

    pub(crate) fn put(&mut self, block: u64, entry: Entry) {
        let kept = Kept::new(entry, self.mark());
        if block == 0 {
            self.first = kept;
            return;
        }
        let (group, index) = place(block);
        let entries = self.groups.entry(group).or_default();
        if entries.len() <= index {
            entries.resize(index + 1, Kept::NONE);
        }
        entries[index] = kept;
    }

    /// Another one than before: what was verified is not any more.
    pub(crate) const fn generation(&self) -> u16 {
        self.generation
    }

    fn mark(&self) -> u32 {
        u32::from(self.generation) + 1
    }

    /// Something of the object came from the disk, and the kernel may have read around it: no block is
    /// taken for verified any more.
    pub(crate) fn unverify(&mut self) {
        if self.mark() < Kept::MARK_MAX {
            self.generation += 1;
            return;
        }
        // No mark is left that no block has.
        self.generation = 0;
        let all = self.groups.values_mut().flatten().chain([&mut self.first]);
        all.for_each(|kept| *kept = Kept::new(Entry::new(kept.entry(0).sum, false), 0));
    }

    /// Blocks are not taken for verified for ever.
    pub(crate) fn age(&mut self, now: Mono) {
        let now_s = u32::try_from(now.0 / 1_000_000_000).unwrap_or(u32::MAX);
        if now_s >= self.since_s.saturating_add(VERIFIED_S) {
            self.since_s = now_s;
            self.unverify();
        }
    }

    /// Takes the checksums of blocks away; of which blocks there were any.
    pub(crate) fn clear(&mut self, blocks: Range<u64>) -> Vec<u64> {
        let cleared: Vec<u64> = self.within(blocks).map(|(block, _)| block).collect();
        for block in &cleared {
            self.put(*block, Entry::default());
        }
        self.groups.retain(|_, entries| entries.iter().any(|kept| !kept.is_none()));
        cleared
    }

    /// The blocks of a range that have checksums, in their order.
    pub(crate) fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = (u64, Entry)> {
        let first = (blocks.start == 0 && blocks.end > 0).then_some((0, self.first));
        let last_group = place(blocks.end).0;
        let groups = self.groups.range(place(blocks.start).0..=last_group);
        let more = groups.flat_map(|(group, entries)| {
            (group * GROUP_BLOCK_COUNT..).zip(entries.iter().copied())
        });
        let more = more.filter(move |(block, _)| *block > 0 && blocks.contains(block));
        let all = first.into_iter().chain(more).filter(|(_, kept)| !kept.is_none());
        all.map(|(block, kept)| (block, kept.entry(self.mark())))
    }

    /// The blocks with a checksum that covers a byte of a range, in their order.
    pub(crate) fn covering(
        &self,
        bytes: Range<u64>,
        block_bytes: u64,
    ) -> impl Iterator<Item = (u64, Entry)> {
        let blocks = bytes.start / block_bytes..bytes.end.div_ceil(block_bytes);
        self.within(blocks).filter(move |(block, entry)| {
            block * block_bytes + u64::from(entry.sum().covered_bytes) > bytes.start
        })
    }

    /// The checksums of a range of blocks as they are recorded, from the first one that has any.
    pub(crate) fn run(&self, blocks: Range<u64>) -> Option<(u64, BlockSums)> {
        let mut found = self.within(blocks).peekable();
        let (first_block, _) = *found.peek()?;
        let mut sums = BlockSums::default();
        for (block, entry) in found {
            sums.put(index_of(block - first_block), entry.sum());
        }
        Some((first_block, sums))
    }

    /// Redoes what a record says of checksums.
    pub(crate) fn redo(&mut self, change: &ContentsChange) {
        match change {
            ContentsChange::Sums { first_block, sums, .. } => {
                self.load(*first_block, sums);
            }
            ContentsChange::SumsRemoved { from_block, until_block, .. } => {
                self.clear(*from_block..*until_block);
            }
            ContentsChange::Write { .. }
            | ContentsChange::WriteList { .. }
            | ContentsChange::Truncate { .. }
            | ContentsChange::Allocate { .. }
            | ContentsChange::ObjectRemoved { .. } => {}
        }
    }

    /// Takes over checksums of blocks that follow each other.
    pub(crate) fn load(&mut self, first_block: u64, sums: &BlockSums) {
        for (block, sum) in (first_block..).zip(&sums.0).filter(|(_, sum)| !sum.is_none()) {
            self.put(block, Entry::new(*sum, false));
        }
    }

    /// Takes over what an object's row says.
    pub(crate) const fn load_first(&mut self, row: &ObjectRow) {
        self.first = Kept::new(Entry::new(row.first_sum, false), 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.groups.is_empty()
    }
}

/// The group of a block, and where in it.
fn place(block: u64) -> (u64, usize) {
    (block / GROUP_BLOCK_COUNT, index_of(block % GROUP_BLOCK_COUNT))
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verified_block_is_so_until_the_generation_ends_however_many_there_were() {
        let sum = |crc32c| BlockSum { crc32c, covered_bytes: disk::BLOCK_BYTES };
        let mut sums = Sums::default();
        let unverified = [Some(Entry::new(sum(1), false)), Some(Entry::new(sum(2), false))];
        for round in 0..40_000 {
            sums.put(0, Entry::new(sum(1), true));
            if round % 16_384 == 0 {
                sums.put(70, Entry::new(sum(2), true));
            }
            assert_eq!(sums.get(0), Some(Entry::new(sum(1), true)), "round {round}");
            sums.unverify();
            assert_eq!([sums.get(0), sums.get(70)], unverified, "round {round}");
        }
    }
}
