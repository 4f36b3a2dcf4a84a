//! Slots, xids, acknowledgements, credits, resends, handles over restarts.

use super::harness::{Harness, ReceivedRequest, bulk};
use super::{CALLER, FILE, attr};
use crate::session::{Session, SlotClass};
use crate::{Answer, Call, Create, Open, Write};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{
    Created, Entry, Getattr, HandleId, Name, Op, OpenFor, Reopen, Reply, SetTime, Setattr, Status,
    Unlink, Wire, Written, Xid, attr_flag, reply_flag, request_flag,
};

fn chmod(mode: u32) -> Call<'static> {
    Call::Setattr(Setattr {
        caller: CALLER,
        inode: FILE,
        mode: Some(mode),
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        clears: wire::ClearPrivileges::Nothing,
    })
}

fn entry() -> Vec<u8> {
    Entry { attr: attr(FILE, 0) }.to_bytes()
}

fn open(write: bool) -> Call<'static> {
    let open_for = if write { OpenFor::ReadWrite } else { OpenFor::Read };
    Call::Open(Open { caller: CALLER, inode: FILE, open_for, sizes: false })
}

/// A harness with one open handle.
fn harness_with_handle(write: bool) -> (Harness, HandleId) {
    let mut harness = Harness::new(2);
    harness.call(1, open(write));
    let request = harness.take();
    harness.answer(&request, &entry());
    let Ok(Answer::Opened { handle, .. }) = harness.outcome() else { panic!("not opened") };
    (harness, handle)
}

#[test]
fn modifying_requests_have_slots_of_their_own_and_the_rest_waits() {
    let mut harness = Harness::new(1);
    for id in 1..=5 {
        harness.call(id, chmod(0o600));
    }
    let slots: Vec<_> = harness.requests.iter().map(|request| request.head.slot).collect();
    assert_eq!(slots, [1, 2, 3], "the fourth is reserved for reopening");
    harness.call(6, Call::Getattr(Getattr { inode: FILE }));
    assert_eq!(harness.requests.back().unwrap().head.slot, 0, "a read needs no slot");
    let second = harness.requests.remove(1).unwrap();
    harness.answer(&second, &entry());
    let next = harness.requests.pop_back().unwrap();
    assert_eq!(next.head.slot, 2, "the freed slot is used");
    assert!(next.head.xid > second.head.xid);
    assert_eq!(next.head.ack_xid.0, second.head.xid.0 - 2, "the first is not answered yet");
    assert_eq!(next.head.sack, 0b10, "the second is");
}

#[test]
fn after_a_lost_connection_requests_are_resent_under_the_same_xids() {
    let mut harness = Harness::new(1);
    harness.call(1, chmod(0o600));
    harness.call(2, chmod(0o640));
    harness.call(3, Call::Getattr(Getattr { inode: FILE }));
    let numbers =
        |request: &ReceivedRequest| (request.head.xid, request.head.slot, request.body.clone());
    let before: Vec<_> = harness.requests.iter().map(numbers).collect();
    harness.hang_up();
    let after: Vec<_> = harness.requests.iter().map(numbers).collect();
    assert_eq!(after, before);
    for request in harness.requests.clone() {
        assert_eq!(request.head.flags, request_flag::RESENT);
        assert_eq!(request.head.conn_epoch, 2);
        harness.answer(&request, &entry());
    }
    assert_eq!(harness.answers().len(), 3);
    assert_eq!(harness.client.counters().resend_count, 3);
}

#[test]
fn a_write_retains_its_bytes_until_the_reply() {
    let mut harness = Harness::new(1);
    let bytes = bulk(9, 4096);
    let write = Write {
        inode: FILE,
        file_offset: 8,
        append: false,
        bulk: Some(bytes),
        sync: false,
        clears: wire::ClearPrivileges::Nothing,
        behind: false,
    };
    harness.call(1, Call::Write(write));
    harness.hang_up();
    let request = harness.take();
    assert_eq!(request.bulk, Some(bytes));
    let written = Written { file_offset: 8, written_bytes: 4096 };
    harness.answer(&request, &written.to_bytes());
    assert_eq!(harness.outcome(), Ok(Answer::Written(written)));
    assert!(harness.released.is_empty(), "the frontend owns them");
}

#[test]
fn requests_in_flight_never_exceed_the_credits() {
    let mut harness = Harness::new(1);
    harness.shape.credits = 2;
    for id in 1..=4 {
        harness.call(id, Call::Getattr(Getattr { inode: FILE }));
    }
    assert_eq!(harness.requests.len(), 2);
    let first = harness.take();
    harness.answer(&first, &entry());
    assert_eq!(harness.requests.len(), 2);
}

#[test]
fn retry_later_resends_under_a_new_xid() {
    let mut harness = Harness::new(1);
    harness.call(1, chmod(0o600));
    let first = harness.take();
    let reply = Reply { status: Status::RetryLater, retry_after_ms: 30, ..harness.reply(&first) };
    harness.send(first.conn, reply, &[], None);
    assert!(harness.requests.is_empty());
    harness.wait_ms(29);
    assert!(harness.requests.is_empty());
    harness.wait_ms(1);
    let second = harness.take();
    assert!(second.head.xid > first.head.xid);
    assert_eq!(second.head.flags, 0, "it is a new request");
    assert_eq!(second.body, first.body);
    assert_eq!(second.head.ack_xid, first.head.xid);
}

/// A copy may still be in flight on the earlier connection: under two xids both could be executed.
#[test]
fn a_resent_request_keeps_its_xid_and_slot_after_retry_later() {
    let mut harness = Harness::new(1);
    harness.call(1, chmod(0o600));
    let first = harness.take();
    harness.hang_up();
    harness.wait_ms(1_000);
    let mut again = harness.take();
    for _ in 0..3 {
        assert_eq!((again.head.xid, again.head.slot), (first.head.xid, first.head.slot));
        assert_eq!(again.head.flags, wire::request_flag::RESENT);
        let reply =
            Reply { status: Status::RetryLater, retry_after_ms: 30, ..harness.reply(&again) };
        harness.send(again.conn, reply, &[], None);
        assert!(harness.requests.is_empty());
        harness.wait_ms(30);
        again = harness.take();
    }
    // Another call takes another slot meanwhile.
    harness.call(2, chmod(0o700));
    let other = harness.take();
    assert_ne!(other.head.slot, first.head.slot);
    harness.hang_up();
    harness.wait_ms(1_000);
    let both = [harness.take(), harness.take()];
    assert_eq!(both.map(|request| request.head.xid), [first.head.xid, other.head.xid]);
}

#[test]
fn wrong_lane_redirects_to_the_hint() {
    let mut harness = Harness::new(4);
    harness.call(1, chmod(0o600));
    let first = harness.take();
    let lane_hint = wire::LaneId(3);
    let reply = Reply { status: Status::WrongLane, lane_hint, ..harness.reply(&first) };
    harness.send(first.conn, reply, &[], None);
    let second = harness.take();
    assert_eq!(harness.lane_of(second.conn), Some(lane_hint));
    assert!(second.head.xid > first.head.xid);
}

#[test]
fn a_reply_of_another_kind_or_slot_is_a_protocol_error() {
    for change in [
        |reply: &mut Reply| reply.op = Op::Access,
        |reply: &mut Reply| reply.slot = 2,
        |reply: &mut Reply| reply.session.0 += 1,
        |reply: &mut Reply| reply.shard = wire::ShardId::meta(100),
    ] {
        let mut harness = Harness::new(1);
        harness.call(
            1,
            Call::Unlink(Unlink {
                caller: CALLER,
                parent: FILE,
                name: Name::new(b"x").unwrap(),
                behind: None,
            }),
        );
        let request = harness.take();
        let mut reply = harness.reply(&request);
        change(&mut reply);
        harness.send(request.conn, reply, &[], None);
        assert_eq!(harness.closed, [request.conn]);
        assert!(harness.answers().is_empty());
    }
}

#[test]
fn a_stray_reply_is_counted_and_its_bytes_released() {
    let mut harness = Harness::new(1);
    harness.call(
        1,
        Call::Read(wire::Read { inode: FILE, file_offset: 0, read_bytes: 10, accesses: true }),
    );
    let request = harness.take();
    let reply = Reply { xid: Xid(request.head.xid.0 + 1), ..harness.reply(&request) };
    harness.send(request.conn, reply, &[], Some(bulk(5, 10)));
    assert_eq!(harness.client.counters().stray_reply_count, 1);
    assert_eq!(harness.released, [interface::BufId(5)]);
    let reply = harness.reply(&request);
    harness.send(request.conn, reply, &[], Some(bulk(6, 10)));
    assert_eq!(harness.outcome(), Ok(Answer::Bytes(Some(bulk(6, 10)))));
    assert_eq!(harness.released.len(), 1, "the frontend owns the answered bytes");
}

#[test]
fn more_bytes_than_requested_are_a_protocol_error() {
    let mut harness = Harness::new(1);
    harness.call(
        1,
        Call::Read(wire::Read { inode: FILE, file_offset: 0, read_bytes: 10, accesses: true }),
    );
    let request = harness.take();
    let reply = harness.reply(&request);
    harness.send(request.conn, reply, &[], Some(bulk(6, 11)));
    assert_eq!(harness.closed, [request.conn]);
    assert_eq!(harness.released, [interface::BufId(6)]);
}

#[test]
fn after_a_restart_handles_are_reopened_before_anything_else() {
    let (mut harness, handle) = harness_with_handle(true);
    harness.call(2, chmod(0o600));
    let bytes = bulk(9, 1);
    let write = Write {
        inode: FILE,
        file_offset: 0,
        append: false,
        bulk: Some(bytes),
        sync: false,
        clears: wire::ClearPrivileges::Nothing,
        behind: false,
    };
    harness.call(3, Call::Write(write));
    assert_eq!(harness.requests.len(), 2);
    harness.restart();
    let ops: Vec<_> = harness.requests.iter().map(|request| request.head.op).collect();
    assert_eq!(ops, [Op::Reopen]);
    let reopen = harness.take();
    let wanted =
        Reopen { inode: FILE, handle: wire::Handle { id: handle, open_for: OpenFor::ReadWrite } };
    assert_eq!(Reopen::decode_all(&reopen.body), Ok(wanted));
    assert!(reopen.head.slot > 0);
    harness.answer(&reopen, &[]);
    let mut ops: Vec<_> = harness.requests.iter().map(|request| request.head.op).collect();
    ops.sort_unstable();
    assert_eq!(ops, [Op::Setattr, Op::Write], "now the rest is resent");
}

#[test]
fn reopening_works_with_all_slots_taken() {
    let (mut harness, _) = harness_with_handle(false);
    for id in 2..=10 {
        harness.call(id, chmod(0o600));
    }
    harness.restart();
    let reopen = harness.take();
    assert_eq!((reopen.head.op, reopen.head.slot), (Op::Reopen, 4));
    assert!(harness.requests.is_empty());
    harness.answer(&reopen, &[]);
    assert_eq!(harness.requests.len(), 3);
}

#[test]
fn a_client_with_open_files_reconnects_without_a_call() {
    let (mut harness, _) = harness_with_handle(false);
    harness.restart();
    assert_eq!(harness.take().head.op, Op::Reopen);
}

#[test]
fn an_open_answered_from_the_slot_is_reopened() {
    let mut harness = Harness::new(1);
    harness.call(1, open(false));
    let request = harness.take();
    let reply = Reply { flags: reply_flag::FROM_SLOT, ..harness.reply(&request) };
    harness.send(request.conn, reply, &entry(), None);
    assert!(harness.answers().is_empty());
    let reopen = harness.take();
    assert_eq!(reopen.head.op, Op::Reopen);
    harness.answer(&reopen, &[]);
    assert!(matches!(harness.outcome(), Ok(Answer::Opened { .. })));
}

/// The reply said that the file was created; a later removal by another client does not change
/// that.
#[test]
fn a_create_answered_from_the_slot_succeeds_although_the_file_was_removed() {
    let removed = [Status::Stale, Status::NotFound];
    for (made, status) in
        [(true, removed[0]), (true, removed[1]), (true, Status::Io), (false, removed[0])]
    {
        let mut harness = Harness::new(1);
        let create = Create {
            caller: CALLER,
            parent: FILE,
            name: Name::new(b"new").unwrap(),
            mode: 0o600,
            umask: 0o22,
            exclusive: made,
            open: Some(OpenFor::ReadWrite),
        };
        harness.call(1, Call::Create(create));
        let request = harness.take();
        let reply = Reply { flags: reply_flag::FROM_SLOT, ..harness.reply(&request) };
        let created = Created { attr: attr(FILE, 0), made };
        harness.send(request.conn, reply, &created.to_bytes(), None);
        let reopen = harness.take();
        assert_eq!(reopen.head.op, Op::Reopen);
        harness.fail(&reopen, status);
        match harness.outcome() {
            Ok(Answer::Created { attr, made: answered, .. }) => {
                assert!(answered && removed.contains(&status));
                assert_eq!(attr.nlink, 0);
            }
            outcome => assert!(outcome == Err(status) && (!made || !removed.contains(&status))),
        }
    }
}

#[test]
fn a_close_answered_from_the_slot_is_sent_again() {
    let (mut harness, handle) = harness_with_handle(false);
    harness.call(2, Call::Close(handle));
    let request = harness.take();
    assert_eq!(request.head.op, Op::Close);
    let reply = Reply { flags: reply_flag::FROM_SLOT, ..harness.reply(&request) };
    harness.send(request.conn, reply, &[], None);
    let again = harness.take();
    assert_eq!((again.head.op, &again.body), (Op::Close, &request.body));
    harness.fail(&again, Status::BadHandle);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    assert_eq!(harness.client.open_count(), 0);
}

#[test]
fn acknowledgements_name_exactly_the_replies_received() {
    let mut rng = fastrand::Rng::with_seed(42);
    for _ in 0..50 {
        let start = 1 << 61;
        let mut session = Session::new(start);
        let mut last = start;
        let mut open = BTreeSet::new();
        for _ in 0..300 {
            if open.is_empty() || rng.u64(..100) < 55 {
                last += 1;
                assert_eq!(session.begin(7), Xid(last));
                open.insert(last);
            } else {
                let nth = usize::try_from(rng.u64(..open.len() as u64)).unwrap();
                let xid = *open.iter().nth(nth).unwrap();
                assert_eq!(session.find(Xid(xid)), Some(7));
                session.end(Xid(xid));
                open.remove(&xid);
                assert_eq!(session.find(Xid(xid)), None);
            }
            let acks = session.acks();
            let ack_xid = open.first().map_or(last, |first| first - 1);
            assert_eq!(acks.ack_xid, Xid(ack_xid));
            for bit in 0..64 {
                let xid = ack_xid + 1 + bit;
                let received = xid <= last && !open.contains(&xid);
                assert_eq!(acks.sack >> bit & 1 == 1, received, "bit {bit}");
            }
        }
    }
}

#[test]
fn some_slots_are_kept_for_what_is_changed_behind() {
    for (slot_count, others, behind) in [(3, 2, 2), (4, 2, 3), (8, 5, 7), (64, 59, 63)] {
        let mut session = Session::new(0);
        let mut take_all = |class| {
            let wanted = (class, true);
            core::iter::from_fn(|| session.take_slot(slot_count, wanted)).last()
        };
        assert_eq!(take_all(SlotClass::Other), Some(others));
        assert_eq!(take_all(SlotClass::Behind), Some(behind).filter(|last| *last > others));
        assert_eq!(take_all(SlotClass::Awaited), Some(slot_count));
    }
}

#[test]
fn every_slot_up_to_64_can_be_taken() {
    const AWAITED: (SlotClass, bool) = (SlotClass::Awaited, false);
    const OTHER: (SlotClass, bool) = (SlotClass::Other, false);
    let mut session = Session::new(0);
    let slots: Vec<_> = (0..64).filter_map(|_| session.take_slot(64, AWAITED)).collect();
    assert_eq!(slots, (1..=64).collect::<Vec<_>>());
    assert_eq!(session.take_slot(64, AWAITED), None);
    session.free_slot(64);
    assert_eq!(session.take_slot(64, OTHER), None, "the last one is reserved");
    session.free_slot(1);
    assert_eq!(session.take_slot(64, OTHER), Some(1));
    assert_eq!(attr_flag::SIZE_AT_DATA, 1);
}
