//! The keyed hash of names. Clients choose names, so all of its seeds follow from the key; nothing
//! depends on a map's order.

use core::hash::Hasher as _;
use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// The key of a shard's names.
#[derive(Debug)]
pub(crate) struct NameKey {
    key: u64,
    seeds: SharedSeed,
}

/// A name with its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashedName<'a> {
    pub(crate) hash: u64,
    pub(crate) name: &'a [u8],
}

impl NameKey {
    pub(crate) const fn new(key: u64) -> Self {
        Self { key, seeds: SharedSeed::from_u64(!key) }
    }

    pub(crate) fn hashed<'a>(&self, name: &'a [u8]) -> HashedName<'a> {
        let mut hasher = FoldHasher::with_seed(self.key, &self.seeds);
        hasher.write(name);
        HashedName { hash: hasher.finish(), name }
    }
}
