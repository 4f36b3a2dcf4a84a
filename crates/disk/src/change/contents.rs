//! Changes of the contents of a file: tags 9 to 11 and 36 to 41.

use crate::{BlockSums, LoggedRange, logged_range};
use alloc::vec::Vec;
use wire::{Allocation, DecodeError, InodeNo, Layout, Pieces, Reader, Writer};

/// A change at a data shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ContentsChange {
    /// Bytes were written to the object. They were durable before the record.
    Write {
        /// The file.
        inode: InodeNo,
        /// Offset.
        object_offset: u64,
        /// Length.
        write_bytes: u32,
        /// Their CRC-32C.
        crc32c: u32,
        /// When, in nanoseconds since 1970.
        write_time_ns: u64,
    },
    /// Bytes were written to several ranges of the object. They were durable before the record.
    WriteList {
        /// The file.
        inode: InodeNo,
        /// The ranges, in the order of the bytes; disjoint.
        pieces: Pieces,
        /// The CRC-32C of the bytes of all pieces.
        crc32c: u32,
        /// When, in nanoseconds since 1970.
        write_time_ns: u64,
    },
    /// The object was truncated or extended.
    Truncate {
        /// The file.
        inode: InodeNo,
        /// The size.
        size_bytes: u64,
        /// When the contents were last changed, in nanoseconds since 1970; 0: never.
        write_time_ns: u64,
    },
    /// A range of the object was allocated, deallocated or zeroed. That was durable before the
    /// record.
    Allocate {
        /// The file.
        inode: InodeNo,
        /// Offset.
        object_offset: u64,
        /// Length.
        range_bytes: u64,
        /// What was done to the range.
        allocation: Allocation,
        /// The object's size afterwards.
        size_bytes: u64,
        /// When, in nanoseconds since 1970.
        write_time_ns: u64,
    },
    /// The object was removed.
    ObjectRemoved {
        /// The file.
        inode: InodeNo,
    },
    /// Sets checksums of blocks. The covered bytes were durable before the record.
    Sums {
        /// The file.
        inode: InodeNo,
        /// The first block.
        first_block: u64,
        /// The checksums from that block on; an empty one leaves the block's checksum as it is.
        sums: BlockSums,
    },
    /// Removes checksums of blocks: the covered bytes may change.
    SumsRemoved {
        /// The file.
        inode: InodeNo,
        /// The first block.
        from_block: u64,
        /// The block behind the last.
        until_block: u64,
    },
    /// The file is about to get a stripe object behind its first.
    Stripe {
        /// The file.
        inode: InodeNo,
        /// The stripe, from 1.
        stripe_index: u32,
        /// The file's layout.
        layout: Layout,
    },
    /// What the first object has in these ranges, where it is not durable: the bytes of this
    /// record's write, or none if an earlier record has them.
    Logged {
        /// The file.
        inode: InodeNo,
        /// The ranges, in rising order and disjoint.
        ranges: Vec<LoggedRange>,
    },
}

impl ContentsChange {
    /// The file.
    #[must_use]
    pub const fn inode(&self) -> InodeNo {
        match self {
            Self::Write { inode, .. }
            | Self::WriteList { inode, .. }
            | Self::Truncate { inode, .. }
            | Self::Allocate { inode, .. }
            | Self::ObjectRemoved { inode }
            | Self::Sums { inode, .. }
            | Self::SumsRemoved { inode, .. }
            | Self::Stripe { inode, .. }
            | Self::Logged { inode, .. } => *inode,
        }
    }

    /// Whether other changes of the object wait until this record is durable: bytes that it removes
    /// could not be distinguished from later ones, or the overwrite that it announces must not begin before,
    /// nor the stripe object exist.
    #[must_use]
    pub const fn fences(&self) -> bool {
        match self {
            Self::Truncate { .. }
            | Self::Allocate { .. }
            | Self::SumsRemoved { .. }
            | Self::Stripe { .. } => true,
            Self::Write { .. }
            | Self::WriteList { .. }
            | Self::ObjectRemoved { .. }
            | Self::Sums { .. }
            | Self::Logged { .. } => false,
        }
    }

    pub(super) const fn tag(&self) -> u8 {
        match self {
            Self::Write { .. } => 9,
            Self::Truncate { .. } => 10,
            Self::ObjectRemoved { .. } => 11,
            Self::Allocate { .. } => 36,
            Self::WriteList { .. } => 37,
            Self::Sums { .. } => 38,
            Self::SumsRemoved { .. } => 39,
            Self::Stripe { .. } => 40,
            Self::Logged { .. } => 41,
        }
    }

    pub(super) fn encode_fields(&self, to: &mut Writer<'_>) {
        match self {
            Self::Write { inode, object_offset, write_bytes, crc32c, write_time_ns } => {
                to.write(inode);
                to.write(object_offset);
                to.write(write_bytes);
                to.write(crc32c);
                to.write(write_time_ns);
            }
            Self::WriteList { inode, pieces, crc32c, write_time_ns } => {
                to.write(inode);
                to.write(pieces);
                to.write(crc32c);
                to.write(write_time_ns);
            }
            Self::Truncate { inode, size_bytes, write_time_ns } => {
                to.write(inode);
                to.write(size_bytes);
                to.write(write_time_ns);
            }
            Self::Allocate {
                inode,
                object_offset,
                range_bytes,
                allocation,
                size_bytes,
                write_time_ns,
            } => {
                to.write(inode);
                to.write(object_offset);
                to.write(range_bytes);
                to.write(allocation);
                to.write(size_bytes);
                to.write(write_time_ns);
            }
            Self::ObjectRemoved { inode } => to.write(inode),
            Self::Sums { inode, first_block, sums } => {
                to.write(inode);
                to.write(first_block);
                to.write(sums);
            }
            Self::SumsRemoved { inode, from_block, until_block } => {
                to.write(inode);
                to.write(from_block);
                to.write(until_block);
            }
            Self::Stripe { inode, stripe_index, layout } => {
                to.write(inode);
                to.write(stripe_index);
                to.write(layout);
            }
            Self::Logged { inode, ranges } => {
                to.write(inode);
                logged_range::encode(ranges, to);
            }
        }
    }

    /// `None` for another tag.
    pub(super) fn decode_fields(
        tag: u8,
        from: &mut Reader<'_>,
    ) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match tag {
            9 => Self::Write {
                inode: from.read()?,
                object_offset: from.read()?,
                write_bytes: from.read()?,
                crc32c: from.read()?,
                write_time_ns: from.read()?,
            },
            10 => Self::Truncate {
                inode: from.read()?,
                size_bytes: from.read()?,
                write_time_ns: from.read()?,
            },
            11 => Self::ObjectRemoved { inode: from.read()? },
            36 => Self::Allocate {
                inode: from.read()?,
                object_offset: from.read()?,
                range_bytes: from.read()?,
                allocation: from.read()?,
                size_bytes: from.read()?,
                write_time_ns: from.read()?,
            },
            37 => Self::WriteList {
                inode: from.read()?,
                pieces: from.read()?,
                crc32c: from.read()?,
                write_time_ns: from.read()?,
            },
            38 => Self::Sums { inode: from.read()?, first_block: from.read()?, sums: from.read()? },
            39 => Self::SumsRemoved {
                inode: from.read()?,
                from_block: from.read()?,
                until_block: from.read()?,
            },
            40 => Self::Stripe {
                inode: from.read()?,
                stripe_index: from.read()?,
                layout: from.read()?,
            },
            41 => Self::Logged { inode: from.read()?, ranges: logged_range::decode(from)? },
            _ => return Ok(None),
        }))
    }
}
