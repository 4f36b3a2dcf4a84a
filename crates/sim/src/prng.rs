//! The pseudo-random numbers that decide everything in a run, and the hash over its events. Both
//! follow from the seed alone, so that a seed repeats its run.

use crate::number::{narrow, wide};

/// The generator of a run: `fastrand`'s, with the distributions that the simulator needs.
#[derive(Clone, Debug)]
pub(crate) struct Prng(fastrand::Rng);

impl Prng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// 0 .. `count`; 0 for a count of 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        narrow(self.number() % wide(count.max(1)))
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.number().is_multiple_of(count)
    }

    pub(crate) fn per_mille(&mut self, chance: u64) -> bool {
        self.number() % 1000 < chance
    }

    /// One of these; `None` where there are none.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let index = self.below(from.len());
        from.get(index).copied()
    }

    /// A duration around `mean_ns`: mostly less than twice as long, rarely much longer.
    pub(crate) fn span_ns(&mut self, mean_ns: u64) -> u64 {
        let stretch = match self.number() % 16 {
            0 => 8,
            1 | 2 => 3,
            _ => 1,
        };
        1 + self.number() % (2 * mean_ns * stretch + 1)
    }

    /// Random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes);
        bytes
    }
}

/// A running hash over every event of a run: two runs of one seed must end with the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunHash(u64);

impl RunHash {
    pub(crate) const fn new() -> Self {
        Self(0x6C61_6E65_6673_2173)
    }

    pub(crate) const fn add(&mut self, number: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ number);
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        let mut sum = wide(bytes.len());
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum =
                (sum.rotate_left(7) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        self.add(sum);
    }

    pub(crate) const fn sum(self) -> u64 {
        self.0
    }
}

/// The finalizer of `SplitMix64`.
const fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
