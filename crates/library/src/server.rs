//! What is asked of a server as a whole: its shape, its space, its counters, and that what it was
//! told is durable.

use crate::volume::broken;
use crate::{Error, Volume};
use client::{Answer, Call};
use std::path::Path;
use wire::{LaneId, Map, Space, Stats};

impl Volume {
    /// Waits until all that anybody was answered, at any shard, is durable.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn sync_server(&mut self) -> Result<(), Error> {
        self.lane.ask("sync", Path::new("/"), &Call::SyncShards).map(drop)
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn statfs(&mut self) -> Result<Space, Error> {
        let root = Path::new("/");
        let reply = self.lane.ask("statfs", root, &Call::Statfs)?;
        let Answer::Space(space) = reply.answer else { return Err(broken("statfs", root)) };
        Ok(space)
    }

    /// Counters, one entry per server lane.
    ///
    /// # Errors
    /// [`Error::Op`].
    pub fn stats(&mut self) -> Result<Vec<Stats>, Error> {
        let root = Path::new("/");
        let lane_count = self.server_lane_count();
        let mut lanes = Vec::with_capacity(usize::from(lane_count));
        for lane in 0..lane_count {
            let reply = self.lane.ask("stats", root, &Call::Stats(LaneId(lane)))?;
            let Answer::Stats(stats) = reply.answer else { return Err(broken("stats", root)) };
            lanes.push(stats);
        }
        Ok(lanes)
    }

    /// How many lanes the server has.
    #[must_use]
    pub fn server_lane_count(&self) -> u16 {
        self.map().map_or(1, |map| map.lane_count)
    }

    /// The server's shape: its lanes and shards.
    #[must_use]
    pub fn map(&self) -> Option<Map> {
        self.lane.map()
    }
}
