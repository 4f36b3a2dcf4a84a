//! Locks on files: the kernel's requests, the messages to the keeper and the server, the replies.

use super::FILE;
use super::harness::{Harness, u32s, u64s};
use crate::abi::Opcode;
use alloc::vec::Vec;
use interface::{Event, LockRequest, MountMessage, PeerEvent};
use wire::{
    ByteRange, Grant, HandleId, InodeNo, LaneId, LockFound, LockKind, LockRow, LockSet, LockType,
    Op, SetLock, Status, Wire,
};

const READ: u32 = 0;
pub(super) const WRITE: u32 = 1;
const UNLOCK: u32 = 2;

/// `fuse_lk_in` of owner 9 through handle 5.
pub(super) fn lk_in((start, end): (u64, u64), lock_type: u32, flags: u32) -> Vec<u8> {
    let mut args = u64s(&[5, 9, start, end]);
    args.extend(u32s(&[lock_type, 1234, flags, 0]));
    args
}

/// A file whose keeper is the harness's own lane, or another.
pub(super) fn file_of(harness: &Harness, own: bool) -> InodeNo {
    let mut files = (1..).map(|count| InodeNo::new(2, count));
    let keeps = |inode: &InodeNo| harness.lane.client().keeper_of(*inode) == LaneId(0);
    files.find(|inode| keeps(inode) == own).unwrap()
}

pub(super) fn granted(granted: bool) -> Vec<u8> {
    LockSet { granted, place: 1 }.to_bytes()
}

#[test]
fn a_lock_request_is_passed_to_the_server() {
    let mut harness = Harness::new();
    let file = file_of(&harness, true);
    for (opcode, lock_type, flags, range, wait_id) in [
        (Opcode::Setlk, READ, 0, (10, 19), false),
        (Opcode::Setlkw, WRITE, 0, (0, (1 << 63) - 1), true),
        (Opcode::Setlk, WRITE, 1, (0, 0), false),
    ] {
        harness.kernel_request(opcode, 7, file, &lk_in(range, lock_type, flags));
        let received = harness.take();
        assert_eq!(received.head.op, Op::SetLock);
        let found = SetLock::decode_all(&received.body).unwrap();
        let kind = if flags == 1 { LockKind::Flock } else { LockKind::Posix };
        let lock = Some(if lock_type == READ { LockType::Read } else { LockType::Write });
        let whole = flags == 1;
        let range = if whole { ByteRange::ALL } else { ByteRange::new(range.0, range.1).unwrap() };
        assert_eq!(
            (found.kind, found.lock, found.range, found.owner, found.pid, found.wait_id > 0),
            (kind, lock, range, 9, 1234, wait_id)
        );
        harness.answer(&received, &granted(true));
        let reply = harness.reply();
        assert_eq!((reply.status, reply.payload), (Status::Ok, Vec::new()));
    }
    harness.kernel_request(Opcode::Setlk, 8, file, &lk_in((0, 5), WRITE, 0));
    let received = harness.take();
    harness.fail(&received, Status::Again);
    assert_eq!(harness.status(), Status::Again);
    for args in [lk_in((5, 4), WRITE, 0), lk_in((0, 1 << 63), READ, 0), lk_in((0, 1), 7, 0)] {
        harness.kernel_request(Opcode::Setlk, 9, file, &args);
        assert_eq!(harness.status(), Status::Invalid);
    }
}

#[test]
fn a_wait_ends_with_its_grant_or_its_interrupt() {
    let mut harness = Harness::new();
    let file = file_of(&harness, true);
    for (unique, status) in [(1, Status::Ok), (2, Status::Deadlock)] {
        harness.kernel_request(Opcode::Setlkw, unique, file, &lk_in((0, 5), WRITE, 0));
        let received = harness.take();
        harness.answer(&received, &granted(false));
        assert!(harness.replies.is_empty() && harness.requests.is_empty());
        let wait_id = SetLock::decode_all(&received.body).unwrap().wait_id;
        harness.grant(&received, Grant { inode: file, wait_id, status });
        assert_eq!(harness.status(), status);
    }
    harness.kernel_request(Opcode::Setlkw, 3, file, &lk_in((0, 5), WRITE, 0));
    let received = harness.take();
    harness.answer(&received, &granted(false));
    harness.kernel_bytes(None, super::harness::request(36, 4, InodeNo(0), &u64s(&[3])), None);
    let cancel = harness.take();
    assert_eq!(cancel.head.op, Op::CancelLock);
    assert!(harness.replies.is_empty(), "it may just be granted");
    harness.answer(&cancel, &wire::LockCancelled { waited: true }.to_bytes());
    assert_eq!(harness.status(), Status::Interrupted);
}

#[test]
fn a_stop_ends_the_waits_for_locks() {
    let mut harness = Harness::new();
    let file = file_of(&harness, true);
    harness.kernel_request(Opcode::Setlkw, 3, file, &lk_in((0, 5), WRITE, 0));
    let received = harness.take();
    harness.answer(&received, &granted(false));
    harness.event(interface::Event::Stop);
    let cancel = harness.take();
    assert_eq!(cancel.head.op, Op::CancelLock);
    harness.answer(&cancel, &wire::LockCancelled { waited: true }.to_bytes());
    assert_eq!(harness.status(), Status::Interrupted);
    assert_eq!(harness.stopped_count, 1);
}

#[test]
fn a_conflicting_lock_is_encoded_for_the_kernel() {
    let mut harness = Harness::new();
    let rows = [
        (Some((LockType::Read, 12)), [10, 20], [READ, 12]),
        (Some((LockType::Write, 0)), [10, 20], [WRITE, 0]),
        (None, [0, (1 << 63) - 1], [UNLOCK, 0]),
    ];
    for (found, range, rest) in rows {
        harness.kernel_request(Opcode::Getlk, 7, FILE, &lk_in((0, 99), WRITE, 0));
        let received = harness.take();
        assert_eq!(received.head.op, Op::GetLock);
        let range_of = || ByteRange::new(10, 20).unwrap();
        let found = found.map(|(lock, pid)| LockRow { lock, range: range_of(), pid });
        harness.answer(&received, &LockFound { found }.to_bytes());
        let mut wanted = u64s(&range);
        wanted.extend(u32s(&rest));
        assert_eq!(harness.reply().payload, wanted);
    }
}

#[test]
fn a_close_sends_messages_only_for_locked_files() {
    let mut harness = Harness::new();
    let (own, other) = (file_of(&harness, true), file_of(&harness, false));
    for file in [own, other] {
        harness.kernel_request(Opcode::Flush, 7, file, &u64s(&[5, 0, 9]));
        assert_eq!(harness.status(), Status::Ok);
        assert!(harness.requests.is_empty() && harness.peer_messages.is_empty());
    }
    harness.kernel_request(Opcode::Setlk, 8, own, &lk_in((0, 5), WRITE, 0));
    let received = harness.take();
    harness.answer(&received, &granted(true));
    assert_eq!(harness.status(), Status::Ok);
    harness.kernel_request(Opcode::Flush, 9, own, &u64s(&[5, 0, 8]));
    assert_eq!(harness.status(), Status::Ok, "another owner");
    harness.kernel_request(Opcode::Flush, 10, own, &u64s(&[5, 0, 9]));
    let received = harness.take();
    assert_eq!(SetLock::decode_all(&received.body).unwrap().lock, None);
    assert!(harness.replies.is_empty(), "the lock is released before the close returns");
    harness.answer(&received, &granted(true));
    assert_eq!(harness.status(), Status::Ok);
    harness.kernel_request(Opcode::Flush, 11, own, &u64s(&[5, 0, 9]));
    assert_eq!(harness.status(), Status::Ok, "no lock is left");
    // A peer lane that keeps another file's locks requests its closes.
    harness.peer_messages.clear();
    let keeper = harness.lane.client().keeper_of(other);
    harness.event(Event::Peer(PeerEvent::Message {
        from: keeper,
        message: MountMessage::LocksPresent { inode: other, present: true },
    }));
    assert_eq!(harness.peer_messages, [(keeper, MountMessage::LocksPresentSeen { inode: other })]);
    harness.kernel_request(Opcode::Flush, 12, other, &u64s(&[5, 0, 9]));
    let (to, message) = harness.peer_messages[1];
    let MountMessage::Lock { job, request: ask } = message else { panic!("{message:?}") };
    assert_eq!((to, ask), (keeper, LockRequest::Flush { inode: other, owner: 9 }));
    harness.reply();
    harness.event(Event::Peer(PeerEvent::Message {
        from: keeper,
        message: MountMessage::LockDone { job, result: Ok(()) },
    }));
    assert!(harness.replies.is_empty(), "once");
}

#[test]
fn the_last_close_releases_the_locks_taken_through_the_handle() {
    let mut harness = Harness::new();
    let (own, other) = (file_of(&harness, true), file_of(&harness, false));
    for flags in [0, 1] {
        harness.kernel_request(Opcode::Setlk, 8, own, &lk_in((0, 5), WRITE, flags));
        let received = harness.take();
        harness.answer(&received, &granted(true));
        harness.reply();
    }
    harness.kernel_request(Opcode::Release, 9, own, &u64s(&[6, 0, 0]));
    harness.reply();
    assert!(harness.requests.is_empty(), "another open file");
    harness.kernel_request(Opcode::Release, 10, own, &u64s(&[5, 0, 0]));
    assert_eq!(harness.status(), Status::Ok, "no process waits for it");
    let mut kinds = Vec::new();
    for received in core::mem::take(&mut harness.requests) {
        let unlock = SetLock::decode_all(&received.body).unwrap();
        assert_eq!((unlock.lock, unlock.owner), (None, 9));
        kinds.push(unlock.kind);
    }
    assert_eq!(kinds, [LockKind::Posix, LockKind::Flock]);
    let keeper = harness.lane.client().keeper_of(other);
    harness.event(Event::Peer(PeerEvent::Message {
        from: keeper,
        message: MountMessage::LocksPresent { inode: other, present: true },
    }));
    harness.peer_messages.clear();
    harness.kernel_request(Opcode::Release, 11, other, &u64s(&[5, 0, 0]));
    let handle = HandleId(5);
    assert_eq!(
        harness.peer_messages,
        [(keeper, MountMessage::LockRelease { inode: other, handle })]
    );
}

#[test]
fn the_number_of_lock_waits_is_limited() {
    let mut harness = Harness::new();
    harness.lane.config.lock_wait_count_max = 2;
    let file = file_of(&harness, true);
    let mut waiting = Vec::new();
    for unique in [1, 2] {
        harness.kernel_request(Opcode::Setlkw, unique, file, &lk_in((unique, unique), WRITE, 0));
        let received = harness.take();
        harness.answer(&received, &granted(false));
        waiting.push(received);
    }
    harness.kernel_request(Opcode::Setlkw, 3, file, &lk_in((3, 3), WRITE, 0));
    assert_eq!(harness.status(), Status::NoLocks);
    harness.kernel_request(Opcode::Setlk, 4, file, &lk_in((4, 4), WRITE, 0));
    let received = harness.take();
    harness.answer(&received, &granted(true));
    assert_eq!(harness.status(), Status::Ok, "a request without a wait gets through");
    let wait_id = SetLock::decode_all(&waiting[0].body).unwrap().wait_id;
    harness.grant(&waiting[0], Grant { inode: file, wait_id, status: Status::Ok });
    assert_eq!(harness.status(), Status::Ok);
    harness.kernel_request(Opcode::Setlkw, 5, file, &lk_in((5, 5), WRITE, 0));
    assert_eq!(harness.requests.len(), 1);
}
