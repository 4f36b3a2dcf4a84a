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
    /// Checksums of ranges, or their bytes.
    Sum {
        sums: u32,
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
    /// Frees what an allocation of the range has taken, in a file that had this size.
    GiveBack {
        ticket: Ticket,
        offset: u64,
        range_bytes: u64,
        size_bytes: u64,
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
        may_make: bool,
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
            Self::Truncate { .. }
            | Self::Allocate { .. }
            | Self::GiveBack { .. }
            | Self::Remove { .. } => (true, true),
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
            | Self::GiveBack { .. }
            | Self::Seek { .. }
            | Self::Sync { .. }
            | Self::Stat { .. }
            | Self::Remove { .. } => false,
        }
    }

    pub(crate) const fn creates(self) -> bool {
        match self {
            Self::Write { .. } | Self::Truncate { .. } | Self::Allocate { .. } => true,
            Self::Stat { may_make, .. } => may_make,
            Self::Read { .. }
            | Self::Part { .. }
            | Self::Sum { .. }
            | Self::GiveBack { .. }
            | Self::Seek { .. }
            | Self::Sync { .. }
            | Self::Remove { .. } => false,
        }
    }
}
