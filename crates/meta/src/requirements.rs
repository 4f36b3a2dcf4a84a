//! How an operation declares the inodes and entries that may be of another shard.
//!
//! Within one shard these calls cost nothing. Otherwise the operation ends with `CrossDevice` at
//! [`Txn::requirements_met`], and the coordinator executes it again until all requirements are met:
//! locked, here as well as at other shards.

use crate::multi_shard::{AncestorSearch, Requirement, search_ancestors};
use crate::txn::Txn;
use alloc::boxed::Box;
use wire::{InodeNo, Name, Rule, Status};

impl Txn<'_> {
    pub(crate) fn is_here(&self, inode: InodeNo) -> bool {
        inode.shard() == self.state.shard()
    }

    pub(crate) const fn is_multi_shard(&self) -> bool {
        self.multi_shard.is_some()
    }

    /// Requires an inode, to change it.
    pub(crate) fn require_inode(&mut self, inode: InodeNo) {
        if self.multi_shard.is_some() {
            self.requirement(Requirement::Inode(inode));
        } else {
            self.needs_other_shard |= !self.is_here(inode);
        }
    }

    /// Requires an entry, to read and change it.
    pub(crate) fn require_entry(&mut self, dir: InodeNo, name: Name<'_>) {
        if self.multi_shard.is_some() {
            self.requirement(Requirement::Entry(dir, Box::from(name.bytes())));
        } else {
            self.needs_other_shard |= !self.is_here(dir);
        }
    }

    /// Fails unless all requirements are met.
    pub(crate) fn requirements_met(&self) -> Result<(), Status> {
        let missing = self
            .multi_shard
            .as_ref()
            .is_some_and(|multi_shard| !multi_shard.plan.requirements.is_empty());
        if self.needs_other_shard || missing { Err(Status::CrossDevice) } else { Ok(()) }
    }

    fn requirement(&mut self, requirement: Requirement) {
        if let Some(multi_shard) = &mut self.multi_shard
            && !multi_shard.view.has(&requirement)
            && !multi_shard.plan.requirements.contains(&requirement)
        {
            multi_shard.plan.requirements.push(requirement);
        }
    }

    /// Requires a new inode number in this directory's shard.
    pub(crate) fn require_new_inode(&mut self, dir: InodeNo) {
        if self.multi_shard.is_some() {
            self.requirement(Requirement::New(dir.shard()));
        }
    }

    /// Places a new directory near the root at another shard, if it is that shard's turn.
    pub(crate) fn require_placement(&mut self, parent: InodeNo) {
        let Some(placement) = self.placement else { return };
        let depth = match self.row(parent) {
            Ok(row) if row.inode == InodeNo::ROOT => 1,
            Ok(row) if row.parent == InodeNo::ROOT => 2,
            Ok(_) | Err(_) => return,
        };
        if depth > placement.depth_max || placement.shard == self.state.shard() {
            return;
        }
        if self.multi_shard.is_some() {
            self.requirement(Requirement::New(placement.shard));
        } else {
            self.needs_other_shard = true;
        }
    }

    /// Requires a stable topology for moving a directory, unless both parents lie in one subtree of
    /// this shard.
    pub(crate) fn require_topology(&mut self, parent: InodeNo, new_parent: InodeNo) {
        if !self.rules.hold(Rule::Topology) {
            return;
        }
        if self.multi_shard.is_some() {
            return self.requirement(Requirement::Topology);
        }
        // A missing or removed directory cannot be a target.
        let stays = |dir| self.dir_row(dir).is_ok_and(|row| row.nlink > 0);
        if stays(parent) && stays(new_parent) {
            self.needs_other_shard |= self.entry(parent) != self.entry(new_parent);
        }
    }

    /// The topmost ancestor of `dir` reachable within this shard.
    fn entry(&self, dir: InodeNo) -> Option<InodeNo> {
        let mut at = dir;
        loop {
            let row = self.state.inode(at)?.row;
            if row.parent == at || !self.is_here(row.parent) {
                return Some(at);
            }
            at = row.parent;
        }
    }

    /// Whether `dir` is `inode` or below it.
    ///
    /// # Errors
    /// `Busy` when a directory on the path is about to be moved; `CrossDevice` when the path leaves
    /// this shard and the rest is not known yet.
    pub(crate) fn is_within(&mut self, dir: InodeNo, inode: InodeNo) -> Result<bool, Status> {
        let me = self.multi_shard.as_ref().map(|multi_shard| multi_shard.txn);
        let mut at = dir;
        loop {
            match search_ancestors(self.state, self.locks, (at, inode), me) {
                Ok(AncestorSearch::Found) => return Ok(true),
                Ok(AncestorSearch::Top) => return Ok(false),
                // A move within one subtree cannot create a loop above it.
                Ok(AncestorSearch::LeftShard(_))
                    if self.multi_shard.is_none() || !self.rules.hold(Rule::Topology) =>
                {
                    return Ok(false);
                }
                Ok(AncestorSearch::LeftShard(above)) => at = above,
                Err(holder) => {
                    *self.blocker = Some(holder);
                    return Err(Status::Busy);
                }
            }
            let search = self
                .multi_shard
                .as_ref()
                .and_then(|multi_shard| multi_shard.view.search(at, inode));
            match search {
                Some(AncestorSearch::Found) => return Ok(true),
                Some(AncestorSearch::Top) => return Ok(false),
                Some(AncestorSearch::LeftShard(above)) => at = above,
                None => {
                    self.requirement(Requirement::Ancestor { dir: at, inode });
                    return Err(Status::CrossDevice);
                }
            }
        }
    }
}
