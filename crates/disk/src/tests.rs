//! Golden bytes of every layout, round trips, and what damage does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod golden;
mod log;
mod logged;
mod random;
mod rows;

use crate::{
    Change, ClientChange, ContentsChange, ExportChange, InodeRow, Origin, PreVersions, Record,
    SessionRow, TxnChange, TxnId,
};
use alloc::vec::Vec;
use wire::{
    Bytes, ClientUuid, Contents, FileKind, InodeNo, LaneId, List, Name, Op, SessionId, ShardId,
    Status, Term, Timestamp, Transno, Xid,
};

pub(crate) fn row() -> InodeRow {
    InodeRow {
        inode: InodeNo(0x0001_0000_0000_0002),
        kind: FileKind::File,
        mode: 0o4755,
        uid: 1000,
        gid: 100,
        nlink: 3,
        size_bytes: 0x0102_0304_0506,
        allocated_bytes: 4096,
        size_at_data: true,
        atime: Timestamp { secs: 1, nanos: 2 },
        mtime: Timestamp { secs: -3, nanos: 4 },
        mtime_set: Timestamp { secs: -4, nanos: 5 },
        ctime: Timestamp { secs: 5, nanos: 999_999_999 },
        version: Transno(7),
        touched: Transno(8),
        parent: InodeNo(9),
        next_cookie: 10,
        layout: Some(wire::Layout::DEFAULT),
        entry_count: 12,
        rdev: 13,
        linkable: true,
        birth: Timestamp { secs: -6, nanos: 7 },
    }
}

/// Two pieces, the second one before the first in the file.
pub(crate) fn pieces() -> wire::Pieces {
    let first = wire::Piece { file_offset: 4096, piece_bytes: 512 };
    let second = wire::Piece { file_offset: 7, piece_bytes: 9 };
    wire::Pieces::new(alloc::vec![first, second]).unwrap()
}

pub(crate) fn changes() -> Vec<Change<'static>> {
    let (inode, dir, name) = (InodeNo(2), InodeNo(1), Name::new(b"a b").unwrap());
    let (kind, version) = (FileKind::Directory, Transno(6));
    let time = Timestamp { secs: 16, nanos: 17 };
    let txn = TxnId { coordinator: ShardId::meta(9), number: 0x0102 };
    alloc::vec![
        Change::Inode { row: row() },
        Change::Touch { inode, mtime: time, ctime: time, nlink_delta: -1, entry_delta: 1 },
        Change::Dirent { dir, name, cookie: 5, inode, kind, version },
        Change::DirentRemoved { dir, name },
        Change::Symlink { inode, target: Bytes(b"../x") },
        Change::Xattr { inode, name: Bytes(b"user.k"), value: Bytes(b"v") },
        Change::XattrRemoved { inode, name: Bytes(b"user.k") },
        Change::InodeRemoved { inode },
        Change::Contents(ContentsChange::Write {
            inode,
            object_offset: 4096,
            write_bytes: 512,
            crc32c: 0xAABB_CCDD,
            write_time_ns: 0x0102_0304_0506_0708,
        }),
        Change::Contents(ContentsChange::Truncate { inode, size_bytes: 77, write_time_ns: 0x11 }),
        Change::Contents(ContentsChange::ObjectRemoved { inode }),
        Change::Contents(ContentsChange::WriteList {
            inode,
            pieces: pieces(),
            crc32c: 0x1122_3344,
            write_time_ns: 0x13,
        }),
        Change::Contents(ContentsChange::Allocate {
            inode,
            object_offset: 4096,
            range_bytes: 1 << 33,
            allocation: wire::Allocation::Zero,
            size_bytes: 99,
            write_time_ns: 0x12,
        }),
        Change::Contents(ContentsChange::Sums {
            inode,
            first_block: 3,
            sums: crate::BlockSums(alloc::vec![
                crate::BlockSum { crc32c: 0x1122_3344, covered_bytes: crate::BLOCK_BYTES },
                crate::BlockSum { crc32c: 0x5566_7788, covered_bytes: 9 },
            ]),
        }),
        Change::Contents(ContentsChange::SumsRemoved { inode, from_block: 0, until_block: 1024 }),
        Change::Contents(ContentsChange::Stripe {
            inode,
            stripe_index: 7,
            layout: wire::Layout::DEFAULT,
        }),
        Change::Contents(ContentsChange::Logged {
            inode,
            ranges: alloc::vec![
                crate::LoggedRange { object_offset: 4096, bytes: b"abc".into() },
                crate::LoggedRange { object_offset: 8192, bytes: b"d".into() },
            ],
        }),
        Change::DirAttrs {
            inode,
            mode: 0o755,
            uid: 1,
            gid: 2,
            atime: time,
            mtime: Some((time, time)),
            ctime: time,
            parent: dir,
            version,
        },
        Change::Accessed { inode, atime: time },
        Change::Settled {
            inode,
            contents: Contents { size_bytes: 9, allocated_bytes: 4096, write_time: Some(time) },
        },
        Change::Client(ClientChange::SessionRemoved { session: SessionId(3) }),
        Change::Client(ClientChange::SessionAway { session: SessionId(4) }),
        Change::Client(ClientChange::Evicted { client: ClientUuid([5; 16]), boot_id: 7 }),
        Change::Client(ClientChange::VbrFailed { client: ClientUuid([6; 16]) }),
        Change::Client(ClientChange::EvictionOver { client: ClientUuid([5; 16]), boot_id: 7 }),
        Change::Client(ClientChange::Recovered),
        Change::Txn(TxnChange::Prepared { txn, part: Bytes(&[8, 2, 0, 0, 0, 0, 0, 0, 0]) }),
        Change::Txn(TxnChange::Decided { txn, shards: List::new(2, &[1, 0, 2, 0]) }),
        Change::Txn(TxnChange::Done { txn }),
        Change::Txn(TxnChange::Aborted { txn }),
        Change::Txn(TxnChange::Forgotten { txn }),
        Change::Export(ExportChange::Put(export())),
        Change::Export(ExportChange::Removed { name: Bytes(b"home") }),
    ]
}

pub(crate) fn export() -> wire::Export<'static> {
    wire::Export {
        id: 0x0102_0304_0506_0708,
        name: Bytes(b"home"),
        root: InodeNo(2),
        path: Bytes(b"/a"),
        read_only: true,
        squash: wire::Squash { ids: wire::SquashedIds::All, anon_uid: 1000, anon_gid: 100 },
        closed: false,
    }
}

pub(crate) fn session_record(lsn: u64, changes: &[u8]) -> Record<'_> {
    let mut pre_versions = PreVersions::new();
    pre_versions.push(Transno(3));
    pre_versions.push(Transno(4));
    Record {
        shard: ShardId::meta(5),
        lsn,
        term: Term(1),
        transno: Transno((1 << 32) + lsn),
        pre_versions,
        origin: Origin::Session {
            session: SessionId(0x1122_3344_5566_7788),
            slot: 2,
            xid: Xid(99),
            op: Op::Rename,
            status: Status::Ok,
            reply: b"reply",
            opened: Some(SessionRow {
                client: ClientUuid([0xC1; 16]),
                client_lane: LaneId(1),
                host_id: [0xA0; 16],
                host_boot_id: [0xB0; 16],
            }),
        },
        changes,
    }
}
