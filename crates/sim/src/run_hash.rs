//! The hash over the events of a run: a seed repeats its run.

use interface::Seed;
use std::hash::{BuildHasher, Hasher as _};

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
