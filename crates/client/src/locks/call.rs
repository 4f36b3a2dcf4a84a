//! Calls about locks, at the lane that gets them: to the keeper, and back.

use super::Waiter;
use crate::client::Client;
use crate::plan::Plan;
use crate::{Answer, Call, CallId};
use interface::{LockRequest, MountMessage, Turn};
use wire::{HandleId, InodeNo, LaneId, SetLock, Status};

impl Client {
    /// Begins a call about locks; false: the call is of another kind.
    pub(crate) fn start_lock(&mut self, turn: &Turn<'_>, id: CallId, call: &Call<'_>) -> bool {
        let request = if let Call::SetLock(set) = call {
            let crate::SetLock { inode, kind, owner, lock, range, pid, wait, handle } = *set;
            let (wait_id, place) = (u64::from(wait), 0);
            let lock = SetLock { inode, kind, owner, lock, range, pid, wait_id, place };
            LockRequest::Set { lock, handle }
        } else if let Call::Flush { inode, owner } = call {
            LockRequest::Flush { inode: *inode, owner: *owner }
        } else {
            return false;
        };
        let (inode, flushes) = match request {
            LockRequest::Set { lock, .. } => (lock.inode, false),
            LockRequest::Flush { inode, .. } => (inode, true),
        };
        let keeper = self.keeper_of(inode);
        if flushes && keeper != self.config.lane && !self.locks.close_watchers.contains(&inode) {
            self.jobs.answer(id, Ok(Answer::Done));
            return true;
        }
        let refused = self.identity.refused().map(crate::Refused::status).filter(|_| !flushes);
        let waits = matches!(request, LockRequest::Set { lock, .. } if lock.wait_id > 0);
        let full = if flushes {
            None
        } else if waits && self.jobs.count() >= self.config.calls_max / 2 {
            // Unlocks must get through.
            Some(Status::NoLocks)
        } else {
            self.is_full().then_some(Status::Again)
        };
        if let Some(status) = refused.or(full) {
            self.jobs.answer(id, Err(status));
            return true;
        }
        let job_id = self.jobs.add(Some(id), Plan::LockCall { inode });
        let job = u64::try_from(job_id).unwrap_or(u64::MAX);
        if keeper == self.config.lane {
            self.on_lock_request(turn, Waiter { lane: keeper, job }, request);
        } else {
            self.peer_lanes.send(keeper, MountMessage::Lock { job, request });
        }
        true
    }

    /// An open file was closed: releases the locks taken through it, without an answer.
    pub fn release_locks(&mut self, inode: InodeNo, handle: HandleId) {
        let keeper = self.keeper_of(inode);
        if keeper == self.config.lane {
            self.on_lock_release(inode, handle);
        } else if self.locks.close_watchers.contains(&inode) {
            self.peer_lanes.send(keeper, MountMessage::LockRelease { inode, handle });
        }
    }

    /// Interrupts the process that waits for a lock.
    pub(crate) fn interrupt_lock(&mut self, turn: &Turn<'_>, job_id: usize, inode: InodeNo) {
        let keeper = self.keeper_of(inode);
        let job = u64::try_from(job_id).unwrap_or(u64::MAX);
        if keeper == self.config.lane {
            self.on_lock_interrupt(turn, Waiter { lane: keeper, job });
        } else {
            self.peer_lanes.send(keeper, MountMessage::LockInterrupt { job });
        }
    }

    /// The keeper has answered.
    pub(crate) fn on_lock_done(&mut self, job: u64, result: Result<(), Status>) {
        let job_id = usize::try_from(job).unwrap_or(usize::MAX);
        let is_lock = |plan| matches!(plan, Plan::LockCall { .. });
        if self.jobs.get(job_id).is_some_and(|job| is_lock(job.plan)) {
            self.finish(job_id, result.map(|()| Answer::Done));
        }
    }

    /// The keeper announces whether it wants notifications of closes of a file.
    pub(crate) fn on_locks_at(&mut self, from: LaneId, inode: InodeNo, some: bool) {
        if some {
            self.locks.close_watchers.insert(inode);
            self.peer_lanes.send(from, MountMessage::LocksPresentSeen { inode });
        } else {
            self.locks.close_watchers.remove(&inode);
        }
    }

    /// The lane that keeps a file's locks; any rule that spreads files over lanes will do.
    #[must_use]
    pub fn keeper_of(&self, inode: InodeNo) -> LaneId {
        let mixed = inode.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
        let lane = mixed % u64::from(self.config.lane_count.max(1));
        LaneId(u16::try_from(lane).unwrap_or(0))
    }
}
