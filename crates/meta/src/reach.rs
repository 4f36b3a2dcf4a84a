//! How an operation says what it reaches beyond its own inode and entry: all of it may be another
//! shard's.
//!
//! Within one shard nothing is in the way and this costs nothing. Otherwise the operation ends with
//! `CrossDevice` at [`Txn::reached`], and is executed again by the coordinator until it got all it
//! named: what it names is locked, here as well as elsewhere.

use crate::across::{Climbed, Want, climb};
use crate::txn::Txn;
use alloc::boxed::Box;
use wire::{InodeNo, Name, Rule, Status};

impl Txn<'_> {
    pub(crate) fn is_here(&self, inode: InodeNo) -> bool {
        inode.shard() == self.state.shard()
    }

    pub(crate) const fn is_across(&self) -> bool {
        self.across.is_some()
    }

    /// It changes this inode.
    pub(crate) fn reach(&mut self, inode: InodeNo) {
        if self.across.is_some() {
            self.want(Want::Inode(inode));
        } else {
            self.crosses |= !self.is_here(inode);
        }
    }

    /// It looks at this name, and changes it.
    pub(crate) fn reach_entry(&mut self, dir: InodeNo, name: Name<'_>) {
        if self.across.is_some() {
            self.want(Want::Entry(dir, Box::from(name.bytes())));
        } else {
            self.crosses |= !self.is_here(dir);
        }
    }

    /// Whether it goes on: all that it has named is at hand.
    pub(crate) fn reached(&self) -> Result<(), Status> {
        let missing = self.across.as_ref().is_some_and(|across| !across.plan.wants.is_empty());
        if self.crosses || missing { Err(Status::CrossDevice) } else { Ok(()) }
    }

    fn want(&mut self, want: Want) {
        if let Some(across) = &mut self.across
            && !across.view.has(&want)
            && !across.plan.wants.contains(&want)
        {
            across.plan.wants.push(want);
        }
    }

    /// It makes an inode in this directory's shard, besides what it reaches.
    pub(crate) fn reach_new(&mut self, dir: InodeNo) {
        if self.across.is_some() {
            self.want(Want::New(dir.shard()));
        }
    }

    /// A new directory below `parent` is to lie near the root: another shard's turn may have come.
    pub(crate) fn reach_place(&mut self, parent: InodeNo) {
        let Some(spread) = self.spread else { return };
        let depth = match self.row(parent) {
            Ok(row) if row.inode == InodeNo::ROOT => 1,
            Ok(row) if row.parent == InodeNo::ROOT => 2,
            Ok(_) | Err(_) => return,
        };
        if depth > spread.depth_max || spread.shard == self.state.shard() {
            return;
        }
        if self.across.is_some() {
            self.want(Want::New(spread.shard));
        } else {
            self.crosses = true;
        }
    }

    /// A directory moves from one parent below another: which lies below which shall stay, unless
    /// both parents lie in one piece of the tree that is all here.
    pub(crate) fn reach_topology(&mut self, parent: InodeNo, new_parent: InodeNo) {
        if !self.rules.hold(Rule::Topology) {
            return;
        }
        if self.across.is_some() {
            return self.want(Want::Topology);
        }
        // Into what is none or was removed nothing moves.
        let stays = |dir| self.dir_row(dir).is_ok_and(|row| row.nlink > 0);
        if stays(parent) && stays(new_parent) {
            self.crosses |= self.entry(parent) != self.entry(new_parent);
        }
    }

    /// The uppermost directory from `dir` upwards that is here.
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

    /// Whether `dir` is `inode` or lies below it.
    ///
    /// # Errors
    /// `Busy` when a directory on the way is about to be moved; `CrossDevice` when the way leaves
    /// this shard and what lies above is not known yet.
    pub(crate) fn is_within(&mut self, dir: InodeNo, inode: InodeNo) -> Result<bool, Status> {
        let me = self.across.as_ref().map(|across| across.txn);
        let mut at = dir;
        loop {
            match climb(self.state, self.locks, (at, inode), me) {
                Ok(Climbed::Found) => return Ok(true),
                Ok(Climbed::Top) => return Ok(false),
                // Where the move stays within one piece, nothing above can lie below it.
                Ok(Climbed::Left(_))
                    if self.across.is_none() || !self.rules.hold(Rule::Topology) =>
                {
                    return Ok(false);
                }
                Ok(Climbed::Left(above)) => at = above,
                Err(holder) => {
                    *self.blocker = Some(holder);
                    return Err(Status::Busy);
                }
            }
            let climbed = self.across.as_ref().and_then(|across| across.view.climbed(at, inode));
            match climbed {
                Some(Climbed::Found) => return Ok(true),
                Some(Climbed::Top) => return Ok(false),
                Some(Climbed::Left(above)) => at = above,
                None => {
                    self.want(Want::Above { dir: at, inode });
                    return Err(Status::CrossDevice);
                }
            }
        }
    }
}
