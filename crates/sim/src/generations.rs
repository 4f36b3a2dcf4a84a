//! Which servers take what is new: one joins when clients work, and others are drained and come back.
//!
//! The registry adds a server to the map before its first start, so clients may hear of it while it
//! is down, and it may die before anybody has reached it. Servers learn of each generation at their
//! own times.

use crate::due::Due;
use crate::number::narrow_u16;
use crate::plan::MS;
use crate::simulation::Simulation;
use std::sync::Arc;
use wire::{Generation, ShardCounts, ShardRange, ShardSet};

impl Simulation {
    /// The generations as ranges of shards.
    pub(crate) fn generations_of(&self, shards: ShardCounts) -> Arc<[Generation]> {
        let count = narrow_u16(self.servers.len());
        let set = |taking: &[usize], shard_count: u16| {
            let ranges = taking.iter().map(|server| {
                let shard_count = shard_count / count;
                ShardRange { first: narrow_u16(*server) * shard_count, shard_count }
            });
            #[expect(clippy::expect_used, reason = "no generation is empty, nor servers' ranges")]
            ShardSet::new(ranges).expect("shards of servers")
        };
        let generations = self.generations.iter().map(|taking| Generation {
            metas: set(taking, shards.meta),
            datas: set(taking, shards.data),
        });
        generations.collect()
    }

    /// The last server joins: the map names it, and it starts sooner or later.
    pub(crate) fn join_server(&mut self) {
        let server = self.joined_count;
        if server == self.servers.len() {
            return;
        }
        self.joined_count += 1;
        let mut taking = self.generations.last().cloned().unwrap_or_default();
        taking.push(server);
        self.begin_generation(taking);
        // Its term in the map is that of no start yet.
        self.begin_start(server);
        let mean_ns = self.prng.pick(&[MS, 50 * MS, 1_000 * MS]).unwrap_or(MS);
        let delay_ns = self.prng.span_ns(mean_ns);
        self.publish_map(server);
        self.schedule_at(self.now_ns + delay_ns, Due::StartServer(server));
    }

    /// Some of the servers take what is new from now on.
    pub(crate) fn drain_some(&mut self) {
        let kept = self.choose(self.joined_count);
        let takes = |server: &usize, draw: bool| *server == kept || draw;
        let draws: Vec<bool> = (0..self.joined_count).map(|_| self.prng.one_in(2)).collect();
        let servers = (0..self.joined_count).zip(draws);
        let taking = servers.filter(|(server, draw)| takes(server, *draw));
        let taking = taking.map(|(server, _)| server).collect();
        self.begin_generation(taking);
        self.publish_map(self.servers.len());
    }

    fn begin_generation(&mut self, taking: Vec<usize>) {
        self.log_line(|| format!("servers {taking:?} take what is new"));
        self.generations.push(taking);
    }
}
