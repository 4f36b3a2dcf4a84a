//! The superblock: the store's format, fixed at its creation.
//!
//! ```text
//! offset bytes field
//!      0     8 magic "LANEFSSB"
//!      8     4 format version: 10 of a store alone, 11 of a server's in a cluster
//!     12     4 crc32c over all 4096 bytes, this field as 0
//!     16    16 fs, the file system's uuid
//!     32     2 meta_shard_count
//!     34     2 data_shard_count
//!     36     4 zero
//!     40     8 made.at_ns since 1970
//!     48     4 made.uid
//!     52     4 made.gid
//!     56     4 made.mode
//!     60     4 zero
//!     64     8 made.layout.stripe_unit_bytes
//!     72     2 made.layout.stripe_count
//!     74     2 member.server           version 11; zeros in version 10
//!     76     2 member.first_meta
//!     78     2 member.first_data
//!     80    16 member.store, the store's own uuid
//!     96  4000 zeros
//! ```

use crate::{Fault, crc32c_without, field, u32_at};
use wire::{FsUuid, Layout, Reader, ServerId, ShardCounts};

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"LANEFSSB";
const CRC_OFFSET: usize = 12;
const MODE_MAX: u32 = 0o7777;

/// The identity and format of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The file system.
    pub fs: FsUuid,
    /// Metadata shards of the store, 1 ..= 32,767.
    pub meta_shard_count: u16,
    /// Data shards of the store, 1 ..= 32,767.
    pub data_shard_count: u16,
    /// The creation of the store.
    pub creation: Creation,
    /// Its place in a cluster; `None`: the store has the whole file system.
    pub member: Option<Member>,
}

/// The place of a store in a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The server whose store it is.
    pub server: ServerId,
    /// The first of its metadata shards.
    pub first_meta: u16,
    /// The first of its data shards.
    pub first_data: u16,
    /// Its own uuid: `fs` is that of all stores of the cluster.
    pub store: [u8; 16],
}

/// The creation of a store: its time, the root directory's initial attributes, and how contents lie
/// in objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creation {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// Owner of the root directory.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
    /// The layout of new files.
    pub layout: Layout,
}

impl Superblock {
    /// The format of stores and logs that this build reads and writes.
    pub const FORMAT_VERSION: u32 = 10;
    /// The format of the superblock of a store that belongs to a cluster: a build that knows no
    /// clusters refuses it.
    pub const MEMBER_FORMAT_VERSION: u32 = 11;
    /// The smallest stripe: one block that has a checksum.
    pub const STRIPE_UNIT_BYTES_MIN: u64 = crate::BLOCK_BYTES as u64;
    /// The default number of shards of either kind.
    pub const SHARD_COUNT: u16 = 64;
    const SHARD_COUNT_MAX: u16 = 0x7fff;

    /// The format version that these fields need.
    #[must_use]
    pub const fn format_version(&self) -> u32 {
        match self.member {
            None => Self::FORMAT_VERSION,
            Some(_) => Self::MEMBER_FORMAT_VERSION,
        }
    }

    /// Whether this build knows a format version.
    #[must_use]
    pub const fn knows(version: u32) -> bool {
        version == Self::FORMAT_VERSION || version == Self::MEMBER_FORMAT_VERSION
    }

    /// The numbers of shards of the store.
    #[must_use]
    pub const fn shard_counts(&self) -> ShardCounts {
        ShardCounts { meta: self.meta_shard_count, data: self.data_shard_count }
    }

    /// Whether all files of a store can have this layout: no block with a checksum lies in two
    /// stripes, and the stripes of one file are at one server.
    #[must_use]
    pub const fn can_have(layout: Layout) -> bool {
        let fits = layout.stripe_unit_bytes >= Self::STRIPE_UNIT_BYTES_MIN;
        layout.is_valid() && !layout.may_spread() && fits
    }

    /// Whether new files can have this layout. At a server of a cluster they may grow to several.
    const fn can_give(&self, layout: Layout) -> bool {
        Self::can_have(layout) || self.member.is_some() && layout.is_valid() && layout.narrow
    }

    /// The encoded superblock.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        assert!(in_range(self.meta_shard_count), "a store has metadata shards");
        assert!(in_range(self.data_shard_count), "a store has data shards");
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.format_version().to_le_bytes());
        bytes[16..32].copy_from_slice(&self.fs.0);
        bytes[32..34].copy_from_slice(&self.meta_shard_count.to_le_bytes());
        bytes[34..36].copy_from_slice(&self.data_shard_count.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.creation.at_ns.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.creation.uid.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.creation.gid.to_le_bytes());
        assert!(self.creation.mode <= MODE_MAX, "a mode has permission bits alone");
        bytes[56..60].copy_from_slice(&self.creation.mode.to_le_bytes());
        assert!(self.can_give(self.creation.layout), "a store has files of a possible layout");
        bytes[64..72].copy_from_slice(&self.creation.layout.stripe_unit_bytes.to_le_bytes());
        bytes[72..74].copy_from_slice(&self.creation.layout.count_bits().to_le_bytes());
        if let Some(Member { server, first_meta, first_data, store }) = self.member {
            bytes[74..76].copy_from_slice(&server.0.to_le_bytes());
            bytes[76..78].copy_from_slice(&first_meta.to_le_bytes());
            bytes[78..80].copy_from_slice(&first_data.to_le_bytes());
            bytes[80..96].copy_from_slice(&store);
        }
        let crc = wire::crc32c(&bytes);
        bytes[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a superblock.
    ///
    /// # Errors
    /// [`Fault`] when the bytes are no superblock, of another format version (both versions are in
    /// the fault), or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let bytes: &[u8; SUPERBLOCK_BYTES] =
            bytes.first_chunk().filter(|_| bytes.len() == SUPERBLOCK_BYTES).ok_or_else(|| {
                Fault::new("a superblock of the wrong length", 0)
                    .numbers(crate::to_u64(SUPERBLOCK_BYTES), crate::to_u64(bytes.len()))
            })?;
        if bytes[..8] != MAGIC {
            return Err(Fault::new("not a lanefs superblock", 0));
        }
        let version = u32_at(bytes, 8);
        if !Self::knows(version) {
            return Err(Fault::new("a store of an unknown format version", 8)
                .numbers(Self::FORMAT_VERSION, version));
        }
        let (expected, found) = (u32_at(bytes, CRC_OFFSET), crc32c_without(bytes, CRC_OFFSET));
        if expected != found {
            return Err(
                Fault::new("the superblock's checksum does not fit", 12).numbers(expected, found)
            );
        }
        let mut from = Reader::new(&bytes[16..]);
        let what = "a damaged superblock";
        let fs = field(&mut from, what, 16)?;
        let meta_shard_count = field(&mut from, what, 32)?;
        let data_shard_count = field(&mut from, what, 34)?;
        let _zero: u32 = field(&mut from, what, 36)?;
        let at_ns = field(&mut from, what, 40)?;
        let uid = field(&mut from, what, 48)?;
        let gid = field(&mut from, what, 52)?;
        let mode = field(&mut from, what, 56)?;
        let _zero: u32 = field(&mut from, what, 60)?;
        let layout: Layout = field(&mut from, "an impossible layout", 64)?;
        if mode > MODE_MAX {
            return Err(Fault::new("an impossible mode", 56).numbers(MODE_MAX, mode));
        }
        for (count, offset) in [(meta_shard_count, 32), (data_shard_count, 34)] {
            if !in_range(count) {
                return Err(Fault::new("an impossible number of shards", offset)
                    .numbers(Self::SHARD_COUNT, count));
            }
        }
        let is_member = version == Self::MEMBER_FORMAT_VERSION;
        let member = is_member.then(|| decode_member(&mut from)).transpose()?;
        let creation = Creation { at_ns, uid, gid, mode, layout };
        let superblock = Self { fs, meta_shard_count, data_shard_count, creation, member };
        if !superblock.can_give(layout) {
            return Err(Fault::new("an impossible layout", 64)
                .numbers(Self::STRIPE_UNIT_BYTES_MIN, layout.stripe_unit_bytes));
        }
        Ok(superblock)
    }
}

fn decode_member(from: &mut Reader<'_>) -> Result<Member, Fault> {
    let what = "a damaged superblock";
    Ok(Member {
        server: field(from, what, 74)?,
        first_meta: field(from, what, 76)?,
        first_data: field(from, what, 78)?,
        store: field::<FsUuid>(from, what, 80)?.0,
    })
}

const fn in_range(count: u16) -> bool {
    count > 0 && count <= Superblock::SHARD_COUNT_MAX
}
