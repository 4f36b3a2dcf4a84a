//! Operations queued at an object.

use crate::allocate::{Allocating, Seeking};
use crate::list::{ReadingList, WritingList};
use crate::{LostWrite, Token};
use disk::ContentsChange;
use interface::Bulk;
use wire::{ClientUuid, InodeNo};

/// A queued operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum QueuedOp {
    /// A read. `compared`: its blocks were just verified.
    Read {
        token: Token,
        object_offset: u64,
        read_bytes: u32,
        client: ClientUuid,
        accesses: bool,
        compared: bool,
    },
    /// A list read.
    ReadList(ReadingList),
    /// A glimpse.
    Glimpse(Glimpsing),
    /// A write.
    Write { token: Token, object_offset: u64, bulk: Option<Bulk>, client: ClientUuid },
    /// A list write.
    WriteList(WritingList),
    /// An append.
    Append { token: Token, bulk: Option<Bulk>, client: ClientUuid },
    /// A truncation.
    Truncate { token: Token, size_bytes: u64, client: ClientUuid },
    /// An allocation.
    Allocate(Allocating),
    /// A seek.
    Seek(Seeking),
    /// The replay of a lost write, with its position among the records.
    Replay { lost: LostWrite, place_no: u64 },
    /// The removal of the object.
    Remove,
}

impl QueuedOp {
    /// Whether it changes the object.
    pub(crate) const fn is_change(&self) -> bool {
        match self {
            Self::Read { .. } | Self::ReadList(_) | Self::Glimpse(_) | Self::Seek(_) => false,
            Self::Write { .. }
            | Self::WriteList(_)
            | Self::Append { .. }
            | Self::Truncate { .. }
            | Self::Allocate(_)
            | Self::Replay { .. }
            | Self::Remove => true,
        }
    }
}

/// A glimpse request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Glimpsing {
    pub(crate) token: Token,
    /// Reply when all changes in the contents are durable.
    pub(crate) durable: bool,
    pub(crate) client: ClientUuid,
}

/// Number of bytes of an optional bulk.
pub(crate) fn bulk_bytes(bulk: Option<Bulk>) -> u32 {
    bulk.map_or(0, |bulk| bulk.bulk_bytes)
}

/// The change of a write.
pub(crate) fn write_change(
    inode: InodeNo,
    object_offset: u64,
    bulk: Option<Bulk>,
    write_time_ns: u64,
) -> ContentsChange {
    let crc32c = bulk.map_or(Some(0), |bulk| bulk.crc32c);
    let Some(crc32c) = crc32c else { panic!("the bulk of a request was checked") };
    ContentsChange::Write {
        inode,
        object_offset,
        write_bytes: bulk_bytes(bulk),
        crc32c,
        write_time_ns,
    }
}
