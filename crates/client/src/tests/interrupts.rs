//! Calls that are given up.

use super::rig::{Rig, bulk};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Open, Write};
use alloc::vec::Vec;
use wire::{Entry, Getattr, Name, Op, Status, Unlink, Wire, Written, request_flag};

const GETATTR: Call<'static> = Call::Getattr(Getattr { inode: FILE });

fn unlink() -> Call<'static> {
    Call::Unlink(Unlink { caller: CALLER, parent: FILE, name: Name::new(b"x").unwrap() })
}

fn write() -> Call<'static> {
    let bulk = Some(bulk(9, 4096));
    Call::Write(Write {
        inode: FILE,
        file_offset: 8,
        append: false,
        bulk,
        sync: false,
        clears: wire::ClearPrivileges::Nothing,
    })
}

fn entry() -> Vec<u8> {
    Entry { attr: attr(FILE, 0) }.to_bytes()
}

/// A rig whose server takes requests and is then gone.
fn rig_gone(call: Call<'_>) -> Rig {
    let mut rig = Rig::new(1);
    rig.call(1, call);
    rig.shape.listening = false;
    rig.hang_up();
    rig
}

#[test]
fn what_was_not_sent_is_dropped() {
    for call in [GETATTR, unlink(), write()] {
        let mut rig = Rig::new(1);
        rig.shape.listening = false;
        rig.call(1, call);
        assert!(rig.interrupt(1));
        assert_eq!(rig.outcome(), Err(Status::Interrupted));
        assert_eq!(rig.client.busy_count(), 0);
        assert!(!rig.interrupt(1), "it is known no more");
        rig.shape.listening = true;
        rig.wait_ms(1_000);
        assert!(rig.asked.is_empty());
    }
}

#[test]
fn a_slot_that_an_interrupted_call_would_have_taken_goes_to_the_next() {
    let mut rig = Rig::new(1);
    rig.shape.slot_count = 2;
    for call in 1..=3 {
        rig.call(call, unlink());
    }
    let first = rig.take();
    assert!(rig.asked.is_empty(), "one slot for calls that may wait");
    rig.interrupt(2);
    // In the turn in which the second would be sent, its time is up.
    rig.now_ms += 1_000;
    rig.answer(&first, &[]);
    assert_eq!(rig.answers().len(), 2, "the first is done, the second given up");
    let third = rig.take();
    rig.answer(&third, &[]);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
}

#[test]
fn what_is_about_to_be_sent_is_not_dropped() {
    let mut rig = Rig::new(1);
    rig.shape.slot_count = 2;
    rig.call(1, unlink());
    rig.call(2, unlink());
    rig.interrupt(2);
    assert!(rig.answers().is_empty());
    for _ in 0..2 {
        let asked = rig.take();
        rig.answer(&asked, &[]);
        assert_eq!(rig.outcome(), Ok(Answer::Done));
    }
}

#[test]
fn a_reply_within_a_second_wins() {
    let mut rig = Rig::new(1);
    rig.call(1, unlink());
    rig.interrupt(1);
    rig.wait_ms(999);
    assert!(rig.answers().is_empty());
    let asked = rig.take();
    rig.answer(&asked, &[]);
    assert_eq!(rig.outcome(), Ok(Answer::Done));
    rig.wait_ms(10);
    assert!(rig.answers().is_empty(), "answered once");
    assert!(rig.closed.is_empty());
}

#[test]
fn after_a_second_without_a_reply_the_caller_goes() {
    let mut rig = Rig::new(1);
    rig.call(1, unlink());
    rig.interrupt(1);
    rig.wait_ms(1_000);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    assert!(rig.closed.is_empty(), "no bytes of the caller's are on the way");
    let asked = rig.take();
    rig.call(2, unlink());
    assert_ne!(rig.take().head.slot, asked.head.slot, "the slot stays taken");
    rig.answer(&asked, &[]);
    assert!(rig.answers().is_empty());
    rig.call(3, unlink());
    assert_eq!(rig.take().head.slot, asked.head.slot, "until the reply");
}

#[test]
fn a_write_given_up_takes_its_bytes_along() {
    let mut rig = Rig::new(1);
    rig.call(1, write());
    let asked = rig.take();
    rig.interrupt(1);
    rig.wait_ms(1_000);
    assert_eq!(rig.closed, [asked.conn], "no send from that memory goes on");
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    // The slot is asked what became of it.
    let again = rig.take();
    assert_eq!((again.head.xid, again.head.slot), (asked.head.xid, asked.head.slot));
    assert_eq!((again.head.op, again.head.flags), (Op::Write, request_flag::RESENT));
    assert_eq!(again.bulk, None);
    let nothing = wire::Write {
        inode: FILE,
        file_offset: 0,
        append: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    assert_eq!(wire::Write::decode_all(&again.body), Ok(nothing));
    rig.answer(&again, &Written { file_offset: 8, written_bytes: 4096 }.to_bytes());
    assert!(rig.answers().is_empty());
    assert_eq!(rig.client.busy_count(), 0);
}

#[test]
fn with_the_server_gone_the_caller_goes_at_once() {
    let mut rig = rig_gone(GETATTR);
    rig.interrupt(1);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    rig.shape.listening = true;
    rig.wait_ms(1_000);
    assert!(rig.asked.is_empty(), "a question is forgotten");

    let mut rig = rig_gone(unlink());
    rig.interrupt(1);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    rig.call(2, GETATTR);
    rig.shape.listening = true;
    rig.wait_ms(1_000);
    let again = rig.take();
    assert_eq!((again.head.op, again.head.flags), (Op::Unlink, request_flag::RESENT));
    rig.answer(&again, &[]);
    assert!(rig.answers().is_empty());

    let mut rig = rig_gone(write());
    rig.interrupt(1);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    rig.call(2, GETATTR);
    rig.shape.listening = true;
    rig.wait_ms(1_000);
    assert_eq!(rig.take().bulk, None);
}

#[test]
fn a_server_that_goes_while_an_interrupt_waits_ends_the_waiting() {
    let mut rig = Rig::new(1);
    rig.call(1, unlink());
    rig.interrupt(1);
    rig.shape.listening = false;
    rig.hang_up();
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
}

#[test]
fn an_open_that_nobody_waits_for_is_closed() {
    let mut rig = Rig::new(1);
    let open = Open { caller: CALLER, inode: FILE, open_for: wire::OpenFor::Read, sizes: false };
    rig.call(1, Call::Open(open));
    rig.interrupt(1);
    rig.wait_ms(1_000);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    let asked = rig.take();
    rig.answer(&asked, &entry());
    let close = rig.take();
    assert_eq!(close.head.op, Op::Close);
    rig.answer(&close, &[]);
    assert_eq!((rig.client.open_count(), rig.client.busy_count()), (0, 0));
}

#[test]
fn bytes_read_for_nobody_are_released() {
    let mut rig = Rig::new(1);
    rig.call(
        1,
        Call::Read(wire::Read { inode: FILE, file_offset: 0, read_bytes: 10, accesses: true }),
    );
    rig.interrupt(1);
    rig.wait_ms(1_000);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    let asked = rig.take();
    let reply = rig.reply(&asked);
    rig.send(asked.conn, reply, &[], Some(bulk(3, 10)));
    assert_eq!(rig.released, [interface::BufId(3)]);
    assert_eq!(rig.client.busy_count(), 0);
}

#[test]
fn an_interrupt_lets_the_rest_of_a_call_go_on_for_a_while() {
    let mut rig = Rig::new(1);
    rig.call(1, GETATTR);
    rig.interrupt(1);
    let asked = rig.take();
    let found = Entry { attr: attr(FILE, wire::attr_flag::SIZE_AT_DATA) };
    rig.answer(&asked, &found.to_bytes());
    assert!(rig.answers().is_empty());
    assert_eq!(rig.take().head.op, Op::Glimpse);
    rig.wait_ms(1_000);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
}
