//! Random operations: results and final state match the naive file system.

use super::{Model, Node, Outcome, bits_of, containing, search};
use crate::tests::{ALICE, BOB, Harness, ROOT, root, setattr};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use test_runtime::Prng;
use wire::{
    Attr, Bytes, Caller, Close, Contents, Create, Created, Entry, FileKind, Getattr, Getxattr,
    Groups, Handle, HandleId, InodeNo, Link, Listing, Listxattr, Lookup, Mkdir, Mknod, Name, Op,
    Open, OpenFor, Readdir, Readlink, Removexattr, Rename, RenameHow, Rmdir, Setattr, Setxattr,
    Status, Symlink, Target, Timestamp, Tmpfile, Transno, Unlink, Value, Wire, attr_flag,
};

/// With more names than this most operations are in one directory.
const CROWD_COUNT: usize = 100;

/// The parameters and state of a run.
struct Run {
    harness: Harness,
    model: Model,
    rng: Prng,
    names: Vec<String>,
    ok_count: usize,
    /// Size queries without a reply.
    questions: Vec<(InodeNo, u64)>,
    /// Numbers seen, dead ones too.
    inodes: Vec<InodeNo>,
}

impl Run {
    fn new(seed: u64, mut harness: Harness) -> Self {
        let mut rng = Prng::new(seed);
        harness.set(ROOT, 0o1777, 0, 0);
        let mut model = Model::new(&mut harness);
        model.at(ROOT).ctime = harness.attr(ROOT).ctime;
        let names = (0..2 + rng.below(12)).map(|no| alloc::format!("n{no}")).collect();
        Self {
            harness,
            model,
            rng,
            names,
            ok_count: 0,
            questions: Vec::new(),
            inodes: alloc::vec![ROOT],
        }
    }

    fn inode(&mut self) -> InodeNo {
        self.rng.pick(&self.inodes).unwrap()
    }

    fn name(&mut self) -> String {
        let index = self.rng.below(self.names.len());
        self.names[index].clone()
    }

    /// A directory more often than not.
    fn dir(&mut self) -> InodeNo {
        let inode = self.inode();
        let is_directory =
            self.model.nodes.get(&inode).is_some_and(|node| node.kind == FileKind::Directory);
        let crowded = self.names.len() > CROWD_COUNT && self.rng.per_mille(700);
        if (is_directory || self.rng.per_mille(100)) && !crowded { inode } else { ROOT }
    }

    fn mode(&mut self) -> u32 {
        let mode =
            self.rng.pick(&[0o777, 0o755, 0o700, 0o770, 0o1777, 0o2775, 0o644, 0o6751]).unwrap();
        if self.rng.per_mille(100) {
            u32::try_from(self.rng.below(0o10_000)).unwrap()
        } else {
            mode
        }
    }

    /// Executes the op; its status must match the model's. Returns whether it succeeded.
    fn expect<'a>(&mut self, op: Op, args: &impl Wire<'a>, expected: Outcome) -> bool {
        self.expect_effect(op, args, expected).status == Status::Ok
    }

    fn expect_effect<'a>(
        &mut self,
        op: Op,
        args: &impl Wire<'a>,
        expected: Outcome,
    ) -> crate::Effect {
        let effect = self.harness.execute(op, args);
        let status = expected.err().unwrap_or(Status::Ok);
        assert_eq!(effect.status, status, "{op:?}");
        self.ok_count += usize::from(status == Status::Ok);
        if let Some(orphan) = effect.orphan {
            assert!(self.model.orphans.contains(&orphan), "{orphan} is no orphan");
        }
        effect
    }

    fn step(&mut self) {
        let uid = self.rng.pick(&[0, 0, 1, 2]).unwrap();
        let caller = Caller { uid, gid: uid, groups: Groups::Known(&[]) };
        (self.model.uid, self.model.gid) = (uid, uid);
        self.model.client = self.rng.pick(&[ALICE, BOB]).unwrap();
        self.harness.client = self.model.client;
        self.model.now = Timestamp { secs: self.harness.now.secs + 1, nanos: 0 };
        match self.rng.below(16) {
            0..=2 => self.create(caller),
            3 | 4 => self.mkdir(caller),
            5 if self.rng.per_mille(500) => self.mknod(caller),
            5 => self.symlink(caller),
            6 if self.rng.per_mille(300) => self.tmpfile(caller),
            6 => self.link(caller),
            7 => self.unlink(caller),
            8 => self.rmdir(caller),
            9..=10 => self.rename(caller),
            11 => self.chmod(caller),
            12 => self.open(caller),
            13 => self.close(),
            14 => self.set_xattr(caller),
            _ => self.look(caller),
        }
        if self.rng.per_mille(100) {
            self.destroy();
        }
        if self.rng.per_mille(150) {
            self.settle();
        }
        if self.harness.row_store.is_some() {
            let inode = self.inodes[self.inodes.len() / 2];
            self.harness.request_unneeded(inode);
            self.harness.churn();
            if self.rng.per_mille(30) {
                let dir = self.dir();
                self.list(dir);
            }
        }
    }

    fn create(&mut self, caller: Caller<'_>) {
        let (parent, text, mode) = (self.dir(), self.name(), self.mode());
        let handle = self.handle();
        let handle = self.rng.per_mille(500).then_some(handle);
        let exclusive = self.rng.per_mille(500);
        let expected = self.model.find(parent, &text).and_then(|found| match found {
            None => self.model.may_add(parent).map(|()| None),
            Some(_) if exclusive => Err(Status::Exists),
            Some(inode) => match self.model.nodes[&inode].kind {
                FileKind::Directory => Err(Status::IsDirectory),
                FileKind::Symlink => Err(Status::Loop),
                kind if kind.is_special() => Err(Status::Stale),
                _ => {
                    let bits = handle.map_or(0, |handle| bits_of(handle.open_for));
                    self.model.may(inode, bits).map(|()| Some(inode))
                }
            },
        });
        let name = Name::new(text.as_bytes()).unwrap();
        let umask = 0;
        let args = Create { caller, parent, name, mode, umask, exclusive, handle, behind: None };
        if !self.expect(Op::Create, &args, expected.map(|_| ())) {
            return;
        }
        let created = Created::decode_all(&self.harness.reply).unwrap();
        let inode = created.attr.inode;
        assert_eq!(created.made, expected == Ok(None));
        if created.made {
            self.model.add(inode, FileKind::File, mode, parent);
            let (uid, gid) = (self.model.uid, self.model.gid);
            let node = self.model.at(inode);
            if uid != 0 && gid != node.gid && mode & 0o2010 == 0o2010 {
                node.mode &= !0o2000;
            }
            self.model.enter(parent, &text, inode);
            self.inodes.push(inode);
        } else {
            assert_eq!(expected, Ok(Some(inode)));
        }
        if let Some(handle) = handle {
            self.model.register(inode, handle);
        }
        check_attr(&created.attr, &self.model.nodes[&inode]);
    }

    fn mkdir(&mut self, caller: Caller<'_>) {
        let (parent, text, mode) = (self.dir(), self.name(), self.mode());
        let expected = self.model.check_new(parent, &text);
        let name = Name::new(text.as_bytes()).unwrap();
        if self.expect(Op::Mkdir, &Mkdir { caller, parent, name, mode, umask: 0 }, expected) {
            let attr = Entry::decode_all(&self.harness.reply).unwrap().attr;
            self.model.add(attr.inode, FileKind::Directory, mode & 0o1777, parent);
            self.model.enter(parent, &text, attr.inode);
            self.model.at(parent).nlink += 1;
            self.inodes.push(attr.inode);
            check_attr(&attr, &self.model.nodes[&attr.inode]);
        }
    }

    fn symlink(&mut self, caller: Caller<'_>) {
        let (parent, text) = (self.dir(), self.name());
        let expected = self.model.check_new(parent, &text);
        let (name, target) = (Name::new(text.as_bytes()).unwrap(), Bytes(b"some/where"));
        if self.expect(Op::Symlink, &Symlink { caller, parent, name, target }, expected) {
            let attr = Entry::decode_all(&self.harness.reply).unwrap().attr;
            self.model.add(attr.inode, FileKind::Symlink, 0o777, parent);
            self.model.at(attr.inode).target = target.0.into();
            self.model.at(attr.inode).size_bytes = 10;
            self.model.enter(parent, &text, attr.inode);
            self.inodes.push(attr.inode);
        }
    }

    fn mknod(&mut self, caller: Caller<'_>) {
        let (parent, text, mode) = (self.dir(), self.name(), self.mode());
        let kind =
            self.rng.pick(&[FileKind::Fifo, FileKind::Socket, FileKind::CharDevice]).unwrap();
        let (umask, rdev) =
            (self.rng.pick(&[0, 0o22]).unwrap(), self.rng.pick(&[0, 0x0103]).unwrap());
        let expected = self.model.check_new(parent, &text).and_then(|()| {
            let is_device = kind == FileKind::CharDevice && rdev != 0;
            if is_device && caller.uid != 0 { Err(Status::NotPermitted) } else { Ok(()) }
        });
        let name = Name::new(text.as_bytes()).unwrap();
        let args = Mknod { caller, parent, name, kind, mode, umask, rdev };
        if self.expect(Op::Mknod, &args, expected) {
            let attr = Entry::decode_all(&self.harness.reply).unwrap().attr;
            self.model.add(attr.inode, kind, mode & !umask, parent);
            let (uid, gid) = (self.model.uid, self.model.gid);
            let node = self.model.at(attr.inode);
            node.rdev = if kind == FileKind::CharDevice { rdev } else { 0 };
            if uid != 0 && gid != node.gid && mode & 0o2010 == 0o2010 {
                node.mode &= !0o2000;
            }
            self.model.enter(parent, &text, attr.inode);
            self.inodes.push(attr.inode);
            check_attr(&attr, &self.model.nodes[&attr.inode]);
        }
    }

    fn tmpfile(&mut self, caller: Caller<'_>) {
        let (parent, mode, linkable) = (self.dir(), self.mode(), self.rng.per_mille(800));
        let handle = self.handle();
        let expected = match self.model.node(parent) {
            Ok(node) if node.kind != FileKind::Directory => Err(Status::NotDirectory),
            Ok(_) => self.model.may_add(parent),
            Err(status) => Err(status),
        };
        let args = Tmpfile { caller, parent, mode, umask: 0, linkable, handle };
        if self.expect(Op::Tmpfile, &args, expected) {
            let attr = Created::decode_all(&self.harness.reply).unwrap().attr;
            self.model.add(attr.inode, FileKind::File, mode, parent);
            let (uid, gid) = (self.model.uid, self.model.gid);
            let node = self.model.at(attr.inode);
            (node.nlink, node.linkable) = (0, linkable);
            if uid != 0 && gid != node.gid && mode & 0o2010 == 0o2010 {
                node.mode &= !0o2000;
            }
            self.model.register(attr.inode, handle);
            self.inodes.push(attr.inode);
            check_attr(&attr, &self.model.nodes[&attr.inode]);
        }
    }

    fn link(&mut self, caller: Caller<'_>) {
        let (mut inode, parent, text) = (self.inode(), self.dir(), self.name());
        let nameless = |(_, node): &(&InodeNo, &Node)| node.linkable;
        if let Some((found, _)) = self.model.nodes.iter().find(nameless) {
            inode = *found;
        }
        let expected = self.model.link(inode, parent, &text);
        let name = Name::new(text.as_bytes()).unwrap();
        self.expect(Op::Link, &Link { caller, inode, parent, name }, expected);
    }

    fn unlink(&mut self, caller: Caller<'_>) {
        let (parent, text) = (self.dir(), self.name());
        let expected = self.model.unlink(parent, &text);
        let name = Name::new(text.as_bytes()).unwrap();
        self.expect(Op::Unlink, &Unlink { caller, parent, name, behind: None }, expected);
    }

    fn rmdir(&mut self, caller: Caller<'_>) {
        let (parent, text) = (self.dir(), self.name());
        let expected = self.model.rmdir(parent, &text);
        let name = Name::new(text.as_bytes()).unwrap();
        self.expect(Op::Rmdir, &Rmdir { caller, parent, name }, expected);
    }

    fn rename(&mut self, caller: Caller<'_>) {
        let (parent, from) = (self.dir(), self.name());
        let (new_parent, to) = (self.dir(), self.name());
        let how = self
            .rng
            .pick(&[
                RenameHow::Replace,
                RenameHow::Replace,
                RenameHow::NoReplace,
                RenameHow::Exchange,
                RenameHow::Whiteout,
                RenameHow::WhiteoutNoReplace,
            ])
            .unwrap();
        let expected = self.model.rename((parent, &from), (new_parent, &to), how);
        let name = Name::new(from.as_bytes()).unwrap();
        let new_name = Name::new(to.as_bytes()).unwrap();
        let args = Rename { caller, parent, name, new_parent, new_name, how };
        if !self.expect(Op::Rename, &args, expected.map(drop)) || !how.leaves_whiteout() {
            return;
        }
        let moved = expected.is_ok_and(|(source, victim)| victim != Some(source));
        if moved {
            let looked = Lookup { caller: root(), parent, name };
            let attr = self.harness.answer::<Entry>(Op::Lookup, &looked).attr;
            self.model.add(attr.inode, FileKind::CharDevice, 0, parent);
            self.model.enter(parent, &from, attr.inode);
            self.inodes.push(attr.inode);
        }
    }

    fn chmod(&mut self, caller: Caller<'_>) {
        let (inode, mode) = (self.inode(), self.mode());
        if self.rng.per_mille(500) {
            let expected = self.model.chmod(inode, mode);
            let args = Setattr { caller, mode: Some(mode), ..setattr(inode) };
            self.expect(Op::Setattr, &args, expected);
        } else {
            let (uid, gid) =
                (self.rng.pick(&[0, 1, 2]).unwrap(), self.rng.pick(&[0, 1, 2]).unwrap());
            let expected = self.model.chown(inode, uid, gid);
            let args = Setattr { caller, uid: Some(uid), gid: Some(gid), ..setattr(inode) };
            self.expect(Op::Setattr, &args, expected);
        }
    }

    fn open(&mut self, caller: Caller<'_>) {
        let (inode, handle) = (self.inode(), self.handle());
        let expected = self.model.open(inode, handle);
        self.expect(Op::Open, &Open { caller, inode, handle }, expected);
    }

    fn handle(&mut self) -> Handle {
        let id = HandleId(self.rng.number() % 4);
        Handle { id, open_for: self.rng.pick(&OpenFor::ALL).unwrap() }
    }

    fn close(&mut self) {
        let open: Vec<_> = self.model.open.iter().copied().collect();
        if open.is_empty() {
            return;
        }
        let (inode, _, client, id) = self.rng.pick(&open).unwrap();
        (self.model.client, self.harness.client) = (client, client);
        let asks = self.model.close(inode, id);
        let args = Close { inode, handle: HandleId(id) };
        let effect = self.expect_effect(Op::Close, &args, Ok(()));
        assert_eq!(effect.settling.is_some(), asks);
        self.questions.extend(effect.settling);
    }

    /// A data shard replies to a query, the last one about its inode or an older one.
    fn settle(&mut self) {
        if self.questions.is_empty() {
            return;
        }
        let index = self.rng.below(self.questions.len());
        let (inode, number) = self.questions.swap_remove(index);
        let is_last = self.questions.iter().all(|(of, later)| *of != inode || *later < number);
        let secs = self.harness.now.secs - i64::try_from(self.rng.below(9)).unwrap();
        let contents = Contents {
            size_bytes: self.rng.number() >> 1,
            allocated_bytes: 0,
            write_time: self.rng.per_mille(800).then_some(Timestamp { secs, nanos: 0 }),
        };
        // An inode outside memory is not settled.
        self.harness.status(Op::Getattr, &Getattr { inode });
        let settles = is_last && self.model.settle(inode, contents);
        let mut changes = Vec::new();
        let (shard, log) = self.harness.at(inode.shard());
        let effect = shard.settle(inode, number, Some(contents), &mut changes);
        assert_eq!(effect.transno > Transno(0), settles, "{inode}");
        if settles {
            log.push((effect.transno, changes));
        }
    }

    fn set_xattr(&mut self, caller: Caller<'_>) {
        let (inode, now) = (self.inode(), self.model.now);
        let key = self.rng.pick(&[&b"user.a"[..], b"user.b"]).unwrap();
        let permitted = self.model.may_set_xattr(inode);
        if self.rng.per_mille(600) {
            let value = self.rng.bytes::<5>();
            let args = Setxattr { caller, inode, name: Bytes(key), value: Bytes(&value), flags: 0 };
            if self.expect(Op::Setxattr, &args, permitted) {
                self.model.at(inode).xattrs.insert(key.into(), value.to_vec());
                self.model.at(inode).ctime = now;
            }
        } else {
            let expected = permitted.and_then(|()| {
                let known = self.model.nodes[&inode].xattrs.contains_key(key);
                if known { Ok(()) } else { Err(Status::NoData) }
            });
            let args = Removexattr { caller, inode, name: Bytes(key) };
            if self.expect(Op::Removexattr, &args, expected) {
                self.model.at(inode).xattrs.remove(key);
                self.model.at(inode).ctime = now;
            }
        }
    }

    fn look(&mut self, caller: Caller<'_>) {
        let (parent, text) = (self.dir(), self.name());
        let found = self.model.find(parent, &text).and_then(|inode| inode.ok_or(Status::NotFound));
        let name = Name::new(text.as_bytes()).unwrap();
        if self.expect(Op::Lookup, &Lookup { caller, parent, name }, found.map(|_| ())) {
            let attr = Entry::decode_all(&self.harness.reply).unwrap().attr;
            assert_eq!(Ok(attr.inode), found);
            check_attr(&attr, &self.model.nodes[&attr.inode]);
        }
    }

    /// A directory is listed to its end.
    fn list(&mut self, dir: InodeNo) {
        let Some(node) = self.model.nodes.get(&dir) else { return };
        if node.kind == FileKind::Directory {
            check_listing(&mut self.harness, &mut self.rng, dir, node);
        }
    }

    /// Destroys the objects of orphans.
    fn destroy(&mut self) {
        let found: BTreeSet<_> = self.harness.orphans();
        assert_eq!(found, self.model.orphans);
        for inode in core::mem::take(&mut self.model.orphans) {
            let mut changes = Vec::new();
            let (shard, log) = self.harness.at(inode.shard());
            let effect = shard.destroyed(inode, &mut changes);
            log.push((effect.transno, changes));
            self.model.nodes.remove(&inode).unwrap();
        }
    }

    /// Checks that the shard has the model's state and nothing else.
    fn check(&mut self) {
        let harness = &mut self.harness;
        assert_eq!(harness.inode_count(), u64::try_from(self.model.nodes.len()).unwrap());
        for inode in &self.inodes {
            let is_orphan = self.model.orphans.contains(inode);
            let Some(node) = self.model.nodes.get(inode).filter(|_| !is_orphan) else {
                let args = Getattr { inode: *inode };
                assert_eq!(harness.status(Op::Getattr, &args), Status::Stale);
                continue;
            };
            let attr = harness.attr(*inode);
            check_attr(&attr, node);
            assert_eq!(attr.has_no_xattrs(), node.xattrs.is_empty(), "{inode}");
            containing::check(harness, &self.model.nodes, *inode, node);
            check_node(harness, &mut self.rng, *inode, node);
            if node.kind == FileKind::Directory {
                search::check(harness, &mut self.rng, &self.model.nodes, *inode);
            }
        }
    }
}

fn check_attr(attr: &Attr, node: &Node) {
    assert_eq!((attr.kind, attr.mode), (node.kind, node.mode), "{}", attr.inode);
    assert_eq!((attr.uid, attr.gid), (node.uid, node.gid), "{}", attr.inode);
    assert_eq!(attr.nlink, node.nlink, "links of {}", attr.inode);
    assert_eq!(attr.rdev, node.rdev, "device of {}", attr.inode);
    assert_eq!(attr.flags & attr_flag::SIZE_AT_DATA != 0, node.at_data, "{}", attr.inode);
    assert!(node.xattrs.is_empty() || !attr.has_no_xattrs(), "{}", attr.inode);
    assert_eq!(attr.size_bytes, node.size_bytes, "size of {}", attr.inode);
    assert_eq!((attr.mtime, attr.ctime), (node.mtime, node.ctime), "times of {}", attr.inode);
}

/// A listing in pieces has every entry once, with the attributes of inodes of this shard.
fn check_listing(harness: &mut Harness, rng: &mut Prng, inode: InodeNo, node: &Node) {
    let (caller, attrs, mut cookie) = (root(), rng.per_mille(700), 0);
    let listing_bytes_max = rng.pick(&[512, 4096, 131_072]).unwrap();
    let (mut found, mut listed) = (BTreeMap::new(), Vec::new());
    loop {
        let handle = None;
        let args = Readdir { caller, inode, cookie, listing_bytes_max, attrs, handle };
        let listing: Listing<'_> = harness.answer(Op::Readdir, &args);
        assert_eq!(listing.parent, node.parent);
        for entry in listing.entries.iter() {
            assert!(entry.cookie > cookie);
            cookie = entry.cookie;
            assert_eq!(entry.attr.is_some(), attrs && entry.inode.shard() == inode.shard());
            if let Some(attr) = entry.attr {
                assert_eq!((attr.kind, attr.inode), (entry.kind, entry.inode));
                listed.push((attr.inode, attr.flags));
            }
            let name = String::from_utf8(entry.name.bytes().into()).unwrap();
            assert_eq!(found.insert(name, entry.inode), None, "listed twice");
        }
        if listing.end {
            break;
        }
        assert_ne!(listing.entries.count(), 0, "every piece but the last goes on");
        if harness.row_store.is_some() {
            harness.churn();
        }
    }
    assert_eq!(found, node.entries);
    for (inode, flags) in listed {
        assert_eq!(flags, harness.attr(inode).flags, "{inode}");
    }
}

fn check_node(harness: &mut Harness, rng: &mut Prng, inode: InodeNo, node: &Node) {
    let caller = root();
    match node.kind {
        FileKind::Directory => {
            check_listing(harness, rng, inode, node);
        }
        FileKind::Symlink => {
            let target: Target<'_> = harness.answer(Op::Readlink, &Readlink { inode });
            assert_eq!(target.target.0, node.target);
        }
        _ => {}
    }
    let names: Vec<u8> =
        node.xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect();
    let list: Value<'_> = harness.answer(Op::Listxattr, &Listxattr { caller, inode });
    assert_eq!(list.value.0, names);
    for (name, value) in &node.xattrs {
        let args = Getxattr { caller, inode, name: Bytes(name) };
        let found: Value<'_> = harness.answer(Op::Getxattr, &args);
        assert_eq!(found.value.0, value);
    }
}

fn go(seed: u64, shard_count: u16) -> u64 {
    let mut run = Run::new(seed, Harness::of_shards(shard_count));
    let step_count = 50 + run.rng.below(400);
    for _ in 0..step_count {
        run.step();
    }
    run.check();
    run.harness.check_redo();
    assert!(run.ok_count > step_count / 10, "seed {seed} did nothing");
    run.harness.txn_count()
}

#[test]
fn random_operations_match_a_naive_file_system() {
    assert_eq!((1..=300).map(|seed| go(seed, 1)).sum::<u64>(), 0);
}

#[test]
fn random_operations_over_several_shards_match_too() {
    let shard_count = |seed| 2 + u16::try_from(seed % 5).unwrap();
    let txn_count: u64 = (1..=300).map(|seed| go(seed, shard_count(seed))).sum();
    assert!(txn_count > 5_000, "{txn_count} operations took several shards");
}

/// A run with this memory limit a shard; returns the most memory used, and the number of fetches.
fn go_with_limit(seed: u64, shard_count: u16, bytes_max: u64) -> (u64, usize) {
    let mut run = Run::new(seed, Harness::with_row_store(seed, shard_count, bytes_max));
    let mut step_count = 50 + run.rng.below(400);
    if seed.is_multiple_of(8) {
        run.names = (0..300).map(|no| alloc::format!("n{no}")).collect();
        step_count += 400;
        let caller = Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) };
        for _ in 0..200 {
            (run.model.uid, run.model.gid) = (0, 0);
            run.model.now = Timestamp { secs: run.harness.now.secs + 1, nanos: 0 };
            run.create(caller);
            run.harness.churn();
        }
    }
    for _ in 0..step_count {
        run.step();
    }
    run.check();
    run.harness.start_from_rows();
    run.model.lose_handles();
    run.check();
    let row_store = run.harness.row_store.as_ref().unwrap();
    let outcome = (row_store.peak_bytes, row_store.answer_count);
    run.harness.fetch_all();
    run.harness.check_redo();
    outcome
}

#[test]
fn random_operations_with_a_tenth_of_the_memory_match_too() {
    let (mut whole_bytes, mut tenth_bytes, mut asked_count) = (0, 0, 0);
    for seed in 1..=200 {
        let shard_count = 1 + u16::try_from(seed % 3).unwrap();
        let (peak_bytes, unasked_count) = go_with_limit(seed, shard_count, u64::MAX);
        let (small_bytes, count) = go_with_limit(seed, shard_count, peak_bytes / 10);
        whole_bytes += peak_bytes;
        tenth_bytes += small_bytes;
        asked_count += count - unasked_count.min(count);
    }
    assert!(tenth_bytes < whole_bytes * 3 / 4, "{tenth_bytes} of {whole_bytes}");
    assert!(asked_count > 5_000, "{asked_count} questions");
}
