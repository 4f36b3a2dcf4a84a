//! Placement of new directories near the root: on the metadata shards in turn, skipping one that is
//! known to be much fuller than the next. With several servers, one directory after another is on
//! another server.

use crate::Lane;
use meta::DirectoryPlacement;
use wire::ShardId;

/// A shard is skipped when it has more inodes than this and twice those of the next.
const FULLER_COUNT_MIN: u64 = 64;
/// With fewer shards for new directories one follows the other.
const STRIDE_COUNT_MIN: u16 = 16;

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
        let shard_count = self.config.map.directory_shard_count();
        // Of few shards the next ones are soon another server's.
        let is_long = shard_count >= STRIDE_COUNT_MIN && self.config.map.servers().len() > 1;
        let stride = if is_long { stride(shard_count.into()) } else { 1 };
        let shard = |turn: u64| self.config.map.directory_shard(turn.wrapping_mul(stride));
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

/// A step over `count` shards that comes to each of them, and soon to each long range: about the golden
/// section of all.
fn stride(count: u64) -> u64 {
    let shares_no_factor = |step: &u64| {
        let (mut one, mut two) = (count, *step);
        while two > 0 {
            (one, two) = (two, one % two);
        }
        one == 1
    };
    let steps = (count * 618 / 1000).max(1)..=count;
    steps.into_iter().find(shares_no_factor).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::stride;
    use alloc::collections::BTreeSet;

    #[test]
    fn directories_made_one_after_another_are_on_all_servers_soon() {
        for (server_count, each) in [(2, 64), (3, 64), (4, 64), (7, 10)] {
            let count = server_count * each;
            let place = |turn: u64| turn * stride(count) % count;
            let all: BTreeSet<u64> = (0..count).map(place).collect();
            assert_eq!(all.len() as u64, count, "each shard has its turn");
            for start in 0..count {
                let servers: BTreeSet<u64> =
                    (start..start + 2 * server_count).map(|turn| place(turn) / each).collect();
                assert_eq!(servers.len() as u64, server_count, "{server_count} from {start}");
            }
        }
    }

    #[test]
    fn few_shards_have_a_stride() {
        assert_eq!([1, 2, 3, 4, 6].map(stride), [1, 1, 1, 3, 5]);
    }
}
