//! Appends to a file whose stripes are at two servers.

use super::FILE;
use super::harness::{Harness, ReceivedRequest, bulk};
use super::spread::{LAYOUT, UNIT, harness, offset};
use crate::{Answer, Call, Write};
use alloc::vec::Vec;
use wire::{
    ClearPrivileges, Contents, Glimpsed, Op, Reserve, Status, Wire as _, Written, request_flag,
};

fn append(bulk_bytes: u32) -> Call<'static> {
    let (inode, file_offset, append, sync, behind) = (FILE, 0, true, false, false);
    let (bulk, clears) = (Some(bulk(7, bulk_bytes)), ClearPrivileges::Nothing);
    Call::Write(Write { inode, file_offset, append, bulk, sync, clears, behind })
}

/// Takes the only request: the begin of an append, or its end.
fn take_reserve(harness: &mut Harness, wanted: bool) -> ReceivedRequest {
    let request = harness.take();
    let Reserve { inode, begins, .. } = Reserve::decode_all(&request.body).unwrap();
    assert_eq!((request.head.op, inode, begins), (Op::Reserve, FILE, wanted));
    assert_eq!((request.head.layout, request.bulk), (Some(LAYOUT), None));
    assert_eq!(request.head.shard, harness.shape.map.data_shard(FILE, 0), "the home shard");
    request
}

fn ends_at(harness: &mut Harness, request: &ReceivedRequest, size_bytes: u64) {
    let contents = Contents { size_bytes, allocated_bytes: 0, write_time: None };
    harness.answer(request, &Glimpsed { contents }.to_bytes());
}

/// Takes the only request: the write of a part.
fn take_part(harness: &mut Harness, at: u64, start: u32, bytes: u32) -> ReceivedRequest {
    let request = harness.take();
    let write = wire::Write::decode_all(&request.body).unwrap();
    assert_eq!((write.file_offset, write.append), (at, true));
    let bulk = request.bulk.unwrap();
    assert_eq!((bulk.start, bulk.bulk_bytes), (start, bytes));
    let stripe_index = LAYOUT.stripe(at);
    let shard = harness.shape.map.stripe_shard(FILE, LAYOUT, stripe_index);
    assert_eq!(request.head.shard, shard);
    request
}

fn is_written(harness: &mut Harness, request: &ReceivedRequest) {
    let written_bytes = request.bulk.map_or(0, |bulk| bulk.bulk_bytes);
    let written = Written { file_offset: offset(request), written_bytes };
    harness.answer(request, &written.to_bytes());
}

fn end(harness: &mut Harness) {
    let request = take_reserve(harness, false);
    ends_at(harness, &request, 0);
    assert_eq!(harness.client.busy_count(), 0);
}

fn answer(file_offset: u64, written_bytes: u32) -> Result<Answer, Status> {
    Ok(Answer::Written(Written { file_offset, written_bytes }))
}

#[test]
fn the_end_is_reserved_and_the_parts_are_written_in_order() {
    let mut harness = harness();
    harness.call(1, append(30));
    let request = take_reserve(&mut harness, true);
    ends_at(&mut harness, &request, UNIT - 10);
    let part = take_part(&mut harness, UNIT - 10, 0, 10);
    is_written(&mut harness, &part);
    assert!(harness.answers().is_empty(), "half of it");
    let part = take_part(&mut harness, UNIT, 10, 20);
    is_written(&mut harness, &part);
    assert_eq!(harness.outcome(), answer(UNIT - 10, 30));
    end(&mut harness);
}

#[test]
fn a_refused_part_reserves_the_end_again() {
    // Where the file ends then, and what becomes of the append.
    for (first, again, wanted) in [
        (true, UNIT - 10, answer(UNIT - 10, 30)),
        (true, UNIT - 5, answer(UNIT - 5, 30)),
        (false, UNIT, answer(UNIT - 10, 30)),
        (false, UNIT + 7, answer(UNIT - 10, 10)),
    ] {
        let mut harness = harness();
        harness.call(1, append(30));
        let request = take_reserve(&mut harness, true);
        ends_at(&mut harness, &request, UNIT - 10);
        let part = take_part(&mut harness, UNIT - 10, 0, 10);
        if first {
            harness.fail(&part, Status::Stale);
        } else {
            is_written(&mut harness, &part);
            let part = take_part(&mut harness, UNIT, 10, 20);
            harness.fail(&part, Status::Stale);
        }
        let request = take_reserve(&mut harness, true);
        assert!(Reserve::decode_all(&request.body).unwrap().again);
        ends_at(&mut harness, &request, again);
        while harness.requests.iter().any(|request| request.head.op == Op::Write) {
            let part = harness.take();
            is_written(&mut harness, &part);
        }
        assert_eq!(harness.outcome(), wanted);
        end(&mut harness);
    }
}

#[test]
fn a_part_that_fails_ends_the_append() {
    for (failed, wanted) in [(0, Err(Status::NoSpace)), (1, answer(UNIT - 10, 10))] {
        let mut harness = harness();
        harness.call(1, append(30));
        let request = take_reserve(&mut harness, true);
        ends_at(&mut harness, &request, UNIT - 10);
        for at in 0..=failed {
            let part = harness.take();
            if at == failed {
                harness.fail(&part, Status::NoSpace);
            } else {
                is_written(&mut harness, &part);
            }
        }
        assert_eq!(harness.outcome(), wanted);
        end(&mut harness);
    }
}

#[test]
fn an_append_that_cannot_reserve_the_end_has_failed() {
    let mut harness = harness();
    harness.call(1, append(30));
    let request = take_reserve(&mut harness, true);
    harness.fail(&request, Status::Io);
    assert_eq!(harness.outcome(), Err(Status::Io));
    end(&mut harness);
    harness.call(2, append(30));
    let request = take_reserve(&mut harness, true);
    ends_at(&mut harness, &request, LAYOUT.file_bytes_max() - 29);
    assert_eq!(harness.outcome(), Err(Status::TooLarge));
    end(&mut harness);
}

#[test]
fn appends_of_one_lane_run_one_after_another() {
    let mut harness = harness();
    (1..=3).for_each(|id| harness.call(id, append(10)));
    // The second one is interrupted while it waits.
    harness.interrupt(2);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    for (id, at) in [(1, 5), (3, 15)] {
        let request = take_reserve(&mut harness, true);
        ends_at(&mut harness, &request, at);
        let part = take_part(&mut harness, at, 0, 10);
        is_written(&mut harness, &part);
        assert_eq!(harness.outcome(), answer(at, 10), "{id}");
        let request = take_reserve(&mut harness, false);
        assert!(harness.requests.is_empty(), "the next one waits for the end of this one");
        ends_at(&mut harness, &request, 0);
    }
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn an_interrupted_append_ends_its_reservation() {
    let mut harness = harness();
    // While it waits for the reservation.
    harness.call(1, append(10));
    let request = take_reserve(&mut harness, true);
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    ends_at(&mut harness, &request, 5);
    end(&mut harness);
    // While a part is out: it is sent again without bytes, at its place.
    harness.call(2, append(10));
    let request = take_reserve(&mut harness, true);
    ends_at(&mut harness, &request, UNIT + 5);
    let part = take_part(&mut harness, UNIT + 5, 0, 10);
    harness.interrupt(2);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    let again = harness.take();
    assert_eq!((again.head.xid, again.head.shard), (part.head.xid, part.head.shard));
    assert_ne!(again.head.flags & request_flag::RESENT, 0);
    assert_eq!((offset(&again), again.bulk), (UNIT + 5, None));
    is_written(&mut harness, &again);
    end(&mut harness);
}

#[test]
fn an_append_that_the_home_shard_defers_is_asked_for_again() {
    let mut harness = harness();
    harness.call(1, append(10));
    let request = take_reserve(&mut harness, true);
    let later =
        wire::Reply { status: Status::RetryLater, retry_after_ms: 2, ..harness.reply(&request) };
    harness.send(request.conn, later, &[], None);
    assert!(harness.requests.is_empty());
    harness.wait_ms(2);
    let request = take_reserve(&mut harness, true);
    // An interrupt ends what only waits.
    let later = wire::Reply { xid: request.head.xid, ..later };
    harness.send(request.conn, later, &[], None);
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    let kinds: Vec<Op> = harness.requests.iter().map(|request| request.head.op).collect();
    assert_eq!(kinds.last(), Some(&Op::Reserve));
}
