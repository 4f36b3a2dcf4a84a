//! Requests about a file whose stripes are at two servers.

use super::harness::{Harness, ReceivedRequest, SECOND, bulk};
use super::servers::two_data_servers;
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Open, Sync, Write, WriteList};
use alloc::vec::Vec;
use interface::{Bulk, Event, MountMessage, PeerEvent};
use wire::{
    Attr, ClearPrivileges, Contents, Entry, Glimpsed, InodeNo, LaneId, Layout, Op, OpenFor, Piece,
    Pieces, Read, ServerId, ShardId, Status, Wire, Written, attr_flag, request_flag,
};

pub(super) const UNIT: u64 = 1 << 16;
pub(super) const LAYOUT: Layout =
    Layout { stripe_unit_bytes: UNIT, stripe_count: 2, narrow: false };

/// Two servers, each with one half of the file.
pub(super) fn harness() -> Harness {
    let mut harness = Harness::new(2);
    harness.shape.map = two_data_servers(1, (1, 1));
    harness.second_boot_id = Some(1);
    harness.client.layouts.learn(FILE, LAYOUT);
    harness
}

fn write(file_offset: u64, bulk_bytes: u32) -> Call<'static> {
    let (inode, append, bulk, sync) = (FILE, false, Some(bulk(7, bulk_bytes)), false);
    let clears = ClearPrivileges::Nothing;
    Call::Write(Write { inode, file_offset, append, bulk, sync, clears, behind: false })
}

fn read(file_offset: u64, read_bytes: u32) -> Call<'static> {
    Call::Read(Read { inode: FILE, file_offset, read_bytes, accesses: true })
}

/// Takes all requests, in the order of their first bytes.
pub(super) fn take_all(harness: &mut Harness) -> Vec<ReceivedRequest> {
    let mut all: Vec<ReceivedRequest> = harness.requests.drain(..).collect();
    all.sort_by_key(offset);
    all
}

pub(super) fn offset(request: &ReceivedRequest) -> u64 {
    match request.head.op {
        Op::Write => wire::Write::decode_all(&request.body).unwrap().file_offset,
        Op::Read => Read::decode_all(&request.body).unwrap().file_offset,
        _ => 0,
    }
}

pub(super) fn shard(stripe_index: u32) -> ShardId {
    two_data_servers(1, (1, 1)).stripe_shard(FILE, LAYOUT, stripe_index)
}

fn written(request: &ReceivedRequest) -> Vec<u8> {
    let written_bytes = request.bulk.map_or(0, |bulk| bulk.bulk_bytes);
    Written { file_offset: offset(request), written_bytes }.to_bytes()
}

fn part(of: Bulk, start: u32, bulk_bytes: u32) -> Option<Bulk> {
    Some(Bulk { start, bulk_bytes, crc32c: None, ..of })
}

pub(super) fn glimpsed(size_bytes: u64) -> Vec<u8> {
    let contents = Contents { size_bytes, allocated_bytes: 0, write_time: None };
    Glimpsed { contents }.to_bytes()
}

#[test]
fn a_write_is_split_at_the_ends_of_stripes() {
    let mut harness = harness();
    harness.call(1, write(UNIT - 10, 20 + (1 << 16)));
    let parts = take_all(&mut harness);
    let of = bulk(7, 20 + (1 << 16));
    let found: Vec<_> = parts.iter().map(|part| (offset(part), part.bulk)).collect();
    let wanted = [
        (UNIT - 10, part(of, 0, 10)),
        (UNIT, part(of, 10, 1 << 16)),
        (2 * UNIT, part(of, 10 + (1 << 16), 10)),
    ];
    assert_eq!(found, wanted);
    for (index, part) in (0..).zip(&parts) {
        assert_eq!((part.head.shard, part.head.layout), (shard(index), Some(LAYOUT)));
    }
    let servers = [0, 1].map(|at| harness.server_of(parts[at].conn));
    assert!(servers.contains(&ServerId::FIRST) && servers.contains(&SECOND), "one at each");
    for part in parts.iter().rev() {
        assert!(harness.answers().is_empty(), "not all have replied");
        harness.answer(part, &written(part));
    }
    let all = Written { file_offset: UNIT - 10, written_bytes: 20 + (1 << 16) };
    assert_eq!(harness.outcome(), Ok(Answer::Written(all)));
}

#[test]
fn what_lies_in_one_stripe_is_one_request() {
    let mut harness = harness();
    harness.call(1, write(UNIT + 5, 100));
    let request = harness.take();
    assert_eq!((request.bulk, request.head.shard), (Some(bulk(7, 100)), shard(1)));
    harness.answer(&request, &written(&request));
    assert!(harness.outcome().is_ok());
    harness.call(2, read(UNIT + 5, 100));
    let request = harness.take();
    assert_eq!(request.head.shard, shard(1));
    let found = Some(bulk(8, 100));
    harness.send(request.conn, harness.reply(&request), &[], found);
    assert_eq!(harness.outcome(), Ok(Answer::Bytes(found)), "the buffer as it came");
    assert!(harness.released.is_empty());
}

#[test]
fn a_write_is_short_where_a_part_has_failed() {
    for (failed, status, expected) in [
        (0, Status::NoSpace, Err(Status::NoSpace)),
        (1, Status::NoSpace, Ok(10)),
        (2, Status::NoSpace, Ok(10 + (1 << 16))),
        (2, Status::NeedClearPrivileges, Err(Status::NeedClearPrivileges)),
    ] {
        let mut harness = harness();
        harness.call(1, write(UNIT - 10, 20 + (1 << 16)));
        for (at, part) in take_all(&mut harness).iter().enumerate() {
            if at == failed {
                harness.fail(part, status);
            } else {
                harness.answer(part, &written(part));
            }
        }
        let written = |written_bytes| Written { file_offset: UNIT - 10, written_bytes };
        assert_eq!(harness.outcome(), expected.map(|bytes| Answer::Written(written(bytes))));
    }
}

#[test]
fn what_leaves_a_page_cache_is_written_as_a_whole_or_fails() {
    let mut harness = harness();
    let Call::Write(write) = write(UNIT - 10, 20) else { panic!("a write") };
    harness.call(1, Call::WriteBack(write));
    let parts = take_all(&mut harness);
    assert!(parts.iter().all(|part| part.head.flags & request_flag::WRITE_BACK != 0));
    harness.answer(&parts[0], &written(&parts[0]));
    harness.fail(&parts[1], Status::Io);
    assert_eq!(harness.outcome(), Err(Status::Io));
}

#[test]
fn what_is_missing_in_a_part_is_read_again_below_the_size() {
    let mut harness = harness();
    harness.call(1, read(UNIT - 4, 10));
    let parts = take_all(&mut harness);
    let accesses = |request: &ReceivedRequest| Read::decode_all(&request.body).unwrap().accesses;
    assert_eq!(parts.iter().map(accesses).collect::<Vec<_>>(), [true, false], "one access");
    // Two bytes of the first stripe, none of the second.
    let found = harness.state.bufs.put(b"ab".to_vec());
    harness.send(parts[0].conn, harness.reply(&parts[0]), &[], Some(found));
    harness.answer(&parts[1], &[]);
    let glimpse = harness.take();
    assert_eq!((glimpse.head.op, glimpse.head.shard), (Op::Glimpse, shard(0)));
    assert_eq!(glimpse.head.layout, Some(LAYOUT));
    harness.answer(&glimpse, &glimpsed(UNIT + 3));
    // The file has grown meanwhile.
    let again = take_all(&mut harness);
    let ranges = |request: &ReceivedRequest| {
        let Read { file_offset, read_bytes, .. } = Read::decode_all(&request.body).unwrap();
        (file_offset, read_bytes)
    };
    let ranges: Vec<_> = again.iter().map(ranges).collect();
    assert_eq!(ranges, [(UNIT - 2, 2), (UNIT, 3)]);
    harness.answer(&again[0], &[]);
    let found = harness.state.bufs.put(b"xyz".to_vec());
    harness.send(again[1].conn, harness.reply(&again[1]), &[], Some(found));
    let Ok(Answer::Bytes(Some(bulk))) = harness.outcome() else { panic!("not read") };
    assert_eq!(harness.state.bufs.get(bulk), b"ab\0\0xyz");
    assert_eq!(harness.released.len(), 2, "the buffers of both parts");
}

#[test]
fn a_read_behind_the_end_has_no_bytes() {
    let mut harness = harness();
    harness.call(1, read(UNIT - 4, 10));
    for part in take_all(&mut harness) {
        harness.answer(&part, &[]);
    }
    let glimpse = harness.take();
    harness.answer(&glimpse, &glimpsed(7));
    assert_eq!(harness.outcome(), Ok(Answer::Bytes(None)));
}

#[test]
fn a_read_fails_with_its_first_part() {
    let mut harness = harness();
    harness.call(1, read(UNIT - 4, 10));
    let parts = take_all(&mut harness);
    let found = harness.state.bufs.put(b"abcdef".to_vec());
    harness.fail(&parts[0], Status::Io);
    harness.send(parts[1].conn, harness.reply(&parts[1]), &[], Some(found));
    assert_eq!(harness.outcome(), Err(Status::Io));
    assert_eq!(harness.released, [found.buf]);
}

#[test]
fn each_server_gets_its_own_part_again() {
    let mut harness = harness();
    harness.answers_recovery = false;
    harness.call(1, write(UNIT - 10, 30));
    let parts = take_all(&mut harness);
    for part in &parts {
        harness.token(part, 5, &written(part));
    }
    assert!(harness.outcome().is_ok());
    let [at_second] = [0, 1]
        .map(|at| &parts[at])
        .into_iter()
        .filter(|part| harness.server_of(part.conn) == SECOND)
        .collect::<Vec<_>>()[..]
    else {
        panic!("one part")
    };
    harness.restart_second(two_data_servers(2, (1, 2)));
    // Anything makes the client connect again.
    harness.call(2, read(offset(at_second), 1));
    let resume = harness.take_resume(at_second.head.shard);
    harness.resumed(&resume, 0, true);
    let replay = harness.take();
    assert_eq!((replay.head.op, replay.head.shard), (Op::Write, at_second.head.shard));
    assert_eq!(replay.head.flags, request_flag::REPLAY);
    let bytes = at_second.bulk.map(|bulk| bulk.bulk_bytes);
    assert_eq!(replay.bulk.map(|bulk| bulk.bulk_bytes), bytes, "no bytes of the other part");
}

#[test]
fn an_abandoned_part_is_resent_without_bytes_to_its_shard() {
    let mut harness = harness();
    harness.call(1, write(UNIT - 10, 30));
    let parts = take_all(&mut harness);
    harness.answer(&parts[0], &written(&parts[0]));
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    let again = harness.take();
    assert_eq!((again.head.xid, again.head.shard), (parts[1].head.xid, shard(1)));
    assert_eq!((offset(&again), again.bulk), (UNIT, None), "it is of that stripe");
    assert_eq!(again.head.layout, Some(LAYOUT));
    harness.answer(&again, &written(&parts[1]));
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn what_an_abandoned_read_has_found_is_released() {
    let mut harness = harness();
    harness.call(1, read(UNIT - 4, 10));
    let parts = take_all(&mut harness);
    let found = harness.state.bufs.put(b"abcd".to_vec());
    harness.send(parts[0].conn, harness.reply(&parts[0]), &[], Some(found));
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.answer(&parts[1], &[]);
    assert_eq!(harness.client.busy_count(), 0);
    assert_eq!(harness.released, [found.buf]);
    assert!(harness.requests.is_empty(), "the size does not matter any more");
}

#[test]
fn a_list_is_split_by_server() {
    let mut harness = harness();
    let piece = |file_offset, piece_bytes| Piece { file_offset, piece_bytes };
    let pieces = Vec::from([
        piece(0, 10),
        piece(100, 20),
        piece(UNIT - 5, 10),
        piece(UNIT + 50, 1),
        piece(4 * UNIT, 2),
    ]);
    let pieces = Pieces::new(pieces).unwrap();
    let (bulk, clears) = (Some(bulk(7, 43)), ClearPrivileges::Nothing);
    let list = WriteList { inode: FILE, pieces: &pieces, bulk, sync: false, clears };
    harness.call(1, Call::WriteList(list));
    let parts: Vec<ReceivedRequest> = harness.requests.drain(..).collect();
    let found = |request: &ReceivedRequest| {
        let list = wire::WriteList::decode_all(&request.body).unwrap();
        let places = list.pieces.iter().map(|piece| (piece.file_offset, piece.piece_bytes));
        let bulk = request.bulk.unwrap();
        (bulk.start, bulk.bulk_bytes, places.collect::<Vec<_>>())
    };
    let mut found: Vec<_> = parts.iter().map(found).collect();
    found.sort();
    assert_eq!(
        found,
        [
            (0, 35, Vec::from([(0, 10), (100, 20), (UNIT - 5, 5)])),
            (35, 6, Vec::from([(UNIT, 5), (UNIT + 50, 1)])),
            (41, 2, Vec::from([(4 * UNIT, 2)])),
        ]
    );
    for part in &parts {
        let written_bytes = part.bulk.map_or(0, |bulk| bulk.bulk_bytes);
        harness.answer(part, &Written { file_offset: 0, written_bytes }.to_bytes());
    }
    let all = Written { file_offset: 0, written_bytes: 43 };
    assert_eq!(harness.outcome(), Ok(Answer::Written(all)));
}

#[test]
fn a_list_in_any_order_fails_with_one_of_its_parts() {
    let mut harness = harness();
    let piece = |file_offset, piece_bytes| Piece { file_offset, piece_bytes };
    let pieces = Pieces::new(Vec::from([piece(UNIT, 5), piece(0, 5)])).unwrap();
    let (bulk, clears) = (Some(bulk(7, 10)), ClearPrivileges::Nothing);
    let list = WriteList { inode: FILE, pieces: &pieces, bulk, sync: false, clears };
    harness.call(1, Call::WriteList(list));
    let parts: Vec<ReceivedRequest> = harness.requests.drain(..).collect();
    for part in &parts {
        if part.head.shard == shard(0) {
            harness.fail(part, Status::NoSpace);
        } else {
            harness.answer(part, &Written { file_offset: UNIT, written_bytes: 5 }.to_bytes());
        }
    }
    assert_eq!(harness.outcome(), Err(Status::NoSpace));
}

#[test]
fn a_sync_goes_to_every_shard_of_the_file() {
    let mut harness = harness();
    harness.call(1, Call::Sync(Sync { inode: FILE, contents: true, handle: None }));
    let all: Vec<ReceivedRequest> = harness.requests.drain(..).collect();
    let mut shards: Vec<ShardId> = all.iter().map(|request| request.head.shard).collect();
    shards.sort_unstable();
    let mut wanted = [FILE.shard(), shard(0), shard(1)];
    wanted.sort_unstable();
    assert_eq!(shards, wanted);
    for request in &all {
        assert!(harness.answers().is_empty());
        harness.answer(request, &[]);
    }
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

#[test]
fn a_file_that_is_known_to_be_spread_needs_its_layout() {
    const OTHER: InodeNo = InodeNo((3 << 48) | 78);
    let read = Read { inode: OTHER, file_offset: UNIT + 1, read_bytes: 9, accesses: true };
    let sync = Call::Sync(Sync { inode: OTHER, contents: true, handle: None });
    for call in [Call::Read(read), sync] {
        let mut harness = harness();
        harness.client.expect_spread(OTHER);
        harness.call(1, call);
        let (getattr, others): (Vec<_>, Vec<_>) =
            harness.requests.drain(..).partition(|request| request.head.op == Op::Getattr);
        assert!(others.iter().all(|request| request.head.shard == OTHER.shard()));
        let attr = Attr { layout: Some(LAYOUT), ..attr(OTHER, 0) };
        harness.answer(&getattr[0], &Entry { attr }.to_bytes());
        let count = if matches!(call, Call::Read(_)) { 1 } else { 2 };
        assert_eq!(harness.requests.len(), count);
        let second = two_data_servers(1, (1, 1)).stripe_shard(OTHER, LAYOUT, 1);
        assert!(harness.requests.iter().any(|request| request.head.shard == second));
    }
}

#[test]
fn a_size_that_was_requested_without_the_layout_is_requested_again() {
    const OTHER: InodeNo = InodeNo((3 << 48) | 78);
    let mut harness = harness();
    let open_for = OpenFor::ReadWrite;
    harness.call(1, Call::Open(Open { caller: CALLER, inode: OTHER, open_for, sizes: true }));
    let (glimpse, open): (Vec<_>, Vec<_>) =
        harness.requests.drain(..).partition(|request| request.head.op == Op::Glimpse);
    assert_eq!(glimpse[0].head.layout, None);
    harness.answer(&glimpse[0], &glimpsed(5));
    let attr = Attr { layout: Some(LAYOUT), ..attr(OTHER, attr_flag::SIZE_AT_DATA) };
    harness.answer(&open[0], &Entry { attr }.to_bytes());
    let again = harness.take();
    assert_eq!((again.head.op, again.head.layout), (Op::Glimpse, Some(LAYOUT)));
    harness.answer(&again, &glimpsed(UNIT + 5));
    let Ok(Answer::Opened { attr, .. }) = harness.outcome() else { panic!("not opened") };
    assert_eq!(attr.size_bytes, UNIT + 5);
}

#[test]
fn what_concerns_all_of_a_file_goes_to_its_first_shard() {
    let (inode, file_offset) = (FILE, UNIT + 5);
    let resize =
        crate::Resize { caller: CALLER, inode, size_bytes: file_offset, open_for_write: true };
    let Call::Write(write) = write(file_offset, 2 << 16) else { panic!("a write") };
    for call in [Call::Resize(resize), Call::Write(Write { append: true, ..write })] {
        let mut harness = harness();
        harness.call(1, call);
        let request = harness.take();
        assert_eq!((request.head.shard, request.head.layout), (shard(0), Some(LAYOUT)));
        assert!(harness.requests.is_empty());
    }
}

/// Where the server has dropped the handle, parts of a removed file read like holes.
#[test]
fn a_file_with_holes_must_still_exist_after_an_eviction() {
    for status in [Status::Stale, Status::Ok] {
        let mut harness = harness();
        // It has a connection, as a client that is evicted.
        harness.call(1, read(0, 1));
        let first = harness.take();
        let one = harness.state.bufs.put(b"x".to_vec());
        harness.send(first.conn, harness.reply(&first), &[], Some(one));
        assert!(harness.outcome().is_ok());
        let message = MountMessage::Evicted { count: 1 };
        harness.event(Event::Peer(PeerEvent::Message { from: LaneId(0), message }));
        harness.wait_ms(1_000);
        harness.call(2, read(UNIT - 4, 10));
        let parts = take_all(&mut harness);
        let found = harness.state.bufs.put(b"abcd".to_vec());
        harness.send(parts[0].conn, harness.reply(&parts[0]), &[], Some(found));
        harness.answer(&parts[1], &[]);
        let (glimpse, getattr): (Vec<_>, Vec<_>) =
            harness.requests.drain(..).partition(|request| request.head.op == Op::Glimpse);
        assert_eq!(getattr[0].head.op, Op::Getattr);
        harness.answer(&glimpse[0], &glimpsed(UNIT));
        match status {
            Status::Ok => harness.answer(&getattr[0], &Entry { attr: attr(FILE, 0) }.to_bytes()),
            _ => harness.fail(&getattr[0], status),
        }
        match harness.outcome() {
            Ok(Answer::Bytes(Some(bulk))) => assert_eq!(harness.state.bufs.get(bulk), b"abcd"),
            failed => assert_eq!(failed, Err(Status::Stale)),
        }
    }
}

#[test]
fn what_no_file_can_reach_is_left_to_the_server() {
    let mut harness = harness();
    let most = LAYOUT.file_bytes_max();
    for call in [write(most - 1, 20), read(most + 5, 1 << 20)] {
        harness.call(1, call);
        let request = harness.take();
        assert!(harness.requests.is_empty());
        harness.fail(&request, Status::TooLarge);
        assert_eq!(harness.outcome(), Err(Status::TooLarge));
    }
    harness.call(1, read(most - 4, 10));
    let request = harness.take();
    assert_eq!(Read::decode_all(&request.body).unwrap().read_bytes, 4);
}

/// A write whose caller has its answer.
fn write_behind(file_offset: u64, bulk_bytes: u32) -> Call<'static> {
    let Call::Write(write) = write(file_offset, bulk_bytes) else { panic!("a write") };
    Call::Write(Write { append: true, behind: true, ..write })
}

#[test]
fn what_is_written_behind_is_sent_to_each_shard_in_order() {
    let unit_bytes = 1 << 16;
    let mut harness = harness();
    harness.call(1, write_behind(UNIT - 10, 10 + 3 * unit_bytes));
    let first = take_all(&mut harness);
    assert_eq!(first.iter().map(offset).collect::<Vec<_>>(), [UNIT - 10, UNIT], "one to each");
    let of = bulk(7, 10 + 3 * unit_bytes);
    assert_eq!(first[1].bulk, part(of, 10, unit_bytes));
    harness.answer(&first[1], &written(&first[1]));
    let next = harness.take();
    assert_eq!((offset(&next), next.bulk), (3 * UNIT, part(of, 10 + 2 * unit_bytes, unit_bytes)));
    harness.answer(&next, &written(&next));
    assert!(harness.requests.is_empty(), "the other shard has the rest");
    harness.answer(&first[0], &written(&first[0]));
    let last = harness.take();
    assert_eq!((offset(&last), last.head.shard), (2 * UNIT, shard(2)));
    for request in first.iter().chain([&next, &last]) {
        assert!(request.head.flags & request_flag::BEHIND != 0, "the server refuses it elsewhere");
        assert_eq!(request.head.layout, Some(LAYOUT));
    }
    harness.answer(&last, &written(&last));
    let all = Written { file_offset: UNIT - 10, written_bytes: 10 + 3 * unit_bytes };
    assert_eq!(harness.outcome(), Ok(Answer::Written(all)));
}

#[test]
fn what_is_written_behind_in_one_stripe_goes_to_its_shard() {
    let mut harness = harness();
    harness.call(1, write_behind(UNIT + 5, 100));
    let request = harness.take();
    assert_eq!((offset(&request), request.head.shard), (UNIT + 5, shard(1)));
    assert!(request.head.flags & request_flag::BEHIND != 0);
    harness.answer(&request, &written(&request));
    assert!(harness.outcome().is_ok());
}

#[test]
fn what_is_written_behind_is_written_as_a_whole_or_fails() {
    let mut harness = harness();
    harness.call(1, write_behind(0, 2 << 16));
    let parts = take_all(&mut harness);
    harness.answer(&parts[0], &written(&parts[0]));
    harness.fail(&parts[1], Status::Stale);
    assert_eq!(harness.outcome(), Err(Status::Stale));
}
