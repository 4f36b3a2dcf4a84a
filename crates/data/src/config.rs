//! The configuration of a lane's data shards.

use wire::{LaneId, Map, Rules, ServerId};

/// The configuration of the shards.
#[derive(Clone, Debug)]
pub struct DataConfig {
    /// The placement of shards and inodes.
    pub map: Map,
    /// The lane of these shards.
    pub lane: LaneId,
    /// Of which server.
    pub server: ServerId,
    /// Most objects in memory, apart from those in use.
    pub object_count_max: usize,
    /// Or'ed into every ticket, so that the lane recognizes them; its lower 48 bits are zero.
    pub ticket_tag: u64,
    /// Key of the maps.
    pub seed: u64,
    /// Written bytes are synced after this many milliseconds at the latest.
    pub sync_ms: u64,
    /// Or when an object has this many unsynced bytes.
    pub unsynced_bytes_max: u64,
    /// When a request waits for it, an object with at most this many unsynced bytes, whole pages, is
    /// not synced: the log takes the bytes. 0: none.
    pub logged_bytes_max: u64,
    /// Bytes of a page of an object, of which the log takes all or nothing.
    pub page_bytes: u64,
    /// Bytes of a block that has a checksum: [`disk::BLOCK_BYTES`], or fewer in tests.
    pub block_bytes: u32,
    /// Touched blocks get their checksums when their object had no writes for this long.
    pub quiet_ms: u64,
    /// Rules of the protocol that a test may disable.
    pub rules: Rules,
}

/// Which touched blocks get their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SumRecording {
    /// Those of objects that are quiet.
    Quiet,
    /// None now: the log has no space for them.
    Later,
    /// All of them: the lane is about to end.
    All,
    /// None any more: the lane is about to end, and the log has no space.
    GiveUp,
}
