//! Statfs: one request to each lane with metadata shards, all at once, because each counts its own
//! inodes. All lanes of a server report the same space; the first lane of each server counts.

use super::{Body, Next, Plan, PlanReply};
use crate::Answer;
use wire::{Space, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Statfs {
    /// That many of the first requests are to lanes of different servers; `None` while only the
    /// first lane gets the request.
    server_count: Option<usize>,
    sum: Result<Space, Status>,
}

impl Statfs {
    /// Requests to all lanes are out.
    pub(crate) const fn of_all(server_count: usize) -> Self {
        Self { server_count: Some(server_count), sum: Ok(NOTHING) }
    }

    /// A request to the first lane is out: no other lane is known.
    pub(crate) const fn of_first() -> Self {
        Self { server_count: None, sum: Ok(NOTHING) }
    }

    /// Requests to the other lanes are out.
    pub(crate) const fn of_others(self, server_count: usize) -> Self {
        Self { server_count: Some(server_count), sum: self.sum }
    }

    /// The sum of the replies so far.
    pub(crate) const fn result(self) -> Result<Space, Status> {
        self.sum
    }

    pub(super) fn next(mut self, reply: PlanReply) -> Next {
        let found = match reply.outcome {
            Ok(Body::Space(space)) => Ok(space),
            Ok(_) => Err(Status::Protocol),
            Err(status) => Err(status),
        };
        let counts = self.server_count.is_none_or(|count| usize::from(reply.part) < count);
        self.sum = self.sum.and_then(|sum| Ok(add(sum, found?, counts)));
        match (self.server_count, self.sum) {
            (None, Ok(_)) => Next::OtherLanes(self),
            (Some(_), Ok(_)) if !reply.last => Next::Wait(Plan::Statfs(self)),
            (_, Err(_)) if !reply.last => Next::Wait(Plan::Statfs(self)),
            (_, sum) => Next::Done(sum.map(Answer::Space)),
        }
    }
}

const NOTHING: Space = Space {
    total_bytes: 0,
    free_bytes: 0,
    available_bytes: 0,
    inode_count: 0,
    inode_free_count: 0,
    lane_count: 0,
};

/// Adds a lane's inodes, and, if it `counts` for its server, the server's space.
const fn add(sum: Space, lane: Space, counts: bool) -> Space {
    let inode_count = sum.inode_count.saturating_add(lane.inode_count);
    if !counts {
        return Space { inode_count, ..sum };
    }
    Space {
        total_bytes: sum.total_bytes.saturating_add(lane.total_bytes),
        free_bytes: sum.free_bytes.saturating_add(lane.free_bytes),
        available_bytes: sum.available_bytes.saturating_add(lane.available_bytes),
        inode_count,
        inode_free_count: sum.inode_free_count.saturating_add(lane.inode_free_count),
        lane_count: sum.lane_count.saturating_add(lane.lane_count),
    }
}
