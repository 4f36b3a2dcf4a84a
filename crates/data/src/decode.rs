//! Decodes and checks requests, one function for each operation.

use crate::request::{
    Allocating, Glimpsing, QueuedOp, ReadingList, Seeking, Truncating, WritingList, bulk_bytes,
};
use crate::{DataConfig, DataRequest};
use alloc::vec::Vec;
use core::ops::Range;
use wire::{
    Allocation, BULK_BYTES_MAX, ClearPrivileges, DecodeError, Executor, FILE_BYTES_MAX, InodeNo,
    Layout, Op, ProtocolError, Retry, Status, Wire,
};

/// A decoded request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decoded {
    pub(crate) inode: InodeNo,
    /// Where the bytes begin that it is about.
    first_byte: u64,
    pub(crate) pending: QueuedOp,
    /// The privileged bits that it clears.
    pub(crate) clears: ClearPrivileges,
}

impl Decoded {
    const fn new((inode, first_byte): (InodeNo, u64), pending: QueuedOp) -> Self {
        Self { inode, first_byte, pending, clears: ClearPrivileges::Nothing }
    }
}

/// Decodes a request. Its buffer is still the caller's if this fails.
pub(crate) fn decode(
    request: &DataRequest<'_>,
    config: &DataConfig,
) -> Result<Decoded, DecodeError> {
    let layout = request.layout;
    let states_it = request.op.row().retry == Retry::Once; // See `Request::layout`.
    // A block with a checksum lies in one stripe.
    let block_bytes = u64::from(config.block_bytes);
    let fits = layout.map_or(!states_it, |layout| layout.stripe_unit_bytes >= block_bytes);
    if !fits {
        return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
    }
    let size_bytes_max = layout.map_or(FILE_BYTES_MAX, |layout| layout.file_bytes_max());
    macro_rules! dispatch {
        ($($op:ident $module:ident;)*) => {
            match request.op {
                $(Op::$op => $module(request, size_bytes_max)?,)*
                other => {
                    assert!(other.row().executor != Executor::Data, "the table has all of them");
                    return Err(DecodeError::ProtocolError(ProtocolError::Route));
                }
            }
        };
    }
    let decoded = wire::data_operations!(dispatch);
    // The bytes must be of the requested shard, and the inode number possible.
    let Decoded { inode, first_byte, .. } = decoded;
    let shard = config.map.shard(request.op, inode, (layout, first_byte));
    // A list that was abandoned is sent again without pieces, to the same shard.
    let is_empty_list = matches!(&decoded.pending,
        QueuedOp::WriteList(list) if list.pieces.count() == 0);
    let is_a_part = |layout: Layout| {
        is_empty_list && config.map.data_shards(inode, layout).any(|shard| shard == request.shard)
    };
    let fits = shard == Some(request.shard) || layout.is_some_and(is_a_part);
    if !fits || inode.count() == 0 {
        return Err(DecodeError::ProtocolError(ProtocolError::Route));
    }
    if let Some(layout) = layout.filter(Layout::is_spread) {
        let exists = layout.stripe_count <= config.map.part_count_max(Some(inode));
        if !exists || !is_of_one_part(&decoded.pending, layout) {
            return Err(DecodeError::ProtocolError(ProtocolError::Route));
        }
    }
    Ok(decoded)
}

/// Whether all bytes that a request names are of one part of the file.
fn is_of_one_part(pending: &QueuedOp, layout: Layout) -> bool {
    let range = |from: u64, bytes: u32| from..from.saturating_add(u64::from(bytes));
    let ranges: Vec<Range<u64>> = match pending {
        QueuedOp::Read { object_offset, read_bytes, .. } => {
            Vec::from([range(*object_offset, *read_bytes)])
        }
        QueuedOp::Write { object_offset: from, bulk, .. }
        | QueuedOp::Append { at: Some(from), bulk, .. } => {
            Vec::from([range(*from, bulk_bytes(*bulk))])
        }
        QueuedOp::ReadList(ReadingList { pieces, .. })
        | QueuedOp::WriteList(WritingList { pieces, .. }) => {
            pieces.iter().map(|piece| piece.file_offset..piece.end()).collect()
        }
        QueuedOp::Glimpse(_)
        | QueuedOp::Seek(_)
        | QueuedOp::Append { .. }
        | QueuedOp::Truncate(_)
        | QueuedOp::Allocate(_)
        | QueuedOp::Replay { .. }
        | QueuedOp::Widen { .. }
        | QueuedOp::Remove => Vec::new(),
    };
    let stripes = ranges.into_iter().flat_map(|range| layout.parts(range));
    let mut parts = stripes.map(|stripe| layout.part(stripe.stripe_index));
    let first = parts.next();
    parts.all(|part| Some(part) == first)
}

fn read(request: &DataRequest<'_>, size_bytes_max: u64) -> Result<Decoded, DecodeError> {
    let wire::Read { inode, file_offset, read_bytes, accesses, .. } =
        wire::Read::decode_all(request.body)?;
    if file_offset > size_bytes_max {
        return Err(DecodeError::Status(Status::Invalid));
    }
    if read_bytes > BULK_BYTES_MAX {
        return Err(DecodeError::ProtocolError(ProtocolError::TooLong));
    }
    let DataRequest { token, client, kept, .. } = *request;
    let pending = QueuedOp::Read {
        token,
        object_offset: file_offset,
        read_bytes,
        client,
        accesses,
        compared: false,
        kept,
    };
    Ok(Decoded::new((inode, file_offset), pending))
}

fn read_list(request: &DataRequest<'_>, _: u64) -> Result<Decoded, DecodeError> {
    let wire::ReadList { inode, pieces, accesses } = wire::ReadList::decode_all(request.body)?;
    let DataRequest { token, client, .. } = *request;
    let first_byte = pieces.first_offset();
    let reading = ReadingList { token, client, pieces, accesses, compared: false };
    Ok(Decoded::new((inode, first_byte), QueuedOp::ReadList(reading)))
}

fn glimpse(request: &DataRequest<'_>, _: u64) -> Result<Decoded, DecodeError> {
    let wire::Glimpse { inode } = wire::Glimpse::decode_all(request.body)?;
    let DataRequest { token, client, .. } = *request;
    let glimpsing = Glimpsing { token, durable: false, alone: false, client };
    Ok(Decoded::new((inode, 0), QueuedOp::Glimpse(glimpsing)))
}

fn reserve(request: &DataRequest<'_>, _: u64) -> Result<Decoded, DecodeError> {
    let wire::Reserve { inode, begins: alone, .. } = wire::Reserve::decode_all(request.body)?;
    let DataRequest { token, client, .. } = *request;
    let glimpsing = Glimpsing { token, durable: false, alone, client };
    Ok(Decoded::new((inode, 0), QueuedOp::Glimpse(glimpsing)))
}

fn widen(request: &DataRequest<'_>, _: u64) -> Result<Decoded, DecodeError> {
    let wire::Widen { inode } = wire::Widen::decode_all(request.body)?;
    let malformed = DecodeError::ProtocolError(ProtocolError::Malformed);
    let layout = request.layout.filter(Layout::is_spread).ok_or(malformed)?;
    Ok(Decoded::new((inode, 0), QueuedOp::Widen { token: request.token, layout }))
}

fn seek(request: &DataRequest<'_>, _: u64) -> Result<Decoded, DecodeError> {
    let wire::Seek { inode, file_offset, hole } = wire::Seek::decode_all(request.body)?;
    let DataRequest { token, client, .. } = *request;
    let seeking = Seeking { token, client, object_offset: file_offset, hole };
    Ok(Decoded::new((inode, file_offset), QueuedOp::Seek(seeking)))
}

fn write(request: &DataRequest<'_>, size_bytes_max: u64) -> Result<Decoded, DecodeError> {
    let wire::Write { inode, file_offset, append, clears, .. } =
        wire::Write::decode_all(request.body)?;
    let DataRequest { token, client, bulk, behind, .. } = *request;
    // The parts of a file are written where it was said to end.
    let is_of_part = request.layout.is_some_and(|layout| layout.is_spread());
    if !behind && append && !is_of_part {
        let pending = QueuedOp::Append { token, bulk, client, at: None };
        return Ok(Decoded { inode, first_byte: 0, pending, clears });
    }
    let end = file_offset.checked_add(u64::from(bulk_bytes(bulk)));
    if end.is_none_or(|end| end > size_bytes_max) {
        return Err(DecodeError::Status(Status::TooLarge));
    }
    if behind {
        let pending = QueuedOp::Append { token, bulk, client, at: Some(file_offset) };
        let first_byte = if is_of_part { file_offset } else { 0 };
        return Ok(Decoded { inode, first_byte, pending, clears });
    }
    let pending = QueuedOp::Write { token, object_offset: file_offset, bulk, client };
    Ok(Decoded { inode, first_byte: file_offset, pending, clears })
}

fn write_list(request: &DataRequest<'_>, size_bytes_max: u64) -> Result<Decoded, DecodeError> {
    let wire::WriteList { inode, pieces, clears } = wire::WriteList::decode_all(request.body)?;
    if pieces.total_bytes() != bulk_bytes(request.bulk) {
        return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
    }
    if pieces.end() > size_bytes_max {
        return Err(DecodeError::Status(Status::TooLarge));
    }
    if pieces.overlap() {
        return Err(DecodeError::Status(Status::Invalid));
    }
    let DataRequest { token, client, bulk, .. } = *request;
    let first_byte = pieces.first_offset();
    let pending = QueuedOp::WriteList(WritingList { token, client, pieces, bulk });
    Ok(Decoded { inode, first_byte, pending, clears })
}

fn truncate(request: &DataRequest<'_>, size_bytes_max: u64) -> Result<Decoded, DecodeError> {
    let wire::Truncate { inode, size_bytes, .. } = wire::Truncate::decode_all(request.body)?;
    if size_bytes > size_bytes_max {
        return Err(DecodeError::Status(Status::TooLarge));
    }
    let DataRequest { token, client, is_cut, .. } = *request;
    let (spread, kept_bytes) = (request.layout.filter(Layout::is_spread), size_bytes);
    let truncating = Truncating { token, client, size_bytes, kept_bytes, spread, is_cut };
    Ok(Decoded::new((inode, size_bytes), QueuedOp::Truncate(truncating)))
}

fn allocate(request: &DataRequest<'_>, size_bytes_max: u64) -> Result<Decoded, DecodeError> {
    let wire::Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears } =
        wire::Allocate::decode_all(request.body)?;
    let end = file_offset.checked_add(range_bytes).filter(|end| *end <= size_bytes_max);
    if end.is_none() {
        return Err(DecodeError::Status(Status::TooLarge));
    }
    if range_bytes == 0 || (allocation == Allocation::Punch && !keep_size) {
        return Err(DecodeError::Status(Status::Invalid));
    }
    let DataRequest { token, client, .. } = *request;
    let allocating = Allocating {
        token,
        client,
        object_offset: file_offset,
        range_bytes,
        allocation,
        keep_size,
    };
    let pending = QueuedOp::Allocate(allocating);
    Ok(Decoded { inode, first_byte: file_offset, pending, clears })
}
