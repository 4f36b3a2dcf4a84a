//! Actions in flight for objects, with what their ends need.

use crate::Token;
use crate::object::Effect;
use crate::request::{Glimpsing, QueuedOp};
use alloc::vec::Vec;
use disk::BlockSum;
use interface::{ObjectStat, SumRange};
use wire::{InodeNo, Transno};

/// An action in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum InFlight {
    /// A read. `cached`: the request to begin again if it misses the page cache.
    Read {
        inode: InodeNo,
        token: Token,
        shown: Transno,
        object_offset: u64,
        read_bytes: u32,
        cached: Option<CachedRead>,
    },
    /// A list read.
    ReadList {
        inode: InodeNo,
        token: Token,
        shown: Transno,
        size_bytes: u64,
        list_bytes: u32,
        cached: Option<CachedRead>,
    },
    /// A piece of a list write.
    WritePiece { list_no: u64 },
    /// The query of the size, before anything else can begin.
    Stat { inode: InodeNo },
    /// The query of the allocated bytes for a glimpse, at this change number of the object.
    Glimpse { inode: InodeNo, glimpsing: Glimpsing, change_no: u64 },
    /// A write or append.
    Write { inode: InodeNo, effect: Effect, end: u64, exclusive: bool },
    /// A write that has its number already.
    LogFirst { inode: InodeNo },
    /// A truncation or allocation, and the size afterwards.
    Reshape { inode: InodeNo, effect: Effect, size_bytes: u64 },
    /// A seek in one of its objects.
    Seek { inode: InodeNo, token: Token, shown: Transno, stripe_index: u32, hole: bool },
    /// The cut of bytes that were never acknowledged, after a start.
    Trim { inode: InodeNo, stat: ObjectStat },
    /// The sync of that cut.
    TrimSync { inode: InodeNo, stat: ObjectStat },
    /// A sync of everything written so far.
    Sync { inode: InodeNo },
    /// The load of ranges of an object, for the log.
    Load { inode: InodeNo, ranges: Vec<SumRange> },
    /// The removal of the object.
    Remove { inode: InodeNo },
    /// The verification of blocks before a read or a change.
    Verify(Verifying),
    /// The computation of checksums to be recorded.
    Close(Closing),
    /// A step of an operation on several objects.
    Step { fan_out_no: u64 },
}

/// A read from the page cache only, with the request to begin again if it misses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CachedRead {
    pub(crate) pending: QueuedOp,
    /// The generation of the checksums when its blocks were verified.
    pub(crate) generation: u16,
}

/// Blocks being verified for a read or a partial overwrite, with the expected checksums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verifying {
    pub(crate) inode: InodeNo,
    /// The read; a change waits at the front of its object's queue.
    pub(crate) read: Option<QueuedOp>,
    pub(crate) blocks: Vec<(u64, BlockSum)>,
}

/// A region whose touched blocks are being summed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Closing {
    pub(crate) inode: InodeNo,
    pub(crate) region: u64,
    pub(crate) stamp: u64,
    /// The blocks with their lengths.
    pub(crate) blocks: Vec<(u64, u32)>,
    /// Blocks among them with an unverified checksum of their first bytes.
    pub(crate) checks: Vec<(u64, BlockSum)>,
}
