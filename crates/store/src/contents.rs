//! Comparing contents at rest with their checksums, without a server.

use crate::{FileObjects, ObjectContents, ObjectFiles, ObjectName, Reader, StoreError};
use disk::rows::{Key, ObjectRow, Range, Row};
use disk::{BLOCK_BYTES, BlockSum, BlockSums, GROUP_BLOCK_COUNT};
use wire::{InodeNo, ShardId, Wire as _};

/// A block that differs from its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DamagedBlock {
    /// Its number; it starts at this many times [`BLOCK_BYTES`].
    pub block: u64,
    /// The recorded checksum.
    pub expected: BlockSum,
    /// The actual checksum; it covers fewer bytes where the object ends too early.
    pub found: BlockSum,
}

/// The result of comparing an object with its checksums.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Compared {
    /// Blocks that have a checksum.
    pub block_count: u64,
    /// Blocks that differ from their checksum.
    pub damaged_count: u64,
    /// The first of these.
    pub first: Option<DamagedBlock>,
}

impl Reader<'_> {
    /// The objects of a file at a data shard, as recorded.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn file_objects(&self, shard: ShardId, inode: InodeNo) -> Result<FileObjects, StoreError> {
        let single = FileObjects::single(shard.index(), inode);
        let row = self.get(&Key::object(shard, inode))?;
        let row = row.and_then(|value| ObjectRow::decode_all(value).ok());
        let Some(layout) = row.and_then(|row| row.layout) else { return Ok(single) };
        let mut further = Vec::new();
        self.scan(&Range::stripes(shard, inode), |key, value| {
            // A row that does not decode is reported separately.
            if let Ok(Row::Stripe { stripe_index, .. }) = Row::decode(key, value) {
                further.push(stripe_index);
            }
            Ok(crate::ScanControl::Continue)
        })?;
        Ok(FileObjects { layout, further, ..single })
    }

    /// Compares a file with the checksums in the rows. A block without one was overwritten and
    /// not yet summed again, was never written, or is a hole.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium or an invalid row.
    pub fn compare_contents(
        &self,
        files: &ObjectFiles,
        objects: FileObjects,
    ) -> Result<Compared, StoreError> {
        let name = objects.first;
        let mut comparison =
            Comparison { contents: files.contents(objects), compared: Compared::default() };
        for group in self.sum_groups(name)? {
            let sums = self.sums_of_group(name, group)?;
            for (block, sum) in (group * GROUP_BLOCK_COUNT..).zip(sums.0) {
                comparison.block(block, sum)?;
            }
        }
        Ok(comparison.compared)
    }

    /// The groups of an object's blocks that have checksums; always including the first.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn sum_groups(&self, name: ObjectName) -> Result<Vec<u64>, StoreError> {
        let shard = ShardId::data(name.shard_index);
        let mut groups = vec![0];
        self.scan(&Range::sums(shard, name.inode, 0..u64::MAX), |key, value| {
            // A row that does not decode is reported separately.
            if let Ok(Row::Sums { group: group @ 1.., .. }) = Row::decode(key, value) {
                groups.push(group);
            }
            Ok(crate::ScanControl::Continue)
        })?;
        Ok(groups)
    }

    /// The checksums in the rows for a group of an object's blocks.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn sums_of_group(&self, name: ObjectName, group: u64) -> Result<BlockSums, StoreError> {
        let (shard, inode) = (ShardId::data(name.shard_index), name.inode);
        let row = self.get(&Key::sums(shard, inode, group))?;
        let mut sums = row.and_then(|value| BlockSums::decode_all(value).ok()).unwrap_or_default();
        if group == 0
            && let Some(value) = self.get(&Key::object(shard, inode))?
            && let Ok(row) = ObjectRow::decode_all(value)
        {
            sums.put(0, row.first_sum);
        }
        Ok(sums)
    }
}

impl ObjectContents {
    /// The checksum of the first bytes of a block; it covers fewer bytes where the file ends.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn sum(&mut self, block: u64, covered_bytes: u32) -> Result<BlockSum, StoreError> {
        let mut bytes = vec![0; usize::try_from(covered_bytes).unwrap_or(0)];
        let read_bytes = self.read_at(block * u64::from(BLOCK_BYTES), &mut bytes)?;
        bytes.truncate(read_bytes);
        let covered_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Ok(BlockSum { crc32c: wire::crc32c(&bytes), covered_bytes })
    }
}

/// An object being compared.
struct Comparison {
    contents: ObjectContents,
    compared: Compared,
}

impl Comparison {
    fn block(&mut self, block: u64, expected: BlockSum) -> Result<(), StoreError> {
        if expected.is_none() {
            return Ok(());
        }
        let found = self.contents.sum(block, expected.covered_bytes)?;
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
    fn a_changed_or_missing_block_is_named() {
        let block_bytes = usize::try_from(BLOCK_BYTES).unwrap();
        let mut bytes: Vec<u8> = (0..3 * block_bytes).map(|at| (at / 7).to_le_bytes()[0]).collect();
        let sum = |bytes: &[u8]| BlockSum {
            crc32c: wire::crc32c(bytes),
            covered_bytes: u32::try_from(bytes.len()).unwrap(),
        };
        let sums: Vec<BlockSum> =
            bytes.chunks(block_bytes).map(|block| sum(&block[..block_bytes - 9])).collect();
        let folder = tempfile::tempdir().unwrap();
        let objects = FileObjects::single(0, wire::InodeNo(7));
        let path = folder.path().join(objects.first.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let compare = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let contents = ObjectFiles::new(folder.path().to_owned()).contents(objects.clone());
            let mut comparison = Comparison { contents, compared: Compared::default() };
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
        assert_eq!(compare(&bytes), (0, None), "bytes that no checksum covers");
        bytes[block_bytes + 5] ^= 1;
        assert_eq!(compare(&bytes), (1, Some(1)));
        bytes.truncate(2 * block_bytes);
        assert_eq!(compare(&bytes), (2, Some(1)));
    }
}
