//! What a transaction depends on and what it changes, as keys for gating replies (PROTOCOL.md §12).
//!
//! Most keys follow from the changes; an operation adds by hand what it depends on beyond them.

use crate::state::State;
use alloc::vec::Vec;
use disk::Change;
use wire::InodeNo;

/// Something that two transactions may both be about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// An inode's attributes, versioned.
    Inode(InodeNo),
    /// A name in a directory, by the name's hash, whether it exists or not.
    Name(InodeNo, u64),
    /// All names in a directory (PROTOCOL.md: dirany).
    Entries(InodeNo),
    /// That an inode exists at all.
    Exists(InodeNo),
    /// Which directory lies below which.
    Topology,
}

/// How a transaction uses a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It checks and changes it: depends on the last who did, and is the last from now on.
    Change,
    /// It comes to be with it: nothing to depend on.
    Make,
    /// It depends on it and leaves it alone.
    Depend,
    /// It is one of many who change a part of it and do not depend on each other.
    Share,
    /// It depends on all who shared it.
    Whole,
    /// What it does next must not be durable before the last change of it, whoever made it.
    Durable,
}

/// A key and how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// Which.
    pub key: Key,
    /// How.
    pub how: How,
}

/// Adds what follows from a change that is about to be made.
pub(crate) fn of_change(state: &State, change: &Change<'_>, uses: &mut Vec<Use>) {
    let mut add = |key, how| uses.push(Use { key, how });
    match change {
        Change::Inode { row } => {
            if state.inode(row.inode).is_none() {
                // Its number was never given to another.
                add(Key::Inode(row.inode), How::Make);
                add(Key::Exists(row.inode), How::Make);
            } else {
                add(Key::Inode(row.inode), How::Change);
            }
        }
        Change::DirAttrs { inode, .. } | Change::InodeRemoved { inode } => {
            add(Key::Inode(*inode), How::Change);
        }
        Change::Dirent { dir, name, .. } => {
            add(Key::Name(*dir, state.seed.hash_name(name.bytes())), How::Change);
            add(Key::Entries(*dir), How::Share);
            add(Key::Exists(*dir), How::Depend);
        }
        Change::DirentRemoved { dir, name } => {
            add(Key::Name(*dir, state.seed.hash_name(name.bytes())), How::Change);
            add(Key::Entries(*dir), How::Share);
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
