//! Export containment: known directories, rights and notifications.

use super::{ALICE, BOB, Harness, ROOT, name, read_handle, root, user, write_handle};
use crate::{ParentLink, Rights};
use alloc::vec::Vec;
use wire::{
    InodeNo, Link, Listing, Lookup, Op, Readdir, Rename, RenameHow, SetTime, Setattr, Squash,
    SquashedIds, Status, Tmpfile, Unlink,
};

fn containing(harness: &Harness, inode: InodeNo) -> Vec<InodeNo> {
    harness.shard.containing_directories(inode).collect()
}

fn link(harness: &mut Harness, inode: InodeNo, parent: InodeNo, text: &str) {
    let link = Link { caller: root(), inode, parent, name: name(text) };
    assert_eq!(harness.status(Op::Link, &link), Status::Ok);
}

fn rename(harness: &mut Harness, (parent, text): (InodeNo, &str), (to, new): (InodeNo, &str)) {
    let rename = Rename {
        caller: root(),
        parent,
        name: name(text),
        new_parent: to,
        new_name: name(new),
        how: RenameHow::Replace,
    };
    assert_eq!(harness.status(Op::Rename, &rename), Status::Ok);
}

fn unlink(harness: &mut Harness, parent: InodeNo, text: &str) {
    let unlink = Unlink { caller: root(), parent, name: name(text), behind: None };
    assert_eq!(harness.status(Op::Unlink, &unlink), Status::Ok);
}

fn lookup(harness: &mut Harness, parent: InodeNo, text: &str) {
    let lookup = Lookup { caller: root(), parent, name: name(text) };
    assert_eq!(harness.status(Op::Lookup, &lookup), Status::Ok);
}

#[test]
fn an_inode_with_one_name_has_its_directory() {
    let mut harness = Harness::new();
    let (a, b) = (harness.mkdir(ROOT, "a", 0o755), harness.mkdir(ROOT, "b", 0o755));
    let file = harness.file(a, "f", 0o644);
    assert_eq!(containing(&harness, file), [a]);
    assert_eq!(
        (containing(&harness, a), harness.shard.above(a)),
        (Vec::from([a]), ParentLink::Parent(ROOT))
    );
    assert_eq!(harness.shard.above(ROOT), ParentLink::Top);
    rename(&mut harness, (a, "f"), (b, "g"));
    assert_eq!(containing(&harness, file), [b]);
    link(&mut harness, file, a, "f");
    assert_eq!(containing(&harness, file), [b], "the first name counts");
    rename(&mut harness, (a, "f"), (ROOT, "f"));
    assert_eq!(containing(&harness, file), [b]);
    unlink(&mut harness, b, "g");
    assert!(containing(&harness, file).is_empty(), "the directory of the other name is unknown");
    link(&mut harness, file, a, "f");
    assert_eq!(containing(&harness, file), [a]);
}

#[test]
fn a_found_name_counts_until_names_change() {
    let mut harness = Harness::new();
    let (a, b) = (harness.mkdir(ROOT, "a", 0o755), harness.mkdir(ROOT, "b", 0o755));
    let file = harness.file(b, "f", 0o644);
    link(&mut harness, file, a, "f");
    lookup(&mut harness, a, "f");
    assert_eq!(containing(&harness, file), [b], "a client of an unlimited export needs no finding");
    harness.export_root = Some(a);
    lookup(&mut harness, a, "f");
    assert_eq!(containing(&harness, file), [b, a]);
    let times = Setattr {
        caller: root(),
        inode: file,
        mode: Some(0o600),
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        clears: wire::ClearPrivileges::Nothing,
    };
    assert_eq!(harness.status(Op::Setattr, &times), Status::Ok);
    assert_eq!(containing(&harness, file), [b, a], "no name changed");
    unlink(&mut harness, a, "f");
    assert_eq!(containing(&harness, file), [b]);
    link(&mut harness, file, a, "f");
    let listing = Readdir {
        caller: root(),
        inode: a,
        cookie: 0,
        listing_bytes_max: 4096,
        attrs: true,
        handle: None,
    };
    let listed: Listing<'_> = harness.answer(Op::Readdir, &listing);
    assert_eq!(listed.parent, a, "the parent is hidden");
    assert_eq!(containing(&harness, file), [b, a]);
}

#[test]
fn an_orphan_has_the_directory_of_its_last_name() {
    let mut harness = Harness::new();
    let (a, b) = (harness.mkdir(ROOT, "a", 0o755), harness.mkdir(ROOT, "b", 0o755));
    let file = harness.file(a, "f", 0o644);
    link(&mut harness, file, b, "f");
    assert_eq!(harness.open(file, read_handle(1)), Status::Ok);
    unlink(&mut harness, a, "f");
    unlink(&mut harness, b, "f");
    assert_eq!(containing(&harness, file), [b]);
    let tmpfile = Tmpfile {
        caller: root(),
        parent: a,
        mode: 0o600,
        umask: 0,
        linkable: true,
        handle: write_handle(2),
    };
    let made: wire::Created = harness.answer(Op::Tmpfile, &tmpfile);
    assert_eq!(containing(&harness, made.attr.inode), [a]);
    link(&mut harness, made.attr.inode, b, "named");
    assert_eq!(containing(&harness, made.attr.inode), [b]);
}

#[test]
fn rights_are_those_of_any_caller_that_a_client_can_claim() {
    let mut harness = Harness::new();
    let of_root = harness.file(ROOT, "root", 0o640);
    let open_to_all = harness.file(ROOT, "all", 0o604);
    let of_user = harness.create(user(5, 5), ROOT, "user", 0o600);
    assert!(of_user.is_err(), "the root directory is root's");
    let dir = harness.mkdir(ROOT, "d", 0o777);
    let of_user = harness.create(user(5, 5), dir, "user", 0o600).unwrap().attr.inode;
    let seven = Squash { ids: SquashedIds::All, anon_uid: 7, anon_gid: 7 };
    let of_five = Squash { ids: SquashedIds::All, anon_uid: 5, anon_gid: 5 };
    let all = Rights { read: true, write: true, execute: true };
    let rights = |read, write| Rights { read, write, execute: false };
    for (inode, squash, expected) in [
        (of_root, Squash::NONE, all),
        (of_root, Squash::ROOT, rights(false, false)),
        (open_to_all, Squash::ROOT, rights(true, false)),
        (of_user, Squash::ROOT, all),
        (of_root, seven, rights(false, false)),
        (open_to_all, seven, rights(true, false)),
        (of_user, seven, rights(false, false)),
        (of_user, of_five, all),
    ] {
        assert_eq!(harness.shard.rights(inode, BOB, squash), expected, "{inode} {squash:?}");
    }
    assert_eq!(harness.client, ALICE);
    assert_eq!(harness.open(of_root, write_handle(9)), Status::Ok);
    assert_eq!(harness.shard.rights(of_root, ALICE, Squash::ROOT), rights(true, true));
    assert_eq!(harness.shard.rights(of_root, BOB, Squash::ROOT), rights(false, false));
    assert_eq!(harness.shard.rights(InodeNo(999), BOB, Squash::NONE), rights(false, false));
}

#[test]
fn watched_inodes_report_changes() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    let other = harness.mkdir(ROOT, "o", 0o755);
    let file = harness.file(dir, "f", 0o644);
    assert!(!harness.shard.has_moved() && harness.shard.touched().is_empty());
    harness.shard.watch(file);
    lookup(&mut harness, dir, "f");
    assert!(harness.shard.touched().is_empty(), "nothing changed");
    assert_eq!(harness.open(file, read_handle(1)), Status::Ok);
    assert_eq!(harness.shard.touched(), [file]);
    rename(&mut harness, (dir, "f"), (other, "f"));
    assert!(harness.shard.touched().is_empty(), "a change is reported once");
    harness.shard.watch(file);
    rename(&mut harness, (other, "f"), (dir, "f"));
    assert_eq!(harness.shard.touched(), [file]);
    assert!(!harness.shard.has_moved(), "no directory did");
    rename(&mut harness, (ROOT, "d"), (other, "d"));
    assert!(harness.shard.has_moved() && !harness.shard.has_moved());
    rename(&mut harness, (other, "d"), (other, "e"));
    assert!(!harness.shard.has_moved(), "it lies where it lay");
}
