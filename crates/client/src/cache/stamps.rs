//! Stamps: the order of what the lanes of a client learn and of what outdates it.
//!
//! A lane takes the current stamp before it sends a request; what it caches of the answer has that
//! stamp. Whoever outdates a key (a recall, a change of this client) writes a new stamp into the
//! key's slot. A cached entry is usable while its slot has no later stamp, and no change of this
//! client is under way there. Keys share slots by their hashes: that only outdates more than needed.
//!
//! Invariant: a slot's stamp is later than that of every request that was sent before the slot was
//! outdated, and not later than that of any request that was sent after it.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

/// A point in the order; 0 is before all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Stamp(pub(super) u64);

/// The clock of the stamps.
#[derive(Debug)]
pub(super) struct StampClock {
    last: AtomicU64,
}

impl StampClock {
    pub(super) const fn new() -> Self {
        Self { last: AtomicU64::new(1) }
    }

    /// The current stamp.
    pub(super) fn now(&self) -> Stamp {
        Stamp(self.last.load(Ordering::SeqCst))
    }

    /// A new stamp.
    pub(super) fn next(&self) -> Stamp {
        Stamp(self.last.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

/// When all keys were last outdated at once.
#[derive(Debug)]
pub(super) struct Floor {
    stamp: AtomicU64,
}

impl Floor {
    pub(super) const fn new() -> Self {
        Self { stamp: AtomicU64::new(0) }
    }

    pub(super) fn get(&self) -> Stamp {
        Stamp(self.stamp.load(Ordering::SeqCst))
    }

    /// Outdates everything.
    pub(super) fn raise(&self, clock: &StampClock) {
        loop {
            let stamp = clock.next();
            self.stamp.fetch_max(stamp.0, Ordering::SeqCst);
            // Another lane may have taken a later stamp, and looked at the floor before.
            if clock.now() == stamp {
                return;
            }
        }
    }
}

/// When the keys of a kind were last outdated, by their hashes, and how many changes of this client
/// are under way that will.
///
/// ```text
/// bits 63 .. 48 changes under way      bits 47 .. 0 stamp
/// ```
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[AtomicU64]>,
}

/// A slot was outdated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outdated {
    pub(super) before: Stamp,
    pub(super) now: Stamp,
}

const ONE_CHANGE: u64 = 1 << 48;
const STAMP_MASK: u64 = ONE_CHANGE - 1;

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        Self { slots: (0..count.max(1)).map(|_| AtomicU64::new(0)).collect() }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[usize::try_from(hash).unwrap_or(0) % self.slots.len()]
    }

    /// When a key was last outdated; while it is being changed, later than everything.
    pub(super) fn get(&self, hash: u64) -> Stamp {
        let found = self.slot(hash).load(Ordering::SeqCst);
        if found < ONE_CHANGE { Stamp(found) } else { Stamp(u64::MAX) }
    }

    /// When a key was last outdated, whatever is changing it.
    pub(super) fn last(&self, hash: u64) -> Stamp {
        Stamp(self.slot(hash).load(Ordering::SeqCst) & STAMP_MASK)
    }

    /// How many changes of a key are under way.
    pub(super) fn change_count(&self, hash: u64) -> u64 {
        self.slot(hash).load(Ordering::SeqCst) / ONE_CHANGE
    }

    /// A change of a key begins.
    pub(super) fn begin(&self, hash: u64) {
        self.slot(hash).fetch_add(ONE_CHANGE, Ordering::SeqCst);
    }

    /// A change of a key has ended that has changed nothing.
    pub(super) fn cancel(&self, hash: u64) {
        self.slot(hash).fetch_sub(ONE_CHANGE, Ordering::SeqCst);
    }

    /// A change of a key has ended: outdates it.
    pub(super) fn end(&self, clock: &StampClock, hash: u64) -> Outdated {
        self.replace(clock, hash, ONE_CHANGE)
    }

    /// Outdates a key.
    pub(super) fn outdate(&self, clock: &StampClock, hash: u64) -> Outdated {
        self.replace(clock, hash, 0)
    }

    fn replace(&self, clock: &StampClock, hash: u64, ended: u64) -> Outdated {
        let slot = self.slot(hash);
        let mut found = slot.load(Ordering::SeqCst);
        loop {
            let (now, before) = (clock.next(), Stamp(found & STAMP_MASK));
            // A lane that has written a later stamp may keep what it has just learned, and does not
            // know of this change.
            if before < now {
                let changing = (found & !STAMP_MASK).saturating_sub(ended);
                let (new, order) = (changing | now.0, Ordering::SeqCst);
                match slot.compare_exchange(found, new, order, order) {
                    Ok(_) => return Outdated { before, now },
                    Err(other) => found = other,
                }
            }
        }
    }

    /// Writes this stamp, unless the slot has a later one.
    pub(super) fn raise(&self, hash: u64, stamp: Stamp) {
        self.slot(hash).fetch_max(stamp.0, Ordering::SeqCst);
    }
}

/// Numbers of keys, by their hashes.
#[derive(Debug)]
pub(super) struct Numbers {
    numbers: Box<[AtomicU64]>,
}

impl Numbers {
    pub(super) fn new(count: usize) -> Self {
        Self { numbers: (0..count.max(1)).map(|_| AtomicU64::new(0)).collect() }
    }

    fn number(&self, hash: u64) -> &AtomicU64 {
        &self.numbers[usize::try_from(hash).unwrap_or(0) % self.numbers.len()]
    }

    pub(super) fn get(&self, hash: u64) -> u64 {
        self.number(hash).load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, hash: u64, number: u64) {
        self.number(hash).store(number, Ordering::Relaxed);
    }
}
