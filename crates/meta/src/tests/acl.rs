//! Access control lists: permissions, interaction with the mode, inheritance.

use super::{Harness, ROOT, name, root, setattr, user};
use crate::acl::{ACCESS, Acl, DEFAULT};
use alloc::vec::Vec;
use wire::{
    Access, Bytes, Caller, Create, Created, Entry, Getxattr, Groups, InodeNo, Listxattr, Mkdir, Op,
    Removexattr, Setattr, Setxattr, Status, Value, Wire,
};

const OWNER: (u16, u32) = (1, u32::MAX);
const FILE_GROUP: (u16, u32) = (4, u32::MAX);
const MASK: (u16, u32) = (16, u32::MAX);
const OTHERS: (u16, u32) = (32, u32::MAX);

const fn named(uid: u32) -> (u16, u32) {
    (2, uid)
}

const fn group(gid: u32) -> (u16, u32) {
    (8, gid)
}

fn list(entries: &[((u16, u32), u16)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for ((tag, id), bits) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(
    harness: &mut Harness,
    caller: Caller<'_>,
    inode: InodeNo,
    name: &[u8],
    value: &[u8],
) -> Status {
    let args = Setxattr { caller, inode, name: Bytes(name), value: Bytes(value), flags: 0 };
    harness.status(Op::Setxattr, &args)
}

fn remove(harness: &mut Harness, inode: InodeNo, name: &[u8]) -> Status {
    harness.status(Op::Removexattr, &Removexattr { caller: root(), inode, name: Bytes(name) })
}

fn get(harness: &mut Harness, inode: InodeNo, name: &[u8]) -> Option<Vec<u8>> {
    match harness.status(Op::Getxattr, &Getxattr { caller: user(9, 9), inode, name: Bytes(name) }) {
        Status::Ok => Some(Value::decode_all(&harness.reply).unwrap().value.0.into()),
        status => {
            assert_eq!(status, Status::NoData);
            None
        }
    }
}

fn access(harness: &mut Harness, caller: Caller<'_>, inode: InodeNo, mask: u32) -> Status {
    harness.status(Op::Access, &Access { caller, inode, mask })
}

/// The permissions that the caller has.
fn granted(harness: &mut Harness, caller: Caller<'_>, inode: InodeNo) -> u32 {
    let one = |bit: u32, harness: &mut Harness| match access(harness, caller, inode, bit) {
        Status::Ok => bit,
        Status::Access => 0,
        other => panic!("{other:?}"),
    };
    one(4, harness) | one(2, harness) | one(1, harness)
}

#[test]
fn the_first_class_that_contains_the_caller_decides() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    harness.set(file, 0o600, 5, 6);
    let acl = list(&[
        (OWNER, 6),
        (named(7), 7),
        (named(8), 0),
        (FILE_GROUP, 4),
        (group(20), 2),
        (group(21), 5),
        (MASK, 6),
        (OTHERS, 1),
    ]);
    assert_eq!(set(&mut harness, user(5, 5), file, ACCESS, &acl), Status::Ok);
    assert_eq!(harness.attr(file).mode, 0o661, "the mask is the group's bits");
    assert_eq!(granted(&mut harness, user(5, 5), file), 6);
    assert_eq!(granted(&mut harness, user(7, 99), file), 6, "less than named, by the mask");
    assert_eq!(
        granted(&mut harness, user(8, 21), file),
        0,
        "a user's own entry goes before groups"
    );
    assert_eq!(granted(&mut harness, user(9, 6), file), 4);
    assert_eq!(granted(&mut harness, user(9, 20), file), 2);
    let both = [20_u32.to_le_bytes(), 21_u32.to_le_bytes()].concat();
    let member = Caller { uid: 9, gid: 9, groups: Groups::Known(&both) };
    assert_eq!(access(&mut harness, member, file, 4), Status::Ok);
    assert_eq!(access(&mut harness, member, file, 2), Status::Ok);
    assert_eq!(access(&mut harness, member, file, 6), Status::Access, "no group has both");
    assert_eq!(
        access(&mut harness, member, file, 1),
        Status::Access,
        "the others' x is not theirs"
    );
    assert_eq!(granted(&mut harness, user(9, 9), file), 1);
    let unknown = Caller { uid: 9, gid: 9, groups: Groups::Unknown };
    assert_eq!(access(&mut harness, unknown, file, 1), Status::NeedGroups);
    let unknown = Caller { uid: 7, ..unknown };
    assert_eq!(access(&mut harness, unknown, file, 4), Status::Ok, "whatever groups a user has");
    harness.check_redo();
}

#[test]
fn mode_and_list_stay_consistent() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let acl = list(&[(OWNER, 6), (named(7), 7), (FILE_GROUP, 4), (MASK, 7), (OTHERS, 0)]);
    assert_eq!(set(&mut harness, root(), file, ACCESS, &acl), Status::Ok);
    assert_eq!(harness.attr(file).mode, 0o670);
    let chmod = Setattr { mode: Some(0o4751), ..setattr(file) };
    assert_eq!(harness.status(Op::Setattr, &chmod), Status::Ok);
    let after = list(&[(OWNER, 7), (named(7), 7), (FILE_GROUP, 4), (MASK, 5), (OTHERS, 1)]);
    assert_eq!(get(&mut harness, file, ACCESS), Some(after));
    assert_eq!(granted(&mut harness, user(7, 7), file), 5);
    assert_eq!(remove(&mut harness, file, ACCESS), Status::Ok);
    assert_eq!(harness.attr(file).mode, 0o4751, "as Linux leaves it");
    assert_eq!(remove(&mut harness, file, ACCESS), Status::Ok);
    let plain = list(&[(OWNER, 6), (FILE_GROUP, 4), (OTHERS, 0)]);
    assert_eq!(set(&mut harness, root(), file, ACCESS, &plain), Status::Ok);
    assert_eq!((harness.attr(file).mode, get(&mut harness, file, ACCESS)), (0o4640, None));
    let masked = list(&[((1, 77), 6), ((4, 77), 4), ((16, 77), 2), ((32, 77), 0)]);
    assert_eq!(set(&mut harness, root(), file, ACCESS, &masked), Status::Ok);
    let normal = list(&[(OWNER, 6), (FILE_GROUP, 4), (MASK, 2), (OTHERS, 0)]);
    assert_eq!((harness.attr(file).mode, get(&mut harness, file, ACCESS)), (0o4620, Some(normal)));
    assert_eq!(set(&mut harness, root(), file, ACCESS, &plain), Status::Ok);
    assert_eq!(get(&mut harness, file, ACCESS), None, "the mode says all of it");
    harness.check_redo();
}

#[test]
fn a_default_list_replaces_the_umask() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, "d", 0o777);
    let entries = [(OWNER, 7), (named(7), 6), (FILE_GROUP, 5), (MASK, 7), (OTHERS, 4)];
    assert_eq!(set(&mut harness, root(), dir, DEFAULT, &list(&entries)), Status::Ok);
    let attr = harness.attr(dir);
    assert_eq!(attr.mode, 0o777, "it says nothing about the directory itself");
    let (exclusive, handle) = (true, None);
    let (mode, umask) = (0o2666, 0o077);
    let args = |text: &'static str| Create {
        caller: root(),
        parent: dir,
        name: name(text),
        mode,
        umask,
        exclusive,
        handle,
        behind: None,
    };
    let file = harness.answer::<Created>(Op::Create, &args("f")).attr;
    assert_eq!(file.mode, 0o2664);
    assert!(!file.has_no_xattrs());
    let of_file = list(&[(OWNER, 6), (named(7), 6), (FILE_GROUP, 5), (MASK, 6), (OTHERS, 4)]);
    assert_eq!(get(&mut harness, file.inode, ACCESS), Some(of_file));
    assert_eq!(get(&mut harness, file.inode, DEFAULT), None);
    let mkdir = Mkdir { caller: root(), parent: dir, name: name("e"), mode: 0o770, umask };
    let below = harness.answer::<Entry>(Op::Mkdir, &mkdir).attr;
    assert_eq!(below.mode, 0o770);
    assert!(!below.has_no_xattrs());
    assert_eq!(get(&mut harness, below.inode, DEFAULT), Some(list(&entries)));
    let of_dir = list(&[(OWNER, 7), (named(7), 6), (FILE_GROUP, 5), (MASK, 7), (OTHERS, 0)]);
    assert_eq!(get(&mut harness, below.inode, ACCESS), Some(of_dir));
    let link = harness.symlink(dir, "l", b"x");
    assert_eq!(harness.attr(link).mode, 0o777);
    assert!(harness.attr(link).has_no_xattrs(), "a symbolic link inherits no list");
    let listed = Listxattr { caller: root(), inode: link };
    assert!(harness.answer::<Value<'_>>(Op::Listxattr, &listed).value.0.is_empty());
    harness.check_redo();

    let plain = list(&[(OWNER, 7), (FILE_GROUP, 5), (OTHERS, 4)]);
    assert_eq!(set(&mut harness, root(), dir, DEFAULT, &plain), Status::Ok);
    let file = harness.answer::<Created>(Op::Create, &args("g")).attr;
    assert_eq!((file.mode, get(&mut harness, file.inode, ACCESS)), (0o2644, None));
    assert_eq!(remove(&mut harness, dir, DEFAULT), Status::Ok);
    assert_eq!(harness.answer::<Created>(Op::Create, &args("h")).attr.mode, 0o2600);
    harness.check_redo();
}

#[test]
fn only_owners_set_lists_and_symlinks_have_none() {
    let mut harness = Harness::new();
    let (file, dir) = (harness.file(ROOT, "f", 0o644), harness.mkdir(ROOT, "d", 0o755));
    let link = harness.symlink(ROOT, "l", b"x");
    harness.set(file, 0o2666, 5, 6);
    let acl = list(&[(OWNER, 6), (named(7), 7), (FILE_GROUP, 4), (MASK, 7), (OTHERS, 0)]);
    assert_eq!(set(&mut harness, user(7, 6), file, ACCESS, &acl), Status::NotPermitted);
    assert_eq!(set(&mut harness, root(), link, ACCESS, &acl), Status::NotSupported);
    assert_eq!(set(&mut harness, root(), file, DEFAULT, &acl), Status::Access);
    assert_eq!(remove(&mut harness, file, DEFAULT), Status::Ok);
    assert_eq!(set(&mut harness, user(5, 5), file, ACCESS, &acl), Status::Ok);
    assert_eq!(harness.attr(file).mode, 0o670, "not his group, so not its set-gid bit");
    let sparse = [&acl[..4], &[]].concat();
    assert_eq!(set(&mut harness, root(), file, ACCESS, &sparse), Status::Ok);
    assert_eq!(get(&mut harness, file, ACCESS), None, "no entries: no list");
    assert_eq!(set(&mut harness, root(), dir, ACCESS, &acl), Status::Ok);
    harness.check_redo();
}

#[test]
fn an_invalid_list_is_refused() {
    let good = [(OWNER, 6), (named(7), 7), (FILE_GROUP, 4), (MASK, 7), (OTHERS, 0)];
    assert!(Acl::verify(&list(&good)).unwrap().is_some());
    let without = |tag: (u16, u32)| {
        list(&good.into_iter().filter(|(other, _)| *other != tag).collect::<Vec<_>>())
    };
    for tag in [OWNER, FILE_GROUP, MASK, OTHERS] {
        assert_eq!(Acl::verify(&without(tag)), Err(Status::Invalid), "{tag:?}");
    }
    let odd = [
        list(&[(OWNER, 8), (FILE_GROUP, 4), (OTHERS, 0)]),
        list(&[(OWNER, 6), (OTHERS, 0), (FILE_GROUP, 4)]),
        list(&[(OWNER, 6), (OWNER, 6), (FILE_GROUP, 4), (OTHERS, 0)]),
        list(&[(OWNER, 6), ((3, 0), 6), (FILE_GROUP, 4), (OTHERS, 0)]),
        list(&[(OWNER, 6), (named(u32::MAX), 6), (FILE_GROUP, 4), (MASK, 7), (OTHERS, 0)]),
        list(&good)[..11].to_vec(),
        list(&good)[..3].to_vec(),
    ];
    for bytes in odd {
        assert_eq!(Acl::verify(&bytes), Err(Status::Invalid), "{bytes:?}");
    }
    let mut other_version = list(&good);
    other_version[0] = 1;
    assert_eq!(Acl::verify(&other_version), Err(Status::NotSupported));
    let mut entries = alloc::vec![(OWNER, 6)];
    entries.extend((0..507).map(|uid| (named(uid), 7)));
    entries.extend([(FILE_GROUP, 4), (MASK, 7), (OTHERS, 0)]);
    assert!(Acl::verify(&list(&entries)).unwrap().is_some(), "as many as Linux reads");
    entries.insert(1, (named(1), 7));
    assert_eq!(Acl::verify(&list(&entries)), Err(Status::NoSpace));
}
