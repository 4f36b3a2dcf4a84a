//! Export containment: whether an inode lies below an export's directory, and how its clients may
//! access the contents. Nothing of it is durable.
//!
//! The row of a directory, or of an inode with one name, has its parent. Of an inode with several
//! names it has one of the directories; another one is remembered from when a client found a name
//! there until a name of the inode is added or removed. Invariant: an inode lies below a directory
//! only if a row or such a finding shows it.

use crate::acl::Acl;
use crate::credentials::{Credentials, Permissions};
use crate::inode::Inode;
use crate::shard::Shard;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use disk::InodeRow;
use wire::{Caller, ClientUuid, FileKind, Groups, InodeNo, Squash, SquashedIds};

/// The step from a directory upwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParentLink {
    /// The parent, possibly of another shard.
    Parent(InodeNo),
    /// None: the root, or a missing directory.
    Top,
}

/// The access that a client may open, or has opened, an inode for.
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

/// The shard's state for export containment.
#[derive(Default, Debug)]
pub(crate) struct ExportTracking {
    /// Inodes, and a directory in which a name of theirs was found that is not the one in their
    /// row.
    named: BTreeMap<InodeNo, InodeNo>,
    /// Inodes whose containment other lanes have cached: they are notified of changes.
    watched: BTreeSet<InodeNo>,
    /// Watched inodes that changed.
    touched: Vec<InodeNo>,
    /// A directory got another parent.
    pub(crate) moved: bool,
}

impl ExportTracking {
    /// Most found names, and most watched inodes. Beyond that the first ones are forgotten or
    /// reported as changed; clients find or query them again.
    const COUNT_MAX: usize = 65_536;

    /// Records that an inode was found in a directory.
    pub(crate) fn name(&mut self, inode: InodeNo, dir: InodeNo) {
        self.named.insert(inode, dir);
        if self.named.len() > Self::COUNT_MAX {
            self.named.pop_first();
        }
    }

    /// Forgets an inode's found name, because a name of the inode was added or removed.
    pub(crate) fn unname(&mut self, inode: InodeNo) {
        self.named.remove(&inode);
    }

    /// An inode's row is about to change.
    pub(crate) fn changes(&mut self, old: Option<&InodeRow>, new: &InodeRow) {
        let Some(old) = old else { return };
        if (old.nlink, old.parent) != (new.nlink, new.parent) {
            self.unname(new.inode);
        }
        let shown = |row: &InodeRow| (row.nlink, row.parent, row.mode, row.uid, row.gid);
        if shown(old) != shown(new) {
            self.touch(new.inode);
        }
    }

    /// Reports a watched inode as changed.
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
    /// Records that an inode of this shard was found by name in a directory of another shard.
    pub fn record_found_name(&mut self, inode: InodeNo, dir: InodeNo) {
        let known = self.state.inode(inode).map(|known| known.row);
        if known.is_some_and(|row| row.is_named_elsewhere(dir)) {
            self.state.export_tracking.name(inode, dir);
        }
    }

    /// The parent of a directory of this shard. All directories are in memory.
    #[must_use]
    pub fn above(&self, dir: InodeNo) -> ParentLink {
        match self.state.inode(dir).map(|known| known.row) {
            Some(row) if row.kind == FileKind::Directory && row.parent != dir => {
                ParentLink::Parent(row.parent)
            }
            Some(_) | None => ParentLink::Top,
        }
    }

    /// The known directories of an inode, or itself if it is a directory. The inode is in memory,
    /// or does not exist.
    pub fn containing_directories(&self, inode: InodeNo) -> impl Iterator<Item = InodeNo> + use<> {
        let known = self.state.inode(inode).map(|known| known.row);
        let ways = match known {
            Some(row) if row.kind == FileKind::Directory => [Some(inode), None],
            Some(row) => {
                let parent = (row.parent != InodeNo(0)).then_some(row.parent);
                [parent, self.state.export_tracking.named.get(&inode).copied()]
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

    /// A client's rights to an inode's contents: those of its handles, and those of the most
    /// privileged caller that it can claim to be after squashing. None for a missing inode.
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

    /// Watches an inode whose [`Shard::containing_directories`] and [`Shard::rights`] another lane
    /// caches: changes are reported in [`Shard::touched`].
    pub fn watch(&mut self, inode: InodeNo) {
        self.state.export_tracking.watch(inode);
    }

    /// The handles of an inode changed.
    pub fn touch(&mut self, inode: InodeNo) {
        self.state.export_tracking.touch(inode);
    }

    /// Takes the watched inodes that have changed; they are not watched any more.
    pub fn touched(&mut self) -> Vec<InodeNo> {
        core::mem::take(&mut self.state.export_tracking.touched)
    }

    /// Whether a directory got another parent since the last call.
    pub fn has_moved(&mut self) -> bool {
        core::mem::take(&mut self.state.export_tracking.moved)
    }
}

/// The rights of the most privileged caller that a client can claim to be.
fn rights_of_anybody(known: &Inode, squash: Squash) -> Rights {
    let row = &known.row;
    match squash.ids {
        SquashedIds::None => Rights::ALL,
        // A client can claim to be the owner, who can set any mode.
        SquashedIds::Root if row.uid != 0 || squash.anon_uid == 0 => Rights::ALL,
        SquashedIds::Root => {
            let is_group = |gid| gid != 0 || squash.anon_gid == 0;
            // Linux ignores a list whose mask grants nothing.
            Rights::of_bits(match Acl::access(known).filter(|_| row.mode & 0o070 != 0) {
                Some(acl) => acl.bits_of_anybody(row.gid, |uid| uid != 0, is_group),
                None if is_group(row.gid) => row.mode >> 3 | row.mode,
                None => row.mode,
            })
        }
        SquashedIds::All => {
            let caller = Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) };
            let credentials = Credentials::new(caller, squash);
            if credentials.owns(row) {
                return Rights::ALL;
            }
            let may =
                |permissions| credentials.permit(row, Acl::access(known), permissions).is_ok();
            let execute = may(Permissions::EXECUTE);
            Rights { read: may(Permissions::READ), write: may(Permissions::WRITE), execute }
        }
    }
}
