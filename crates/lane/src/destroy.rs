//! Files without a name and without a handle: object first, inode then.
//!
//! ```text
//! unlink, close, client expired ─▶ record durable ─▶ queue ─▶ data lane: ObjectRemove ─▶ its record
//!            InodeRemoved recorded ◀─ meta lane: ObjectDestroyed ◀─ durable, and all before it ◀─┘
//!
//! a file that may have grown: home shard ─ narrow ─▶ removed
//!                                        └ NotNarrow ─▶ other shards ─▶ all removed ─▶ home shard
//! ```
//! A crash anywhere leaves an orphan that the next start finds and destroys again. The inode goes only
//! when no client can bring a write back any more that would make the object again. The home shard,
//! which alone knows whether others have contents of a file that grows, comes last (docs/protocol.md
//! R13.47).

use crate::Lane;
use crate::peers::message::PeerBody;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use data::Width;
use interface::{LogLevel, Mono, Turn};
use wire::{InodeNo, Layout, PeerLane, ShardId, Status};

/// Which shards are being asked to remove their objects of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The home shard, if no other one has contents.
    Narrow,
    /// All but the home shard.
    Others,
    /// The home shard.
    Home,
}

/// An inode that is being destroyed.
#[derive(Debug)]
struct Removal {
    step: Step,
    /// Those of the step that have not answered.
    left: BTreeSet<ShardId>,
}

impl Removal {
    const fn message(&self, inode: InodeNo) -> PeerBody<'static> {
        match self.step {
            Step::Narrow => PeerBody::DestroyNarrow { inode },
            Step::Others | Step::Home => PeerBody::DestroyObject { inode },
        }
    }
}

/// The destructions of a lane.
#[derive(Debug, Default)]
pub(crate) struct Destroys {
    /// Orphans of this lane's metadata shards that are not being destroyed yet.
    pub(crate) queue: VecDeque<InodeNo>,
    /// Those whose objects are being removed, here or at peer lanes.
    running: BTreeMap<InodeNo, Removal>,
    /// Removals at this lane that failed.
    failed: Vec<InodeNo>,
    retry_at: Option<Mono>,
}

impl Lane {
    /// Destroys an inode once everything recorded so far is durable. Behind a fence that never
    /// happens, and the next start finds out whether the inode has a name.
    pub(crate) fn destroy_when_durable(&mut self, inode: InodeNo) {
        if self.commit.has_failed() {
            return;
        }
        match self.commit.last_unsafe() {
            Some(until) => self.commit.dependents(until).orphans.push(inode),
            None => self.destroys.queue.push_back(inode),
        }
    }

    /// Begins to destroy queued orphans.
    pub(crate) fn destroy(&mut self, turn: &mut Turn<'_>) {
        let count_max = self.config.limits.destroy_count_max;
        let may = !self.is_stopping() && !self.commit.has_failed() && !self.freeze.is_on();
        while self.destroys.running.len() < count_max && self.space_for_own() && may {
            let Some(inode) = self.destroys.queue.pop_front() else { return };
            match self.metas[self.meta_index(inode.shard())].is_orphan(inode) {
                Some(true) => {}
                Some(false) => continue,
                // A transaction may be about to give it a name.
                None => {
                    self.destroys.queue.push_back(inode);
                    return;
                }
            }
            let known = self.metas[self.meta_index(inode.shard())].layout(inode).flatten();
            let grows = known.is_some_and(|layout: Layout| layout.narrow);
            let has_others = self.contents_shards(inode).len() > 1;
            let step = match (has_others, grows) {
                (false, _) => Step::Home,
                (true, true) => Step::Narrow,
                (true, false) => Step::Others,
            };
            self.ask_to_remove(turn, inode, step);
        }
    }

    /// The next step of a removal.
    fn ask_to_remove(&mut self, turn: &mut Turn<'_>, inode: InodeNo, step: Step) {
        let shards = self.contents_shards(inode);
        let (home, others) = shards.split_at(1);
        let asked = if step == Step::Others { others } else { home };
        let removal = Removal { step, left: asked.iter().copied().collect() };
        let message = removal.message(inode);
        self.destroys.running.insert(inode, removal);
        asked.iter().for_each(|shard| self.send_to_shard(turn, *shard, &message));
    }

    /// The removals that a lane has to be asked for again, when a connection to it begins.
    pub(crate) fn removals_at(&self, lane: PeerLane) -> Vec<PeerBody<'static>> {
        let all =
            self.destroys.running.iter().filter(|(_, removal)| {
                removal.left.iter().any(|shard| self.lane_of(*shard) == lane)
            });
        all.map(|(inode, removal)| removal.message(*inode)).collect()
    }

    /// Removes the object of a peer lane's orphan. `if_narrow`: only if no other shard has contents of
    /// it, of which this one is the home shard.
    pub(crate) fn on_destroy_message(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        if_narrow: bool,
    ) {
        // The peer lane's recovery is over, and here a client may still bring a write back; or the peer
        // lane knows a newer map, and this one not yet that it has a part of the file.
        let is_known = inode.generation() <= self.config.map.generation();
        if !self.recovery.is_over() || !is_known {
            return self.recovery.removals.push((inode, if_narrow));
        }
        if self.part_shard(inode).is_none() {
            return;
        }
        if if_narrow && self.data.width(inode) != Width::Narrow {
            return self.send_to_shard(turn, inode.shard(), &PeerBody::NotNarrow { inode });
        }
        self.data.remove(turn, inode);
        self.on_outcomes(turn);
    }

    /// The end of recovery, or a newer map.
    pub(crate) fn run_early_removals(&mut self, turn: &mut Turn<'_>) {
        for (inode, if_narrow) in core::mem::take(&mut self.recovery.removals) {
            self.on_destroy_message(turn, inode, if_narrow);
        }
    }

    /// An object of this lane was removed, or could not be.
    pub(crate) fn on_removed(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        result: Result<(), Status>,
    ) {
        const RETRY_MS: u64 = 10_000;
        if let Err(status) = result {
            let text = status.text();
            let line = format!("the contents of removed inode {inode} cannot be freed: {text}");
            self.log(turn, LogLevel::Warning, &line);
            self.destroys.failed.push(inode);
            let retry_at = turn.now.mono.after_ms(RETRY_MS);
            self.destroys.retry_at.get_or_insert(retry_at);
            return;
        }
        // Behind a fence never: the next start destroys it again.
        match self.commit.last_unsafe() {
            _ if self.commit.has_failed() => {}
            Some(until) => self.commit.dependents(until).removed.push(inode),
            None => self.tell_removed(turn, inode),
        }
    }

    /// An object is removed, and no record is left that would create it again.
    pub(crate) fn tell_removed(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let Some(shard) = self.part_shard(inode) else { return };
        self.send_to_shard(turn, inode.shard(), &PeerBody::ObjectDestroyed { inode, shard });
    }

    /// The home shard of an orphan of this lane has not removed it: others have contents of it, too.
    pub(crate) fn on_not_narrow(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let asked = self.destroys.running.get(&inode).map(|removal| removal.step);
        if asked == Some(Step::Narrow) {
            self.ask_to_remove(turn, inode, Step::Others);
        }
    }

    /// The object of an orphan of this lane was removed at a shard: if it is there at none any more,
    /// removes the inode.
    pub(crate) fn on_object_destroyed(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        from: ShardId,
    ) {
        let shard = inode.shard();
        if !self.is_own(shard) {
            return;
        }
        // Else an earlier start asked for it, or it is done.
        let Some(removal) = self.destroys.running.get_mut(&inode) else { return };
        removal.left.remove(&from);
        if !removal.left.is_empty() {
            return;
        }
        if removal.step == Step::Others {
            return self.ask_to_remove(turn, inode, Step::Home);
        }
        self.destroys.running.remove(&inode);
        let index = self.meta_index(shard);
        let mut changes = self.scratch.empty();
        let effect = self.metas[index].destroyed(inode, &mut changes);
        if effect.transno.0 > 0 {
            self.record_own(shard, effect.transno, &changes);
        }
        self.scratch.recycle(changes);
    }

    /// Retries failed removals.
    pub(crate) fn retry_removals(&mut self, turn: &mut Turn<'_>) {
        if self.destroys.retry_at.is_some_and(|at| at <= turn.now.mono) {
            self.destroys.retry_at = None;
            if self.commit.has_failed() {
                return;
            }
            for inode in core::mem::take(&mut self.destroys.failed) {
                self.data.remove(turn, inode);
            }
            self.on_outcomes(turn);
        }
    }

    /// The number of orphans being destroyed.
    pub(crate) fn destroying_count(&self) -> usize {
        self.destroys.running.len()
    }

    pub(crate) const fn removals_retry_at(&self) -> Option<Mono> {
        self.destroys.retry_at
    }
}
