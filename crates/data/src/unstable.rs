//! What of an object is not durable yet, and whose it is: whoever builds on it waits for it.

use alloc::vec::Vec;
use wire::{ClientUuid, Transno};

/// A range that was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    client: ClientUuid,
    transno: Transno,
    from: u64,
    until: u64,
    /// It made the object longer, or may have.
    extends: bool,
}

/// What a change touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Touch {
    pub(crate) client: ClientUuid,
    pub(crate) from: u64,
    /// Exclusive.
    pub(crate) until: u64,
    pub(crate) extends: bool,
    /// It depends on the size: an append.
    pub(crate) at_end: bool,
}

/// The last transactions that something depends on, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Depends {
    /// Of other clients.
    pub foreign: Transno,
    /// Of the same client.
    pub own: Transno,
}

/// The ranges of one object.
#[derive(Debug, Default)]
pub(crate) struct Unstable {
    ranges: Vec<Range>,
    /// What is durable up to here is not in them.
    durable: Transno,
}

impl Unstable {
    /// More are told apart no longer.
    const COUNT_MAX: usize = 1024;
    /// So many of the last are looked at for one that goes on.
    const JOIN_COUNT: usize = 16;

    pub(crate) const fn new() -> Self {
        Self { ranges: Vec::new(), durable: Transno(0) }
    }

    /// What is durable up to here is not remembered.
    pub(crate) fn settle(&mut self, durable: Transno) {
        if durable > self.durable {
            self.durable = durable;
            self.ranges.retain(|range| range.transno > durable);
        }
    }

    /// What a change or a reader of a range builds on.
    pub(crate) fn depends(&self, touch: &Touch) -> Depends {
        let mut depends = Depends::default();
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

    /// What somebody builds on who changes or reads several places: in rising order, each by its
    /// first byte and the one behind its last, no two sharing a byte.
    pub(crate) fn depends_of(&self, client: ClientUuid, places: &[(u64, u64)]) -> Depends {
        let mut depends = Depends::default();
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

    /// A change took place. One behind the other of the same client are one.
    pub(crate) fn add(&mut self, touch: &Touch, transno: Transno) {
        let Touch { client, from, until, extends, .. } = *touch;
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
            None => self.ranges.push(Range { client, transno, from, until, extends }),
        }
    }

    /// A change of several places took place, each of them `like` this; how many bytes they have.
    pub(crate) fn add_places(
        &mut self,
        like: &Touch,
        places: &[(u64, u64)],
        transno: Transno,
    ) -> u64 {
        let mut place_bytes = 0;
        for &(from, until) in places {
            self.add(&Touch { from, until, ..*like }, transno);
            place_bytes += until - from;
        }
        place_bytes
    }

    /// The last of all.
    pub(crate) fn last(&self) -> Transno {
        self.ranges.iter().map(|range| range.transno).max().unwrap_or(Transno(0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}
