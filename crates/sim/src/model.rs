//! A sequential model of the tree: names, links and attributes.
//!
//! It executes calls in the order of their transactions, and reports a call that could not have
//! succeeded there.

use crate::privileges::without_set_id;
use crate::work::{CallSpec, NameNo, Tag};
use std::collections::BTreeMap;
use wire::{FileKind, InodeNo};

/// An inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) kind: FileKind,
    /// `None`: as mkfs made it.
    pub(crate) mode: Option<u32>,
    pub(crate) nlink: u32,
    pub(crate) parent: InodeNo,
    pub(crate) entries: BTreeMap<NameNo, InodeNo>,
    pub(crate) target: Option<Tag>,
    /// By the number of the attribute's name, 0 or 1.
    pub(crate) xattrs: BTreeMap<NameNo, Tag>,
}

/// The effect that a reply reports.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Effect {
    pub(crate) inode: Option<InodeNo>,
    pub(crate) made: bool,
}

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<InodeNo, Node>,
}

type Step = Result<(), String>;

impl Tree {
    pub(crate) fn new() -> Self {
        let root = new_node(FileKind::Directory, None, InodeNo::ROOT);
        Self { nodes: BTreeMap::from([(InodeNo::ROOT, root)]) }
    }

    /// Executes a call.
    pub(crate) fn apply(&mut self, tag: Tag, spec: &CallSpec, effect: Effect) -> Step {
        match *spec {
            CallSpec::Create { parent, name, mode, .. } if effect.made => {
                self.make((parent, name), (FileKind::File, Some(mode)), effect).map(drop)
            }
            CallSpec::Create { parent, name, .. } => {
                let found = self.entry(parent, name)?;
                same(found, effect.inode, "create found another file")
            }
            CallSpec::Mkdir { parent, name, mode } => {
                self.make((parent, name), (FileKind::Directory, Some(mode)), effect).map(drop)
            }
            CallSpec::Symlink { parent, name } => {
                let inode = self.make((parent, name), (FileKind::Symlink, None), effect)?;
                self.node(inode)?.target = Some(tag);
                Ok(())
            }
            CallSpec::Link { inode, parent, name } => self.link(inode, (parent, name)),
            CallSpec::Unlink { parent, name } => self.unlink(parent, name),
            CallSpec::Rmdir { parent, name } => self.rmdir(parent, name),
            CallSpec::Rename { from, to, no_replace } => self.rename(from, to, no_replace),
            CallSpec::Setattr { inode, mode } => {
                self.node(inode)?.mode = Some(mode);
                Ok(())
            }
            CallSpec::ClearBits { inode } => {
                let mode = &mut self.node(inode)?.mode;
                *mode = mode.map(without_set_id);
                Ok(())
            }
            CallSpec::Setxattr { inode, name } => {
                self.node(inode)?.xattrs.insert(name % 2, tag);
                Ok(())
            }
            CallSpec::Removexattr { inode, name } => {
                let removed = self.node(inode)?.xattrs.remove(&(name % 2));
                removed.map(drop).ok_or_else(|| "no such attribute".to_owned())
            }
            CallSpec::Resize { .. }
            | CallSpec::Lookup { .. }
            | CallSpec::Getattr { .. }
            | CallSpec::Readdir { .. }
            | CallSpec::Readlink { .. }
            | CallSpec::Open { .. }
            | CallSpec::Close { .. }
            | CallSpec::Read { .. }
            | CallSpec::Write { .. }
            | CallSpec::ReadList { .. }
            | CallSpec::WriteList { .. }
            | CallSpec::Allocate { .. }
            | CallSpec::Seek { .. }
            | CallSpec::Sync { .. }
            | CallSpec::Getxattr { .. }
            | CallSpec::Listxattr { .. } => Ok(()),
        }
    }

    fn node(&mut self, inode: InodeNo) -> Result<&mut Node, String> {
        self.nodes.get_mut(&inode).ok_or_else(|| format!("there is no inode {inode}"))
    }

    fn directory(&mut self, inode: InodeNo) -> Result<&mut Node, String> {
        let node = self.node(inode)?;
        if node.kind == FileKind::Directory && node.nlink > 0 {
            Ok(node)
        } else {
            Err(format!("inode {inode} is no living directory"))
        }
    }

    fn entry(&mut self, parent: InodeNo, name: NameNo) -> Result<InodeNo, String> {
        let found = self.directory(parent)?.entries.get(&name).copied();
        found.ok_or_else(|| format!("{parent} has no name {name}"))
    }

    fn make(
        &mut self,
        (parent, name): (InodeNo, NameNo),
        (kind, mode): (FileKind, Option<u32>),
        effect: Effect,
    ) -> Result<InodeNo, String> {
        let inode = effect.inode.ok_or("the reply names no inode")?;
        if self.nodes.contains_key(&inode) {
            return Err(format!("inode {inode} is assigned twice"));
        }
        self.enter((parent, name), inode)?;
        if kind == FileKind::Directory {
            self.node(parent)?.nlink += 1;
        }
        self.nodes.insert(inode, new_node(kind, mode, parent));
        Ok(inode)
    }

    fn enter(&mut self, (parent, name): (InodeNo, NameNo), inode: InodeNo) -> Step {
        let entries = &mut self.directory(parent)?.entries;
        if let Some(there) = entries.get(&name) {
            return Err(format!("{parent} has the name {name} already, for {there}"));
        }
        entries.insert(name, inode);
        Ok(())
    }

    fn link(&mut self, inode: InodeNo, to: (InodeNo, NameNo)) -> Step {
        let node = self.node(inode)?;
        if node.kind == FileKind::Directory || node.nlink == 0 {
            return Err(format!("inode {inode} cannot be linked"));
        }
        node.nlink += 1;
        self.enter(to, inode)
    }

    fn unlink(&mut self, parent: InodeNo, name: NameNo) -> Step {
        let inode = self.entry(parent, name)?;
        let node = self.node(inode)?;
        if node.kind == FileKind::Directory {
            return Err(format!("unlink of the directory {inode}"));
        }
        node.nlink -= 1;
        self.directory(parent)?.entries.remove(&name);
        Ok(())
    }

    fn rmdir(&mut self, parent: InodeNo, name: NameNo) -> Step {
        let inode = self.entry(parent, name)?;
        self.bury_directory(inode)?;
        let parent = self.directory(parent)?;
        parent.entries.remove(&name);
        parent.nlink -= 1;
        Ok(())
    }

    fn bury_directory(&mut self, inode: InodeNo) -> Step {
        let node = self.directory(inode)?;
        if !node.entries.is_empty() {
            return Err(format!("directory {inode} is not empty"));
        }
        node.nlink = 0;
        Ok(())
    }

    fn rename(&mut self, from: (InodeNo, NameNo), to: (InodeNo, NameNo), no_replace: bool) -> Step {
        let inode = self.entry(from.0, from.1)?;
        let is_directory = self.node(inode)?.kind == FileKind::Directory;
        if is_directory && self.is_within(to.0, inode) {
            return Err(format!("rename makes a loop of {inode}"));
        }
        let victim = self.directory(to.0)?.entries.get(&to.1).copied();
        if let Some(victim) = victim {
            if no_replace || victim == inode {
                return Err(format!("rename of {inode} over {victim}"));
            }
            let victim_is_directory = self.node(victim)?.kind == FileKind::Directory;
            match (is_directory, victim_is_directory) {
                (true, true) => {
                    self.bury_directory(victim)?;
                    self.node(to.0)?.nlink -= 1;
                }
                (false, false) => self.node(victim)?.nlink -= 1,
                (true, false) | (false, true) => {
                    return Err(format!("rename of {inode} over {victim}: kinds differ"));
                }
            }
        }
        self.directory(from.0)?.entries.remove(&from.1);
        self.directory(to.0)?.entries.insert(to.1, inode);
        if is_directory && from.0 != to.0 {
            self.node(from.0)?.nlink -= 1;
            self.node(to.0)?.nlink += 1;
            self.node(inode)?.parent = to.0;
        }
        Ok(())
    }

    fn is_within(&self, inode: InodeNo, top: InodeNo) -> bool {
        let mut at = inode;
        for _ in 0..=self.nodes.len() {
            if at == top {
                return true;
            }
            let Some(node) = self.nodes.get(&at) else { return false };
            if at == InodeNo::ROOT {
                return false;
            }
            at = node.parent;
        }
        true
    }
}

fn new_node(kind: FileKind, mode: Option<u32>, parent: InodeNo) -> Node {
    let nlink = if kind == FileKind::Directory { 2 } else { 1 };
    let (entries, xattrs) = (BTreeMap::new(), BTreeMap::new());
    Node { kind, mode, nlink, parent, entries, target: None, xattrs }
}

fn same(found: InodeNo, wanted: Option<InodeNo>, what: &str) -> Step {
    if Some(found) == wanted { Ok(()) } else { Err(format!("{what}: {found} is there")) }
}
