//! The hash of the maps in cores. Its seed comes with the configuration, and nothing depends on a
//! map's order.

use core::hash::BuildHasher;
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

/// The seed of a core's maps. Their keys are numbers that the server hands out: who chooses keys of
/// more than eight bytes can have all of them collide.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seed(pub u64);

impl BuildHasher for Seed {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        FoldHasher::with_seed(self.0, SharedSeed::global_fixed())
    }
}
