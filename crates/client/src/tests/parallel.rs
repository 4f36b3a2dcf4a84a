//! Plans with several requests out at the same time.

use super::harness::{Harness, ReceivedRequest};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Open};
use alloc::vec::Vec;
use wire::{
    Close, Contents, Entry, Getattr, Glimpsed, Op, OpenFor, Space, Status, Wire, attr_flag,
    reply_flag, request_flag,
};

const OPEN: Call<'static> =
    Call::Open(Open { caller: CALLER, inode: FILE, open_for: OpenFor::ReadWrite, sizes: true });

fn entry() -> Vec<u8> {
    Entry { attr: attr(FILE, attr_flag::SIZE_AT_DATA) }.to_bytes()
}

fn glimpsed() -> Vec<u8> {
    let contents = Contents { size_bytes: 4711, allocated_bytes: 8192, write_time: None };
    Glimpsed { contents }.to_bytes()
}

/// Takes two requests that left together.
fn take_two(harness: &mut Harness, ops: (Op, Op)) -> (ReceivedRequest, ReceivedRequest) {
    assert_eq!(harness.requests.len(), 2, "both leave in the same turn");
    let (one, two) = (harness.take(), harness.take());
    assert_eq!((one.head.op, two.head.op), ops);
    (one, two)
}

/// Opens the file for writing.
fn open(harness: &mut Harness) {
    harness.call(1, OPEN);
    let (open, glimpse) = take_two(harness, (Op::Open, Op::Glimpse));
    harness.answer(&open, &entry());
    harness.answer(&glimpse, &glimpsed());
    assert!(harness.outcome().is_ok());
}

#[test]
fn an_open_for_writing_asks_both_shards_at_once() {
    for glimpse_first in [false, true] {
        let mut harness = Harness::new(4);
        harness.call(1, OPEN);
        let mut sent = [harness.take(), harness.take()];
        sent.sort_unstable_by_key(|sent| sent.head.op == Op::Glimpse);
        let [open, glimpse] = sent;
        assert_eq!(glimpse.head.shard, harness.shape.map.data_shard(FILE, 0));
        if glimpse_first {
            harness.answer(&glimpse, &glimpsed());
        }
        harness.answer(&open, &entry());
        if !glimpse_first {
            assert!(harness.answers().is_empty(), "the size is missing");
            harness.answer(&glimpse, &glimpsed());
        }
        let Ok(Answer::Opened { attr, .. }) = harness.outcome() else { panic!("not opened") };
        assert_eq!(attr.size_bytes, 4711);
        assert_eq!(harness.client.open_count(), 1);
    }
}

#[test]
fn a_failed_glimpse_does_not_leave_the_handle_open() {
    for glimpse_first in [false, true] {
        let mut harness = Harness::new(1);
        harness.call(1, OPEN);
        let (open, glimpse) = take_two(&mut harness, (Op::Open, Op::Glimpse));
        let sent = wire::Open::decode_all(&open.body).unwrap().handle;
        if glimpse_first {
            harness.fail(&glimpse, Status::Io);
            assert!(harness.answers().is_empty(), "the open may still succeed");
            harness.answer(&open, &entry());
        } else {
            harness.answer(&open, &entry());
            harness.fail(&glimpse, Status::Io);
        }
        assert_eq!(harness.outcome(), Err(Status::Io));
        let close = harness.take();
        let wanted = Close { inode: FILE, handle: sent.id };
        assert_eq!(Close::decode_all(&close.body), Ok(wanted));
        harness.answer(&close, &[]);
        assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
    }
}

#[test]
fn a_failed_open_waits_for_the_glimpse() {
    let mut harness = Harness::new(1);
    harness.call(1, OPEN);
    let (open, glimpse) = take_two(&mut harness, (Op::Open, Op::Glimpse));
    harness.fail(&open, Status::Access);
    assert!(harness.answers().is_empty());
    harness.answer(&glimpse, &glimpsed());
    assert_eq!(harness.outcome(), Err(Status::Access));
    assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
}

#[test]
fn an_interrupted_open_is_closed_when_its_reply_comes() {
    let mut harness = Harness::new(1);
    harness.call(1, OPEN);
    let (open, _) = take_two(&mut harness, (Op::Open, Op::Glimpse));
    assert!(harness.interrupt(1));
    harness.wait_ms(1_500);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.hang_up();
    let resent = harness.take();
    assert_eq!((resent.head.op, resent.head.xid), (Op::Open, open.head.xid));
    assert_eq!(resent.head.flags, request_flag::RESENT);
    assert!(harness.requests.is_empty(), "no call waits for the glimpse");
    harness.answer(&resent, &entry());
    let close = harness.take();
    assert_eq!(close.head.op, Op::Close);
    harness.answer(&close, &[]);
    assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
}

#[test]
fn attributes_and_size_of_a_file_being_written_are_asked_at_once() {
    let mut harness = Harness::new(1);
    open(&mut harness);
    harness.call(2, Call::Getattr(Getattr { inode: FILE }));
    let (getattr, glimpse) = take_two(&mut harness, (Op::Getattr, Op::Glimpse));
    harness.answer(&glimpse, &glimpsed());
    harness.answer(&getattr, &entry());
    assert!(matches!(harness.outcome(), Ok(Answer::Entry(found)) if found.size_bytes == 4711));
    // Another client's close may have settled the size: what the metadata shard says counts.
    harness.call(3, Call::Getattr(Getattr { inode: FILE }));
    let (getattr, glimpse) = take_two(&mut harness, (Op::Getattr, Op::Glimpse));
    harness.answer(&getattr, &Entry { attr: attr(FILE, 0) }.to_bytes());
    harness.fail(&glimpse, Status::Stale);
    assert_eq!(harness.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
}

#[test]
fn a_close_from_the_slot_within_a_resize_is_sent_again() {
    let mut harness = Harness::new(1);
    let resize =
        crate::Resize { caller: CALLER, inode: FILE, size_bytes: 9, open_for_write: false };
    harness.call(1, Call::Resize(resize));
    let open = harness.take();
    harness.answer(&open, &entry());
    let truncate = harness.take();
    harness.fail(&truncate, Status::NoSpace);
    let close = harness.take();
    let reply = wire::Reply { flags: reply_flag::FROM_SLOT, ..harness.reply(&close) };
    harness.send(close.conn, reply, &[], None);
    let again = harness.take();
    assert_eq!((again.head.op, again.body), (Op::Close, close.body.clone()));
    assert!(harness.answers().is_empty());
    harness.answer(&ReceivedRequest { head: again.head, ..close }, &[]);
    assert_eq!(harness.outcome(), Err(Status::NoSpace));
    assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
}

#[test]
fn a_statfs_asks_all_lanes_at_once() {
    let mut harness = Harness::new(4);
    let space = |inode_count| Space {
        total_bytes: 1_000,
        free_bytes: 500,
        available_bytes: 400,
        inode_count,
        inode_free_count: 77,
        lane_count: 4,
    };
    harness.call(1, Call::Statfs);
    let first = harness.take();
    assert!(harness.requests.is_empty(), "without a map no other lane is known");
    harness.answer(&first, &space(1).to_bytes());
    assert_eq!(harness.requests.len(), 3);
    for inode_count in [10, 100, 1_000] {
        let request = harness.take();
        harness.answer(&request, &space(inode_count).to_bytes());
    }
    assert_eq!(harness.outcome(), Ok(Answer::Space(space(1_111))));
    harness.call(2, Call::Statfs);
    assert_eq!(harness.requests.len(), 4, "the map is known");
    for inode_count in [1_000, 1, 10, 100] {
        let request = harness.take();
        harness.answer(&request, &space(inode_count).to_bytes());
    }
    assert_eq!(harness.outcome(), Ok(Answer::Space(space(1_111))));
    harness.call(3, Call::Statfs);
    let request = harness.take();
    harness.fail(&request, Status::Io);
    while !harness.requests.is_empty() {
        assert!(harness.answers().is_empty());
        let request = harness.take();
        harness.answer(&request, &space(1).to_bytes());
    }
    assert_eq!(harness.outcome(), Err(Status::Io));
}
