//! Requests that wait for the world, and the room in the log that is promised to what they will
//! record.

use crate::outbox::RequestHeader;
use data::Seed;
use hashbrown::HashMap;
use interface::{ConnId, ContentsMac};
use wire::{Op, Retry};

/// A request that waits for the world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) conn: ConnId,
    pub(crate) header: RequestHeader,
    /// The reply shall wait until it is durable.
    pub(crate) synced: bool,
    /// Of its frame.
    pub(crate) frame_bytes: usize,
    /// Of the contents that came with it.
    pub(crate) contents: ContentsMac,
}

impl Waiting {
    /// Bytes of a record that a data shard will bring, at most, unless it names many places.
    const RECORD_BYTES: u64 = 512;

    /// Bytes of the record that it will bring, at most.
    fn record_bytes(&self) -> u64 {
        let places_bytes = if self.header.op == Op::WriteList { self.frame_bytes } else { 0 };
        Self::RECORD_BYTES.saturating_add(u64::try_from(places_bytes).unwrap_or(u64::MAX))
    }
}

/// All of a lane, by number.
#[derive(Debug)]
pub(crate) struct Pending {
    waiting: HashMap<u64, Waiting, Seed>,
    record_bytes: u64,
}

impl Pending {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { waiting: HashMap::with_hasher(seed), record_bytes: 0 }
    }

    pub(crate) fn insert(&mut self, number: u64, waiting: Waiting) {
        self.record_bytes += waiting.record_bytes();
        let known = self.waiting.insert(number, waiting);
        assert!(known.is_none(), "numbers are given once");
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        self.record_bytes -= waiting.record_bytes();
        Some(waiting)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Waiting> {
        self.waiting.get(&number)
    }

    /// How many of them change something.
    pub(crate) fn change_count(&self) -> usize {
        let changes = |waiting: &&Waiting| waiting.header.op.row().retry == Retry::Once;
        self.waiting.values().filter(changes).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes of all records that they will bring, at most.
    pub(crate) const fn record_bytes(&self) -> u64 {
        self.record_bytes
    }
}
