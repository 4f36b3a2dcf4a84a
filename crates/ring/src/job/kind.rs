//! The operations on an object, and which may run concurrently.

use crate::lists::Part;
use interface::{Bulk, Ticket};

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobKind {
    /// `only_cached`: fail if the page cache lacks any of it.
    Read {
        ticket: Ticket,
        offset: u64,
        read_bytes: u32,
        only_cached: bool,
    },
    /// A piece of a list read.
    Part {
        part: Part,
        offset: u64,
        read_bytes: u32,
        only_cached: bool,
    },
    Write {
        ticket: Ticket,
        offset: u64,
        bulk: Bulk,
        /// Block size of the checksums of the written data; 0: none.
        block_bytes: u32,
    },
    /// Checksums of ranges, all of which end before this.
    Sum {
        sums: u32,
        end: u64,
    },
    Truncate {
        ticket: Ticket,
        size_bytes: u64,
    },
    Allocate {
        ticket: Ticket,
        offset: u64,
        range_bytes: u64,
        mode: i32,
    },
    Seek {
        ticket: Ticket,
        offset: u64,
        hole: bool,
    },
    Sync {
        ticket: Ticket,
    },
    Stat {
        ticket: Ticket,
    },
    Remove {
        ticket: Ticket,
    },
}

impl JobKind {
    /// Whether it runs alone, and whether it starts only after all earlier jobs are done.
    pub(crate) const fn order(self) -> (bool, bool) {
        match self {
            Self::Read { .. }
            | Self::Part { .. }
            | Self::Sum { .. }
            | Self::Write { .. }
            | Self::Stat { .. }
            | Self::Seek { .. } => (false, false),
            Self::Sync { .. } => (false, true),
            Self::Truncate { .. } | Self::Allocate { .. } | Self::Remove { .. } => (true, true),
        }
    }

    /// Whether it reads only the page cache first.
    pub(crate) const fn asks_cache(self) -> bool {
        match self {
            Self::Read { only_cached, .. } | Self::Part { only_cached, .. } => only_cached,
            Self::Sum { .. } => true,
            Self::Write { .. }
            | Self::Truncate { .. }
            | Self::Allocate { .. }
            | Self::Seek { .. }
            | Self::Sync { .. }
            | Self::Stat { .. }
            | Self::Remove { .. } => false,
        }
    }

    /// End of the touched range; 0 for operations on the whole object.
    pub(crate) const fn end(self) -> u64 {
        match self {
            Self::Read { offset, read_bytes, .. } | Self::Part { offset, read_bytes, .. } => {
                offset.saturating_add(read_bytes as u64)
            }
            Self::Write { offset, bulk, .. } => offset.saturating_add(bulk.bulk_bytes as u64),
            Self::Sum { end, .. } => end,
            Self::Truncate { size_bytes, .. } => size_bytes,
            Self::Allocate { offset, range_bytes, .. } => offset.saturating_add(range_bytes),
            Self::Seek { .. } | Self::Stat { .. } | Self::Sync { .. } | Self::Remove { .. } => 0,
        }
    }

    pub(crate) const fn creates(self) -> bool {
        match self {
            Self::Write { .. } | Self::Truncate { .. } | Self::Allocate { .. } => true,
            Self::Read { .. }
            | Self::Part { .. }
            | Self::Sum { .. }
            | Self::Stat { .. }
            | Self::Seek { .. }
            | Self::Sync { .. }
            | Self::Remove { .. } => false,
        }
    }
}
