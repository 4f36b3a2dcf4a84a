//! What was answered and is lost, and who was told: what Linux promises of fsync. Whoever has a file
//! open when something of it is lost is told by his next fsync, once; whoever opens it later, only
//! if nobody was told before.
//!
//! Any lane of a client may lose something of any file, and a file's fsync may come to another lane
//! than its open. So every lane tells its peer lanes of its losses, and the lane that opened a handle
//! says whether that handle's holder was told. An eviction goes through all lanes before any of them
//! talks to the server under the new uuid: what is lost is known everywhere by then.
//!
//! ```text
//! lane that loses   ── Lost (inode) ─▶ all        evicted ── Evicted (number) ─▶ all
//! lane of the fsync ── IsLost (handle) ─▶ lane that opened it ── WasLost ─▶ back
//! ```

use crate::client::Client;
use crate::handles::handle_lane;
use crate::locks::Asker;
use crate::plan::Plan;
use crate::replay::Entry;
use crate::{Answer, Sync};
use alloc::vec;
use alloc::vec::Vec;
use hashbrown::HashMap;
use interface::{LaneMessage, PeerAction, Turn};
use wire::{HandleId, InodeNo, LaneId, Status};

/// Inodes remembered one by one; of more it is only known that any may be among them.
const INODE_COUNT_MAX: usize = 4096;

/// The last loss of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Loss {
    /// Its place among all losses.
    no: u64,
    /// Somebody was told.
    told: bool,
}

/// What was lost of which file.
#[derive(Default, Debug)]
pub(crate) struct Losses {
    last_no: u64,
    inodes: HashMap<InodeNo, Loss>,
    /// Of inodes that are not remembered.
    others: Option<Loss>,
}

impl Losses {
    pub(crate) fn add(&mut self, inode: InodeNo) {
        self.last_no += 1;
        let loss = Loss { no: self.last_no, told: false };
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

    /// Whether something of it was ever lost.
    fn has(&mut self, inode: InodeNo) -> bool {
        self.last(inode).is_some()
    }

    /// Up to which loss whoever opens the file now needs not be told.
    pub(crate) fn seen_at_open(&mut self, inode: InodeNo) -> u64 {
        let last_no = self.last_no;
        self.last(inode).filter(|loss| !loss.told).map_or(last_no, |loss| loss.no - 1)
    }

    /// Whether something was lost behind `seen`, which is told now.
    pub(crate) fn tell(&mut self, inode: InodeNo, seen: &mut u64) -> bool {
        let last_no = self.last_no;
        let Some(loss) = self.last(inode).filter(|loss| loss.no > *seen) else { return false };
        loss.told = true;
        *seen = last_no;
        true
    }
}

/// What a lane knows of its peer lanes.
#[derive(Debug)]
pub(crate) struct PeerLanes {
    /// How often each was evicted.
    evicted_counts: Vec<u64>,
    /// For all of them, at the end of the turn.
    mails: Vec<LaneMessage>,
}

impl PeerLanes {
    pub(crate) fn new(lane_count: u16) -> Self {
        Self { evicted_counts: vec![0; usize::from(lane_count)], mails: Vec::new() }
    }
}

impl Client {
    /// What an entry changed is lost.
    pub(crate) fn lose(&mut self, entry: &Entry) {
        self.lost_untold = true;
        for inode in [Some(entry.inode), entry.made].into_iter().flatten() {
            self.handles.losses.add(inode);
            self.peer_lanes.mails.push(LaneMessage::Lost { inode });
        }
    }

    /// Something about a file is lost that no change of its tells of.
    pub(crate) fn lose_of(&mut self, inode: InodeNo) {
        self.lost_untold = true;
        self.handles.losses.add(inode);
        self.peer_lanes.mails.push(LaneMessage::Lost { inode });
    }

    /// This lane goes on under a new uuid: so do its peer lanes.
    pub(crate) fn tell_eviction(&mut self) {
        self.peer_lanes.mails.push(LaneMessage::Evicted { count: self.counters.evicted_count });
    }

    /// Whether all peer lanes have come as far as this lane: none can lose anything more that was
    /// answered under an earlier uuid.
    pub(crate) fn is_with_peer_lanes(&self) -> bool {
        let own = usize::from(self.config.lane.0);
        let counts = self.peer_lanes.evicted_counts.iter().enumerate();
        let behind = |count: u64| count < self.counters.evicted_count;
        counts.into_iter().all(|(lane, count)| lane == own || !behind(*count))
    }

    /// Ends the turn: what peer lanes must know.
    pub(crate) fn write_to_peer_lanes(&mut self, turn: &mut Turn<'_>) {
        for (to, message) in self.questions.drain(..) {
            turn.act(PeerAction::Message { to, message });
        }
        for message in core::mem::take(&mut self.peer_lanes.mails) {
            for lane in 0..self.peer_lanes.evicted_counts.len() {
                let to = LaneId(u16::try_from(lane).unwrap_or(u16::MAX));
                if to != self.config.lane {
                    turn.act(PeerAction::Message { to, message });
                }
            }
        }
    }

    /// A peer lane wrote.
    pub(crate) fn on_mail(&mut self, turn: &mut Turn<'_>, from: LaneId, message: LaneMessage) {
        match message {
            LaneMessage::Release { handle } => self.release(turn, handle),
            LaneMessage::Lost { inode } => self.handles.losses.add(inode),
            LaneMessage::Evicted { count } => {
                if let Some(known) = self.peer_lanes.evicted_counts.get_mut(usize::from(from.0)) {
                    *known = count;
                }
                while self.counters.evicted_count < count {
                    self.on_evicted(turn, true);
                }
            }
            LaneMessage::QueryLoss { handle, job } => {
                let lost = self.handles.tell_loss(handle);
                turn.act(PeerAction::Message {
                    to: from,
                    message: LaneMessage::LossReply { job, lost },
                });
            }
            LaneMessage::LossReply { job, lost } => {
                let job_id = usize::try_from(job).unwrap_or(usize::MAX);
                self.end_sync(job_id, lost);
            }
            LaneMessage::Lock { job, request: ask } => {
                self.on_lock_ask(turn, Asker { lane: from, job }, ask)
            }
            LaneMessage::LockDone { job, result } => self.on_lock_done(job, result),
            LaneMessage::LockInterrupt { job } => {
                self.on_lock_interrupt(turn, Asker { lane: from, job });
            }
            LaneMessage::LockRelease { inode, handle } => self.on_lock_release(inode, handle),
            LaneMessage::LocksPresent { inode, present: some } => {
                self.on_locks_at(from, inode, some)
            }
            LaneMessage::LocksPresentSeen { inode } => self.on_locks_seen(inode),
            // The server's, and the mount's own.
            LaneMessage::DestroyObject { .. }
            | LaneMessage::ObjectDestroyed { .. }
            | LaneMessage::Accessed { .. }
            | LaneMessage::QueryContents { .. }
            | LaneMessage::DurableContents { .. }
            | LaneMessage::Changed { .. }
            | LaneMessage::PrivilegedBits { .. }
            | LaneMessage::Containment(_)
            | LaneMessage::Interrupt { .. }
            | LaneMessage::Unmounted
            | LaneMessage::Moved { .. } => {}
        }
    }

    /// All shards have answered a Sync: whether its caller has to be told of a loss.
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
                let lost = self.handles.tell_loss(handle);
                self.end_sync(job_id, lost);
            }
            None => {
                // Nothing is known of who asks: the first to ask this lane is told.
                let mut seen = self.handles.losses.seen_at_open(inode);
                let lost = self.handles.losses.tell(inode, &mut seen);
                self.end_sync(job_id, lost);
            }
        }
    }

    fn ask_peer_lane(&mut self, job_id: usize, handle: HandleId) {
        let job = u64::try_from(job_id).unwrap_or(u64::MAX);
        self.questions.push((handle_lane(handle), LaneMessage::QueryLoss { handle, job }));
    }

    fn end_sync(&mut self, job_id: usize, lost: bool) {
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let Plan::Gather { outcome, .. } = job.plan else { return };
        let told = if lost { Err(Status::Io) } else { Ok(Answer::Done) };
        self.finish(job_id, outcome.and(told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNo = InodeNo(7);

    #[test]
    fn everybody_who_has_it_open_is_told_once() {
        let mut losses = Losses::default();
        let mut early = [losses.seen_at_open(FILE), losses.seen_at_open(FILE)];
        assert!(early.iter_mut().all(|seen| !losses.tell(FILE, seen)));
        losses.add(FILE);
        let mut untold = losses.seen_at_open(FILE);
        for seen in early.iter_mut().chain([&mut untold]) {
            assert!(losses.tell(FILE, seen));
            assert!(!losses.tell(FILE, seen), "once");
        }
        let mut late = losses.seen_at_open(FILE);
        assert!(!losses.tell(FILE, &mut late), "somebody knew before it was opened");
        assert!(!losses.tell(InodeNo(8), &mut 0), "another file");
        losses.add(FILE);
        for seen in early.iter_mut().chain([&mut untold, &mut late]) {
            assert!(losses.tell(FILE, seen), "a further loss");
        }
    }

    #[test]
    fn of_very_many_any_may_be_lost() {
        let mut losses = Losses::default();
        let mut seen = losses.seen_at_open(FILE);
        let mut innocent = losses.seen_at_open(InodeNo(1));
        losses.add(FILE);
        for number in 0..5000 {
            losses.add(InodeNo(1000 + number));
        }
        assert!(losses.inodes.len() <= INODE_COUNT_MAX);
        assert!(losses.tell(FILE, &mut seen) && losses.tell(InodeNo(1), &mut innocent));
        let mut late = losses.seen_at_open(FILE);
        assert!(!losses.tell(FILE, &mut late));
    }
}
