//! Extended attributes: namespaces, flags, limits.

use super::{ROOT, World, root, user};
use crate::xattr::TOTAL_BYTES_MAX;
use alloc::vec::Vec;
use wire::{
    Bytes, Caller, Getxattr, InodeNo, Listxattr, Op, Removexattr, Setxattr, Status, Transno, Value,
    Wire,
};

fn set(world: &mut World, caller: Caller<'_>, inode: InodeNo, name: &[u8], flags: u32) -> Status {
    let (name, value) = (Bytes(name), Bytes(b"value"));
    world.status(Op::Setxattr, &Setxattr { caller, inode, name, value, flags })
}

fn get(
    world: &mut World,
    caller: Caller<'_>,
    inode: InodeNo,
    name: &[u8],
) -> Result<Vec<u8>, Status> {
    match world.status(Op::Getxattr, &Getxattr { caller, inode, name: Bytes(name) }) {
        Status::Ok => Ok(Value::decode_all(&world.reply).unwrap().value.0.into()),
        status => Err(status),
    }
}

fn remove(world: &mut World, caller: Caller<'_>, inode: InodeNo, name: &[u8]) -> Status {
    world.status(Op::Removexattr, &Removexattr { caller, inode, name: Bytes(name) })
}

fn list(world: &mut World, caller: Caller<'_>, inode: InodeNo) -> Vec<u8> {
    world.answer::<Value<'_>>(Op::Listxattr, &Listxattr { caller, inode }).value.0.into()
}

#[test]
fn a_value_is_set_replaced_read_listed_and_removed() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    assert_eq!(set(&mut world, root(), file, b"user.k", 2), Status::NoData);
    assert_eq!(set(&mut world, root(), file, b"user.k", 1), Status::Ok);
    assert_eq!(set(&mut world, root(), file, b"user.k", 1), Status::Exists);
    assert_eq!(set(&mut world, root(), file, b"user.k", 2), Status::Ok);
    assert_eq!(set(&mut world, root(), file, b"user.a", 0), Status::Ok);
    assert_eq!(set(&mut world, root(), file, b"user.a", 4), Status::Invalid);
    // Both together never hold, as on Linux's own file systems.
    assert_eq!(set(&mut world, root(), file, b"user.a", 3), Status::Exists);
    assert_eq!(set(&mut world, root(), file, b"user.b", 3), Status::NoData);
    assert_eq!(get(&mut world, root(), file, b"user.k"), Ok(b"value".into()));
    assert_eq!(list(&mut world, root(), file), b"user.a\0user.k\0");
    let ctime = world.attr(file).ctime;
    assert_eq!(remove(&mut world, root(), file, b"user.k"), Status::Ok);
    assert!(world.attr(file).ctime > ctime);
    assert_eq!(remove(&mut world, root(), file, b"user.k"), Status::NoData);
    assert_eq!(get(&mut world, root(), file, b"user.k"), Err(Status::NoData));
    world.check_redo();
}

#[test]
fn each_namespace_has_its_rules() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    world.set(file, 0o640, 5, 6);
    let (owner, group, other) = (user(5, 5), user(7, 6), user(8, 8));
    assert_eq!(set(&mut world, owner, file, b"user.k", 0), Status::Ok);
    assert_eq!(set(&mut world, group, file, b"user.k", 0), Status::Access);
    assert!(get(&mut world, group, file, b"user.k").is_ok());
    assert_eq!(get(&mut world, other, file, b"user.k"), Err(Status::Access));
    assert_eq!(set(&mut world, owner, file, b"trusted.t", 0), Status::NotPermitted);
    assert_eq!(set(&mut world, root(), file, b"trusted.t", 0), Status::Ok);
    assert_eq!(get(&mut world, owner, file, b"trusted.t"), Err(Status::NoData));
    assert_eq!(set(&mut world, owner, file, b"security.s", 0), Status::NotPermitted);
    assert_eq!(set(&mut world, root(), file, b"security.s", 0), Status::Ok);
    assert!(get(&mut world, other, file, b"security.s").is_ok());
    assert_eq!(list(&mut world, other, file), b"security.s\0user.k\0");
    assert_eq!(list(&mut world, root(), file), b"security.s\0trusted.t\0user.k\0");
    for name in [&b"system.other"[..], b"other.x", b"x"] {
        assert_eq!(set(&mut world, root(), file, name, 0), Status::NotSupported);
        assert_eq!(get(&mut world, root(), file, name), Err(Status::NotSupported));
    }
    let long = [b'x'; 256];
    for (name, status) in
        [(&b""[..], Status::Range), (&long, Status::Range), (b"user.", Status::Invalid)]
    {
        assert_eq!(set(&mut world, root(), file, name, 0), status);
    }
    world.check_redo();
}

#[test]
fn user_attributes_are_for_files_and_directories() {
    let mut world = World::new();
    let (symlink, dir) = (world.symlink(ROOT, "l", b"x"), world.mkdir(ROOT, "d", 0o777));
    assert_eq!(set(&mut world, root(), symlink, b"user.k", 0), Status::NotPermitted);
    assert_eq!(get(&mut world, root(), symlink, b"user.k"), Err(Status::NoData));
    assert_eq!(set(&mut world, root(), symlink, b"trusted.k", 0), Status::Ok);
    world.set(dir, 0o1777, 5, 5);
    assert_eq!(set(&mut world, user(6, 6), dir, b"user.k", 0), Status::NotPermitted);
    assert_eq!(set(&mut world, user(5, 6), dir, b"user.k", 0), Status::Ok);
    world.check_redo();
}

#[test]
fn values_and_their_sum_have_limits() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    let long = alloc::vec![7; 65_537];
    let args = |name: &'static [u8], count: usize| Setxattr {
        caller: root(),
        inode: file,
        name: Bytes(name),
        value: Bytes(&long[..count]),
        flags: 0,
    };
    assert_eq!(world.status(Op::Setxattr, &args(b"user.a", 65_537)), Status::Range);
    assert_eq!(world.status(Op::Setxattr, &args(b"user.a", 65_536)), Status::Ok);
    assert_eq!(world.status(Op::Setxattr, &args(b"user.b", 65_536)), Status::Ok);
    let room = TOTAL_BYTES_MAX - 2 * (65_536 + 6) - 6;
    let effect = world.execute(Op::Setxattr, &args(b"user.c", room + 1));
    assert_eq!((effect.status, effect.transno), (Status::NoSpace, Transno(0)));
    assert_eq!(world.status(Op::Setxattr, &args(b"user.c", room)), Status::Ok);
    assert_eq!(world.status(Op::Setxattr, &args(b"user.a", 65_535)), Status::Ok, "replaced");
    world.check_redo();
}

#[test]
fn the_list_of_names_has_a_limit() {
    let mut world = World::new();
    let file = world.file(ROOT, "f", 0o644);
    let mut count = 0;
    let refused = loop {
        let name = alloc::format!("user.{count:0>250}");
        let (name, value) = (Bytes(name.as_bytes()), Bytes(b""));
        let args = Setxattr { caller: root(), inode: file, name, value, flags: 0 };
        match world.status(Op::Setxattr, &args) {
            Status::Ok => count += 1,
            status => break status,
        }
    };
    assert_eq!((refused, count), (Status::NoSpace, 256));
    assert_eq!(list(&mut world, root(), file).len(), 65_536);
}
