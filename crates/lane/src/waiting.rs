//! Requests that wait for the runtime or the data shards, and the log space reserved for their
//! records.

use crate::outbox::RequestHeader;
use hashbrown::HashMap;
use interface::{ConnId, ContentsMac, Seed};
use wire::{Op, Retry};

/// A request that waits for an outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) conn: ConnId,
    pub(crate) header: RequestHeader,
    /// The reply waits until the change is durable.
    pub(crate) synced: bool,
    /// The size of its frame.
    pub(crate) frame_bytes: usize,
    /// The MAC of the contents that came with it.
    pub(crate) contents: ContentsMac,
}

impl Waiting {
    /// Bytes of a data shard's record, at most, unless it names many ranges.
    const RECORD_BYTES: u64 = 512;

    /// Bytes of the request's record, at most.
    fn record_bytes(&self) -> u64 {
        let places_bytes = if self.header.op == Op::WriteList { self.frame_bytes } else { 0 };
        Self::RECORD_BYTES.saturating_add(u64::try_from(places_bytes).unwrap_or(u64::MAX))
    }
}

/// All waiting requests of a lane, by token.
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

    /// The number of waiting changes.
    pub(crate) fn change_count(&self) -> usize {
        let changes = |waiting: &&Waiting| waiting.header.op.row().retry == Retry::Once;
        self.waiting.values().filter(changes).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes of all their records, at most.
    pub(crate) const fn record_bytes(&self) -> u64 {
        self.record_bytes
    }
}
