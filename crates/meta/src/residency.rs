//! Which inodes and entries are in memory under a memory limit ([`Shard::bound`]). The rows have
//! the rest, and the lane fetches it when an operation needs it.
//!
//! A unit is a file's or symbolic link's inode with its parts, or one entry of a directory; the
//! absence of either is a unit too. Directories' inodes and orphans always stay in memory, so when
//! as many entries are in memory as a directory's row counts, all are. Invariants: a change of a
//! unit found it in memory, or known to be absent; a unit is evicted only when the rows have its
//! last change, and had it when every read in flight began. So a read never returns state newer
//! than memory, and memory takes precedence over it.
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
mod unit;

pub(crate) use unit::LISTED_COUNT_MAX;
pub use unit::Unit;

use crate::shard::Shard;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use fetch::ListingWindow;
use wire::{InodeNo, Transno};

/// The state of a unit in memory.
#[derive(Clone, Copy, Debug)]
struct UnitState {
    /// When the rows include this transaction, they have all changes of the unit.
    stamp: Transno,
    bytes: usize,
    /// Used since the last eviction scan.
    used: bool,
}

/// The memory accounting of a shard with a limit.
#[derive(Debug)]
pub(crate) struct Residency {
    bytes_max: usize,
    bytes: usize,
    /// Number of inodes, in memory or not.
    inode_count: u64,
    /// No inode from this count on is in the rows only.
    on_disk_below: u64,
    checkpointed: Transno,
    /// Changes of older transactions get this stamp: they are recorded before it.
    floor: Transno,
    /// Units in memory, and those known to be absent.
    units: BTreeMap<Unit, UnitState>,
    /// The position of the eviction scan.
    hand: Option<Unit>,
    pins: BTreeMap<Unit, usize>,
    /// Reads in flight, and the transaction that the rows had for certain when each began.
    in_flight: BTreeMap<Unit, Transno>,
    /// Fetched listings that are pinned, by directory and cookie.
    windows: BTreeMap<(InodeNo, u64), ListingWindow>,
    needed: Vec<Unit>,
    missing: Vec<Unit>,
}

impl Residency {
    const fn new(bytes_max: usize, inode_count: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            inode_count,
            on_disk_below: 0,
            checkpointed: Transno(0),
            floor: Transno(0),
            units: BTreeMap::new(),
            hand: None,
            pins: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            windows: BTreeMap::new(),
            needed: Vec::new(),
            missing: Vec::new(),
        }
    }

    fn put(&mut self, unit: Unit, new: UnitState) {
        let known = self.units.get(&unit);
        let stamp = known.map_or(new.stamp, |known| known.stamp.max(new.stamp));
        self.bytes = self.bytes - known.map_or(0, |known| known.bytes) + new.bytes;
        self.units.insert(unit, UnitState { stamp, ..new });
    }

    fn take(&mut self, unit: &Unit) {
        if let Some(known) = self.units.remove(unit) {
            self.bytes -= known.bytes;
        }
    }

    /// The next unit of the eviction scan; `None` behind the last.
    fn next(&mut self) -> Option<(Unit, UnitState)> {
        let behind = self.hand.take().map_or(Bound::Unbounded, Bound::Excluded);
        let (unit, state) = self.units.range_mut((behind, Bound::Unbounded)).next()?;
        self.hand = Some(unit.clone());
        let before = *state;
        state.used = false;
        Some((unit.clone(), before))
    }
}

impl Shard {
    /// Limits the memory for names to about this many bytes; called before the first row is loaded.
    /// Without it all names are in memory.
    pub fn bound(&mut self, bytes_max: u64) {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let residency = Residency::new(bytes_max, self.inode_count());
        self.state.residency = Some(Box::new(residency));
    }

    /// Whether the memory for names is limited.
    #[must_use]
    pub const fn has_limit(&self) -> bool {
        self.state.residency.is_some()
    }

    /// Changes the limit of a shard that has one.
    #[cfg(test)]
    pub(crate) fn bound_again(&mut self, bytes_max: u64) {
        if let Some(residency) = &mut self.state.residency {
            residency.bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        }
    }

    /// Approximate bytes of names in memory; `None` without a limit.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let bytes = self.state.residency.as_ref()?.bytes;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Units in memory.
    #[cfg(test)]
    pub(crate) fn resident_count(&self) -> usize {
        self.state.residency.as_ref().map_or(0, |residency| residency.units.len())
    }

    /// Keeps units in memory, once they are there, until they are unpinned as often.
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
