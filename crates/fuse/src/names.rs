//! Names that a lane has seen, by inode: what a path is made of, without asking the server.
//!
//! They are those of lookups, creations and listings with attributes, at the time. Another client may have
//! renamed something since; the newest that any lane has seen is the best that a mount knows. Directories and
//! other inodes have tables of their own, because paths need directories, and a large listing must not
//! displace them.
//!
//! Invariant: the tables are bounded. Each has two halves; the older half is forgotten when the newer
//! one is full, but for directories whose entries were seen since.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use hashbrown::HashMap;
use interface::{Mono, Seed};
use wire::{FileKind, InodeNo};

/// The most directories in a half.
const DIRECTORY_COUNT_MAX: usize = 8_192;
/// The most other inodes in a half.
const FILE_COUNT_MAX: usize = 16_384;
/// The longest path, in names.
const DEPTH_MAX: usize = 256;

/// The name of an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) parent: InodeNo,
    pub(crate) name: Box<[u8]>,
    /// When it was seen.
    pub(crate) at: Mono,
}

#[derive(Debug)]
struct Table {
    newer: HashMap<InodeNo, Known, Seed>,
    older: HashMap<InodeNo, Known, Seed>,
    count_max: usize,
}

impl Table {
    fn new(count_max: usize) -> Self {
        Self { newer: HashMap::default(), older: HashMap::default(), count_max }
    }

    fn get(&self, inode: InodeNo) -> Option<&Known> {
        self.newer.get(&inode).or_else(|| self.older.get(&inode))
    }

    fn put(&mut self, inode: InodeNo, known: Known) {
        if self.newer.len() >= self.count_max {
            self.older = mem::take(&mut self.newer);
        }
        self.newer.insert(inode, known);
    }

    /// Keeps an inode for longer; false if that was not needed, or it is unknown.
    fn renew(&mut self, inode: InodeNo) -> Option<InodeNo> {
        if self.newer.contains_key(&inode) {
            return None;
        }
        let known = self.older.remove(&inode)?;
        let parent = known.parent;
        self.put(inode, known);
        Some(parent)
    }
}

/// The names that a lane has seen.
#[derive(Debug)]
pub(crate) struct Names {
    directories: Table,
    others: Table,
}

impl Default for Names {
    fn default() -> Self {
        Self { directories: Table::new(DIRECTORY_COUNT_MAX), others: Table::new(FILE_COUNT_MAX) }
    }
}

impl Names {
    /// An inode of this kind has this name.
    pub(crate) fn see(
        &mut self,
        now: Mono,
        (inode, kind): (InodeNo, FileKind),
        (parent, name): (InodeNo, &[u8]),
    ) {
        let is_directory = kind == FileKind::Directory;
        let table = if is_directory { &mut self.directories } else { &mut self.others };
        match table.newer.get_mut(&inode) {
            Some(known) if known.parent == parent && *known.name == *name => known.at = now,
            Some(known) => *known = Known { parent, name: name.into(), at: now },
            None => table.put(inode, Known { parent, name: name.into(), at: now }),
        }
        // With the directories above it, as far as they might be forgotten.
        let mut above = Some(parent);
        for _ in 0..DEPTH_MAX {
            let Some(directory) = above else { break };
            above = self.directories.renew(directory);
        }
    }

    fn get(&self, inode: InodeNo) -> Option<&Known> {
        self.directories.get(inode).or_else(|| self.others.get(inode))
    }

    /// What is known of some inodes and of the directories above them, each once.
    pub(crate) fn above(&self, inodes: impl Iterator<Item = InodeNo>) -> Vec<(InodeNo, &Known)> {
        let mut found: HashMap<InodeNo, &Known, Seed> = HashMap::default();
        for first in inodes {
            let mut inode = first;
            while let Some(known) = self.get(inode)
                && found.insert(inode, known).is_none()
            {
                inode = known.parent;
            }
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable_by_key(|(inode, _)| *inode);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(count: usize) -> InodeNo {
        InodeNo::new(0, u64::try_from(count).unwrap_or(0) + 2)
    }

    #[test]
    fn a_path_is_known_with_the_directories_above() {
        let mut names = Names::default();
        names.see(Mono(1), (inode(1), FileKind::Directory), (InodeNo::ROOT, b"a"));
        names.see(Mono(2), (inode(2), FileKind::Directory), (inode(1), b"b"));
        names.see(Mono(3), (inode(3), FileKind::File), (inode(2), b"c"));
        names.see(Mono(4), (inode(4), FileKind::File), (inode(2), b"d"));
        let found = names.above([inode(3), inode(9)].into_iter());
        let shown: Vec<_> = found.iter().map(|(at, known)| (*at, &*known.name)).collect();
        assert_eq!(shown, [(inode(1), &b"a"[..]), (inode(2), b"b"), (inode(3), b"c")]);
        // It has another name now.
        names.see(Mono(5), (inode(3), FileKind::File), (inode(1), b"x"));
        let found = names.above([inode(3)].into_iter());
        assert_eq!((found.len(), &*found[1].1.name, found[1].1.at), (2, &b"x"[..], Mono(5)));
    }

    #[test]
    fn names_are_bounded_and_directories_in_use_stay() {
        let mut names = Names::default();
        names.see(Mono(1), (inode(1), FileKind::Directory), (InodeNo::ROOT, b"used"));
        names.see(Mono(1), (inode(2), FileKind::Directory), (InodeNo::ROOT, b"unused"));
        for count in 0..FILE_COUNT_MAX * 5 {
            names.see(Mono(2), (inode(10 + count), FileKind::File), (inode(1), b"file"));
            let directory = inode(200_000 + count);
            names.see(Mono(2), (directory, FileKind::Directory), (InodeNo::ROOT, b"other"));
        }
        assert!(names.others.newer.len() + names.others.older.len() <= 2 * FILE_COUNT_MAX);
        let directories = &names.directories;
        assert!(directories.newer.len() + directories.older.len() <= 2 * DIRECTORY_COUNT_MAX);
        assert!(names.get(inode(1)).is_some());
        assert!(names.get(inode(2)).is_none());
    }

    #[test]
    fn a_loop_ends() {
        let mut names = Names::default();
        names.see(Mono(1), (inode(1), FileKind::Directory), (inode(2), b"a"));
        names.see(Mono(1), (inode(2), FileKind::Directory), (inode(1), b"b"));
        assert_eq!(names.above([inode(1)].into_iter()).len(), 2);
    }
}
