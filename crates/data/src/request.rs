//! Requests as they wait for their turn at an object: decoded and checked.

use crate::allocate::{Allocating, Seeking};
use crate::list::{ReadingList, WritingList};
use crate::{Ask, Lost, Token, list};
use disk::ContentsChange;
use door::Bulk;
use wire::{Breach, ClientUuid, FILE_BYTES_MAX, Flaw, InodeNo, Map, Op, Revoke, Status, Wire};

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

/// A request that was understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decoded {
    pub(crate) inode: InodeNo,
    pub(crate) pending: Pending,
    /// What it may not leave.
    pub(crate) takes: Revoke,
}

/// Number of bytes in a bulk that may be missing.
pub(crate) fn bulk_bytes(bulk: Option<Bulk>) -> u32 {
    bulk.map_or(0, |bulk| bulk.bulk_bytes)
}

/// Understands a request. Its buffer is still the caller's if this fails.
pub(crate) fn decode(ask: &Ask<'_>, map: &Map) -> Result<Decoded, Flaw> {
    let Ask { token, client, .. } = *ask;
    let mut takes = Revoke::Nothing;
    let (inode, pending) = match ask.op {
        Op::Read => {
            let read = wire::Read::decode_all(ask.body)?;
            if read.file_offset > SIZE_BYTES_MAX {
                return Err(Flaw::Status(Status::Invalid));
            }
            if read.read_bytes > wire::BULK_BYTES_MAX {
                return Err(Flaw::Breach(Breach::TooLong));
            }
            let (object_offset, read_bytes) = (read.file_offset, read.read_bytes);
            let (accesses, compared) = (read.accesses, false);
            let pending =
                Pending::Read { token, object_offset, read_bytes, client, accesses, compared };
            (read.inode, pending)
        }
        Op::Glimpse => {
            let wire::Glimpse { inode } = wire::Glimpse::decode_all(ask.body)?;
            (inode, Pending::Glimpse(Glimpsing { token, durable: false, client }))
        }
        Op::Write => {
            let write = wire::Write::decode_all(ask.body)?;
            takes = write.takes;
            (write.inode, decode_write(&write, ask)?)
        }
        Op::Truncate => {
            let truncate = wire::Truncate::decode_all(ask.body)?;
            if truncate.size_bytes > SIZE_BYTES_MAX {
                return Err(Flaw::Status(Status::TooLarge));
            }
            let size_bytes = truncate.size_bytes;
            (truncate.inode, Pending::Truncate { token, size_bytes, client })
        }
        Op::Allocate => {
            let allocate = wire::Allocate::decode_all(ask.body)?;
            takes = allocate.takes;
            (allocate.inode, Allocating::check(&allocate, ask)?)
        }
        Op::Seek => Seeking::decode(ask)?,
        Op::ReadList => list::decode_read(ask)?,
        Op::WriteList => {
            let (inode, pending, list_takes) = list::decode_write(ask)?;
            takes = list_takes;
            (inode, pending)
        }
        Op::Lookup
        | Op::Getattr
        | Op::Setattr
        | Op::Create
        | Op::Mkdir
        | Op::Symlink
        | Op::Mknod
        | Op::Tmpfile
        | Op::Link
        | Op::Unlink
        | Op::Rmdir
        | Op::Rename
        | Op::Readlink
        | Op::Readdir
        | Op::Find
        | Op::Open
        | Op::Close
        | Op::Reopen
        | Op::Access
        | Op::Getxattr
        | Op::Setxattr
        | Op::Listxattr
        | Op::Removexattr
        | Op::Statfs
        | Op::SetLock
        | Op::GetLock
        | Op::CancelLock
        | Op::Relock
        | Op::Stats
        | Op::Sync
        | Op::Resume
        | Op::ReplayDone
        | Op::SetExport
        | Op::Exports
        | Op::Freeze
        | Op::Goodbye
        | Op::Ping => return Err(Flaw::Breach(Breach::Route)),
    };
    // The object must be one of the shard that was asked, and its inode one that can exist.
    if map.data_shard(inode, 0) != ask.shard || inode.count() == 0 {
        return Err(Flaw::Breach(Breach::Route));
    }
    Ok(Decoded { inode, pending, takes })
}

fn decode_write(write: &wire::Write, ask: &Ask<'_>) -> Result<Pending, Flaw> {
    let (token, bulk, client) = (ask.token, ask.bulk, ask.client);
    if write.append {
        return Ok(Pending::Append { token, bulk, client });
    }
    let end = write.file_offset.checked_add(u64::from(bulk_bytes(bulk)));
    if end.is_none_or(|end| end > SIZE_BYTES_MAX) {
        return Err(Flaw::Status(Status::TooLarge));
    }
    Ok(Pending::Write { token, object_offset: write.file_offset, bulk, client })
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
