//! Slots, xids, acknowledgements, credits, resends, handles over restarts.

use super::rig::{Asked, Rig, bulk};
use super::{CALLER, Dice, FILE, attr};
use crate::session::Session;
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

/// A rig with one open handle.
fn rig_with_handle(write: bool) -> (Rig, HandleId) {
    let mut rig = Rig::new(2);
    rig.call(1, open(write));
    let asked = rig.take();
    rig.answer(&asked, &entry());
    let Ok(Answer::Opened { handle, .. }) = rig.outcome() else { panic!("not opened") };
    (rig, handle)
}

#[test]
fn modifying_requests_have_slots_of_their_own_and_the_rest_waits() {
    let mut rig = Rig::new(1);
    for id in 1..=5 {
        rig.call(id, chmod(0o600));
    }
    let slots: Vec<_> = rig.asked.iter().map(|asked| asked.head.slot).collect();
    assert_eq!(slots, [1, 2, 3], "the fourth is kept for reopening");
    rig.call(6, Call::Getattr(Getattr { inode: FILE }));
    assert_eq!(rig.asked.back().unwrap().head.slot, 0, "reading needs no slot");
    let second = rig.asked.remove(1).unwrap();
    rig.answer(&second, &entry());
    let next = rig.asked.pop_back().unwrap();
    assert_eq!(next.head.slot, 2, "the freed slot is used");
    assert!(next.head.xid > second.head.xid);
    assert_eq!(next.head.ack_xid.0, second.head.xid.0 - 2, "the first is not answered yet");
    assert_eq!(next.head.sack, 0b10, "the second is");
}

#[test]
fn a_lost_connection_sends_again_under_the_same_numbers() {
    let mut rig = Rig::new(1);
    rig.call(1, chmod(0o600));
    rig.call(2, chmod(0o640));
    rig.call(3, Call::Getattr(Getattr { inode: FILE }));
    let numbers = |asked: &Asked| (asked.head.xid, asked.head.slot, asked.body.clone());
    let before: Vec<_> = rig.asked.iter().map(numbers).collect();
    rig.hang_up();
    let after: Vec<_> = rig.asked.iter().map(numbers).collect();
    assert_eq!(after, before);
    for asked in rig.asked.clone() {
        assert_eq!(asked.head.flags, request_flag::RESENT);
        assert_eq!(asked.head.conn_epoch, 2);
        rig.answer(&asked, &entry());
    }
    assert_eq!(rig.answers().len(), 3);
    assert_eq!(rig.client.counters().resend_count, 3);
}

#[test]
fn a_write_keeps_its_bytes_until_the_reply() {
    let mut rig = Rig::new(1);
    let bytes = bulk(9, 4096);
    let write = Write {
        inode: FILE,
        file_offset: 8,
        append: false,
        bulk: Some(bytes),
        sync: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    rig.call(1, Call::Write(write));
    rig.hang_up();
    let asked = rig.take();
    assert_eq!(asked.bulk, Some(bytes));
    let written = Written { file_offset: 8, written_bytes: 4096 };
    rig.answer(&asked, &written.to_bytes());
    assert_eq!(rig.outcome(), Ok(Answer::Written(written)));
    assert!(rig.released.is_empty(), "they are the face's");
}

#[test]
fn no_more_requests_are_out_than_credits() {
    let mut rig = Rig::new(1);
    rig.shape.credits = 2;
    for id in 1..=4 {
        rig.call(id, Call::Getattr(Getattr { inode: FILE }));
    }
    assert_eq!(rig.asked.len(), 2);
    let first = rig.take();
    rig.answer(&first, &entry());
    assert_eq!(rig.asked.len(), 2);
}

#[test]
fn retry_later_comes_again_under_a_new_number() {
    let mut rig = Rig::new(1);
    rig.call(1, chmod(0o600));
    let first = rig.take();
    let reply = Reply { status: Status::RetryLater, retry_after_ms: 30, ..rig.reply(&first) };
    rig.send(first.conn, reply, &[], None);
    assert!(rig.asked.is_empty());
    rig.wait_ms(29);
    assert!(rig.asked.is_empty());
    rig.wait_ms(1);
    let second = rig.take();
    assert!(second.head.xid > first.head.xid);
    assert_eq!(second.head.flags, 0, "it is a new request");
    assert_eq!(second.body, first.body);
    assert_eq!(second.head.ack_xid, first.head.xid);
}

/// A copy may still be on its way over the connection before: under two numbers both could be executed.
#[test]
fn what_was_sent_twice_is_told_to_come_later_and_keeps_its_xid_and_slot() {
    let mut rig = Rig::new(1);
    rig.call(1, chmod(0o600));
    let first = rig.take();
    rig.hang_up();
    rig.wait_ms(1_000);
    let mut again = rig.take();
    for _ in 0..3 {
        assert_eq!((again.head.xid, again.head.slot), (first.head.xid, first.head.slot));
        assert_eq!(again.head.flags, wire::request_flag::RESENT);
        let reply = Reply { status: Status::RetryLater, retry_after_ms: 30, ..rig.reply(&again) };
        rig.send(again.conn, reply, &[], None);
        assert!(rig.asked.is_empty());
        rig.wait_ms(30);
        again = rig.take();
    }
    // Another call takes another slot meanwhile.
    rig.call(2, chmod(0o700));
    let other = rig.take();
    assert_ne!(other.head.slot, first.head.slot);
    rig.hang_up();
    rig.wait_ms(1_000);
    let both = [rig.take(), rig.take()];
    assert_eq!(both.map(|asked| asked.head.xid), [first.head.xid, other.head.xid]);
}

#[test]
fn wrong_lane_goes_where_the_hint_says() {
    let mut rig = Rig::new(4);
    rig.call(1, chmod(0o600));
    let first = rig.take();
    let lane_hint = wire::LaneId(3);
    let reply = Reply { status: Status::WrongLane, lane_hint, ..rig.reply(&first) };
    rig.send(first.conn, reply, &[], None);
    let second = rig.take();
    assert_eq!(rig.lane_of(second.conn), Some(lane_hint));
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
        let mut rig = Rig::new(1);
        rig.call(
            1,
            Call::Unlink(Unlink { caller: CALLER, parent: FILE, name: Name::new(b"x").unwrap() }),
        );
        let asked = rig.take();
        let mut reply = rig.reply(&asked);
        change(&mut reply);
        rig.send(asked.conn, reply, &[], None);
        assert_eq!(rig.closed, [asked.conn]);
        assert!(rig.answers().is_empty());
    }
}

#[test]
fn a_stray_reply_is_counted_and_its_bytes_released() {
    let mut rig = Rig::new(1);
    rig.call(
        1,
        Call::Read(wire::Read { inode: FILE, file_offset: 0, read_bytes: 10, accesses: true }),
    );
    let asked = rig.take();
    let reply = Reply { xid: Xid(asked.head.xid.0 + 1), ..rig.reply(&asked) };
    rig.send(asked.conn, reply, &[], Some(bulk(5, 10)));
    assert_eq!(rig.client.counters().stray_reply_count, 1);
    assert_eq!(rig.released, [interface::BufId(5)]);
    let reply = rig.reply(&asked);
    rig.send(asked.conn, reply, &[], Some(bulk(6, 10)));
    assert_eq!(rig.outcome(), Ok(Answer::Bytes(Some(bulk(6, 10)))));
    assert_eq!(rig.released.len(), 1, "what was answered is the face's");
}

#[test]
fn more_bytes_than_asked_for_are_a_protocol_error() {
    let mut rig = Rig::new(1);
    rig.call(
        1,
        Call::Read(wire::Read { inode: FILE, file_offset: 0, read_bytes: 10, accesses: true }),
    );
    let asked = rig.take();
    let reply = rig.reply(&asked);
    rig.send(asked.conn, reply, &[], Some(bulk(6, 11)));
    assert_eq!(rig.closed, [asked.conn]);
    assert_eq!(rig.released, [interface::BufId(6)]);
}

#[test]
fn after_a_restart_handles_are_reopened_before_anything_else() {
    let (mut rig, handle) = rig_with_handle(true);
    rig.call(2, chmod(0o600));
    let bytes = bulk(9, 1);
    let write = Write {
        inode: FILE,
        file_offset: 0,
        append: false,
        bulk: Some(bytes),
        sync: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    rig.call(3, Call::Write(write));
    assert_eq!(rig.asked.len(), 2);
    rig.restart();
    let ops: Vec<_> = rig.asked.iter().map(|asked| asked.head.op).collect();
    assert_eq!(ops, [Op::Reopen]);
    let reopen = rig.take();
    let wanted =
        Reopen { inode: FILE, handle: wire::Handle { id: handle, open_for: OpenFor::ReadWrite } };
    assert_eq!(Reopen::decode_all(&reopen.body), Ok(wanted));
    assert!(reopen.head.slot > 0);
    rig.answer(&reopen, &[]);
    let mut ops: Vec<_> = rig.asked.iter().map(|asked| asked.head.op).collect();
    ops.sort_unstable();
    assert_eq!(ops, [Op::Setattr, Op::Write], "now the rest goes again");
}

#[test]
fn reopening_works_with_all_slots_taken() {
    let (mut rig, _) = rig_with_handle(false);
    for id in 2..=10 {
        rig.call(id, chmod(0o600));
    }
    rig.restart();
    let reopen = rig.take();
    assert_eq!((reopen.head.op, reopen.head.slot), (Op::Reopen, 4));
    assert!(rig.asked.is_empty());
    rig.answer(&reopen, &[]);
    assert_eq!(rig.asked.len(), 3);
}

#[test]
fn with_files_open_the_client_comes_back_unasked() {
    let (mut rig, _) = rig_with_handle(false);
    rig.restart();
    assert_eq!(rig.take().head.op, Op::Reopen);
}

#[test]
fn an_open_answered_from_the_slot_is_registered_once_more() {
    let mut rig = Rig::new(1);
    rig.call(1, open(false));
    let asked = rig.take();
    let reply = Reply { flags: reply_flag::FROM_SLOT, ..rig.reply(&asked) };
    rig.send(asked.conn, reply, &entry(), None);
    assert!(rig.answers().is_empty());
    let reopen = rig.take();
    assert_eq!(reopen.head.op, Op::Reopen);
    rig.answer(&reopen, &[]);
    assert!(matches!(rig.outcome(), Ok(Answer::Opened { .. })));
}

/// The answer said that the file was made; that others have removed it since changes nothing of that.
#[test]
fn a_create_answered_from_the_slot_is_not_undone_by_a_file_that_is_gone() {
    let gone = [Status::Stale, Status::NotFound];
    for (made, status) in [(true, gone[0]), (true, gone[1]), (true, Status::Io), (false, gone[0])] {
        let mut rig = Rig::new(1);
        let create = Create {
            caller: CALLER,
            parent: FILE,
            name: Name::new(b"new").unwrap(),
            mode: 0o600,
            umask: 0o22,
            exclusive: made,
            open: Some(OpenFor::ReadWrite),
        };
        rig.call(1, Call::Create(create));
        let asked = rig.take();
        let reply = Reply { flags: reply_flag::FROM_SLOT, ..rig.reply(&asked) };
        let created = Created { attr: attr(FILE, 0), made };
        rig.send(asked.conn, reply, &created.to_bytes(), None);
        let reopen = rig.take();
        assert_eq!(reopen.head.op, Op::Reopen);
        rig.fail(&reopen, status);
        match rig.outcome() {
            Ok(Answer::Created { made: answered, .. }) => {
                assert!(answered && gone.contains(&status))
            }
            outcome => assert!(outcome == Err(status) && (!made || !gone.contains(&status))),
        }
    }
}

#[test]
fn a_close_answered_from_the_slot_is_said_once_more() {
    let (mut rig, handle) = rig_with_handle(false);
    rig.call(2, Call::Close(handle));
    let asked = rig.take();
    assert_eq!(asked.head.op, Op::Close);
    let reply = Reply { flags: reply_flag::FROM_SLOT, ..rig.reply(&asked) };
    rig.send(asked.conn, reply, &[], None);
    let again = rig.take();
    assert_eq!((again.head.op, &again.body), (Op::Close, &asked.body));
    rig.fail(&again, Status::BadHandle);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    assert_eq!(rig.client.open_count(), 0);
}

#[test]
fn acknowledgements_name_exactly_the_replies_received() {
    let mut dice = Dice(42);
    for _ in 0..50 {
        let start = 1 << 61;
        let mut session = Session::new(start);
        let mut last = start;
        let mut open = BTreeSet::new();
        for _ in 0..300 {
            if open.is_empty() || dice.roll(100) < 55 {
                last += 1;
                assert_eq!(session.begin(7), Xid(last));
                open.insert(last);
            } else {
                let nth = usize::try_from(dice.roll(open.len() as u64)).unwrap();
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
fn every_slot_up_to_64_can_be_taken() {
    let mut session = Session::new(0);
    let slots: Vec<_> = (0..64).filter_map(|_| session.take_slot(64, true)).collect();
    assert_eq!(slots, (1..=64).collect::<Vec<_>>());
    assert_eq!(session.take_slot(64, true), None);
    session.free_slot(64);
    assert_eq!(session.take_slot(64, false), None, "the last one is kept");
    session.free_slot(1);
    assert_eq!(session.take_slot(64, false), Some(1));
    assert_eq!(attr_flag::SIZE_AT_DATA, 1);
}
