//! The checksums that are known of an object's blocks, in memory.
//!
//! They are those that its rows have, and those of blocks that are open, whose rows have none
//! ([`crate::blocks`]). The first block's takes no memory beside the table: most files have no other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use disk::rows::ObjectRow;
use disk::{BlockSum, BlockSums, ContentsChange, GROUP_BLOCK_COUNT};

/// A block's checksum, and whether the block was compared with it in this boot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Entry {
    crc32c: u32,
    /// The covered bytes; the highest bit: verified.
    covered: u32,
}

impl Entry {
    const NONE: Self = Self { crc32c: 0, covered: 0 };
    const VERIFIED: u32 = 1 << 31;

    pub(crate) const fn new(sum: BlockSum, verified: bool) -> Self {
        let BlockSum { crc32c, covered_bytes } = sum;
        let mark = if verified { Self::VERIFIED } else { 0 };
        Self { crc32c, covered: covered_bytes & !Self::VERIFIED | mark }
    }

    pub(crate) const fn sum(self) -> BlockSum {
        BlockSum { crc32c: self.crc32c, covered_bytes: self.covered & !Self::VERIFIED }
    }

    pub(crate) const fn is_verified(self) -> bool {
        self.covered & Self::VERIFIED > 0
    }

    const fn is_none(self) -> bool {
        self.sum().is_none()
    }
}

/// The checksums of one object.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    first: Entry,
    groups: BTreeMap<u64, Vec<Entry>>,
}

impl Sums {
    pub(crate) fn get(&self, block: u64) -> Option<Entry> {
        let (group, index) = place(block);
        let entry = match block {
            0 => self.first,
            _ => self.groups.get(&group)?.get(index).copied()?,
        };
        (!entry.is_none()).then_some(entry)
    }

    pub(crate) fn put(&mut self, block: u64, entry: Entry) {
        if block == 0 {
            self.first = entry;
            return;
        }
        let (group, index) = place(block);
        let entries = self.groups.entry(group).or_default();
        if entries.len() <= index {
            entries.resize(index + 1, Entry::NONE);
        }
        entries[index] = entry;
    }

    /// Takes the checksums of blocks away; of which blocks there were any.
    pub(crate) fn clear(&mut self, blocks: Range<u64>) -> Vec<u64> {
        let cleared: Vec<u64> = self.within(blocks).map(|(block, _)| block).collect();
        for block in &cleared {
            self.put(*block, Entry::NONE);
        }
        self.groups.retain(|_, entries| entries.iter().any(|entry| !entry.is_none()));
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
        first.into_iter().chain(more).filter(|(_, entry)| !entry.is_none())
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
            ContentsChange::SumsGone { from_block, until_block, .. } => {
                self.clear(*from_block..*until_block);
            }
            ContentsChange::Write { .. }
            | ContentsChange::WriteList { .. }
            | ContentsChange::Truncate { .. }
            | ContentsChange::Allocate { .. }
            | ContentsChange::ObjectGone { .. } => {}
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
        self.first = Entry::new(row.first_sum, false);
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
