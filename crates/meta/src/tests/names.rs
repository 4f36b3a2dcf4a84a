//! Names: create, mkdir, symlink, link, unlink, rmdir, rename, lookup, readlink.

use super::{ALICE, Harness, ROOT, name, read_handle, root, setattr, user, write_handle};
use crate::ops::LINK_COUNT_MAX;
use disk::{Change, InodeRow};
use wire::{
    Bytes, Create, Created, FileKind, InodeNo, Link, Mkdir, Op, Readlink, Rename, RenameHow, Rmdir,
    Setattr, Status, Symlink, Target, Transno, Wire, attr_flag,
};

fn rename(harness: &mut Harness, from: (InodeNo, &str), to: (InodeNo, &str)) -> Status {
    harness.status(Op::Rename, &rename_args(from, to))
}

fn rename_args<'a>(from: (InodeNo, &'a str), to: (InodeNo, &'a str)) -> Rename<'a> {
    Rename {
        caller: root(),
        parent: from.0,
        name: name(from.1),
        new_parent: to.0,
        new_name: name(to.1),
        how: RenameHow::Replace,
    }
}

fn link(harness: &mut Harness, inode: InodeNo, parent: InodeNo, text: &str) -> Status {
    harness.status(Op::Link, &Link { caller: root(), inode, parent, name: name(text) })
}

fn rmdir(harness: &mut Harness, parent: InodeNo, text: &str) -> Status {
    harness.status(Op::Rmdir, &Rmdir { caller: root(), parent, name: name(text) })
}

#[test]
fn the_root_is_made_with_the_store() {
    let mut harness = Harness::new();
    let attr = harness.attr(ROOT);
    assert_eq!((attr.kind, attr.mode, attr.uid, attr.gid), (FileKind::Directory, 0o755, 0, 0));
    assert_eq!((attr.nlink, attr.mtime.secs, harness.shard.inode_count()), (2, 1, 1));
    let other = crate::Shard::new(wire::ShardId::meta(1), super::MADE);
    assert_eq!(other.inode_count(), 0);
}

#[test]
fn a_created_file_has_a_name_and_its_directory_new_times() {
    let mut harness = Harness::new();
    let created = harness.create(user(7, 8), ROOT, "f", 0o7644);
    assert_eq!(created, Err(Status::Access));
    let created = harness.create(root(), ROOT, "f", 0o7644).unwrap();
    assert!(created.made);
    assert_eq!((created.attr.mode, created.attr.nlink), (0o7644, 1));
    assert_eq!(harness.lookup(ROOT, "f"), Some(created.attr.inode));
    let dir = harness.attr(ROOT);
    assert_eq!((dir.mtime, dir.ctime), (created.attr.ctime, created.attr.ctime));
    assert_eq!(dir.version, Transno(0), "times of a directory are not versioned");
    assert_eq!(harness.create(root(), ROOT, "f", 0o644), Err(Status::Exists));
    harness.check_redo();
}

#[test]
fn create_opens_an_existing_file_unless_exclusive() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o640);
    harness.mkdir(ROOT, "d", 0o755);
    harness.symlink(ROOT, "l", b"f");
    let open = |text: &'static str| Create {
        caller: root(),
        parent: ROOT,
        name: name(text),
        mode: 0o600,
        umask: 0,
        exclusive: false,
        handle: Some(write_handle(1)),
        behind: None,
    };
    let created: Created = harness.answer(Op::Create, &open("f"));
    assert_eq!((created.made, created.attr.inode, created.attr.mode), (false, file, 0o640));
    assert_eq!(created.attr.flags, attr_flag::SIZE_AT_DATA);
    assert_eq!(harness.status(Op::Create, &open("d")), Status::IsDirectory);
    assert_eq!(harness.status(Op::Create, &open("l")), Status::Loop);
    let stranger = Create { caller: user(5, 5), ..open("f") };
    assert_eq!(harness.status(Op::Create, &stranger), Status::Access);
    assert_eq!(
        harness.status(Op::Create, &Create { exclusive: true, ..open("f") }),
        Status::Exists
    );
    assert_eq!(
        harness.status(Op::Create, &Create { parent: file, ..open("x") }),
        Status::NotDirectory
    );
    let unknown = Create { parent: InodeNo(77), ..open("x") };
    assert_eq!(harness.status(Op::Create, &unknown), Status::Stale);
    harness.check_redo();
}

#[test]
fn a_new_file_may_be_written_whatever_its_mode() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o777);
    let args = Create {
        caller: user(5, 5),
        parent: dir,
        name: name("f"),
        mode: 0o000,
        umask: 0,
        exclusive: true,
        handle: Some(write_handle(1)),
        behind: None,
    };
    harness.set(dir, 0o777, 5, 5);
    let created: Created = harness.answer(Op::Create, &args);
    assert!(created.made);
    assert_eq!(created.attr.flags, attr_flag::SIZE_AT_DATA);
    assert!(harness.shard.handles.has_open(created.attr.inode, ALICE));
}

#[test]
fn directories_count_their_links() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o7755);
    assert_eq!(harness.attr(dir).mode, 0o1755, "set-id bits are not for the maker to give");
    let below = harness.mkdir(dir, "e", 0o755);
    assert_eq!(
        (harness.attr(ROOT).nlink, harness.attr(dir).nlink, harness.attr(below).nlink),
        (3, 3, 2)
    );
    assert_eq!(rmdir(&mut harness, ROOT, "d"), Status::NotEmpty);
    assert_eq!(rmdir(&mut harness, dir, "e"), Status::Ok);
    assert_eq!(rmdir(&mut harness, dir, "e"), Status::NotFound);
    assert_eq!(harness.attr(dir).nlink, 2);
    harness.file(ROOT, "f", 0o644);
    assert_eq!(rmdir(&mut harness, ROOT, "f"), Status::NotDirectory);
    assert_eq!(harness.unlink(ROOT, "d").status, Status::IsDirectory);
    assert_eq!(harness.status(Op::Getattr, &wire::Getattr { inode: below }), Status::Stale);
    let again = Mkdir { caller: root(), parent: ROOT, name: name("d"), mode: 0, umask: 0 };
    assert_eq!(harness.status(Op::Mkdir, &again), Status::Exists);
    harness.check_redo();
}

#[test]
fn a_symbolic_link_keeps_its_target() {
    let mut harness = Harness::new();
    let symlink = harness.symlink(ROOT, "l", b"../x");
    let attr = harness.attr(symlink);
    assert_eq!((attr.kind, attr.mode, attr.size_bytes), (FileKind::Symlink, 0o777, 4));
    let target: Target<'_> = harness.answer(Op::Readlink, &Readlink { inode: symlink });
    assert_eq!(target.target.0, b"../x");
    assert_eq!(harness.status(Op::Readlink, &Readlink { inode: ROOT }), Status::Invalid);
    let long = [b'x'; 4096];
    for (target, status) in [
        (&b""[..], Status::NotFound),
        (&long[..], Status::NameTooLong),
        (&b"a\0b"[..], Status::Invalid),
        (&long[..4095], Status::Ok),
    ] {
        let target = Bytes(target);
        let args = Symlink { caller: root(), parent: ROOT, name: name("m"), target };
        assert_eq!(harness.status(Op::Symlink, &args), status);
    }
    let effect = harness.unlink(ROOT, "l");
    assert_eq!((effect.status, effect.orphan), (Status::Ok, None));
    harness.check_redo();
}

#[test]
fn a_walk_that_found_a_removed_link_still_gets_its_target_for_a_while() {
    let mut harness = Harness::new();
    let link = harness.symlink(ROOT, "l", b"../x");
    harness.unlink(ROOT, "l");
    let read = Readlink { inode: link };
    let target: Target<'_> = harness.answer(Op::Readlink, &read);
    assert_eq!(target.target.0, b"../x");
    let long = [b'x'; 4000];
    let mut removed_after = || {
        harness.symlink(ROOT, "l", &long);
        harness.unlink(ROOT, "l");
        harness.status(Op::Readlink, &read)
    };
    let statuses = [(); 5].map(|()| removed_after());
    assert_eq!(statuses, [Status::Ok, Status::Ok, Status::Ok, Status::Ok, Status::Stale]);
    harness.check_redo();
}

#[test]
fn links_are_counted_and_the_last_one_leaves_an_orphan() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let dir = harness.mkdir(ROOT, "d", 0o755);
    assert_eq!(link(&mut harness, file, dir, "g"), Status::Ok);
    assert_eq!(link(&mut harness, file, dir, "g"), Status::Exists);
    assert_eq!(link(&mut harness, dir, dir, "h"), Status::NotPermitted);
    assert_eq!(link(&mut harness, InodeNo(99), dir, "h"), Status::Stale);
    assert_eq!(link(&mut harness, InodeNo::new(1, 5), dir, "h"), Status::CrossDevice);
    assert_eq!(harness.attr(file).nlink, 2);
    let before = harness.attr(file).version;
    let effect = harness.unlink(ROOT, "f");
    assert_eq!((effect.orphan, effect.pre_versions.as_slice()[1]), (None, before));
    let attr = harness.attr(file);
    assert_eq!((attr.nlink, attr.version), (1, effect.transno));
    let effect = harness.unlink(dir, "g");
    assert_eq!(effect.orphan, Some(file));
    assert_eq!(harness.shard.orphans().collect::<alloc::vec::Vec<_>>(), [file]);
    assert_eq!(link(&mut harness, file, dir, "again"), Status::NotFound);
    harness.check_redo();
}

/// Lets an inode have so many links.
fn set_nlink(harness: &mut Harness, inode: InodeNo, nlink: u32) {
    let row = InodeRow { nlink, ..harness.shard.state.inode(inode).unwrap().row };
    let transno = Transno(harness.shard.transno_last().0 + 1);
    harness.shard.replay(transno, &Change::Inode { row }.to_bytes()).unwrap();
}

#[test]
fn links_of_an_inode_are_limited() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    set_nlink(&mut harness, file, LINK_COUNT_MAX - 1);
    assert_eq!(link(&mut harness, file, ROOT, "g"), Status::Ok);
    assert_eq!(harness.attr(file).nlink, LINK_COUNT_MAX);
    assert_eq!(link(&mut harness, file, ROOT, "h"), Status::TooManyLinks);
    assert_eq!(harness.unlink(ROOT, "f").status, Status::Ok);
    assert_eq!(link(&mut harness, file, ROOT, "h"), Status::Ok, "one was removed");
    assert_eq!((harness.attr(file).nlink, harness.lookup(ROOT, "h")), (LINK_COUNT_MAX, Some(file)));
}

#[test]
fn subdirectories_are_limited() {
    let mut harness = Harness::new();
    let (full, other) = (harness.mkdir(ROOT, "full", 0o755), harness.mkdir(ROOT, "other", 0o755));
    let (inside, moved) = (harness.mkdir(full, "inside", 0o755), harness.mkdir(other, "a", 0o755));
    set_nlink(&mut harness, full, LINK_COUNT_MAX);
    let mkdir = Mkdir { caller: root(), parent: full, name: name("more"), mode: 0o755, umask: 0 };
    assert_eq!(harness.status(Op::Mkdir, &mkdir), Status::TooManyLinks);
    assert_eq!(rename(&mut harness, (other, "a"), (full, "a")), Status::TooManyLinks);
    harness.file(other, "file", 0o644);
    assert_eq!(rename(&mut harness, (other, "file"), (full, "file")), Status::Ok, "no directory");
    assert_eq!(rename(&mut harness, (other, "a"), (full, "inside")), Status::Ok, "one for another");
    assert_eq!(harness.lookup(full, "inside"), Some(moved));
    assert_eq!((harness.attr(full).nlink, harness.attr(other).nlink), (LINK_COUNT_MAX, 2));
    assert_eq!(harness.status(Op::Getattr, &wire::Getattr { inode: inside }), Status::Stale);
    assert_eq!(rmdir(&mut harness, full, "inside"), Status::Ok);
    assert_eq!(harness.status(Op::Mkdir, &mkdir), Status::Ok);
}

#[test]
fn a_file_moves_and_replaces() {
    let mut harness = Harness::new();
    let (dir, file) = (harness.mkdir(ROOT, "d", 0o755), harness.file(ROOT, "f", 0o644));
    let victim = harness.file(dir, "g", 0o644);
    assert_eq!(rename(&mut harness, (ROOT, "nothing"), (dir, "g")), Status::NotFound);
    let no_replace = Rename { how: RenameHow::NoReplace, ..rename_args((ROOT, "f"), (dir, "g")) };
    assert_eq!(harness.status(Op::Rename, &no_replace), Status::Exists);
    let effect = harness.execute(Op::Rename, &rename_args((ROOT, "f"), (dir, "g")));
    assert_eq!((effect.status, effect.orphan), (Status::Ok, Some(victim)));
    assert_eq!(effect.pre_versions.as_slice().len(), 4);
    assert_eq!((harness.lookup(ROOT, "f"), harness.lookup(dir, "g")), (None, Some(file)));
    assert_eq!((harness.attr(file).version, harness.attr(file).nlink), (effect.transno, 1));
    assert_eq!(rename(&mut harness, (dir, "g"), (dir, "g")), Status::Ok);
    assert_eq!(rename(&mut harness, (dir, "g"), (InodeNo::new(2, 9), "g")), Status::CrossDevice);
    harness.check_redo();
}

#[test]
fn renaming_one_name_of_an_inode_over_another_does_nothing() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(link(&mut harness, file, ROOT, "g"), Status::Ok);
    let effect = harness.execute(Op::Rename, &rename_args((ROOT, "f"), (ROOT, "g")));
    assert_eq!((effect.status, effect.transno), (Status::Ok, Transno(0)));
    assert_eq!((harness.lookup(ROOT, "f"), harness.lookup(ROOT, "g")), (Some(file), Some(file)));
}

#[test]
fn a_directory_moves_with_its_parent_and_counts() {
    let mut harness = Harness::new();
    let (a, b) = (harness.mkdir(ROOT, "a", 0o755), harness.mkdir(ROOT, "b", 0o755));
    let moved = harness.mkdir(a, "m", 0o755);
    assert_eq!(rename(&mut harness, (a, "m"), (b, "m")), Status::Ok);
    assert_eq!((harness.attr(a).nlink, harness.attr(b).nlink), (2, 3));
    assert_eq!(harness.shard.state.inode(moved).unwrap().row.parent, b);
    // Over an empty directory; the counts stay.
    let victim = harness.mkdir(a, "v", 0o755);
    assert_eq!(rename(&mut harness, (b, "m"), (a, "v")), Status::Ok);
    assert_eq!((harness.attr(a).nlink, harness.attr(b).nlink), (3, 2));
    assert_eq!(harness.status(Op::Getattr, &wire::Getattr { inode: victim }), Status::Stale);
    // Within one directory over an empty one.
    harness.mkdir(a, "w", 0o755);
    assert_eq!(rename(&mut harness, (a, "v"), (a, "w")), Status::Ok);
    assert_eq!(harness.attr(a).nlink, 3);
    harness.check_redo();
}

#[test]
fn a_directory_never_moves_below_itself() {
    let mut harness = Harness::new();
    let a = harness.mkdir(ROOT, "a", 0o755);
    let b = harness.mkdir(a, "b", 0o755);
    assert_eq!(rename(&mut harness, (ROOT, "a"), (a, "x")), Status::Invalid);
    assert_eq!(rename(&mut harness, (ROOT, "a"), (b, "x")), Status::Invalid);
    assert_eq!(rename(&mut harness, (a, "b"), (ROOT, "a")), Status::NotEmpty);
    harness.check_redo();
}

#[test]
fn an_inode_is_not_replaced_by_another_kind() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o755);
    harness.file(ROOT, "f", 0o644);
    assert_eq!(rename(&mut harness, (ROOT, "d"), (ROOT, "f")), Status::NotDirectory);
    assert_eq!(rename(&mut harness, (ROOT, "f"), (ROOT, "d")), Status::IsDirectory);
    harness.mkdir(ROOT, "e", 0o755);
    harness.file(dir, "x", 0o644);
    assert_eq!(rename(&mut harness, (ROOT, "e"), (ROOT, "d")), Status::NotEmpty);
    assert_eq!(rename(&mut harness, (ROOT, "d"), (ROOT, "e")), Status::Ok);
    harness.check_redo();
}

#[test]
fn nothing_is_made_in_a_removed_directory_that_is_still_open() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o777);
    assert_eq!(harness.open(dir, read_handle(1)), Status::Ok);
    assert_eq!(rmdir(&mut harness, ROOT, "d"), Status::Ok);
    assert_eq!(harness.attr(dir).nlink, 0);
    assert_eq!(harness.create(root(), dir, "f", 0o644), Err(Status::NotFound));
    let args = Mkdir { caller: root(), parent: dir, name: name("x"), mode: 0o755, umask: 0 };
    assert_eq!(harness.status(Op::Mkdir, &args), Status::NotFound);
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(link(&mut harness, file, dir, "g"), Status::NotFound);
    assert_eq!(rename(&mut harness, (ROOT, "f"), (dir, "g")), Status::NotFound);
    harness.check_redo();
}

#[test]
fn a_set_group_directory_passes_its_group_on() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o777);
    harness.set(dir, 0o2777, 0, 50);
    let below = harness.mkdir(dir, "e", 0o755);
    assert_eq!((harness.attr(below).gid, harness.attr(below).mode), (50, 0o2755));
    let file = harness.create(user(5, 6), dir, "f", 0o2755).unwrap();
    assert_eq!((file.attr.uid, file.attr.gid, file.attr.mode), (5, 50, 0o755));
    let member = harness.create(user(5, 50), dir, "g", 0o2755).unwrap();
    assert_eq!(member.attr.mode, 0o2755);
    assert_eq!(harness.attr(harness.shard.state.inode(dir).unwrap().row.inode).gid, 50);
    let plain = Setattr { mode: Some(0o777), ..setattr(dir) };
    assert_eq!(harness.status(Op::Setattr, &plain), Status::Ok);
    assert_eq!(harness.create(user(5, 6), dir, "h", 0o644).unwrap().attr.gid, 6);
    harness.check_redo();
}

#[test]
fn the_root_directory_belongs_to_the_creator_of_the_store() {
    let made = disk::Creation { uid: 1000, gid: 100, mode: 0o1750, ..super::MADE };
    let mut shard = crate::Shard::new(wire::ShardId::meta(0), made);
    let body = wire::Getattr { inode: ROOT }.to_bytes();
    let request = crate::MetaRequest {
        op: Op::Getattr,
        body: &body,
        client: ALICE,
        squash: wire::Squash::ROOT,
        export_root: None,
        now: wire::Timestamp::from_ns(made.at_ns),
        records_reads: false,
        changed_behind: None,
    };
    let (mut reply, mut changes) = (alloc::vec![], alloc::vec![]);
    shard.execute(&request, &mut reply, &mut changes).unwrap();
    let attr = wire::Entry::decode_all(&reply).unwrap().attr;
    assert_eq!((attr.uid, attr.gid, attr.mode, attr.ctime), (1000, 100, 0o1750, request.now));
}
