//! Rows with the checksums of an object's blocks, in groups of [`GROUP_BLOCK_COUNT`] blocks. The
//! checksum of the first block is in the object's own row, so that a small file has one row.

use super::{Key, Range, Rows};
use crate::{BlockSum, BlockSums, Fault, GROUP_BLOCK_COUNT};
use alloc::vec::Vec;
use wire::{InodeNo, ShardId, Wire};

/// An object.
type Of = (ShardId, InodeNo);

/// Stores the checksums of consecutive blocks, except the first block's.
pub(super) fn put(
    rows: &mut impl Rows,
    of: Of,
    first_block: u64,
    sums: &BlockSums,
) -> Result<(), Fault> {
    let mut block = first_block;
    let mut rest = sums.0.as_slice();
    while !rest.is_empty() {
        let (group, index) = place(block);
        let count = rest.len().min(index_of(GROUP_BLOCK_COUNT) - index);
        let (here, behind) = rest.split_at(count);
        let mut known = read(rows, of, group)?;
        for (at, sum) in (index..).zip(here).filter(|(at, sum)| {
            let is_first = group == 0 && *at == 0;
            !is_first && !sum.is_none()
        }) {
            known.put(at, *sum);
        }
        write(rows, of, group, &known);
        block = block.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        rest = behind;
    }
    Ok(())
}

/// Removes the checksums of blocks, except the first block's.
pub(super) fn take(
    rows: &mut impl Rows,
    of: Of,
    blocks: core::ops::Range<u64>,
) -> Result<(), Fault> {
    let (first_group, first_index) = place(blocks.start);
    let (last_group, last_index) = place(blocks.end);
    let mut clear = |group, indices: core::ops::Range<usize>| {
        let mut known = read(rows, of, group)?;
        indices.for_each(|index| known.put(index, BlockSum::NONE));
        write(rows, of, group, &known);
        Ok(())
    };
    if first_group == last_group {
        return clear(first_group, first_index..last_index);
    }
    if first_index > 0 {
        clear(first_group, first_index..index_of(GROUP_BLOCK_COUNT))?;
    }
    if last_index > 0 {
        clear(last_group, 0..last_index)?;
    }
    let whole_groups = first_group + u64::from(first_index > 0)..last_group;
    rows.delete_range(&Range::sums(of.0, of.1, whole_groups))
}

/// The group of a block and its index in it.
fn place(block: u64) -> (u64, usize) {
    (block / GROUP_BLOCK_COUNT, index_of(block % GROUP_BLOCK_COUNT))
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn read(rows: &impl Rows, of: Of, group: u64) -> Result<BlockSums, Fault> {
    let Some(value) = rows.get(Key::sums(of.0, of.1, group).bytes())? else {
        return Ok(BlockSums::default());
    };
    BlockSums::decode_all(&value)
        .map_err(|_| Fault::new("a row that does not decode", 0).numbers(0_u64, of.1.0))
}

fn write(rows: &mut impl Rows, of: Of, group: u64, sums: &BlockSums) {
    let key = Key::sums(of.0, of.1, group);
    if sums.0.is_empty() {
        rows.delete(key.bytes());
    } else {
        let mut value = Vec::new();
        sums.encode(&mut wire::Writer::new(&mut value));
        rows.put(key.bytes(), &value);
    }
}
