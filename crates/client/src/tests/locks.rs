//! The keeper of a file's locks: its requests, its relocks, the locks it releases.

use super::harness::{Harness, ReceivedRequest};
use crate::{Answer, Call, Report, SetLock};
use alloc::vec::Vec;
use interface::{Event, LockRequest, MountMessage, PeerEvent};
use wire::{
    ByteRange, CancelLock, Grant, HandleId, Header, InodeNo, LaneId, LockCancelled, LockKind,
    LockSet, LockType, Op, Relock, Reply, Status, Wire, reply_flag,
};

const WRITE: Option<LockType> = Some(LockType::Write);
const READ: Option<LockType> = Some(LockType::Read);

/// A file that the harness's lane keeps.
pub(super) fn file(harness: &Harness) -> InodeNo {
    let mut files = (1..).map(|count| InodeNo::new(2, count));
    files.find(|inode| harness.client.keeper_of(*inode) == harness.client.lane()).unwrap()
}

pub(super) fn set(
    harness: &Harness,
    owner: u64,
    lock: Option<LockType>,
    (start, end): (u64, u64),
) -> SetLock {
    SetLock {
        inode: file(harness),
        kind: LockKind::Posix,
        owner,
        lock,
        range: ByteRange::new(start, end).unwrap(),
        pid: 77,
        wait: false,
        handle: HandleId(5),
    }
}

fn waiting(set: SetLock) -> SetLock {
    SetLock { wait: true, ..set }
}

fn request(request: &ReceivedRequest) -> wire::SetLock {
    assert_eq!(request.head.op, Op::SetLock);
    wire::SetLock::decode_all(&request.body).unwrap()
}

fn reply(harness: &mut Harness, request: &ReceivedRequest, granted: bool) {
    harness.answer(request, &LockSet { granted, place: 40 }.to_bytes());
}

/// Takes a lock without a conflict.
pub(super) fn lock(harness: &mut Harness, id: u64, set: SetLock) {
    harness.call(id, Call::SetLock(set));
    let request = harness.take();
    reply(harness, &request, true);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

/// Begins to wait; returns the wait's number.
fn wait(harness: &mut Harness, id: u64, set: SetLock) -> (ReceivedRequest, u64) {
    harness.call(id, Call::SetLock(waiting(set)));
    let first = harness.take();
    let wait_id = request(&first).wait_id;
    reply(harness, &first, false);
    assert!(harness.answers().is_empty());
    (first, wait_id)
}

fn grant(harness: &mut Harness, on: &ReceivedRequest, wait_id: u64, status: Status) {
    let mut frame = Vec::new();
    let inode = file(harness);
    Header::Grant.encode(&mut frame, None, |to| to.write(&Grant { inode, wait_id, status }));
    harness.frame(on.conn, frame, None);
}

/// The relocks sent after a connection was made.
pub(super) fn relocked(harness: &mut Harness) -> Vec<(u64, u64, LockType)> {
    let mut rows = Vec::new();
    while harness.requests.front().is_some_and(|request| request.head.op == Op::Relock) {
        let request = harness.take();
        let relock = Relock::decode_all(&request.body).unwrap();
        rows.push((relock.range.start(), relock.range.end(), relock.lock));
        harness.answer(&request, &[]);
    }
    rows
}

#[test]
fn held_locks_are_asserted_again_and_released_ones_are_not() {
    let mut harness = Harness::new(1);
    for (id, lock_type, range) in [(1, WRITE, (0, 99)), (2, READ, (10, 19)), (3, None, (50, 59))] {
        let set = set(&harness, 9, lock_type, range);
        lock(&mut harness, id, set);
    }
    // Released, but the reply is lost: another client may have locked it since.
    let unlock = set(&harness, 9, None, (0, 4));
    harness.call(4, Call::SetLock(unlock));
    harness.restart();
    let held = [
        (5, 9, LockType::Write),
        (10, 19, LockType::Read),
        (20, 49, LockType::Write),
        (60, 99, LockType::Write),
    ];
    assert_eq!(relocked(&mut harness), held);
    let again = harness.take();
    assert_eq!(request(&again).lock, None);
    reply(&mut harness, &again, true);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    // The same boot: the client checks whether the lock is still there.
    harness.hang_up();
    assert_eq!(relocked(&mut harness), held);
    assert!(harness.requests.is_empty());
}

#[test]
fn a_downgrade_in_flight_is_asserted_as_a_read_lock() {
    let mut harness = Harness::new(1);
    let all = set(&harness, 9, WRITE, (0, 99));
    lock(&mut harness, 1, all);
    let less = set(&harness, 9, READ, (20, 29));
    harness.call(2, Call::SetLock(less));
    harness.restart();
    let relocks = relocked(&mut harness);
    assert_eq!(relocks[1], (20, 29, LockType::Read));
    assert_eq!((relocks.len(), relocks[0].2, relocks[2].2), (3, LockType::Write, LockType::Write));
}

#[test]
fn a_lock_lost_to_another_client_is_reported_and_fails_the_next_fsync() {
    let mut harness = Harness::new(1);
    let all = set(&harness, 9, WRITE, (0, 99));
    lock(&mut harness, 1, all);
    harness.hang_up();
    let again = harness.take();
    assert_eq!(again.head.op, Op::Relock);
    harness.fail(&again, Status::Again);
    let inode = file(&harness);
    assert_eq!(harness.client.take_reports(), [Report::LockLost { inode }]);
    assert!(
        harness.peer_messages.iter().any(|(_, message)| *message == MountMessage::Lost { inode })
    );
    let sync = crate::Sync { inode, contents: false, handle: None };
    harness.call(2, Call::Sync(sync));
    let request = harness.take();
    harness.answer(&request, &[]);
    assert_eq!(harness.outcome(), Err(Status::Io));
    harness.hang_up();
    assert!(harness.requests.is_empty(), "no lock is held any more");
}

#[test]
fn a_wait_survives_reconnects_and_restarts_with_its_number_and_place() {
    let mut harness = Harness::new(1);
    let all = set(&harness, 9, WRITE, (0, 99));
    let (_, wait_id) = wait(&mut harness, 1, all);
    for restarts in [false, true, false] {
        if restarts {
            harness.restart();
        } else {
            harness.hang_up();
        }
        let again = harness.take();
        assert_eq!((request(&again).wait_id, request(&again).place), (wait_id, 40));
        reply(&mut harness, &again, false);
        assert!(harness.answers().is_empty() && harness.requests.is_empty());
    }
    harness.hang_up();
    let again = harness.take();
    reply(&mut harness, &again, true);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    grant(&mut harness, &again, wait_id, Status::Ok);
    assert!(harness.answers().is_empty(), "once");
}

#[test]
fn a_reply_from_the_slot_is_requested_again() {
    let mut harness = Harness::new(1);
    let all = set(&harness, 9, WRITE, (0, 99));
    harness.call(1, Call::SetLock(waiting(all)));
    harness.hang_up();
    for granted in [false, true] {
        let again = harness.take();
        let old = Reply { flags: reply_flag::FROM_SLOT, ..harness.reply(&again) };
        harness.send(again.conn, old, &LockSet { granted, place: 40 }.to_bytes(), None);
        assert!(harness.answers().is_empty(), "the lock may have been granted, or lost, since");
    }
    let again = harness.take();
    reply(&mut harness, &again, true);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

#[test]
fn an_interrupted_wait_is_cancelled_and_a_grant_in_the_meantime_counts() {
    let mut harness = Harness::new(1);
    let all = set(&harness, 9, WRITE, (0, 99));
    let (_, wait_id) = wait(&mut harness, 1, all);
    assert!(harness.interrupt(1));
    let cancel = harness.take();
    assert_eq!(cancel.head.op, Op::CancelLock);
    assert_eq!(CancelLock::decode_all(&cancel.body).unwrap().wait_id, wait_id);
    assert!(harness.answers().is_empty());
    harness.answer(&cancel, &LockCancelled { waited: true }.to_bytes());
    assert_eq!(harness.outcome(), Err(Status::Interrupted));

    let (first, wait_id) = wait(&mut harness, 2, all);
    harness.interrupt(2);
    let cancel = harness.take();
    grant(&mut harness, &first, wait_id, Status::Ok);
    assert_eq!(harness.outcome(), Ok(Answer::Done), "the lock was granted");
    harness.answer(&cancel, &LockCancelled { waited: false }.to_bytes());
    assert!(harness.answers().is_empty() && harness.requests.is_empty());
    harness.hang_up();
    assert_eq!(relocked(&mut harness), [(0, 99, LockType::Write)]);
}

#[test]
fn an_interrupted_wait_ends_within_a_second_and_a_late_grant_is_released() {
    let mut harness = Harness::new(1);
    let part = set(&harness, 9, READ, (10, 19));
    lock(&mut harness, 1, part);
    let all = set(&harness, 9, WRITE, (0, 99));
    let (first, wait_id) = wait(&mut harness, 2, all);
    harness.interrupt(2);
    let cancel = harness.take();
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted), "the server does not reply");
    grant(&mut harness, &first, wait_id, Status::Ok);
    harness.answer(&cancel, &LockCancelled { waited: false }.to_bytes());
    let mut released = Vec::new();
    while !harness.requests.is_empty() {
        let back = harness.take();
        let lock = request(&back);
        released.push((lock.range.start(), lock.range.end(), lock.lock));
        reply(&mut harness, &back, true);
    }
    let wanted = [(0, 9, None), (10, 19, READ), (20, 99, None)];
    assert_eq!(released, wanted, "all but the part it had before");
    harness.hang_up();
    assert_eq!(relocked(&mut harness), [(10, 19, LockType::Read)]);
}

#[test]
fn an_interrupted_wait_ends_at_once_while_the_server_is_away() {
    let mut harness = Harness::new(1);
    let all = set(&harness, 9, WRITE, (0, 99));
    wait(&mut harness, 1, all);
    harness.shape.listening = false;
    harness.hang_up();
    harness.interrupt(1);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.shape.listening = true;
    harness.wait_ms(2_000);
    let next = harness.take();
    // The request was never sent again, or its lock is released.
    if next.head.op == Op::SetLock {
        reply(&mut harness, &next, true);
        let back = harness.take();
        assert_eq!(request(&back).lock, None);
    } else {
        assert_eq!(next.head.op, Op::CancelLock);
    }
}

#[test]
fn a_close_does_not_wait_for_a_server_that_is_away() {
    let mut harness = Harness::new(1);
    let all = set(&harness, 9, WRITE, (0, 99));
    lock(&mut harness, 1, all);
    let flush = Call::Flush { inode: file(&harness), owner: 9 };
    harness.call(2, flush);
    assert!(harness.answers().is_empty());
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Ok(Answer::Done), "nor for one that does not reply");
    harness.shape.listening = false;
    harness.hang_up();
    let part = set(&harness, 10, WRITE, (0, 9));
    harness.call(3, Call::SetLock(part));
    harness.interrupt(3);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.shape.listening = true;
    harness.wait_ms(2_000);
    assert_eq!(relocked(&mut harness), []);
    let unlock = harness.take();
    assert_eq!((request(&unlock).lock, request(&unlock).owner), (None, 9), "the lock is released");
}

#[test]
fn requests_of_one_owner_are_serialized() {
    let mut harness = Harness::new(1);
    let (one, other) = (set(&harness, 9, WRITE, (0, 9)), set(&harness, 9, None, (0, 9)));
    harness.call(1, Call::SetLock(one));
    harness.call(2, Call::SetLock(other));
    let foreign = set(&harness, 10, WRITE, (50, 59));
    harness.call(3, Call::SetLock(foreign));
    assert_eq!(harness.requests.len(), 2, "another owner does not wait");
    let first = harness.take();
    reply(&mut harness, &first, true);
    let of_other = harness.take();
    assert_eq!(request(&of_other).owner, 10);
    let second = harness.take();
    assert_eq!((request(&second).owner, request(&second).lock), (9, None));
}

#[test]
fn an_evicted_client_loses_its_locks_and_continues_its_waits() {
    let mut harness = Harness::new(1);
    let held = set(&harness, 9, WRITE, (0, 9));
    lock(&mut harness, 1, held);
    let wanted = set(&harness, 10, WRITE, (20, 29));
    wait(&mut harness, 2, wanted);
    harness.shape.refuse = Some(wire::RefusalReason::Evicted);
    harness.hang_up();
    harness.shape.refuse = None;
    harness.wait_ms(2_000);
    let reports = harness.client.take_reports();
    let lost = Report::LockLost { inode: file(&harness) };
    assert_eq!(reports.iter().filter(|report| **report == lost).count(), 1, "{reports:?}");
    let again = harness.take();
    assert_eq!((request(&again).owner, request(&again).lock), (10, WRITE));
    reply(&mut harness, &again, true);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

#[test]
fn a_peer_lane_sends_its_lock_call_to_the_keeper() {
    let mut harness = Harness::new(1);
    let (from, job) = (LaneId(1), 55);
    let SetLock { inode, kind, owner, lock, range, pid, handle, .. } =
        set(&harness, 9, WRITE, (0, 9));
    let lock = wire::SetLock { inode, kind, owner, lock, range, pid, wait_id: 0, place: 0 };
    let message = MountMessage::Lock { job, request: LockRequest::Set { lock, handle } };
    harness.event(Event::Peer(PeerEvent::Message { from, message }));
    let request = harness.take();
    reply(&mut harness, &request, true);
    assert!(
        harness.peer_messages.contains(&(from, MountMessage::LockDone { job, result: Ok(()) }))
    );
    for peer_lane in [0, 1, 2] {
        let announced = (LaneId(peer_lane), MountMessage::LocksPresent { inode, present: true });
        assert_eq!(
            harness.peer_messages.iter().filter(|message| **message == announced).count(),
            1,
            "report closes"
        );
    }
    harness.peer_messages.clear();
    let message = MountMessage::LockRelease { inode, handle };
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(2), message }));
    let request = harness.take();
    assert_eq!(wire::SetLock::decode_all(&request.body).unwrap().lock, None);
    reply(&mut harness, &request, true);
    assert!(harness.peer_messages.is_empty(), "the release has no answer");
    // The other way round: a file whose keeper is a peer lane.
    let mut files = (1..).map(|count| InodeNo::new(2, count));
    let inode = files.find(|inode| harness.client.keeper_of(*inode) == LaneId(0)).unwrap();
    let set = SetLock { inode, wait: true, ..set(&harness, 9, WRITE, (0, 9)) };
    harness.call(9, Call::SetLock(set));
    let (to, message) = harness.peer_messages.remove(0);
    let MountMessage::Lock { job, .. } = message else { panic!("{message:?}") };
    assert_eq!(to, LaneId(0));
    harness.interrupt(9);
    assert_eq!(harness.peer_messages, [(to, MountMessage::LockInterrupt { job })]);
    let result = Err(Status::Interrupted);
    harness.event(Event::Peer(PeerEvent::Message {
        from: to,
        message: MountMessage::LockDone { job, result },
    }));
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
}

#[test]
fn the_number_of_waits_is_limited_so_that_unlocks_get_through() {
    let mut harness = Harness::new(1);
    let first = set(&harness, 9, WRITE, (0, 9));
    lock(&mut harness, 1, first);
    let mut refused = 0;
    for owner in 10..90 {
        let wanted = waiting(set(&harness, owner, WRITE, (0, 9)));
        harness.call(owner, Call::SetLock(wanted));
        if harness.answers().pop().is_some_and(|answer| answer.result == Err(Status::NoLocks)) {
            refused += 1;
        } else if let Some(request) = harness.requests.pop_front() {
            reply(&mut harness, &request, false);
        }
    }
    assert_eq!(refused, 80 - 50);
    harness.requests.clear();
    let unlock = set(&harness, 9, None, (0, 9));
    harness.call(100, Call::SetLock(unlock));
    assert_eq!(harness.requests.len(), 1);
}
