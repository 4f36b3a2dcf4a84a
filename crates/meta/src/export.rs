//! What those are concerned with who may see one directory and what lies below it: whether an inode
//! does, and what they may do with its contents. Nothing of it is durable.
//!
//! A directory knows its parent, and so does what has one name. Of what has several the directory of
//! one is known; another one is known from when somebody found it there until a name of it comes or
//! goes. Invariant: who is not said to lie below a directory by a row, or by such a finding, does not.

use crate::acl::Acl;
use crate::shard::Shard;
use crate::state::Inode;
use crate::who::{Want, Who};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use disk::InodeRow;
use wire::{Caller, ClientUuid, FileKind, Groups, InodeNo, Squash, Squashed};

/// Where one gets from a directory, upwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Above {
    /// To this directory, which may be another shard's.
    Parent(InodeNo),
    /// Nowhere: it is the root, or it is not there.
    Top,
}

/// What a client may open an inode for, or has it open for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rights {
    /// Reading it.
    pub read: bool,
    /// Changing it.
    pub write: bool,
    /// Running it.
    pub execute: bool,
}

impl Rights {
    const ALL: Self = Self { read: true, write: true, execute: true };

    const fn of_bits(bits: u32) -> Self {
        Self { read: bits & 4 != 0, write: bits & 2 != 0, execute: bits & 1 != 0 }
    }
}

/// What is remembered for them.
#[derive(Default, Debug)]
pub(crate) struct Exported {
    /// Inodes and a directory in which a name of theirs was found that their rows do not tell of.
    named: BTreeMap<InodeNo, InodeNo>,
    /// Inodes that others were told of: they are told when anything of that changes.
    watched: BTreeSet<InodeNo>,
    /// Of them, those that changed.
    touched: Vec<InodeNo>,
    /// A directory got another parent.
    pub(crate) moved: bool,
}

impl Exported {
    /// Most inodes with a name that was found, and most that others were told of. Beyond that the
    /// first are forgotten, or said to have changed: they are found, and asked for, again.
    const COUNT_MAX: usize = 65_536;

    /// An inode was found in a directory.
    pub(crate) fn name(&mut self, inode: InodeNo, dir: InodeNo) {
        self.named.insert(inode, dir);
        if self.named.len() > Self::COUNT_MAX {
            self.named.pop_first();
        }
    }

    /// A name of an inode came or went: it may be the one that was found.
    pub(crate) fn unname(&mut self, inode: InodeNo) {
        self.named.remove(&inode);
    }

    /// What an inode's row says is about to change.
    pub(crate) fn changes(&mut self, old: Option<&InodeRow>, new: &InodeRow) {
        let Some(old) = old else { return };
        if (old.nlink, old.parent) != (new.nlink, new.parent) {
            self.unname(new.inode);
        }
        let said = |row: &InodeRow| (row.nlink, row.parent, row.mode, row.uid, row.gid);
        if said(old) != said(new) {
            self.touch(new.inode);
        }
    }

    /// Something of an inode changed.
    pub(crate) fn touch(&mut self, inode: InodeNo) {
        if !self.watched.is_empty() && self.watched.remove(&inode) {
            self.touched.push(inode);
        }
    }

    fn watch(&mut self, inode: InodeNo) {
        self.watched.insert(inode);
        if self.watched.len() > Self::COUNT_MAX {
            self.touched.extend(self.watched.pop_first());
        }
    }
}

impl Shard {
    /// An inode of another shard has a name in this directory.
    pub fn found_at(&mut self, inode: InodeNo, dir: InodeNo) {
        let known = self.state.inode(inode).map(|known| known.row);
        if known.is_some_and(|row| row.is_named_elsewhere(dir)) {
            self.state.exported.name(inode, dir);
        }
    }

    /// The directory above one of this shard. All directories are in memory.
    #[must_use]
    pub fn above(&self, dir: InodeNo) -> Above {
        match self.state.inode(dir).map(|known| known.row) {
            Some(row) if row.kind == FileKind::Directory && row.parent != dir => {
                Above::Parent(row.parent)
            }
            Some(_) | None => Above::Top,
        }
    }

    /// The directories that an inode is known to lie in, or itself if it is one; it is in memory, or
    /// there is none.
    pub fn ways_up(&self, inode: InodeNo) -> impl Iterator<Item = InodeNo> + use<> {
        let known = self.state.inode(inode).map(|known| known.row);
        let ways = match known {
            Some(row) if row.kind == FileKind::Directory => [Some(inode), None],
            Some(row) => {
                let parent = (row.parent != InodeNo(0)).then_some(row.parent);
                [parent, self.state.exported.named.get(&inode).copied()]
            }
            None => [None, None],
        };
        ways.into_iter().flatten()
    }

    /// Whether this client has an inode open.
    #[must_use]
    pub fn has_open(&self, inode: InodeNo, client: ClientUuid) -> bool {
        self.handles.has_open(inode, client)
    }

    /// What a client may do with an inode's contents: what it has open, and what one of those may whom
    /// it can say to be, as far as they are not squashed. Nothing, where there is no such inode.
    #[must_use]
    pub fn rights(&self, inode: InodeNo, client: ClientUuid, squash: Squash) -> Rights {
        let Some(known) = self.state.inode(inode) else { return Rights::default() };
        let granted = rights_of_anybody(known, squash);
        Rights {
            read: granted.read || self.handles.reads(inode, client),
            write: granted.write || self.handles.writes(inode, client),
            execute: granted.execute || self.handles.executes(inode, client),
        }
    }

    /// Somebody is told what [`Shard::ways_up`] and [`Shard::rights`] say of an inode, and shall hear
    /// when that may be otherwise.
    pub fn watch(&mut self, inode: InodeNo) {
        self.state.exported.watch(inode);
    }

    /// Who has an inode open has changed.
    pub fn touch(&mut self, inode: InodeNo) {
        self.state.exported.touch(inode);
    }

    /// Inodes that were watched and are not any more, because something of them changed.
    pub fn touched(&mut self) -> Vec<InodeNo> {
        core::mem::take(&mut self.state.exported.touched)
    }

    /// Whether a directory got another parent since the last time.
    pub fn has_moved(&mut self) -> bool {
        core::mem::take(&mut self.state.exported.moved)
    }
}

/// What the one may do who may most, of all whom a client can say to be.
fn rights_of_anybody(known: &Inode, squash: Squash) -> Rights {
    let row = &known.row;
    match squash.who {
        Squashed::Nobody => Rights::ALL,
        // It can say to be the owner, who can have any mode.
        Squashed::Root if row.uid != 0 || squash.anon_uid == 0 => Rights::ALL,
        Squashed::Root => {
            let is_group = |gid| gid != 0 || squash.anon_gid == 0;
            // Linux looks at no list whose mask grants nothing.
            Rights::of_bits(match Acl::access(known).filter(|_| row.mode & 0o070 != 0) {
                Some(acl) => acl.bits_of_anybody(row.gid, |uid| uid != 0, is_group),
                None if is_group(row.gid) => row.mode >> 3 | row.mode,
                None => row.mode,
            })
        }
        Squashed::All => {
            let caller = Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) };
            let who = Who::new(caller, squash);
            if who.owns(row) {
                return Rights::ALL;
            }
            let may = |want| who.permit(row, Acl::access(known), want).is_ok();
            let execute = may(Want::EXECUTE);
            Rights { read: may(Want::READ), write: may(Want::WRITE), execute }
        }
    }
}
