//! Every op code: the server's request, and the bytes of the reply.

use super::harness::{Harness, KernelReply, request, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::abi::{Opcode, size};
use alloc::vec;
use alloc::vec::Vec;
use interface::{BufId, Bulk, Event, KernelSlot, MountMessage, NO_MAC, PeerEvent};
use wire::{
    Access, Attr, Bytes, Created, Entry, FileKind, Getattr, Getxattr, Groups, HandleId, InodeNo,
    LaneId, Link, Lookup, Mkdir, Mknod, Op, OpenFor, Read, Rename, RenameHow, Renamed, SetTime,
    Setattr, Setxattr, Space, Status, Symlink, Target, Timestamp, Truncate, Value, Wire, Write,
    Written,
};

/// `fuse_attr` of [`attr`].
fn attr_bytes(attr: &Attr) -> Vec<u8> {
    let mut bytes = u64s(&[attr.inode.0, 12_345, 32, u64::MAX, 200, 300]);
    bytes.extend(u32s(&[9, 9, 9]));
    bytes.extend(u32s(&[attr.kind.mode_bits() | 0o640, 3, 1001, 1002, attr.rdev, 65_536, 0]));
    bytes
}

fn entry_bytes(attr: &Attr) -> Vec<u8> {
    let mut bytes = u64s(&[attr.inode.0, 0, 0, 0, 0]);
    bytes.extend(attr_bytes(attr));
    bytes
}

fn attr_out_bytes(attr: &Attr) -> Vec<u8> {
    let mut bytes = u64s(&[0, 0]);
    bytes.extend(attr_bytes(attr));
    bytes
}

fn open_bytes(handle: HandleId) -> Vec<u8> {
    let mut bytes = u64s(&[handle.0]);
    bytes.extend(u32s(&[1 | 1 << 6, 0]));
    bytes
}

fn ok(slot: u32, payload: Vec<u8>) -> KernelReply {
    KernelReply { slot: KernelSlot(slot), status: Status::Ok, payload, bulk: None }
}

fn with(mut head: Vec<u8>, tail: &[u8]) -> Vec<u8> {
    head.extend(tail);
    head
}

/// Sends a kernel request, checks the server's request, answers it with `body`.
fn exchange(opcode: Opcode, args: &[u8], op: Op, wanted: &[u8], body: &[u8]) -> KernelReply {
    let mut harness = Harness::new();
    harness.kernel_request(opcode, 7, DIRECTORY, args);
    let received = harness.take();
    assert_eq!(received.head.op, op);
    assert_eq!(received.body, wanted, "{opcode:?} asks {op:?}");
    assert!(harness.replies.is_empty());
    harness.answer(&received, body);
    harness.reply()
}

fn caller() -> wire::Caller<'static> {
    wire::Caller { uid: 1001, gid: 1002, groups: Groups::Unknown }
}

fn name(bytes: &[u8]) -> wire::Name<'_> {
    wire::Name::new(bytes).unwrap()
}

#[test]
fn statx_returns_the_time_of_birth() {
    let attr = attr(DIRECTORY, FileKind::CharDevice);
    let wanted = Getattr { inode: DIRECTORY }.to_bytes();
    let body = Entry { attr }.to_bytes();
    let args = [u32s(&[0, 0]), u64s(&[0]), u32s(&[0, 0xfff])].concat();
    let reply = exchange(Opcode::Statx, &args, Op::Getattr, &wanted, &body);
    assert_eq!((reply.status, reply.payload.len()), (Status::Ok, size::STATX_OUT));
    let u32_at = |at: usize| u32::from_ne_bytes(reply.payload[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_ne_bytes(reply.payload[at..at + 8].try_into().unwrap());
    assert_eq!(u32_at(32), 0xfff, "the basic fields and the birth");
    assert_eq!([48, 52, 56].map(u32_at), [attr.nlink, attr.uid, attr.gid]);
    assert_eq!(reply.payload[60..62], 0o020_640_u16.to_ne_bytes());
    assert_eq!([64, 72, 80].map(u64_at), [DIRECTORY.0, 12_345, 32]);
    for (at, time) in [(96, attr.atime), (112, attr.birth), (128, attr.ctime), (144, attr.mtime)] {
        assert_eq!((u64_at(at).cast_signed(), u32_at(at + 8)), (time.secs, time.nanos), "{at}");
    }
    assert_eq!([160, 164].map(u32_at), [0x32, 0x103], "major and minor");
}

#[test]
fn a_removed_directory_has_no_names() {
    let mut harness = Harness::new();
    for (opcode, args, status) in [
        (Opcode::Lookup, &b"a\0"[..], Status::NotFound),
        (Opcode::Unlink, b"a\0", Status::NotFound),
        (Opcode::Getattr, b"", Status::Stale),
    ] {
        harness.kernel_request(opcode, 7, DIRECTORY, args);
        let received = harness.take();
        harness.fail(&received, Status::Stale);
        assert_eq!(harness.status(), status, "{opcode:?}");
    }
}

#[test]
fn names_become_entries() {
    let file = attr(FILE, FileKind::File);
    let body = Entry { attr: file }.to_bytes();
    let (caller, parent) = (caller(), DIRECTORY);

    let wanted = Lookup { caller, parent, name: name(b"a") }.to_bytes();
    let reply = exchange(Opcode::Lookup, b"a\0", Op::Lookup, &wanted, &body);
    assert_eq!(reply, ok(7, entry_bytes(&file)));

    let wanted = Mkdir { caller, parent, name: name(b"d"), mode: 0o1777, umask: 0o22 }.to_bytes();
    let args = with(u32s(&[0o041_777, 0o22]), b"d\0");
    let reply = exchange(Opcode::Mkdir, &args, Op::Mkdir, &wanted, &body);
    assert_eq!(reply, ok(7, entry_bytes(&file)));

    let request = Symlink { caller, parent, name: name(b"s"), target: Bytes(b"../t") };
    let reply = exchange(Opcode::Symlink, b"s\0../t\0", Op::Symlink, &request.to_bytes(), &body);
    assert_eq!(reply, ok(7, entry_bytes(&file)));

    let wanted = Link { caller, inode: FILE, parent, name: name(b"l") }.to_bytes();
    let args = with(u64s(&[FILE.0]), b"l\0");
    let reply = exchange(Opcode::Link, &args, Op::Link, &wanted, &body);
    assert_eq!(reply, ok(7, entry_bytes(&file)));

    let wanted = wire::Create {
        caller,
        parent,
        name: name(b"n"),
        mode: 0o666,
        umask: 0o77,
        exclusive: true,
        handle: None,
        behind: None,
    };
    let args = with(u32s(&[0o100_666, 0, 0o77, 0]), b"n\0");
    let created = Created { attr: file, made: true }.to_bytes();
    let reply = exchange(Opcode::Mknod, &args, Op::Create, &wanted.to_bytes(), &created);
    assert_eq!(reply, ok(7, entry_bytes(&file)));

    let (name, kind, mode, umask, rdev) = (name(b"c"), FileKind::CharDevice, 0o666, 0o22, 0x0103);
    let wanted = Mknod { caller, parent, name, kind, mode, umask, rdev }.to_bytes();
    let args = with(u32s(&[0o020_666, 0x0103, 0o22, 0]), b"c\0");
    let reply = exchange(Opcode::Mknod, &args, Op::Mknod, &wanted, &body);
    assert_eq!(reply, ok(7, entry_bytes(&file)));
}

#[test]
fn names_are_removed_and_moved() {
    let (caller, parent) = (caller(), DIRECTORY);
    let wanted = wire::Unlink { caller, parent, name: name(b"a"), behind: None }.to_bytes();
    let reply = exchange(Opcode::Unlink, b"a\0", Op::Unlink, &wanted, &[]);
    assert_eq!(reply, ok(7, vec![]));

    let wanted = wire::Rmdir { caller, parent, name: name(b"a") }.to_bytes();
    let reply = exchange(Opcode::Rmdir, b"a\0", Op::Rmdir, &wanted, &[]);
    assert_eq!(reply, ok(7, vec![]));

    let mut rename = Rename {
        caller,
        parent,
        name: name(b"old"),
        new_parent: InodeNo::ROOT,
        new_name: name(b"new"),
        how: RenameHow::Replace,
    };
    let body = Renamed { moved: None, exchanged: None }.to_bytes();
    let args = with(u64s(&[1]), b"old\0new\0");
    let reply = exchange(Opcode::Rename, &args, Op::Rename, &rename.to_bytes(), &body);
    assert_eq!(reply, ok(7, vec![]));
    for (flags, how) in [(1, RenameHow::NoReplace), (2, RenameHow::Exchange)] {
        rename.how = how;
        let args = with(u64s(&[1, flags]), b"old\0new\0");
        let reply = exchange(Opcode::Rename2, &args, Op::Rename, &rename.to_bytes(), &body);
        assert_eq!(reply, ok(7, vec![]));
    }
}

#[test]
fn attributes_and_links_are_read() {
    let directory = attr(DIRECTORY, FileKind::Directory);
    let body = Entry { attr: directory }.to_bytes();
    let wanted = Getattr { inode: DIRECTORY }.to_bytes();
    let reply = exchange(Opcode::Getattr, &u64s(&[0, 0]), Op::Getattr, &wanted, &body);
    assert_eq!(reply, ok(7, attr_out_bytes(&directory)));

    let body = Target { target: Bytes(b"/else/where") }.to_bytes();
    let reply = exchange(Opcode::Readlink, &[], Op::Readlink, &wanted, &body);
    assert_eq!(reply, ok(7, b"/else/where".to_vec()));

    let request = Access { caller: caller(), inode: DIRECTORY, mask: 3 }.to_bytes();
    let reply = exchange(Opcode::Access, &u32s(&[3, 0]), Op::Access, &request, &[]);
    assert_eq!(reply, ok(7, vec![]));

    let space = Space {
        total_bytes: 409_600,
        free_bytes: 40_960,
        available_bytes: 8_192,
        inode_count: 10,
        inode_free_count: 90,
        lane_count: 1,
    };
    let wanted = wire::Statfs { inode: InodeNo::ROOT }.to_bytes();
    let reply = exchange(Opcode::Statfs, &[], Op::Statfs, &wanted, &space.to_bytes());
    let mut payload = u64s(&[100, 10, 2, 100, 90]);
    payload.extend(u32s(&[4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(reply, ok(7, payload));
}

/// `fuse_setattr_in`.
pub(super) fn setattr_args(valid: u32, size_bytes: u64, mode: u32) -> Vec<u8> {
    let mut args = u32s(&[valid, 0]);
    args.extend(u64s(&[0, size_bytes, 0, 10, 20, 30]));
    args.extend(u32s(&[1, 2, 3, mode, 0, 55, 66, 0]));
    args
}

#[test]
fn setattr_sets_the_named_attributes() {
    let file = attr(FILE, FileKind::File);
    let body = Entry { attr: file }.to_bytes();
    let nothing = Setattr {
        caller: caller(),
        inode: DIRECTORY,
        mode: None,
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        clears: wire::ClearPrivileges::Nothing,
    };
    let at = |secs, nanos| SetTime::At(Timestamp { secs, nanos });
    let cases = [
        (1, Setattr { mode: Some(0o7644), ..nothing }),
        (2, Setattr { uid: Some(55), ..nothing }),
        (4, Setattr { gid: Some(66), ..nothing }),
        (16, Setattr { atime: at(10, 1), ..nothing }),
        (32, Setattr { mtime: at(20, 2), ..nothing }),
        (16 | 128, Setattr { atime: SetTime::Now, ..nothing }),
        (32 | 256 | 1024, Setattr { mtime: SetTime::Now, ..nothing }),
    ];
    for (valid, wanted) in cases {
        let args = setattr_args(valid, 0, 0o107_644);
        let reply = exchange(Opcode::Setattr, &args, Op::Setattr, &wanted.to_bytes(), &body);
        assert_eq!(reply, ok(7, attr_out_bytes(&file)));
    }
    let wanted = Getattr { inode: DIRECTORY }.to_bytes();
    let reply = exchange(Opcode::Setattr, &setattr_args(64, 0, 0), Op::Getattr, &wanted, &body);
    assert_eq!(reply, ok(7, attr_out_bytes(&file)), "no attribute is named");
}

/// What a data shard says of a file's size.
pub(super) fn glimpsed() -> Vec<u8> {
    let contents = wire::Contents { size_bytes: 99, allocated_bytes: 512, write_time: None };
    wire::Glimpsed { contents }.to_bytes()
}

#[test]
fn setattr_sets_the_size_first_and_then_the_rest() {
    let file = attr(FILE, FileKind::File);
    let mut harness = Harness::with_open(&[FILE]);
    harness.kernel_request(Opcode::Setattr, 7, FILE, &setattr_args(8 | 64 | 1, 99, 0o600));
    let truncate = harness.take();
    let wanted = Truncate { inode: FILE, size_bytes: 99 }.to_bytes();
    assert_eq!((truncate.head.op, &truncate.body), (Op::Truncate, &wanted));
    harness.answer(&truncate, &[]);
    let (getattr, glimpse) = (harness.take(), harness.take());
    harness.answer(&getattr, &Entry { attr: file }.to_bytes());
    harness.answer(&glimpse, &glimpsed());
    assert!(harness.replies.is_empty());
    let setattr = harness.take();
    assert_eq!(Setattr::decode_all(&setattr.body).unwrap().mode, Some(0o600));
    harness.answer(&setattr, &Entry { attr: file }.to_bytes());
    assert_eq!(harness.reply(), ok(7, attr_out_bytes(&file)));
}

#[test]
fn a_size_that_needs_groups_is_still_set() {
    let file = attr(FILE, FileKind::File);
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Setattr, 7, FILE, &setattr_args(8 | 1, 99, 0o600));
    let open = harness.take();
    assert_eq!(open.head.op, Op::Open);
    harness.fail(&open, Status::NeedGroups);
    harness.groups(Some(&[5]));
    let ops = [Op::Open, Op::Truncate, Op::Close, Op::Getattr, Op::Glimpse, Op::Setattr];
    for op in ops {
        let received = harness.take();
        assert_eq!(received.head.op, op);
        let body = match op {
            Op::Truncate | Op::Close => vec![],
            Op::Glimpse => glimpsed(),
            _ => Entry { attr: file }.to_bytes(),
        };
        harness.answer(&received, &body);
    }
    assert_eq!(harness.reply(), ok(7, attr_out_bytes(&file)));
}

#[test]
fn files_are_opened_read_written_and_closed() {
    let file = attr(FILE, FileKind::File);
    let mut harness = Harness::new();
    // O_RDWR
    harness.kernel_request(Opcode::Open, 1, FILE, &u32s(&[2, 0]));
    let received = harness.take();
    let open = wire::Open::decode_all(&received.body).unwrap();
    assert_eq!(open.handle.open_for, OpenFor::ReadWrite);
    harness.answer(&received, &Entry { attr: file }.to_bytes());
    assert_eq!(harness.reply(), ok(1, open_bytes(open.handle.id)));
    let handle = open.handle.id;

    let args = [u64s(&[handle.0, 500]), u32s(&[5 << 20, 0]), u64s(&[0, 0])].concat();
    harness.kernel_request(Opcode::Read, 2, FILE, &args);
    let received = harness.take();
    let wanted = Read { inode: FILE, file_offset: 500, read_bytes: 1 << 20, accesses: true };
    assert_eq!(Read::decode_all(&received.body), Ok(wanted));
    let bulk = Bulk { buf: BufId(8), start: 3, bulk_bytes: 10, crc32c: Some(1), mac: NO_MAC };
    harness.send(&received, Status::Ok, &[], Some(bulk));
    let reply = harness.reply();
    assert_eq!((reply.status, reply.bulk), (Status::Ok, Some(bulk)));
    assert_eq!(harness.released, [BufId(8)]);

    let data = Bulk { buf: BufId(9), start: 0, bulk_bytes: 100, crc32c: Some(2), mac: NO_MAC };
    for (flags, write_flags, append) in [(0, 0, false), (0o2000, 0, true), (0o2000, 1, false)] {
        let args = [u64s(&[handle.0, 600]), u32s(&[100, write_flags]), u64s(&[0])].concat();
        let args = with(args, &u32s(&[flags, 0]));
        let bytes = request(Opcode::Write as u32, 3, FILE, &args);
        harness.kernel_bytes(Some(3), bytes, Some(data));
        let received = harness.take();
        // The kernel did not forbid the writer to retain set-id bits; the second is of a mapping.
        let clears = if write_flags == 0 {
            wire::ClearPrivileges::Capability
        } else {
            wire::ClearPrivileges::Nothing
        };
        let wanted = Write { inode: FILE, file_offset: 600, append, clears };
        assert_eq!(Write::decode_all(&received.body), Ok(wanted));
        assert_eq!(received.bulk, Some(data));
        let written = Written { file_offset: 600, written_bytes: 100 };
        harness.answer(&received, &written.to_bytes());
        assert_eq!(harness.reply(), ok(3, u32s(&[100, 0])));
    }
    assert_eq!(harness.released, [BufId(8)], "the kernel's buffer needs no release");

    harness.kernel_request(Opcode::Flush, 4, FILE, &u64s(&[handle.0, 0, 0]));
    assert_eq!(harness.reply(), ok(4, vec![]), "close is answered at once");
    harness.kernel_request(Opcode::Release, 5, FILE, &u64s(&[handle.0, 0, 0]));
    assert_eq!(harness.reply(), ok(5, vec![]), "answered before the server's reply");
    assert_eq!(harness.take().head.op, Op::Close);
}

#[test]
fn fsync_waits_for_every_shard_of_the_file() {
    for (opcode, shard_count) in [(Opcode::Fsync, 2), (Opcode::Fsyncdir, 1)] {
        let mut harness = Harness::new();
        harness.kernel_request(opcode, 4, FILE, &u64s(&[1, 0]));
        for _ in 0..shard_count {
            assert!(harness.replies.is_empty());
            let received = harness.take();
            assert_eq!(received.head.op, Op::Sync);
            harness.answer(&received, &[]);
        }
        assert_eq!(harness.reply(), ok(4, vec![]));
    }
}

/// A peer lane lost a change of a file that another peer lane has opened.
#[test]
fn fsync_asks_the_lane_that_opened_the_file_whether_the_loss_was_reported() {
    let mut harness = Harness::new();
    let handle = HandleId(2 << 48 | 9);
    harness.event(Event::Peer(PeerEvent::Message {
        from: LaneId(1),
        message: MountMessage::Lost { inode: FILE },
    }));
    for lost in [true, false] {
        harness.kernel_request(Opcode::Fsync, 4, FILE, &u64s(&[handle.0, 0]));
        for _ in 0..2 {
            let received = harness.take();
            harness.answer(&received, &[]);
        }
        assert!(harness.replies.is_empty());
        let Some((LaneId(2), MountMessage::QueryLoss { handle: of, job })) =
            harness.peer_messages.pop()
        else {
            panic!()
        };
        assert_eq!(of, handle);
        harness.event(Event::Peer(PeerEvent::Message {
            from: LaneId(2),
            message: MountMessage::LossReply { job, lost },
        }));
        let expected = if lost { (4, Status::Io) } else { (4, Status::Ok) };
        let reply = harness.reply();
        assert_eq!((reply.slot.0, reply.status), expected);
    }
}

#[test]
fn a_write_to_a_synchronous_file_is_durable_when_answered() {
    let mut harness = Harness::with_open(&[FILE]);
    let data = Bulk { buf: BufId(9), start: 0, bulk_bytes: 100, crc32c: Some(2), mac: NO_MAC };
    // O_DSYNC, O_SYNC, and a page of a mapping.
    for (flags, write_flags, sent) in [(0o10_000, 0, 8), (0o4_010_000, 0, 8), (0o10_000, 1, 32)] {
        let args = [u64s(&[1, 600]), u32s(&[100, write_flags]), u64s(&[0])].concat();
        let args = with(args, &u32s(&[flags, 0]));
        harness.kernel_bytes(Some(3), request(Opcode::Write as u32, 3, FILE, &args), Some(data));
        let received = harness.take();
        assert_eq!(received.head.flags, sent);
        harness.answer(&received, &Written { file_offset: 600, written_bytes: 100 }.to_bytes());
        assert_eq!(harness.reply(), ok(3, u32s(&[100, 0])));
    }
}

#[test]
fn opening_for_execution_needs_only_that_permission() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Open, 1, FILE, &u32s(&[0o40, 0]));
    let open = harness.take();
    let open = wire::Open::decode_all(&open.body).unwrap();
    assert_eq!(open.handle.open_for, OpenFor::Execute);
}

#[test]
fn create_makes_and_opens() {
    let file = attr(FILE, FileKind::File);
    let mut harness = Harness::new();
    // O_WRONLY | O_EXCL
    let args = with(u32s(&[0o201, 0o100_666, 0o22, 0]), b"new\0");
    harness.kernel_request(Opcode::Create, 7, DIRECTORY, &args);
    let received = harness.take();
    let create = wire::Create::decode_all(&received.body).unwrap();
    assert!(create.exclusive && create.handle.unwrap().open_for == OpenFor::Write);
    assert_eq!((create.mode, create.umask), (0o666, 0o22));
    assert_eq!(create.name.bytes(), b"new");
    harness.answer(&received, &Created { attr: file, made: true }.to_bytes());
    let payload = with(entry_bytes(&file), &open_bytes(create.handle.unwrap().id));
    assert_eq!(harness.reply(), ok(7, payload));
}

#[test]
fn create_truncates_an_existing_file() {
    let file = attr(FILE, FileKind::File);
    let mut harness = Harness::new();
    // O_WRONLY | O_TRUNC
    let args = with(u32s(&[0o1001, 0o100_644, 0, 0]), b"old\0");
    harness.kernel_request(Opcode::Create, 7, DIRECTORY, &args);
    let received = harness.take();
    let create = wire::Create::decode_all(&received.body).unwrap();
    harness.answer(&received, &Created { attr: file, made: false }.to_bytes());
    let truncate = harness.take();
    let wanted = Truncate { inode: FILE, size_bytes: 0 };
    assert_eq!(Truncate::decode_all(&truncate.body), Ok(wanted));
    harness.answer(&truncate, &[]);
    let (getattr, glimpse) = (harness.take(), harness.take());
    harness.answer(&getattr, &Entry { attr: file }.to_bytes());
    harness.answer(&glimpse, &glimpsed());
    let payload = with(entry_bytes(&file), &open_bytes(create.handle.unwrap().id));
    assert_eq!(harness.reply(), ok(7, payload));
}

#[test]
fn extended_attributes() {
    let (caller, inode) = (caller(), DIRECTORY);
    let request =
        Setxattr { caller, inode, name: Bytes(b"user.a"), value: Bytes(b"xyz"), flags: 1 };
    let args = with(u32s(&[3, 1]), b"user.a\0xyz");
    let reply = exchange(Opcode::Setxattr, &args, Op::Setxattr, &request.to_bytes(), &[]);
    assert_eq!(reply, ok(7, vec![]));

    let request = Getxattr { caller, inode, name: Bytes(b"user.a") }.to_bytes();
    let reply = exchange(Opcode::Removexattr, b"user.a\0", Op::Removexattr, &request, &[]);
    assert_eq!(reply, ok(7, vec![]));

    let body = Value { value: Bytes(b"xyz") }.to_bytes();
    let get = |buffer_bytes: u32| {
        let args = with(u32s(&[buffer_bytes, 0]), b"user.a\0");
        exchange(Opcode::Getxattr, &args, Op::Getxattr, &request, &body)
    };
    assert_eq!(get(0), ok(7, u32s(&[3, 0])));
    assert_eq!(get(3), ok(7, b"xyz".to_vec()));
    assert_eq!(get(2).status, Status::Range);

    let request = wire::Listxattr { caller, inode }.to_bytes();
    let body = Value { value: Bytes(b"user.a\0user.b\0") }.to_bytes();
    let list = |buffer_bytes: u32| {
        exchange(Opcode::Listxattr, &u32s(&[buffer_bytes, 0]), Op::Listxattr, &request, &body)
    };
    assert_eq!(list(0), ok(7, u32s(&[14, 0])));
    assert_eq!(list(100), ok(7, b"user.a\0user.b\0".to_vec()));
    assert_eq!(list(13).status, Status::Range);
}

#[test]
fn directories_are_opened_for_reading_and_closed() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Opendir, 6, DIRECTORY, &u32s(&[0, 0]));
    let received = harness.take();
    let open = wire::Open::decode_all(&received.body).unwrap();
    assert_eq!(open.handle.open_for, OpenFor::Read);
    harness.answer(&received, &Entry { attr: attr(DIRECTORY, FileKind::Directory) }.to_bytes());
    assert_eq!(harness.reply(), ok(6, u64s(&[open.handle.id.0, 0])));
    harness.kernel_request(Opcode::Releasedir, 7, DIRECTORY, &u64s(&[open.handle.id.0, 0, 0]));
    assert_eq!(harness.reply(), ok(7, vec![]), "answered before the server's reply");
    assert_eq!(harness.take().head.op, Op::Close);
    harness.kernel_request(Opcode::Opendir, 8, DIRECTORY, &u32s(&[0, 0]));
    let received = harness.take();
    harness.fail(&received, Status::Access);
    assert_eq!(harness.status(), Status::Access);
    harness.kernel_request(Opcode::Destroy, 9, DIRECTORY, &[]);
    assert_eq!(harness.reply(), ok(9, vec![]));
}

#[test]
fn invalid_requests_are_refused_by_the_lane() {
    let cases: [(Opcode, Vec<u8>, Status); 12] = [
        (Opcode::Lookup, b"..\0".to_vec(), Status::Invalid),
        (Opcode::Lookup, b"no end".to_vec(), Status::Invalid),
        (Opcode::Lookup, with(vec![b'x'; 256], b"\0"), Status::NameTooLong),
        (Opcode::Mknod, with(u32s(&[0o170_644, 0, 0, 0]), b"none\0"), Status::Invalid),
        (Opcode::Rename2, with(u64s(&[1, 3]), b"a\0b\0"), Status::Invalid),
        (Opcode::Rename2, with(u64s(&[1, 8]), b"a\0b\0"), Status::Invalid),
        (Opcode::Setattr, setattr_args(8, 1 << 63, 0), Status::TooLarge),
        (Opcode::Read, u64s(&[0, 1 << 63, 0, 0, 0]), Status::Invalid),
        (Opcode::Write, u64s(&[0, 0, 100, 0, 0]), Status::Io),
        (Opcode::Access, u32s(&[8, 0]), Status::Invalid),
        (Opcode::Setxattr, with(u32s(&[4, 0]), b"user.a\0xyz"), Status::Invalid),
        (Opcode::Getattr, vec![], Status::Ok),
    ];
    for (opcode, args, status) in cases {
        let mut harness = Harness::new();
        harness.kernel_request(opcode, 7, FILE, &args);
        if status == Status::Ok {
            assert_eq!(harness.requests.len(), 1, "GETATTR needs no arguments");
            continue;
        }
        assert_eq!(harness.status(), status, "{opcode:?}");
        assert!(harness.requests.is_empty());
    }
    let mut harness = Harness::new();
    // BMAP, IOCTL, POLL, COPY_FILE_RANGE_64, nonsense.
    for opcode in [37, 39, 40, 53, 0, 9999] {
        harness.kernel_bytes(Some(7), request(opcode, 7, FILE, &[0; 64]), None);
        assert_eq!(harness.status(), Status::NotImplemented);
    }
    harness.kernel_bytes(Some(7), vec![1, 2, 3], None);
    assert_eq!(harness.status(), Status::Invalid, "shorter than a header");
}

#[test]
fn statuses_of_our_own_are_no_errno() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Getattr, 7, FILE, &[]);
    for _ in 0..=8 {
        let received = harness.take();
        harness.fail(&received, Status::WrongLane);
    }
    assert_eq!(harness.status(), Status::Io);
}
