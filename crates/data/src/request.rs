//! Requests as they wait for their turn at an object.

use crate::allocate::{Allocating, Seeking};
use crate::list::{ReadingList, WritingList};
use crate::{Lost, Token};
use disk::ContentsChange;
use interface::Bulk;
use wire::{ClientUuid, FILE_BYTES_MAX, InodeNo};

/// The largest size of a file.
pub(crate) const SIZE_BYTES_MAX: u64 = FILE_BYTES_MAX;

/// What waits at an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pending {
    /// Bytes wanted. `compared`: what has a checksum was just compared with it.
    Read {
        token: Token,
        object_offset: u64,
        read_bytes: u32,
        client: ClientUuid,
        accesses: bool,
        compared: bool,
    },
    /// Bytes of several places wanted.
    ReadList(ReadingList),
    /// Size wanted.
    Glimpse(Glimpsing),
    /// Bytes for a place.
    Write { token: Token, object_offset: u64, bulk: Option<Bulk>, client: ClientUuid },
    /// Bytes for several places.
    WriteList(WritingList),
    /// Bytes for the end.
    Append { token: Token, bulk: Option<Bulk>, client: ClientUuid },
    /// A new size.
    Truncate { token: Token, size_bytes: u64, client: ClientUuid },
    /// Another allocation of a range.
    Allocate(Allocating),
    /// A place wanted.
    Seek(Seeking),
    /// A write that was lost, with its place among the records.
    Replay { lost: Lost, place_no: u64 },
    /// The file is gone.
    Remove,
}

impl Pending {
    /// Whether the object is another one afterwards.
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

/// Who wants a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Glimpsing {
    pub(crate) token: Token,
    /// Told when all that it speaks of is durable.
    pub(crate) durable: bool,
    pub(crate) client: ClientUuid,
}

/// Number of bytes in a bulk that may be missing.
pub(crate) fn bulk_bytes(bulk: Option<Bulk>) -> u32 {
    bulk.map_or(0, |bulk| bulk.bulk_bytes)
}

/// The record of a write.
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
