//! A naive file system without logs, cookies or hashes.

mod containing;
mod run;
mod search;

use super::{ALICE, Harness, ROOT};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use wire::{
    ClientUuid, Contents, FileKind, Handle, InodeNo, OpenFor, RenameHow, Status, Timestamp,
};

#[derive(Clone, Debug)]
struct Node {
    kind: FileKind,
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    size_bytes: u64,
    at_data: bool,
    mtime: Timestamp,
    /// When a file's mtime was last set.
    set: Timestamp,
    /// What closed writers had seen, since the last state without writers.
    asked: bool,
    ctime: Timestamp,
    parent: InodeNo,
    entries: BTreeMap<String, InodeNo>,
    target: Vec<u8>,
    rdev: u32,
    linkable: bool,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Outcome = Result<(), Status>;

/// The naive file system, and its caller.
struct Model {
    nodes: BTreeMap<InodeNo, Node>,
    open: BTreeSet<(InodeNo, bool, ClientUuid, u64)>,
    /// Unreachable nodes: the shards must destroy them.
    orphans: BTreeSet<InodeNo>,
    uid: u32,
    gid: u32,
    client: ClientUuid,
    now: Timestamp,
}

/// The permission bits that an open needs.
const fn bits_of(open_for: OpenFor) -> u32 {
    match open_for {
        OpenFor::Execute => 1,
        OpenFor::Write => 2,
        OpenFor::Read => 4,
        OpenFor::ReadWrite => 6,
    }
}

impl Model {
    fn new(harness: &mut Harness) -> Self {
        let attr = harness.attr(ROOT);
        let mut model = Self {
            nodes: BTreeMap::new(),
            open: BTreeSet::new(),
            orphans: BTreeSet::new(),
            uid: 0,
            gid: 0,
            client: ALICE,
            now: attr.mtime,
        };
        model.add(ROOT, FileKind::Directory, attr.mode, ROOT);
        model
    }

    fn add(&mut self, inode: InodeNo, kind: FileKind, mode: u32, parent: InodeNo) {
        let inherited = self.nodes.get(&parent).filter(|dir| dir.mode & 0o2000 != 0);
        let gid = inherited.map_or(self.gid, |dir| dir.gid);
        let down = if kind == FileKind::Directory && inherited.is_some() { 0o2000 } else { 0 };
        let node = Node {
            kind,
            mode: mode | down,
            uid: self.uid,
            gid,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            size_bytes: 0,
            at_data: false,
            mtime: self.now,
            set: self.now,
            asked: false,
            ctime: self.now,
            parent,
            entries: BTreeMap::new(),
            target: Vec::new(),
            rdev: 0,
            linkable: false,
            xattrs: BTreeMap::new(),
        };
        assert!(self.nodes.insert(inode, node).is_none(), "a new inode has a new number");
    }

    fn node(&self, inode: InodeNo) -> Result<&Node, Status> {
        self.nodes.get(&inode).ok_or(Status::Stale)
    }

    fn at(&mut self, inode: InodeNo) -> &mut Node {
        self.nodes.get_mut(&inode).unwrap()
    }

    fn may(&self, inode: InodeNo, bits: u32) -> Outcome {
        let node = self.node(inode)?;
        let class = if self.uid == node.uid {
            node.mode >> 6
        } else if self.gid == node.gid {
            node.mode >> 3
        } else {
            node.mode
        };
        let granted = match self.uid {
            0 if node.kind == FileKind::Directory || node.mode & 0o111 != 0 => 7,
            0 => 6,
            _ => class & 7,
        };
        if granted & bits == bits { Ok(()) } else { Err(Status::Access) }
    }

    fn find(&self, dir: InodeNo, name: &str) -> Result<Option<InodeNo>, Status> {
        let node = self.node(dir)?;
        if node.kind != FileKind::Directory {
            return Err(Status::NotDirectory);
        }
        self.may(dir, 1)?;
        Ok(node.entries.get(name).copied())
    }

    fn may_add(&self, dir: InodeNo) -> Outcome {
        if self.node(dir)?.nlink == 0 {
            return Err(Status::NotFound);
        }
        self.may(dir, 3)
    }

    fn may_remove(&self, dir: InodeNo, inode: InodeNo) -> Outcome {
        self.may_add(dir)?;
        let dir = self.node(dir)?;
        let owns = [0, dir.uid, self.node(inode)?.uid].contains(&self.uid);
        if dir.mode & 0o1000 != 0 && !owns { Err(Status::NotPermitted) } else { Ok(()) }
    }

    fn is_open(&self, inode: InodeNo) -> bool {
        self.open.iter().any(|handle| handle.0 == inode)
    }

    /// A restart, after which no client reopens its handles.
    fn lose_handles(&mut self) {
        self.open.clear();
        let nameless = self.nodes.iter().filter(|(_, node)| node.nlink == 0);
        self.orphans.extend(nameless.map(|(inode, _)| *inode));
    }

    fn is_written(&self, inode: InodeNo) -> bool {
        self.open.iter().any(|handle| handle.0 == inode && handle.1)
    }

    /// May a new name be put there?
    fn check_new(&self, dir: InodeNo, name: &str) -> Outcome {
        match self.find(dir, name)? {
            Some(_) => Err(Status::Exists),
            None => self.may_add(dir),
        }
    }

    fn enter(&mut self, dir: InodeNo, name: &str, inode: InodeNo) {
        let now = self.now;
        let node = self.at(dir);
        node.entries.insert(name.into(), inode);
        (node.mtime, node.ctime) = (now, now);
    }

    fn leave(&mut self, dir: InodeNo, name: &str) {
        let now = self.now;
        let node = self.at(dir);
        node.entries.remove(name).unwrap();
        (node.mtime, node.ctime) = (now, now);
    }

    /// A name of `inode` went away.
    fn lose(&mut self, inode: InodeNo) {
        let (now, is_open) = (self.now, self.is_open(inode));
        let node = self.at(inode);
        node.nlink = if node.kind == FileKind::Directory { 0 } else { node.nlink - 1 };
        node.ctime = now;
        if node.nlink > 0 {
            return;
        }
        if node.kind == FileKind::File && !is_open {
            self.orphans.insert(inode);
        } else if !is_open {
            self.nodes.remove(&inode);
        }
    }

    fn unlink(&mut self, dir: InodeNo, name: &str) -> Outcome {
        let inode = self.find(dir, name)?.ok_or(Status::NotFound)?;
        self.may_remove(dir, inode)?;
        if self.node(inode)?.kind == FileKind::Directory {
            return Err(Status::IsDirectory);
        }
        self.leave(dir, name);
        self.lose(inode);
        Ok(())
    }

    fn rmdir(&mut self, dir: InodeNo, name: &str) -> Outcome {
        let inode = self.find(dir, name)?.ok_or(Status::NotFound)?;
        self.may_remove(dir, inode)?;
        if self.node(inode)?.kind != FileKind::Directory {
            return Err(Status::NotDirectory);
        }
        if !self.node(inode)?.entries.is_empty() {
            return Err(Status::NotEmpty);
        }
        self.leave(dir, name);
        self.at(dir).nlink -= 1;
        self.lose(inode);
        Ok(())
    }

    fn link(&mut self, inode: InodeNo, dir: InodeNo, name: &str) -> Outcome {
        self.check_new(dir, name)?;
        let node = self.node(inode)?;
        if node.kind == FileKind::Directory {
            return Err(Status::NotPermitted);
        }
        if node.nlink == 0 && !(node.linkable && self.is_open(inode)) {
            return Err(Status::NotFound);
        }
        let now = self.now;
        self.at(inode).nlink += 1;
        self.at(inode).linkable = false;
        self.at(inode).ctime = now;
        self.enter(dir, name, inode);
        Ok(())
    }

    fn is_below(&self, mut dir: InodeNo, inode: InodeNo) -> bool {
        while dir != inode {
            match self.nodes.get(&dir) {
                Some(node) if dir != ROOT => dir = node.parent,
                Some(_) | None => return false,
            }
        }
        true
    }

    /// The moved inode, and the replaced one.
    fn rename(
        &mut self,
        from: (InodeNo, &str),
        to: (InodeNo, &str),
        how: RenameHow,
    ) -> Result<(InodeNo, Option<InodeNo>), Status> {
        let source = self.find(from.0, from.1)?.ok_or(Status::NotFound)?;
        let victim = self.find(to.0, to.1)?;
        if how.keeps_target() && victim.is_some() {
            return Err(Status::Exists);
        }
        if victim == Some(source) {
            return Ok((source, victim));
        }
        if how == RenameHow::Exchange {
            let target = victim.ok_or(Status::NotFound)?;
            return self.exchange((from, source), (to, target)).map(|()| (source, victim));
        }
        self.rename_over(from, to, source, victim).map(|()| (source, victim))
    }

    fn exchange(
        &mut self,
        (from, source): ((InodeNo, &str), InodeNo),
        (to, target): ((InodeNo, &str), InodeNo),
    ) -> Outcome {
        let ways = [(source, from.0, to.0), (target, to.0, from.0)];
        let is_directory = |model: &Self, inode| model.nodes[&inode].kind == FileKind::Directory;
        for (inode, left, entered) in ways {
            if left != entered && is_directory(self, inode) && self.is_below(entered, inode) {
                return Err(Status::Invalid);
            }
        }
        self.may_remove(from.0, source)?;
        self.may_remove(to.0, target)?;
        for (inode, left, entered) in ways {
            if left != entered && is_directory(self, inode) {
                self.may(inode, 2)?;
            }
        }
        for (inode, left, entered) in ways {
            self.at(inode).ctime = self.now;
            if is_directory(self, inode) {
                self.at(inode).parent = entered;
                self.at(left).nlink -= 1;
                self.at(entered).nlink += 1;
            }
        }
        self.enter(from.0, from.1, target);
        self.enter(to.0, to.1, source);
        Ok(())
    }

    fn rename_over(
        &mut self,
        from: (InodeNo, &str),
        to: (InodeNo, &str),
        source: InodeNo,
        victim: Option<InodeNo>,
    ) -> Outcome {
        let is_directory = self.node(source)?.kind == FileKind::Directory;
        if is_directory && self.is_below(to.0, source) {
            return Err(Status::Invalid);
        }
        self.may_remove(from.0, source)?;
        if let Some(victim) = victim {
            self.may_remove(to.0, victim)?;
            let node = self.node(victim)?;
            match (is_directory, node.kind == FileKind::Directory) {
                (true, false) => return Err(Status::NotDirectory),
                (false, true) => return Err(Status::IsDirectory),
                _ if !node.entries.is_empty() => return Err(Status::NotEmpty),
                _ => {}
            }
        } else {
            self.may_add(to.0)?;
        }
        if is_directory && from.0 != to.0 {
            self.may(source, 2)?;
        }
        self.leave(from.0, from.1);
        self.enter(to.0, to.1, source);
        self.at(source).ctime = self.now;
        if is_directory {
            self.at(source).parent = to.0;
            self.at(from.0).nlink -= 1;
            self.at(to.0).nlink += 1;
        }
        if let Some(victim) = victim {
            if is_directory {
                self.at(to.0).nlink -= 1;
            }
            self.lose(victim);
        }
        Ok(())
    }

    fn open(&mut self, inode: InodeNo, handle: Handle) -> Outcome {
        let node = self.node(inode)?;
        match node.kind {
            FileKind::Symlink => return Err(Status::Loop),
            FileKind::Directory if handle.open_for.writes() => return Err(Status::IsDirectory),
            kind if kind.is_special() => return Err(Status::NoDevice),
            _ => {}
        }
        if self.orphans.contains(&inode) {
            return Err(Status::Stale);
        }
        self.may(inode, bits_of(handle.open_for))?;
        self.register(inode, handle);
        Ok(())
    }

    fn register(&mut self, inode: InodeNo, handle: Handle) {
        let writes = handle.open_for.writes();
        self.open.insert((inode, writes, self.client, handle.id.0));
        self.at(inode).at_data |= writes;
        self.at(inode).asked &= !writes;
    }

    /// Whether the data shard is queried for the size.
    fn close(&mut self, inode: InodeNo, id: u64) -> bool {
        self.open.remove(&(inode, false, self.client, id));
        let was_writer = self.open.remove(&(inode, true, self.client, id));
        let (is_written, is_open) = (self.is_written(inode), self.is_open(inode));
        let Some(node) = self.nodes.get_mut(&inode) else {
            return false;
        };
        if node.nlink == 0 && !is_open {
            self.orphans.insert(inode);
        }
        let asks = was_writer && !is_written && node.nlink > 0;
        node.asked |= asks;
        asks
    }

    /// The data shard replies to the last query. Returns whether that is valid.
    fn settle(&mut self, inode: InodeNo, contents: Contents) -> bool {
        let Some(node) = self.nodes.get_mut(&inode) else { return false };
        let settles = core::mem::take(&mut node.asked) && node.nlink > 0;
        if settles {
            node.size_bytes = contents.size_bytes;
            node.at_data = false;
            if let Some(time) = contents.write_time.filter(|time| *time > node.set) {
                (node.mtime, node.set) = (time, time);
                node.ctime = node.ctime.max(time);
            }
        }
        settles
    }

    fn chmod(&mut self, inode: InodeNo, mode: u32) -> Outcome {
        let (uid, gid, now) = (self.uid, self.gid, self.now);
        let node = self.node(inode)?;
        if node.kind == FileKind::Symlink {
            return Err(Status::NotSupported);
        }
        if uid != 0 && uid != node.uid {
            return Err(Status::NotPermitted);
        }
        let lost = if uid != 0 && gid != node.gid { 0o2000 } else { 0 };
        let node = self.at(inode);
        node.mode = mode & !lost;
        node.ctime = now;
        Ok(())
    }

    fn chown(&mut self, inode: InodeNo, uid: u32, gid: u32) -> Outcome {
        let now = self.now;
        let node = self.node(inode)?;
        let own = self.uid == node.uid && uid == node.uid;
        if self.uid != 0 && !(own && (gid == node.gid || gid == self.gid)) {
            return Err(Status::NotPermitted);
        }
        let node = self.at(inode);
        (node.uid, node.gid, node.ctime) = (uid, gid, now);
        if node.kind != FileKind::Directory {
            node.mode &= !if node.mode & 0o010 != 0 { 0o6000 } else { 0o4000 };
        }
        Ok(())
    }

    fn may_set_xattr(&self, inode: InodeNo) -> Outcome {
        let node = self.node(inode)?;
        let sticky = node.kind == FileKind::Directory && node.mode & 0o1000 != 0;
        let owns = [0, node.uid].contains(&self.uid);
        let has_none = !matches!(node.kind, FileKind::Directory | FileKind::File);
        if has_none || (sticky && !owns) {
            return Err(Status::NotPermitted);
        }
        self.may(inode, 2)
    }
}
