//! Files of several stripe objects, compared with bytes in memory.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use disk::Change;
use interface::Event;
use test_runtime::{LaneState, Operation, Prng, Store};
use wire::{Allocate, Allocation, Piece, Pieces, ReadList, Seek, WriteList};

const UNIT_BYTES: u64 = 64;
const BLOCK_BYTES: u32 = 16;
const LAYOUT: Layout = Layout { stripe_unit_bytes: UNIT_BYTES, stripe_count: 1, narrow: false };

/// The shards, their disk, and their log.
struct World {
    shards: Shards,
    lane: LaneState,
    now: Now,
    actions: Vec<Action>,
    store: Store,
    /// Changes whose records are durable.
    log: Vec<(Transno, Vec<u8>)>,
    answers: BTreeMap<Token, Result<(Answer, Vec<u8>), Status>>,
    token_count: u64,
    /// The next action of this kind fails.
    fails: Option<fn(&ObjectAction) -> bool>,
    /// The shard has ended.
    has_failed: bool,
    done: Vec<String>,
    /// What requests state.
    layout: Layout,
    /// Writes are refused where the file does not end.
    behind: bool,
}

fn shards_of(log: &[(Transno, Vec<u8>)], term: u32) -> Shards {
    let counts = wire::ShardCounts { meta: 1, data: 1 };
    shards_with(Map::single_server(1, counts, wire::Term(1)), log, term)
}

fn shards_with(map: Map, log: &[(Transno, Vec<u8>)], term: u32) -> Shards {
    let mut recorded = Recorded::new(ShardId::data(0));
    for (transno, change) in log {
        recorded.replay(*transno, change).unwrap();
    }
    recorded.start_term(wire::Term(term));
    let config = DataConfig {
        map,
        lane: LaneId(0),
        server: wire::ServerId::FIRST,
        object_count_max: 100,
        ticket_tag: TAG,
        seed: 1,
        sync_ms: 0,
        unsynced_bytes_max: 1 << 30,
        logged_bytes_max: 64 << 10,
        page_bytes: 4096,
        block_bytes: BLOCK_BYTES,
        quiet_ms: 1,
        rules: wire::Rules::default(),
    };
    Shards::new(config, vec![recorded])
}

impl World {
    fn new() -> Self {
        Self {
            shards: shards_of(&[], 1),
            lane: LaneState::default(),
            now: Now { mono: Mono(0), wall_ns: WALL_NS },
            actions: Vec::new(),
            // Any zero is a hole.
            store: Store::new(1),
            log: Vec::new(),
            answers: BTreeMap::new(),
            token_count: 0,
            fails: None,
            has_failed: false,
            done: Vec::new(),
            layout: LAYOUT,
            behind: false,
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Shards, &mut Turn<'_>) -> T) -> T {
        let Self { shards, lane, actions, now, .. } = self;
        act(shards, &mut Turn { now: *now, arena: &mut lane.arena, actions })
    }

    /// The server dies, and another one starts with what is durable.
    fn crash(&mut self, term: u32) {
        self.shards = shards_of(&self.log, term);
        self.actions.clear();
        self.store.crash(&mut Prng::new(term.into()));
    }

    fn request<'a>(&mut self, op: Op, body: &impl Wire<'a>, bytes: Option<&[u8]>) -> Token {
        self.token_count += 1;
        let token = Token(self.token_count);
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        let bulk = bytes.map(|bytes| self.lane.bufs.put(bytes.to_vec()));
        let body = body.to_bytes();
        let (shard, client) = (ShardId::data(0), CLIENT);
        let layout = Some(self.layout);
        let request = DataRequest {
            token,
            op,
            shard,
            layout,
            body: &body,
            bulk,
            client,
            kept: false,
            behind: self.behind,
            is_cut: false,
        };
        self.with(|shards, turn| shards.submit(turn, &request)).unwrap();
        token
    }

    fn ask<'a>(
        &mut self,
        op: Op,
        body: &impl Wire<'a>,
        bytes: Option<&[u8]>,
    ) -> Result<(Answer, Vec<u8>), Status> {
        let token = self.request(op, body, bytes);
        self.run();
        self.answers.remove(&token).expect("an answer")
    }

    /// Performs everything until nothing is under way.
    fn run(&mut self) {
        loop {
            self.take_outcomes();
            let actions = core::mem::take(&mut self.actions);
            if actions.is_empty() {
                self.now.mono = Mono(self.now.mono.0 + 5_000_000);
                self.with(|shards, turn| shards.settle(turn, SumRecording::Quiet, 0));
                self.take_outcomes();
                if self.actions.is_empty() {
                    return;
                }
                continue;
            }
            for action in actions {
                if let Action::Object(action) = action {
                    self.perform(action);
                }
            }
        }
    }

    fn take_outcomes(&mut self) {
        while let Some(outcome) = self.shards.outcome() {
            match outcome {
                Outcome::Answered { token, result, .. } => {
                    let bytes = |answer: Answer| {
                        let bulk = answer.bulk();
                        let bytes = bulk.map(|bulk| self.lane.bufs.get(bulk));
                        (answer, bytes.unwrap_or_default())
                    };
                    let answer = result.map(bytes);
                    self.answers.insert(token, answer);
                }
                Outcome::Changed { token, transno, change, answer, sums, .. } => {
                    self.record(transno, &change);
                    if let Some(sums) = sums {
                        self.record(transno, &Change::Contents(sums));
                    }
                    self.answers.insert(token, Ok((answer, Vec::new())));
                }
                Outcome::Record { transno, change, .. } => self.record(transno, &change),
                Outcome::Removed { result, .. } => result.unwrap(),
                Outcome::Written { .. } | Outcome::Accessed { .. } => {}
                Outcome::Failed { .. } if self.fails.is_none() => self.has_failed = true,
                Outcome::Failed { .. } | Outcome::Damaged { .. } | Outcome::Sized { .. } => {
                    panic!("{outcome:?}")
                }
            }
        }
    }

    fn record(&mut self, transno: Transno, change: &Change<'_>) {
        self.log.push((transno, change.to_bytes()));
        self.shards.on_durable(ShardId::data(0), transno);
        if let Change::Contents(change) = change
            && change.fences()
        {
            let inode = change.inode();
            self.with(|shards, turn| shards.on_logged(turn, inode));
        }
    }

    fn perform(&mut self, action: ObjectAction) {
        let failed = self.fails.is_some_and(|fails| fails(&action));
        if failed {
            self.fails = None;
        }
        let result = if failed { Err(Errno(28)) } else { Ok(()) };
        self.done.push(format!("{action:?}"));
        let operation = Operation::of(action.into(), (0, 0), &self.lane, self.store.patch_count());
        if let Operation::Patch { patch, .. } = &operation {
            let is_within = patch.end() as u64 <= self.layout.stripe_unit_bytes;
            assert!(is_within, "an object has the bytes of one stripe: {patch:?}");
        }
        let ended = self.store.complete(operation, result);
        let LaneState { arena, bufs, .. } = &mut self.lane;
        let Event::Object(event) = ended.enter(arena, bufs) else { panic!("{action:?}") };
        self.with(|shards, turn| shards.on_object(turn, event));
    }

    // Requests.

    fn write(&mut self, file_offset: u64, append: bool, bytes: &[u8]) -> Result<(), Status> {
        let clears = wire::ClearPrivileges::Nothing;
        let body = Write { inode: FILE, file_offset, append, clears };
        self.ask(Op::Write, &body, Some(bytes)).map(drop)
    }

    fn truncate(&mut self, size_bytes: u64) -> Result<(), Status> {
        self.ask(Op::Truncate, &Truncate { inode: FILE, size_bytes }, None).map(drop)
    }

    fn allocate(
        &mut self,
        (file_offset, range_bytes): (u64, u64),
        (allocation, keep_size): (Allocation, bool),
    ) -> Result<(), Status> {
        let (inode, clears) = (FILE, wire::ClearPrivileges::Nothing);
        let body = Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
        self.ask(Op::Allocate, &body, None).map(drop)
    }

    fn read_all(&mut self) -> Vec<u8> {
        let body = Read { inode: FILE, file_offset: 0, read_bytes: 1 << 20, accesses: false };
        self.ask(Op::Read, &body, None).unwrap().1
    }

    fn size(&mut self) -> u64 {
        match self.ask(Op::Glimpse, &Glimpse { inode: FILE }, None).unwrap().0 {
            Answer::Glimpsed(contents) => contents.size_bytes,
            other => panic!("{other:?}"),
        }
    }

    fn seek(&mut self, file_offset: u64, hole: bool) -> Option<u64> {
        match self.ask(Op::Seek, &Seek { inode: FILE, file_offset, hole }, None) {
            Ok((Answer::Sought(found), _)) => Some(found),
            Err(Status::NoDevice) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Stripes that have objects.
    fn stripes(&self) -> Vec<u32> {
        self.store.objects().map(|object| object.stripe_index).collect()
    }
}

/// A pseudorandom number below `end`.
fn below(seed: u64, salt: u64, end: u64) -> u64 {
    let mut number = (seed * 64 + salt + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    number = (number ^ (number >> 31)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (number ^ (number >> 29)) % end
}

/// Bytes without zeros, which the test's disk takes for holes.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    (0..count).map(|at| below(seed, at as u64, 255) as u8 + 1).collect()
}

fn step(world: &mut World, model: &mut Vec<u8>, seed: u64) {
    let from = below(seed, 1, 6 * UNIT_BYTES);
    let count = 1 + below(seed, 2, 2 * UNIT_BYTES);
    let (first, last) = (from as usize, (from + count) as usize);
    let keep_size = below(seed, 3, 2) == 0;
    match below(seed, 0, 8) {
        0 | 1 => {
            let append = below(seed, 4, 4) == 0;
            let first = if append { model.len() } else { first };
            let bytes = noise(seed, count as usize);
            world.write(from, append, &bytes).unwrap();
            model.resize(model.len().max(first + bytes.len()), 0);
            model[first..][..bytes.len()].copy_from_slice(&bytes);
        }
        2 => {
            // Often exactly to a boundary.
            let size = if keep_size { from / UNIT_BYTES * UNIT_BYTES } else { from };
            world.truncate(size).unwrap();
            model.resize(size as usize, 0);
        }
        3 => {
            world.allocate((from, count), (Allocation::Punch, true)).unwrap();
            let (first, last) = (first.min(model.len()), last.min(model.len()));
            model[first..last].fill(0);
        }
        kind @ (4 | 5) => {
            let what = if kind == 4 { Allocation::Zero } else { Allocation::Reserve };
            world.allocate((from, count), (what, keep_size)).unwrap();
            if !keep_size {
                model.resize(model.len().max(last), 0);
            }
            if kind == 4 {
                let (first, last) = (first.min(model.len()), last.min(model.len()));
                model[first..last].fill(0);
            }
        }
        6 => {
            let piece = |salt: u64| {
                let file_offset = (salt % 8) * 50 + below(seed, salt, 10);
                Piece { file_offset, piece_bytes: 1 + below(seed, salt + 8, 30) as u32 }
            };
            let pieces: Vec<Piece> = (8..12).map(piece).collect();
            let count = pieces.iter().map(|piece| piece.piece_bytes as usize).sum();
            let bytes = noise(seed, count);
            let mut rest = &bytes[..];
            for piece in &pieces {
                let (here, behind) = rest.split_at(piece.piece_bytes as usize);
                let first = piece.file_offset as usize;
                model.resize(model.len().max(first + here.len()), 0);
                model[first..][..here.len()].copy_from_slice(here);
                rest = behind;
            }
            let (pieces, clears) = (Pieces::new(pieces).unwrap(), wire::ClearPrivileges::Nothing);
            let body = WriteList { inode: FILE, pieces, clears };
            world.ask(Op::WriteList, &body, Some(&bytes)).unwrap();
        }
        _ => {
            let piece = |salt: u64| Piece {
                file_offset: below(seed, salt, 6 * UNIT_BYTES),
                piece_bytes: 1 + below(seed, salt + 8, 90) as u32,
            };
            let pieces: Vec<Piece> = (8..12).map(piece).collect();
            let all = pieces.iter().flat_map(|piece| piece.file_offset..piece.end());
            let size = model.len() as u64;
            let wanted: Vec<u8> =
                all.filter(|at| *at < size).map(|at| model[at as usize]).collect();
            let body =
                ReadList { inode: FILE, pieces: Pieces::new(pieces).unwrap(), accesses: false };
            assert_eq!(world.ask(Op::ReadList, &body, None).unwrap().1, wanted);
        }
    }
}

fn check(world: &mut World, model: &[u8], seed: u64) {
    assert_eq!(world.size(), model.len() as u64, "after {seed}");
    assert!(world.read_all() == model, "after {seed}: {model:?}");
    let end = model.len() as u64;
    for from in [0, below(seed, 60, end.max(1)), UNIT_BYTES, 2 * UNIT_BYTES + 1] {
        for hole in [false, true] {
            let byte = |at: &u64| (model[*at as usize] == 0) == hole;
            let wanted = (from..end).find(byte).or((hole && from < end).then_some(end));
            assert_eq!(world.seek(from, hole), wanted, "{from} {hole} after {seed}: {model:?}");
        }
    }
}

#[test]
fn files_of_several_stripes_match_bytes_in_memory_and_survive_crashes() {
    let mut world = World::new();
    let mut model = Vec::new();
    let mut stripes = BTreeSet::new();
    for seed in 0..2_000 {
        step(&mut world, &mut model, seed);
        stripes.extend(world.stripes());
        if seed % 5 == 0 {
            check(&mut world, &model, seed);
        }
        if seed % 50 == 49 {
            world.crash(seed as u32 + 2);
            check(&mut world, &model, seed);
        }
    }
    assert!(stripes.len() > 5, "{stripes:?}");
    world.with(|shards, turn| shards.remove(turn, FILE));
    world.run();
    assert_eq!(world.stripes(), []);
    world.crash(9_999);
    assert_eq!(world.size(), 0);
}

/// The record of a stripe is durable before its object exists: a start after a crash finds what
/// nobody acknowledged.
#[test]
fn an_object_left_by_a_crash_is_found_and_removed() {
    for removes in [false, true] {
        let mut world = World::new();
        world.write(0, false, b"acknowledged").unwrap();
        world.request(
            Op::Write,
            &Write {
                inode: FILE,
                file_offset: 3 * UNIT_BYTES,
                append: false,
                clears: wire::ClearPrivileges::Nothing,
            },
            Some(b"lost"),
        );
        world.take_outcomes();
        let action = world.actions.pop_if(|action| matches!(action, Action::Release { .. }));
        assert!(action.is_some());
        let Some(Action::Object(write)) = world.actions.pop() else { panic!("a write") };
        world.perform(write);
        let all = world.store.objects().collect::<Vec<_>>();
        all.into_iter().for_each(|object| world.store.sync(object, u64::MAX));
        world.crash(2);
        assert_eq!(world.stripes(), [0, 3]);
        if removes {
            world.with(|shards, turn| shards.remove(turn, FILE));
            world.run();
            assert_eq!(world.stripes(), []);
        } else {
            assert_eq!(world.size(), 12);
            assert_eq!(world.stripes(), [0]);
            world.truncate(4 * UNIT_BYTES).unwrap();
            assert_eq!(world.read_all()[12..], [0; 4 * UNIT_BYTES as usize - 12]);
        }
    }
}

#[test]
fn an_allocation_that_fails_in_its_second_object_gives_back_what_the_first_has_taken() {
    let mut world = World::new();
    world.write(0, false, b"bytes").unwrap();
    world.fails = Some(
        |action| matches!(action, ObjectAction::Allocate { object, .. } if object.stripe_index == 1),
    );
    world.done.clear();
    let refused = world.allocate((0, 2 * UNIT_BYTES), (Allocation::Reserve, false));
    assert_eq!(refused, Err(Status::NoSpace));
    let given_back = world.done.iter().filter(|action| action.starts_with("GiveBack"));
    assert_eq!(given_back.count(), 1, "{:?}", world.done);
    assert_eq!((world.size(), world.read_all()), (5, b"bytes".to_vec()));
}

/// After a crash between its steps a truncation has left a size from the old to the new one.
#[test]
fn a_truncation_across_a_hole_never_leaves_less_than_its_size() {
    let mut world = World::new();
    world.truncate(4 * UNIT_BYTES).unwrap();
    assert_eq!(world.stripes(), [3], "what was never written has no object");
    world.request(Op::Truncate, &Truncate { inode: FILE, size_bytes: 10 }, None);
    let mut sizes = Vec::new();
    loop {
        world.take_outcomes();
        let Some(action) = world.actions.pop() else { break };
        let Action::Object(action) = action else { continue };
        world.perform(action);
        let durable = world.store.durable();
        let end = |(object, bytes): (interface::Object, &[u8])| {
            LAYOUT.start(object.stripe_index) + bytes.len() as u64
        };
        sizes.push(durable.map(end).max().unwrap_or(0));
    }
    assert!(sizes.iter().all(|size| *size >= 10), "{sizes:?}");
    world.run();
    assert_eq!((world.size(), world.stripes()), (10, vec![0]));
}

/// The sync between the steps of a truncation fails. Bytes of earlier changes may be lost with it, and
/// a later sync would not find them: so nothing is recorded any more, and a start finds the size of
/// before.
#[test]
fn a_truncation_whose_sync_fails_ends_the_shard() {
    for term in 2..10 {
        let mut world = World::new();
        world.truncate(4 * UNIT_BYTES).unwrap();
        world.fails = Some(
            |action| matches!(action, ObjectAction::Sync { object, .. } if object.stripe_index == 1),
        );
        assert!(world.truncate(UNIT_BYTES + 10).is_err());
        assert!(world.has_failed);
        world.crash(term);
        assert_eq!(world.size(), 4 * UNIT_BYTES);
    }
}

#[test]
fn the_recorded_layout_holds_whatever_a_request_states() {
    let bytes: Vec<u8> = (1..=200).collect();
    let mut world = World::new();
    world.write(0, false, &bytes[..100]).unwrap();
    assert_eq!(world.stripes(), [0, 1]);
    world.crash(2);
    world.layout = Layout { stripe_unit_bytes: 2 * UNIT_BYTES, ..LAYOUT };
    world.write(100, false, &bytes[100..]).unwrap();
    assert_eq!(world.stripes(), [0, 1, 2, 3]);
    let read = Read { inode: FILE, file_offset: 0, read_bytes: 300, accesses: false };
    assert_eq!(world.ask(Op::Read, &read, None).unwrap().1, bytes);
}

/// Two servers, each with one data shard.
fn two_servers() -> Map {
    let server = |id, address| wire::ServerRow { id, lane_count: 1, address };
    let (one, two) = (wire::ServerId::FIRST, wire::ServerId(2));
    let run = |first, server| wire::ShardRun { first, shard_count: 1, server, term: wire::Term(1) };
    let address = "192.0.2.7:7117".parse().unwrap();
    let servers =
        [server(one, wire::ServerAddress::Initial), server(two, wire::ServerAddress::At(address))];
    let runs = [
        run(ShardId::meta(0), one),
        run(ShardId::meta(1), two),
        run(ShardId::data(0), one),
        run(ShardId::data(1), two),
    ];
    let counts = wire::ShardCounts { meta: 2, data: 2 };
    Map::new(wire::MapEpoch(1), counts, servers.into(), runs.into()).unwrap()
}

/// The first of two servers, with this part of a file over both.
fn part_of_two(part: u32) -> (World, InodeNo) {
    let map = two_servers();
    let has_part = |inode: &InodeNo| map.data_shard(*inode, part) == ShardId::data(0);
    let inode = (1..).map(InodeNo).find(has_part).unwrap();
    let mut world = World::new();
    world.shards = shards_with(map, &[], 1);
    world.layout = Layout { stripe_unit_bytes: 1 << 16, stripe_count: 2, narrow: false };
    (world, inode)
}

#[test]
fn a_part_that_is_written_in_order_seldom_waits_for_records_of_its_stripes() {
    let (recorded_count, waits) = record_in_order(1 << 20, 60);
    assert!(recorded_count < 60 + 17, "{recorded_count} are recorded");
    assert!(waits < 12, "{waits} of 60 writes have waited");
    // Small stripes are as many at once as have the same bytes.
    let (recorded_count, waits) = record_in_order(1 << 16, 600);
    assert!(recorded_count < 600 + 257, "{recorded_count} are recorded");
    assert!(waits < 16, "{waits} of 600 writes have waited");
}

/// A home shard writes its part of two in order. Returns how many stripes
/// it has recorded, and how many writes have waited for that.
fn record_in_order(stripe_unit_bytes: u64, count: usize) -> (usize, usize) {
    let (mut world, inode) = part_of_two(0);
    world.layout.stripe_unit_bytes = stripe_unit_bytes;
    let clears = wire::ClearPrivileges::Nothing;
    let (mut recorded, mut waits) = (Vec::new(), 0);
    for written_count in 1..=count {
        let file_offset = (written_count as u64 - 1) * 2 * world.layout.stripe_unit_bytes;
        let body = Write { inode, file_offset, append: false, clears };
        world.ask(Op::Write, &body, Some(b"bytes")).unwrap();
        let before = recorded.len();
        recorded = Vec::new();
        for (_, change) in &world.log {
            if let Ok(Change::Contents(ContentsChange::Stripe { stripe_index, .. })) =
                Change::decode_all(change)
            {
                recorded.push(stripe_index);
            }
        }
        waits += usize::from(recorded.len() > before);
        let further = written_count - 1;
        assert!(recorded.len() >= further && recorded.len() <= 2 * further, "{recorded:?}");
    }
    assert!(recorded.iter().all(|index| index % 2 == 0), "of this part: {recorded:?}");
    (recorded.len(), waits)
}

/// The log fails while the file becomes wide, or behind that.
#[test]
fn a_file_that_was_not_made_wide_durably_is_read_as_before() {
    for is_durable in [false, true] {
        let (mut world, inode) = part_of_two(0);
        world.layout.narrow = true;
        let clears = wire::ClearPrivileges::Nothing;
        let write = Write { inode, file_offset: 0, append: false, clears };
        world.ask(Op::Write, &write, Some(b"bytes")).unwrap();
        assert_eq!(world.shards.width(inode), Width::Narrow);
        world.layout = world.layout.widened();
        let token = world.request(Op::Widen, &wire::Widen { inode }, None);
        assert_eq!(world.shards.width(inode), Width::Widening);
        if is_durable {
            world.run();
            assert!(world.answers.remove(&token).expect("an answer").is_ok());
        } else {
            let recorded = world.shards.outcome();
            assert!(matches!(recorded, Some(Outcome::Record { .. })), "{recorded:?}");
        }
        world.with(|shards, turn| shards.fence(turn));
        let width = if is_durable { Width::Wide } else { Width::Narrow };
        assert_eq!(world.shards.width(inode), width);
        world.layout.narrow = !is_durable;
        let read = Read { inode, file_offset: 0, read_bytes: 9, accesses: false };
        assert_eq!(world.ask(Op::Read, &read, None).unwrap().1, b"bytes");
        let seek = Seek { inode, file_offset: 0, hole: true };
        let (answer, _) = world.ask(Op::Seek, &seek, None).unwrap();
        assert!(matches!(answer, Answer::Sought(5)), "{answer:?}");
        if !is_durable {
            let ended = world.answers.remove(&token).expect("an answer");
            assert!(matches!(ended, Err(Status::Io)), "{ended:?}");
        }
    }
}

/// Both wait for the object's size. The file is wide for good when that is answered.
#[test]
fn a_widen_behind_a_write_that_needs_it_is_recorded() {
    let (mut world, inode) = part_of_two(0);
    world.layout.narrow = true;
    let clears = wire::ClearPrivileges::Nothing;
    let write = Write { inode, file_offset: 1 << 17, append: false, clears };
    let refused = world.request(Op::Write, &write, Some(b"bytes"));
    world.layout = world.layout.widened();
    let token = world.request(Op::Widen, &wire::Widen { inode }, None);
    world.run();
    let answer = world.answers.remove(&refused).expect("an answer");
    assert!(matches!(answer, Err(Status::MustWiden)), "{answer:?}");
    assert!(world.answers.remove(&token).expect("an answer").is_ok());
    assert_eq!(world.shards.width(inode), Width::Wide);
}

/// Behind a start a Widen states the layout while a seek that states none waits for the object's size.
#[test]
fn a_seek_in_front_of_a_widen_finds_the_end_of_the_narrow_file() {
    let (mut world, inode) = part_of_two(0);
    let seek = Seek { inode, file_offset: 1 << 17, hole: true }.to_bytes();
    let (token, op, shard) = (Token(77), Op::Seek, ShardId::data(0));
    let request = DataRequest {
        token,
        op,
        shard,
        layout: None,
        body: &seek,
        bulk: None,
        client: CLIENT,
        kept: false,
        behind: false,
        is_cut: false,
    };
    world.with(|shards, turn| shards.submit(turn, &request)).unwrap();
    world.ask(Op::Widen, &wire::Widen { inode }, None).unwrap();
    let found = world.answers.remove(&token).expect("an answer");
    assert!(matches!(found, Err(Status::NoDevice)), "{found:?}");
}

#[test]
fn what_is_written_behind_follows_the_end_of_its_part() {
    const UNIT: u64 = 1 << 16;
    let write = |world: &mut World, inode: InodeNo, file_offset: u64, bytes: &[u8]| {
        let clears = wire::ClearPrivileges::Nothing;
        let body = Write { inode, file_offset, append: false, clears };
        world.ask(Op::Write, &body, Some(bytes)).map(|_| ())
    };
    let unit = [7_u8; UNIT as usize];
    let (mut world, inode) = part_of_two(0);
    world.behind = true;
    assert_eq!(write(&mut world, inode, 5, b"later"), Err(Status::Stale), "it is empty");
    assert_eq!(write(&mut world, inode, 0, b"first"), Ok(()));
    assert_eq!(write(&mut world, inode, 0, b"again"), Err(Status::Stale));
    assert_eq!(write(&mut world, inode, 2 * UNIT, b"next"), Err(Status::Stale), "a hole before");
    assert_eq!(write(&mut world, inode, 5, &unit[5..]), Ok(()));
    assert_eq!(write(&mut world, inode, 2 * UNIT, b"next"), Ok(()));
    assert_eq!(write(&mut world, inode, 2 * UNIT, b"next"), Err(Status::Stale));
    let read = Read { inode, file_offset: 2 * UNIT, read_bytes: 10, accesses: false };
    assert_eq!(world.ask(Op::Read, &read, None).unwrap().1, b"next");
    let (mut world, inode) = part_of_two(1);
    world.behind = true;
    assert_eq!(write(&mut world, inode, UNIT, &unit), Ok(()), "the other part has the beginning");
    assert_eq!(write(&mut world, inode, UNIT, &unit), Err(Status::Stale));
    assert_eq!(write(&mut world, inode, 5 * UNIT, &unit), Err(Status::Stale), "a hole before");
    assert_eq!(write(&mut world, inode, 3 * UNIT, &unit), Ok(()));
}
