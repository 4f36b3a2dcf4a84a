//! Requests about contents: decoded and checked, one function for each operation.

use crate::Ask;
use crate::allocate::{Allocating, Seeking};
use crate::list::{ReadingList, WritingList};
use crate::request::{Glimpsing, Pending, SIZE_BYTES_MAX, bulk_bytes};
use wire::{
    Allocation, BULK_BYTES_MAX, ClearPrivileges, Executor, Flaw, InodeNo, Map, Op, ProtocolError,
    Status, Wire,
};

/// A request that was decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decoded {
    pub(crate) inode: InodeNo,
    pub(crate) pending: Pending,
    /// The privileged bits that it clears.
    pub(crate) takes: ClearPrivileges,
}

impl Decoded {
    const fn new(inode: InodeNo, pending: Pending) -> Self {
        Self { inode, pending, takes: ClearPrivileges::Nothing }
    }
}

/// Decodes a request. Its buffer is still the caller's if this fails.
pub(crate) fn decode(ask: &Ask<'_>, map: &Map) -> Result<Decoded, Flaw> {
    macro_rules! dispatch {
        ($($op:ident $module:ident;)*) => {
            match ask.op {
                $(Op::$op => $module(ask)?,)*
                other => {
                    assert!(other.row().executor != Executor::Data, "the table has all of them");
                    return Err(Flaw::ProtocolError(ProtocolError::Route));
                }
            }
        };
    }
    let decoded = wire::data_operations!(dispatch);
    // The object must be one of the shard that was asked, and its inode one that can exist.
    let inode = decoded.inode;
    if map.data_shard(inode, 0) != ask.shard || inode.count() == 0 {
        return Err(Flaw::ProtocolError(ProtocolError::Route));
    }
    Ok(decoded)
}

fn read(ask: &Ask<'_>) -> Result<Decoded, Flaw> {
    let wire::Read { inode, file_offset, read_bytes, accesses, .. } =
        wire::Read::decode_all(ask.body)?;
    if file_offset > SIZE_BYTES_MAX {
        return Err(Flaw::Status(Status::Invalid));
    }
    if read_bytes > BULK_BYTES_MAX {
        return Err(Flaw::ProtocolError(ProtocolError::TooLong));
    }
    let Ask { token, client, .. } = *ask;
    let (object_offset, compared) = (file_offset, false);
    let pending = Pending::Read { token, object_offset, read_bytes, client, accesses, compared };
    Ok(Decoded::new(inode, pending))
}

fn read_list(ask: &Ask<'_>) -> Result<Decoded, Flaw> {
    let wire::ReadList { inode, pieces, accesses } = wire::ReadList::decode_all(ask.body)?;
    let Ask { token, client, .. } = *ask;
    let reading = ReadingList { token, client, pieces, accesses, compared: false };
    Ok(Decoded::new(inode, Pending::ReadList(reading)))
}

fn glimpse(ask: &Ask<'_>) -> Result<Decoded, Flaw> {
    let wire::Glimpse { inode } = wire::Glimpse::decode_all(ask.body)?;
    let Ask { token, client, .. } = *ask;
    Ok(Decoded::new(inode, Pending::Glimpse(Glimpsing { token, durable: false, client })))
}

fn seek(ask: &Ask<'_>) -> Result<Decoded, Flaw> {
    let wire::Seek { inode, file_offset, hole } = wire::Seek::decode_all(ask.body)?;
    let Ask { token, client, .. } = *ask;
    let seeking = Seeking { token, client, object_offset: file_offset, hole };
    Ok(Decoded::new(inode, Pending::Seek(seeking)))
}

fn write(ask: &Ask<'_>) -> Result<Decoded, Flaw> {
    let wire::Write { inode, file_offset, append, takes, .. } = wire::Write::decode_all(ask.body)?;
    let Ask { token, client, bulk, .. } = *ask;
    if append {
        return Ok(Decoded { inode, pending: Pending::Append { token, bulk, client }, takes });
    }
    let end = file_offset.checked_add(u64::from(bulk_bytes(bulk)));
    if end.is_none_or(|end| end > SIZE_BYTES_MAX) {
        return Err(Flaw::Status(Status::TooLarge));
    }
    let pending = Pending::Write { token, object_offset: file_offset, bulk, client };
    Ok(Decoded { inode, pending, takes })
}

fn write_list(ask: &Ask<'_>) -> Result<Decoded, Flaw> {
    let wire::WriteList { inode, pieces, takes } = wire::WriteList::decode_all(ask.body)?;
    if pieces.total_bytes() != bulk_bytes(ask.bulk) {
        return Err(Flaw::ProtocolError(ProtocolError::Malformed));
    }
    if pieces.overlap() {
        return Err(Flaw::Status(Status::Invalid));
    }
    let Ask { token, client, bulk, .. } = *ask;
    let pending = Pending::WriteList(WritingList { token, client, pieces, bulk });
    Ok(Decoded { inode, pending, takes })
}

fn truncate(ask: &Ask<'_>) -> Result<Decoded, Flaw> {
    let wire::Truncate { inode, size_bytes, .. } = wire::Truncate::decode_all(ask.body)?;
    if size_bytes > SIZE_BYTES_MAX {
        return Err(Flaw::Status(Status::TooLarge));
    }
    let Ask { token, client, .. } = *ask;
    Ok(Decoded::new(inode, Pending::Truncate { token, size_bytes, client }))
}

fn allocate(ask: &Ask<'_>) -> Result<Decoded, Flaw> {
    let wire::Allocate { inode, file_offset, range_bytes, allocation, keep_size, takes } =
        wire::Allocate::decode_all(ask.body)?;
    let end = file_offset.checked_add(range_bytes).filter(|end| *end <= SIZE_BYTES_MAX);
    if end.is_none() {
        return Err(Flaw::Status(Status::TooLarge));
    }
    if range_bytes == 0 || (allocation == Allocation::Punch && !keep_size) {
        return Err(Flaw::Status(Status::Invalid));
    }
    let Ask { token, client, .. } = *ask;
    let allocating = Allocating {
        token,
        client,
        object_offset: file_offset,
        range_bytes,
        allocation,
        keep_size,
    };
    Ok(Decoded { inode, pending: Pending::Allocate(allocating), takes })
}
