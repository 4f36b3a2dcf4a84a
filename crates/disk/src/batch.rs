//! `Batch`: records that become durable together, sealed by checksums.
//!
//! ```text
//! offset bytes field
//!      0     8 magic "LANEFSBT"
//!      8     8 boot_id
//!     16     8 batch_no, 1, 2, 3, ... per file
//!     24     4 batch_bytes, head and payload, a multiple of 8
//!     28     4 record_count
//!     32     4 payload_crc32c
//!     36     4 head_crc32c over the 36 bytes before
//!     40       payload: records, then zeros up to a multiple of 8
//! ```
//! A batch is written only after the one before it is durable. A server's batches are followed by a
//! [`Trailer`](crate::Trailer).

use crate::{Record, to_u32, u32_at, u64_at};
use alloc::vec::Vec;

/// Bytes of a batch's head.
pub const BATCH_HEADER_BYTES: usize = 40;
/// Batches are aligned to this, which makes searching for them cheap.
pub(crate) const BATCH_ALIGN_BYTES: usize = 8;

const MAGIC: [u8; 8] = *b"LANEFSBT";
const CRC_OFFSET: usize = 36;

const _: () = assert!(BATCH_HEADER_BYTES.is_multiple_of(BATCH_ALIGN_BYTES));
const _: () = assert!(crate::LOG_HEADER_BYTES.is_multiple_of(BATCH_ALIGN_BYTES));

/// The head of a sealed batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// The boot that wrote it.
    pub boot_id: u64,
    /// Its number in the file, from 1.
    pub batch_no: u64,
    /// Bytes of head and payload.
    pub batch_bytes: u32,
    /// Records in it.
    pub record_count: u32,
    /// CRC-32C of the payload.
    pub payload_crc32c: u32,
}

impl BatchHeader {
    /// The encoded header.
    #[must_use]
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.boot_id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.batch_no.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.batch_bytes.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.record_count.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.payload_crc32c.to_le_bytes());
        let crc = wire::crc32c(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the front of `bytes`; `None` when there is no whole and valid one. The reader
    /// decides whether that is the end of the log or damage, by what follows.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BATCH_HEADER_BYTES] = bytes.first_chunk()?;
        if bytes[..8] != MAGIC || wire::crc32c(&bytes[..CRC_OFFSET]) != u32_at(bytes, CRC_OFFSET) {
            return None;
        }
        Some(Self {
            boot_id: u64_at(bytes, 8),
            batch_no: u64_at(bytes, 16),
            batch_bytes: u32_at(bytes, 24),
            record_count: u32_at(bytes, 28),
            payload_crc32c: u32_at(bytes, 32),
        })
    }
}

/// Collects records; sealed and emptied repeatedly without freeing its memory.
#[derive(Debug, Default)]
pub struct Batch {
    payload: Vec<u8>,
    record_count: u32,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub const fn new() -> Self {
        Self { payload: Vec::new(), record_count: 0 }
    }

    /// Adds a record behind the others.
    pub fn push(&mut self, record: &Record<'_>) {
        record.encode(&mut self.payload);
        self.record_count += 1;
    }

    /// Bytes of the batch if sealed now.
    #[must_use]
    pub fn bytes_count(&self) -> usize {
        BATCH_HEADER_BYTES + self.payload.len().next_multiple_of(BATCH_ALIGN_BYTES)
    }

    /// Records in it.
    #[must_use]
    pub const fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Whether it has no records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Appends the sealed batch to `out` and empties it.
    pub fn seal(&mut self, boot_id: u64, batch_no: u64, out: &mut Vec<u8>) {
        assert!(!self.is_empty(), "an empty batch is not written");
        assert!(batch_no > 0, "batches count from 1");
        self.payload.resize(self.payload.len().next_multiple_of(BATCH_ALIGN_BYTES), 0);
        let head = BatchHeader {
            boot_id,
            batch_no,
            batch_bytes: to_u32(BATCH_HEADER_BYTES + self.payload.len()),
            record_count: self.record_count,
            payload_crc32c: wire::crc32c(&self.payload),
        };
        out.extend_from_slice(&head.encode());
        out.extend_from_slice(&self.payload);
        self.payload.clear();
        self.record_count = 0;
    }
}
