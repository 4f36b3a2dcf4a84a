//! Requests of one call to the shards of two servers, and a map that is stale for one of them.

use super::harness::{Harness, ReceivedRequest, SECOND};
use super::servers::two_servers;
use super::{CALLER, attr};
use crate::{Answer, Call, Open, Sync};
use alloc::vec::Vec;
use wire::{
    Attr, Close, Contents, Entry, Glimpsed, InodeNo, Layout, Map, MapEpoch, Op, OpenFor, Reply,
    ServerId, ShardId, ShardRun, Status, Term, Wire, Written, attr_flag, request_flag,
};

/// A file whose metadata shard is at the second server, and its data shard at the first.
const FILE: InodeNo = InodeNo((5 << 48) | 78);
const OPEN: Call<'static> =
    Call::Open(Open { caller: CALLER, inode: FILE, open_for: OpenFor::ReadWrite, sizes: true });

fn entry() -> Vec<u8> {
    Entry { attr: attr(FILE, attr_flag::SIZE_AT_DATA) }.to_bytes()
}

fn glimpsed() -> Vec<u8> {
    let contents = Contents { size_bytes: 4711, allocated_bytes: 8192, write_time: None };
    Glimpsed { contents }.to_bytes()
}

fn sync() -> Call<'static> {
    Call::Sync(Sync { inode: FILE, contents: true, handle: None })
}

/// The next map, in which the second server has the data shards too.
fn data_moved(epoch: u64) -> Map {
    let before = two_servers(epoch, (1, 1));
    let run = |run: &ShardRun| {
        if run.first.is_data() { ShardRun { server: SECOND, term: Term(2), ..*run } } else { *run }
    };
    let runs: Vec<ShardRun> = before.runs().iter().map(run).collect();
    Map::new(MapEpoch(epoch), before.shard_counts(), before.servers().into(), runs.into()).unwrap()
}

/// The requests of a call, the first server's before the second's.
fn take_both(harness: &mut Harness, ops: (Op, Op)) -> (ReceivedRequest, ReceivedRequest) {
    let mut both: Vec<ReceivedRequest> = harness.requests.drain(..).collect();
    both.sort_unstable_by_key(|request| harness.server_of(request.conn));
    let [first, second] = <[ReceivedRequest; 2]>::try_from(both).expect("two requests");
    let servers = [&first, &second].map(|request| harness.server_of(request.conn));
    assert_eq!(servers, [ServerId::FIRST, SECOND], "one to each server");
    assert_eq!((first.head.op, second.head.op), ops);
    (first, second)
}

fn size(answer: Result<Answer, Status>) -> u64 {
    let Ok(Answer::Opened { attr: Attr { size_bytes, .. }, .. }) = answer else {
        panic!("not opened: {answer:?}")
    };
    size_bytes
}

#[test]
fn an_open_for_writing_asks_both_servers_at_once() {
    for first_answers_first in [false, true] {
        let mut harness = Harness::with_two_servers();
        harness.call(1, OPEN);
        let (glimpse, open) = take_both(&mut harness, (Op::Glimpse, Op::Open));
        assert_eq!(glimpse.head.shard, harness.shape.map.data_shard(FILE, 0));
        if first_answers_first {
            harness.answer(&glimpse, &glimpsed());
        }
        harness.answer(&open, &entry());
        if !first_answers_first {
            assert!(harness.answers().is_empty(), "the size is missing");
            harness.answer(&glimpse, &glimpsed());
        }
        assert_eq!(size(harness.outcome()), 4711);
    }
}

#[test]
fn a_failure_at_one_server_closes_what_the_other_has_opened() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, OPEN);
    let (glimpse, open) = take_both(&mut harness, (Op::Glimpse, Op::Open));
    harness.fail(&glimpse, Status::Io);
    assert!(harness.answers().is_empty(), "the open may still succeed");
    harness.answer(&open, &entry());
    assert_eq!(harness.outcome(), Err(Status::Io));
    let close = harness.take();
    assert_eq!((close.head.op, harness.server_of(close.conn)), (Op::Close, SECOND));
    let handle = wire::Open::decode_all(&open.body).unwrap().handle.id;
    assert_eq!(Close::decode_all(&close.body), Ok(Close { inode: FILE, handle }));
}

#[test]
fn a_sync_waits_for_the_server_that_restarts() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, sync());
    let (of_data, of_meta) = take_both(&mut harness, (Op::Sync, Op::Sync));
    let shards = (harness.shape.map.data_shard(FILE, 0), FILE.shard());
    assert_eq!((of_data.head.shard, of_meta.head.shard), shards);
    harness.answer(&of_data, &[]);
    harness.restart_second(two_servers(2, (1, 2)));
    assert!(harness.answers().is_empty());
    let again = harness.take();
    assert_eq!((again.head.op, again.head.shard), (Op::Sync, FILE.shard()));
    assert_eq!((harness.server_of(again.conn), again.head.map_epoch), (SECOND, MapEpoch(2)));
    assert!(harness.requests.is_empty(), "the first server has answered");
    harness.answer(&again, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

#[test]
fn a_map_that_is_stale_for_one_server_moves_its_request_alone() {
    for is_refused_first in [false, true] {
        let mut harness = Harness::with_two_servers();
        harness.call(1, OPEN);
        let (glimpse, open) = take_both(&mut harness, (Op::Glimpse, Op::Open));
        let newer = data_moved(3);
        harness.shape.map = newer.clone();
        if !is_refused_first {
            harness.answer(&open, &entry());
        }
        harness.refuse_map(&glimpse, &newer);
        assert_eq!(harness.client.map(), Some(&newer));
        let again = harness.take();
        assert_eq!((again.head.op, harness.server_of(again.conn)), (Op::Glimpse, SECOND));
        assert_eq!(again.head.xid, glimpse.head.xid);
        assert_eq!(again.head.map_epoch, MapEpoch(3));
        if is_refused_first {
            assert!(harness.requests.is_empty(), "the open stays where it is");
            harness.answer(&open, &entry());
        }
        assert!(harness.answers().is_empty());
        harness.answer(&again, &glimpsed());
        assert_eq!(size(harness.outcome()), 4711);
    }
}

#[test]
fn a_server_that_does_not_have_the_newer_map_yet_is_asked_again() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, OPEN);
    let (glimpse, open) = take_both(&mut harness, (Op::Glimpse, Op::Open));
    let newer = two_servers(3, (1, 1));
    harness.shape.map = newer.clone();
    harness.refuse_map(&glimpse, &newer);
    let again = harness.take();
    assert_eq!(harness.server_of(again.conn), ServerId::FIRST, "nothing has moved");
    harness.answer(&again, &glimpsed());
    harness.answer(&open, &entry());
    assert_eq!(size(harness.outcome()), 4711);
    // The second server is asked by a map that it does not have.
    harness.call(2, sync());
    let (of_data, of_meta) = take_both(&mut harness, (Op::Sync, Op::Sync));
    assert_eq!((of_data.head.map_epoch, of_meta.head.map_epoch), (MapEpoch(3), MapEpoch(3)));
    let later = Reply { status: Status::RetryLater, retry_after_ms: 20, ..harness.reply(&of_meta) };
    harness.send(of_meta.conn, later, &[], None);
    harness.answer(&of_data, &[]);
    assert!(harness.answers().is_empty() && harness.requests.is_empty());
    harness.wait_ms(20);
    let again = harness.take();
    assert_eq!((harness.server_of(again.conn), again.head.map_epoch), (SECOND, MapEpoch(3)));
    harness.answer(&again, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

#[test]
fn a_write_that_is_refused_for_its_map_keeps_its_slot_and_layout() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, OPEN);
    let (glimpse, open) = take_both(&mut harness, (Op::Glimpse, Op::Open));
    harness.answer(&open, &entry());
    harness.answer(&glimpse, &glimpsed());
    assert_eq!(size(harness.outcome()), 4711);
    let (bulk, clears) = (Some(super::harness::bulk(7, 9)), wire::ClearPrivileges::Nothing);
    let (inode, file_offset, append, sync) = (FILE, 0, false, false);
    let write = crate::Write { inode, file_offset, append, bulk, sync, clears, behind: false };
    harness.call(2, Call::Write(write));
    let refused = harness.take();
    assert_eq!(harness.server_of(refused.conn), ServerId::FIRST);
    let newer = data_moved(4);
    harness.shape.map = newer.clone();
    harness.refuse_map(&refused, &newer);
    let again = harness.take();
    assert_eq!(harness.server_of(again.conn), SECOND);
    assert_eq!(again.head.shard, newer.data_shard(FILE, 0));
    assert!(again.head.shard >= ShardId::data(0));
    let same = |request: &ReceivedRequest| {
        (request.head.xid, request.head.slot, request.head.layout, request.bulk)
    };
    assert_eq!(same(&again), same(&refused));
    assert_eq!(again.head.layout, Some(Layout::DEFAULT));
    assert_eq!(again.head.flags, request_flag::RESENT, "it may have been executed before");
    let written = Written { file_offset: 0, written_bytes: 9 };
    harness.durable(&again, 9, &written.to_bytes());
    assert_eq!(harness.outcome(), Ok(Answer::Written(written)));
}
