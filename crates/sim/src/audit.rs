//! The audit: a fresh client reads everything back, and what it finds must be what happened.

use crate::clients::{Carried, entries_of};
use crate::model::{Node, Tree};
use crate::number::wide;
use crate::work::{Asked, Tag, Wish, name_bytes, text_of, xattr_name};
use crate::world::{Verdict, World};
use std::collections::{BTreeMap, VecDeque};
use wire::{Attr, ClientUuid, FileKind, InodeNo, Op, ShardId, Transno};

/// What an audit has read so far.
#[derive(Default, Debug)]
pub(crate) struct Audit {
    client: usize,
    todo: VecDeque<Wish>,
    names: BTreeMap<(InodeNo, Vec<u8>), InodeNo>,
    attrs: BTreeMap<InodeNo, Attr>,
    sizes: BTreeMap<InodeNo, u64>,
    targets: BTreeMap<InodeNo, Vec<u8>>,
    xattrs: BTreeMap<InodeNo, BTreeMap<Vec<u8>, Vec<u8>>>,
}

const READ_BYTES: u32 = 1 << 20;
const DEPTH: usize = 8;

impl World {
    /// Begins an audit by a client of its own, which may take the place of one that died.
    pub(crate) fn begin_audit(&mut self) {
        let mut dead = self.mounts.iter().filter(|mount| !mount.alive).map(|mount| mount.uuid);
        let dead = dead.next().filter(|_| self.dice.throw().is_multiple_of(2));
        let client = self.mount(1, true, dead.unwrap_or(ClientUuid::NONE));
        let todo = VecDeque::from([Wish::Getattr { inode: InodeNo::ROOT }]);
        self.audit = Audit { client, todo, ..Audit::default() };
        self.audit_on();
    }

    fn audit_on(&mut self) {
        let client = self.audit.client;
        while self.mounts[client].seats[0].outstanding.len() < DEPTH {
            let Some(wish) = self.audit.todo.pop_front() else { return };
            self.ask(client, 0, wish);
        }
    }

    pub(crate) fn audit_is_over(&self) -> bool {
        let seat = &self.mounts[self.audit.client].seats[0];
        self.audit.todo.is_empty() && seat.outstanding.is_empty()
    }

    /// One of the audit's calls was answered.
    pub(crate) fn audited(&mut self, _tag: Tag, asked: &Asked, carried: &Carried) {
        let Some(brought) = asked.brought() else {
            if self.lies.is_any() {
                return self.audit_on(); // A part of what it belongs to may be gone.
            }
            if let Wish::Read { inode, .. } = asked.wish
                && self.rotten.keys().any(|object| object.inode == inode)
            {
                return self.audit_on();
            }
            return self.breaks(format!("the audit's {:?}: {:?}", asked.wish, asked.ended));
        };
        let audit = &mut self.audit;
        let bytes = carried.bytes.clone();
        match asked.wish {
            Wish::Getattr { inode } => {
                let Some(attr) = brought.attr else { return };
                audit.attrs.insert(inode, attr);
                audit.todo.extend(match attr.kind {
                    FileKind::Directory => Some(Wish::Readdir { inode, cookie: 0 }),
                    FileKind::Symlink => Some(Wish::Readlink { inode }),
                    FileKind::File => {
                        Some(Wish::Read { inode, file_offset: 0, read_bytes: READ_BYTES })
                    }
                    FileKind::Fifo
                    | FileKind::Socket
                    | FileKind::CharDevice
                    | FileKind::BlockDevice => None,
                });
                audit.todo.push_back(Wish::Listxattr { inode });
            }
            Wish::Readdir { inode, .. } => self.audit_listing(inode, &bytes),
            Wish::Readlink { inode } => drop(audit.targets.insert(inode, bytes)),
            Wish::Read { inode, .. } => drop(audit.sizes.insert(inode, wide(bytes.len()))),
            Wish::Listxattr { inode } => {
                let names: Vec<_> = bytes.split(|byte| *byte == 0).collect();
                for number in 0..2 {
                    if names.contains(&xattr_name(number)) {
                        audit.todo.push_back(Wish::Getxattr { inode, name: number });
                    }
                }
            }
            Wish::Getxattr { inode, name } => {
                let xattrs = audit.xattrs.entry(inode).or_default();
                xattrs.insert(xattr_name(name).to_vec(), bytes);
            }
            _ => {}
        }
        self.audit_on();
    }

    fn audit_listing(&mut self, dir: InodeNo, bytes: &[u8]) {
        let Some((end, entries)) = entries_of(bytes) else {
            return self.breaks(format!("the listing of {dir} makes no sense"));
        };
        let audit = &mut self.audit;
        let last = entries.last().map(|(cookie, ..)| *cookie);
        for (_, inode, name) in entries {
            if audit.names.insert((dir, name), inode).is_some() {
                return self.breaks(format!("directory {dir} lists a name twice"));
            }
            audit.todo.push_back(Wish::Getattr { inode });
        }
        if !end && let Some(cookie) = last {
            audit.todo.push_back(Wish::Readdir { inode: dir, cookie });
        }
    }

    /// Everything that can be said of the run now.
    pub(crate) fn judge(&self) -> Verdict {
        self.judge_calls()?;
        self.judge_order()?;
        let tree = self.executed()?;
        self.judge_names(&tree)?;
        for (inode, attr) in &self.audit.attrs {
            let node = tree.nodes.get(inode);
            let node = node.ok_or_else(|| format!("I15: nobody made inode {inode}"))?;
            self.judge_inode(*inode, attr, node)?;
        }
        Ok(())
    }

    /// I3, I5: an acknowledged call of a living client is there, once.
    fn judge_calls(&self) -> Verdict {
        let mut places: BTreeMap<Tag, Vec<(ShardId, Transno)>> = BTreeMap::new();
        for ((shard, transno), kept) in &self.tap.kept {
            if let Some(tag) = kept.tag.filter(|_| kept.op != Op::Open) {
                places.entry(tag).or_default().push((*shard, *transno));
            }
        }
        for (tag, places) in &places {
            let effective = |at: &&(ShardId, Transno)| self.tap.kept[*at].effective;
            if places.iter().filter(effective).count() > 1 {
                return Err(format!("I3: call {tag} took effect at {places:?}"));
            }
        }
        for (index, asked) in self.asked.iter().enumerate() {
            let tag = crate::number::narrow_u32(index + 1);
            if asked.brought().is_some() && asked.wish.changes_tree() {
                self.judge_acknowledged(tag, asked, places.contains_key(&tag))?;
            }
        }
        Ok(())
    }

    fn judge_acknowledged(&self, tag: Tag, asked: &Asked, there: bool) -> Verdict {
        let answers = self.tap.answers.get(&tag).map_or(&[][..], Vec::as_slice);
        let changed = answers.iter().any(|(_, transno, _)| transno.0 > 0);
        let synced = answers.iter().any(|(shard, ..)| self.is_synced(asked, *shard));
        if there || !(self.is_certain(asked) || synced) {
            return Ok(());
        }
        if changed {
            return Err(format!("I5: call {tag} {:?} was acknowledged and is lost", asked.wish));
        }
        // Two names of one file, or a file that was there.
        let idle = match asked.wish {
            Wish::Rename { .. } => true,
            Wish::Create { .. } => asked.brought().is_some_and(|brought| !brought.made),
            _ => false,
        };
        if idle {
            Ok(())
        } else {
            Err(format!("call {tag} {:?} is done, and nothing changed", asked.wish))
        }
    }

    /// What began after another's answer comes after it in the order of transactions.
    fn judge_order(&self) -> Verdict {
        let mut latest_sent: BTreeMap<ShardId, (u64, Transno)> = BTreeMap::new();
        for ((shard, transno), kept) in &self.tap.kept {
            let Some(tag) = kept.tag else { continue };
            let sent_ns = self.tap.sent_ns(*shard, kept);
            let answers = self.tap.answers.get(&tag).map_or(&[][..], Vec::as_slice);
            let answered = answers.iter().find(|answer| (answer.0, answer.1) == (*shard, *transno));
            let latest = latest_sent.entry(*shard).or_insert((0, Transno(0)));
            if let Some((.., answered_ns)) = answered
                && *answered_ns < latest.0
            {
                let before = latest.1;
                return Err(format!(
                    "{shard}: T {transno} was answered before T {before} was asked"
                ));
            }
            if sent_ns > latest.0 {
                *latest = (sent_ns, *transno);
            }
        }
        Ok(())
    }

    fn judge_names(&self, tree: &Tree) -> Verdict {
        let mut wanted = BTreeMap::new();
        for (dir, node) in tree.nodes.iter().filter(|(_, node)| node.nlink > 0) {
            for (name, inode) in &node.entries {
                wanted.insert((*dir, name_bytes(*name).to_vec()), *inode);
            }
        }
        for (at, inode) in &wanted {
            let found = self.audit.names.get(at);
            if found != Some(inode) {
                let name = String::from_utf8_lossy(&at.1);
                return Err(format!("I15: {}/{name} is {inode}, found {found:?}", at.0));
            }
        }
        for (at, inode) in &self.audit.names {
            if !wanted.contains_key(at) {
                let name = String::from_utf8_lossy(&at.1);
                return Err(format!("I15: {}/{name} is {inode}, and should not be", at.0));
            }
        }
        Ok(())
    }

    fn judge_inode(&self, inode: InodeNo, attr: &Attr, node: &Node) -> Verdict {
        let differs = |what: &str| Err(format!("I15: inode {inode}: {what}: {attr:?}, {node:?}"));
        if attr.kind != node.kind {
            return differs("kind");
        }
        if node.mode.is_some_and(|mode| mode != attr.mode) {
            return differs("mode");
        }
        if attr.nlink != node.nlink {
            return differs("links");
        }
        let target = self.audit.targets.get(&inode).map(Vec::as_slice);
        if target != node.target.map(text_of).as_ref().map(<[u8; 4]>::as_slice) {
            return differs("target");
        }
        let found = self.audit.xattrs.get(&inode).cloned().unwrap_or_default();
        let wanted = node.xattrs.iter();
        let wanted: BTreeMap<Vec<u8>, Vec<u8>> = wanted
            .map(|(name, tag)| (xattr_name(*name).to_vec(), text_of(*tag).to_vec()))
            .collect();
        if found != wanted {
            return differs("extended attributes");
        }
        let size_bytes = self.audit.sizes.get(&inode).copied();
        let rotten = self.rotten.keys().any(|object| object.inode == inode);
        let unread = rotten && size_bytes.is_none();
        if node.kind == FileKind::File && size_bytes != Some(attr.size_bytes) && !unread {
            return differs(&format!("{size_bytes:?} bytes can be read"));
        }
        Ok(())
    }
}
