//! The ranges of an object whose changes are not durable yet, and their clients, for dependencies.

use alloc::vec::Vec;
use wire::{ClientUuid, Transno};

/// A changed range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UnstableRange {
    client: ClientUuid,
    transno: Transno,
    from: u64,
    until: u64,
    /// It extended the object, or may have.
    extends: bool,
}

/// The range that a change or read accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ByteAccess {
    pub(crate) client: ClientUuid,
    pub(crate) from: u64,
    /// Exclusive.
    pub(crate) until: u64,
    pub(crate) extends: bool,
    /// It depends on the size: an append.
    pub(crate) at_end: bool,
}

/// The last transactions that a change or read depends on, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Dependencies {
    /// Of other clients.
    pub foreign: Transno,
    /// Of the same client.
    pub own: Transno,
}

/// The unstable ranges of one object.
#[derive(Debug, Default)]
pub(crate) struct UnstableRanges {
    ranges: Vec<UnstableRange>,
    /// Changes up to here are durable and not in the ranges.
    durable: Transno,
}

impl UnstableRanges {
    /// Most separate ranges.
    const COUNT_MAX: usize = 1024;
    /// Number of last ranges searched for an adjacent one.
    const JOIN_COUNT: usize = 16;

    pub(crate) const fn new() -> Self {
        Self { ranges: Vec::new(), durable: Transno(0) }
    }

    /// Drops ranges that are durable.
    pub(crate) fn settle(&mut self, durable: Transno) {
        if durable > self.durable {
            self.durable = durable;
            self.ranges.retain(|range| range.transno > durable);
        }
    }

    /// The dependencies of an access to a range.
    pub(crate) fn depends(&self, touch: &ByteAccess) -> Dependencies {
        let mut depends = Dependencies::default();
        for range in &self.ranges {
            let overlaps = range.from < touch.until && touch.from < range.until;
            if overlaps || (touch.at_end && range.extends) {
                let own = range.client == touch.client;
                let last = if own { &mut depends.own } else { &mut depends.foreign };
                *last = range.transno.max(*last);
            }
        }
        depends
    }

    /// The dependencies of an access to several ranges, in rising order and disjoint.
    pub(crate) fn depends_of(&self, client: ClientUuid, places: &[(u64, u64)]) -> Dependencies {
        let mut depends = Dependencies::default();
        for range in &self.ranges {
            let next = places.partition_point(|(_, until)| *until <= range.from);
            if places.get(next).is_some_and(|(from, _)| *from < range.until) {
                let own = range.client == client;
                let last = if own { &mut depends.own } else { &mut depends.foreign };
                *last = range.transno.max(*last);
            }
        }
        depends
    }

    /// Adds a change. Adjacent changes of the same client are joined.
    pub(crate) fn add(&mut self, touch: &ByteAccess, transno: Transno) {
        let ByteAccess { client, from, until, extends, .. } = *touch;
        if transno <= self.durable {
            return;
        }
        let full = self.ranges.len() >= Self::COUNT_MAX;
        let look_count = if full { usize::MAX } else { Self::JOIN_COUNT };
        let joined = self
            .ranges
            .iter_mut()
            .rev()
            .take(look_count)
            .find(|range| range.client == client && (range.until == from || full));
        match joined {
            Some(range) => {
                range.from = range.from.min(from);
                range.until = range.until.max(until);
                range.extends |= extends;
                range.transno = range.transno.max(transno);
            }
            None => self.ranges.push(UnstableRange { client, transno, from, until, extends }),
        }
    }

    /// Adds a change of several ranges, each of them `like` this; returns their total length.
    pub(crate) fn add_places(
        &mut self,
        like: &ByteAccess,
        places: &[(u64, u64)],
        transno: Transno,
    ) -> u64 {
        let mut place_bytes = 0;
        for &(from, until) in places {
            self.add(&ByteAccess { from, until, ..*like }, transno);
            place_bytes += until - from;
        }
        place_bytes
    }

    /// The last transaction.
    pub(crate) fn last(&self) -> Transno {
        self.ranges.iter().map(|range| range.transno).max().unwrap_or(Transno(0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}
