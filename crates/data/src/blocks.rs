//! The checksums of an object's blocks while the object is written to.
//!
//! ```text
//! none ─ written from its beginning ─▶ pending ─ recorded ─▶ bound (in the table, and in its row)
//!  │                                     │ ▲ appended to         │ overwritten: an intent first
//!  └─ written in the middle ─▶ touched ◀─┴─┴─────────────────────┘
//!                                 └─ the object is quiet: read and summed ─▶ bound
//! ```
//! Invariants: a write that changes a covered byte begins only when the record that removes the
//! checksum is durable; a checksum is recorded only when its covered bytes are synced and no write
//! in progress changes them; a checksum is removed only when no read compares its block, and no
//! read of the bytes begins before the write that removed it has ended. An *intended* region is one whose rows have no checksums: those in the
//! table are recorded again when it is closed.

use crate::sums::{SumEntry, Sums};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use disk::{BlockSum, REGION_BLOCK_COUNT};
use interface::Mono;

/// A checksum that waits for the record of the last write that it covers.
#[derive(Clone, Copy, Debug)]
struct PendingSum {
    sum: BlockSum,
    /// All covered bytes were written or verified in this boot.
    verified: bool,
    /// That write's change number at the object.
    change_no: u64,
}

/// A group of adjacent blocks, some of them without a valid checksum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    touched: Vec<u64>,
    /// The rows of the region have no checksums.
    pub(crate) intended: bool,
    /// Rises with every change of its touched blocks.
    pub(crate) stamp: u64,
}

/// The blocks of an object that are changing.
#[derive(Debug)]
pub(crate) struct Blocks {
    pending: BTreeMap<u64, PendingSum>,
    pub(crate) open: BTreeMap<u64, Region>,
    running: Vec<RunningWrite>,
    /// Byte ranges whose checksums reads compare.
    compared: Vec<Range<u64>>,
    /// When a block was last touched.
    pub(crate) touched_at: Mono,
    /// A region is being summed.
    pub(crate) closing: bool,
    /// A failed change may have left bytes in the file that are not on the disk: no sync that
    /// covers them has begun since.
    pub(crate) unsynced: bool,
    /// The size of a file that was found shorter than it must be.
    pub(crate) short_bytes: Option<u64>,
}

/// A byte range being written.
#[derive(Debug)]
struct RunningWrite {
    bytes: Range<u64>,
    /// It removed a checksum: until it ends, the bytes from before it are there unverified.
    overwrites: bool,
}

/// A part of one block.
#[derive(Clone, Copy, Debug)]
struct Part {
    block: u64,
    from: u32,
    until: u32,
}

/// Splits a byte range at block boundaries.
fn parts(bytes: Range<u64>, block_bytes: u64) -> impl Iterator<Item = Part> {
    let blocks = bytes.start / block_bytes..bytes.end.div_ceil(block_bytes);
    let within = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    blocks.map(move |block| {
        let start = block * block_bytes;
        let end = start.saturating_add(block_bytes);
        let (from, until) = (bytes.start.max(start) - start, bytes.end.min(end) - start);
        Part { block, from: within(from), until: within(until) }
    })
}

impl Blocks {
    pub(crate) const fn new() -> Self {
        Self {
            pending: BTreeMap::new(),
            open: BTreeMap::new(),
            running: Vec::new(),
            compared: Vec::new(),
            touched_at: Mono(0),
            closing: false,
            unsynced: false,
            short_bytes: None,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        let known = self.pending.is_empty() && self.open.is_empty();
        known && self.running.is_empty() && !self.closing
    }

    pub(crate) const fn is_quiet(&self) -> bool {
        self.running.is_empty() && !self.closing
    }

    /// The regions that must be opened before a range is written.
    pub(crate) fn must_open(&self, sums: &Sums, bytes: &Range<u64>, block_bytes: u64) -> Vec<u64> {
        let mut regions: Vec<u64> = Vec::new();
        for (block, _) in sums.covering(bytes.clone(), block_bytes) {
            let region = block / REGION_BLOCK_COUNT;
            let intended = self.open.get(&region).is_some_and(|region| region.intended);
            if !intended && regions.last() != Some(&region) {
                regions.push(region);
            }
        }
        regions
    }

    /// From here on the rows have no checksums of a region.
    pub(crate) fn intend(&mut self, region: u64, now: Mono) {
        let first = region * REGION_BLOCK_COUNT;
        let blocks = first..first + REGION_BLOCK_COUNT;
        let waiting: Vec<u64> = self.pending.range(blocks).map(|(block, _)| *block).collect();
        waiting.into_iter().for_each(|block| self.touch(block, now));
        let region = self.open.entry(region).or_default();
        region.intended = true;
        region.stamp += 1;
        self.touched_at = now;
    }

    /// A write of a range begins.
    pub(crate) fn begin(
        &mut self,
        sums: &mut Sums,
        bytes: &Range<u64>,
        (block_bytes, now): (u64, Mono),
    ) {
        let mut removes = false;
        for part in parts(bytes.clone(), block_bytes) {
            let start = part.block * block_bytes;
            let range = start + u64::from(part.from)..start + u64::from(part.until);
            let meets = self.running.iter().any(|other| meet(&other.bytes, &range));
            let covers = |sum: BlockSum| sum.covered_bytes > part.from;
            let overwrites = sums.get(part.block).is_some_and(|entry| covers(entry.sum()));
            if overwrites {
                sums.put(part.block, SumEntry::default());
                removes = true;
            }
            let pending = self.pending.get(&part.block).is_some_and(|known| covers(known.sum));
            if meets || overwrites || pending || self.is_touched(part.block) {
                self.touch(part.block, now);
            }
        }
        self.running.push(RunningWrite { bytes: bytes.clone(), overwrites: removes });
    }

    /// Whether a write in progress removed a checksum and changes a byte of a range.
    pub(crate) fn is_overwritten(&self, bytes: &Range<u64>) -> bool {
        self.running.iter().any(|write| write.overwrites && meet(&write.bytes, bytes))
    }

    /// Whether a write is in progress, or a comparison.
    pub(crate) const fn is_contended(&self) -> bool {
        !self.running.is_empty() || !self.compared.is_empty()
    }

    /// A read begins to compare the checksums of blocks.
    pub(crate) fn begin_comparison(&mut self, blocks: &[(u64, BlockSum)], block_bytes: u64) {
        self.compared.extend(covered(blocks, block_bytes));
    }

    /// The comparison ended.
    pub(crate) fn end_comparison(&mut self, blocks: &[(u64, BlockSum)], block_bytes: u64) {
        for range in covered(blocks, block_bytes) {
            if let Some(index) = self.compared.iter().position(|other| *other == range) {
                self.compared.swap_remove(index);
            }
        }
    }

    /// Whether a read compares a checksum that covers a byte of a range.
    pub(crate) fn is_compared(&self, bytes: &Range<u64>) -> bool {
        self.compared.iter().any(|compared| meet(compared, bytes))
    }

    /// A write ended. `pieces`: the checksums of its parts of blocks, if they are known and may be
    /// recorded with it.
    pub(crate) fn end(
        &mut self,
        sums: &Sums,
        bytes: &Range<u64>,
        pieces: Option<&[u32]>,
        (block_bytes, change_no, now): (u64, u64, Mono),
    ) {
        if let Some(index) = self.running.iter().position(|other| other.bytes == *bytes) {
            self.running.swap_remove(index);
        }
        for (index, part) in parts(bytes.clone(), block_bytes).enumerate() {
            let region = self.open.get(&(part.block / REGION_BLOCK_COUNT));
            let intended = region.is_some_and(|region| region.intended);
            let piece = pieces.and_then(|pieces| pieces.get(index).copied());
            let piece = piece.filter(|_| !intended && !self.is_touched(part.block));
            match piece.and_then(|crc32c| self.joined(sums, part, crc32c)) {
                Some((sum, verified)) => {
                    let pending = PendingSum { sum, verified, change_no };
                    self.pending.insert(part.block, pending);
                }
                None => self.touch(part.block, now),
            }
        }
    }

    /// The checksum of a block extended by a part that was appended to the covered bytes, and
    /// whether all covered bytes were written or verified in this boot.
    fn joined(&self, sums: &Sums, part: Part, crc32c: u32) -> Option<(BlockSum, bool)> {
        let pending = self.pending.get(&part.block).map(|pending| (pending.sum, pending.verified));
        let recorded = || sums.get(part.block).map(|entry| (entry.sum(), entry.is_verified()));
        let (known, verified) = pending.or_else(recorded).unwrap_or((BlockSum::NONE, true));
        if known.covered_bytes != part.from {
            return None;
        }
        let part_bytes = u64::from(part.until - part.from);
        let crc32c = match known.covered_bytes {
            0 => crc32c,
            _ => wire::crc32c_combined(known.crc32c, crc32c, part_bytes),
        };
        Some((BlockSum { crc32c, covered_bytes: part.until }, verified))
    }

    /// A range is cut off or zeroed: removes the checksums that cover any of it.
    pub(crate) fn cut(
        &mut self,
        sums: &mut Sums,
        bytes: &Range<u64>,
        (block_bytes, now): (u64, Mono),
    ) {
        let covering: Vec<u64> =
            sums.covering(bytes.clone(), block_bytes).map(|(block, _)| block).collect();
        for block in &covering {
            sums.put(*block, SumEntry::default());
        }
        let blocks = bytes.start / block_bytes..bytes.end.div_ceil(block_bytes);
        let pending = self.pending.range(blocks.clone()).filter(|(block, pending)| {
            *block * block_bytes + u64::from(pending.sum.covered_bytes) > bytes.start
        });
        let mut changed: Vec<u64> = pending.map(|(block, _)| *block).collect();
        changed.extend(covering);
        for block in changed {
            self.pending.remove(&block);
            // Behind the new end there is nothing to sum.
            if bytes.end < u64::MAX || block * block_bytes < bytes.start {
                self.touch(block, now);
            }
        }
        for (_, region) in self.open.range_mut(blocks.start / REGION_BLOCK_COUNT..) {
            region.stamp += 1;
        }
    }

    /// Takes the checksums to be recorded with a write.
    pub(crate) fn bind(
        &mut self,
        sums: &mut Sums,
        bytes: Range<u64>,
        (block_bytes, change_no): (u64, u64),
    ) -> Option<(u64, disk::BlockSums)> {
        let mut first_block = None;
        let mut run = disk::BlockSums::default();
        for part in parts(bytes, block_bytes) {
            let mine = |pending: &&PendingSum| pending.change_no == change_no;
            let pending = self.pending.get(&part.block).filter(mine).copied();
            let Some(PendingSum { sum, verified, .. }) = pending else { continue };
            self.pending.remove(&part.block);
            let first = *first_block.get_or_insert(part.block);
            run.put(usize::try_from(part.block - first).unwrap_or(usize::MAX), sum);
            sums.put(part.block, SumEntry::new(sum, verified));
        }
        first_block.map(|first_block| (first_block, run))
    }

    /// The touched blocks of a region.
    pub(crate) fn touched(&self, region: u64) -> impl Iterator<Item = u64> {
        let words = self.open.get(&region).into_iter().flat_map(|region| &region.touched);
        let first = region * REGION_BLOCK_COUNT;
        (first..).step_by(64).zip(words).flat_map(|(first, word)| {
            (0..64_u64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        })
    }

    /// Whether a block was written and waits for its checksum.
    pub(crate) fn is_moving(&self, block: u64) -> bool {
        self.pending.contains_key(&block) || self.is_touched(block)
    }

    fn is_touched(&self, block: u64) -> bool {
        let (word, bit) = place(block);
        let region = self.open.get(&(block / REGION_BLOCK_COUNT));
        region.and_then(|region| region.touched.get(word)).is_some_and(|word| word >> bit & 1 == 1)
    }

    fn touch(&mut self, block: u64, now: Mono) {
        self.pending.remove(&block);
        let (word, bit) = place(block);
        let region = self.open.entry(block / REGION_BLOCK_COUNT).or_default();
        if region.touched.len() <= word {
            region.touched.resize(word + 1, 0);
        }
        region.touched[word] |= 1 << bit;
        region.stamp += 1;
        self.touched_at = now;
    }
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The byte ranges that the checksums of blocks cover, adjacent ones joined.
fn covered(blocks: &[(u64, BlockSum)], block_bytes: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (block, sum) in blocks {
        let start = block * block_bytes;
        let end = start + u64::from(sum.covered_bytes);
        match ranges.last_mut().filter(|last| last.end == start) {
            Some(last) => last.end = end,
            None => ranges.push(start..end),
        }
    }
    ranges
}

/// The position of a block's bit in its region.
fn place(block: u64) -> (usize, u64) {
    let index = block % REGION_BLOCK_COUNT;
    (usize::try_from(index / 64).unwrap_or(0), index % 64)
}
