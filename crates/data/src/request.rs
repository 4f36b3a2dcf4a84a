//! Operations queued at an object, and their arguments.

use crate::{LostWrite, Token};
use disk::ContentsChange;
use interface::{Action, Bulk, Turn};
use wire::{Allocation, ClientUuid, InodeNo, Layout, Pieces};

/// A queued operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum QueuedOp {
    /// A read. `compared`: its blocks were just verified. `kept`: it waits for writes in progress.
    Read {
        token: Token,
        object_offset: u64,
        read_bytes: u32,
        client: ClientUuid,
        accesses: bool,
        compared: bool,
        kept: bool,
    },
    /// A list read.
    ReadList(ReadingList),
    /// A glimpse.
    Glimpse(Glimpsing),
    /// A write.
    Write { token: Token, object_offset: u64, bulk: Option<Bulk>, client: ClientUuid },
    /// A list write.
    WriteList(WritingList),
    /// An append. `at`: it is refused if the file does not end there, as far as this part shows.
    Append { token: Token, bulk: Option<Bulk>, client: ClientUuid, at: Option<u64> },
    /// A truncation.
    Truncate(Truncating),
    /// An allocation.
    Allocate(Allocating),
    /// A seek.
    Seek(Seeking),
    /// The replay of a lost write, with its position among the records.
    Replay { lost: LostWrite, place_no: u64 },
    /// The end of a file's time at one data shard.
    Widen { token: Token, layout: Layout },
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
            | Self::Truncate(_)
            | Self::Allocate(_)
            | Self::Replay { .. }
            | Self::Widen { .. }
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
    /// Look when all changes before it have ended.
    pub(crate) alone: bool,
    pub(crate) client: ClientUuid,
}

/// A list read request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReadingList {
    pub(crate) token: Token,
    pub(crate) client: ClientUuid,
    pub(crate) pieces: Pieces,
    pub(crate) accesses: bool,
    /// Blocks with checksums were just verified.
    pub(crate) compared: bool,
}

/// A list write request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WritingList {
    pub(crate) token: Token,
    pub(crate) client: ClientUuid,
    pub(crate) pieces: Pieces,
    pub(crate) bulk: Option<Bulk>,
}

/// A truncation request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Truncating {
    pub(crate) token: Token,
    pub(crate) client: ClientUuid,
    pub(crate) size_bytes: u64,
    /// What is allocated before this place stays.
    pub(crate) kept_bytes: u64,
    /// The size is that of a file over several data shards; what becomes of this part is decided
    /// when it begins.
    pub(crate) spread: Option<Layout>,
    /// It has cut this part already: what was written there since stays.
    pub(crate) is_cut: bool,
}

/// An allocation request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocating {
    pub(crate) token: Token,
    pub(crate) client: ClientUuid,
    pub(crate) object_offset: u64,
    pub(crate) range_bytes: u64,
    pub(crate) allocation: Allocation,
    pub(crate) keep_size: bool,
}

/// A seek request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seeking {
    pub(crate) token: Token,
    pub(crate) client: ClientUuid,
    pub(crate) object_offset: u64,
    pub(crate) hole: bool,
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

/// The checksum of all bytes of a write.
pub(crate) const fn one_sum(change: &ContentsChange) -> u32 {
    match change {
        ContentsChange::Write { crc32c, .. } | ContentsChange::WriteList { crc32c, .. } => *crc32c,
        ContentsChange::Truncate { .. }
        | ContentsChange::Allocate { .. }
        | ContentsChange::ObjectRemoved { .. }
        | ContentsChange::Sums { .. }
        | ContentsChange::SumsRemoved { .. }
        | ContentsChange::Stripe { .. }
        | ContentsChange::Logged { .. } => 0,
    }
}

/// Releases a buffer.
pub(crate) fn release(turn: &mut Turn<'_>, bulk: Option<Bulk>) {
    if let Some(bulk) = bulk {
        turn.act(Action::Release { buf: bulk.buf });
    }
}
