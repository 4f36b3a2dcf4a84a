//! `Needs`: what an operation must find in memory before it is executed.

use crate::state::{Body, State};
use crate::uses::{How, Key, Use};
use alloc::vec::Vec;
use wire::{InodeNo, Name};

/// Most inodes, and most entries, an operation looks at.
const COUNT_MAX: usize = 2;

/// Inodes and entries an operation looks at. What is not in memory is fetched before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    inodes: [Option<InodeNo>; COUNT_MAX],
    entries: [Option<(InodeNo, Name<'a>)>; COUNT_MAX],
    listed: Option<(InodeNo, u64)>,
    /// The reply tells of the inodes themselves, or lists them.
    pub(crate) shows_inodes: bool,
    /// What the entries name goes away or gets another place.
    pub(crate) removes_entries: bool,
}

impl<'a> Needs<'a> {
    pub(crate) const fn new() -> Self {
        Self {
            inodes: [None; COUNT_MAX],
            entries: [None; COUNT_MAX],
            listed: None,
            shows_inodes: false,
            removes_entries: false,
        }
    }

    /// This inode.
    pub(crate) fn inode(&mut self, inode: InodeNo) {
        let place = self.inodes.iter_mut().find(|place| place.is_none());
        assert!(place.is_some(), "an op names at most two inodes");
        place.into_iter().for_each(|place| *place = Some(inode));
    }

    /// This inode, of which the reply tells what it is, or what it lists.
    pub(crate) fn shown_inode(&mut self, inode: InodeNo) {
        self.inode(inode);
        self.shows_inodes = true;
    }

    /// This entry, or that there is none, and the inode it names.
    pub(crate) fn entry(&mut self, dir: InodeNo, name: Name<'a>) {
        let place = self.entries.iter_mut().find(|place| place.is_none());
        assert!(place.is_some(), "an op names at most two entries");
        place.into_iter().for_each(|place| *place = Some((dir, name)));
    }

    /// This entry; if it names a directory, that goes away or gets another place.
    pub(crate) fn removed_entry(&mut self, dir: InodeNo, name: Name<'a>) {
        self.entry(dir, name);
        self.removes_entries = true;
    }

    /// The next entries of this directory behind a place.
    pub(crate) const fn list(&mut self, dir: InodeNo, cookie: u64) {
        self.listed = Some((dir, cookie));
    }

    /// The directory whose entries are looked at, and the place that stands before them.
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

    /// What a request that changes nothing, or fails, tells of: all that it looked at.
    pub(crate) fn reads(&self, state: &State, uses: &mut Vec<Use>) {
        let mut reads = |key| uses.push(Use { key, how: How::Depend });
        for inode in self.inodes.into_iter().flatten() {
            reads(Key::Inode(inode));
            reads(Key::Exists(inode));
            reads(Key::Entries(inode));
        }
        for (dir, name) in self.entries.into_iter().flatten() {
            reads(Key::Name(dir, state.seed.hash_name(name.bytes())));
            if let Some(Body::Directory(entries)) = state.inode(dir).map(|known| &known.body)
                && let Some(target) = entries.get(state.seed, name.bytes())
            {
                reads(Key::Inode(target.inode));
                // A directory's times and links, and whether it is empty.
                reads(Key::Entries(target.inode));
            }
        }
    }
}
