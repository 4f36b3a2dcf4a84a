//! Locks on files: what the kernel asks, what the keeper and the server are asked, what the kernel
//! gets.

use super::FILE;
use super::rig::{Rig, u32s, u64s};
use crate::abi::Opcode;
use alloc::vec::Vec;
use interface::{Event, LaneMessage, LockRequest, PeerEvent};
use wire::{
    ByteRange, Grant, HandleId, InodeNo, LaneId, LockFound, LockKind, LockRow, LockSet, LockType,
    Op, SetLock, Status, Wire,
};

const READ: u32 = 0;
const WRITE: u32 = 1;
const UNLOCK: u32 = 2;

/// `fuse_lk_in` of owner 9 through handle 5.
fn lk_in((start, end): (u64, u64), lock_type: u32, flags: u32) -> Vec<u8> {
    let mut args = u64s(&[5, 9, start, end]);
    args.extend(u32s(&[lock_type, 1234, flags, 0]));
    args
}

/// A file that the rig's own lane keeps the locks of, or does not.
fn file_of(rig: &Rig, own: bool) -> InodeNo {
    let mut files = (1..).map(|count| InodeNo::new(2, count));
    let keeps = |inode: &InodeNo| rig.lane.client().keeper_of(*inode) == LaneId(0);
    files.find(|inode| keeps(inode) == own).unwrap()
}

fn granted(granted: bool) -> Vec<u8> {
    LockSet { granted, place: 1 }.to_bytes()
}

#[test]
fn a_lock_is_asked_of_the_server_as_the_kernel_asked_for_it() {
    let mut rig = Rig::new();
    let file = file_of(&rig, true);
    for (opcode, lock_type, flags, range, wait_id) in [
        (Opcode::Setlk, READ, 0, (10, 19), false),
        (Opcode::Setlkw, WRITE, 0, (0, (1 << 63) - 1), true),
        (Opcode::Setlk, WRITE, 1, (0, 0), false),
    ] {
        rig.ask(opcode, 7, file, &lk_in(range, lock_type, flags));
        let asked = rig.take();
        assert_eq!(asked.head.op, Op::SetLock);
        let found = SetLock::decode_all(&asked.body).unwrap();
        let kind = if flags == 1 { LockKind::Flock } else { LockKind::Posix };
        let lock = Some(if lock_type == READ { LockType::Read } else { LockType::Write });
        let whole = flags == 1;
        let range = if whole { ByteRange::ALL } else { ByteRange::new(range.0, range.1).unwrap() };
        assert_eq!(
            (found.kind, found.lock, found.range, found.owner, found.pid, found.wait_id > 0),
            (kind, lock, range, 9, 1234, wait_id)
        );
        rig.answer(&asked, &granted(true));
        let reply = rig.reply();
        assert_eq!((reply.status, reply.payload), (Status::Ok, Vec::new()));
    }
    rig.ask(Opcode::Setlk, 8, file, &lk_in((0, 5), WRITE, 0));
    let asked = rig.take();
    rig.fail(&asked, Status::Again);
    assert_eq!(rig.status(), Status::Again);
    for args in [lk_in((5, 4), WRITE, 0), lk_in((0, 1 << 63), READ, 0), lk_in((0, 1), 7, 0)] {
        rig.ask(Opcode::Setlk, 9, file, &args);
        assert_eq!(rig.status(), Status::Invalid);
    }
}

#[test]
fn a_wait_ends_with_its_grant_or_its_interrupt() {
    let mut rig = Rig::new();
    let file = file_of(&rig, true);
    for (unique, status) in [(1, Status::Ok), (2, Status::Deadlock)] {
        rig.ask(Opcode::Setlkw, unique, file, &lk_in((0, 5), WRITE, 0));
        let asked = rig.take();
        rig.answer(&asked, &granted(false));
        assert!(rig.replied.is_empty() && rig.asked.is_empty());
        let wait_id = SetLock::decode_all(&asked.body).unwrap().wait_id;
        rig.grant(&asked, Grant { inode: file, wait_id, status });
        assert_eq!(rig.status(), status);
    }
    rig.ask(Opcode::Setlkw, 3, file, &lk_in((0, 5), WRITE, 0));
    let asked = rig.take();
    rig.answer(&asked, &granted(false));
    rig.ask_bytes(None, super::rig::request(36, 4, InodeNo(0), &u64s(&[3])), None);
    let cancel = rig.take();
    assert_eq!(cancel.head.op, Op::CancelLock);
    assert!(rig.replied.is_empty(), "it may be granted just now");
    rig.answer(&cancel, &wire::LockCancelled { waited: true }.to_bytes());
    assert_eq!(rig.status(), Status::Interrupted);
}

#[test]
fn the_end_of_a_mount_ends_its_waits() {
    let mut rig = Rig::new();
    let file = file_of(&rig, true);
    rig.ask(Opcode::Setlkw, 3, file, &lk_in((0, 5), WRITE, 0));
    let asked = rig.take();
    rig.answer(&asked, &granted(false));
    rig.event(interface::Event::Stop);
    let cancel = rig.take();
    assert_eq!(cancel.head.op, Op::CancelLock);
    rig.answer(&cancel, &wire::LockCancelled { waited: true }.to_bytes());
    assert_eq!(rig.status(), Status::Interrupted);
    assert_eq!(rig.stopped_count, 1);
}

#[test]
fn who_is_in_the_way_is_answered_as_the_kernel_reads_it() {
    let mut rig = Rig::new();
    let rows = [
        (Some((LockType::Read, 12)), [10, 20], [READ, 12]),
        (Some((LockType::Write, 0)), [10, 20], [WRITE, 0]),
        (None, [0, (1 << 63) - 1], [UNLOCK, 0]),
    ];
    for (found, range, rest) in rows {
        rig.ask(Opcode::Getlk, 7, FILE, &lk_in((0, 99), WRITE, 0));
        let asked = rig.take();
        assert_eq!(asked.head.op, Op::GetLock);
        let range_of = || ByteRange::new(10, 20).unwrap();
        let found = found.map(|(lock, pid)| LockRow { lock, range: range_of(), pid });
        rig.answer(&asked, &LockFound { found }.to_bytes());
        let mut wanted = u64s(&range);
        wanted.extend(u32s(&rest));
        assert_eq!(rig.reply().payload, wanted);
    }
}

#[test]
fn a_close_asks_nobody_but_where_something_is_locked() {
    let mut rig = Rig::new();
    let (own, other) = (file_of(&rig, true), file_of(&rig, false));
    for file in [own, other] {
        rig.ask(Opcode::Flush, 7, file, &u64s(&[5, 0, 9]));
        assert_eq!(rig.status(), Status::Ok);
        assert!(rig.asked.is_empty() && rig.mails.is_empty());
    }
    rig.ask(Opcode::Setlk, 8, own, &lk_in((0, 5), WRITE, 0));
    let asked = rig.take();
    rig.answer(&asked, &granted(true));
    assert_eq!(rig.status(), Status::Ok);
    rig.ask(Opcode::Flush, 9, own, &u64s(&[5, 0, 8]));
    assert_eq!(rig.status(), Status::Ok, "another owner");
    rig.ask(Opcode::Flush, 10, own, &u64s(&[5, 0, 9]));
    let asked = rig.take();
    assert_eq!(SetLock::decode_all(&asked.body).unwrap().lock, None);
    assert!(rig.replied.is_empty(), "it is given up before the close returns");
    rig.answer(&asked, &granted(true));
    assert_eq!(rig.status(), Status::Ok);
    rig.ask(Opcode::Flush, 11, own, &u64s(&[5, 0, 9]));
    assert_eq!(rig.status(), Status::Ok, "nothing is left");
    // A peer lane that keeps another file's locks wants to hear of its closes.
    rig.mails.clear();
    let keeper = rig.lane.client().keeper_of(other);
    rig.event(Event::Peer(PeerEvent::Message {
        from: keeper,
        message: LaneMessage::LocksPresent { inode: other, present: true },
    }));
    assert_eq!(rig.mails, [(keeper, LaneMessage::LocksPresentSeen { inode: other })]);
    rig.ask(Opcode::Flush, 12, other, &u64s(&[5, 0, 9]));
    let (to, message) = rig.mails[1];
    let LaneMessage::Lock { job, request: ask } = message else { panic!("{message:?}") };
    assert_eq!((to, ask), (keeper, LockRequest::Flush { inode: other, owner: 9 }));
    rig.reply();
    rig.event(Event::Peer(PeerEvent::Message {
        from: keeper,
        message: LaneMessage::LockDone { job, result: Ok(()) },
    }));
    assert!(rig.replied.is_empty(), "once");
}

#[test]
fn the_last_close_gives_up_what_was_locked_through_it() {
    let mut rig = Rig::new();
    let (own, other) = (file_of(&rig, true), file_of(&rig, false));
    for flags in [0, 1] {
        rig.ask(Opcode::Setlk, 8, own, &lk_in((0, 5), WRITE, flags));
        let asked = rig.take();
        rig.answer(&asked, &granted(true));
        rig.reply();
    }
    rig.ask(Opcode::Release, 9, own, &u64s(&[6, 0, 0]));
    rig.reply();
    assert!(rig.asked.is_empty(), "another open file");
    rig.ask(Opcode::Release, 10, own, &u64s(&[5, 0, 0]));
    assert_eq!(rig.status(), Status::Ok, "nobody waits for it");
    let mut kinds = Vec::new();
    for asked in core::mem::take(&mut rig.asked) {
        let unlock = SetLock::decode_all(&asked.body).unwrap();
        assert_eq!((unlock.lock, unlock.owner), (None, 9));
        kinds.push(unlock.kind);
    }
    assert_eq!(kinds, [LockKind::Posix, LockKind::Flock]);
    let keeper = rig.lane.client().keeper_of(other);
    rig.event(Event::Peer(PeerEvent::Message {
        from: keeper,
        message: LaneMessage::LocksPresent { inode: other, present: true },
    }));
    rig.mails.clear();
    rig.ask(Opcode::Release, 11, other, &u64s(&[5, 0, 0]));
    let handle = HandleId(5);
    assert_eq!(rig.mails, [(keeper, LaneMessage::LockRelease { inode: other, handle })]);
}

#[test]
fn where_a_wait_keeps_a_place_some_are_left() {
    let mut rig = Rig::new();
    rig.lane.config.lock_wait_count_max = 2;
    let file = file_of(&rig, true);
    let mut waiting = Vec::new();
    for unique in [1, 2] {
        rig.ask(Opcode::Setlkw, unique, file, &lk_in((unique, unique), WRITE, 0));
        let asked = rig.take();
        rig.answer(&asked, &granted(false));
        waiting.push(asked);
    }
    rig.ask(Opcode::Setlkw, 3, file, &lk_in((3, 3), WRITE, 0));
    assert_eq!(rig.status(), Status::NoLocks);
    rig.ask(Opcode::Setlk, 4, file, &lk_in((4, 4), WRITE, 0));
    let asked = rig.take();
    rig.answer(&asked, &granted(true));
    assert_eq!(rig.status(), Status::Ok, "who does not wait gets through");
    let wait_id = SetLock::decode_all(&waiting[0].body).unwrap().wait_id;
    rig.grant(&waiting[0], Grant { inode: file, wait_id, status: Status::Ok });
    assert_eq!(rig.status(), Status::Ok);
    rig.ask(Opcode::Setlkw, 5, file, &lk_in((5, 5), WRITE, 0));
    assert_eq!(rig.asked.len(), 1);
}
