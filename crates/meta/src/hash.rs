//! A small keyed hash for inode numbers and names: folded multiplication, eight bytes a step.
//!
//! The key comes from the store, so that a store behaves the same in every run; no result may
//! depend on a map's order.

use core::hash::{BuildHasher, Hasher};

const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The key of a shard's maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) const fn new(number: u64) -> Self {
        Self(fold(number ^ ODD, 0xD6E8_FEB8_6659_FD93))
    }

    pub(crate) fn hash_name(self, name: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write(name);
        hasher.finish()
    }
}

impl BuildHasher for Seed {
    type Hasher = Mix;

    #[inline]
    fn build_hasher(&self) -> Mix {
        Mix { key: self.0, state: self.0.rotate_left(32) }
    }
}

/// One hash being computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    key: u64,
    state: u64,
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.write_u64(u64::from_le_bytes(last) ^ count.rotate_left(56));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.key | 1).wrapping_add(ODD);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, ODD)
    }
}

/// Both halves of the 128-bit product, xored.
const fn fold(left: u64, right: u64) -> u64 {
    let product = (left as u128).wrapping_mul(right as u128);
    #[expect(clippy::cast_possible_truncation, reason = "each half is wanted")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}
