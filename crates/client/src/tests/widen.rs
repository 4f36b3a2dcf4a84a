//! Requests about a file that is at one server until it has a second stripe.

use super::harness::{Harness, ReceivedRequest, bulk};
use super::spread::{LAYOUT, UNIT, glimpsed, harness, offset, take_all};
use super::{FILE, attr};
use crate::{Answer, Call, Sync, Write};
use alloc::vec::Vec;
use wire::{
    Attr, ClearPrivileges, Entry, Layout, Op, Reserve, ShardId, Status, SyncNarrow, Widen,
    Wire as _, Written,
};

const NARROW: Layout = Layout { narrow: true, ..LAYOUT };

fn growing() -> Harness {
    let mut harness = harness();
    harness.client.layouts = crate::layouts::Layouts::default();
    harness.client.layouts.learn(FILE, NARROW);
    harness
}

fn home(harness: &Harness) -> ShardId {
    harness.shape.map.data_shard(FILE, 0)
}

fn write(file_offset: u64, bulk_bytes: u32, append: bool) -> Call<'static> {
    let (inode, bulk, sync) = (FILE, Some(bulk(7, bulk_bytes)), false);
    let clears = ClearPrivileges::Nothing;
    Call::Write(Write { inode, file_offset, append, bulk, sync, clears, behind: false })
}

fn read(file_offset: u64) -> Call<'static> {
    Call::Read(wire::Read { inode: FILE, file_offset, read_bytes: 100, accesses: true })
}

fn written(request: &ReceivedRequest) -> Vec<u8> {
    let written_bytes = request.bulk.map_or(0, |bulk| bulk.bulk_bytes);
    Written { file_offset: offset(request), written_bytes }.to_bytes()
}

/// Takes the only request: a Widen.
fn take_widen(harness: &mut Harness) -> ReceivedRequest {
    let request = harness.take();
    assert_eq!((request.head.op, request.head.shard), (Op::Widen, home(harness)));
    assert_eq!(Widen::decode_all(&request.body).unwrap().inode, FILE);
    assert_eq!(request.head.layout, Some(LAYOUT), "as of a wide file");
    assert!(request.head.slot > 0, "it is sent again as any change is");
    request
}

#[test]
fn what_is_in_the_first_stripe_concerns_the_home_shard_alone() {
    let mut harness = growing();
    harness.call(1, write(UNIT - 20, 20, false));
    let request = harness.take();
    assert_eq!((request.head.shard, request.head.layout), (home(&harness), Some(NARROW)));
    harness.answer(&request, &written(&request));
    assert!(harness.outcome().is_ok());
    harness.call(2, write(0, 20, true));
    let request = harness.take();
    assert_eq!((request.head.op, request.head.shard), (Op::Write, home(&harness)), "no Reserve");
    harness.answer(&request, &written(&request));
    assert!(harness.outcome().is_ok());
    harness.call(3, read(UNIT + 5));
    let request = harness.take();
    assert_eq!((request.head.shard, request.head.layout), (home(&harness), Some(NARROW)));
    harness.answer(&request, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Bytes(None)), "nobody is asked for the size");
}

#[test]
fn a_write_behind_the_first_stripe_waits_until_the_file_is_wide() {
    let mut harness = growing();
    harness.call(1, write(UNIT - 10, 20, false));
    harness.call(2, write(3 * UNIT, 5, false));
    let widen = take_widen(&mut harness);
    harness.answer(&widen, &[]);
    let parts = take_all(&mut harness);
    let found: Vec<_> = parts.iter().map(|part| (offset(part), part.head.layout)).collect();
    assert_eq!(found, [UNIT - 10, UNIT, 3 * UNIT].map(|at| (at, Some(LAYOUT))));
    parts.iter().for_each(|part| harness.answer(part, &written(part)));
    assert_eq!(harness.answers().len(), 2);
    // It stays wide, whatever attributes say.
    harness.client.layouts.learn(FILE, NARROW);
    harness.call(3, write(0, 5, false));
    assert_eq!(harness.take().head.layout, Some(LAYOUT));
}

#[test]
fn a_widen_that_fails_fails_what_waits_for_it() {
    let mut harness = growing();
    harness.call(1, write(UNIT, 20, false));
    let widen = take_widen(&mut harness);
    harness.fail(&widen, Status::NoSpace);
    assert_eq!(harness.outcome(), Err(Status::NoSpace));
    harness.call(2, write(UNIT, 20, false));
    take_widen(&mut harness);
}

#[test]
fn an_append_that_finds_no_room_is_made_anew() {
    let mut harness = growing();
    harness.call(1, write(0, 30, true));
    let request = harness.take();
    harness.fail(&request, Status::MustWiden);
    let widen = take_widen(&mut harness);
    harness.answer(&widen, &[]);
    let reserve = harness.take();
    assert!(Reserve::decode_all(&reserve.body).unwrap().begins);
    assert_eq!((reserve.head.op, reserve.head.layout), (Op::Reserve, Some(LAYOUT)));
    harness.answer(&reserve, &glimpsed(UNIT + 7));
    let part = harness.take();
    assert_eq!((offset(&part), part.bulk), (UNIT + 7, Some(bulk(7, 30))));
    assert!(part.head.xid > request.head.xid || part.head.shard != request.head.shard);
}

#[test]
fn a_read_that_is_refused_is_made_anew_at_once() {
    let mut harness = growing();
    harness.call(1, read(UNIT + 5));
    let request = harness.take();
    harness.fail(&request, Status::MustWiden);
    let again = harness.take();
    assert_eq!((again.head.op, again.head.layout), (Op::Read, Some(LAYOUT)));
    assert_eq!(again.head.shard, super::spread::shard(1), "a reader may not be able to write");
    let found = Some(bulk(8, 100));
    harness.send(again.conn, harness.reply(&again), &[], found);
    assert_eq!(harness.outcome(), Ok(Answer::Bytes(found)));
}

/// Another lane has opened the file, and it is wide: two questions, once.
#[test]
fn a_read_without_a_layout_asks_for_one_when_the_file_is_wide() {
    let mut harness = harness();
    harness.client.layouts = crate::layouts::Layouts::default();
    harness.call(1, read(UNIT + 5));
    let request = harness.take();
    assert_eq!((request.head.shard, request.head.layout), (home(&harness), None));
    harness.fail(&request, Status::MustWiden);
    let getattr = harness.take();
    assert_eq!(getattr.head.op, Op::Getattr);
    let attr = Attr { layout: Some(NARROW), ..attr(FILE, 0) };
    harness.answer(&getattr, &Entry { attr }.to_bytes());
    let again = harness.take();
    assert_eq!((again.head.op, again.head.layout), (Op::Read, Some(LAYOUT)), "it is wide");
    assert_eq!(again.head.shard, super::spread::shard(1));
    harness.call(2, read(UNIT + 200));
    assert_eq!(harness.take().head.layout, Some(LAYOUT));
}

/// Takes the requests of a sync that go to data shards.
fn take_syncs(harness: &mut Harness) -> Vec<ReceivedRequest> {
    let all = harness.requests.drain(..).filter(|it| it.head.op == Op::Sync);
    all.filter(|it| it.head.shard.is_data()).collect()
}

#[test]
fn a_sync_of_a_narrow_file_goes_to_its_home_shard_alone() {
    let mut harness = growing();
    harness.call(1, Call::Sync(Sync { inode: FILE, contents: true, handle: None }));
    let [sync] = &take_syncs(&mut harness)[..] else { panic!("one request") };
    assert_eq!(sync.head.shard, home(&harness));
    assert_eq!(SyncNarrow::decode_all(&sync.body).unwrap().inode, FILE);
}

/// Another lane may have written to other shards.
#[test]
fn a_sync_that_is_refused_goes_to_all_shards() {
    let mut harness = growing();
    harness.call(1, Call::Sync(Sync { inode: FILE, contents: true, handle: None }));
    let names = harness.requests.iter().find(|it| !it.head.shard.is_data()).unwrap().clone();
    let sync = take_syncs(&mut harness).remove(0);
    harness.answer(&names, &[]);
    harness.fail(&sync, Status::MustWiden);
    let again = take_syncs(&mut harness);
    let mut shards: Vec<ShardId> = again.iter().map(|it| it.head.shard).collect();
    shards.sort_unstable();
    let mut wanted = [0, 1].map(super::spread::shard);
    wanted.sort_unstable();
    assert_eq!(shards, wanted);
    assert!(again.iter().all(|it| it.body.is_empty()), "it says nothing of the file");
    harness.answer(&again[0], &[]);
    assert!(harness.answers().is_empty(), "all have to answer");
    harness.answer(&again[1], &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    // From then on all are asked at once.
    harness.call(2, Call::Sync(Sync { inode: FILE, contents: true, handle: None }));
    assert_eq!(take_syncs(&mut harness).len(), 2);
}
