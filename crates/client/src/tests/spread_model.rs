//! Random reads and writes of a file at two servers, compared with an array of bytes.

#![allow(clippy::cast_possible_truncation)]

use super::FILE;
use super::harness::{Harness, ReceivedRequest};
use super::spread::{LAYOUT, UNIT, harness, offset};
use crate::{Answer, Call, ReadList, Write, WriteList};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use interface::{BufId, Bulk};
use test_runtime::Prng;
use wire::{
    ClearPrivileges, Contents, Glimpsed, ListRead, Op, Piece, Pieces, Read, ShardId, Wire, Written,
};

const FILE_BYTES_MAX: usize = 10 * UNIT as usize;

/// The contents as the shards have them: each up to the end of its last byte.
#[derive(Default)]
struct Parts(BTreeMap<ShardId, Vec<u8>>);

impl Parts {
    fn read(&self, shard: ShardId, piece: Piece) -> &[u8] {
        let all = self.0.get(&shard).map_or(&[][..], |all| all);
        let from = usize::try_from(piece.file_offset).unwrap().min(all.len());
        let until = usize::try_from(piece.end()).unwrap().min(all.len());
        &all[from..until]
    }

    fn write(&mut self, shard: ShardId, piece: Piece, bytes: &[u8]) {
        let all = self.0.entry(shard).or_default();
        write_to(all, piece.file_offset, bytes);
    }

    fn end(&self, shard: ShardId) -> u64 {
        self.0.get(&shard).map_or(0, |all| all.len() as u64)
    }

    /// What a truncation at all shards leaves.
    fn truncate(&mut self, model: &[u8], shards: [ShardId; 2]) {
        self.0.clear();
        let size_bytes = model.len() as u64;
        for stripe in LAYOUT.parts(0..size_bytes) {
            let file_offset = LAYOUT.start(stripe.stripe_index) + stripe.object_offset;
            let piece = Piece { file_offset, piece_bytes: stripe.part_bytes as u32 };
            let bytes = &model[file_offset as usize..piece.end() as usize];
            self.write(shards[stripe.stripe_index as usize % 2], piece, bytes);
        }
    }
}

fn write_to(all: &mut Vec<u8>, file_offset: u64, bytes: &[u8]) {
    let from = usize::try_from(file_offset).unwrap();
    if !bytes.is_empty() && all.len() < from + bytes.len() {
        all.resize(from + bytes.len(), 0);
    }
    all[from..][..bytes.len()].copy_from_slice(bytes);
}

/// Answers a request as its shard does.
fn serve(harness: &mut Harness, parts: &mut Parts, request: &ReceivedRequest) {
    let shard = request.head.shard;
    let mut found = Vec::new();
    let body = match request.head.op {
        Op::Read => {
            let Read { file_offset, read_bytes, .. } = Read::decode_all(&request.body).unwrap();
            let piece = Piece { file_offset, piece_bytes: read_bytes };
            assert!(piece_is_in_one_stripe(piece));
            found.extend_from_slice(parts.read(shard, piece));
            Vec::new()
        }
        Op::ReadList => {
            let list = wire::ReadList::decode_all(&request.body).unwrap();
            for piece in list.pieces.iter() {
                assert!(piece_is_in_one_stripe(piece));
                found.extend_from_slice(parts.read(shard, piece));
            }
            ListRead { size_bytes: parts.end(shard) }.to_bytes()
        }
        Op::Write | Op::WriteList => {
            let bulk = request.bulk.unwrap();
            let bytes = harness.state.bufs.get(bulk);
            let pieces = if request.head.op == Op::Write {
                let (file_offset, piece_bytes) = (offset(request), bulk.bulk_bytes);
                Vec::from([Piece { file_offset, piece_bytes }])
            } else {
                let list = wire::WriteList::decode_all(&request.body).unwrap();
                list.pieces.as_slice().to_vec()
            };
            let mut rest = &bytes[..];
            for piece in pieces {
                assert!(piece_is_in_one_stripe(piece));
                let (these, after) = rest.split_at(piece.piece_bytes as usize);
                parts.write(shard, piece, these);
                rest = after;
            }
            Written { file_offset: offset(request), written_bytes: bulk.bulk_bytes }.to_bytes()
        }
        Op::Glimpse | Op::Reserve => {
            let size_bytes = parts.0.values().map(Vec::len).max().unwrap_or(0) as u64;
            let contents = Contents { size_bytes, allocated_bytes: 0, write_time: None };
            Glimpsed { contents }.to_bytes()
        }
        other => panic!("{other:?} was not expected"),
    };
    let bulk = (!found.is_empty()).then(|| harness.state.bufs.put(found));
    harness.send(request.conn, harness.reply(request), &body, bulk);
}

fn piece_is_in_one_stripe(piece: Piece) -> bool {
    LAYOUT.stripe(piece.file_offset) == LAYOUT.stripe(piece.end() - 1)
}

fn bytes_of(harness: &mut Harness, bulk: Option<Bulk>) -> Vec<u8> {
    bulk.map_or(Vec::new(), |bulk| harness.state.bufs.get(bulk))
}

/// Answers all requests, in any order.
fn serve_all(harness: &mut Harness, parts: &mut Parts, prng: &mut Prng) {
    while !harness.requests.is_empty() {
        let at = prng.below(harness.requests.len());
        let request = harness.requests.remove(at).unwrap();
        serve(harness, parts, &request);
    }
}

fn pieces(prng: &mut Prng) -> Pieces {
    let mut pieces: Vec<Piece> = Vec::new();
    for _ in 0..1 + prng.below(8) {
        let file_offset = prng.below(FILE_BYTES_MAX) as u64;
        let piece = Piece { file_offset, piece_bytes: 1 + prng.below(40_000) as u32 };
        let overlaps =
            pieces.iter().any(|known| known.end() > file_offset && piece.end() > known.file_offset);
        if !overlaps {
            pieces.push(piece);
        }
    }
    Pieces::new(pieces).unwrap()
}

fn random_bytes(prng: &mut Prng, count: usize) -> Vec<u8> {
    let first = prng.number();
    (0..count as u64).map(|at| (first.wrapping_add(at * at) >> 3) as u8).collect()
}

fn run(seed: u64) {
    let (mut harness, mut prng) = (harness(), Prng::new(seed));
    let (mut parts, mut model) = (Parts::default(), Vec::new());
    let map = harness.shape.map.clone();
    let shards = [0, 1].map(|part| map.data_shard(FILE, part));
    let clears = ClearPrivileges::Nothing;
    for id in 1..120 {
        let (inode, sync, accesses) = (FILE, false, true);
        let file_offset = prng.below(FILE_BYTES_MAX) as u64;
        let count = 1 + prng.below(3 * UNIT as usize);
        match prng.below(7) {
            6 => {
                let bytes = random_bytes(&mut prng, count);
                let bulk = Some(harness.state.bufs.put(bytes.clone()));
                let (append, behind) = (true, false);
                let write = Write { inode, file_offset: 0, append, bulk, sync, clears, behind };
                harness.call(id, Call::Write(write));
                serve_all(&mut harness, &mut parts, &mut prng);
                let file_offset = model.len() as u64;
                let written = Written { file_offset, written_bytes: count as u32 };
                assert_eq!(harness.outcome(), Ok(Answer::Written(written)), "seed {seed}");
                write_to(&mut model, file_offset, &bytes);
            }
            0 | 1 => {
                let bytes = random_bytes(&mut prng, count);
                let bulk = Some(harness.state.bufs.put(bytes.clone()));
                let (append, behind) = (false, false);
                let write = Write { inode, file_offset, append, bulk, sync, clears, behind };
                harness.call(id, Call::Write(write));
                serve_all(&mut harness, &mut parts, &mut prng);
                let written_bytes = count as u32;
                let written = Written { file_offset, written_bytes };
                assert_eq!(harness.outcome(), Ok(Answer::Written(written)), "seed {seed}");
                write_to(&mut model, file_offset, &bytes);
            }
            2 => {
                let pieces = pieces(&mut prng);
                let bytes = random_bytes(&mut prng, pieces.total_bytes() as usize);
                let bulk = Some(harness.state.bufs.put(bytes.clone()));
                let list = WriteList { inode, pieces: &pieces, bulk, sync, clears };
                harness.call(id, Call::WriteList(list));
                serve_all(&mut harness, &mut parts, &mut prng);
                assert!(matches!(harness.outcome(), Ok(Answer::Written(_))), "seed {seed}");
                let mut rest = &bytes[..];
                for piece in pieces.iter() {
                    let (these, after) = rest.split_at(piece.piece_bytes as usize);
                    write_to(&mut model, piece.file_offset, these);
                    rest = after;
                }
            }
            3 | 4 => {
                let read_bytes = count as u32;
                harness.call(id, Call::Read(Read { inode, file_offset, read_bytes, accesses }));
                serve_all(&mut harness, &mut parts, &mut prng);
                let Ok(Answer::Bytes(bulk)) = harness.outcome() else { panic!("seed {seed}") };
                let from = model.len().min(file_offset as usize);
                let until = model.len().min(file_offset as usize + count);
                assert!(bytes_of(&mut harness, bulk) == model[from..until], "seed {seed}");
            }
            _ => {
                let pieces = pieces(&mut prng);
                harness.call(id, Call::ReadList(ReadList { inode, pieces: &pieces, accesses }));
                serve_all(&mut harness, &mut parts, &mut prng);
                let Ok(Answer::List { bulk, size_bytes }) = harness.outcome() else {
                    panic!("seed {seed}")
                };
                let mut wanted = Vec::new();
                for piece in pieces.iter() {
                    let from = model.len().min(piece.file_offset as usize);
                    let until = model.len().min(piece.end() as usize);
                    assert_eq!(u64::from(piece.within(size_bytes)), (until - from) as u64);
                    wanted.extend_from_slice(&model[from..until]);
                }
                assert!(bytes_of(&mut harness, bulk) == wanted, "seed {seed}");
            }
        }
        if prng.one_in(12) {
            model.resize(prng.below(FILE_BYTES_MAX), 0);
            parts.truncate(&model, shards);
        }
        let mut released: Vec<BufId> = core::mem::take(&mut harness.released);
        released.sort_unstable_by_key(|buf| buf.0);
        let count = released.len();
        released.dedup();
        assert_eq!(released.len(), count, "each buffer is released once");
    }
}

#[test]
fn split_reads_and_writes_equal_an_array_of_bytes() {
    let seeds = vec![1, 2, 3, 4, 5, 6, 7, 8];
    seeds.into_iter().for_each(run);
}
