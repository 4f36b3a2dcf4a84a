//! What is asked of a file's contents beside reading and writing.

use super::FILE;
use super::rig::{Asked, Replied, Rig, request, u32s, u64s};
use crate::abi::Opcode;
use alloc::vec::Vec;
use interface::{BufId, Bulk, KernelSlot, NO_MAC};
use wire::{Allocate, Allocation, InodeNo, Op, Read, Seek, Sought, Status, Wire, Write, Written};

const OTHER: InodeNo = InodeNo(FILE.0 + 1);

fn ok(slot: u32, payload: Vec<u8>) -> Replied {
    Replied { slot: KernelSlot(slot), status: Status::Ok, payload, bulk: None }
}

fn ask(rig: &mut Rig, opcode: Opcode, args: &[u8]) {
    rig.ask_bytes(Some(7), request(opcode as u32, 7, FILE, args), None);
}

fn fallocate_args(offset: u64, length: u64, mode: u32) -> Vec<u8> {
    [u64s(&[9, offset, length]), u32s(&[mode, 0])].concat()
}

#[test]
fn ranges_are_allocated_as_the_mode_says() {
    let (inode, file_offset, range_bytes) = (FILE, 5, 7);
    for (mode, allocation, keep_size) in [
        (0, Allocation::Reserve, false),
        (1, Allocation::Reserve, true),
        (3, Allocation::Punch, true),
        (16, Allocation::Zero, false),
        (17, Allocation::Zero, true),
    ] {
        let mut rig = Rig::new();
        ask(&mut rig, Opcode::Fallocate, &fallocate_args(5, 7, mode));
        let asked = rig.take();
        let clears = wire::ClearPrivileges::All;
        let wanted = Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
        assert_eq!(asked.head.op, Op::Allocate);
        assert_eq!(Allocate::decode_all(&asked.body), Ok(wanted));
        rig.answer(&asked, &[]);
        assert_eq!(rig.reply(), ok(7, Vec::new()));
    }
    // Alone, or what moves bytes.
    for mode in [2, 8, 9, 18, 19, 32, 64, 128] {
        let mut rig = Rig::new();
        ask(&mut rig, Opcode::Fallocate, &fallocate_args(5, 7, mode));
        assert_eq!(rig.status(), Status::NotSupported, "{mode}");
    }
}

#[test]
fn an_allocation_takes_set_id_bits_away_first() {
    // A handle of a file that was opened with set-id bits.
    let args = [u64s(&[9 | 1 << 63, 5, 7]), u32s(&[0, 0])].concat();
    let mut rig = Rig::new();
    ask(&mut rig, Opcode::Fallocate, &args);
    let asked = rig.take();
    assert_eq!(asked.head.op, Op::Setattr);
    let setattr = wire::Setattr::decode_all(&asked.body).unwrap();
    assert_eq!((setattr.inode, setattr.clears), (FILE, wire::ClearPrivileges::All));
    rig.answer(&asked, &wire::Entry { attr: super::attr(FILE, wire::FileKind::File) }.to_bytes());
    assert_eq!(rig.take().head.op, Op::Allocate);
}

/// What was refused because the file gives something is asked for again when that is gone.
fn refused_once(rig: &mut Rig, inode: wire::InodeNo, refused: &Asked) -> Asked {
    rig.fail(refused, Status::NeedClearPrivileges);
    let asked = rig.take();
    assert_eq!(asked.head.op, Op::Setattr);
    let setattr = wire::Setattr::decode_all(&asked.body).unwrap();
    assert_eq!((setattr.inode, setattr.clears), (inode, wire::ClearPrivileges::All));
    rig.answer(&asked, &wire::Entry { attr: super::attr(inode, wire::FileKind::File) }.to_bytes());
    rig.take()
}

#[test]
fn what_is_refused_takes_set_id_bits_away_and_comes_again() {
    let mut rig = Rig::new();
    ask(&mut rig, Opcode::Fallocate, &fallocate_args(5, 7, 0));
    let asked = rig.take();
    let again = refused_once(&mut rig, FILE, &asked);
    assert_eq!(Allocate::decode_all(&again.body).unwrap().clears, wire::ClearPrivileges::Nothing);
    rig.answer(&again, &[]);
    assert_eq!(rig.reply(), ok(7, Vec::new()));

    let mut rig = Rig::new();
    let read = copy(&mut rig, 100);
    rig.send(&read, Status::Ok, &[], Some(bulk(Some(77))));
    let write = rig.take();
    let read = refused_once(&mut rig, OTHER, &write);
    assert_eq!((read.head.op, &rig.released[..]), (Op::Read, &[BufId(8)][..]));
    rig.send(&read, Status::Ok, &[], Some(bulk(Some(77))));
    let write = rig.take();
    assert_eq!(Write::decode_all(&write.body).unwrap().clears, wire::ClearPrivileges::Nothing);
    rig.answer(&write, &Written { file_offset: 70, written_bytes: 100 }.to_bytes());
    assert_eq!(rig.reply(), ok(7, u32s(&[100, 0])));

    // `fuse_write_in` with FUSE_WRITE_KILL_SUIDGID.
    let args = [u64s(&[9, 600]), u32s(&[100, 4]), u64s(&[0]), u32s(&[0, 0])].concat();
    let mut rig = Rig::new();
    let data = bulk(Some(2));
    rig.ask_bytes(Some(3), request(Opcode::Write as u32, 7, FILE, &args), Some(data));
    let write = rig.take();
    assert_eq!(Write::decode_all(&write.body).unwrap().clears, wire::ClearPrivileges::All);
    let again = refused_once(&mut rig, FILE, &write);
    let wanted = Write {
        inode: FILE,
        file_offset: 600,
        append: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    assert_eq!((Write::decode_all(&again.body), again.bulk), (Ok(wanted), Some(data)));
}

#[test]
fn places_are_looked_for() {
    for (whence, hole) in [(3, false), (4, true)] {
        let mut rig = Rig::new();
        ask(&mut rig, Opcode::Lseek, &[u64s(&[9, 5]), u32s(&[whence, 0])].concat());
        let asked = rig.take();
        let wanted = Seek { inode: FILE, file_offset: 5, hole };
        assert_eq!(Seek::decode_all(&asked.body), Ok(wanted));
        rig.answer(&asked, &Sought { file_offset: 4096 }.to_bytes());
        assert_eq!(rig.reply(), ok(7, u64s(&[4096])));
    }
    let mut rig = Rig::new();
    ask(&mut rig, Opcode::Lseek, &[u64s(&[9, 5]), u32s(&[2, 0])].concat());
    assert_eq!(rig.status(), Status::Invalid, "the kernel's own");
}

fn copy(rig: &mut Rig, length: u64) -> Asked {
    ask(rig, Opcode::CopyFileRange, &u64s(&[9, 50, OTHER.0, 10, 70, length, 0]));
    let asked = rig.take();
    let read_bytes = u32::try_from(length.min(1 << 20)).unwrap();
    let wanted = Read { inode: FILE, file_offset: 50, read_bytes, accesses: true };
    assert_eq!((asked.head.op, Read::decode_all(&asked.body)), (Op::Read, Ok(wanted)));
    asked
}

fn bulk(crc32c: Option<u32>) -> Bulk {
    Bulk { buf: BufId(8), start: 0, bulk_bytes: 100, crc32c, mac: NO_MAC }
}

#[test]
fn a_copy_reads_and_writes() {
    let mut rig = Rig::new();
    let read = copy(&mut rig, 1 << 40);
    rig.send(&read, Status::Ok, &[], Some(bulk(Some(77))));
    let write = rig.take();
    let clears = wire::ClearPrivileges::All;
    let wanted = Write { inode: OTHER, file_offset: 70, append: false, clears };
    assert_eq!(Write::decode_all(&write.body), Ok(wanted));
    assert_eq!(write.bulk, Some(bulk(Some(77))));
    assert!(rig.released.is_empty(), "it may have to be sent again");
    rig.answer(&write, &Written { file_offset: 70, written_bytes: 100 }.to_bytes());
    assert_eq!(rig.reply(), ok(7, u32s(&[100, 0])));
    assert_eq!(rig.released, [BufId(8)]);
}

#[test]
fn a_copy_that_fails_gives_its_bytes_back() {
    let mut rig = Rig::new();
    let read = copy(&mut rig, 100);
    rig.send(&read, Status::Ok, &[], Some(bulk(Some(77))));
    let write = rig.take();
    rig.fail(&write, Status::NoSpace);
    assert_eq!(rig.status(), Status::NoSpace);
    assert_eq!(rig.released, [BufId(8)]);

    let mut rig = Rig::new();
    let read = copy(&mut rig, 100);
    rig.send(&read, Status::Ok, &[], Some(bulk(None)));
    assert_eq!(rig.take().head.op, Op::Write, "who sends it sums it");

    let mut rig = Rig::new();
    let read = copy(&mut rig, 100);
    rig.answer(&read, &[]);
    assert_eq!(rig.reply(), ok(7, u32s(&[0, 0])), "behind the end");
}

#[test]
fn all_of_a_mount_is_durable_when_every_shard_says_so() {
    let mut rig = Rig::new();
    ask(&mut rig, Opcode::Getattr, &[]);
    let getattr = rig.take();
    rig.fail(&getattr, Status::NotFound);
    assert_eq!(rig.status(), Status::NotFound);
    ask(&mut rig, Opcode::Syncfs, &u64s(&[0]));
    let shard_count = rig.asked.len();
    assert!(shard_count > 1, "{shard_count} shards");
    for _ in 0..shard_count {
        assert!(rig.replied.is_empty());
        let sync = rig.take();
        assert_eq!(sync.head.op, Op::Sync);
        rig.answer(&sync, &[]);
    }
    assert_eq!(rig.reply(), ok(7, Vec::new()));
}
