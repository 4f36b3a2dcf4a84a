//! A small keyed hash for numbers. No result depends on a map's order.

use core::hash::{BuildHasher, Hasher};

/// The key of this lane's maps.
#[derive(Clone, Copy, Debug)]
pub struct Seed(pub u64);

impl BuildHasher for Seed {
    type Hasher = Mix;

    #[inline]
    fn build_hasher(&self) -> Mix {
        Mix(self.0)
    }
}

/// One hash being computed: after each word both halves of a product, xored.
#[derive(Clone, Copy, Debug)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !tail.is_empty() {
            let mut word = [0; 8];
            word[..tail.len()].copy_from_slice(tail);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(u64::try_from(number).unwrap_or(u64::MAX));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = (self.0 ^ word).wrapping_add(ODD);
        let product = u128::from(mixed).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        #[expect(clippy::cast_possible_truncation, reason = "each half is wanted")]
        let (low, high) = (product as u64, (product >> 64) as u64);
        self.0 = low ^ high;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
