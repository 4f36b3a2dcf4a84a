//! Lists of pieces: what leaves, what is taken for an answer, what is kept, and what is given up.

use super::FILE;
use super::rig::{Rig, bulk};
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
    let mut rig = Rig::new(1);
    rig.answers_recovery = false;
    let pieces = pieces(&[(90, 10), (0, 5)]);
    rig.call(1, write(&pieces, 15));
    let asked = rig.take();
    assert_eq!((asked.head.op, asked.bulk), (Op::WriteList, Some(bulk(7, 15))));
    let wanted = wire::WriteList { inode: FILE, pieces, clears: ClearPrivileges::Nothing };
    assert_eq!(wire::WriteList::decode_all(&asked.body), Ok(wanted));
    rig.token(&asked, 5, &written(15));
    let answer = Written { file_offset: 90, written_bytes: 15 };
    assert_eq!(rig.outcome(), Ok(Answer::Written(answer)));
    assert!(rig.client.replay_bytes() > 0);
    rig.restart();
    let resume = rig.take();
    rig.resumed(&resume, 0, true);
    let replay = rig.take();
    assert_eq!((replay.head.op, replay.head.flags), (Op::WriteList, request_flag::REPLAY));
    assert_eq!(replay.bulk.map(|bulk| bulk.bulk_bytes), Some(15), "its own copy");
    let body = Replay::decode_all(&replay.body).unwrap();
    assert_eq!(body.reply.0, written(15));
}

#[test]
fn what_no_server_would_take_does_not_leave() {
    let mut rig = Rig::new(1);
    for (all, bulk_bytes) in [(pieces(&[(0, 10)]), 9), (pieces(&[(0, 10), (9, 2)]), 12)] {
        rig.call(1, write(&all, bulk_bytes));
        assert_eq!(rig.outcome(), Err(Status::Invalid));
        assert!(rig.asked.is_empty());
    }
}

#[test]
fn the_bytes_of_a_list_are_as_many_as_its_file_has() {
    let all = pieces(&[(90, 20), (0, 5), (200, 5)]);
    for (size_bytes, bulk_bytes, sound) in
        [(100, 15, true), (0, 0, true), (1000, 30, true), (100, 14, false), (100, 16, false)]
    {
        let mut rig = Rig::new(1);
        rig.call(1, Call::ReadList(ReadList { inode: FILE, pieces: &all, accesses: true }));
        let asked = rig.take();
        let wanted = wire::ReadList { inode: FILE, pieces: all.clone(), accesses: true };
        assert_eq!(wire::ReadList::decode_all(&asked.body), Ok(wanted));
        let read = (bulk_bytes > 0).then(|| bulk(9, bulk_bytes));
        let reply: Reply = rig.reply(&asked);
        assert_eq!(reply.flags & reply_flag::TOKEN, 0);
        rig.send(asked.conn, reply, &ListRead { size_bytes }.to_bytes(), read);
        if sound {
            assert_eq!(rig.outcome(), Ok(Answer::List { bulk: read, size_bytes }));
            assert!(rig.released.is_empty(), "it is the face's");
        } else {
            assert!(rig.answers().is_empty());
            assert_eq!(rig.closed, [asked.conn], "{bulk_bytes} bytes of {size_bytes}");
            assert_eq!(rig.released.len(), 1);
        }
    }
}

#[test]
fn a_list_given_up_is_asked_for_without_pieces() {
    let mut rig = Rig::new(1);
    let all = pieces(&[(90, 10), (0, 5)]);
    rig.call(1, write(&all, 15));
    let asked = rig.take();
    rig.interrupt(1);
    rig.wait_ms(1_000);
    assert_eq!(rig.outcome(), Err(Status::Interrupted));
    let again = rig.take();
    assert_eq!((again.head.xid, again.head.slot), (asked.head.xid, asked.head.slot));
    assert_eq!((again.head.op, again.head.flags), (Op::WriteList, request_flag::RESENT));
    assert_eq!(again.bulk, None);
    let nothing =
        wire::WriteList { inode: FILE, pieces: Pieces::NONE, clears: ClearPrivileges::Nothing };
    assert_eq!(wire::WriteList::decode_all(&again.body), Ok(nothing));
    // It had been done: its bytes are kept for a replay.
    rig.token(&again, 5, &written(15));
    assert!(rig.answers().is_empty());
    assert!(rig.client.replay_bytes() > 15);
}
