//! Placement of new directories near the root: on the metadata shards in turn, skipping one that is
//! known to be much fuller than the next.

use crate::Lane;
use meta::DirectoryPlacement;
use wire::ShardId;

/// A shard is skipped when it has more inodes than this and twice those of the next.
const FULLER_COUNT_MIN: u64 = 64;

impl Lane {
    /// The shard of the next directory, if it lies near the root.
    pub(crate) fn next_place(&mut self) -> Option<DirectoryPlacement> {
        let depth_max = self.config.limits.spread_depth;
        if depth_max == 0 || self.config.map.directory_shard_count() == 1 {
            return None;
        }
        self.txns.placed_count += 1;
        // Lanes begin at different shards.
        let start = u64::from(self.config.lane.0) + self.config.boot_id;
        let turn = start + self.txns.placed_count;
        let shard = |turn: u64| self.config.map.directory_shard(turn);
        let (first, second) = (shard(turn), shard(turn + 1));
        let (first_count, second_count) = (self.known_count(first), self.known_count(second));
        let fuller = first_count > FULLER_COUNT_MIN && first_count / 2 > second_count;
        let shard = if fuller { second } else { first };
        Some(DirectoryPlacement { shard: self.reachable_from(shard), depth_max })
    }

    /// This shard, or the next one whose server is there.
    fn reachable_from(&self, shard: ShardId) -> ShardId {
        let count = self.config.map.shard_counts().meta;
        let after = |step| ShardId::meta(step % count);
        let mut others = (shard.index()..).take(usize::from(count)).map(after);
        others.find(|shard| self.is_reachable(*shard)).unwrap_or(shard)
    }

    /// The last known inode count of a shard.
    fn known_count(&self, shard: ShardId) -> u64 {
        if self.is_own(shard) {
            return self.metas[self.meta_index(shard)].inode_count();
        }
        self.txns.inode_counts.get(&shard).copied().unwrap_or(0)
    }
}
