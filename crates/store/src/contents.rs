//! Contents at rest against their checksums, without a server.

use crate::{ColdStore, StoreError};
use disk::rows::{Key, Range, Row};
use disk::{BLOCK_BYTES, BlockSum, BlockSums, Fault, GROUP_BLOCK_COUNT};
use std::collections::BTreeMap;
use std::io;
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

impl ColdStore {
    /// The checksums that the rows have of an object's blocks, by block. A block without one was
    /// overwritten and not yet summed again, was never written, or is a hole.
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails or a row makes no sense.
    pub fn object_sums(
        &self,
        shard: ShardId,
        inode: InodeNo,
    ) -> Result<BTreeMap<u64, BlockSum>, StoreError> {
        let mut found = BTreeMap::new();
        let object = Key::object(shard, inode);
        let own = Range { from: object, until: Key::object(shard, InodeNo(inode.0 + 1)) };
        for range in [own, Range::sums(shard, inode, 0..u64::MAX)] {
            self.read(&range, |row| {
                if let Row::Object { row, .. } = row {
                    found.insert(0, row.first_sum);
                }
                if let Row::Sums { group, sums, .. } = row {
                    let sums = BlockSums::decode_all(sums)
                        .map_err(|_| Fault::new("a row that does not decode", 0))?;
                    let blocks = (group * GROUP_BLOCK_COUNT..).zip(sums.0);
                    found.extend(blocks.filter(|(block, _)| *block > 0));
                }
                Ok(())
            })?;
        }
        found.retain(|_, sum| !sum.is_none());
        Ok(found)
    }
}

/// Compares an object with its checksums. `read_at` reads from an offset on, fewer bytes than it is
/// given room for only at the object's end.
///
/// # Errors
/// What `read_at` fails with.
pub fn verify_contents(
    sums: &BTreeMap<u64, BlockSum>,
    mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<Vec<DamagedBlock>> {
    let mut damaged = Vec::new();
    let mut bytes = Vec::new();
    for (block, expected) in sums {
        bytes.resize(usize::try_from(expected.covered_bytes).unwrap_or(0), 0);
        let read_bytes = read_at(block * u64::from(BLOCK_BYTES), &mut bytes)?;
        let read = bytes.get(..read_bytes).unwrap_or(&bytes);
        let covered_bytes = u32::try_from(read.len()).unwrap_or(u32::MAX);
        let found = BlockSum { crc32c: wire::crc32c(read), covered_bytes };
        if found != *expected {
            damaged.push(DamagedBlock { block: *block, expected: *expected, found });
        }
    }
    Ok(damaged)
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
        let sums: BTreeMap<u64, BlockSum> = (0..)
            .zip(bytes.chunks(block_bytes).map(|block| sum(&block[..block_bytes - 9])))
            .collect();
        let verify = |bytes: &[u8]| {
            let read_at = |offset: u64, to: &mut [u8]| {
                let rest = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or(&[]);
                let count = rest.len().min(to.len());
                to[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            };
            let damaged = verify_contents(&sums, read_at).unwrap();
            damaged.iter().map(|damaged| damaged.block).collect::<Vec<u64>>()
        };
        assert_eq!(verify(&bytes), [0_u64; 0]);
        bytes[block_bytes - 1] ^= 1;
        assert_eq!(verify(&bytes), [0_u64; 0], "what is not covered");
        bytes[block_bytes + 5] ^= 1;
        assert_eq!(verify(&bytes), [1]);
        bytes.truncate(2 * block_bytes);
        assert_eq!(verify(&bytes), [1, 2]);
    }
}
