//! The known checksums of an object's blocks, in memory.
//!
//! They are those in its rows, and those of opened blocks, which have none in the rows
//! ([`crate::blocks`]). The first block's takes no extra memory: most files have no other.

use crate::Damage;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use disk::rows::ObjectRow;
use disk::{BlockSum, BlockSums, ContentsChange, GROUP_BLOCK_COUNT};
use interface::Mono;
use wire::Wire as _;

/// The time after which a read verifies a block again: other readers than ours may bring its pages
/// back into the page cache.
const VERIFIED_S: u32 = 600;

/// A block's checksum, and whether the block was verified and, as far as known, has not left the
/// page cache since.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SumEntry {
    sum: BlockSum,
    verified: bool,
}

impl SumEntry {
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

/// The packed form of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct PackedSum {
    crc32c: u32,
    /// The covered bytes, and in the highest bits the mark of the generation in which it was
    /// verified; 0: never.
    covered: u32,
}

const _: () = assert!(size_of::<PackedSum>() == 8, "there is one for each block");

impl PackedSum {
    const NONE: Self = Self { crc32c: 0, covered: 0 };
    const COVERED_BITS: u32 = 18;
    const COVERED: u32 = (1 << Self::COVERED_BITS) - 1;
    const MARK_MAX: u32 = u32::MAX >> Self::COVERED_BITS;

    const fn new(SumEntry { sum, verified }: SumEntry, mark: u32) -> Self {
        const { assert!(disk::BLOCK_BYTES <= Self::COVERED, "a block's bytes and a mark fit") };
        let mark = if verified { mark << Self::COVERED_BITS } else { 0 };
        Self { crc32c: sum.crc32c, covered: sum.covered_bytes & Self::COVERED | mark }
    }

    const fn entry(self, mark: u32) -> SumEntry {
        let sum = BlockSum { crc32c: self.crc32c, covered_bytes: self.covered & Self::COVERED };
        SumEntry { sum, verified: self.covered >> Self::COVERED_BITS == mark }
    }

    const fn is_none(self) -> bool {
        self.entry(0).sum.is_none()
    }
}

/// The checksums of one object.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    first: PackedSum,
    groups: BTreeMap<u64, Vec<PackedSum>>,
    /// Rises when all blocks become unverified; the mark of verified blocks is one more.
    generation: u16,
    /// When it rose last.
    since_s: u32,
}

impl Sums {
    pub(crate) fn get(&self, block: u64) -> Option<SumEntry> {
        let (group, index) = place(block);
        let packed = match block {
            0 => self.first,
            _ => self.groups.get(&group)?.get(index).copied()?,
        };
        (!packed.is_none()).then_some(packed.entry(self.mark()))
    }

    pub(crate) fn put(&mut self, block: u64, entry: SumEntry) {
        let packed = PackedSum::new(entry, self.mark());
        if block == 0 {
            self.first = packed;
            return;
        }
        let (group, index) = place(block);
        let entries = self.groups.entry(group).or_default();
        if entries.len() <= index {
            entries.resize(index + 1, PackedSum::NONE);
        }
        entries[index] = packed;
    }

    /// The generation; when it changes, no block is verified any more.
    pub(crate) const fn generation(&self) -> u16 {
        self.generation
    }

    fn mark(&self) -> u32 {
        u32::from(self.generation) + 1
    }

    /// Bytes of the object came from the disk, and the kernel may have read ahead: marks all blocks
    /// as unverified.
    pub(crate) fn unverify(&mut self) {
        if self.mark() < PackedSum::MARK_MAX {
            self.generation += 1;
            return;
        }
        // All marks are used up.
        self.generation = 0;
        let all = self.groups.values_mut().flatten().chain([&mut self.first]);
        all.for_each(|packed| {
            *packed = PackedSum::new(SumEntry::new(packed.entry(0).sum, false), 0)
        });
    }

    /// Ends the generation after [`VERIFIED_S`].
    pub(crate) fn age(&mut self, now: Mono) {
        let now_s = u32::try_from(now.0 / 1_000_000_000).unwrap_or(u32::MAX);
        if now_s >= self.since_s.saturating_add(VERIFIED_S) {
            self.since_s = now_s;
            self.unverify();
        }
    }

    /// Removes the checksums of blocks; returns the blocks that had any.
    pub(crate) fn clear(&mut self, blocks: Range<u64>) -> Vec<u64> {
        let cleared: Vec<u64> = self.within(blocks).map(|(block, _)| block).collect();
        for block in &cleared {
            self.put(*block, SumEntry::default());
        }
        self.groups.retain(|_, entries| entries.iter().any(|packed| !packed.is_none()));
        cleared
    }

    /// The blocks of a range with checksums, in order.
    pub(crate) fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = (u64, SumEntry)> {
        let first = (blocks.start == 0 && blocks.end > 0).then_some((0, self.first));
        let last_group = place(blocks.end).0;
        let groups = self.groups.range(place(blocks.start).0..=last_group);
        let more = groups.flat_map(|(group, entries)| {
            (group * GROUP_BLOCK_COUNT..).zip(entries.iter().copied())
        });
        let more = more.filter(move |(block, _)| *block > 0 && blocks.contains(block));
        let all = first.into_iter().chain(more).filter(|(_, packed)| !packed.is_none());
        all.map(|(block, packed)| (block, packed.entry(self.mark())))
    }

    /// The blocks with a checksum that covers a byte of a range, in order.
    pub(crate) fn covering(
        &self,
        bytes: Range<u64>,
        block_bytes: u64,
    ) -> impl Iterator<Item = (u64, SumEntry)> {
        let blocks = bytes.start / block_bytes..bytes.end.div_ceil(block_bytes);
        self.within(blocks).filter(move |(block, entry)| {
            block * block_bytes + u64::from(entry.sum().covered_bytes) > bytes.start
        })
    }

    /// The checksums of a range of blocks for a record, from the first block with one.
    pub(crate) fn run(&self, blocks: Range<u64>) -> Option<(u64, BlockSums)> {
        let mut found = self.within(blocks).peekable();
        let (first_block, _) = *found.peek()?;
        let mut sums = BlockSums::default();
        for (block, entry) in found {
            sums.put(index_of(block - first_block), entry.sum());
        }
        Some((first_block, sums))
    }

    /// Redoes a change of checksums.
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
            | ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Stripe { .. }
            | ContentsChange::Logged { .. } => {}
        }
    }

    /// Loads checksums of consecutive blocks.
    pub(crate) fn load(&mut self, first_block: u64, sums: &BlockSums) {
        for (block, sum) in (first_block..).zip(&sums.0).filter(|(_, sum)| !sum.is_none()) {
            self.put(block, SumEntry::new(*sum, false));
        }
    }

    /// Loads the first block's checksum from an object's row.
    pub(crate) const fn load_first(&mut self, row: &ObjectRow) {
        self.first = PackedSum::new(SumEntry::new(row.first_sum, false), 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.groups.is_empty()
    }
}

/// Decodes the checksums of [`interface::ObjectEvent::Sums`].
pub(crate) fn decoded(bytes: &[u8]) -> Vec<BlockSum> {
    let mut from = wire::Reader::new(bytes);
    let mut sums = Vec::new();
    while let Ok(sum) = BlockSum::decode(&mut from) {
        sums.push(sum);
    }
    sums
}

/// The damage of a block with this recorded checksum.
pub(crate) fn damage_of(expected: BlockSum, found: BlockSum) -> Damage {
    if found.covered_bytes < expected.covered_bytes {
        return Damage::Missing;
    }
    Damage::Changed { expected: expected.crc32c, found: found.crc32c }
}

/// The group of a block and its index in it.
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
    fn a_block_stays_verified_until_the_generation_ends() {
        let sum = |crc32c| BlockSum { crc32c, covered_bytes: disk::BLOCK_BYTES };
        let mut sums = Sums::default();
        let unverified = [Some(SumEntry::new(sum(1), false)), Some(SumEntry::new(sum(2), false))];
        for round in 0..40_000 {
            sums.put(0, SumEntry::new(sum(1), true));
            if round % 16_384 == 0 {
                sums.put(70, SumEntry::new(sum(2), true));
            }
            assert_eq!(sums.get(0), Some(SumEntry::new(sum(1), true)), "round {round}");
            sums.unverify();
            assert_eq!([sums.get(0), sums.get(70)], unverified, "round {round}");
        }
    }
}
