//! Files without a name and without a handle: object first, inode then.
//!
//! ```text
//! unlink, close, client expired ─▶ record durable ─▶ queue ─▶ data lane: ObjectRemove ─▶ its record
//!            InodeRemoved recorded ◀─ meta lane: ObjectDestroyed ◀─ durable, and all before it ◀─┘
//! ```
//! A crash anywhere leaves an orphan that the next start finds and destroys again. The inode goes only
//! when no client can bring a write back any more that would make the object again.

use crate::Lane;
use crate::peers::message::PeerBody;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use interface::{LogLevel, Mono, Turn};
use wire::{InodeNo, ShardId, Status};

/// The destructions of a lane.
#[derive(Debug, Default)]
pub(crate) struct Destroys {
    /// Orphans of this lane's metadata shards that are not being destroyed yet.
    pub(crate) queue: VecDeque<InodeNo>,
    /// Those whose objects are being removed, here or at peer lanes, and at which shards they still are.
    running: BTreeMap<InodeNo, BTreeSet<ShardId>>,
    /// Removals at this lane that failed.
    failed: Vec<InodeNo>,
    retry_at: Option<Mono>,
}

impl Destroys {
    /// Those that a data shard was asked for.
    pub(crate) fn running(&self) -> Vec<(InodeNo, ShardId)> {
        let all = self.running.iter();
        all.flat_map(|(inode, left)| left.iter().map(|shard| (*inode, *shard))).collect()
    }
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
            let shards = self.contents_shards(inode).into_iter().collect();
            self.destroys.running.insert(inode, shards);
            self.send_to_contents(turn, inode, &PeerBody::DestroyObject { inode });
        }
    }

    /// Removes the object of a peer lane's orphan.
    pub(crate) fn on_destroy_message(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        // The peer lane's recovery is over, and here a client may still bring a write back; or the peer
        // lane knows a newer map, and this one not yet that it has a part of the file.
        let is_known = inode.generation() <= self.config.map.generation();
        if !self.recovery.is_over() || !is_known {
            return self.recovery.removals.push(inode);
        }
        if self.part_shard(inode).is_some() {
            self.data.remove(turn, inode);
            self.on_outcomes(turn);
        }
    }

    /// The end of recovery, or a newer map.
    pub(crate) fn run_early_removals(&mut self, turn: &mut Turn<'_>) {
        for inode in core::mem::take(&mut self.recovery.removals) {
            self.on_destroy_message(turn, inode);
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

    /// The object of an orphan of this lane was removed at a shard: if it is there at none any more,
    /// removes the inode.
    pub(crate) fn on_object_destroyed(&mut self, inode: InodeNo, from: ShardId) {
        let shard = inode.shard();
        if !self.is_own(shard) {
            return;
        }
        // Else an earlier start asked for it, or it is done.
        let Some(left) = self.destroys.running.get_mut(&inode) else { return };
        left.remove(&from);
        if !left.is_empty() {
            return;
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
