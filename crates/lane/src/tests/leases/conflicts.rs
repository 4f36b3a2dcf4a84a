//! Which keys each operation of another client recalls, and what happens to those that wait.

use super::*;
use wire::{
    Access, Bytes, FileKind, Link, Listxattr, Mkdir, Mknod, Readdir, Removexattr, Rename,
    RenameHow, Rmdir, Setxattr, Symlink, Unlink,
};

/// What the holder has: names, attributes of all of them, and contents of one file.
struct Scene {
    server: TestServer,
    holder: Holder,
    other: Holder,
    file: InodeNo,
    over: InodeNo,
    dir: InodeNo,
}

fn scene(seed: u64) -> Scene {
    let mut server = started(seed);
    let (mut other, mut holder) = (Holder::new(&mut server, 2), Holder::new(&mut server, 1));
    let file = other.create(&mut server, "f");
    let over = other.create(&mut server, "g");
    let mkdir =
        Mkdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d"), mode: 0o755, umask: 0 };
    let made = other.ask(&mut server, Op::Mkdir, 1, &mkdir);
    let dir = Entry::decode_all(&made.message).unwrap().attr.inode;
    let both = lease_flag::NAME | lease_flag::ATTRIBUTES;
    for text in ["f", "g", "d"] {
        assert_eq!(holder.lookup(&mut server, text).granted(), both, "{text}");
    }
    let absent = holder.lookup(&mut server, "new");
    assert_eq!((absent.head.status, absent.granted()), (Status::NotFound, lease_flag::NAME));
    let root = holder.getattr(&mut server, InodeNo::ROOT);
    assert_eq!(root.granted(), lease_flag::ATTRIBUTES);
    let opened = holder.open(&mut server, file, OpenFor::Read);
    assert_eq!(opened.granted(), lease_flag::ATTRIBUTES | lease_flag::CONTENTS);
    assert!(holder.recalled(&mut server).is_empty(), "one's own requests do not conflict");
    Scene { server, holder, other, file, over, dir }
}

/// The other client's request recalls these keys and is answered when they are acknowledged.
fn recalls<'a>(
    mut scene: Scene,
    op: Op,
    body: &impl Wire<'a>,
    expected: impl IntoIterator<Item = Key>,
) {
    let Scene { server, holder, other, .. } = &mut scene;
    other.recalls.clear();
    other.send(server, op, 1, body);
    server.run();
    let expected: BTreeSet<Key> = expected.into_iter().collect();
    assert_eq!(holder.recalled(server), expected, "{op:?}");
    assert!(!other.has_reply(server), "{op:?} waits");
    assert_eq!(server.counters(0).leases.wait_count, 1);
    holder.ack(server);
    let reply = other.reply(server);
    assert_eq!(reply.head.op, op);
    assert!(matches!(reply.head.status, Status::Ok | Status::NoData), "{:?}", reply.head);
    assert!(holder.recalled(server).is_empty(), "recalled once");
}

/// The other client's request is answered at once.
fn recalls_nothing<'a>(mut scene: Scene, op: Op, body: &impl Wire<'a>) {
    let slot = u16::from(op.row().retry == wire::Retry::Once);
    let reply = scene.other.ask(&mut scene.server, op, slot, body);
    assert_eq!(reply.head.status, Status::Ok, "{op:?}");
    assert!(scene.holder.recalled(&mut scene.server).is_empty(), "{op:?}");
}

const DIR: InodeNo = InodeNo::ROOT;

#[test]
fn a_change_of_attributes_recalls_them() {
    let scene_of = |seed| {
        let scene = scene(seed);
        let file = scene.file;
        (scene, file)
    };
    let (attr, file) = scene_of(1);
    recalls(attr, Op::Setattr, &chmod(file, 0o600), [Key::Attributes(file)]);
    let (xattr, file) = scene_of(2);
    let (name, value) = (Bytes(b"user.k"), Bytes(b"v"));
    let set = Setxattr { caller: ROOT, inode: file, name, value, flags: 0 };
    recalls(xattr, Op::Setxattr, &set, [Key::Attributes(file)]);
    let (xattr, file) = scene_of(3);
    let removed = Removexattr { caller: ROOT, inode: file, name };
    recalls(xattr, Op::Removexattr, &removed, [Key::Attributes(file)]);
}

#[test]
fn a_new_name_recalls_its_absence_and_the_directory() {
    let new = || [root_name("new"), Key::Attributes(DIR)];
    recalls(scene(1), Op::Create, &create("new"), new());
    let (parent, name) = (DIR, name("new"));
    let mkdir = Mkdir { caller: ROOT, parent, name, mode: 0o755, umask: 0 };
    recalls(scene(2), Op::Mkdir, &mkdir, new());
    let symlink = Symlink { caller: ROOT, parent, name, target: Bytes(b"x") };
    recalls(scene(3), Op::Symlink, &symlink, new());
    let kind = FileKind::Fifo;
    let mknod = Mknod { caller: ROOT, parent, name, kind, mode: 0o600, umask: 0, rdev: 0 };
    recalls(scene(4), Op::Mknod, &mknod, new());
    let scene = scene(5);
    let file = scene.file;
    let link = Link { caller: ROOT, inode: file, parent, name };
    recalls(scene, Op::Link, &link, new().into_iter().chain([Key::Attributes(file)]));
}

#[test]
fn a_removed_name_recalls_what_it_named() {
    let first = scene(1);
    let file = first.file;
    let unlink = Unlink { caller: ROOT, parent: DIR, name: name("f"), behind: None };
    let gone = [Key::Attributes(file), Key::Contents(file)];
    let named = [root_name("f"), Key::Attributes(DIR)];
    recalls(first, Op::Unlink, &unlink, named.into_iter().chain(gone));
    let second = scene(2);
    let dir = second.dir;
    let rmdir = Rmdir { caller: ROOT, parent: DIR, name: name("d") };
    let named = [root_name("d"), Key::Attributes(DIR), Key::Attributes(dir)];
    recalls(second, Op::Rmdir, &rmdir, named);
}

#[test]
fn a_rename_recalls_both_names_and_both_inodes() {
    let rename = |to| Rename {
        caller: ROOT,
        parent: DIR,
        name: name("f"),
        new_parent: DIR,
        new_name: name(to),
        how: RenameHow::Replace,
    };
    let moved = |file| [Key::Attributes(file), Key::Contents(file), Key::Attributes(DIR)];
    let first = scene(1);
    let file = first.file;
    let names = [root_name("f"), root_name("new")];
    recalls(first, Op::Rename, &rename("new"), names.into_iter().chain(moved(file)));
    let second = scene(2);
    let (file, over) = (second.file, second.over);
    let names = [root_name("f"), root_name("g"), Key::Attributes(over)];
    recalls(second, Op::Rename, &rename("g"), names.into_iter().chain(moved(file)));
}

#[test]
fn opening_for_writing_recalls_attributes_and_contents() {
    let handle = |open_for| Handle { id: HandleId(77), open_for };
    for open_for in [OpenFor::Write, OpenFor::ReadWrite] {
        let opened = scene(1);
        let file = opened.file;
        let open = wire::Open { caller: ROOT, inode: file, handle: handle(open_for) };
        let keys = || [Key::Attributes(file), Key::Contents(file)];
        recalls(opened, Op::Open, &open, keys());
        // By its name, which exists.
        let handle = Some(handle(open_for));
        let create = wire::Create { exclusive: false, handle, ..create("f") };
        recalls(scene(1), Op::Create, &create, keys());
    }
}

#[test]
fn what_changes_nothing_recalls_nothing() {
    let file = scene(1).file;
    recalls_nothing(scene(1), Op::Getattr, &Getattr { inode: file });
    let lookup = Lookup { caller: ROOT, parent: DIR, name: name("f") };
    recalls_nothing(scene(1), Op::Lookup, &lookup);
    let readdir = Readdir {
        caller: ROOT,
        inode: DIR,
        cookie: 0,
        listing_bytes_max: 4096,
        attrs: true,
        handle: None,
    };
    recalls_nothing(scene(1), Op::Readdir, &readdir);
    let handle = Handle { id: HandleId(9), open_for: OpenFor::Read };
    recalls_nothing(scene(1), Op::Open, &wire::Open { caller: ROOT, inode: file, handle });
    let existing = wire::Create { exclusive: false, handle: Some(handle), ..create("f") };
    recalls_nothing(scene(1), Op::Create, &existing);
    recalls_nothing(scene(1), Op::Access, &Access { caller: ROOT, inode: file, mask: 2 });
    recalls_nothing(scene(1), Op::Listxattr, &Listxattr { caller: ROOT, inode: file });
}

#[test]
fn suspended_requests_run_in_order_after_the_last_acknowledgement() {
    let mut server = started(3);
    let (mut first, mut second, file) = two(&mut server);
    let (mut third, mut fourth) = (Holder::new(&mut server, 3), Holder::new(&mut server, 4));
    for holder in [&mut first, &mut second] {
        assert_eq!(holder.getattr(&mut server, file).granted(), lease_flag::ATTRIBUTES);
    }
    third.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    server.run();
    fourth.send(&mut server, Op::Setattr, 1, &chmod(file, 0o710));
    server.run();
    let keys = BTreeSet::from([Key::Attributes(file)]);
    assert_eq!(first.recalled(&mut server), keys);
    assert_eq!(first.recalls.len(), 1, "the second waiter recalls nothing anew");
    first.ack(&mut server);
    assert!(!third.has_reply(&mut server), "another client still has it");
    second.ack(&mut server);
    let (third, fourth) = (third.reply(&mut server), fourth.reply(&mut server));
    assert_eq!((mode_of(&third), mode_of(&fourth)), (0o700, 0o710));
    assert!(third.head.transno < fourth.head.transno, "in the order in which they came");
    assert_eq!(third.granted(), 0, "the next one waits for the same key");
    assert_eq!(fourth.granted(), lease_flag::ATTRIBUTES);
}

#[test]
fn crosswise_creates_of_names_that_both_know_to_be_absent_end() {
    for seed in 0..20 {
        let mut server = started(seed);
        let (mut first, mut second) = (Holder::new(&mut server, 1), Holder::new(&mut server, 2));
        assert_eq!(first.lookup(&mut server, "x").granted(), lease_flag::NAME);
        assert_eq!(second.lookup(&mut server, "y").granted(), lease_flag::NAME);
        first.send(&mut server, Op::Create, 1, &create("y"));
        second.send(&mut server, Op::Create, 1, &create("x"));
        server.run();
        assert_eq!(first.recalled(&mut server), BTreeSet::from([root_name("x")]));
        assert_eq!(second.recalled(&mut server), BTreeSet::from([root_name("y")]));
        // Each acknowledges while its own request is suspended.
        first.ack(&mut server);
        second.ack(&mut server);
        assert_eq!(first.reply(&mut server).head.status, Status::Ok);
        assert_eq!(second.reply(&mut server).head.status, Status::Ok);
    }
}

#[cfg(feature = "removable-rules")]
#[test]
fn without_its_rule_a_key_is_granted_while_a_request_waits_for_it() {
    let mut server = TestServer::new(6);
    server.rules = wire::Rules::default().without(wire::Rule::LeaseWaiter);
    server.start(1);
    server.run();
    let (mut first, mut second, file) = two(&mut server);
    let mut third = Holder::new(&mut server, 3);
    // Two keys: one is free when the other is not.
    first.getattr(&mut server, InodeNo::ROOT);
    second.send(&mut server, Op::Create, 1, &create("new"));
    server.run();
    assert_eq!(third.lookup(&mut server, "new").granted(), lease_flag::NAME);
    first.ack(&mut server);
    assert!(!second.has_reply(&mut server), "it could go on like this for ever");
    assert_eq!(third.recalled(&mut server), BTreeSet::from([root_name("new")]));
    assert!(file.count() > 0);
}

#[test]
fn while_a_request_waits_others_see_the_old_state_and_are_granted_nothing_of_it() {
    let mut server = started(5);
    let (mut first, mut second, file) = two(&mut server);
    let mut third = Holder::new(&mut server, 3);
    first.getattr(&mut server, file);
    let before = first.getattr(&mut server, file);
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o777));
    server.run();
    let seen = third.getattr(&mut server, file);
    assert_eq!((mode_of(&seen), seen.granted()), (mode_of(&before), 0));
    let seen = third.lookup(&mut server, "f");
    assert_eq!(seen.granted(), lease_flag::NAME, "the name is another key");
    assert_eq!(first.getattr(&mut server, file).granted(), 0, "also to whom it is recalled from");
    first.ack(&mut server);
    assert_eq!(mode_of(&second.reply(&mut server)), 0o777);
    assert_eq!(third.getattr(&mut server, file).granted(), lease_flag::ATTRIBUTES);
}
