//! `Trailer`: written behind a batch, in one write with it. It records what must exist of all
//! lanes' logs.
//!
//! ```text
//! offset bytes field
//!      0     8 magic "LANEFSBE"
//!      8     8 boot_id
//!     16     8 batch_no of the batch in front of it
//!     24     4 batch_bytes of that batch
//!     28     4 zero_piece_count: how many pieces of that batch are all zeros
//!     32     8 file_bytes: the file is at least so long
//!     40     4 lane_count
//!     44     4 crc32c over the trailer, this field as 0
//!     48   8 n durable place of each lane's log: segment_no in the upper 24 bits, then the offset
//! ```
//! A piece is the part of the batch between two consecutive multiples of 512 in the file. A power
//! cut loses whole sectors of a write and leaves the previous zeros there. So a batch with no more
//! zero pieces than it was written with was written as a whole, and if its checksum does not match,
//! it was damaged later.

use crate::{crc32c_without, to_u32, u32_at, u64_at};
use alloc::vec::Vec;

/// Bytes of a trailer before the places.
const FRONT_BYTES: usize = 48;
const MAGIC: [u8; 8] = *b"LANEFSBE";
const CRC_OFFSET: usize = 44;
/// A disk writes a sector as a whole or not at all.
const SECTOR_BYTES: usize = 512;
const OFFSET_BITS: u32 = 40;

/// A position in a lane's log of a boot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LogPosition {
    /// The segment, from 1.
    pub segment_no: u32,
    /// The offset in it, in bytes.
    pub offset: u64,
}

impl LogPosition {
    /// The position as one number with the same order.
    #[must_use]
    pub fn packed(self) -> u64 {
        assert!(self.offset >> OFFSET_BITS == 0, "a log file stays below a terabyte");
        u64::from(self.segment_no) << OFFSET_BITS | self.offset
    }

    /// The position of a packed number.
    #[must_use]
    pub fn unpacked(packed: u64) -> Self {
        let segment_no = u32::try_from(packed >> OFFSET_BITS).unwrap_or(u32::MAX);
        Self { segment_no, offset: packed & ((1 << OFFSET_BITS) - 1) }
    }
}

/// The trailer of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// The boot that wrote it.
    pub boot_id: u64,
    /// The batch in front of it.
    pub batch_no: u64,
    /// Bytes of that batch.
    pub batch_bytes: u32,
    /// Number of its pieces that are all zeros.
    pub zero_piece_count: u32,
    /// The file's minimum length when this was written, in bytes.
    pub file_bytes: u64,
    /// The durable position of each lane's log when this was written.
    pub places: Vec<LogPosition>,
}

impl Trailer {
    /// Bytes of a trailer in a boot of `lane_count` lanes.
    #[must_use]
    pub const fn bytes_count(lane_count: usize) -> usize {
        FRONT_BYTES + 8 * lane_count
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.boot_id.to_le_bytes());
        out.extend_from_slice(&self.batch_no.to_le_bytes());
        out.extend_from_slice(&self.batch_bytes.to_le_bytes());
        out.extend_from_slice(&self.zero_piece_count.to_le_bytes());
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        out.extend_from_slice(&to_u32(self.places.len()).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for place in &self.places {
            out.extend_from_slice(&place.packed().to_le_bytes());
        }
        let crc = wire::crc32c(&out[start..]);
        out[start + CRC_OFFSET..start + FRONT_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// The trailer at the front of `bytes`; `None` when there is no whole and valid one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let front: &[u8; FRONT_BYTES] = bytes.first_chunk()?;
        if front[..8] != MAGIC {
            return None;
        }
        let lane_count = u16::try_from(u32_at(front, 40)).ok()?;
        let all = bytes.get(..Self::bytes_count(usize::from(lane_count)))?;
        if crc32c_without(all, CRC_OFFSET) != u32_at(front, CRC_OFFSET) {
            return None;
        }
        let place = |number: &[u8; 8]| LogPosition::unpacked(u64::from_le_bytes(*number));
        Some(Self {
            boot_id: u64_at(front, 8),
            batch_no: u64_at(front, 16),
            batch_bytes: u32_at(front, 24),
            zero_piece_count: u32_at(front, 28),
            file_bytes: u64_at(front, 32),
            places: all[FRONT_BYTES..].as_chunks().0.iter().map(place).collect(),
        })
    }
}

/// Number of pieces of a batch at `offset` of its file that are all zeros.
#[must_use]
pub fn zero_piece_count(offset: u64, batch: &[u8]) -> u32 {
    let sector_bytes = u64::try_from(SECTOR_BYTES).unwrap_or(u64::MAX);
    let into_sector = usize::try_from(offset % sector_bytes).unwrap_or(0);
    let (front, rest) = batch.split_at(batch.len().min(SECTOR_BYTES - into_sector));
    let pieces = core::iter::once(front).chain(rest.chunks(SECTOR_BYTES));
    let zero = |piece: &&[u8]| !piece.is_empty() && piece.iter().all(|byte| *byte == 0);
    to_u32(pieces.filter(zero).count())
}
