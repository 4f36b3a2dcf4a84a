//! The keeper of a file's locks: what it asks, what it says again, what it gives back.

use super::rig::{Asked, Rig};
use crate::{Answer, Call, Report, SetLock};
use alloc::vec::Vec;
use interface::{Event, LaneMessage, LockRequest, PeerEvent};
use wire::{
    ByteRange, CancelLock, Grant, HandleId, Head, InodeNo, LaneId, LockCancelled, LockKind,
    LockSet, LockType, Op, Relock, Reply, Status, Wire, reply_flag,
};

const WRITE: Option<LockType> = Some(LockType::Write);
const READ: Option<LockType> = Some(LockType::Read);

/// A file that the rig's lane keeps.
pub(super) fn file(rig: &Rig) -> InodeNo {
    let mut files = (1..).map(|count| InodeNo::new(2, count));
    files.find(|inode| rig.client.keeper_of(*inode) == rig.client.lane()).unwrap()
}

pub(super) fn set(
    rig: &Rig,
    owner: u64,
    lock: Option<LockType>,
    (start, end): (u64, u64),
) -> SetLock {
    SetLock {
        inode: file(rig),
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

fn asked(asked: &Asked) -> wire::SetLock {
    assert_eq!(asked.head.op, Op::SetLock);
    wire::SetLock::decode_all(&asked.body).unwrap()
}

fn reply(rig: &mut Rig, asked: &Asked, granted: bool) {
    rig.answer(asked, &LockSet { granted, place: 40 }.to_bytes());
}

/// Takes a lock that nobody is in the way of.
pub(super) fn lock(rig: &mut Rig, id: u64, set: SetLock) {
    rig.call(id, Call::SetLock(set));
    let asked = rig.take();
    reply(rig, &asked, true);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
}

/// Begins to wait; the wait's number.
fn wait(rig: &mut Rig, id: u64, set: SetLock) -> (Asked, u64) {
    rig.call(id, Call::SetLock(waiting(set)));
    let first = rig.take();
    let wait_id = asked(&first).wait_id;
    reply(rig, &first, false);
    assert!(rig.answers().is_empty());
    (first, wait_id)
}

fn grant(rig: &mut Rig, on: &Asked, wait_id: u64, status: Status) {
    let mut frame = Vec::new();
    let inode = file(rig);
    Head::Grant.encode(&mut frame, None, |to| to.write(&Grant { inode, wait_id, status }));
    rig.frame(on.conn, frame, None);
}

/// What is said again after a connection was made.
fn relocked(rig: &mut Rig) -> Vec<(u64, u64, LockType)> {
    let mut rows = Vec::new();
    while rig.asked.front().is_some_and(|asked| asked.head.op == Op::Relock) {
        let asked = rig.take();
        let relock = Relock::decode_all(&asked.body).unwrap();
        rows.push((relock.range.start(), relock.range.end(), relock.lock));
        rig.answer(&asked, &[]);
    }
    rows
}

#[test]
fn what_is_held_is_said_again_and_what_was_given_up_is_not() {
    let mut rig = Rig::new(1);
    for (id, lock_type, range) in [(1, WRITE, (0, 99)), (2, READ, (10, 19)), (3, None, (50, 59))] {
        let set = set(&rig, 9, lock_type, range);
        lock(&mut rig, id, set);
    }
    // Given up, but the reply is lost: it may be another's by now.
    let unlock = set(&rig, 9, None, (0, 4));
    rig.call(4, Call::SetLock(unlock));
    rig.restart();
    let held = [
        (5, 9, LockType::Write),
        (10, 19, LockType::Read),
        (20, 49, LockType::Write),
        (60, 99, LockType::Write),
    ];
    assert_eq!(relocked(&mut rig), held);
    let again = rig.take();
    assert_eq!(asked(&again).lock, None);
    reply(&mut rig, &again, true);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    // The same boot: it is looked whether it is still there.
    rig.hang_up();
    assert_eq!(relocked(&mut rig), held);
    assert!(rig.asked.is_empty());
}

#[test]
fn what_becomes_less_just_now_is_said_to_be_less() {
    let mut rig = Rig::new(1);
    let all = set(&rig, 9, WRITE, (0, 99));
    lock(&mut rig, 1, all);
    let less = set(&rig, 9, READ, (20, 29));
    rig.call(2, Call::SetLock(less));
    rig.restart();
    let said = relocked(&mut rig);
    assert_eq!(said[1], (20, 29, LockType::Read));
    assert_eq!((said.len(), said[0].2, said[2].2), (3, LockType::Write, LockType::Write));
}

#[test]
fn a_lock_that_went_to_another_is_reported_and_fails_the_next_fsync() {
    let mut rig = Rig::new(1);
    let all = set(&rig, 9, WRITE, (0, 99));
    lock(&mut rig, 1, all);
    rig.hang_up();
    let again = rig.take();
    assert_eq!(again.head.op, Op::Relock);
    rig.fail(&again, Status::Again);
    let inode = file(&rig);
    assert_eq!(rig.client.take_reports(), [Report::LockLost { inode }]);
    assert!(rig.mails.iter().any(|(_, message)| *message == LaneMessage::Lost { inode }));
    let sync = crate::Sync { inode, contents: false, handle: None };
    rig.call(2, Call::Sync(sync));
    let asked = rig.take();
    rig.answer(&asked, &[]);
    assert_eq!(rig.outcome(), Err(Status::Io));
    rig.hang_up();
    assert!(rig.asked.is_empty(), "nothing is held any more");
}

#[test]
fn a_wait_goes_on_over_connections_and_restarts_under_its_number_and_place() {
    let mut rig = Rig::new(1);
    let all = set(&rig, 9, WRITE, (0, 99));
    let (_, wait_id) = wait(&mut rig, 1, all);
    for restarts in [false, true, false] {
        if restarts {
            rig.restart();
        } else {
            rig.hang_up();
        }
        let again = rig.take();
        assert_eq!((asked(&again).wait_id, asked(&again).place), (wait_id, 40));
        reply(&mut rig, &again, false);
        assert!(rig.answers().is_empty() && rig.asked.is_empty());
    }
    rig.hang_up();
    let again = rig.take();
    reply(&mut rig, &again, true);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    grant(&mut rig, &again, wait_id, Status::Ok);
    assert!(rig.answers().is_empty(), "once");
}

#[test]
fn an_answer_of_long_ago_is_asked_for_again() {
    let mut rig = Rig::new(1);
    let all = set(&rig, 9, WRITE, (0, 99));
    rig.call(1, Call::SetLock(waiting(all)));
    rig.hang_up();
    for granted in [false, true] {
        let again = rig.take();
        let old = Reply { flags: reply_flag::FROM_SLOT, ..rig.reply(&again) };
        rig.send(again.conn, old, &LockSet { granted, place: 40 }.to_bytes(), None);
        assert!(rig.answers().is_empty(), "it may have been granted, or forgotten, since");
    }
    let again = rig.take();
    reply(&mut rig, &again, true);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
}

#[test]
fn who_gives_up_is_taken_from_the_queue_and_a_grant_in_the_meantime_counts() {
    let mut rig = Rig::new(1);
    let all = set(&rig, 9, WRITE, (0, 99));
    let (_, wait_id) = wait(&mut rig, 1, all);
    assert!(rig.interrupt(1));
    let cancel = rig.take();
    assert_eq!(cancel.head.op, Op::CancelLock);
    assert_eq!(CancelLock::decode_all(&cancel.body).unwrap().wait_id, wait_id);
    assert!(rig.answers().is_empty());
    rig.answer(&cancel, &LockCancelled { waited: true }.to_bytes());
    assert_eq!(rig.outcome(), Err(Status::Interrupted));

    let (first, wait_id) = wait(&mut rig, 2, all);
    rig.interrupt(2);
    let cancel = rig.take();
    grant(&mut rig, &first, wait_id, Status::Ok);
    assert_eq!(rig.outcome(), Ok(Answer::Done), "it has it");
    rig.answer(&cancel, &LockCancelled { waited: false }.to_bytes());
    assert!(rig.answers().is_empty() && rig.asked.is_empty());
    rig.hang_up();
    assert_eq!(relocked(&mut rig), [(0, 99, LockType::Write)]);
}

#[test]
fn a_wait_is_left_within_a_second_and_a_late_grant_is_given_back() {
    let mut rig = Rig::new(1);
    let part = set(&rig, 9, READ, (10, 19));
    lock(&mut rig, 1, part);
    let all = set(&rig, 9, WRITE, (0, 99));
    let (first, wait_id) = wait(&mut rig, 2, all);
    rig.interrupt(2);
    let cancel = rig.take();
    rig.wait_ms(1_000);
    assert_eq!(rig.outcome(), Err(Status::Interrupted), "the server says nothing");
    grant(&mut rig, &first, wait_id, Status::Ok);
    rig.answer(&cancel, &LockCancelled { waited: false }.to_bytes());
    let mut given_back = Vec::new();
    while !rig.asked.is_empty() {
        let back = rig.take();
        let lock = asked(&back);
        given_back.push((lock.range.start(), lock.range.end(), lock.lock));
        reply(&mut rig, &back, true);
    }
    let wanted = [(0, 9, None), (10, 19, READ), (20, 99, None)];
    assert_eq!(given_back, wanted, "all but what it had before");
    rig.hang_up();
    assert_eq!(relocked(&mut rig), [(10, 19, LockType::Read)]);
}

#[test]
fn a_wait_is_left_at_once_while_the_server_is_away() {
    let mut rig = Rig::new(1);
    let all = set(&rig, 9, WRITE, (0, 99));
    wait(&mut rig, 1, all);
    rig.shape.listening = false;
    rig.hang_up();
    rig.interrupt(1);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    rig.shape.listening = true;
    rig.wait_ms(2_000);
    let next = rig.take();
    // It never came so far as to be asked for again, or is given back.
    if next.head.op == Op::SetLock {
        reply(&mut rig, &next, true);
        let back = rig.take();
        assert_eq!(asked(&back).lock, None);
    } else {
        assert_eq!(next.head.op, Op::CancelLock);
    }
}

#[test]
fn a_close_does_not_wait_for_a_server_that_is_away() {
    let mut rig = Rig::new(1);
    let all = set(&rig, 9, WRITE, (0, 99));
    lock(&mut rig, 1, all);
    let flush = Call::Flush { inode: file(&rig), owner: 9 };
    rig.call(2, flush);
    assert!(rig.answers().is_empty());
    rig.wait_ms(1_000);
    assert_eq!(rig.outcome(), Ok(Answer::Done), "nor for one that says nothing");
    rig.shape.listening = false;
    rig.hang_up();
    let part = set(&rig, 10, WRITE, (0, 9));
    rig.call(3, Call::SetLock(part));
    rig.interrupt(3);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    rig.shape.listening = true;
    rig.wait_ms(2_000);
    assert_eq!(relocked(&mut rig), []);
    let unlock = rig.take();
    assert_eq!((asked(&unlock).lock, asked(&unlock).owner), (None, 9), "and it is given up");
}

#[test]
fn requests_of_one_owner_go_one_after_the_other() {
    let mut rig = Rig::new(1);
    let (one, other) = (set(&rig, 9, WRITE, (0, 9)), set(&rig, 9, None, (0, 9)));
    rig.call(1, Call::SetLock(one));
    rig.call(2, Call::SetLock(other));
    let foreign = set(&rig, 10, WRITE, (50, 59));
    rig.call(3, Call::SetLock(foreign));
    assert_eq!(rig.asked.len(), 2, "another owner does not wait");
    let first = rig.take();
    reply(&mut rig, &first, true);
    let of_other = rig.take();
    assert_eq!(asked(&of_other).owner, 10);
    let second = rig.take();
    assert_eq!((asked(&second).owner, asked(&second).lock), (9, None));
}

#[test]
fn an_evicted_client_has_lost_its_locks_and_goes_on_waiting() {
    let mut rig = Rig::new(1);
    let held = set(&rig, 9, WRITE, (0, 9));
    lock(&mut rig, 1, held);
    let wanted = set(&rig, 10, WRITE, (20, 29));
    wait(&mut rig, 2, wanted);
    rig.shape.refuse = Some(wire::RefusalReason::Evicted);
    rig.hang_up();
    rig.shape.refuse = None;
    rig.wait_ms(2_000);
    let reports = rig.client.take_reports();
    let lost = Report::LockLost { inode: file(&rig) };
    assert_eq!(reports.iter().filter(|report| **report == lost).count(), 1, "{reports:?}");
    let again = rig.take();
    assert_eq!((asked(&again).owner, asked(&again).lock), (10, WRITE));
    reply(&mut rig, &again, true);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
}

#[test]
fn a_sister_asks_the_keeper_and_is_told() {
    let mut rig = Rig::new(1);
    let (from, job) = (LaneId(1), 55);
    let SetLock { inode, kind, owner, lock, range, pid, handle, .. } = set(&rig, 9, WRITE, (0, 9));
    let lock = wire::SetLock { inode, kind, owner, lock, range, pid, wait_id: 0, place: 0 };
    let message = LaneMessage::Lock { job, request: LockRequest::Set { lock, handle } };
    rig.event(Event::Peer(PeerEvent::Message { from, message }));
    let asked = rig.take();
    reply(&mut rig, &asked, true);
    assert!(rig.mails.contains(&(from, LaneMessage::LockDone { job, result: Ok(()) })));
    for peer_lane in [0, 1, 2] {
        let told = (LaneId(peer_lane), LaneMessage::LocksPresent { inode, present: true });
        assert_eq!(
            rig.mails.iter().filter(|message| **message == told).count(),
            1,
            "tell me of closes"
        );
    }
    rig.mails.clear();
    let message = LaneMessage::LockRelease { inode, handle };
    rig.event(Event::Peer(PeerEvent::Message { from: LaneId(2), message }));
    let asked = rig.take();
    assert_eq!(wire::SetLock::decode_all(&asked.body).unwrap().lock, None);
    reply(&mut rig, &asked, true);
    assert!(rig.mails.is_empty(), "nobody waits for that");
    // And the other way round: a file that a peer lane keeps.
    let mut files = (1..).map(|count| InodeNo::new(2, count));
    let inode = files.find(|inode| rig.client.keeper_of(*inode) == LaneId(0)).unwrap();
    let set = SetLock { inode, wait: true, ..set(&rig, 9, WRITE, (0, 9)) };
    rig.call(9, Call::SetLock(set));
    let (to, message) = rig.mails.remove(0);
    let LaneMessage::Lock { job, .. } = message else { panic!("{message:?}") };
    assert_eq!(to, LaneId(0));
    rig.interrupt(9);
    assert_eq!(rig.mails, [(to, LaneMessage::LockInterrupt { job })]);
    let result = Err(Status::Interrupted);
    rig.event(Event::Peer(PeerEvent::Message {
        from: to,
        message: LaneMessage::LockDone { job, result },
    }));
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
}

#[test]
fn so_many_may_wait_that_others_get_through() {
    let mut rig = Rig::new(1);
    let first = set(&rig, 9, WRITE, (0, 9));
    lock(&mut rig, 1, first);
    let mut refused = 0;
    for owner in 10..90 {
        let wanted = waiting(set(&rig, owner, WRITE, (0, 9)));
        rig.call(owner, Call::SetLock(wanted));
        if rig.answers().pop().is_some_and(|answer| answer.result == Err(Status::NoLocks)) {
            refused += 1;
        } else if let Some(asked) = rig.asked.pop_front() {
            reply(&mut rig, &asked, false);
        }
    }
    assert_eq!(refused, 80 - 50);
    rig.asked.clear();
    let unlock = set(&rig, 9, None, (0, 9));
    rig.call(100, Call::SetLock(unlock));
    assert_eq!(rig.asked.len(), 1);
}
