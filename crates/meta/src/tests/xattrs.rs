//! Extended attributes: namespaces, flags, limits.

use super::{Harness, ROOT, root, user};
use crate::xattr::TOTAL_BYTES_MAX;
use alloc::vec::Vec;
use wire::{
    Bytes, Caller, Getxattr, InodeNo, Layout, Listxattr, Op, Removexattr, Setxattr, Status,
    Transno, Value, Wire,
};

fn set(
    harness: &mut Harness,
    caller: Caller<'_>,
    inode: InodeNo,
    name: &[u8],
    flags: u32,
) -> Status {
    let (name, value) = (Bytes(name), Bytes(b"value"));
    harness.status(Op::Setxattr, &Setxattr { caller, inode, name, value, flags })
}

fn get(
    harness: &mut Harness,
    caller: Caller<'_>,
    inode: InodeNo,
    name: &[u8],
) -> Result<Vec<u8>, Status> {
    match harness.status(Op::Getxattr, &Getxattr { caller, inode, name: Bytes(name) }) {
        Status::Ok => Ok(Value::decode_all(&harness.reply).unwrap().value.0.into()),
        status => Err(status),
    }
}

fn remove(harness: &mut Harness, caller: Caller<'_>, inode: InodeNo, name: &[u8]) -> Status {
    harness.status(Op::Removexattr, &Removexattr { caller, inode, name: Bytes(name) })
}

fn list(harness: &mut Harness, caller: Caller<'_>, inode: InodeNo) -> Vec<u8> {
    harness.answer::<Value<'_>>(Op::Listxattr, &Listxattr { caller, inode }).value.0.into()
}

#[test]
fn a_value_is_set_replaced_read_listed_and_removed() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    assert_eq!(set(&mut harness, root(), file, b"user.k", 2), Status::NoData);
    assert_eq!(set(&mut harness, root(), file, b"user.k", 1), Status::Ok);
    assert_eq!(set(&mut harness, root(), file, b"user.k", 1), Status::Exists);
    assert_eq!(set(&mut harness, root(), file, b"user.k", 2), Status::Ok);
    assert_eq!(set(&mut harness, root(), file, b"user.a", 0), Status::Ok);
    assert_eq!(set(&mut harness, root(), file, b"user.a", 4), Status::Invalid);
    // Both together never hold, as on Linux's own file systems.
    assert_eq!(set(&mut harness, root(), file, b"user.a", 3), Status::Exists);
    assert_eq!(set(&mut harness, root(), file, b"user.b", 3), Status::NoData);
    assert_eq!(get(&mut harness, root(), file, b"user.k"), Ok(b"value".into()));
    assert_eq!(list(&mut harness, root(), file), b"user.a\0user.k\0");
    let ctime = harness.attr(file).ctime;
    assert_eq!(remove(&mut harness, root(), file, b"user.k"), Status::Ok);
    assert!(harness.attr(file).ctime > ctime);
    assert_eq!(remove(&mut harness, root(), file, b"user.k"), Status::NoData);
    assert_eq!(get(&mut harness, root(), file, b"user.k"), Err(Status::NoData));
    harness.check_redo();
}

#[test]
fn each_namespace_has_its_rules() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    harness.set(file, 0o640, 5, 6);
    let (owner, group, other) = (user(5, 5), user(7, 6), user(8, 8));
    assert_eq!(set(&mut harness, owner, file, b"user.k", 0), Status::Ok);
    assert_eq!(set(&mut harness, group, file, b"user.k", 0), Status::Access);
    assert!(get(&mut harness, group, file, b"user.k").is_ok());
    assert_eq!(get(&mut harness, other, file, b"user.k"), Err(Status::Access));
    assert_eq!(set(&mut harness, owner, file, b"trusted.t", 0), Status::NotPermitted);
    assert_eq!(set(&mut harness, root(), file, b"trusted.t", 0), Status::Ok);
    assert_eq!(get(&mut harness, owner, file, b"trusted.t"), Err(Status::NoData));
    assert_eq!(set(&mut harness, owner, file, b"security.s", 0), Status::NotPermitted);
    assert_eq!(set(&mut harness, root(), file, b"security.s", 0), Status::Ok);
    assert!(get(&mut harness, other, file, b"security.s").is_ok());
    assert_eq!(list(&mut harness, other, file), b"security.s\0user.k\0");
    assert_eq!(list(&mut harness, root(), file), b"security.s\0trusted.t\0user.k\0");
    for name in [&b"system.other"[..], b"other.x", b"x"] {
        assert_eq!(set(&mut harness, root(), file, name, 0), Status::NotSupported);
        assert_eq!(get(&mut harness, root(), file, name), Err(Status::NotSupported));
    }
    let long = [b'x'; 256];
    for (name, status) in
        [(&b""[..], Status::Range), (&long, Status::Range), (b"user.", Status::Invalid)]
    {
        assert_eq!(set(&mut harness, root(), file, name, 0), status);
    }
    harness.check_redo();
}

#[test]
fn user_attributes_are_for_files_and_directories() {
    let mut harness = Harness::new();
    let (symlink, dir) = (harness.symlink(ROOT, "l", b"x"), harness.mkdir(ROOT, "d", 0o777));
    assert_eq!(set(&mut harness, root(), symlink, b"user.k", 0), Status::NotPermitted);
    assert_eq!(get(&mut harness, root(), symlink, b"user.k"), Err(Status::NoData));
    assert_eq!(set(&mut harness, root(), symlink, b"trusted.k", 0), Status::Ok);
    harness.set(dir, 0o1777, 5, 5);
    assert_eq!(set(&mut harness, user(6, 6), dir, b"user.k", 0), Status::NotPermitted);
    assert_eq!(set(&mut harness, user(5, 6), dir, b"user.k", 0), Status::Ok);
    harness.check_redo();
}

#[test]
fn values_and_their_sum_have_limits() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let long = alloc::vec![7; 65_537];
    let args = |name: &'static [u8], count: usize| Setxattr {
        caller: root(),
        inode: file,
        name: Bytes(name),
        value: Bytes(&long[..count]),
        flags: 0,
    };
    assert_eq!(harness.status(Op::Setxattr, &args(b"user.a", 65_537)), Status::Range);
    assert_eq!(harness.status(Op::Setxattr, &args(b"user.a", 65_536)), Status::Ok);
    assert_eq!(harness.status(Op::Setxattr, &args(b"user.b", 65_536)), Status::Ok);
    let free_bytes = TOTAL_BYTES_MAX - 2 * (65_536 + 6) - 6;
    let effect = harness.execute(Op::Setxattr, &args(b"user.c", free_bytes + 1));
    assert_eq!((effect.status, effect.transno), (Status::NoSpace, Transno(0)));
    assert_eq!(harness.status(Op::Setxattr, &args(b"user.c", free_bytes)), Status::Ok);
    assert_eq!(harness.status(Op::Setxattr, &args(b"user.a", 65_535)), Status::Ok, "replaced");
    harness.check_redo();
}

#[test]
fn the_list_of_names_has_a_limit() {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, "f", 0o644);
    let mut count = 0;
    let refused = loop {
        let name = alloc::format!("user.{count:0>250}");
        let (name, value) = (Bytes(name.as_bytes()), Bytes(b""));
        let args = Setxattr { caller: root(), inode: file, name, value, flags: 0 };
        match harness.status(Op::Setxattr, &args) {
            Status::Ok => count += 1,
            status => break status,
        }
    };
    assert_eq!((refused, count), (Status::NoSpace, 256));
    assert_eq!(list(&mut harness, root(), file).len(), 65_536);
}

#[test]
fn a_directory_gives_its_layout_to_what_is_new_in_it() {
    let mut harness = Harness::new();
    harness.shard.set_part_counts(Vec::from([3]));
    let dir = harness.mkdir(ROOT, "d", 0o777);
    harness.set(dir, 0o777, 5, 5);
    let name = Bytes(Layout::XATTR);
    let set = |harness: &mut Harness, caller, inode, value| {
        let value = Bytes(value);
        harness.status(Op::Setxattr, &Setxattr { caller, inode, name, value, flags: 0 })
    };
    assert_eq!(get(&mut harness, root(), dir, name.0), Err(Status::NoData));
    assert_eq!(set(&mut harness, user(6, 6), dir, b"count=2"), Status::NotPermitted);
    assert_eq!(set(&mut harness, user(5, 5), dir, b"count=2,unit=3"), Status::Invalid);
    assert_eq!(set(&mut harness, user(5, 5), dir, b"count=2,unit=64K"), Status::Ok);
    let below = harness.mkdir(dir, "below", 0o755);
    let text = Ok(b"unit=65536,count=2".into());
    assert_eq!(get(&mut harness, user(6, 6), below, name.0), text);
    let file = harness.file(below, "f", 0o644);
    assert_eq!(get(&mut harness, user(6, 6), file, name.0), text);
    let layout = harness.attr(file).layout;
    assert_eq!(layout, Some(Layout { stripe_unit_bytes: 1 << 16, stripe_count: 2, narrow: false }));
    assert_eq!(set(&mut harness, root(), file, b"count=3"), Status::Exists, "a file keeps its own");
    assert_eq!(set(&mut harness, root(), below, b"count=0"), Status::Ok);
    let wide = harness.file(below, "wide", 0o644);
    assert_eq!(harness.attr(wide).layout.map(|layout| layout.stripe_count), Some(3));
    harness.shard.set_part_counts(Vec::from([1]));
    let narrow = harness.file(below, "narrow", 0o644);
    assert_eq!(harness.attr(narrow).layout, Some(Layout::DEFAULT), "one server needs no stripes");
    assert_eq!(remove(&mut harness, root(), below, name.0), Status::Ok);
    assert_eq!(remove(&mut harness, root(), below, name.0), Status::NoData);
    harness.check_redo();
}
