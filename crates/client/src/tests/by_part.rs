//! Seeks in, and allocations of, a file whose stripes are at two servers.

#![allow(clippy::cast_possible_truncation)]

use super::FILE;
use super::harness::{Harness, ReceivedRequest};
use super::spread::{LAYOUT, UNIT, glimpsed, harness, shard};
use crate::{Answer, Call};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use test_runtime::Prng;
use wire::{Allocate, Allocation, ClearPrivileges, Op, Seek, Sought, Status, Wire};

/// The bytes that a file of the model has in one place.
const PLACE_BYTES: u64 = 1 << 10;
const UNIT_PLACES: usize = (UNIT / PLACE_BYTES) as usize;
const STRIPES: usize = 8;

fn allocate(range: Range<u64>, allocation: Allocation, keep_size: bool) -> Call<'static> {
    let (inode, clears) = (FILE, ClearPrivileges::Nothing);
    let (file_offset, range_bytes) = (range.start, range.end - range.start);
    Call::Allocate(Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears })
}

fn seek(file_offset: u64, hole: bool) -> Call<'static> {
    Call::Seek(Seek { inode: FILE, file_offset, hole })
}

fn allocated(request: &ReceivedRequest) -> (u32, Range<u64>, bool) {
    let body = Allocate::decode_all(&request.body).unwrap();
    let end = body.file_offset + body.range_bytes;
    let part = u32::from(request.head.shard != shard(0));
    assert_eq!(request.head.layout, Some(LAYOUT));
    (part, body.file_offset..end, body.keep_size)
}

fn take_all(harness: &mut Harness) -> Vec<ReceivedRequest> {
    let mut all: Vec<_> = harness.requests.drain(..).collect();
    all.sort_by_key(|request| (request.head.op != Op::Glimpse, request.head.shard));
    all
}

#[test]
fn the_file_becomes_longer_with_its_last_part() {
    let mut harness = harness();
    harness.call(1, allocate(10..3 * UNIT + 7, Allocation::Reserve, false));
    let first = harness.take();
    assert_eq!(allocated(&first), (0, 10..3 * UNIT, true));
    assert!(harness.requests.is_empty(), "the one with the last byte waits");
    harness.answer(&first, &[]);
    let last = harness.take();
    assert_eq!(allocated(&last), (1, UNIT..3 * UNIT + 7, false));
    assert!(harness.answers().is_empty());
    harness.answer(&last, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

#[test]
fn parts_are_punched_at_once() {
    let mut harness = harness();
    harness.call(1, allocate(UNIT + 3..4 * UNIT, Allocation::Punch, true));
    let parts = take_all(&mut harness);
    let found: Vec<_> = parts.iter().map(allocated).collect();
    let wanted = [(0, 2 * UNIT..3 * UNIT, true), (1, UNIT + 3..4 * UNIT, true)];
    assert_eq!(found.len(), 2);
    assert!(wanted.iter().all(|part| found.contains(part)), "{found:?}");
    parts.iter().for_each(|part| harness.answer(part, &[]));
    assert_eq!(harness.outcome(), Ok(Answer::Done));
}

#[test]
fn what_lies_in_one_stripe_is_one_request() {
    for keep_size in [true, false] {
        let mut harness = harness();
        harness.call(1, allocate(UNIT..2 * UNIT, Allocation::Zero, keep_size));
        let request = harness.take();
        assert_eq!(allocated(&request), (1, UNIT..2 * UNIT, keep_size));
        harness.answer(&request, &[]);
        assert_eq!(harness.outcome(), Ok(Answer::Done));
    }
}

#[test]
fn a_part_without_space_ends_an_allocation() {
    let mut harness = harness();
    harness.call(1, allocate(0..2 * UNIT, Allocation::Reserve, false));
    let first = harness.take();
    harness.fail(&first, Status::NoSpace);
    assert_eq!(harness.outcome(), Err(Status::NoSpace));
    assert!(harness.requests.is_empty(), "the file keeps its size");
    // All parts of one that keeps it have replied before it ends.
    harness.call(2, allocate(0..2 * UNIT, Allocation::Reserve, true));
    let parts = take_all(&mut harness);
    harness.fail(&parts[0], Status::NoSpace);
    assert!(harness.answers().is_empty());
    harness.fail(&parts[1], Status::NeedClearPrivileges);
    assert_eq!(harness.outcome(), Err(Status::NeedClearPrivileges), "it is repeated without");
}

#[test]
fn a_long_range_is_allocated_in_several_rounds() {
    let mut harness = harness();
    // A round has 1,024 stripes of each part.
    let round = 2_048 * UNIT;
    harness.call(1, allocate(round - UNIT..2 * round + 5, Allocation::Reserve, false));
    let mut found = Vec::new();
    while !harness.requests.is_empty() {
        for part in take_all(&mut harness) {
            found.push(allocated(&part));
            harness.answer(&part, &[]);
        }
    }
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    found[1..3].sort_by_key(|part| part.0);
    let wanted = [
        (1, round - UNIT..round, true),
        (0, round..2 * round - UNIT, true),
        (1, round + UNIT..2 * round, true),
        (0, 2 * round..2 * round + 5, false),
    ];
    assert_eq!(found, wanted);
    // What no disk has is refused before anything is taken.
    harness.call(2, allocate(0..300 * round, Allocation::Reserve, false));
    assert!(harness.requests.is_empty());
    assert_eq!(harness.outcome(), Err(Status::NoSpace));
}

#[test]
fn an_interrupted_allocation_does_not_go_on() {
    let mut harness = harness();
    harness.call(1, allocate(0..2 * UNIT, Allocation::Reserve, false));
    let first = harness.take();
    harness.interrupt(1);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    harness.answer(&first, &[]);
    assert!(harness.requests.is_empty());
}

#[test]
fn a_seek_asks_all_parts_at_once() {
    let mut harness = harness();
    harness.call(1, seek(UNIT + 9, true));
    let all = take_all(&mut harness);
    assert_eq!(all.len(), 3, "two parts, and the size");
    assert_eq!(all[0].head.op, Op::Glimpse);
    let offsets = all[1..].iter().map(|request| {
        assert_eq!(request.head.layout, Some(LAYOUT));
        (request.head.shard, Seek::decode_all(&request.body).unwrap().file_offset)
    });
    let offsets: Vec<_> = offsets.collect();
    assert!(offsets.contains(&(shard(0), 2 * UNIT)) && offsets.contains(&(shard(1), UNIT + 9)));
    // A hole of a part behind the end of the file is not its first one.
    for request in &all[1..] {
        harness.answer(request, &Sought { file_offset: 4 * UNIT }.to_bytes());
    }
    assert!(harness.answers().is_empty());
    harness.answer(&all[0], &glimpsed(3 * UNIT));
    assert_eq!(harness.outcome(), Ok(Answer::Sought(3 * UNIT)));
}

#[test]
fn a_part_that_fails_makes_a_seek_fail() {
    for (status, expected) in
        [(Status::NoDevice, Ok(Answer::Sought(UNIT))), (Status::Io, Err(Status::Io))]
    {
        let mut harness = harness();
        harness.call(1, seek(0, false));
        let all = take_all(&mut harness);
        assert_eq!(all.len(), 2, "nobody has to know the size");
        harness.fail(&all[0], status);
        harness.answer(&all[1], &Sought { file_offset: UNIT }.to_bytes());
        assert_eq!(harness.outcome(), expected);
    }
    let mut harness = harness();
    harness.call(1, seek(0, false));
    for request in take_all(&mut harness) {
        harness.fail(&request, Status::NoDevice);
    }
    assert_eq!(harness.outcome(), Err(Status::NoDevice), "there is no data");
}

/// A place of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Hole,
    Reserved,
    Data,
}

/// What a file has, or a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Places {
    size: usize,
    places: Vec<Place>,
}

impl Places {
    fn new() -> Self {
        Self { size: 0, places: vec![Place::Hole; STRIPES * UNIT_PLACES] }
    }

    fn write(&mut self, range: Range<usize>) {
        self.size = self.size.max(range.end);
        self.places[range].fill(Place::Data);
    }

    fn truncate(&mut self, size: usize) {
        self.places[size..].fill(Place::Hole);
        self.size = size;
    }

    /// Of the places that are a part's, or of all.
    fn allocate(
        &mut self,
        range: Range<usize>,
        (allocation, keep_size): (Allocation, bool),
        is_own: impl Fn(usize) -> bool,
    ) {
        if !keep_size {
            self.size = self.size.max(range.end);
        }
        for at in range.filter(|at| is_own(*at)) {
            let place = &mut self.places[at];
            *place = match (allocation, *place) {
                (Allocation::Punch, _) => Place::Hole,
                (Allocation::Reserve, Place::Data) => Place::Data,
                (Allocation::Zero | Allocation::Reserve, _) => Place::Reserved,
            };
        }
    }

    /// As lseek(2) finds it among the places of a part, or of all.
    fn seek(&self, from: usize, hole: bool, is_own: impl Fn(usize) -> bool) -> Option<usize> {
        let own = (from..self.places.len()).filter(|at| is_own(*at));
        let is_data = |at: usize| at < self.size && self.places[at] == Place::Data;
        own.into_iter().find(|at| is_data(*at) != hole)
    }
}

fn place(file_offset: u64) -> usize {
    (file_offset / PLACE_BYTES) as usize
}

fn offset(at: usize) -> u64 {
    at as u64 * PLACE_BYTES
}

fn part_of(at: usize) -> u32 {
    LAYOUT.part((at / UNIT_PLACES) as u32)
}

fn serve(harness: &mut Harness, parts: &mut [Places; 2], request: &ReceivedRequest) {
    let part = u32::from(request.head.shard != shard(0));
    let of_part = &mut parts[part as usize];
    let is_own = |at: usize| part_of(at) == part;
    match request.head.op {
        Op::Seek => {
            let Seek { file_offset, hole, .. } = Seek::decode_all(&request.body).unwrap();
            let from = place(file_offset);
            assert!(is_own(from), "an offset of its own");
            match of_part.seek(from, hole, is_own) {
                Some(at) => {
                    let found = Sought { file_offset: offset(at) };
                    harness.answer(request, &found.to_bytes());
                }
                None => harness.fail(request, Status::NoDevice),
            }
        }
        Op::Allocate => {
            let body = Allocate::decode_all(&request.body).unwrap();
            let from = place(body.file_offset);
            assert!(is_own(from), "an offset of its own");
            let range = from..place(body.file_offset + body.range_bytes);
            of_part.allocate(range, (body.allocation, body.keep_size), is_own);
            harness.answer(request, &[]);
        }
        Op::Glimpse => {
            let size = parts.iter().map(|part| part.size).max().unwrap();
            harness.answer(request, &glimpsed(offset(size)));
        }
        other => panic!("{other:?} was not expected"),
    }
}

fn run(seed: u64) {
    let (mut harness, mut prng) = (harness(), Prng::new(seed));
    let (mut parts, mut model) = ([Places::new(), Places::new()], Places::new());
    for id in 1..120 {
        // Often at the end of a stripe.
        let mut roll = || {
            let stripe = prng.below(STRIPES) * UNIT_PLACES;
            stripe + if prng.one_in(2) { 0 } else { prng.below(UNIT_PLACES) }
        };
        let (one, other, at) = (roll(), roll(), roll());
        let range = one.min(other)..one.max(other) + 1;
        match prng.below(8) {
            0 => {
                model.write(range.clone());
                for at in range {
                    parts[part_of(at) as usize].write(at..at + 1);
                }
            }
            1 => {
                model.truncate(at);
                for (part, of_part) in (0..).zip(&mut parts) {
                    let known = of_part.size.min(place(LAYOUT.part_end(part, offset(at))));
                    let has_last = at > 0 && part_of(at - 1) == part;
                    of_part.truncate(at);
                    of_part.size = if has_last { at } else { known };
                }
            }
            2 | 3 => {
                let all = [Allocation::Reserve, Allocation::Punch, Allocation::Zero];
                let allocation = all[prng.below(3)];
                let keep_size = allocation == Allocation::Punch || prng.one_in(2);
                let bytes = offset(range.start)..offset(range.end);
                harness.call(id, allocate(bytes, allocation, keep_size));
                while !harness.requests.is_empty() {
                    let at = prng.below(harness.requests.len());
                    let request = harness.requests.remove(at).unwrap();
                    serve(&mut harness, &mut parts, &request);
                }
                assert_eq!(harness.outcome(), Ok(Answer::Done), "seed {seed}");
                model.allocate(range, (allocation, keep_size), |_| true);
            }
            _ => {
                let hole = prng.one_in(2);
                harness.call(id, seek(offset(at), hole));
                while !harness.requests.is_empty() {
                    let at = prng.below(harness.requests.len());
                    let request = harness.requests.remove(at).unwrap();
                    serve(&mut harness, &mut parts, &request);
                }
                let end = hole.then_some(model.size);
                let found = model.seek(at, hole, |_| true).or(end);
                let wanted = found
                    .filter(|_| at < model.size)
                    .map(|at| Answer::Sought(offset(at)))
                    .ok_or(Status::NoDevice);
                assert_eq!(harness.outcome(), wanted, "seed {seed}: {at}, hole {hole}");
            }
        }
        let size = parts.iter().map(|part| part.size).max();
        assert_eq!(size, Some(model.size), "seed {seed}");
        let found = |at: usize| parts[part_of(at) as usize].places[at];
        assert!((0..model.places.len()).all(|at| found(at) == model.places[at]), "seed {seed}");
    }
}

#[test]
fn joined_seeks_and_allocations_equal_a_model() {
    (1..=40).for_each(run);
}
