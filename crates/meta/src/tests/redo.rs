//! Redo: an error in a log is a fault, not a panic and not a guess.

use super::{Harness, MADE, ROOT, name};
use crate::Shard;
use disk::{Change, ContentsChange, InodeRow};
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
fn changes_of_missing_objects_are_faults() {
    let (inode, name) = (InodeNo(9), name("x"));
    let file = Change::Inode { row: InodeRow::new(InodeNo(2), FileKind::File, 0, NOW) };
    let entry = |dir, cookie, text| Change::Dirent {
        dir,
        name: super::name(text),
        cookie,
        inode: InodeNo(2),
        kind: FileKind::File,
        version: Transno(1),
    };
    let bad = [
        alloc::vec![Change::Touch {
            inode,
            mtime: NOW,
            ctime: NOW,
            nlink_delta: 0,
            entry_delta: 0
        }],
        alloc::vec![touch(-3, 0)],
        alloc::vec![touch(0, -1)],
        alloc::vec![Change::DirAttrs {
            inode,
            mode: 0,
            uid: 0,
            gid: 0,
            atime: NOW,
            mtime: None,
            ctime: NOW,
            parent: ROOT,
            version: Transno(1),
        }],
        alloc::vec![entry(inode, 1, "x")],
        alloc::vec![file, entry(InodeNo(2), 1, "x")],
        alloc::vec![entry(ROOT, 1, "x"), entry(ROOT, 1, "y")],
        alloc::vec![entry(ROOT, u64::MAX, "x")],
        alloc::vec![Change::DirentRemoved { dir: inode, name }],
        alloc::vec![Change::Symlink { inode: ROOT, target: Bytes(b"x") }],
        alloc::vec![Change::Xattr { inode, name: Bytes(b"user.x"), value: Bytes(b"") }],
        alloc::vec![Change::Inode { row: InodeRow::new(ROOT, FileKind::File, 0, NOW) }],
        alloc::vec![Change::Inode {
            row: InodeRow::new(InodeNo::new(1, 1), FileKind::File, 0, NOW)
        }],
        alloc::vec![Change::Inode { row: InodeRow::new(InodeNo(0), FileKind::File, 0, NOW) }],
        alloc::vec![Change::Contents(ContentsChange::Truncate {
            inode,
            size_bytes: 0,
            write_time_ns: 0
        })],
        alloc::vec![Change::Contents(ContentsChange::Write {
            inode,
            object_offset: 0,
            write_bytes: 0,
            crc32c: 0,
            write_time_ns: 0
        })],
        alloc::vec![Change::Contents(ContentsChange::ObjectRemoved { inode })],
    ];
    for changes in bad {
        assert!(redo(&changes).is_err(), "{changes:?}");
    }
    let mut shard = Shard::new(ShardId::meta(0), MADE);
    assert!(shard.replay(Transno(1), &[200]).is_err());
}

#[test]
fn removing_twice_equals_once() {
    let file = Change::Inode { row: InodeRow::new(InodeNo(2), FileKind::File, 0, NOW) };
    let removed = Change::InodeRemoved { inode: InodeNo(2) };
    let nameless = Change::DirentRemoved { dir: ROOT, name: name("x") };
    let shard = redo(&[file, removed.clone(), removed, nameless]).unwrap();
    assert_eq!(shard.inode_count(), 1);
}

fn touch(nlink_delta: i32, entry_delta: i32) -> Change<'static> {
    Change::Touch { inode: ROOT, mtime: NOW, ctime: NOW, nlink_delta, entry_delta }
}

#[test]
fn changes_of_a_directory_commute() {
    let later = Timestamp { secs: 9, nanos: 0 };
    let touches = [(Transno(5), touch(1, 1)), (Transno(7), touch(0, 1))];
    let attrs = Change::DirAttrs {
        inode: ROOT,
        mode: 0o700,
        uid: 5,
        gid: 6,
        atime: NOW,
        mtime: Some((later, later)),
        ctime: later,
        parent: ROOT,
        version: Transno(6),
    };
    let [first, last] = touches;
    let all = [first, (Transno(6), attrs), last];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let rows = orders.map(|order| {
        let mut shard = Shard::new(ShardId::meta(0), MADE);
        for index in order {
            let (transno, change): &(Transno, Change<'_>) = &all[index];
            shard.replay(*transno, &change.to_bytes()).unwrap();
        }
        shard.state.inode(ROOT).unwrap().row
    });
    assert!(rows.iter().all(|row| *row == rows[0]), "{rows:?}");
    assert_eq!((rows[0].nlink, rows[0].entry_count, rows[0].mode), (3, 2, 0o700));
    assert_eq!((rows[0].mtime, rows[0].touched), (NOW, Transno(7)));
}

#[test]
fn inode_numbers_of_redone_inodes_are_not_reused() {
    let row = InodeRow { nlink: 0, ..InodeRow::new(InodeNo(40), FileKind::File, 0, NOW) };
    let mut harness = Harness::new();
    harness.shard =
        redo(&[Change::Inode { row }, Change::InodeRemoved { inode: row.inode }]).unwrap();
    assert_eq!(harness.file(ROOT, "f", 0o644), InodeNo(41));
}
