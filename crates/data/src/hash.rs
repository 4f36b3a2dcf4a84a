//! A small keyed hash for numbers. No result depends on a map's order.

use core::hash::{BuildHasher, Hasher};

/// The key of this lane's maps.
#[derive(Clone, Copy, Debug)]
pub struct Seed(pub u64);

impl BuildHasher for Seed {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        Mix(self.0)
    }
}

/// One hash being computed: the finalizer of MurmurHash3 after each word.
#[derive(Clone, Copy, Debug)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mut mix = self.0 ^ word;
        mix = (mix ^ (mix >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        mix = (mix ^ (mix >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        self.0 = mix ^ (mix >> 33);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
