//! A naive model of the tree.

use super::mount::Mount;
use crate::test_server::TestServer;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use fastrand::Rng;
use wire::{FileKind, InodeNo, RenameHow, Status};

/// An operation; its names are of a small set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tests) enum Act {
    Lookup(InodeNo, &'static str),
    Mkdir(InodeNo, &'static str),
    Create(InodeNo, &'static str),
    Symlink(InodeNo, &'static str),
    Fifo(InodeNo, &'static str),
    Link(InodeNo, InodeNo, &'static str),
    Unlink(InodeNo, &'static str),
    Rmdir(InodeNo, &'static str),
    Rename((InodeNo, &'static str), (InodeNo, &'static str), RenameHow),
}

const NAMES: [&str; 5] = ["n", "o", "p", "q", "r"];

type Tree = BTreeMap<InodeNo, BTreeMap<&'static str, InodeNo>>;

/// The model.
pub(in crate::tests) struct Model {
    dirs: Tree,
    kinds: BTreeMap<InodeNo, FileKind>,
    /// All inode numbers ever seen.
    known_inodes: Vec<InodeNo>,
}

impl Model {
    pub(in crate::tests) fn new() -> Self {
        let dirs = BTreeMap::from([(InodeNo::ROOT, BTreeMap::new())]);
        let kinds = BTreeMap::from([(InodeNo::ROOT, FileKind::Directory)]);
        Self { dirs, kinds, known_inodes: alloc::vec![InodeNo::ROOT] }
    }

    /// Draws a random operation on known inodes.
    pub(in crate::tests) fn roll(&self, rng: &mut Rng) -> Act {
        let text = |rng: &mut Rng| NAMES[rng.usize(..NAMES.len())];
        let dir = |rng: &mut Rng| {
            let dirs: Vec<InodeNo> = self.dirs.keys().copied().collect();
            let any = rng.usize(..12) == 0;
            let from = if any { &self.known_inodes } else { &dirs };
            from[rng.usize(..from.len())]
        };
        match rng.usize(..16) {
            0..=3 => Act::Mkdir(dir(rng), text(rng)),
            4 | 5 => Act::Create(dir(rng), text(rng)),
            6 if rng.usize(..2) == 0 => Act::Fifo(dir(rng), text(rng)),
            6 => Act::Symlink(dir(rng), text(rng)),
            7 | 8 => Act::Link(
                self.known_inodes[rng.usize(..self.known_inodes.len())],
                dir(rng),
                text(rng),
            ),
            9 => Act::Unlink(dir(rng), text(rng)),
            10 => Act::Rmdir(dir(rng), text(rng)),
            11 => Act::Lookup(dir(rng), text(rng)),
            _ => {
                let (from, to) = (dir(rng), dir(rng));
                let how = match rng.usize(..10) {
                    0 | 1 => RenameHow::NoReplace,
                    2 | 3 => RenameHow::Exchange,
                    4 => RenameHow::Whiteout,
                    _ => RenameHow::Replace,
                };
                Act::Rename((from, text(rng)), (to, text(rng)), how)
            }
        }
    }

    fn find(&self, dir: InodeNo, text: &str) -> Result<Option<InodeNo>, Status> {
        match self.kinds.get(&dir) {
            None => Err(Status::Stale),
            Some(FileKind::Directory) => Ok(self.dirs[&dir].get(text).copied()),
            Some(_) => Err(Status::NotDirectory),
        }
    }

    fn is_dir(&self, inode: InodeNo) -> bool {
        self.kinds.get(&inode) == Some(&FileKind::Directory)
    }

    fn parent(&self, inode: InodeNo) -> Option<InodeNo> {
        let holds = |entries: &BTreeMap<_, _>| entries.values().any(|held| *held == inode);
        self.dirs.iter().find(|(_, entries)| holds(entries)).map(|(dir, _)| *dir)
    }

    fn is_within(&self, dir: InodeNo, inode: InodeNo) -> bool {
        let mut at = Some(dir);
        while let Some(dir) = at {
            if dir == inode {
                return true;
            }
            at = self.parent(dir);
        }
        false
    }

    /// The expected outcome.
    pub(in crate::tests) fn expected(&self, act: &Act) -> Status {
        self.judge(act).err().unwrap_or(Status::Ok)
    }

    fn judge(&self, act: &Act) -> Result<(), Status> {
        match *act {
            Act::Lookup(dir, text) => self.find(dir, text)?.map(drop).ok_or(Status::NotFound),
            Act::Mkdir(dir, text)
            | Act::Create(dir, text)
            | Act::Symlink(dir, text)
            | Act::Fifo(dir, text) => self.find(dir, text)?.map_or(Ok(()), |_| Err(Status::Exists)),
            Act::Link(inode, dir, text) => {
                if self.find(dir, text)?.is_some() {
                    return Err(Status::Exists);
                }
                match self.kinds.get(&inode) {
                    None => Err(Status::Stale),
                    Some(FileKind::Directory) => Err(Status::NotPermitted),
                    Some(_) => Ok(()),
                }
            }
            Act::Unlink(dir, text) => {
                let target = self.find(dir, text)?.ok_or(Status::NotFound)?;
                if self.is_dir(target) { Err(Status::IsDirectory) } else { Ok(()) }
            }
            Act::Rmdir(dir, text) => {
                let target = self.find(dir, text)?.ok_or(Status::NotFound)?;
                if !self.is_dir(target) {
                    return Err(Status::NotDirectory);
                }
                if self.dirs[&target].is_empty() { Ok(()) } else { Err(Status::NotEmpty) }
            }
            Act::Rename((from, from_text), (to, to_text), how) => {
                let source = self.find(from, from_text)?.ok_or(Status::NotFound)?;
                let victim = self.find(to, to_text)?;
                if how == RenameHow::Exchange {
                    return self.judge_exchange((from, source), (to, victim));
                }
                self.judge_rename(source, to, victim, how.keeps_target())
            }
        }
    }

    fn judge_rename(
        &self,
        source: InodeNo,
        to: InodeNo,
        victim: Option<InodeNo>,
        keep: bool,
    ) -> Result<(), Status> {
        if victim.is_some() && keep {
            return Err(Status::Exists);
        }
        if victim == Some(source) {
            return Ok(());
        }
        if self.is_dir(source) && self.is_within(to, source) {
            return Err(Status::Invalid);
        }
        let Some(victim) = victim else { return Ok(()) };
        match (self.is_dir(source), self.is_dir(victim)) {
            (true, false) => Err(Status::NotDirectory),
            (false, true) => Err(Status::IsDirectory),
            (true, true) if !self.dirs[&victim].is_empty() => Err(Status::NotEmpty),
            _ => Ok(()),
        }
    }

    fn judge_exchange(
        &self,
        (from, source): (InodeNo, InodeNo),
        (to, target): (InodeNo, Option<InodeNo>),
    ) -> Result<(), Status> {
        let target = target.ok_or(Status::NotFound)?;
        let loops = |inode, into| self.is_dir(inode) && self.is_within(into, inode);
        let moves = from != to && target != source;
        if moves && (loops(source, to) || loops(target, from)) {
            return Err(Status::Invalid);
        }
        Ok(())
    }

    /// Where the operation has left a whiteout, if it has.
    pub(in crate::tests) fn whiteout(&self, act: &Act) -> Option<Act> {
        let Act::Rename((from, from_text), to, how) = *act else { return None };
        let moved = self.find(from, from_text) == Ok(None) && (from, from_text) != to;
        (how.leaves_whiteout() && moved).then_some(Act::Lookup(from, from_text))
    }

    /// A whiteout was found there.
    pub(in crate::tests) fn add_whiteout(&mut self, at: &Act, inode: Option<InodeNo>) {
        let (Act::Lookup(dir, text), Some(inode)) = (*at, inode) else { panic!("no whiteout") };
        self.kinds.insert(inode, FileKind::CharDevice);
        self.known_inodes.push(inode);
        self.dirs.get_mut(&dir).unwrap().insert(text, inode);
    }

    /// Applies the operation.
    pub(in crate::tests) fn apply(&mut self, act: &Act, made: Option<InodeNo>) {
        let text = |act: &Act| match *act {
            Act::Mkdir(dir, text) | Act::Create(dir, text) | Act::Symlink(dir, text) => (dir, text),
            Act::Fifo(dir, text) | Act::Link(_, dir, text) => (dir, text),
            _ => unreachable!("it makes a name"),
        };
        match *act {
            Act::Lookup(dir, text) => assert_eq!(self.find(dir, text), Ok(made)),
            Act::Mkdir(..) | Act::Create(..) | Act::Symlink(..) | Act::Fifo(..) | Act::Link(..) => {
                let (dir, text) = text(act);
                self.learn(act, made);
                self.dirs.get_mut(&dir).unwrap().insert(text, made.unwrap());
            }
            Act::Unlink(dir, text) | Act::Rmdir(dir, text) => {
                let target = self.dirs.get_mut(&dir).unwrap().remove(text).unwrap();
                self.lose(target);
            }
            Act::Rename((from, from_text), (to, to_text), how) => {
                let source = self.dirs[&from][from_text];
                let target = self.dirs[&to].get(to_text).copied();
                if target == Some(source) {
                    return;
                }
                if how == RenameHow::Exchange {
                    self.dirs.get_mut(&from).unwrap().insert(from_text, target.unwrap());
                    self.dirs.get_mut(&to).unwrap().insert(to_text, source);
                    return;
                }
                self.dirs.get_mut(&from).unwrap().remove(from_text);
                let victim = self.dirs.get_mut(&to).unwrap().insert(to_text, source);
                if let Some(victim) = victim {
                    self.lose(victim);
                }
            }
        }
    }

    fn lose(&mut self, inode: InodeNo) {
        if self.parent(inode).is_none() {
            self.kinds.remove(&inode);
            self.dirs.remove(&inode);
        }
    }

    /// Remembers an inode number.
    pub(in crate::tests) fn learn(&mut self, act: &Act, made: Option<InodeNo>) {
        let Some(inode) = made else { return };
        let kind = match act {
            Act::Mkdir(..) => FileKind::Directory,
            Act::Create(..) => FileKind::File,
            Act::Symlink(..) => FileKind::Symlink,
            Act::Fifo(..) => FileKind::Fifo,
            _ => return,
        };
        if kind == FileKind::Directory {
            self.dirs.insert(inode, BTreeMap::new());
        }
        self.kinds.insert(inode, kind);
        self.known_inodes.push(inode);
    }

    /// Asserts that the server has the same tree.
    pub(super) fn compare(&self, server: &mut TestServer, mount: &mut Mount) {
        for (dir, entries) in &self.dirs {
            let found: BTreeSet<(String, InodeNo)> =
                mount.list(server, *dir).unwrap().into_iter().collect();
            let expected = entries.iter().map(|(text, inode)| (String::from(*text), *inode));
            assert_eq!(found, expected.collect(), "entries of {dir}");
        }
    }
}
