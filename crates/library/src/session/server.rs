//! What is asked of a server as a whole: its space, its counters, and that what it was told is durable.

use super::{Session, broken};
use crate::Error;
use client::{Answer, Call};
use std::path::Path;
use wire::{Freeze, Frozen, Inspect, Inspected, LaneId, Space, Stats, Wire as _};

impl Session {
    /// Waits until all that anybody was answered, at any shard, is durable.
    pub(crate) async fn sync_server(&self) -> Result<(), Error> {
        self.ask("sync", Path::new("/"), &Call::SyncShards).await.map(drop)
    }

    /// Space and inodes.
    pub(crate) async fn statfs(&self) -> Result<Space, Error> {
        let root = Path::new("/");
        let reply = self.ask("statfs", root, &Call::Statfs).await?;
        let Answer::Space(space) = reply.answer else { return Err(broken("statfs", root)) };
        Ok(space)
    }

    /// Counters, one entry per server lane.
    pub(crate) async fn stats(&self) -> Result<Vec<Stats>, Error> {
        let root = Path::new("/");
        let lane_count = self.server_lane_count();
        let mut lanes = Vec::with_capacity(usize::from(lane_count));
        for lane in 0..lane_count {
            let reply = self.ask("stats", root, &Call::Stats(LaneId(lane))).await?;
            let Answer::Stats(stats) = reply.answer else { return Err(broken("stats", root)) };
            lanes.push(stats);
        }
        Ok(lanes)
    }

    /// Lets changes at all lanes wait for so long.
    pub(crate) async fn freeze(&self, lease_ms: u32) -> Result<Frozen, Error> {
        let root = Path::new("/");
        let mut all = Frozen { held_on: true, change_count: 0 };
        for lane in 0..self.server_lane_count() {
            let call = Call::Freeze(LaneId(lane), Freeze { lease_ms });
            let reply = self.ask("freeze", root, &call).await?;
            let Answer::Frozen(frozen) = reply.answer else { return Err(broken("freeze", root)) };
            all.held_on &= frozen.held_on;
            all.change_count += frozen.change_count;
        }
        Ok(all)
    }

    /// Asks about this connection's inspection of the store; the next bytes of its output, and whether there
    /// are no more.
    pub(crate) async fn inspect(&self, ask: Inspect) -> Result<(Vec<u8>, bool), Error> {
        let root = Path::new("/");
        let reply = self.ask("inspect", root, &Call::Inspect(ask)).await?;
        let Answer::Inspected(_) = reply.answer else { return Err(broken("inspect", root)) };
        let told = Inspected::decode_all(&reply.small).map_err(|_| broken("inspect", root))?;
        Ok((told.bytes.0.to_vec(), told.end))
    }

    /// How many lanes the server has.
    pub(crate) fn server_lane_count(&self) -> u16 {
        self.map().map_or(1, |map| map.lane_count)
    }
}
