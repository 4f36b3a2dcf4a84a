//! What a mount has written behind, in numbers.

use crate::behind::Behind;
use core::sync::atomic::{AtomicU64, Ordering};

/// What a mount has written behind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BehindCounts {
    /// Files.
    pub held_count: u64,
    /// Bytes under way.
    pub held_bytes: u64,
    /// Writes that the server has executed.
    pub written_count: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Writes that failed.
    pub lost_count: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// Directories in which names are changed behind.
    pub directory_count: u64,
    /// Files that the server has created.
    pub made_count: u64,
    /// Names that the server has removed.
    pub removed_count: u64,
    /// Creates and removals that failed.
    pub lost_name_count: u64,
}

impl Behind {
    /// The counts.
    #[must_use]
    pub fn counts(&self) -> BehindCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BehindCounts {
            held_count: u64::try_from(self.held_count.load(Ordering::Relaxed)).unwrap_or(u64::MAX),
            held_bytes: load(&self.bytes),
            written_count: load(&self.written_count),
            written_bytes: load(&self.written_bytes),
            lost_count: load(&self.lost_count),
            lost_bytes: load(&self.lost_bytes),
            directory_count: u64::try_from(self.directories.count()).unwrap_or(u64::MAX),
            made_count: load(&self.directories.made_count),
            removed_count: load(&self.directories.removed_count),
            lost_name_count: load(&self.directories.lost_count),
        }
    }
}
