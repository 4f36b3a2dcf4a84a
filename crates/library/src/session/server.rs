//! Operations on the server as a whole: space, counters, freezing, inspections.

use super::{Session, broken};
use crate::Error;
use client::{Answer, Call};
use std::path::Path;
use wire::counters::Snapshot;
use wire::traces::Traces;
use wire::{Freeze, Frozen, Inspect, Inspected, LaneId, Space, Stats, Wire as _};

impl Session {
    /// Waits until all changes are durable whose callers have their results, on any client.
    pub(crate) async fn sync_server(&self) -> Result<(), Error> {
        // First the names that clients have answered early, which ends that of names; then what is
        // written behind, that of the files which these are.
        for _ in 0..2 {
            self.call("sync", Path::new("/"), &Call::Recall).await?;
        }
        self.sync_answered().await
    }

    /// Waits until all changes that any shard has answered are durable.
    pub(crate) async fn sync_answered(&self) -> Result<(), Error> {
        self.call("sync", Path::new("/"), &Call::SyncShards).await.map(drop)
    }

    /// The smallest request, to a lane of the server and back.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        self.call("ping", Path::new("/"), &Call::Ping(LaneId(0))).await.map(drop)
    }

    /// Space and inodes.
    pub(crate) async fn statfs(&self) -> Result<Space, Error> {
        self.space(&Call::Statfs).await
    }

    /// Those of the connected server.
    pub(crate) async fn server_statfs(&self) -> Result<Space, Error> {
        self.space(&Call::ServerStatfs).await
    }

    async fn space(&self, call: &Call<'_>) -> Result<Space, Error> {
        let root = Path::new("/");
        let reply = self.call("statfs", root, call).await?;
        let Answer::Space(space) = reply.answer else { return Err(broken("statfs", root)) };
        Ok(space)
    }

    /// Counters, one entry per server lane.
    pub(crate) async fn stats(&self) -> Result<Vec<Stats>, Error> {
        let root = Path::new("/");
        let lane_count = self.server_lane_count();
        let mut lanes = Vec::with_capacity(usize::from(lane_count));
        for lane in 0..lane_count {
            let reply = self.call("stats", root, &Call::Stats(LaneId(lane))).await?;
            let Answer::Stats(_) = reply.answer else { return Err(broken("stats", root)) };
            let stats = Stats::decode_all(&reply.small).map_err(|_| broken("stats", root))?;
            lanes.push(stats);
        }
        Ok(lanes)
    }

    /// All counters, one snapshot per server lane.
    pub(crate) async fn counters(&self) -> Result<Vec<Snapshot>, Error> {
        let root = Path::new("/");
        let mut lanes = Vec::new();
        for lane in 0..self.server_lane_count() {
            let reply = self.call("counters", root, &Call::Counters(LaneId(lane))).await?;
            let Answer::Counters(_) = reply.answer else { return Err(broken("counters", root)) };
            lanes.push(Snapshot::decode(&reply.small).map_err(|_| broken("counters", root))?);
        }
        Ok(lanes)
    }

    /// Where the time of recent requests went, of each server lane.
    pub(crate) async fn traces(&self) -> Result<Vec<Traces>, Error> {
        let root = Path::new("/");
        let mut lanes = Vec::new();
        for lane in 0..self.server_lane_count() {
            let reply = self.call("traces", root, &Call::Traces(LaneId(lane))).await?;
            let Answer::Traces(_) = reply.answer else { return Err(broken("traces", root)) };
            lanes.push(Traces::decode(&reply.small).map_err(|_| broken("traces", root))?);
        }
        Ok(lanes)
    }

    /// Delays changes at all lanes for this long.
    pub(crate) async fn freeze(&self, lease_ms: u32) -> Result<Frozen, Error> {
        let root = Path::new("/");
        let mut all = Frozen { held_on: true, change_count: 0 };
        for lane in 0..self.server_lane_count() {
            let call = Call::Freeze(LaneId(lane), Freeze { lease_ms });
            let reply = self.call("freeze", root, &call).await?;
            let Answer::Frozen(frozen) = reply.answer else { return Err(broken("freeze", root)) };
            all.held_on &= frozen.held_on;
            all.change_count += frozen.change_count;
        }
        Ok(all)
    }

    /// Controls this connection's inspection of the store; returns the next bytes of its output,
    /// and whether they are the last.
    pub(crate) async fn inspect(&self, request: Inspect) -> Result<(Vec<u8>, bool), Error> {
        let root = Path::new("/");
        let reply = self.call("inspect", root, &Call::Inspect(request)).await?;
        let Answer::Inspected(_) = reply.answer else { return Err(broken("inspect", root)) };
        let decoded = Inspected::decode_all(&reply.small).map_err(|_| broken("inspect", root))?;
        Ok((decoded.bytes.0.to_vec(), decoded.end))
    }

    /// The number of the server's lanes.
    pub(crate) fn server_lane_count(&self) -> u16 {
        self.map().map_or(1, |map| map.first_server().lane_count)
    }
}
