//! The side of whoever is asked by a face: to the keeper, and back.

use super::Asker;
use crate::client::Client;
use crate::plan::Plan;
use crate::{Answer, Call, CallId};
use interface::{LaneMessage, LockRequest, Turn};
use wire::{HandleId, InodeNo, LaneId, SetLock, Status};

impl Client {
    /// Begins a call about locks; false: it is none.
    pub(crate) fn start_lock(&mut self, turn: &Turn<'_>, id: CallId, call: &Call<'_>) -> bool {
        let ask = if let Call::SetLock(set) = call {
            let crate::SetLock { inode, kind, owner, lock, range, pid, wait, handle } = *set;
            let (wait_id, place) = (u64::from(wait), 0);
            let lock = SetLock { inode, kind, owner, lock, range, pid, wait_id, place };
            LockRequest::Set { lock, handle }
        } else if let Call::Flush { inode, owner } = call {
            LockRequest::Flush { inode: *inode, owner: *owner }
        } else {
            return false;
        };
        let (inode, flushes) = match ask {
            LockRequest::Set { lock, .. } => (lock.inode, false),
            LockRequest::Flush { inode, .. } => (inode, true),
        };
        let keeper = self.keeper_of(inode);
        if flushes && keeper != self.config.lane && !self.locks.told.contains(&inode) {
            self.answers.push_back((id, Ok(Answer::Done)));
            return true;
        }
        let refused = self.refused.map(crate::Refused::status).filter(|_| !flushes);
        let waits = matches!(ask, LockRequest::Set { lock, .. } if lock.wait_id > 0);
        let full = if flushes {
            None
        } else if waits && self.jobs.count() >= self.config.calls_max / 2 {
            // Those who unlock must get through.
            Some(Status::NoLocks)
        } else {
            self.is_full().then_some(Status::Again)
        };
        if let Some(status) = refused.or(full) {
            self.answers.push_back((id, Err(status)));
            return true;
        }
        let job_id = self.begin_gather(id, Plan::LockCall { inode });
        let job = u64::try_from(job_id).unwrap_or(u64::MAX);
        if keeper == self.config.lane {
            self.on_lock_ask(turn, Asker { lane: keeper, job }, ask);
        } else {
            self.questions.push((keeper, LaneMessage::Lock { job, request: ask }));
        }
        true
    }

    /// An open file is closed for good: what was locked through it goes, with nobody waiting.
    pub fn release_locks(&mut self, inode: InodeNo, handle: HandleId) {
        let keeper = self.keeper_of(inode);
        if keeper == self.config.lane {
            self.on_lock_release(inode, handle);
        } else if self.locks.told.contains(&inode) {
            self.questions.push((keeper, LaneMessage::LockRelease { inode, handle }));
        }
    }

    /// The process that waits for a lock gives up.
    pub(crate) fn interrupt_lock(&mut self, turn: &Turn<'_>, job_id: usize, inode: InodeNo) {
        let keeper = self.keeper_of(inode);
        let job = u64::try_from(job_id).unwrap_or(u64::MAX);
        if keeper == self.config.lane {
            self.on_lock_interrupt(turn, Asker { lane: keeper, job });
        } else {
            self.questions.push((keeper, LaneMessage::LockInterrupt { job }));
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

    /// Peer lanes of the keeper hear of files whose closes it wants to know.
    pub(crate) fn on_locks_at(&mut self, from: LaneId, inode: InodeNo, some: bool) {
        if some {
            self.locks.told.insert(inode);
            self.questions.push((from, LaneMessage::LocksPresentSeen { inode }));
        } else {
            self.locks.told.remove(&inode);
        }
    }

    /// The lane that keeps a file's locks: any rule will do that spreads files over lanes.
    #[must_use]
    pub fn keeper_of(&self, inode: InodeNo) -> LaneId {
        let mixed = inode.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
        let lane = mixed % u64::from(self.config.lane_count.max(1));
        LaneId(u16::try_from(lane).unwrap_or(0))
    }
}
