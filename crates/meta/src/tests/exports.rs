//! What those are told who may not see everything.

use super::{ALICE, BOB, ROOT, World, name, read_handle, root, user, write_handle};
use crate::{Above, Rights};
use alloc::vec::Vec;
use wire::{
    InodeNo, Link, Listing, Lookup, Op, Readdir, Rename, RenameHow, SetTime, Setattr, Squash,
    Squashed, Status, Tmpfile, Unlink,
};

fn ways(world: &World, inode: InodeNo) -> Vec<InodeNo> {
    world.shard.ways_up(inode).collect()
}

fn link(world: &mut World, inode: InodeNo, parent: InodeNo, text: &str) {
    let link = Link { caller: root(), inode, parent, name: name(text) };
    assert_eq!(world.status(Op::Link, &link), Status::Ok);
}

fn rename(world: &mut World, (parent, text): (InodeNo, &str), (to, new): (InodeNo, &str)) {
    let rename = Rename {
        caller: root(),
        parent,
        name: name(text),
        new_parent: to,
        new_name: name(new),
        how: RenameHow::Replace,
    };
    assert_eq!(world.status(Op::Rename, &rename), Status::Ok);
}

fn unlink(world: &mut World, parent: InodeNo, text: &str) {
    let unlink = Unlink { caller: root(), parent, name: name(text) };
    assert_eq!(world.status(Op::Unlink, &unlink), Status::Ok);
}

fn lookup(world: &mut World, parent: InodeNo, text: &str) {
    let lookup = Lookup { caller: root(), parent, name: name(text) };
    assert_eq!(world.status(Op::Lookup, &lookup), Status::Ok);
}

#[test]
fn what_has_one_name_leads_to_its_directory() {
    let mut world = World::new();
    let (a, b) = (world.mkdir(ROOT, "a", 0o755), world.mkdir(ROOT, "b", 0o755));
    let file = world.file(a, "f", 0o644);
    assert_eq!(ways(&world, file), [a]);
    assert_eq!((ways(&world, a), world.shard.above(a)), (Vec::from([a]), Above::Parent(ROOT)));
    assert_eq!(world.shard.above(ROOT), Above::Top);
    rename(&mut world, (a, "f"), (b, "g"));
    assert_eq!(ways(&world, file), [b]);
    link(&mut world, file, a, "f");
    assert_eq!(ways(&world, file), [b], "the first name counts");
    rename(&mut world, (a, "f"), (ROOT, "f"));
    assert_eq!(ways(&world, file), [b]);
    unlink(&mut world, b, "g");
    assert!(ways(&world, file).is_empty(), "where the other name is, nobody says");
    link(&mut world, file, a, "f");
    assert_eq!(ways(&world, file), [a]);
}

#[test]
fn a_name_that_was_found_counts_until_names_change() {
    let mut world = World::new();
    let (a, b) = (world.mkdir(ROOT, "a", 0o755), world.mkdir(ROOT, "b", 0o755));
    let file = world.file(b, "f", 0o644);
    link(&mut world, file, a, "f");
    lookup(&mut world, a, "f");
    assert_eq!(ways(&world, file), [b], "who sees everything needs no finding");
    world.top = Some(a);
    lookup(&mut world, a, "f");
    assert_eq!(ways(&world, file), [b, a]);
    let times = Setattr {
        caller: root(),
        inode: file,
        mode: Some(0o600),
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        revoke: wire::ClearPrivileges::Nothing,
    };
    assert_eq!(world.status(Op::Setattr, &times), Status::Ok);
    assert_eq!(ways(&world, file), [b, a], "no name changed");
    unlink(&mut world, a, "f");
    assert_eq!(ways(&world, file), [b]);
    link(&mut world, file, a, "f");
    let listing = Readdir {
        caller: root(),
        inode: a,
        cookie: 0,
        listing_bytes_max: 4096,
        attrs: true,
        handle: None,
    };
    let listed: Listing<'_> = world.answer(Op::Readdir, &listing);
    assert_eq!(listed.parent, a, "nothing above is told");
    assert_eq!(ways(&world, file), [b, a]);
}

#[test]
fn what_has_no_name_leads_to_where_it_had_one_last() {
    let mut world = World::new();
    let (a, b) = (world.mkdir(ROOT, "a", 0o755), world.mkdir(ROOT, "b", 0o755));
    let file = world.file(a, "f", 0o644);
    link(&mut world, file, b, "f");
    assert_eq!(world.open(file, read_handle(1)), Status::Ok);
    unlink(&mut world, a, "f");
    unlink(&mut world, b, "f");
    assert_eq!(ways(&world, file), [b]);
    let tmpfile = Tmpfile {
        caller: root(),
        parent: a,
        mode: 0o600,
        umask: 0,
        linkable: true,
        handle: write_handle(2),
    };
    let made: wire::Created = world.answer(Op::Tmpfile, &tmpfile);
    assert_eq!(ways(&world, made.attr.inode), [a]);
    link(&mut world, made.attr.inode, b, "named");
    assert_eq!(ways(&world, made.attr.inode), [b]);
}

#[test]
fn rights_are_those_of_whoever_a_client_may_say_to_be() {
    let mut world = World::new();
    let of_root = world.file(ROOT, "root", 0o640);
    let open_to_all = world.file(ROOT, "all", 0o604);
    let of_user = world.create(user(5, 5), ROOT, "user", 0o600);
    assert!(of_user.is_err(), "the root directory is root's");
    let dir = world.mkdir(ROOT, "d", 0o777);
    let of_user = world.create(user(5, 5), dir, "user", 0o600).unwrap().attr.inode;
    let seven = Squash { who: Squashed::All, anon_uid: 7, anon_gid: 7 };
    let of_five = Squash { who: Squashed::All, anon_uid: 5, anon_gid: 5 };
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
        assert_eq!(world.shard.rights(inode, BOB, squash), expected, "{inode} {squash:?}");
    }
    assert_eq!(world.client, ALICE);
    assert_eq!(world.open(of_root, write_handle(9)), Status::Ok);
    assert_eq!(world.shard.rights(of_root, ALICE, Squash::ROOT), rights(true, true));
    assert_eq!(world.shard.rights(of_root, BOB, Squash::ROOT), rights(false, false));
    assert_eq!(world.shard.rights(InodeNo(999), BOB, Squash::NONE), rights(false, false));
}

#[test]
fn whoever_was_told_hears_of_changes() {
    let mut world = World::new();
    let dir = world.mkdir(ROOT, "d", 0o755);
    let other = world.mkdir(ROOT, "o", 0o755);
    let file = world.file(dir, "f", 0o644);
    assert!(!world.shard.has_moved() && world.shard.touched().is_empty());
    world.shard.watch(file);
    lookup(&mut world, dir, "f");
    assert!(world.shard.touched().is_empty(), "nothing changed");
    assert_eq!(world.open(file, read_handle(1)), Status::Ok);
    assert_eq!(world.shard.touched(), [file]);
    rename(&mut world, (dir, "f"), (other, "f"));
    assert!(world.shard.touched().is_empty(), "it is told once");
    world.shard.watch(file);
    rename(&mut world, (other, "f"), (dir, "f"));
    assert_eq!(world.shard.touched(), [file]);
    assert!(!world.shard.has_moved(), "no directory did");
    rename(&mut world, (ROOT, "d"), (other, "d"));
    assert!(world.shard.has_moved() && !world.shard.has_moved());
    rename(&mut world, (other, "d"), (other, "e"));
    assert!(!world.shard.has_moved(), "it lies where it lay");
}
