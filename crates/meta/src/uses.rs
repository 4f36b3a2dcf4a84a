//! The keys that a transaction depends on and changes, for reply gating (docs/protocol.md §10).
//!
//! Most keys follow from the changes; an operation adds other dependencies explicitly.

use crate::state::State;
use alloc::vec::Vec;
use disk::Change;
use wire::InodeNo;

/// An item on which transactions may conflict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DependencyKey {
    /// An inode's attributes, versioned.
    Inode(InodeNo),
    /// A name in a directory, by the name's hash, whether it exists or not.
    Name(InodeNo, u64),
    /// All names in a directory (docs/protocol.md §10: entries).
    Entries(InodeNo),
    /// An inode's existence.
    Exists(InodeNo),
    /// The directory tree's topology.
    Topology,
}

/// The way a transaction uses a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessMode {
    /// Reads and changes it: depends on the last change and becomes the last one.
    Change,
    /// Creates it: depends on nothing.
    Make,
    /// Depends on it without changing it.
    Depend,
    /// Changes a part of it, like others on which it does not depend.
    Share,
    /// Depends on all that shared it.
    Whole,
    /// Later changes must not be durable before the last change of it, by any client.
    Durable,
}

/// A key and the way it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyAccess {
    /// The key.
    pub key: DependencyKey,
    /// The way.
    pub mode: AccessMode,
}

/// Adds the keys of a change that is about to be applied.
pub(crate) fn of_change(state: &State, change: &Change<'_>, uses: &mut Vec<KeyAccess>) {
    let mut add = |key, mode| uses.push(KeyAccess { key, mode });
    match change {
        Change::Inode { row } => {
            if state.inode(row.inode).is_none() {
                // Its number is new.
                add(DependencyKey::Inode(row.inode), AccessMode::Make);
                add(DependencyKey::Exists(row.inode), AccessMode::Make);
            } else {
                add(DependencyKey::Inode(row.inode), AccessMode::Change);
            }
        }
        Change::DirAttrs { inode, .. } | Change::InodeRemoved { inode } => {
            add(DependencyKey::Inode(*inode), AccessMode::Change);
        }
        Change::Dirent { dir, name, .. } => {
            add(
                DependencyKey::Name(*dir, state.name_key.hashed(name.bytes()).hash),
                AccessMode::Change,
            );
            add(DependencyKey::Entries(*dir), AccessMode::Share);
            add(DependencyKey::Exists(*dir), AccessMode::Depend);
        }
        Change::DirentRemoved { dir, name } => {
            add(
                DependencyKey::Name(*dir, state.name_key.hashed(name.bytes()).hash),
                AccessMode::Change,
            );
            add(DependencyKey::Entries(*dir), AccessMode::Share);
        }
        Change::Touch { .. }
        | Change::Accessed { .. }
        | Change::Settled { .. }
        | Change::Symlink { .. }
        | Change::Xattr { .. }
        | Change::XattrRemoved { .. }
        | Change::Contents(_)
        | Change::Client(_)
        | Change::Txn(_)
        | Change::Export(_) => {}
    }
}
