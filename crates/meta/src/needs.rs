//! `Needs`: what must be in memory before an operation is executed.

use crate::inode::Body;
use crate::state::State;
use crate::uses::{AccessMode, DependencyKey, KeyAccess};
use alloc::vec::Vec;
use wire::{Handle, InodeNo, Name};

/// Most inodes, and most entries, of an operation.
const COUNT_MAX: usize = 2;

/// The inodes and entries that an operation reads. Missing ones are fetched before it is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    inodes: [Option<InodeNo>; COUNT_MAX],
    entries: [Option<(InodeNo, Name<'a>)>; COUNT_MAX],
    listed: Option<(InodeNo, u64)>,
    /// The reply shows the inodes' attributes or entries.
    pub(crate) shows_inodes: bool,
    /// The entries are removed or moved.
    pub(crate) removes_entries: bool,
    /// The entry is made. If it exists, it is at most opened.
    pub(crate) makes_entry: bool,
    /// The inode, or that of the entry, is opened for writing.
    pub(crate) opens_for_writing: bool,
}

impl<'a> Needs<'a> {
    pub(crate) const fn new() -> Self {
        Self {
            inodes: [None; COUNT_MAX],
            entries: [None; COUNT_MAX],
            listed: None,
            shows_inodes: false,
            removes_entries: false,
            makes_entry: false,
            opens_for_writing: false,
        }
    }

    /// Adds an inode.
    pub(crate) fn inode(&mut self, inode: InodeNo) {
        let place = self.inodes.iter_mut().find(|place| place.is_none());
        assert!(place.is_some(), "an op names at most two inodes");
        place.into_iter().for_each(|place| *place = Some(inode));
    }

    /// Adds an inode whose attributes or entries the reply shows.
    pub(crate) fn shown_inode(&mut self, inode: InodeNo) {
        self.inode(inode);
        self.shows_inodes = true;
    }

    /// Adds an entry, or its absence, and the inode it names.
    pub(crate) fn entry(&mut self, dir: InodeNo, name: Name<'a>) {
        let place = self.entries.iter_mut().find(|place| place.is_none());
        assert!(place.is_some(), "an op names at most two entries");
        place.into_iter().for_each(|place| *place = Some((dir, name)));
    }

    /// Adds an entry that is made unless it exists.
    pub(crate) fn new_entry(&mut self, dir: InodeNo, name: Name<'a>) {
        self.entry(dir, name);
        self.makes_entry = true;
    }

    /// The inode, or that of the entry, is opened.
    pub(crate) fn opened(&mut self, handle: Option<Handle>) {
        self.opens_for_writing = handle.is_some_and(|handle| handle.open_for.writes());
    }

    /// Adds an entry that is removed or moved.
    pub(crate) fn removed_entry(&mut self, dir: InodeNo, name: Name<'a>) {
        self.entry(dir, name);
        self.removes_entries = true;
    }

    /// Adds the next entries of a directory behind a cookie.
    pub(crate) const fn list(&mut self, dir: InodeNo, cookie: u64) {
        self.listed = Some((dir, cookie));
    }

    /// The directory to list, and the cookie before its next entries.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (InodeNo, u64)> {
        self.listed.into_iter()
    }

    /// The inodes.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = InodeNo> {
        self.inodes.into_iter().flatten()
    }

    /// The entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (InodeNo, Name<'a>)> {
        self.entries.into_iter().flatten()
    }

    /// Adds the keys read by a request that changes nothing or fails: all that it looked at.
    pub(crate) fn reads(&self, state: &State, uses: &mut Vec<KeyAccess>) {
        let mut reads = |key| uses.push(KeyAccess { key, mode: AccessMode::Depend });
        for inode in self.inodes.into_iter().flatten() {
            reads(DependencyKey::Inode(inode));
            reads(DependencyKey::Exists(inode));
            reads(DependencyKey::Entries(inode));
        }
        for (dir, name) in self.entries.into_iter().flatten() {
            let name = state.name_key.hashed(name.bytes());
            reads(DependencyKey::Name(dir, name.hash));
            if let Some(Body::Directory(entries)) = state.inode(dir).map(|known| &known.body)
                && let Some(target) = entries.get(name)
            {
                reads(DependencyKey::Inode(target.inode));
                // A directory's times and links, and whether it is empty.
                reads(DependencyKey::Entries(target.inode));
            }
        }
    }
}
