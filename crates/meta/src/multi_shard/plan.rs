//! What a coordinator knows and plans: requirements, observations, and the parts of a transaction.

use crate::acl::Acl;
use crate::directory::Target;
use crate::hash::NameKey;
use crate::inode::Inode;
use crate::locks::Locks;
use crate::state::State;
use crate::uses::{AccessMode, DependencyKey, KeyAccess};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use disk::{Change, Changes, InodeRow, TxnId};
use wire::{DecodeError, FileKind, InodeNo, Reader, ShardId};

/// State that the coordinator must read and needs unchanged until the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// An inode.
    Inode(InodeNo),
    /// A name in a directory; the directory must not be removed.
    Entry(InodeNo, Box<[u8]>),
    /// A new inode number of this shard.
    New(ShardId),
    /// The directory tree's topology.
    Topology,
    /// Whether `inode` is `dir` or an ancestor of it.
    Ancestor {
        /// The descendant.
        dir: InodeNo,
        /// The ancestor.
        inode: InodeNo,
    },
}

impl Requirement {
    /// The shard that has the state.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        match self {
            Self::Inode(inode) | Self::Entry(inode, _) | Self::Ancestor { dir: inode, .. } => {
                inode.shard()
            }
            Self::New(shard) => *shard,
            Self::Topology => ShardId::meta(0),
        }
    }

    /// Adds the keys that the observation depends on.
    pub(super) fn reads(&self, names: &NameKey, uses: &mut Vec<KeyAccess>) {
        let mut reads = |key| uses.push(KeyAccess { key, mode: AccessMode::Depend });
        match self {
            Self::Inode(inode) => {
                reads(DependencyKey::Inode(*inode));
                reads(DependencyKey::Exists(*inode));
                reads(DependencyKey::Entries(*inode));
            }
            Self::Entry(dir, name) => {
                reads(DependencyKey::Inode(*dir));
                reads(DependencyKey::Exists(*dir));
                reads(DependencyKey::Name(*dir, names.hashed(name).hash));
            }
            Self::Ancestor { .. } => reads(DependencyKey::Topology),
            Self::New(_) | Self::Topology => {}
        }
    }
}

/// The result of a search for an ancestor within one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AncestorSearch {
    /// The inode was found.
    Found,
    /// The search ended at the root or a removed directory.
    Top,
    /// The search continues at this directory of another shard.
    LeftShard(InodeNo),
}

/// An inode's state as sent by its shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InodeSnapshot {
    pub(super) row: InodeRow,
    /// Its access control list; empty for none.
    pub(super) acl: Box<[u8]>,
}

impl InodeSnapshot {
    pub(super) fn of(inode: &Inode) -> Self {
        let acl = Acl::access(inode).map_or(&[][..], Acl::bytes).into();
        Self { row: inode.row, acl }
    }
}

/// An observation: a shard's response to a requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Observed {
    Inode(InodeNo, Option<InodeSnapshot>),
    Entry { dir: InodeNo, name: Box<[u8]>, snapshot: Option<InodeSnapshot>, target: Option<Target> },
    New(ShardId, Option<InodeNo>),
    Topology,
    Ancestor { dir: InodeNo, inode: InodeNo, search: AncestorSearch },
}

/// The observations that the coordinator has so far.
#[derive(Clone, Default, Debug)]
pub struct View {
    observed: Vec<Observed>,
}

impl View {
    /// Adds the encoded observations of [`Shard::lock_and_read`].
    ///
    /// # Errors
    /// [`DecodeError`] when they are invalid.
    pub fn add(&mut self, snapshot: &[u8]) -> Result<(), DecodeError> {
        let mut from = Reader::new(snapshot);
        while from.left() > 0 {
            self.observed.push(from.read()?);
        }
        Ok(())
    }

    pub(crate) fn has(&self, requirement: &Requirement) -> bool {
        self.observed.iter().any(|observed| match (observed, requirement) {
            (Observed::Inode(inode, _), Requirement::Inode(required)) => inode == required,
            (Observed::Entry { dir, name, .. }, Requirement::Entry(required, text)) => {
                dir == required && name == text
            }
            (Observed::New(shard, _), Requirement::New(required)) => shard == required,
            (Observed::Topology, Requirement::Topology) => true,
            (
                Observed::Ancestor { dir, inode, .. },
                Requirement::Ancestor { dir: lower, inode: upper },
            ) => dir == lower && inode == upper,
            _ => false,
        })
    }

    /// An inode's row, also that of a directory observed with a name.
    pub(crate) fn row(&self, required: InodeNo) -> Option<InodeRow> {
        self.snapshot(required).map(|snapshot| snapshot.row)
    }

    /// Its access control list.
    pub(crate) fn acl(&self, required: InodeNo) -> Option<Acl<'_>> {
        self.snapshot(required).and_then(|snapshot| Acl::from_checked(&snapshot.acl))
    }

    fn snapshot(&self, required: InodeNo) -> Option<&InodeSnapshot> {
        self.observed.iter().find_map(|observed| match observed {
            Observed::Inode(inode, snapshot) if *inode == required => snapshot.as_ref(),
            Observed::Entry { dir, snapshot, .. } if *dir == required => snapshot.as_ref(),
            Observed::Inode(..)
            | Observed::Entry { .. }
            | Observed::New(..)
            | Observed::Topology
            | Observed::Ancestor { .. } => None,
        })
    }

    pub(crate) fn target(&self, required: InodeNo, text: &[u8]) -> Option<Target> {
        self.observed.iter().find_map(|observed| match observed {
            Observed::Entry { dir, name, target, .. } if *dir == required && **name == *text => {
                *target
            }
            Observed::Inode(..)
            | Observed::Entry { .. }
            | Observed::New(..)
            | Observed::Topology
            | Observed::Ancestor { .. } => None,
        })
    }

    pub(crate) fn new_inode(&self) -> Option<InodeNo> {
        self.observed.iter().find_map(|observed| match observed {
            Observed::New(_, inode) => *inode,
            Observed::Inode(..)
            | Observed::Entry { .. }
            | Observed::Topology
            | Observed::Ancestor { .. } => None,
        })
    }

    pub(crate) fn search(&self, lower: InodeNo, upper: InodeNo) -> Option<AncestorSearch> {
        self.observed.iter().find_map(|observed| match observed {
            Observed::Ancestor { dir, inode, search } if (*dir, *inode) == (lower, upper) => {
                Some(*search)
            }
            Observed::Inode(..)
            | Observed::Entry { .. }
            | Observed::New(..)
            | Observed::Topology
            | Observed::Ancestor { .. } => None,
        })
    }
}

/// The result of an attempt.
#[derive(Clone, Default, Debug)]
pub struct Plan {
    /// The missing requirements; if there are any, nothing else counts.
    pub requirements: Vec<Requirement>,
    /// The reply's body.
    pub reply: Vec<u8>,
    /// The changes by shard.
    pub parts: BTreeMap<ShardId, Vec<u8>>,
}

impl Plan {
    /// The files among the changed inodes.
    pub fn files(&self) -> impl Iterator<Item = InodeNo> {
        let changes = self.parts.values().flat_map(|part| Changes::new(part));
        changes.filter_map(|change| match change {
            Ok(Change::Inode { row }) if row.kind == FileKind::File => Some(row.inode),
            Ok(_) | Err(_) => None,
        })
    }

    pub(crate) fn clear(&mut self) {
        self.requirements.clear();
        self.reply.clear();
        self.parts.clear();
    }
}

/// The coordinator's state of a transaction over several shards.
#[derive(Debug)]
pub(crate) struct MultiShard<'s> {
    pub(crate) txn: TxnId,
    pub(crate) view: &'s View,
    pub(crate) plan: &'s mut Plan,
}

/// The shard that a change belongs to.
pub(crate) fn owner(change: &Change<'_>) -> Option<ShardId> {
    match change {
        Change::Inode { row } => Some(row.inode.shard()),
        Change::Touch { inode, .. }
        | Change::DirAttrs { inode, .. }
        | Change::Accessed { inode, .. }
        | Change::Settled { inode, .. }
        | Change::Symlink { inode, .. }
        | Change::Xattr { inode, .. }
        | Change::XattrRemoved { inode, .. }
        | Change::InodeRemoved { inode } => Some(inode.shard()),
        Change::Dirent { dir, .. } | Change::DirentRemoved { dir, .. } => Some(dir.shard()),
        Change::Contents(_) | Change::Client(_) | Change::Txn(_) | Change::Export(_) => None,
    }
}

/// Searches `inode` from `dir` upwards within this shard. Fails with the lock holder at a directory
/// that is about to be moved.
pub(crate) fn search_ancestors(
    state: &State,
    locks: &Locks,
    (dir, inode): (InodeNo, InodeNo),
    me: Option<TxnId>,
) -> Result<AncestorSearch, TxnId> {
    let mut at = dir;
    loop {
        if at == inode {
            return Ok(AncestorSearch::Found);
        }
        if at.shard() != state.shard() {
            return Ok(AncestorSearch::LeftShard(at));
        }
        if let Some(holder) = locks.inode(at, me) {
            return Err(holder);
        }
        match state.inode(at) {
            Some(known) if known.row.parent != at => at = known.row.parent,
            Some(_) | None => return Ok(AncestorSearch::Top),
        }
    }
}
