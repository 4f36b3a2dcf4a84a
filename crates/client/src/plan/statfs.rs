//! Statfs: one request to each lane with metadata shards, because each counts its own inodes. All
//! lanes report the same space; the last reply's is taken.

use super::{Body, FollowUp, Next, Plan, PlanReply};
use crate::Answer;
use wire::{InodeNo, Space, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Statfs {
    /// The lane of the current request, by its first shard.
    lane: u16,
    /// Inodes in use at the earlier lanes.
    inode_count: u64,
}

impl Statfs {
    /// The plan and its first request.
    pub(crate) fn begin() -> (Self, wire::Statfs) {
        (Self { lane: 0, inode_count: 0 }, request(0))
    }

    pub(super) fn next(self, reply: PlanReply) -> Next {
        let space = match reply.outcome {
            Ok(Body::Space(space)) => space,
            Ok(_) => return Next::Done(Err(Status::Protocol)),
            Err(status) => return Next::Done(Err(status)),
        };
        let inode_count = self.inode_count.saturating_add(space.inode_count);
        let lane = self.lane.saturating_add(1);
        if lane < space.lane_count {
            return Next::Send(
                Plan::Statfs(Self { lane, inode_count }),
                FollowUp::Statfs(request(lane)),
            );
        }
        Next::Done(Ok(Answer::Space(Space { inode_count, ..space })))
    }
}

/// Shards are assigned to lanes round robin.
fn request(lane: u16) -> wire::Statfs {
    wire::Statfs { inode: InodeNo::new(lane, 1) }
}
