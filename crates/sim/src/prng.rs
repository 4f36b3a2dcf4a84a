//! The pseudo-random numbers that decide everything in a run, and the hash over its events. Both
//! follow from the seed alone, so that a seed repeats its run.

use crate::number::{narrow, wide};
use interface::Seed;
use std::hash::{BuildHasher, Hasher as _};

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
pub(crate) struct RunHash(<Seed as BuildHasher>::Hasher);

impl RunHash {
    pub(crate) fn new() -> Self {
        Self(Seed(0).build_hasher())
    }

    pub(crate) fn add(&mut self, number: u64) {
        self.0.write_u64(number);
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.finish()
    }
}
