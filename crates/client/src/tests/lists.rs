//! Lists of pieces: requests, valid replies, retained copies, abandoned lists.

use super::FILE;
use super::harness::{Harness, bulk};
use crate::{Answer, Call, ReadList, WriteList};
use alloc::vec::Vec;
use wire::{
    ClearPrivileges, ListRead, Op, Piece, Pieces, Replay, Reply, Status, Wire, Written, reply_flag,
    request_flag,
};

fn pieces(all: &[(u64, u32)]) -> Pieces {
    let piece = |&(file_offset, piece_bytes): &(u64, u32)| Piece { file_offset, piece_bytes };
    Pieces::new(all.iter().map(piece).collect()).unwrap()
}

fn write(pieces: &Pieces, bulk_bytes: u32) -> Call<'_> {
    let bulk = Some(bulk(7, bulk_bytes));
    Call::WriteList(WriteList {
        inode: FILE,
        pieces,
        bulk,
        sync: false,
        clears: ClearPrivileges::Nothing,
    })
}

fn written(written_bytes: u32) -> Vec<u8> {
    Written { file_offset: 90, written_bytes }.to_bytes()
}

#[test]
fn a_list_is_one_request_and_comes_back_with_its_bytes() {
    let mut harness = Harness::new(1);
    harness.answers_recovery = false;
    let pieces = pieces(&[(90, 10), (0, 5)]);
    harness.call(1, write(&pieces, 15));
    let request = harness.take();
    assert_eq!((request.head.op, request.bulk), (Op::WriteList, Some(bulk(7, 15))));
    let wanted = wire::WriteList { inode: FILE, pieces, clears: ClearPrivileges::Nothing };
    assert_eq!(wire::WriteList::decode_all(&request.body), Ok(wanted));
    harness.token(&request, 5, &written(15));
    let answer = Written { file_offset: 90, written_bytes: 15 };
    assert_eq!(harness.outcome(), Ok(Answer::Written(answer)));
    assert!(harness.client.replay_bytes() > 0);
    harness.restart();
    let resume = harness.take_resume(request.head.shard);
    harness.resumed(&resume, 0, true);
    let replay = harness.take();
    assert_eq!((replay.head.op, replay.head.flags), (Op::WriteList, request_flag::REPLAY));
    assert_eq!(replay.bulk.map(|bulk| bulk.bulk_bytes), Some(15), "its own copy");
    let body = Replay::decode_all(&replay.body).unwrap();
    assert_eq!(body.reply.0, written(15));
}

#[test]
fn lists_that_every_server_would_reject_are_not_sent() {
    let mut harness = Harness::new(1);
    for (all, bulk_bytes) in [(pieces(&[(0, 10)]), 9), (pieces(&[(0, 10), (9, 2)]), 12)] {
        harness.call(1, write(&all, bulk_bytes));
        assert_eq!(harness.outcome(), Err(Status::Invalid));
        assert!(harness.requests.is_empty());
    }
}

#[test]
fn a_lists_reply_has_exactly_the_bytes_of_its_file() {
    let all = pieces(&[(90, 20), (0, 5), (200, 5)]);
    for (size_bytes, bulk_bytes, sound) in
        [(100, 15, true), (0, 0, true), (1000, 30, true), (100, 14, false), (100, 16, false)]
    {
        let mut harness = Harness::new(1);
        harness.call(1, Call::ReadList(ReadList { inode: FILE, pieces: &all, accesses: true }));
        let request = harness.take();
        let wanted = wire::ReadList { inode: FILE, pieces: all.clone(), accesses: true };
        assert_eq!(wire::ReadList::decode_all(&request.body), Ok(wanted));
        let read = (bulk_bytes > 0).then(|| bulk(9, bulk_bytes));
        let reply: Reply = harness.reply(&request);
        assert_eq!(reply.flags & reply_flag::TOKEN, 0);
        harness.send(request.conn, reply, &ListRead { size_bytes }.to_bytes(), read);
        if sound {
            assert_eq!(harness.outcome(), Ok(Answer::List { bulk: read, size_bytes }));
            assert!(harness.released.is_empty(), "the frontend owns it");
        } else {
            assert!(harness.answers().is_empty());
            assert_eq!(harness.closed, [request.conn], "{bulk_bytes} bytes of {size_bytes}");
            assert_eq!(harness.released.len(), 1);
        }
    }
}

#[test]
fn an_abandoned_list_is_resent_without_pieces() {
    let mut harness = Harness::new(1);
    let all = pieces(&[(90, 10), (0, 5)]);
    harness.call(1, write(&all, 15));
    let request = harness.take();
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    let again = harness.take();
    assert_eq!((again.head.xid, again.head.slot), (request.head.xid, request.head.slot));
    assert_eq!((again.head.op, again.head.flags), (Op::WriteList, request_flag::RESENT));
    assert_eq!(again.bulk, None);
    let nothing =
        wire::WriteList { inode: FILE, pieces: Pieces::NONE, clears: ClearPrivileges::Nothing };
    assert_eq!(wire::WriteList::decode_all(&again.body), Ok(nothing));
    // It had been executed: its bytes are retained for a replay.
    harness.token(&again, 5, &written(15));
    assert!(harness.answers().is_empty());
    assert!(harness.client.replay_bytes() > 15);
}
