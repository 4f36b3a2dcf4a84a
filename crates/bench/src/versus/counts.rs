//! How much each row does in a round.

/// Amounts of a round.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Warm calls that the kernel may answer: stats, absent names.
    pub warm_count: u64,
    /// Opens, reads of 4 KiB.
    pub read_count: u64,
    /// Reads of 1 MiB, cached and mapped.
    pub large_read_count: u64,
    /// Bytes of the file of cached reads, a multiple of 1 MiB.
    pub cached_bytes: u64,
    /// Small files: created, removed, seen for the first time.
    pub file_count: u64,
    /// Small files that are written and synced.
    pub sync_count: u64,
    /// Files of the tree that git, find, du and ls walk.
    pub tree_file_count: u64,
    /// Files that tar unpacks.
    pub archive_file_count: u64,
    /// Modules of the crate that cargo builds, and of the wheel that pip installs.
    pub module_count: u64,
    /// Bytes of a stream, a multiple of 1 MiB.
    pub stream_bytes: u64,
    /// Trials with a peer in all rounds together.
    pub trial_count: u64,
}

impl Counts {
    /// For a comparison.
    pub const FULL: Self = Self {
        warm_count: 20_000,
        read_count: 5_000,
        large_read_count: 200,
        cached_bytes: 16 << 20,
        file_count: 1_000,
        sync_count: 200,
        tree_file_count: 5_000,
        archive_file_count: 1_000,
        module_count: 200,
        stream_bytes: 256 << 20,
        trial_count: 10_000,
    };

    /// To try the benchmark.
    pub const QUICK: Self = Self {
        warm_count: 200,
        read_count: 50,
        large_read_count: 10,
        cached_bytes: 1 << 20,
        file_count: 20,
        sync_count: 4,
        tree_file_count: 100,
        archive_file_count: 20,
        module_count: 4,
        stream_bytes: 2 << 20,
        trial_count: 200,
    };
}
