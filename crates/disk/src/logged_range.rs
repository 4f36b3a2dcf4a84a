//! Consecutive bytes of an object in a record.

use crate::{to_u32, to_u64};
use alloc::vec::Vec;
use wire::{Bytes, DecodeError, ProtocolError, Reader, Writer};

/// Consecutive bytes of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedRange {
    /// Where they are in it.
    pub object_offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl LoggedRange {
    pub(crate) fn end(&self) -> u64 {
        self.object_offset.saturating_add(to_u64(self.bytes.len()))
    }
}

pub(crate) fn encode(ranges: &[LoggedRange], to: &mut Writer<'_>) {
    to.write(&to_u32(ranges.len()));
    for LoggedRange { object_offset, bytes } in ranges {
        to.write(object_offset);
        to.write(&Bytes(bytes));
    }
}

pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Vec<LoggedRange>, DecodeError> {
    let range_count: u32 = from.read()?;
    let mut ranges: Vec<LoggedRange> = Vec::new();
    for _ in 0..range_count {
        let object_offset = from.read()?;
        let Bytes(bytes) = from.read()?;
        let range = LoggedRange { object_offset, bytes: bytes.to_vec() };
        let is_behind = ranges.last().is_none_or(|last| last.end() <= object_offset);
        if bytes.is_empty() || !is_behind || range.end() > i64::MAX.unsigned_abs() {
            return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
        }
        ranges.push(range);
    }
    Ok(ranges)
}
