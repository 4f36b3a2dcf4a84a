//! The data shards, action by action: the test is the world.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod allocate;
mod evicted;
mod gives;
mod lists;
mod sizes;
mod sums;
mod times;

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use disk::{Change, ContentsChange};
use interface::{
    Action, Arena, BufId, Bulk, Errno, Mono, NO_MAC, Now, ObjectAction, ObjectStat, Ticket, Turn,
};
use wire::{
    ClientUuid, Contents, Glimpse, InodeNo, LaneId, Map, Op, ProtocolError, Read, ShardId, Status,
    Timestamp, Transno, Truncate, Wire, Write, Writer, Written,
};

const MAP: Map = Map { lane_count: 1, meta_shard_count: 1, data_shard_count: 4 };
const FILE: InodeNo = InodeNo(7);
const WALL_NS: u64 = 1_700_000_000_000_000_000;
const TAG: u64 = 1 << 56;
const CLIENT: ClientUuid = ClientUuid([1; 16]);

/// The shards and everything they asked for that has not ended.
struct World {
    shards: Shards,
    arena: Arena,
    now: Now,
    actions: Vec<Action>,
    token_count: u64,
    buf_count: u32,
    /// What takes checksums away stays among the outcomes.
    holds_intents: bool,
}

impl World {
    fn new(recorded: &[(InodeNo, Change<'_>)]) -> Self {
        Self::sized(recorded, 100)
    }

    fn sized(recorded: &[(InodeNo, Change<'_>)], object_count_max: usize) -> Self {
        let mut shards: Vec<Recorded> = (0..4).map(|n| Recorded::new(ShardId::data(n))).collect();
        for (index, (inode, change)) in recorded.iter().enumerate() {
            let mut changes = Vec::new();
            change.encode(&mut Writer::new(&mut changes));
            let shard = &mut shards[usize::from(MAP.data_shard(*inode, 0).index())];
            shard.replay(Transno(index as u64 + 1), &changes).unwrap();
        }
        let shape = Shape {
            map: MAP,
            lane: LaneId(0),
            object_count_max,
            ticket_tag: TAG,
            seed: 1,
            sync_ms: 0,
            unsynced_bytes_max: 1 << 30,
            block_bytes: disk::BLOCK_BYTES,
            quiet_ms: 3_000,
            rules: wire::Rules::default(),
        };
        Self {
            shards: Shards::new(shape, shards),
            arena: Arena::new(),
            now: Now { mono: Mono(0), wall_ns: WALL_NS },
            actions: Vec::new(),
            token_count: 0,
            buf_count: 0,
            holds_intents: false,
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Shards, &mut Turn<'_>) -> T) -> T {
        let Self { shards, arena, actions, now, .. } = self;
        act(shards, &mut Turn { now: *now, arena, actions })
    }

    fn ask<'a>(&mut self, op: Op, body: &impl Wire<'a>, bulk: Option<Bulk>) -> Token {
        self.try_ask(op, MAP.data_shard(FILE, 0), &body.to_bytes(), bulk).unwrap()
    }

    fn try_ask(
        &mut self,
        op: Op,
        shard: ShardId,
        body: &[u8],
        bulk: Option<Bulk>,
    ) -> Result<Token, ProtocolError> {
        self.token_count += 1;
        let token = Token(self.token_count);
        let ask = Ask { token, op, shard, body, bulk, client: CLIENT };
        let asked = self.with(|shards, turn| shards.ask(turn, &ask)).map(|()| token);
        if !self.holds_intents {
            self.log_intents();
        }
        asked
    }

    /// That checksums are taken away becomes durable; how many of such records there were.
    fn log_intents(&mut self) -> usize {
        let is_intent = |outcome: &Outcome| {
            let Outcome::Noted { change: Change::Contents(change), .. } = outcome else {
                return false;
            };
            matches!(change, ContentsChange::SumsRemoved { .. })
        };
        let count = self.shards.outcomes.iter().filter(|outcome| is_intent(outcome)).count();
        self.shards.outcomes.retain(|outcome| !is_intent(outcome));
        for _ in 0..count {
            self.with(|shards, turn| shards.on_logged(turn, FILE));
        }
        count
    }

    fn bulk(&mut self, bulk_bytes: u32) -> Bulk {
        self.buf_count += 1;
        Bulk { buf: BufId(self.buf_count), start: 0, bulk_bytes, crc32c: Some(77), mac: NO_MAC }
    }

    fn write(&mut self, file_offset: u64, bulk_bytes: u32) -> Token {
        let bulk = Some(self.bulk(bulk_bytes));
        self.ask(
            Op::Write,
            &Write {
                inode: FILE,
                file_offset,
                append: false,
                takes: wire::ClearPrivileges::Nothing,
            },
            bulk,
        )
    }

    fn append(&mut self, bulk_bytes: u32) -> Token {
        let bulk = Some(self.bulk(bulk_bytes));
        self.ask(
            Op::Write,
            &Write {
                inode: FILE,
                file_offset: 99,
                append: true,
                takes: wire::ClearPrivileges::Nothing,
            },
            bulk,
        )
    }

    fn truncate(&mut self, size_bytes: u64) -> Token {
        self.ask(Op::Truncate, &Truncate { inode: FILE, size_bytes }, None)
    }

    fn read(&mut self, file_offset: u64, read_bytes: u32) -> Token {
        self.ask(Op::Read, &Read { inode: FILE, file_offset, read_bytes, accesses: false }, None)
    }

    fn glimpse(&mut self) -> Token {
        self.ask(Op::Glimpse, &Glimpse { inode: FILE }, None)
    }

    fn settle(&mut self) {
        self.with(|shards, turn| shards.settle(turn, Closes::Quiet));
    }

    /// Everything asked for since the last look.
    fn take(&mut self) -> Vec<Action> {
        core::mem::take(&mut self.actions)
    }

    /// The one action asked for, not counting releases.
    fn one(&mut self) -> Action {
        let mut actions = self.take();
        actions.retain(|action| !matches!(action, Action::Release { .. }));
        assert_eq!(actions.len(), 1, "{actions:?}");
        actions[0]
    }

    fn stat(&mut self, size_bytes: Option<u64>) {
        let ticket = ticket(&self.one());
        self.on_stat(ticket, size_bytes);
    }

    fn on_stat(&mut self, ticket: Ticket, size_bytes: Option<u64>) {
        let found = size_bytes.map(|size_bytes| ObjectStat { size_bytes, allocated_bytes: 4096 });
        self.with(|shards, turn| shards.on_stat(turn, ticket, Ok(found)));
    }

    fn done(&mut self, action: &Action) {
        let ticket = ticket(action);
        self.with(|shards, turn| shards.on_done(turn, ticket, Ok(())));
    }

    fn fail(&mut self, action: &Action, errno: u16) {
        let ticket = ticket(action);
        self.with(|shards, turn| shards.on_done(turn, ticket, Err(Errno(errno))));
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        // What is early has tests of its own.
        let all = core::iter::from_fn(|| self.shards.outcome());
        all.filter(|outcome| !matches!(outcome, Outcome::Written { .. })).collect()
    }

    /// A file of this size, its state known.
    fn with_file(size_bytes: u64) -> Self {
        let truncate = truncated(size_bytes, 5);
        let mut world = Self::new(&[(FILE, truncate)]);
        world.glimpse();
        world.stat(Some(size_bytes));
        assert_eq!(world.outcomes().len(), 1);
        world
    }

    /// Ends a write or truncation that begins now: action, sync, outcome.
    fn finish(&mut self) -> Outcome {
        let action = self.one();
        self.done(&action);
        self.settle();
        let sync = self.one();
        assert!(matches!(sync, Action::Object(ObjectAction::Sync { .. })));
        self.done(&sync);
        let outcomes = self.outcomes();
        assert_eq!(outcomes.len(), 1);
        outcomes[0].clone()
    }
}

fn ticket(action: &Action) -> Ticket {
    match action {
        Action::Object(ObjectAction::Read { ticket, .. })
        | Action::Object(ObjectAction::ReadList { ticket, .. })
        | Action::Object(ObjectAction::Write { ticket, .. })
        | Action::Object(ObjectAction::Truncate { ticket, .. })
        | Action::Object(ObjectAction::Allocate { ticket, .. })
        | Action::Object(ObjectAction::Seek { ticket, .. })
        | Action::Object(ObjectAction::Sync { ticket, .. })
        | Action::Object(ObjectAction::Stat { ticket, .. })
        | Action::Object(ObjectAction::Remove { ticket, .. }) => *ticket,
        other => panic!("{other:?} has no end"),
    }
}

fn answered(token: Token, answer: Answer) -> Outcome {
    Outcome::Answered { token, result: Ok(answer), shown: Transno(0) }
}

fn refused(token: Token, status: Status) -> Outcome {
    Outcome::Answered { token, result: Err(status), shown: Transno(0) }
}

fn written(
    object_offset: u64,
    write_bytes: u32,
    crc32c: u32,
    write_time_ns: u64,
) -> Change<'static> {
    let inode = FILE;
    Change::Contents(ContentsChange::Write {
        inode,
        object_offset,
        write_bytes,
        crc32c,
        write_time_ns,
    })
}

fn truncated(size_bytes: u64, write_time_ns: u64) -> Change<'static> {
    Change::Contents(ContentsChange::Truncate { inode: FILE, size_bytes, write_time_ns })
}

fn released(actions: &[Action]) -> Vec<u32> {
    let bufs = actions.iter().filter_map(|action| match action {
        Action::Release { buf } => Some(buf.0),
        _ => None,
    });
    bufs.collect()
}

#[test]
fn a_write_is_written_synced_and_then_told() {
    let mut world = World::new(&[]);
    let token = world.write(10, 5);
    world.stat(None);
    assert!(world.outcomes().is_empty());
    let actions = world.take();
    assert!(matches!(actions[0], Action::Object(ObjectAction::Write { object_offset: 10, .. })));
    assert_eq!(released(&actions[1..]), [1], "released right behind its use, once");
    world.done(&actions[0]);
    assert!(world.outcomes().is_empty(), "not durable yet");
    world.settle();
    let sync = world.one();
    world.done(&sync);
    let shard = MAP.data_shard(FILE, 0);
    let change = written(10, 5, 77, WALL_NS);
    let answer = Answer::Written(Written { file_offset: 10, written_bytes: 5 });
    let transno = Transno((1 << 32) + 1);
    assert_eq!(
        world.outcomes(),
        [Outcome::Changed { token, shard, transno, change, answer, sums: None }]
    );
    world.settle();
    assert!(world.take().is_empty());
    assert!(world.shards.is_durable());
    assert_eq!(world.shards.written_bytes(), 5);
}

#[test]
fn writes_during_a_sync_share_the_next_one() {
    let mut world = World::with_file(0);
    world.write(0, 1);
    let first = world.one();
    world.done(&first);
    world.settle();
    let sync = world.one();
    for offset in 1..4 {
        world.write(offset, 1);
        let write = world.one();
        world.done(&write);
        world.settle();
        assert!(world.take().is_empty(), "one sync at a time");
    }
    world.done(&sync);
    assert_eq!(world.outcomes().len(), 1);
    world.settle();
    let sync = world.one();
    world.done(&sync);
    let offsets: Vec<u64> = world
        .outcomes()
        .iter()
        .map(|outcome| match outcome {
            Outcome::Changed {
                change: Change::Contents(ContentsChange::Write { object_offset, .. }),
                ..
            } => *object_offset,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(offsets, [1, 2, 3], "in the order they were done");
}

#[test]
fn appends_go_one_behind_the_other() {
    let mut world = World::with_file(100);
    let tokens = [world.append(10), world.append(20)];
    let first = world.one();
    assert!(matches!(first, Action::Object(ObjectAction::Write { object_offset: 100, .. })));
    world.write(0, 1);
    assert!(world.take().is_empty(), "nothing overtakes an append");
    world.done(&first);
    let second = world.one();
    assert!(matches!(second, Action::Object(ObjectAction::Write { object_offset: 110, .. })));
    world.done(&second);
    let third = world.one();
    assert!(matches!(third, Action::Object(ObjectAction::Write { object_offset: 0, .. })));
    world.append(1);
    assert!(world.take().is_empty(), "an append waits for what may move the end");
    world.settle();
    let sync = world.one();
    world.done(&sync);
    let offsets: Vec<(Token, u64)> = world
        .outcomes()
        .iter()
        .map(|outcome| match outcome {
            Outcome::Changed { token, answer: Answer::Written(written), .. } => {
                (*token, written.file_offset)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(offsets, [(tokens[0], 100), (tokens[1], 110)]);
}

#[test]
fn plain_writes_go_together() {
    let mut world = World::with_file(0);
    for index in 0..5 {
        world.write(index * 10, 10);
    }
    let actions = world.take();
    let writes = actions
        .iter()
        .filter(|action| matches!(action, Action::Object(ObjectAction::Write { .. })));
    assert_eq!(writes.count(), 5);
    assert_eq!(released(&actions), [1, 2, 3, 4, 5]);
}

#[test]
fn a_failed_append_leaves_nothing_of_itself() {
    let mut world = World::with_file(100);
    let first = world.append(10);
    world.append(20);
    let write = world.one();
    world.fail(&write, 28);
    assert_eq!(world.outcomes(), [refused(first, Status::NoSpace)]);
    world.stat(Some(104));
    // It may be sent again, and must not be there twice.
    let cut = world.one();
    assert!(
        matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: 100, .. })),
        "{cut:?}"
    );
    world.done(&cut);
    assert!(matches!(world.one(), Action::Object(ObjectAction::Write { object_offset: 100, .. })));
    assert_eq!(world.outcomes(), [], "nothing to record");
}

#[test]
fn a_failed_write_beside_others_takes_none_of_theirs_along() {
    let mut world = World::with_file(100);
    let failed = world.write(300, 50);
    let first = world.one();
    world.write(100, 100);
    let second = world.one();
    world.fail(&first, 5);
    assert_eq!(world.outcomes(), [refused(failed, Status::Io)]);
    let token = world.read(0, 1000);
    assert!(world.take().is_empty(), "the other write runs");
    world.done(&second);
    world.stat(Some(310));
    let cut = world.one();
    assert!(
        matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: 200, .. })),
        "{cut:?}"
    );
    world.fail(&cut, 5);
    assert_eq!(world.outcomes(), [refused(token, Status::Io)], "nobody sees it meanwhile");
    world.read(0, 1000);
    world.stat(Some(310));
    let cut = world.one();
    world.done(&cut);
    assert!(matches!(world.one(), Action::Object(ObjectAction::Read { read_bytes: 200, .. })));
}

#[test]
fn a_truncation_that_failed_half_way_is_settled_when_it_is_recorded() {
    let mut world = World::with_file(100);
    let failed = world.truncate(10);
    let cut = world.one();
    world.fail(&cut, 5);
    assert_eq!(world.outcomes(), [refused(failed, Status::Io)]);
    let token = world.durable_glimpse();
    world.stat(Some(10));
    let change = truncated(10, 5);
    let outcomes = world.outcomes();
    let [Outcome::Noted { shard, transno, change: noted }, sized] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    let (shard, transno) = (*shard, *transno);
    assert_eq!(noted, &change);
    let Outcome::Sized { token: told, until, contents, .. } = sized else { panic!("{sized:?}") };
    assert_eq!((*told, *until, contents.size_bytes), (token, transno, 10));
    world.append(5);
    assert!(world.take().is_empty(), "fenced");
    world.shards.on_durable(shard, transno);
    world.with(|shards, turn| shards.on_logged(turn, FILE));
    assert!(matches!(world.one(), Action::Object(ObjectAction::Write { object_offset: 10, .. })));
}

#[test]
fn behind_a_fence_only_readers_are_served() {
    let mut world = World::with_file(100);
    let running = world.append(10);
    let first = world.one();
    let waiting = world.append(20);
    world.with(Shards::fence);
    assert_eq!(world.outcomes(), [refused(waiting, Status::Io)]);
    world.done(&first);
    assert_eq!(world.outcomes(), [refused(running, Status::Io)]);
    let late = world.truncate(0);
    assert_eq!(world.outcomes(), [refused(late, Status::Io)]);
    world.take();
    world.read(0, 1000);
    world.stat(Some(110));
    assert!(
        matches!(world.one(), Action::Object(ObjectAction::Read { read_bytes: 100, .. })),
        "not what failed"
    );
}

#[test]
fn a_replay_that_fails_fences_and_hides_its_object() {
    let mut world = World::with_file(100);
    let bulk = world.bulk(10);
    let token = Token(99);
    let Change::Contents(change) = written(0, 10, 77, WALL_NS) else { panic!("a write") };
    let lost = Lost { token, transno: Transno(3), change, bulk, client: CLIENT };
    world.with(|shards, turn| shards.replay(turn, lost));
    let write = world.one();
    let read = world.read(0, 10);
    world.fail(&write, 5);
    let failed = Outcome::Failed { status: Status::Io };
    let outcomes = [failed, refused(token, Status::Io), refused(read, Status::Io)];
    assert_eq!(world.outcomes(), outcomes);
    let read = world.read(0, 10);
    assert_eq!(world.outcomes(), [refused(read, Status::Io)], "what was acknowledged is not in it");
}

#[test]
fn a_failed_sync_lets_nothing_be_recorded() {
    let mut world = World::with_file(0);
    world.write(0, 1);
    let write = world.one();
    world.done(&write);
    world.settle();
    let sync = world.one();
    world.write(1, 1);
    let write = world.one();
    world.done(&write);
    world.fail(&sync, 5);
    assert_eq!(world.outcomes(), [Outcome::Failed { status: Status::Io }]);
    world.settle();
    let sync = world.one();
    world.done(&sync);
    assert_eq!(world.outcomes(), [], "behind what was lost");
    world.read(0, 10);
    assert!(matches!(world.one(), Action::Object(ObjectAction::Stat { .. })), "asked again");
}

#[test]
fn truncations_are_fenced_until_their_record_is_durable() {
    let mut world = World::with_file(100);
    let token = world.truncate(40);
    let outcome = world.finish();
    assert!(matches!(outcome, Outcome::Changed { token: of, .. } if of == token));
    world.append(1);
    world.write(0, 1);
    assert!(world.take().is_empty(), "the log still says 100");
    world.with(|shards, turn| shards.on_logged(turn, FILE));
    assert!(matches!(world.one(), Action::Object(ObjectAction::Write { object_offset: 40, .. })));
}

#[test]
fn truncations_wait_for_what_runs_and_keep_others_waiting() {
    let mut world = World::with_file(100);
    world.write(90, 20);
    let write = world.one();
    world.truncate(50);
    world.append(5);
    assert!(world.take().is_empty());
    world.done(&write);
    assert!(matches!(world.one(), Action::Object(ObjectAction::Truncate { size_bytes: 50, .. })));
}

#[test]
fn nothing_that_is_written_needs_no_record() {
    let mut world = World::with_file(0);
    let token = world.ask(
        Op::Write,
        &Write {
            inode: FILE,
            file_offset: 9,
            append: false,
            takes: wire::ClearPrivileges::Nothing,
        },
        None,
    );
    let nothing = Answer::Written(Written { file_offset: 9, written_bytes: 0 });
    assert_eq!(world.outcomes(), [answered(token, nothing)]);
}

#[test]
fn reads_end_with_the_file() {
    let mut world = World::with_file(100);
    let token = world.read(100, 10);
    assert_eq!(world.outcomes(), [answered(token, Answer::Bytes(None))]);
    let token = world.read(95, 10);
    let read = world.one();
    assert!(matches!(
        read,
        Action::Object(ObjectAction::Read { object_offset: 95, read_bytes: 5, .. })
    ));
    let bulk = Some(world.bulk(5));
    world.with(|shards, turn| shards.on_read(turn, ticket(&read), Ok(bulk)));
    assert_eq!(world.outcomes(), [answered(token, Answer::Bytes(bulk))]);
    let token = world.read(0, 10);
    let read = world.one();
    world.with(|shards, turn| shards.on_read(turn, ticket(&read), Err(Errno(5))));
    assert_eq!(world.outcomes(), [refused(token, Status::Io)]);
    assert_eq!(world.shards.read_bytes(), 5);
}

#[test]
fn glimpses_see_what_was_written_at_once() {
    let mut world = World::with_file(100);
    let token = world.glimpse();
    let write_time = Some(Timestamp::from_ns(5));
    let contents = Contents { size_bytes: 100, allocated_bytes: 4096, write_time };
    assert_eq!(world.outcomes(), [answered(token, Answer::Glimpsed(contents))]);
    world.write(100, 50);
    let write = world.one();
    world.done(&write);
    let token = world.glimpse();
    // The allocated bytes have to be asked for, size and time are known better here.
    let asked = ticket(&world.one());
    world.on_stat(asked, Some(3));
    let write_time = Some(Timestamp::from_ns(WALL_NS));
    let contents = Contents { size_bytes: 150, allocated_bytes: 4096, write_time };
    assert_eq!(world.outcomes(), [answered(token, Answer::Glimpsed(contents))]);
    let token = world.glimpse();
    assert_eq!(world.outcomes(), [answered(token, Answer::Glimpsed(contents))]);
}

#[test]
fn a_file_never_written_has_nothing() {
    let mut world = World::new(&[]);
    let tokens = [world.glimpse(), world.read(0, 10)];
    world.stat(None);
    let contents = Contents { size_bytes: 0, allocated_bytes: 0, write_time: None };
    let expected =
        [answered(tokens[0], Answer::Glimpsed(contents)), answered(tokens[1], Answer::Bytes(None))];
    assert_eq!(world.outcomes(), expected);
}

#[test]
fn after_a_start_what_was_never_recorded_is_cut_off() {
    let write = written(90, 10, 0, 5);
    for (recorded, size_bytes) in [(vec![(FILE, write)], 100), (vec![], 0)] {
        let mut world = World::new(&recorded);
        world.append(5);
        world.stat(Some(130));
        let cut = world.one();
        assert!(
            matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: to, .. }) if to == size_bytes)
        );
        world.done(&cut);
        let append = world.one();
        assert!(
            matches!(append, Action::Object(ObjectAction::Write { object_offset, .. }) if object_offset == size_bytes)
        );
        assert!(world.outcomes().is_empty());
    }
}

#[test]
fn after_a_start_what_is_shorter_is_recorded_first() {
    let write = written(90, 10, 0, 5);
    let mut world = World::new(&[(FILE, write)]);
    world.append(5);
    world.stat(Some(60));
    let change = truncated(60, 5);
    let noted = world.outcomes();
    assert!(matches!(&noted[..], [Outcome::Noted { change: found, .. }] if *found == change));
    assert!(world.take().is_empty(), "fenced");
    world.with(|shards, turn| shards.on_logged(turn, FILE));
    assert!(matches!(world.one(), Action::Object(ObjectAction::Write { object_offset: 60, .. })));
}

#[test]
fn the_log_is_believed_once_per_boot() {
    let mut world = World::sized(&[], 1);
    world.write(0, 50);
    world.stat(None);
    world.finish();
    // Another object pushes the file out of the cache.
    for inode in [InodeNo(8), InodeNo(9), InodeNo(10)] {
        let body = Glimpse { inode }.to_bytes();
        world.try_ask(Op::Glimpse, MAP.data_shard(inode, 0), &body, None).unwrap();
        world.stat(None);
    }
    world.outcomes();
    let token = world.glimpse();
    world.stat(Some(50));
    assert!(world.take().is_empty(), "not cut to what the log of earlier boots said");
    let outcomes = world.outcomes();
    assert!(matches!(
        outcomes[..],
        [Outcome::Answered {
            token: of,
            result: Ok(Answer::Glimpsed(Contents { size_bytes: 50, .. })),
            ..
        }]
            if of == token
    ));
}

#[test]
fn a_size_that_cannot_be_had_fails_what_waits() {
    let mut world = World::new(&[]);
    let tokens = [world.append(5), world.read(0, 1)];
    let stat = ticket(&world.one());
    world.with(|shards, turn| shards.on_stat(turn, stat, Err(Errno(5))));
    let expected = tokens.map(|token| refused(token, Status::Io));
    assert_eq!(world.outcomes(), expected);
    let actions = world.take();
    assert_eq!(released(&actions), [1]);
    assert!(world.shards.is_idle());
}

#[test]
fn removal_comes_last_and_is_noted() {
    let mut world = World::with_file(10);
    world.write(0, 5);
    let write = world.one();
    world.with(|shards, turn| shards.remove(turn, FILE));
    world.done(&write);
    assert!(world.take().is_empty());
    world.settle();
    let sync = world.one();
    world.done(&sync);
    assert_eq!(world.outcomes().len(), 1);
    let remove = world.one();
    assert!(matches!(remove, Action::Object(ObjectAction::Remove { .. })));
    world.done(&remove);
    let outcomes = world.outcomes();
    assert!(matches!(
        outcomes[0],
        Outcome::Noted {
            change: Change::Contents(ContentsChange::ObjectRemoved { inode: FILE }),
            ..
        }
    ));
    assert_eq!(outcomes[1], Outcome::Removed { inode: FILE, result: Ok(()) });
    // Again, of what is not there: nothing to note.
    world.with(|shards, turn| shards.remove(turn, FILE));
    let remove = world.one();
    world.fail(&remove, 5);
    let failed = Outcome::Removed { inode: FILE, result: Err(Status::Io) };
    assert_eq!(world.outcomes(), [failed]);
    assert!(world.shards.is_idle());
}

#[test]
fn requests_are_checked() {
    let mut world = World::with_file(100);
    let max = i64::MAX.unsigned_abs();
    let shard = MAP.data_shard(FILE, 0);
    let bulk = world.bulk(10);
    let beyond = Write {
        inode: FILE,
        file_offset: max - 9,
        append: false,
        takes: wire::ClearPrivileges::Nothing,
    };
    let token = world.ask(Op::Write, &beyond, Some(bulk));
    assert_eq!(world.outcomes(), [refused(token, Status::TooLarge)]);
    let token = world.truncate(max + 1);
    assert_eq!(world.outcomes(), [refused(token, Status::TooLarge)]);
    let token = world.read(max + 1, 1);
    assert_eq!(world.outcomes(), [refused(token, Status::Invalid)]);
    let elsewhere = ShardId::data((shard.index() + 1) % 4);
    let body = Glimpse { inode: FILE }.to_bytes();
    assert_eq!(world.try_ask(Op::Glimpse, elsewhere, &body, None), Err(ProtocolError::Route));
    let bulk = Some(world.bulk(1));
    assert_eq!(world.try_ask(Op::Write, shard, b"?", bulk), Err(ProtocolError::Malformed));
    assert_eq!(released(&world.take()), [1, 2]);
    assert!(world.outcomes().is_empty());
}

#[test]
fn an_append_beyond_the_largest_size_is_refused() {
    let max = i64::MAX.unsigned_abs();
    let mut world = World::with_file(max - 5);
    let token = world.append(6);
    assert_eq!(world.outcomes(), [refused(token, Status::TooLarge)]);
    assert_eq!(released(&world.take()), [1]);
    world.append(5);
    assert!(matches!(world.one(), Action::Object(ObjectAction::Write { .. })));
}

#[test]
fn metadata_changes_are_no_data() {
    let mut changes = Vec::new();
    Change::InodeRemoved { inode: FILE }.encode(&mut Writer::new(&mut changes));
    let mut shard = Recorded::new(ShardId::data(0));
    assert!(shard.replay(Transno(1), &changes).is_err());
}

#[test]
fn numbers_of_an_earlier_boot_are_never_used_again() {
    let mut shard = Recorded::new(ShardId::data(0));
    shard.replay(Transno((3 << 32) + 17), &[]).unwrap();
    assert_eq!(shard.boot_transno(), Transno(4 << 32));
}

#[test]
fn the_cache_is_bounded() {
    let mut world = World::sized(&[], 10);
    for number in 1..200 {
        let inode = InodeNo(number);
        let body = Glimpse { inode }.to_bytes();
        world.try_ask(Op::Glimpse, MAP.data_shard(inode, 0), &body, None).unwrap();
        world.stat(None);
    }
    assert!(world.shards.objects.len() <= 20, "{} objects", world.shards.objects.len());
}

/// Two lost writes of a shard, the later one first in its object: recorded in the order asked.
#[test]
fn replays_are_recorded_in_the_order_they_were_asked_for() {
    let mut world = World::new(&[]);
    let same = |inode: &InodeNo| MAP.data_shard(*inode, 0) == MAP.data_shard(FILE, 0);
    let other = (FILE.0 + 1..).map(InodeNo).find(same).unwrap();
    for (inode, number) in [(FILE, 5), (other, 6)] {
        let bulk = world.bulk(3);
        let (token, transno) = (Token(number), Transno(number));
        let (object_offset, write_bytes, crc32c, write_time_ns) = (0, 3, 77, 7);
        let change =
            ContentsChange::Write { inode, object_offset, write_bytes, crc32c, write_time_ns };
        let lost = Lost { token, transno, change, bulk, client: CLIENT };
        world.with(|shards, turn| shards.replay(turn, lost));
    }
    let stats = world.take();
    for index in [1, 0] {
        world.on_stat(ticket(&stats[index]), None);
        let written = world.take();
        world.done(&written[0]);
        world.settle();
        let sync = world.one();
        world.done(&sync);
        let recorded: Vec<Token> = world
            .outcomes()
            .iter()
            .map(|outcome| match outcome {
                Outcome::Changed { token, .. } => *token,
                other => panic!("{other:?}"),
            })
            .collect();
        let wanted = if index == 1 { vec![] } else { vec![Token(5), Token(6)] };
        assert_eq!(recorded, wanted);
    }
}
