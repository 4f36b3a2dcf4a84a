//! A data request states its file's layout, which comes with the attributes of an open or is
//! requested.

use super::harness::{Harness, bulk};
use super::{CALLER, attr};
use crate::{Answer, Call, Open, Resize, Write};
use alloc::vec::Vec;
use wire::{Attr, Entry, InodeNo, Layout, Op, OpenFor, Read, Status, Wire, Written};

/// Not opened yet.
const OTHER: InodeNo = InodeNo((3 << 48) | 78);
const LAYOUT: Layout = Layout { stripe_unit_bytes: 1 << 16, stripe_count: 1, narrow: false };

fn write() -> Call<'static> {
    let (bulk, clears) = (Some(bulk(7, 9)), wire::ClearPrivileges::Nothing);
    let (file_offset, append, sync) = (1 << 20, false, false);
    Call::Write(Write { inode: OTHER, file_offset, append, bulk, sync, clears, behind: false })
}

fn read() -> Call<'static> {
    Call::Read(Read { inode: OTHER, file_offset: 5, read_bytes: 9, accesses: true })
}

fn entry(layout: Option<Layout>) -> Vec<u8> {
    Entry { attr: Attr { layout, ..attr(OTHER, 0) } }.to_bytes()
}

fn written() -> Vec<u8> {
    Written { file_offset: 1 << 20, written_bytes: 9 }.to_bytes()
}

#[test]
fn an_open_brings_the_layout() {
    let mut harness = Harness::new(2);
    let open_for = OpenFor::ReadWrite;
    harness.call(1, Call::Open(Open { caller: CALLER, inode: OTHER, open_for, sizes: false }));
    let open = harness.take();
    assert_eq!(open.head.layout, None, "it is no request about contents");
    harness.answer(&open, &entry(Some(LAYOUT)));
    assert!(matches!(harness.outcome(), Ok(Answer::Opened { .. })));
    for (id, call, op) in [(2, write(), Op::Write), (3, read(), Op::Read)] {
        harness.call(id, call);
        let request = harness.take();
        assert_eq!((request.head.op, request.head.layout), (op, Some(LAYOUT)));
        assert_eq!(request.head.shard, harness.shape.map.data_shard(OTHER, 0));
        harness.answer(&request, &if op == Op::Write { written() } else { Vec::new() });
        assert!(harness.outcome().is_ok());
    }
}

#[test]
fn writes_wait_for_a_layout_that_is_requested_once() {
    let mut harness = Harness::new(2);
    harness.call(1, write());
    let getattr = harness.take();
    assert_eq!(getattr.head.op, Op::Getattr);
    harness.call(2, write());
    assert!(harness.requests.is_empty(), "it waits for the same reply");
    harness.answer(&getattr, &entry(Some(LAYOUT)));
    for _ in 0..2 {
        let request = harness.take();
        assert_eq!((request.head.op, request.head.layout), (Op::Write, Some(LAYOUT)));
        assert_eq!(request.bulk, Some(bulk(7, 9)));
        harness.answer(&request, &written());
        assert!(matches!(harness.outcome(), Ok(Answer::Written(_))));
    }
    assert!(harness.requests.is_empty());
}

#[test]
fn a_read_needs_no_layout() {
    let mut harness = Harness::new(2);
    harness.call(1, read());
    let request = harness.take();
    assert_eq!((request.head.op, request.head.layout), (Op::Read, None));
    assert_eq!(request.head.shard, harness.shape.map.data_shard(OTHER, 0));
}

#[test]
fn a_write_fails_with_the_request_for_its_layout() {
    let mut harness = Harness::new(1);
    harness.call(1, write());
    let getattr = harness.take();
    harness.fail(&getattr, Status::Stale);
    assert_eq!(harness.outcome(), Err(Status::Stale));
    harness.call(2, write());
    let getattr = harness.take();
    harness.answer(&getattr, &entry(None));
    assert_eq!(harness.outcome(), Err(Status::Invalid), "only files have contents");
}

#[test]
fn a_lost_connection_does_not_lose_the_request_for_a_layout() {
    let mut harness = Harness::new(1);
    harness.call(1, write());
    assert_eq!(harness.take().head.op, Op::Getattr);
    harness.hang_up();
    let getattr = harness.take();
    assert_eq!(getattr.head.op, Op::Getattr);
    harness.answer(&getattr, &entry(Some(LAYOUT)));
    assert_eq!(harness.take().head.op, Op::Write);
}

#[test]
fn a_write_that_waits_for_its_layout_can_be_interrupted() {
    let mut harness = Harness::new(1);
    harness.call(1, write());
    let getattr = harness.take();
    assert!(harness.interrupt(1));
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.answer(&getattr, &entry(Some(LAYOUT)));
    assert!(harness.requests.is_empty(), "it is not written any more");
}

#[test]
fn a_change_of_size_uses_the_layout_of_its_own_open() {
    let mut harness = Harness::new(1);
    let (size_bytes, open_for_write) = (1 << 20, false);
    harness
        .call(1, Call::Resize(Resize { caller: CALLER, inode: OTHER, size_bytes, open_for_write }));
    let open = harness.take();
    assert_eq!(open.head.op, Op::Open);
    harness.answer(&open, &entry(Some(LAYOUT)));
    let truncate = harness.take();
    assert_eq!((truncate.head.op, truncate.head.layout), (Op::Truncate, Some(LAYOUT)));
}
