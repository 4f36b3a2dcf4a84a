//! Placement: shards to lanes, inodes to shards. Server and client compute the same.

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::{InodeNo, LaneId, Op, ProtocolError, Route, ShardId};

/// The server's lanes and shards, sent in the Welcome. The store's format fixes the shards, the
/// server's start the lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Map {
    /// Lanes of this server, 1 or more.
    pub lane_count: u16,
    /// Metadata shards, 1 or more.
    pub meta_shard_count: u16,
    /// Data shards, 1 or more.
    pub data_shard_count: u16,
}

impl Map {
    /// The lane that owns `shard`: metadata shards from lane 0 upwards, data shards likewise.
    #[must_use]
    pub const fn lane(&self, shard: ShardId) -> LaneId {
        LaneId(shard.index() % self.lane_count)
    }

    /// Whether the store has such a shard.
    #[must_use]
    pub const fn has(&self, shard: ShardId) -> bool {
        let count = if shard.is_data() { self.data_shard_count } else { self.meta_shard_count };
        shard.index() < count
    }

    /// The data shard that holds stripe `stripe_index` of an inode (finalizer of MurmurHash3 over
    /// both numbers, so that adjacent numbers spread).
    #[must_use]
    pub fn data_shard(&self, inode: InodeNo, stripe_index: u32) -> ShardId {
        let mut mix = inode.0 ^ u64::from(stripe_index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mix = (mix ^ (mix >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        mix = (mix ^ (mix >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        mix ^= mix >> 33;
        let index = mix % u64::from(self.data_shard_count);
        ShardId::data(u16::try_from(index).unwrap_or(0))
    }

    /// The shard that executes an op on `inode`; `None` for ops without an inode.
    #[must_use]
    pub fn shard(&self, op: Op, inode: InodeNo) -> Option<ShardId> {
        match op.row().route {
            Route::Lane | Route::Shard => None,
            Route::Meta => Some(inode.shard()),
            Route::Data => Some(self.data_shard(inode, 0)),
        }
    }
}

impl Wire<'_> for Map {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.lane_count);
        to.write(&self.meta_shard_count);
        to.write(&self.data_shard_count);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let map = Self {
            lane_count: from.read()?,
            meta_shard_count: from.read()?,
            data_shard_count: from.read()?,
        };
        let counts = [map.lane_count, map.meta_shard_count, map.data_shard_count];
        if counts.contains(&0) || counts.iter().any(|count| *count > 0x7fff) {
            return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
        }
        Ok(map)
    }
}
