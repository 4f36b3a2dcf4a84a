//! Order, ranges, cancellation and urgency of waiters.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use super::{Cause, Waiter, Waiters};
use crate::acknowledgements::{BatchNo, Gate};
use crate::request::{ReceivedFrame, Sizing};
use crate::request_header::SlotId;
use crate::request_header::Times;
use alloc::vec::Vec;
use interface::{BufId, Bulk, ConnId, NO_MAC, Seed};
use wire::{Contents, InodeNo, SessionId, ShardId, Transno};

fn waiters() -> Waiters {
    Waiters::new(Seed(1))
}

fn slot(slot: u16) -> Waiter {
    Waiter::Slot(SlotId { shard: ShardId::data(0), session: SessionId(1), slot })
}

fn slots(waiters: &[Waiter]) -> Vec<u16> {
    let slot = |waiter: &Waiter| match waiter {
        Waiter::Slot(slot_id) => slot_id.slot,
        other => panic!("no slot: {other:?}"),
    };
    waiters.iter().map(slot).collect()
}

fn batch(batch_no: BatchNo) -> Cause {
    Cause::Batch(Gate::of(ShardId::meta(0), batch_no))
}

fn write(transno: u64) -> Cause {
    Cause::Write(ShardId::data(0), Transno(transno))
}

fn received(conn: u64, buf: Option<u32>) -> Waiter {
    let bulk = |buf| Bulk { buf: BufId(buf), start: 0, bulk_bytes: 1, crc32c: None, mac: NO_MAC };
    Waiter::Received(ReceivedFrame {
        conn: ConnId(conn),
        times: Times::default(),
        frame: Vec::new(),
        bulk: buf.map(bulk),
    })
}

#[test]
fn waiters_proceed_in_the_order_in_which_they_came_and_once() {
    let mut waiters = waiters();
    let cause = batch(BatchNo(3));
    for number in [4, 2, 9] {
        waiters.suspend(cause.clone(), slot(number));
    }
    waiters.suspend(batch(BatchNo(4)), slot(1));
    assert!(waiters.has(&cause));
    assert_eq!(slots(&waiters.release(&cause)), [4, 2, 9]);
    assert!(!waiters.has(&cause));
    assert!(waiters.release(&cause).is_empty());
    assert!(waiters.has(&batch(BatchNo(4))), "another cause");
}

#[test]
fn durable_writes_release_what_depends_on_them_or_on_earlier_ones() {
    let mut waiters = waiters();
    for transno in [7, 5, 8] {
        let number = u16::try_from(transno).unwrap();
        waiters.suspend(write(transno), slot(number));
    }
    waiters.suspend(Cause::Write(ShardId::data(1), Transno(1)), slot(1));
    let durable = || write(0)..=write(7);
    assert_eq!(slots(&waiters.release_first(durable()).unwrap()), [5]);
    assert_eq!(slots(&waiters.release_first(durable()).unwrap()), [7]);
    assert!(waiters.release_first(durable()).is_none());
    assert!(waiters.has(&write(8)));
}

#[test]
fn an_ended_connection_takes_its_received_requests_along() {
    let mut waiters = waiters();
    for cause in [Cause::Recovery, Cause::Freeze, Cause::Containment, Cause::Reopening] {
        waiters.suspend(cause.clone(), received(1, Some(10)));
        waiters.suspend(cause.clone(), received(2, Some(20)));
        waiters.suspend(cause, received(1, None));
    }
    let bufs: Vec<BufId> = waiters.cancel(ConnId(1)).iter().map(|bulk| bulk.buf).collect();
    assert_eq!(bufs, [BufId(10); 4]);
    assert_eq!(waiters.release(&Cause::Freeze).len(), 1, "the other connection's");
    assert_eq!(waiters.cancel(ConnId(2)).len(), 3);
    assert!(!waiters.has(&Cause::Recovery));
}

#[test]
fn sizes_do_not_hurry_the_data_shards_and_replies_do() {
    let mut waiters = waiters();
    let sizing = Sizing { inode: InodeNo::ROOT, number: 1 };
    let contents = Contents { size_bytes: 1, allocated_bytes: 512, write_time: None };
    waiters.suspend(write(1), Waiter::Size(sizing, contents));
    assert!(!waiters.is_urgent());
    waiters.suspend(write(1), slot(1));
    waiters.suspend(batch(BatchNo(1)), slot(2));
    assert!(waiters.is_urgent());
    assert_eq!(waiters.release(&write(1)).len(), 2);
    assert!(!waiters.is_urgent());
}
