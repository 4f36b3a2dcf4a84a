//! `disk`: the layouts on the medium: superblock, log files, batches, records, changes and rows.
//!
//! It owns every layout on the medium and the checks that distinguish a torn end from damage. It
//! leaves files, syncing and the meaning of a change to others. Invariant: what decodes is what was
//! encoded, no bytes make a decoder panic, and damage is a [`Fault`] with its location.
//!
//! ```text
//! store:    superblock | log files per (boot, lane) | rows | objects
//! log file: LogHeader | batch | trailer | batch | trailer | ... | zeros (reserved beforehand)
//! batch:    BatchHeader | record | record | ... | zeros up to a multiple of 8 bytes
//! record:   shard, lsn, transno, term | pre-versions | origin and reply record | changes
//! ```
//! A start applies the logs' records that the rows lack, boot by boot, each log from front to back.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod batch;
mod change;
mod fault;
mod inode;
mod log;
mod logged;
mod logged_range;
mod reader;
mod record;
pub mod rows;
mod share;
mod sums;
mod superblock;
mod trailer;
mod txn;

pub use batch::{BATCH_HEADER_BYTES, Batch, BatchHeader};
pub use change::{Change, Changes, ClientChange, ContentsChange, ExportChange, TxnChange};
pub use fault::Fault;
pub use inode::InodeRow;
pub use log::{LOG_HEADER_BYTES, LogHeader};
pub use logged::{LoggedContents, has_logged};
pub use logged_range::LoggedRange;
pub use reader::{LogReader, Records, SealedBatch};
pub use record::{Origin, PreVersions, REPLY_BYTES_MAX, Record, SessionRow, ShardPosition};
pub use share::{Promised, Share};
pub use sums::{BLOCK_BYTES, BlockSum, BlockSums, GROUP_BLOCK_COUNT, REGION_BLOCK_COUNT};
pub use superblock::{Creation, Member, SUPERBLOCK_BYTES, Superblock};
pub use trailer::{LogPosition, Trailer, zero_piece_count};
pub use txn::TxnId;

use wire::Reader;

/// Reads one field of a layout whose length and checksum were verified before.
fn field<'a, T: wire::Wire<'a>>(
    from: &mut Reader<'a>,
    what: &'static str,
    offset: u64,
) -> Result<T, Fault> {
    from.read().map_err(|_| Fault::new(what, offset))
}

/// CRC-32C of `bytes` with the four bytes at `crc_offset` taken as zero.
fn crc32c_without(bytes: &[u8], crc_offset: usize) -> u32 {
    let mut copy = alloc::vec::Vec::from(bytes);
    copy[crc_offset..crc_offset + 4].fill(0);
    wire::crc32c(&copy)
}

/// The little-endian number at `offset`, which must lie within `bytes`.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}

/// The little-endian number at `offset`, which must lie within `bytes`.
fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}

/// A length for the medium.
fn to_u32(bytes_count: usize) -> u32 {
    #[expect(clippy::expect_used, reason = "a batch is bounded far below 4 GiB")]
    u32::try_from(bytes_count).expect("a length on the medium fits 32 bits")
}

/// A length or offset for a report.
fn to_u64(bytes_count: usize) -> u64 {
    u64::try_from(bytes_count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
