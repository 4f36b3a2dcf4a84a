//! Lost changes and who was told of them, as Linux promises for fsync: each holder of a file that
//! was open when a change of it was lost gets one error from its next fsync; a holder that opened
//! it later, only if no other holder got one before.
//!
//! Any lane of a client may lose a change of any file, and a file's fsync may come to another lane
//! than its open. So every lane announces its losses to its peer lanes, and the lane that opened a
//! handle decides whether its holder was told. All lanes process an eviction before any of them
//! uses the new uuid: every lane knows all losses by then.
//!
//! ```text
//! lane that loses   ── Lost (inode) ─▶ all        evicted ── Evicted (number) ─▶ all
//! lane of the fsync ── IsLost (handle) ─▶ lane that opened it ── WasLost ─▶ back
//! ```

use crate::client::Client;
use crate::handles::handle_lane;
use crate::locks::Waiter;
use crate::plan::Plan;
use crate::replay::Entry;
use crate::{Answer, Sync};
use alloc::vec;
use alloc::vec::Vec;
use hashbrown::HashMap;
use interface::{MountMessage, PeerAction, Seed, Turn};
use wire::{HandleId, InodeNo, LaneId, Status};

/// The most inodes with an entry of their own; beyond, any inode may be among the lost.
const INODE_COUNT_MAX: usize = 4096;

/// The last loss of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Loss {
    /// Its number among all losses.
    no: u64,
    /// A holder got an error for it.
    reported: bool,
}

/// Lost changes, by file.
#[derive(Default, Debug)]
pub(crate) struct Losses {
    last_no: u64,
    inodes: HashMap<InodeNo, Loss, Seed>,
    /// The last loss among inodes without an entry.
    others: Option<Loss>,
}

impl Losses {
    pub(crate) fn add(&mut self, inode: InodeNo) {
        self.last_no += 1;
        let loss = Loss { no: self.last_no, reported: false };
        if self.inodes.len() >= INODE_COUNT_MAX && !self.inodes.contains_key(&inode) {
            self.inodes.clear();
            self.others = Some(loss);
        } else {
            self.inodes.insert(inode, loss);
        }
    }

    fn last(&mut self, inode: InodeNo) -> Option<&mut Loss> {
        let known = self.inodes.get_mut(&inode);
        known.into_iter().chain(&mut self.others).max_by_key(|loss| loss.no)
    }

    /// Whether any change of the inode was ever lost.
    fn has(&mut self, inode: InodeNo) -> bool {
        self.last(inode).is_some()
    }

    /// The number of the last loss that a handle opened now need not report.
    pub(crate) fn seen_at_open(&mut self, inode: InodeNo) -> u64 {
        let last_no = self.last_no;
        self.last(inode).filter(|loss| !loss.reported).map_or(last_no, |loss| loss.no - 1)
    }

    /// Whether there was a loss after `seen`; it counts as reported from now on.
    pub(crate) fn report_after(&mut self, inode: InodeNo, seen: &mut u64) -> bool {
        let last_no = self.last_no;
        let Some(loss) = self.last(inode).filter(|loss| loss.no > *seen) else { return false };
        loss.reported = true;
        *seen = last_no;
        true
    }
}

/// What a lane knows of its peer lanes.
#[derive(Debug)]
pub(crate) struct PeerLanes {
    /// The evictions of each.
    evicted_counts: Vec<u64>,
    /// Messages to all of them, sent at the end of the turn.
    broadcasts: Vec<MountMessage>,
}

impl PeerLanes {
    pub(crate) fn new(lane_count: u16) -> Self {
        Self { evicted_counts: vec![0; usize::from(lane_count)], broadcasts: Vec::new() }
    }
}

impl Client {
    /// Records the loss of a replay entry's change.
    pub(crate) fn lose(&mut self, entry: &Entry) {
        self.loss_unreported = true;
        for inode in [Some(entry.inode), entry.made].into_iter().flatten() {
            self.handles.losses.add(inode);
            self.peer_lanes.broadcasts.push(MountMessage::Lost { inode });
        }
    }

    /// Records a loss that belongs to no change, such as a lock's.
    pub(crate) fn lose_inode(&mut self, inode: InodeNo) {
        self.loss_unreported = true;
        self.handles.losses.add(inode);
        self.peer_lanes.broadcasts.push(MountMessage::Lost { inode });
    }

    /// Announces that this lane continues under a new uuid.
    pub(crate) fn announce_eviction(&mut self) {
        self.peer_lanes
            .broadcasts
            .push(MountMessage::Evicted { count: self.counters.evicted_count });
    }

    /// Whether all peer lanes have processed as many evictions as this lane: then no answer under
    /// an earlier uuid can still be lost.
    pub(crate) fn peer_lanes_caught_up(&self) -> bool {
        let own = usize::from(self.config.lane.0);
        let counts = self.peer_lanes.evicted_counts.iter().enumerate();
        let behind = |count: u64| count < self.counters.evicted_count;
        counts.into_iter().all(|(lane, count)| lane == own || !behind(*count))
    }

    /// Ends the turn: sends the messages for peer lanes.
    pub(crate) fn send_to_peer_lanes(&mut self, turn: &mut Turn<'_>) {
        for (to, message) in self.peer_messages.drain(..) {
            turn.act(PeerAction::Message { to, message });
        }
        for message in core::mem::take(&mut self.peer_lanes.broadcasts) {
            for lane in 0..self.peer_lanes.evicted_counts.len() {
                let to = LaneId(u16::try_from(lane).unwrap_or(u16::MAX));
                if to != self.config.lane {
                    turn.act(PeerAction::Message { to, message });
                }
            }
        }
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
                if let Some(known) = self.peer_lanes.evicted_counts.get_mut(usize::from(from.0)) {
                    *known = count;
                }
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
            // For the mount.
            MountMessage::Interrupt { .. }
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
        self.peer_messages.push((handle_lane(handle), MountMessage::QueryLoss { handle, job }));
    }

    fn end_sync(&mut self, job_id: usize, lost: bool) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let Plan::Gather { outcome, .. } = job.plan else { return };
        let outcome_of_losses = if lost { Err(Status::Io) } else { Ok(Answer::Done) };
        self.finish(job_id, outcome.and(outcome_of_losses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNo = InodeNo(7);

    #[test]
    fn every_holder_of_an_open_file_is_told_once() {
        let mut losses = Losses::default();
        let mut early = [losses.seen_at_open(FILE), losses.seen_at_open(FILE)];
        assert!(early.iter_mut().all(|seen| !losses.report_after(FILE, seen)));
        losses.add(FILE);
        let mut unreported = losses.seen_at_open(FILE);
        for seen in early.iter_mut().chain([&mut unreported]) {
            assert!(losses.report_after(FILE, seen));
            assert!(!losses.report_after(FILE, seen), "once");
        }
        let mut late = losses.seen_at_open(FILE);
        assert!(
            !losses.report_after(FILE, &mut late),
            "another holder was told before it was opened"
        );
        assert!(!losses.report_after(InodeNo(8), &mut 0), "another file");
        losses.add(FILE);
        for seen in early.iter_mut().chain([&mut unreported, &mut late]) {
            assert!(losses.report_after(FILE, seen), "a further loss");
        }
    }

    #[test]
    fn beyond_the_limit_any_inode_counts_as_lost() {
        let mut losses = Losses::default();
        let mut seen = losses.seen_at_open(FILE);
        let mut innocent = losses.seen_at_open(InodeNo(1));
        losses.add(FILE);
        for number in 0..5000 {
            losses.add(InodeNo(1000 + number));
        }
        assert!(losses.inodes.len() <= INODE_COUNT_MAX);
        assert!(
            losses.report_after(FILE, &mut seen) && losses.report_after(InodeNo(1), &mut innocent)
        );
        let mut late = losses.seen_at_open(FILE);
        assert!(!losses.report_after(FILE, &mut late));
    }
}
