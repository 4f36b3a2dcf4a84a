//! What a client knows under leases: attributes, names, and which names a directory has. One cache
//! for all lanes of a client, which a frontend asks before it makes a call.
//!
//! ```text
//!               begin ─▶ request ─▶ answer ─▶ learn        answered: while a slot has no later
//! own change:   begin ─▶ request ─▶ answer ─▶ end, learn   stamp, and the lease has not ended
//! recall:       outdate ─▶ acknowledge
//! ```
//! A lane caches what its own requests were granted, and answers from what any lane has cached, for as
//! long as the term of that lane's leases lasts (`terms`). What
//! outdates a key is written where all lanes see it at once (`stamps`), so that no lane waits for
//! another, or wakes it. Everything may be forgotten at any time (`table`).
//!
//! The *hold* of a directory is the time in which its attributes are leased without a gap. Another
//! client's change of any name in it would recall them. So what was learned of a name since the hold
//! began stays true as long as it lasts, and in a directory that was made or listed in it, all
//! other names are absent: its names are *known*.
//!
//! Invariants: nothing is answered that another client, or another lane of this one, had changed
//! before the call began; nothing is answered after its lease has ended.

mod changes;
mod entries;
mod guards;
mod known;
mod learn;
mod stamps;
mod table;
mod terms;
#[cfg(test)]
mod tests;

pub use self::changes::Asked;
pub use self::known::Found;
pub use self::learn::TakenAnswer;

use self::entries::{ATTRIBUTE_WORDS, DIRECTORY_WORDS, NAME_WORDS, NameHash};
use self::guards::Guards;
use self::stamps::{Floor, Numbers, Slots, StampClock};
use self::table::Table;
use self::terms::Terms;
use crate::{RecalledKey, Term};
use core::hash::{BuildHasher as _, Hasher as _};
use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use interface::{Mono, Seed};
use wire::{InodeNo, LaneId, Name, Rule, Rules};

/// The most names of a directory that are known.
pub const KNOWN_NAME_COUNT_MAX: u64 = 16_384;

/// The size of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSize {
    /// The most names; absent ones count as well.
    pub name_count_max: usize,
    /// The most inodes with attributes.
    pub attributes_count_max: usize,
    /// The most directories that are held.
    pub directory_count_max: usize,
    /// Slots of stamps of names and inodes; a quarter of it for directories. With fewer, more is outdated
    /// with each change.
    pub slot_count: usize,
}

impl CacheSize {
    /// The size for a mount: 19 MB.
    pub const MOUNT: Self = Self {
        name_count_max: 65_536,
        attributes_count_max: 32_768,
        directory_count_max: 16_384,
        slot_count: 262_144,
    };
}

/// How much a cache has, also of what can no longer be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheCounts {
    /// Names, absent ones too.
    pub name_count: usize,
    /// Inodes with attributes.
    pub attributes_count: usize,
    /// Directories that are held.
    pub directory_count: usize,
}

/// The cache of a client.
#[derive(Debug)]
pub struct Cache {
    rules: Rules,
    /// Clients choose names, so their hashes need keys.
    name_keys: [u64; 2],
    name_seeds: SharedSeed,
    inode_seed: Seed,
    clock: StampClock,
    floor: Floor,
    /// Changes of inodes that are unknown outdate the attributes of all.
    unknown: Slots,
    /// Changes of inodes that are known as long as their names are.
    guards: Guards,
    attribute_slots: Slots,
    name_slots: Slots,
    /// When holds of directories ended.
    hold_slots: Slots,
    /// When names were last listed.
    listed: Slots,
    /// Names and inodes that were answered without a lease of the lane that did, and how often.
    unkept: Numbers,
    /// The terms of the lanes' leases.
    terms: Terms,
    attributes: Table<ATTRIBUTE_WORDS>,
    names: Table<NAME_WORDS>,
    directories: Table<DIRECTORY_WORDS>,
}

impl Cache {
    /// An empty cache; the seed is random.
    #[must_use]
    pub fn new(seed: [u64; 3], size: CacheSize, rules: Rules) -> Self {
        let [first, second, third] = seed;
        let slots = || Slots::new(size.slot_count);
        let directory_slot_count = size.slot_count / 4;
        Self {
            rules,
            name_keys: [first, second],
            name_seeds: SharedSeed::from_u64(third),
            inode_seed: Seed(third),
            clock: StampClock::new(),
            floor: Floor::new(),
            unknown: Slots::new(1),
            guards: Guards::new(),
            attribute_slots: slots(),
            name_slots: slots(),
            hold_slots: Slots::new(directory_slot_count),
            listed: slots(),
            unkept: Numbers::new(directory_slot_count),
            terms: Terms::new(),
            attributes: Table::new(size.attributes_count_max, entries::ATTRIBUTE_STAMP),
            names: Table::new(size.name_count_max, entries::NAME_STAMP),
            directories: Table::new(size.directory_count_max, entries::DIRECTORY_SINCE),
        }
    }

    fn name_hash(&self, dir: InodeNo, name: &[u8]) -> NameHash {
        let hash = |key: u64| {
            let mut hasher = FoldHasher::with_seed(key, &self.name_seeds);
            hasher.write_u64(dir.0);
            hasher.write(name);
            hasher.finish()
        };
        let [place, check] = self.name_keys.map(hash);
        NameHash { place, check }
    }

    fn inode_hash(&self, inode: InodeNo) -> u64 {
        self.inode_seed.hash_one(inode)
    }

    /// A recall: nothing is answered from this key any more. To be called before the recall is
    /// acknowledged.
    pub fn recall(&self, key: &RecalledKey) {
        match key {
            RecalledKey::Attributes(inode) => {
                let hash = self.inode_hash(*inode);
                self.attribute_slots.outdate(&self.clock, hash);
                if self.attribute_slots.change_count(hash) > 0 {
                    self.guards.lose(); // Another client may change a name in this directory.
                }
                if self.rules.hold(Rule::KnownNames) {
                    self.hold_slots.outdate(&self.clock, hash);
                }
            }
            RecalledKey::Name(dir, name) => {
                let hash = self.name_hash(*dir, name);
                self.name_slots.outdate(&self.clock, hash.place);
                if self.name_slots.change_count(hash.place) > 0 {
                    self.guards.lose();
                }
            }
            RecalledKey::Contents(_) | RecalledKey::Pages(_) | RecalledKey::Writing(_) => {}
            RecalledKey::All => self.clear(),
        }
    }

    /// The term of a lane's leases, from that lane: before it learns from answers of that term.
    pub fn set_term(&self, lane: LaneId, term: Term) {
        self.terms.set(lane, term);
    }

    /// When the cache was last asked, or a call was made: about a second ago at the latest.
    #[must_use]
    pub fn used_at(&self) -> Mono {
        self.terms.used_at()
    }

    /// Nothing is answered from what was learned so far.
    pub fn clear(&self) {
        self.floor.raise(&self.clock);
        self.guards.lose();
    }

    /// How much is cached.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        CacheCounts {
            name_count: self.names.count(),
            attributes_count: self.attributes.count(),
            directory_count: self.directories.count(),
        }
    }

    /// Whether a name may be one of a directory, for all that is cached.
    #[must_use]
    pub fn may_be_directory(&self, now: Mono, dir: InodeNo, name: &[u8]) -> bool {
        let found = Name::new(name).ok().and_then(|name| self.found(now, dir, name));
        match found.map(|found| found.value) {
            Some(Some(inode)) => self
                .attributes(now, inode)
                .is_none_or(|found| found.value.kind == wire::FileKind::Directory),
            Some(None) => false,
            None => true,
        }
    }
}
