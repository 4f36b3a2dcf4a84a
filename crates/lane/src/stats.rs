//! Counters of a lane, for whoever asks.

use crate::Lane;
use wire::Stats;

/// What is counted here; the rest is counted where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) request_count: u64,
    pub(crate) change_count: u64,
    pub(crate) batch_count: u64,
    pub(crate) held_count: u64,
    pub(crate) from_slot_count: u64,
    pub(crate) turn_count: u64,
    pub(crate) breach_count: u64,
}

impl Lane {
    /// All counters of this lane.
    #[must_use]
    pub fn counters(&self) -> Stats {
        Stats {
            request_count: self.stats.request_count,
            change_count: self.stats.change_count,
            batch_count: self.stats.batch_count,
            held_count: self.stats.held_count,
            from_slot_count: self.stats.from_slot_count,
            turn_count: self.stats.turn_count,
            read_bytes: self.data.read_bytes(),
            written_bytes: self.data.written_bytes(),
            conn_count: u64::try_from(self.conns.len()).unwrap_or(u64::MAX),
            breach_count: self.stats.breach_count,
            inode_count: self.inode_count(),
        }
    }

    /// Inodes in this lane's metadata shards.
    pub(crate) fn inode_count(&self) -> u64 {
        self.metas.iter().map(meta::Shard::inode_count).sum()
    }
}
