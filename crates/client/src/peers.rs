//! The messages between the lanes of a client. Any lane may lose a change of any file, and a
//! file's fsync may come to another lane than its open. So every lane announces its losses to its
//! peer lanes, and the lane that opened a handle decides whether its holder has got the error. All
//! lanes process an eviction before any of them uses the new uuid: every lane knows all losses by
//! then.
//!
//! ```text
//! lane that loses   ── Lost (inode) ─▶ all        evicted ── Evicted (number) ─▶ all
//! lane of the fsync ── QueryLoss (handle) ─▶ lane that opened it ── LossReply ─▶ back
//! ```

use crate::client::Client;
use crate::handles::handle_lane;
use crate::locks::Waiter;
use crate::plan::Plan;
use crate::replay::Entry;
use crate::{Answer, Sync};
use interface::{MountMessage, PeerAction, Turn};
use wire::{HandleId, InodeNo, LaneId, Status};

impl Client {
    /// Records the loss of a replay entry's change.
    pub(crate) fn lose(&mut self, entry: &Entry) {
        for inode in [Some(entry.inode), entry.made].into_iter().flatten() {
            self.lose_inode(inode);
        }
    }

    /// Records a loss that belongs to no change, such as a lock's.
    pub(crate) fn lose_inode(&mut self, inode: InodeNo) {
        self.handles.losses.add_own(inode);
        self.peer_lanes.broadcast(MountMessage::Lost { inode });
    }

    /// Announces that this lane continues under a new uuid.
    pub(crate) fn announce_eviction(&mut self) {
        self.peer_lanes.broadcast(MountMessage::Evicted { count: self.counters.evicted_count });
    }

    /// Whether all peer lanes have processed as many evictions as this lane: then no answer under
    /// an earlier uuid can still be lost.
    pub(crate) fn peer_lanes_caught_up(&self) -> bool {
        self.peer_lanes.have_processed(self.counters.evicted_count)
    }

    /// Applies a message from a peer lane.
    pub(crate) fn on_peer_message(
        &mut self,
        turn: &mut Turn<'_>,
        from: LaneId,
        message: MountMessage,
    ) {
        match message {
            MountMessage::Release { handle } => self.release(turn, handle),
            MountMessage::Lost { inode } => self.handles.losses.add(inode),
            MountMessage::Evicted { count } => {
                self.peer_lanes.set_evicted_count(from, count);
                while self.counters.evicted_count < count {
                    self.on_evicted(turn, true);
                }
            }
            MountMessage::QueryLoss { handle, job } => {
                let lost = self.handles.report_loss(handle);
                turn.act(PeerAction::Message {
                    to: from,
                    message: MountMessage::LossReply { job, lost },
                });
            }
            MountMessage::LossReply { job, lost } => {
                let job_id = usize::try_from(job).unwrap_or(usize::MAX);
                self.end_sync(job_id, lost);
            }
            MountMessage::Lock { job, request: ask } => {
                self.on_lock_request(turn, Waiter { lane: from, job }, ask)
            }
            MountMessage::LockDone { job, result } => self.on_lock_done(job, result),
            MountMessage::LockInterrupt { job } => {
                self.on_lock_interrupt(turn, Waiter { lane: from, job });
            }
            MountMessage::LockRelease { inode, handle } => self.on_lock_release(inode, handle),
            MountMessage::LocksPresent { inode, present: some } => {
                self.on_locks_at(from, inode, some)
            }
            MountMessage::LocksPresentSeen { inode } => self.on_locks_seen(inode),
            MountMessage::Abandoned { inode, is_over } => self.on_abandoned(inode, is_over),
            // For the mount.
            MountMessage::Interrupt { .. }
            | MountMessage::ForgetsNames
            | MountMessage::Pages { .. }
            | MountMessage::Written { .. }
            | MountMessage::Forgotten { .. }
            | MountMessage::Register { .. }
            | MountMessage::OpenToWrite { .. }
            | MountMessage::Unmounted
            | MountMessage::Moved { .. } => {}
        }
    }

    /// All shards have answered a Sync: decides whether its caller gets an error for a loss.
    pub(crate) fn look_for_losses(&mut self, job_id: usize, sync: Sync) {
        let Sync { inode, handle, .. } = sync;
        if !self.handles.losses.has(inode) {
            return self.end_sync(job_id, false);
        }
        match handle {
            Some(handle) if handle_lane(handle) != self.config.lane => {
                self.ask_peer_lane(job_id, handle);
            }
            Some(handle) => {
                let lost = self.handles.report_loss(handle);
                self.end_sync(job_id, lost);
            }
            None => {
                // The holder is not known: the first sync through this lane reports it.
                let mut seen = self.handles.losses.seen_at_open(inode);
                let lost = self.handles.losses.report_after(inode, &mut seen);
                self.end_sync(job_id, lost);
            }
        }
    }

    fn ask_peer_lane(&mut self, job_id: usize, handle: HandleId) {
        let job = u64::try_from(job_id).unwrap_or(u64::MAX);
        self.peer_lanes.send(handle_lane(handle), MountMessage::QueryLoss { handle, job });
    }

    fn end_sync(&mut self, job_id: usize, lost: bool) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let Plan::Sync { outcome, .. } = job.plan else { return };
        let outcome_of_losses = if lost { Err(Status::Io) } else { Ok(Answer::Done) };
        self.finish(job_id, outcome.and(outcome_of_losses));
    }
}
