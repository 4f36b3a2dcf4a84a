//! Contents at rest against their checksums, without a server.

use crate::{ObjectFiles, ObjectName, Reader, StoreError};
use disk::rows::{Key, ObjectRow, Range, Row};
use disk::{BLOCK_BYTES, BlockSum, BlockSums, GROUP_BLOCK_COUNT};
use wire::{InodeNo, ShardId, Wire as _};

/// A block that does not have what was recorded of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DamagedBlock {
    /// Its number; it begins at this many times [`BLOCK_BYTES`].
    pub block: u64,
    /// What was recorded.
    pub expected: BlockSum,
    /// What is there; it covers fewer bytes where the object ends too early.
    pub found: BlockSum,
}

/// What came of comparing an object with its checksums.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Compared {
    /// Blocks that have a checksum.
    pub block_count: u64,
    /// Those that do not have what was recorded.
    pub damaged_count: u64,
    /// The first of these.
    pub first: Option<DamagedBlock>,
}

impl Reader<'_> {
    /// Compares an object with the checksums that the rows have of its blocks. A block without one was
    /// overwritten and not yet summed again, was never written, or is a hole.
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails or a row makes no sense.
    pub fn compare_contents(
        &self,
        files: &ObjectFiles,
        name: ObjectName,
    ) -> Result<Compared, StoreError> {
        let mut contents = files.contents(name);
        let read_at = |offset: u64, to: &mut [u8]| contents.read_at(offset, to);
        let mut comparison =
            Comparison { read_at, bytes: Vec::new(), compared: Compared::default() };
        let (shard, inode) = (ShardId::data(name.shard_index), name.inode);
        let row = self.get(&Key::object(shard, inode))?;
        if let Some(row) = row.and_then(|value| ObjectRow::decode_all(value).ok()) {
            comparison.block(0, row.first_sum)?;
        }
        self.each_group(shard, inode, |group, sums| {
            let blocks = (group * GROUP_BLOCK_COUNT..).zip(sums.0);
            blocks
                .filter(|(block, _)| *block > 0)
                .try_for_each(|(block, sum)| comparison.block(block, sum))
        })?;
        Ok(comparison.compared)
    }

    fn each_group(
        &self,
        shard: ShardId,
        inode: InodeNo,
        mut feed: impl FnMut(u64, BlockSums) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.scan(&Range::sums(shard, inode, 0..u64::MAX), |key, value| {
            // A row that does not decode is a finding of its own.
            if let Ok(Row::Sums { group, sums, .. }) = Row::decode(key, value)
                && let Ok(sums) = BlockSums::decode_all(sums)
            {
                feed(group, sums)?;
            }
            Ok(crate::Going::On)
        })
    }
}

/// An object under comparison. `read_at` reads from an offset on, fewer bytes than it is given room for
/// only at the object's end.
struct Comparison<F> {
    read_at: F,
    bytes: Vec<u8>,
    compared: Compared,
}

impl<F: FnMut(u64, &mut [u8]) -> Result<usize, StoreError>> Comparison<F> {
    fn block(&mut self, block: u64, expected: BlockSum) -> Result<(), StoreError> {
        if expected.is_none() {
            return Ok(());
        }
        self.bytes.resize(usize::try_from(expected.covered_bytes).unwrap_or(0), 0);
        let read_bytes = (self.read_at)(block * u64::from(BLOCK_BYTES), &mut self.bytes)?;
        let read = self.bytes.get(..read_bytes).unwrap_or(&self.bytes);
        let covered_bytes = u32::try_from(read.len()).unwrap_or(u32::MAX);
        let found = BlockSum { crc32c: wire::crc32c(read), covered_bytes };
        self.compared.block_count += 1;
        if found != expected {
            self.compared.damaged_count += 1;
            self.compared.first.get_or_insert(DamagedBlock { block, expected, found });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_block_that_is_changed_or_missing_is_named() {
        let block_bytes = usize::try_from(BLOCK_BYTES).unwrap();
        let mut bytes: Vec<u8> = (0..3 * block_bytes).map(|at| (at / 7).to_le_bytes()[0]).collect();
        let sum = |bytes: &[u8]| BlockSum {
            crc32c: wire::crc32c(bytes),
            covered_bytes: u32::try_from(bytes.len()).unwrap(),
        };
        let sums: Vec<BlockSum> =
            bytes.chunks(block_bytes).map(|block| sum(&block[..block_bytes - 9])).collect();
        let compare = |bytes: &[u8]| {
            let read_at = |offset: u64, to: &mut [u8]| {
                let rest = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or(&[]);
                let count = rest.len().min(to.len());
                to[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            };
            let compared = Compared::default();
            let mut comparison = Comparison { read_at, bytes: Vec::new(), compared };
            for (block, sum) in (0..).zip(&sums) {
                comparison.block(block, *sum).unwrap();
            }
            comparison.block(3, BlockSum::NONE).unwrap();
            let Compared { block_count, damaged_count, first } = comparison.compared;
            assert_eq!(block_count, 3);
            (damaged_count, first.map(|first| first.block))
        };
        assert_eq!(compare(&bytes), (0, None));
        bytes[block_bytes - 1] ^= 1;
        assert_eq!(compare(&bytes), (0, None), "what is not covered");
        bytes[block_bytes + 5] ^= 1;
        assert_eq!(compare(&bytes), (1, Some(1)));
        bytes.truncate(2 * block_bytes);
        assert_eq!(compare(&bytes), (2, Some(1)));
    }
}
