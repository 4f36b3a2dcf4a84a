//! Changes of an object's bytes.

use crate::Prng;

/// A change of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Patch {
    Write { from: usize, bytes: Vec<u8> },
    Truncate { size: usize },
    Allocate { from: usize, count: usize, zeros: bool, keep_size: bool },
}

impl Patch {
    /// What a failed change leaves: nothing, a prefix of a write, or all.
    pub fn half_done(self, prng: &mut Prng) -> Option<Self> {
        if prng.one_in(3) {
            return None;
        }
        Some(match self {
            Self::Write { .. } => self.torn(prng),
            Self::Truncate { .. } => self,
            Self::Allocate { from, count, zeros, keep_size } => {
                let count = prng.below(count + 1);
                Self::Allocate { from, count, zeros, keep_size }
            }
        })
    }

    /// Behind its last byte.
    pub const fn end(&self) -> usize {
        match self {
            Self::Write { from, bytes } => *from + bytes.len(),
            Self::Truncate { size } => *size,
            Self::Allocate { from, count, .. } => *from + *count,
        }
    }

    /// A prefix of a write.
    pub(crate) fn torn(mut self, prng: &mut Prng) -> Self {
        if let Self::Write { bytes, .. } = &mut self {
            bytes.truncate(prng.below(bytes.len() + 1));
        }
        self
    }

    /// The checksums of the written bytes, by blocks.
    pub(crate) fn sums(&self, block_bytes: usize) -> Vec<u8> {
        let mut sums = Vec::new();
        if let Self::Write { from, bytes } = self {
            let first_bytes = (block_bytes - from % block_bytes).min(bytes.len());
            let (first, more) = bytes.split_at(first_bytes);
            put_sum(&mut sums, first);
            more.chunks(block_bytes).for_each(|piece| put_sum(&mut sums, piece));
        }
        sums
    }

    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { from, bytes: written } => {
                bytes.resize(bytes.len().max(self.end()), 0);
                bytes[*from..self.end()].copy_from_slice(written);
            }
            Self::Truncate { size } => bytes.resize(*size, 0),
            Self::Allocate { from, zeros, keep_size, .. } => {
                if !keep_size {
                    bytes.resize(bytes.len().max(self.end()), 0);
                }
                let size = bytes.len();
                if *zeros {
                    bytes[size.min(*from)..size.min(self.end())].fill(0);
                }
            }
        }
    }
}

/// Appends a checksum and how many bytes it covers.
pub fn put_sum(sums: &mut Vec<u8>, bytes: &[u8]) {
    sums.extend_from_slice(&wire::crc32c(bytes).to_le_bytes());
    sums.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
}
