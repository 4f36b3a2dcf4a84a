//! `ShardCounts`: how many shards there are, and where a stripe would lie if files were spread over all.

use crate::{InodeNo, Layout, ShardId};

/// The numbers of shards: those that a store is made with, and of a file system those of all its
/// servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardCounts {
    /// Metadata shards, 1 ..= [`ShardCounts::MAX`].
    pub meta: u16,
    /// Data shards, 1 ..= [`ShardCounts::MAX`].
    pub data: u16,
}

impl ShardCounts {
    /// Most shards of a kind.
    pub const MAX: u16 = 0x7fff;

    /// Whether there is such a shard.
    #[must_use]
    pub const fn has(self, shard: ShardId) -> bool {
        let count = if shard.is_data() { self.data } else { self.meta };
        shard.index() < count
    }

    /// Every shard, metadata first.
    pub fn shards(self) -> impl Iterator<Item = ShardId> {
        (0..self.meta).map(ShardId::meta).chain((0..self.data).map(ShardId::data))
    }

    /// The data shard that holds stripe `stripe_index` of an inode, if all files are spread over all
    /// data shards.
    #[must_use]
    pub fn data_shard(self, inode: InodeNo, stripe_index: u32) -> ShardId {
        let index = stripe_hash(inode, stripe_index) % u64::from(self.data);
        ShardId::data(u16::try_from(index).unwrap_or(0))
    }

    /// The same for a stripe of a file with this layout.
    #[must_use]
    pub fn stripe_shard(self, inode: InodeNo, layout: Layout, stripe_index: u32) -> ShardId {
        self.data_shard(inode, layout.part(stripe_index))
    }

    pub(crate) const fn is_valid(self) -> bool {
        self.meta > 0 && self.data > 0 && self.meta <= Self::MAX && self.data <= Self::MAX
    }
}

/// Finalizer of MurmurHash3 over both numbers, so that adjacent numbers spread.
pub(crate) fn stripe_hash(inode: InodeNo, stripe_index: u32) -> u64 {
    let mut mix = inode.0 ^ u64::from(stripe_index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mix = (mix ^ (mix >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mix = (mix ^ (mix >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mix ^ (mix >> 33)
}
