//! Statfs: one request to each lane that has metadata shards, since each counts its own inodes.
//! Space is the same whoever is asked; the last answer's is taken.

use super::{Ask, Body, Got, Next, Plan};
use crate::Answer;
use wire::{InodeNo, Space, Status};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Statfs {
    /// Who is asked, by its first shard.
    lane: u16,
    /// Inodes in use at the lanes before.
    inode_count: u64,
}

impl Statfs {
    /// The plan and its first request.
    pub(crate) fn begin() -> (Self, wire::Statfs) {
        (Self { lane: 0, inode_count: 0 }, ask(0))
    }

    pub(super) fn next(self, got: Got) -> Next {
        let space = match got.outcome {
            Ok(Body::Space(space)) => space,
            Ok(_) => return Next::Done(Err(Status::Protocol)),
            Err(status) => return Next::Done(Err(status)),
        };
        let inode_count = self.inode_count.saturating_add(space.inode_count);
        let lane = self.lane.saturating_add(1);
        if lane < space.lane_count {
            return Next::Ask(Plan::Statfs(Self { lane, inode_count }), Ask::Statfs(ask(lane)));
        }
        Next::Done(Ok(Answer::Space(Space { inode_count, ..space })))
    }
}

/// Shards are dealt out to lanes in turn.
fn ask(lane: u16) -> wire::Statfs {
    wire::Statfs { inode: InodeNo::new(lane, 1) }
}
