//! Interrupted calls.

use super::harness::{Harness, bulk};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Open, Write};
use alloc::vec::Vec;
use wire::{Entry, Getattr, Name, Op, Status, Unlink, Wire, Written, request_flag};

const GETATTR: Call<'static> = Call::Getattr(Getattr { inode: FILE });

fn unlink() -> Call<'static> {
    Call::Unlink(Unlink {
        caller: CALLER,
        parent: FILE,
        name: Name::new(b"x").unwrap(),
        behind: None,
    })
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
        behind: false,
    })
}

fn entry() -> Vec<u8> {
    Entry { attr: attr(FILE, 0) }.to_bytes()
}

/// A harness whose server accepts requests and then goes away.
fn harness_without_server(call: Call<'_>) -> Harness {
    let mut harness = Harness::new(1);
    harness.call(1, call);
    harness.shape.listening = false;
    harness.hang_up();
    harness
}

#[test]
fn unsent_requests_are_dropped() {
    for call in [GETATTR, unlink(), write()] {
        let mut harness = Harness::new(1);
        harness.shape.listening = false;
        harness.call(1, call);
        assert!(harness.interrupt(1));
        assert_eq!(harness.outcome(), Err(Status::Interrupted));
        assert_eq!(harness.client.busy_count(), 0);
        assert!(!harness.interrupt(1), "the call has ended");
        harness.shape.listening = true;
        harness.wait_ms(1_000);
        assert!(harness.requests.is_empty());
    }
}

#[test]
fn the_slot_of_an_interrupted_call_goes_to_the_next() {
    let mut harness = Harness::new(1);
    harness.shape.slot_count = 2;
    for call in 1..=3 {
        harness.call(call, unlink());
    }
    let first = harness.take();
    assert!(harness.requests.is_empty(), "one slot for calls that may wait");
    harness.interrupt(2);
    // The second call's time is up in the turn in which it would be sent.
    harness.now_ms += 1_000;
    harness.answer(&first, &[]);
    assert_eq!(harness.answers().len(), 2, "the first is done, the second abandoned");
    let third = harness.take();
    harness.answer(&third, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

#[test]
fn a_request_about_to_be_sent_is_not_dropped() {
    let mut harness = Harness::new(1);
    harness.shape.slot_count = 2;
    harness.call(1, unlink());
    harness.call(2, unlink());
    harness.interrupt(2);
    assert!(harness.answers().is_empty());
    for _ in 0..2 {
        let request = harness.take();
        harness.answer(&request, &[]);
        assert_eq!(harness.outcome(), Ok(Answer::Done));
    }
}

#[test]
fn a_reply_within_a_second_wins() {
    let mut harness = Harness::new(1);
    harness.call(1, unlink());
    harness.interrupt(1);
    harness.wait_ms(999);
    assert!(harness.answers().is_empty());
    let request = harness.take();
    harness.answer(&request, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    harness.wait_ms(10);
    assert!(harness.answers().is_empty(), "answered once");
    assert!(harness.closed.is_empty());
}

#[test]
fn after_a_second_without_a_reply_the_call_is_interrupted() {
    let mut harness = Harness::new(1);
    harness.call(1, unlink());
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    assert!(harness.closed.is_empty(), "no bytes of the caller's are in flight");
    let request = harness.take();
    harness.call(2, unlink());
    assert_ne!(harness.take().head.slot, request.head.slot, "the slot stays taken");
    harness.answer(&request, &[]);
    assert!(harness.answers().is_empty());
    harness.call(3, unlink());
    assert_eq!(harness.take().head.slot, request.head.slot, "until the reply");
}

#[test]
fn an_abandoned_write_is_resent_without_bytes() {
    let mut harness = Harness::new(1);
    harness.call(1, write());
    let request = harness.take();
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.closed, [request.conn], "no send from that memory continues");
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    // The slot is asked for the write's outcome.
    let again = harness.take();
    assert_eq!((again.head.xid, again.head.slot), (request.head.xid, request.head.slot));
    assert_eq!((again.head.op, again.head.flags), (Op::Write, request_flag::RESENT));
    assert_eq!(again.bulk, None);
    let nothing = wire::Write {
        inode: FILE,
        file_offset: 8,
        append: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    assert_eq!(wire::Write::decode_all(&again.body), Ok(nothing));
    harness.answer(&again, &Written { file_offset: 8, written_bytes: 4096 }.to_bytes());
    assert!(harness.answers().is_empty());
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn without_a_server_a_call_is_interrupted_at_once() {
    let mut harness = harness_without_server(GETATTR);
    harness.interrupt(1);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.shape.listening = true;
    harness.wait_ms(1_000);
    assert!(harness.requests.is_empty(), "a request that changes nothing is dropped");

    let mut harness = harness_without_server(unlink());
    harness.interrupt(1);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.call(2, GETATTR);
    harness.shape.listening = true;
    harness.wait_ms(1_000);
    let again = harness.take();
    assert_eq!((again.head.op, again.head.flags), (Op::Unlink, request_flag::RESENT));
    harness.answer(&again, &[]);
    assert!(harness.answers().is_empty());

    let mut harness = harness_without_server(write());
    harness.interrupt(1);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.call(2, GETATTR);
    harness.shape.listening = true;
    harness.wait_ms(1_000);
    assert_eq!(harness.take().bulk, None);
}

#[test]
fn a_lost_server_ends_the_wait_of_an_interrupted_call() {
    let mut harness = Harness::new(1);
    harness.call(1, unlink());
    harness.interrupt(1);
    harness.shape.listening = false;
    harness.hang_up();
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
}

#[test]
fn an_open_without_a_caller_is_closed() {
    let mut harness = Harness::new(1);
    let open = Open { caller: CALLER, inode: FILE, open_for: wire::OpenFor::Read, sizes: false };
    harness.call(1, Call::Open(open));
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    let request = harness.take();
    harness.answer(&request, &entry());
    let close = harness.take();
    assert_eq!(close.head.op, Op::Close);
    harness.answer(&close, &[]);
    assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
}

#[test]
fn bytes_read_without_a_caller_are_released() {
    let mut harness = Harness::new(1);
    harness.call(
        1,
        Call::Read(wire::Read { inode: FILE, file_offset: 0, read_bytes: 10, accesses: true }),
    );
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    let request = harness.take();
    let reply = harness.reply(&request);
    harness.send(request.conn, reply, &[], Some(bulk(3, 10)));
    assert_eq!(harness.released, [interface::BufId(3)]);
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn an_interrupted_call_may_continue_for_a_while() {
    let mut harness = Harness::new(1);
    harness.call(1, GETATTR);
    harness.interrupt(1);
    let request = harness.take();
    let found = Entry { attr: attr(FILE, wire::attr_flag::SIZE_AT_DATA) };
    harness.answer(&request, &found.to_bytes());
    assert!(harness.answers().is_empty());
    assert_eq!(harness.take().head.op, Op::Glimpse);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
}
