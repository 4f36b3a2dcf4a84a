//! Checksums of ranges of objects, or their bytes, and checksums of written data.
//!
//! Adjacent ranges are read together, up to [`READ_BYTES_MAX`]; their order and number are the
//! caller's. Invariant: a result has one checksum for each range, of the bytes that existed, or
//! these bytes.

use crate::buffer::Pool;
use crate::io_context::IoContext;
use crate::number::{u32_of, u64_of, usize_of};
use interface::{Bulk, Errno, Event, ObjectEvent, SumRange, Ticket};
use slab::Slab;
use wire::{Reader, Wire as _};

/// Maximum bytes of one read.
const READ_BYTES_MAX: usize = 1 << 20;
/// Bytes of a complete block.
const BLOCK: usize = disk::BLOCK_BYTES as usize;

/// What a job finds out about its ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    Sums,
    Bytes,
}

struct Sums {
    ticket: Ticket,
    wanted: Wanted,
    ranges: Vec<SumRange>,
    /// What the first ranges have, encoded as in the event.
    found: Vec<u8>,
    summed_count: usize,
}

/// One read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    pub(crate) offset: u64,
    pub(crate) read_bytes: usize,
    range_count: usize,
}

/// All checksum jobs of a lane.
#[derive(Default)]
pub(crate) struct SumJobs {
    slots: Slab<Sums>,
}

impl SumJobs {
    /// Registers ranges; returns the job's index.
    pub(crate) fn begin(&mut self, ticket: Ticket, wanted: Wanted, encoded: &[u8]) -> u32 {
        let ranges = decoded(encoded);
        let sums = Sums { ticket, wanted, ranges, found: Vec::new(), summed_count: 0 };
        u32_of(self.slots.insert(sums))
    }

    fn slot(&mut self, index: u32) -> &mut Sums {
        &mut self.slots[index as usize]
    }

    /// The bytes that its largest read may have.
    pub(crate) fn read_bytes_max(&mut self, index: u32) -> usize {
        let ranges = self.slot(index).ranges.iter();
        let all_bytes = ranges.map(|range| range.range_bytes as usize).sum::<usize>();
        all_bytes.clamp(1, READ_BYTES_MAX)
    }

    /// The next read, unless all ranges are done.
    pub(crate) fn next(&mut self, index: u32) -> Option<Chunk> {
        let sums = self.slot(index);
        let mut left = sums.ranges[sums.summed_count..].iter();
        let first = left.next()?;
        let (offset, mut range_count) = (first.object_offset, 1);
        let mut read_bytes = first.range_bytes as usize;
        for range in left {
            let joins = range.object_offset == offset.saturating_add(u64_of(read_bytes));
            let joined_bytes = read_bytes + range.range_bytes as usize;
            if !joins || joined_bytes > READ_BYTES_MAX {
                break;
            }
            (read_bytes, range_count) = (joined_bytes, range_count + 1);
        }
        Some(Chunk { offset, read_bytes, range_count })
    }

    /// A chunk was read, as far as it exists.
    pub(crate) fn sum(&mut self, index: u32, chunk: Chunk, mut bytes: &[u8]) {
        let sums = self.slot(index);
        for range in &sums.ranges[sums.summed_count..][..chunk.range_count] {
            let (here, behind) = bytes.split_at(bytes.len().min(range.range_bytes as usize));
            match sums.wanted {
                Wanted::Sums => put(&mut sums.found, here),
                Wanted::Bytes => put_bytes(&mut sums.found, here),
            }
            bytes = behind;
        }
        sums.summed_count += chunk.range_count;
    }

    fn end(&mut self, index: u32) -> Sums {
        self.slots.remove(index as usize)
    }
}

impl IoContext {
    /// Completes a job; ranges that were not read have no bytes. `from_disk`: the page cache did
    /// not have all of it.
    pub(crate) fn end_sums(&mut self, index: u32, result: Result<(), Errno>, from_disk: bool) {
        let Sums { ticket, wanted, ranges, mut found, summed_count } = self.sum_jobs.end(index);
        let left = ranges[summed_count..].iter();
        match wanted {
            Wanted::Sums => left.for_each(|_| put(&mut found, &[])),
            Wanted::Bytes => left.for_each(|_| put_bytes(&mut found, &[])),
        }
        let result = result.map(|()| self.arena.put(&found));
        self.events.push(Event::Object(match wanted {
            Wanted::Sums => ObjectEvent::Sums { ticket, result, from_disk },
            Wanted::Bytes => ObjectEvent::Loaded { ticket, result },
        }));
    }

    /// Checksums of written data, by blocks; those that were computed when it was received are not
    /// computed again.
    pub(crate) fn written_sums(
        &mut self,
        (ticket, offset): (Ticket, u64),
        bulk: Bulk,
        block_bytes: u32,
    ) {
        let found = sums_by_block(&self.pool, offset, bulk, block_bytes);
        let result = Ok(self.arena.put(&found));
        self.events.push(Event::Object(ObjectEvent::Written { ticket, result }));
    }
}

fn sums_by_block(pool: &Pool, offset: u64, bulk: Bulk, block_bytes: u32) -> Vec<u8> {
    let block_bytes = u64::from(block_bytes);
    let mut found = Vec::new();
    let mut bytes = pool.bytes(bulk.buf, bulk.start as usize, bulk.bulk_bytes as usize);
    let mut at = offset;
    while !bytes.is_empty() {
        let left_bytes = usize::try_from(block_bytes - at % block_bytes).unwrap_or(usize::MAX);
        let (here, behind) = bytes.split_at(bytes.len().min(left_bytes));
        let known = match here.len() {
            BLOCK => pool.block_sum(bulk.buf, bulk.start as usize + usize_of(at - offset)),
            len if len == bulk.bulk_bytes as usize => bulk.crc32c,
            _ => None,
        };
        put_sum(&mut found, known.unwrap_or_else(|| wire::crc32c(here)), here.len());
        at += u64_of(here.len());
        bytes = behind;
    }
    found
}

/// Appends the checksum of these bytes and their number.
pub(crate) fn put(found: &mut Vec<u8>, bytes: &[u8]) {
    put_sum(found, wire::crc32c(bytes), bytes.len());
}

fn put_sum(found: &mut Vec<u8>, crc32c: u32, covered_bytes: usize) {
    found.extend_from_slice(&crc32c.to_le_bytes());
    found.extend_from_slice(&u32_of(covered_bytes).to_le_bytes());
}

/// Appends a number of bytes, and these bytes.
fn put_bytes(found: &mut Vec<u8>, bytes: &[u8]) {
    found.extend_from_slice(&u32_of(bytes.len()).to_le_bytes());
    found.extend_from_slice(bytes);
}

fn decoded(encoded: &[u8]) -> Vec<SumRange> {
    let mut from = Reader::new(encoded);
    let mut ranges = Vec::new();
    while let Ok(range) = SumRange::decode(&mut from) {
        ranges.push(range);
    }
    ranges
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ranges(all: &[(u64, u32)]) -> Vec<u8> {
        let mut encoded = Vec::new();
        for (object_offset, range_bytes) in all {
            let range = SumRange { object_offset: *object_offset, range_bytes: *range_bytes };
            encoded.extend(range.to_bytes());
        }
        encoded
    }

    #[test]
    fn adjacent_ranges_are_read_together() {
        let mut jobs = SumJobs::default();
        let all = [(0, 65_536), (65_536, 65_536), (131_072, 10), (262_144, 5)];
        let index = jobs.begin(Ticket(1), Wanted::Sums, &ranges(&all));
        let first = jobs.next(index).unwrap();
        assert_eq!(first, Chunk { offset: 0, read_bytes: 131_082, range_count: 3 });
        jobs.sum(index, first, &vec![7; 100_000]);
        let second = jobs.next(index).unwrap();
        assert_eq!(second, Chunk { offset: 262_144, read_bytes: 5, range_count: 1 });
        jobs.sum(index, second, &[]);
        assert_eq!(jobs.next(index), None);
        let mut expected = Vec::new();
        put(&mut expected, &vec![7; 65_536]);
        put(&mut expected, &vec![7; 100_000 - 65_536]);
        put(&mut expected, &[]);
        put(&mut expected, &[]);
        assert_eq!(jobs.end(index).found, expected);
    }

    #[test]
    fn sums_that_were_recorded_are_used_where_they_fit() {
        let mut pool = Pool::new(1 << 20);
        let bulk_bytes = 3 * BLOCK + 100;
        let buf = pool.take(bulk_bytes).unwrap();
        let all = (0..bulk_bytes).map(|index| (index % 251).to_le_bytes()[0]).collect::<Vec<u8>>();
        pool.bytes_mut(buf, 0, bulk_bytes).copy_from_slice(&all);
        // Other than the bytes have, to see where they are used.
        pool.put_block_sums(buf, vec![1, 2, 3]);
        let sums = |offset: usize, start: usize, part_bytes: usize, crc32c| {
            let (start, bulk_bytes) = (u32_of(start), u32_of(part_bytes));
            let bulk = Bulk { buf, start, bulk_bytes, crc32c, mac: interface::NO_MAC };
            let found = sums_by_block(&pool, u64_of(offset), bulk, u32_of(BLOCK));
            let words =
                found.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
            words.collect::<Vec<u32>>()
        };
        let (block, computed) =
            (u32_of(BLOCK), |at: usize, until: usize| wire::crc32c(&all[at..until]));
        let rest = computed(3 * BLOCK, bulk_bytes);
        let whole = [1, block, 2, block, 3, block, rest, 100];
        assert_eq!(sums(0, 0, bulk_bytes, Some(9)), whole);
        assert_eq!(sums(7 * BLOCK, 0, bulk_bytes, None), whole);
        assert_eq!(sums(BLOCK, BLOCK, BLOCK, None), [2, block]);
        assert_eq!(sums(0, 10, BLOCK, None), [computed(10, BLOCK + 10), block]);
        let halves = [computed(0, BLOCK - 5), block - 5, computed(BLOCK - 5, BLOCK), 5];
        assert_eq!(sums(5, 0, BLOCK, Some(9)), halves);
        assert_eq!(sums(5, 0, 100, Some(9)), [9, 100]);
        assert_eq!(sums(5, 0, 100, None), [computed(0, 100), 100]);
        pool.release(buf);
        assert_eq!(pool.take(bulk_bytes), Some(buf));
        assert_eq!(pool.block_sum(buf, 0), None, "it has other bytes");
    }

    #[test]
    fn a_job_needs_no_more_space_than_its_ranges_have() {
        let mut jobs = SumJobs::default();
        let mut space_bytes = |all: &[(u64, u32)]| {
            let index = jobs.begin(Ticket(1), Wanted::Bytes, &ranges(all));
            jobs.read_bytes_max(index)
        };
        assert_eq!(space_bytes(&[(0, 4096), (8192, 100)]), 4196);
        assert_eq!(space_bytes(&[(0, 1 << 19), (1 << 19, 1 << 19), (1 << 20, 1)]), READ_BYTES_MAX);
    }

    #[test]
    fn bytes_are_given_as_far_as_they_exist() {
        let mut jobs = SumJobs::default();
        let index = jobs.begin(Ticket(1), Wanted::Bytes, &ranges(&[(0, 4), (4, 4), (100, 2)]));
        let first = jobs.next(index).unwrap();
        jobs.sum(index, first, b"abcdef");
        let second = jobs.next(index).unwrap();
        jobs.sum(index, second, b"");
        let expected = [&[4, 0, 0, 0][..], b"abcd", &[2, 0, 0, 0], b"ef", &[0; 4]].concat();
        assert_eq!(jobs.end(index).found, expected);
    }
}
