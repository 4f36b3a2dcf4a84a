//! Which inodes and entries are in memory when not all of them may be ([`Shard::bound`]). The rest
//! lies in the cold store, and the lane brings it when an operation needs it.
//!
//! A unit is a file's or symbolic link's inode with all that hangs on it, or one entry of a
//! directory; that there is none is known of a unit in the same way. Directories' inodes and orphans
//! stay in memory always, so a directory tells how many entries it has: when as many are here, all
//! are. Invariants: what changes a unit found it in memory, or knew that there is none; a unit leaves
//! memory only when the cold store has its last change, and had it when any read began that is still
//! out. So what is read is older than nothing but what is in memory, and is laid under that.
//!
//! ```text
//! needs ─▶ missing ─▶ ask, fetch ─▶ in memory ─ changed ─▶ waits for `checkpointed`
//!             ▲                         │                        │
//!             └───────── shrink ◀───────┴────────────────────────┘
//! ```

mod account;
mod evict;
mod fetch;
mod need;

use crate::shard::Shard;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use disk::rows::Range;
use fetch::Window;
use wire::{InodeNo, Name, ShardId, Transno};

/// Most entries of a directory that are brought, or shown with their attributes, at once: those
/// behind a place that a listing goes on from.
pub(crate) const LISTED_COUNT_MAX: u16 = 128;
/// More than an inode can have parts.
const PART_COUNT_MAX: u32 = 1 << 16;

/// What is brought at once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// An inode that is no directory.
    Inode(InodeNo),
    /// The entry of a directory that has this name.
    Entry(InodeNo, Box<[u8]>),
    /// The next entries of a directory behind a place. They are kept for those who need them
    /// ([`Shard::pin`]) and tell what lies between them; each is also brought for itself.
    Listing(InodeNo, u64),
}

impl Unit {
    pub(crate) fn entry(dir: InodeNo, name: &[u8]) -> Self {
        Self::Entry(dir, name.into())
    }

    /// Its rows in the cold store; at most [`Unit::row_count_max`] of them.
    #[must_use]
    pub fn range(&self) -> Range {
        match self {
            Self::Inode(inode) => Range::inode(*inode),
            #[expect(clippy::expect_used, reason = "it was made from one")]
            Self::Entry(dir, name) => Range::dirent(*dir, Name::new(name).expect("a name")),
            Self::Listing(dir, cookie) => Range::listing(*dir, *cookie),
        }
    }

    /// How many rows are wanted.
    #[must_use]
    pub fn row_count_max(&self) -> u32 {
        match self {
            Self::Inode(_) => PART_COUNT_MAX,
            Self::Entry(..) => 1,
            Self::Listing(..) => u32::from(LISTED_COUNT_MAX),
        }
    }

    /// Which shard has it.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.number().shard()
    }

    const fn number(&self) -> InodeNo {
        let (Self::Inode(inode) | Self::Entry(inode, _) | Self::Listing(inode, _)) = self;
        *inode
    }
}

/// What is known of a unit in memory.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// When the cold store has this transaction, it has all that changed.
    stamp: Transno,
    bytes: usize,
    /// Since it was last looked at for eviction.
    used: bool,
}

/// What a bounded shard keeps account of.
#[derive(Debug)]
pub(crate) struct Residency {
    bytes_max: usize,
    bytes: usize,
    /// All there are, in memory or not.
    inode_count: u64,
    /// No inode from this count on is in the cold store alone.
    cold_below: u64,
    checkpointed: Transno,
    /// Changes of older transactions are stamped with this one: they are recorded before it.
    floor: Transno,
    /// Inodes and entries in memory, and those that are known not to exist.
    marks: BTreeMap<Unit, Mark>,
    /// Where the search for what can go stands.
    hand: Option<Unit>,
    pins: BTreeMap<Unit, usize>,
    /// What is being read, and what the cold store had for certain when that began.
    asked: BTreeMap<Unit, Transno>,
    /// What was brought of listings that somebody needs, by directory and place.
    windows: BTreeMap<(InodeNo, u64), Window>,
    needed: Vec<Unit>,
    missing: Vec<Unit>,
}

impl Residency {
    const fn new(bytes_max: usize, inode_count: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            inode_count,
            cold_below: 0,
            checkpointed: Transno(0),
            floor: Transno(0),
            marks: BTreeMap::new(),
            hand: None,
            pins: BTreeMap::new(),
            asked: BTreeMap::new(),
            windows: BTreeMap::new(),
            needed: Vec::new(),
            missing: Vec::new(),
        }
    }

    fn put(&mut self, unit: Unit, new: Mark) {
        let known = self.marks.get(&unit);
        let stamp = known.map_or(new.stamp, |known| known.stamp.max(new.stamp));
        self.bytes = self.bytes - known.map_or(0, |known| known.bytes) + new.bytes;
        self.marks.insert(unit, Mark { stamp, ..new });
    }

    fn take(&mut self, unit: &Unit) {
        if let Some(known) = self.marks.remove(unit) {
            self.bytes -= known.bytes;
        }
    }

    /// The next unit that may be looked at, all in turn; `None` behind the last.
    fn next(&mut self) -> Option<(Unit, Mark)> {
        let behind = self.hand.take().map_or(Bound::Unbounded, Bound::Excluded);
        let (unit, mark) = self.marks.range_mut((behind, Bound::Unbounded)).next()?;
        self.hand = Some(unit.clone());
        let before = *mark;
        mark.used = false;
        Some((unit.clone(), before))
    }
}

impl Shard {
    /// Keeps about this many bytes of names in memory at most, from before the first row is loaded.
    /// Otherwise all of them.
    pub fn bound(&mut self, bytes_max: u64) {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let residency = Residency::new(bytes_max, self.inode_count());
        self.state.residency = Some(Box::new(residency));
    }

    /// Whether only so many bytes of names are kept in memory.
    #[must_use]
    pub const fn has_limit(&self) -> bool {
        self.state.residency.is_some()
    }

    /// PrivilegedBits another limit to a shard that has one.
    #[cfg(test)]
    pub(crate) fn bound_again(&mut self, bytes_max: u64) {
        if let Some(residency) = &mut self.state.residency {
            residency.bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        }
    }

    /// Bytes of names in memory, about; `None` for a shard that is not bounded.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let bytes = self.state.residency.as_ref()?.bytes;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Units in memory.
    #[cfg(test)]
    pub(crate) fn resident_count(&self) -> usize {
        self.state.residency.as_ref().map_or(0, |residency| residency.marks.len())
    }

    /// These units stay in memory, once they are there, until they are unpinned as often.
    pub fn pin(&mut self, units: &[Unit]) {
        let Some(residency) = &mut self.state.residency else { return };
        for unit in units {
            *residency.pins.entry(unit.clone()).or_default() += 1;
        }
    }

    /// See [`Shard::pin`].
    pub fn unpin(&mut self, units: &[Unit]) {
        let Some(residency) = &mut self.state.residency else { return };
        for unit in units {
            let Some(count) = residency.pins.get_mut(unit) else { continue };
            *count -= 1;
            if *count == 0 {
                residency.pins.remove(unit);
                residency.close_window(unit);
            }
        }
    }
}
