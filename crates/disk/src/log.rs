//! The header of a log file. A lane's log of one boot is a sequence of files, its segments. A file
//! is never reused, so the order of boots is the order of redo.
//!
//! ```text
//! offset bytes field
//!      0     8 magic "LANEFSLG"
//!      8     4 format version 8
//!     12     4 crc32c over these 64 bytes, this field as 0
//!     16    16 fs
//!     32     8 boot_id
//!     40     2 lane
//!     42     2 lane_count
//!     44     4 segment_no, from 1
//!     48     8 file_bytes: the file is at least so long
//!     56     1 is_first: no record was ever made before this boot
//!     57     7 zeros
//! ```

use crate::{Fault, Superblock, crc32c_without, field, to_u64, u32_at};
use wire::{FsUuid, LaneId, Reader};

/// Bytes of a log file's head.
pub const LOG_HEADER_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"LANEFSLG";
const CRC_OFFSET: usize = 12;

/// The header: which log a file belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHeader {
    /// The file system.
    pub fs: FsUuid,
    /// The start of the store, from 1.
    pub boot_id: u64,
    /// The lane.
    pub lane: LaneId,
    /// Number of lanes of that boot.
    pub lane_count: u16,
    /// The number of the segment in that boot, from 1.
    pub segment_no: u32,
    /// The file's minimum length, in bytes: a shorter file was truncated.
    pub file_bytes: u64,
    /// No boot before this one recorded anything: the logs of this boot have everything that the
    /// rows have.
    pub is_first: bool,
}

impl LogHeader {
    /// The header of a lane's first file in a boot, without reserved space.
    #[must_use]
    pub fn first(fs: FsUuid, boot_id: u64, lane: LaneId, lane_count: u16) -> Self {
        let (segment_no, file_bytes, is_first) = (1, to_u64(LOG_HEADER_BYTES), false);
        Self { fs, boot_id, lane, lane_count, segment_no, file_bytes, is_first }
    }

    /// The bytes at the front of the file.
    #[must_use]
    pub fn encode(&self) -> [u8; LOG_HEADER_BYTES] {
        let mut bytes = [0; LOG_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&Superblock::FORMAT_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.fs.0);
        bytes[32..40].copy_from_slice(&self.boot_id.to_le_bytes());
        bytes[40..42].copy_from_slice(&self.lane.0.to_le_bytes());
        bytes[42..44].copy_from_slice(&self.lane_count.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.segment_no.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.file_bytes.to_le_bytes());
        bytes[56] = u8::from(self.is_first);
        let crc = wire::crc32c(&bytes);
        bytes[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header of a log file.
    ///
    /// # Errors
    /// [`Fault`] when there is none, or it is of another version or damaged.
    pub fn decode(file: &[u8]) -> Result<Self, Fault> {
        let bytes: &[u8; LOG_HEADER_BYTES] = file.first_chunk().ok_or_else(|| {
            Fault::new("a log file without a head", 0)
                .numbers(to_u64(LOG_HEADER_BYTES), to_u64(file.len()))
        })?;
        if bytes[..8] != MAGIC {
            return Err(Fault::new("not a lanefs log file", 0));
        }
        let version = u32_at(bytes, 8);
        if version != Superblock::FORMAT_VERSION {
            return Err(Fault::new("a log file of an unknown format version", 8)
                .numbers(Superblock::FORMAT_VERSION, version));
        }
        let (expected, found) = (u32_at(bytes, CRC_OFFSET), crc32c_without(bytes, CRC_OFFSET));
        if expected != found {
            return Err(
                Fault::new("the log head's checksum does not fit", 12).numbers(expected, found)
            );
        }
        let mut from = Reader::new(&bytes[16..]);
        let what = "a damaged log head";
        Ok(Self {
            fs: field(&mut from, what, 16)?,
            boot_id: field(&mut from, what, 32)?,
            lane: field(&mut from, what, 40)?,
            lane_count: field(&mut from, what, 42)?,
            segment_no: field(&mut from, what, 44)?,
            file_bytes: field(&mut from, what, 48)?,
            is_first: field(&mut from, what, 56)?,
        })
    }
}
