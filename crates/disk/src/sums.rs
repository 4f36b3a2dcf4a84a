//! Checksums of the blocks of an object at rest.
//!
//! A block is [`BLOCK_BYTES`] of an object, aligned. Its checksum covers a prefix of the block: the
//! bytes that it had when the checksum was recorded. Invariant: the covered bytes are durable in
//! the object before the checksum is recorded, and the record that removes the checksum is durable
//! before a covered byte changes.

use alloc::vec::Vec;
use wire::{DecodeError, ProtocolError, Reader, Wire, Writer};

/// Bytes of a block.
pub const BLOCK_BYTES: u32 = 64 * 1024;

/// Number of blocks whose checksums share a row.
pub const GROUP_BLOCK_COUNT: u64 = 64;

/// Number of blocks whose checksums are removed together before the first of them is overwritten.
pub const REGION_BLOCK_COUNT: u64 = 1024;

/// The checksum of a block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BlockSum {
    /// CRC-32C of the covered bytes.
    pub crc32c: u32,
    /// Number of covered bytes, from the block's first on; 0: the block has no checksum.
    pub covered_bytes: u32,
}

impl BlockSum {
    /// No checksum.
    pub const NONE: Self = Self { crc32c: 0, covered_bytes: 0 };

    /// Whether the block has no checksum.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.covered_bytes == 0
    }
}

/// The checksums of consecutive blocks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BlockSums(pub Vec<BlockSum>);

impl BlockSums {
    /// The checksum at an index; none behind the last one.
    #[must_use]
    pub fn at(&self, index: usize) -> BlockSum {
        self.0.get(index).copied().unwrap_or(BlockSum::NONE)
    }

    /// Sets or clears the checksum of the block at an index, and drops trailing empty ones.
    pub fn put(&mut self, index: usize, sum: BlockSum) {
        if self.0.len() <= index {
            if sum.is_none() {
                return;
            }
            self.0.resize(index + 1, BlockSum::NONE);
        }
        self.0[index] = sum;
        while self.0.last().is_some_and(|last| last.is_none()) {
            self.0.pop();
        }
    }
}

impl Wire<'_> for BlockSum {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.crc32c);
        to.write(&self.covered_bytes);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { crc32c: from.read()?, covered_bytes: from.read()? })
    }
}

impl Wire<'_> for BlockSums {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&u16::try_from(self.0.len()).unwrap_or(u16::MAX));
        for sum in &self.0 {
            to.write(sum);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const SUM_BYTES: usize = 8;
        let count = usize::from(u16::decode(from)?);
        // Checked before memory is allocated.
        if from.left() < count * SUM_BYTES {
            return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
        }
        let mut sums = Vec::with_capacity(count);
        for _ in 0..count {
            sums.push(from.read()?);
        }
        Ok(Self(sums))
    }
}

const _: () = assert!(REGION_BLOCK_COUNT.is_multiple_of(GROUP_BLOCK_COUNT));
