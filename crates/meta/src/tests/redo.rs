//! Redo: what is wrong in a log is a fault, not a panic and not a guess.

use super::{MADE, ROOT, World, name};
use crate::Shard;
use crate::state::new_row;
use disk::{Change, InodeRow};
use wire::{Bytes, FileKind, InodeNo, ShardId, Timestamp, Transno, Wire};

const NOW: Timestamp = Timestamp { secs: 1, nanos: 0 };

fn redo(changes: &[Change<'_>]) -> Result<Shard, disk::Fault> {
    let mut shard = Shard::new(ShardId::meta(0), MADE);
    for change in changes {
        shard.replay(Transno(1), &change.to_bytes())?;
    }
    Ok(shard)
}

#[test]
fn changes_of_what_does_not_exist_are_faults() {
    let (inode, name) = (InodeNo(9), name("x"));
    let file = Change::Inode { row: new_row(InodeNo(2), FileKind::File, 0, NOW) };
    let entry = |dir, cookie, text| Change::Dirent {
        dir,
        name: super::name(text),
        cookie,
        inode: InodeNo(2),
        kind: FileKind::File,
        version: Transno(1),
    };
    let bad = [
        alloc::vec![Change::Touch { inode, mtime: NOW, ctime: NOW, nlink_delta: 0 }],
        alloc::vec![Change::Touch { inode: ROOT, mtime: NOW, ctime: NOW, nlink_delta: -3 }],
        alloc::vec![entry(inode, 1, "x")],
        alloc::vec![file, entry(InodeNo(2), 1, "x")],
        alloc::vec![entry(ROOT, 1, "x"), entry(ROOT, 1, "y")],
        alloc::vec![entry(ROOT, u64::MAX, "x")],
        alloc::vec![Change::DirentGone { dir: inode, name }],
        alloc::vec![Change::Symlink { inode: ROOT, target: Bytes(b"x") }],
        alloc::vec![Change::Xattr { inode, name: Bytes(b"user.x"), value: Bytes(b"") }],
        alloc::vec![Change::Inode { row: new_row(ROOT, FileKind::File, 0, NOW) }],
        alloc::vec![Change::Inode { row: new_row(InodeNo::new(1, 1), FileKind::File, 0, NOW) }],
        alloc::vec![Change::Inode { row: new_row(InodeNo(0), FileKind::File, 0, NOW) }],
        alloc::vec![Change::Truncate { inode, size_bytes: 0 }],
        alloc::vec![Change::Write { inode, object_offset: 0, write_bytes: 0, crc32c: 0 }],
        alloc::vec![Change::ObjectGone { inode }],
    ];
    for changes in bad {
        assert!(redo(&changes).is_err(), "{changes:?}");
    }
    let mut shard = Shard::new(ShardId::meta(0), MADE);
    assert!(shard.replay(Transno(1), &[200]).is_err());
}

#[test]
fn going_twice_is_as_going_once() {
    let file = Change::Inode { row: new_row(InodeNo(2), FileKind::File, 0, NOW) };
    let gone = Change::InodeGone { inode: InodeNo(2) };
    let nameless = Change::DirentGone { dir: ROOT, name: name("x") };
    let shard = redo(&[file, gone, gone, nameless]).unwrap();
    assert_eq!(shard.inode_count(), 1);
}

#[test]
fn a_touch_counts_once_per_transaction() {
    let touch = Change::Touch { inode: ROOT, mtime: NOW, ctime: NOW, nlink_delta: 1 };
    let shard = redo(&[touch, touch]).unwrap();
    assert_eq!(shard.state.inode(ROOT).unwrap().row.nlink, 3);
}

#[test]
fn inode_numbers_of_redone_inodes_are_not_given_again() {
    let row = InodeRow { nlink: 0, ..new_row(InodeNo(40), FileKind::File, 0, NOW) };
    let mut world = World::new();
    world.shard = redo(&[Change::Inode { row }, Change::InodeGone { inode: row.inode }]).unwrap();
    assert_eq!(world.file(ROOT, "f", 0o644), InodeNo(41));
}
