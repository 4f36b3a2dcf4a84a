//! fallocate, lseek, copy_file_range, syncfs.

use super::FILE;
use super::harness::{Harness, KernelReply, ReceivedRequest, request, u32s, u64s};
use crate::abi::Opcode;
use alloc::vec::Vec;
use interface::{BufId, Bulk, KernelSlot, NO_MAC};
use wire::{Allocate, Allocation, InodeNo, Op, Read, Seek, Sought, Status, Wire, Write, Written};

const OTHER: InodeNo = InodeNo(FILE.0 + 1);

fn ok(slot: u32, payload: Vec<u8>) -> KernelReply {
    KernelReply { slot: KernelSlot(slot), status: Status::Ok, payload, bulk: None }
}

fn send_request(harness: &mut Harness, opcode: Opcode, args: &[u8]) {
    harness.kernel_bytes(Some(7), request(opcode as u32, 7, FILE, args), None);
}

fn fallocate_args(offset: u64, length: u64, mode: u32) -> Vec<u8> {
    [u64s(&[9, offset, length]), u32s(&[mode, 0])].concat()
}

#[test]
fn ranges_are_allocated_according_to_the_mode() {
    let (inode, file_offset, range_bytes) = (FILE, 5, 7);
    for (mode, allocation, keep_size) in [
        (0, Allocation::Reserve, false),
        (1, Allocation::Reserve, true),
        (3, Allocation::Punch, true),
        (16, Allocation::Zero, false),
        (17, Allocation::Zero, true),
    ] {
        let mut harness = Harness::with_open(&[FILE]);
        send_request(&mut harness, Opcode::Fallocate, &fallocate_args(5, 7, mode));
        let received = harness.take();
        let clears = wire::ClearPrivileges::All;
        let wanted = Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
        assert_eq!(received.head.op, Op::Allocate);
        assert_eq!(Allocate::decode_all(&received.body), Ok(wanted));
        harness.answer(&received, &[]);
        assert_eq!(harness.reply(), ok(7, Vec::new()));
    }
    // Without KEEP_SIZE, or modes that move bytes.
    for mode in [2, 8, 9, 18, 19, 32, 64, 128] {
        let mut harness = Harness::with_open(&[FILE]);
        send_request(&mut harness, Opcode::Fallocate, &fallocate_args(5, 7, mode));
        assert_eq!(harness.status(), Status::NotSupported, "{mode}");
    }
}

#[test]
fn an_allocation_clears_set_id_bits_first() {
    // A handle of a file that was opened with set-id bits.
    let args = [u64s(&[9 | 1 << 63, 5, 7]), u32s(&[0, 0])].concat();
    let mut harness = Harness::with_open(&[FILE]);
    send_request(&mut harness, Opcode::Fallocate, &args);
    let received = harness.take();
    assert_eq!(received.head.op, Op::Setattr);
    let setattr = wire::Setattr::decode_all(&received.body).unwrap();
    assert_eq!((setattr.inode, setattr.clears), (FILE, wire::ClearPrivileges::All));
    harness.answer(
        &received,
        &wire::Entry { attr: super::attr(FILE, wire::FileKind::File) }.to_bytes(),
    );
    assert_eq!(harness.take().head.op, Op::Allocate);
}

/// The server refuses a change because the file has privileges; it is sent again after they are
/// cleared.
fn refused_once(
    harness: &mut Harness,
    inode: wire::InodeNo,
    refused: &ReceivedRequest,
) -> ReceivedRequest {
    harness.fail(refused, Status::NeedClearPrivileges);
    let received = harness.take();
    assert_eq!(received.head.op, Op::Setattr);
    let setattr = wire::Setattr::decode_all(&received.body).unwrap();
    assert_eq!((setattr.inode, setattr.clears), (inode, wire::ClearPrivileges::All));
    harness.answer(
        &received,
        &wire::Entry { attr: super::attr(inode, wire::FileKind::File) }.to_bytes(),
    );
    harness.take()
}

#[test]
fn a_refused_change_clears_set_id_bits_and_is_sent_again() {
    let mut harness = Harness::with_open(&[FILE, OTHER]);
    send_request(&mut harness, Opcode::Fallocate, &fallocate_args(5, 7, 0));
    let received = harness.take();
    let again = refused_once(&mut harness, FILE, &received);
    assert_eq!(Allocate::decode_all(&again.body).unwrap().clears, wire::ClearPrivileges::Nothing);
    harness.answer(&again, &[]);
    assert_eq!(harness.reply(), ok(7, Vec::new()));

    let mut harness = Harness::with_open(&[FILE, OTHER]);
    let read = copy(&mut harness, 100);
    harness.send(&read, Status::Ok, &[], Some(bulk(Some(77))));
    let write = harness.take();
    let read = refused_once(&mut harness, OTHER, &write);
    assert_eq!((read.head.op, &harness.released[..]), (Op::Read, &[BufId(8)][..]));
    harness.send(&read, Status::Ok, &[], Some(bulk(Some(77))));
    let write = harness.take();
    assert_eq!(Write::decode_all(&write.body).unwrap().clears, wire::ClearPrivileges::Nothing);
    harness.answer(&write, &Written { file_offset: 70, written_bytes: 100 }.to_bytes());
    assert_eq!(harness.reply(), ok(7, u32s(&[100, 0])));

    // `fuse_write_in` with FUSE_WRITE_KILL_SUIDGID.
    let args = [u64s(&[9, 600]), u32s(&[100, 4]), u64s(&[0]), u32s(&[0, 0])].concat();
    let mut harness = Harness::with_open(&[FILE, OTHER]);
    let data = bulk(Some(2));
    harness.kernel_bytes(Some(3), request(Opcode::Write as u32, 7, FILE, &args), Some(data));
    let write = harness.take();
    assert_eq!(Write::decode_all(&write.body).unwrap().clears, wire::ClearPrivileges::All);
    let again = refused_once(&mut harness, FILE, &write);
    let wanted = Write {
        inode: FILE,
        file_offset: 600,
        append: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    assert_eq!((Write::decode_all(&again.body), again.bulk), (Ok(wanted), Some(data)));
}

#[test]
fn data_and_holes_are_looked_for() {
    for (whence, hole) in [(3, false), (4, true)] {
        let mut harness = Harness::new();
        send_request(&mut harness, Opcode::Lseek, &[u64s(&[9, 5]), u32s(&[whence, 0])].concat());
        let received = harness.take();
        let wanted = Seek { inode: FILE, file_offset: 5, hole };
        assert_eq!(Seek::decode_all(&received.body), Ok(wanted));
        harness.answer(&received, &Sought { file_offset: 4096 }.to_bytes());
        assert_eq!(harness.reply(), ok(7, u64s(&[4096])));
    }
    let mut harness = Harness::new();
    send_request(&mut harness, Opcode::Lseek, &[u64s(&[9, 5]), u32s(&[2, 0])].concat());
    assert_eq!(harness.status(), Status::Invalid, "the kernel implements it");
}

fn copy(harness: &mut Harness, length: u64) -> ReceivedRequest {
    send_request(harness, Opcode::CopyFileRange, &u64s(&[9, 50, OTHER.0, 10, 70, length, 0]));
    let received = harness.take();
    let read_bytes = u32::try_from(length.min(1 << 20)).unwrap();
    let wanted = Read { inode: FILE, file_offset: 50, read_bytes, accesses: true };
    assert_eq!((received.head.op, Read::decode_all(&received.body)), (Op::Read, Ok(wanted)));
    received
}

fn bulk(crc32c: Option<u32>) -> Bulk {
    Bulk { buf: BufId(8), start: 0, bulk_bytes: 100, crc32c, mac: NO_MAC }
}

#[test]
fn a_copy_reads_and_writes() {
    let mut harness = Harness::with_open(&[FILE, OTHER]);
    let read = copy(&mut harness, 1 << 40);
    harness.send(&read, Status::Ok, &[], Some(bulk(Some(77))));
    let write = harness.take();
    let clears = wire::ClearPrivileges::All;
    let wanted = Write { inode: OTHER, file_offset: 70, append: false, clears };
    assert_eq!(Write::decode_all(&write.body), Ok(wanted));
    assert_eq!(write.bulk, Some(bulk(Some(77))));
    assert!(harness.released.is_empty(), "the write may have to be sent again");
    harness.answer(&write, &Written { file_offset: 70, written_bytes: 100 }.to_bytes());
    assert_eq!(harness.reply(), ok(7, u32s(&[100, 0])));
    assert_eq!(harness.released, [BufId(8)]);
}

#[test]
fn a_copy_that_fails_releases_its_bytes() {
    let mut harness = Harness::with_open(&[FILE, OTHER]);
    let read = copy(&mut harness, 100);
    harness.send(&read, Status::Ok, &[], Some(bulk(Some(77))));
    let write = harness.take();
    harness.fail(&write, Status::NoSpace);
    assert_eq!(harness.status(), Status::NoSpace);
    assert_eq!(harness.released, [BufId(8)]);

    let mut harness = Harness::with_open(&[FILE, OTHER]);
    let read = copy(&mut harness, 100);
    harness.send(&read, Status::Ok, &[], Some(bulk(None)));
    assert_eq!(harness.take().head.op, Op::Write, "the runtime adds the checksum");

    let mut harness = Harness::with_open(&[FILE, OTHER]);
    let read = copy(&mut harness, 100);
    harness.answer(&read, &[]);
    assert_eq!(harness.reply(), ok(7, u32s(&[0, 0])), "behind the end");
}

#[test]
fn syncfs_waits_for_every_shard() {
    let mut harness = Harness::new();
    send_request(&mut harness, Opcode::Getattr, &[]);
    let getattr = harness.take();
    harness.fail(&getattr, Status::NotFound);
    assert_eq!(harness.status(), Status::NotFound);
    send_request(&mut harness, Opcode::Syncfs, &u64s(&[0]));
    let shard_count = harness.requests.len();
    assert!(shard_count > 1, "{shard_count} shards");
    for _ in 0..shard_count {
        assert!(harness.replies.is_empty());
        let sync = harness.take();
        assert_eq!(sync.head.op, Op::Sync);
        harness.answer(&sync, &[]);
    }
    assert_eq!(harness.reply(), ok(7, Vec::new()));
}
