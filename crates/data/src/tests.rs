//! The data shards, action by action: the test acts as the runtime.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs)]
#![allow(clippy::wildcard_enum_match_arm)]

mod allocate;
mod comparisons;
mod evicted;
mod lists;
mod log;
mod log_first;
mod privileged_bits;
mod sizes;
mod stripes;
mod sums;
mod times;

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use disk::{BLOCK_BYTES, BlockSum, BlockSums, Change, ContentsChange};
use interface::{
    Action, Arena, BufId, Bulk, Errno, Mono, NO_MAC, Now, ObjectAction, ObjectStat, SumRange,
    Ticket, Turn,
};
use wire::{
    ClientUuid, Contents, Glimpse, InodeNo, LaneId, Layout, Map, Op, ProtocolError, Read,
    ShardCounts, ShardId, Status, Term, Timestamp, Transno, Truncate, Wire, Write, Writer, Written,
};

const SHARDS: ShardCounts = ShardCounts { meta: 1, data: 4 };
const FILE: InodeNo = InodeNo(7);
const WALL_NS: u64 = 1_700_000_000_000_000_000;
const TAG: u64 = 1 << 56;
const CLIENT: ClientUuid = ClientUuid([1; 16]);
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Of two blocks.
const SUMS: [BlockSum; 2] = [
    BlockSum { crc32c: 1, covered_bytes: BLOCK_BYTES },
    BlockSum { crc32c: 2, covered_bytes: BLOCK_BYTES },
];

/// The shards and their actions that have not ended.
struct Harness {
    shards: Shards,
    arena: Arena,
    now: Now,
    actions: Vec<Action>,
    token_count: u64,
    buf_count: u32,
    /// Changes that remove checksums stay among the outcomes.
    holds_intents: bool,
    /// Writes are those of a new file's creator, who does not wait for them.
    behind: bool,
}

impl Harness {
    fn new(recorded: &[(InodeNo, Change<'_>)]) -> Self {
        Self::sized(recorded, 100)
    }

    fn sized(recorded: &[(InodeNo, Change<'_>)], object_count_max: usize) -> Self {
        let mut shards: Vec<Recorded> = (0..4).map(|n| Recorded::new(ShardId::data(n))).collect();
        for (index, (inode, change)) in recorded.iter().enumerate() {
            let mut changes = Vec::new();
            change.encode(&mut Writer::new(&mut changes));
            let shard = &mut shards[usize::from(SHARDS.data_shard(*inode, 0).index())];
            shard.replay(Transno(index as u64 + 1), &changes).unwrap();
        }
        let shape = DataConfig {
            map: Map::single_server(1, SHARDS, Term(1)),
            lane: LaneId(0),
            server: wire::ServerId::FIRST,
            object_count_max,
            ticket_tag: TAG,
            seed: 1,
            sync_ms: 0,
            unsynced_bytes_max: 1 << 30,
            logged_bytes_max: 64 << 10,
            page_bytes: 4096,
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
            behind: false,
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Shards, &mut Turn<'_>) -> T) -> T {
        let Self { shards, arena, actions, now, .. } = self;
        act(shards, &mut Turn { now: *now, arena, actions })
    }

    fn request<'a>(&mut self, op: Op, body: &impl Wire<'a>, bulk: Option<Bulk>) -> Token {
        self.try_ask(op, SHARDS.data_shard(FILE, 0), &body.to_bytes(), bulk).unwrap()
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
        let layout = Some(Layout::DEFAULT);
        let request = DataRequest {
            token,
            op,
            shard,
            layout,
            body,
            bulk,
            client: CLIENT,
            kept: false,
            behind: self.behind,
            is_cut: false,
        };
        let asked = self.with(|shards, turn| shards.submit(turn, &request)).map(|()| token);
        if !self.holds_intents {
            self.log_intents();
        }
        asked
    }

    /// Makes the removal of checksums and the names of further objects durable; returns the number of such records.
    fn log_intents(&mut self) -> usize {
        let is_intent = |outcome: &Outcome| {
            let Outcome::Record { change: Change::Contents(change), .. } = outcome else {
                return false;
            };
            matches!(change, ContentsChange::SumsRemoved { .. } | ContentsChange::Stripe { .. })
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
        self.write_or_append(file_offset, false, bulk_bytes)
    }

    fn append(&mut self, bulk_bytes: u32) -> Token {
        self.write_or_append(99, true, bulk_bytes)
    }

    fn write_or_append(&mut self, file_offset: u64, append: bool, bulk_bytes: u32) -> Token {
        let (inode, clears) = (FILE, wire::ClearPrivileges::Nothing);
        let bulk = Some(self.bulk(bulk_bytes));
        self.request(Op::Write, &Write { inode, file_offset, append, clears }, bulk)
    }

    fn truncate(&mut self, size_bytes: u64) -> Token {
        self.request(Op::Truncate, &Truncate { inode: FILE, size_bytes }, None)
    }

    fn read(&mut self, file_offset: u64, read_bytes: u32) -> Token {
        self.request(
            Op::Read,
            &Read { inode: FILE, file_offset, read_bytes, accesses: false },
            None,
        )
    }

    fn glimpse(&mut self) -> Token {
        self.request(Op::Glimpse, &Glimpse { inode: FILE }, None)
    }

    fn settle(&mut self) {
        self.with(|shards, turn| shards.settle(turn, SumRecording::Quiet, 0));
    }

    /// All actions since the last call.
    fn take(&mut self) -> Vec<Action> {
        core::mem::take(&mut self.actions)
    }

    /// The only action, not counting releases.
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

    /// A cut of the object ends, and is made durable.
    fn cut_done(&mut self, cut: &Action) {
        self.done(cut);
        let sync = self.one();
        assert!(matches!(sync, Action::Object(ObjectAction::Sync { .. })), "{sync:?}");
        self.done(&sync);
    }

    fn fail(&mut self, action: &Action, errno: u16) {
        let ticket = ticket(action);
        self.with(|shards, turn| shards.on_done(turn, ticket, Err(Errno(errno))));
    }

    /// Completes the computation of checksums that an action requests; returns the requested ranges.
    fn sums_are(
        &mut self,
        action: &Action,
        found: &[BlockSum],
        from_disk: bool,
    ) -> Vec<(u64, u32)> {
        let Action::Object(ObjectAction::Sums { ticket, ranges, .. }) = *action else {
            panic!("{action:?}")
        };
        let mut from = wire::Reader::new(self.arena.get(ranges));
        let ranges = core::iter::from_fn(|| from.read::<SumRange>().ok());
        let ranges = ranges.map(|range| (range.object_offset, range.range_bytes)).collect();
        let bytes: Vec<u8> = found.iter().flat_map(BlockSum::to_bytes).collect();
        let span = self.arena.put(&bytes);
        self.with(|shards, turn| shards.on_sums(turn, ticket, (Ok(span), from_disk)));
        ranges
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        // Early outcomes have tests of their own.
        let all = core::iter::from_fn(|| self.shards.outcome());
        all.filter(|outcome| !matches!(outcome, Outcome::Written { .. })).collect()
    }

    /// A file of two blocks with checksums of an earlier boot.
    fn of_two_blocks() -> Self {
        let sums = BlockSums(SUMS.into());
        let known = ContentsChange::Sums { inode: FILE, first_block: 0, sums };
        Self::new(&[(FILE, truncated(2 * BLOCK, 5)), (FILE, Change::Contents(known))])
    }

    /// A file of this size, with known state.
    fn with_file(size_bytes: u64) -> Self {
        let truncate = truncated(size_bytes, 5);
        let mut harness = Self::new(&[(FILE, truncate)]);
        harness.glimpse();
        harness.stat(Some(size_bytes));
        assert_eq!(harness.outcomes().len(), 1);
        harness
    }

    /// Completes a write or truncation: action, sync, outcome.
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
fn a_write_is_written_synced_and_then_reported() {
    let mut harness = Harness::new(&[]);
    let token = harness.write(10, 5);
    harness.stat(None);
    assert!(harness.outcomes().is_empty());
    let actions = harness.take();
    assert!(matches!(actions[0], Action::Object(ObjectAction::Write { object_offset: 10, .. })));
    assert_eq!(released(&actions[1..]), [1], "released right behind its use, once");
    harness.done(&actions[0]);
    assert!(harness.outcomes().is_empty(), "not durable yet");
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    let shard = SHARDS.data_shard(FILE, 0);
    let change = written(10, 5, 77, WALL_NS);
    let answer = Answer::Written(Written { file_offset: 10, written_bytes: 5 });
    let transno = Transno((1 << 32) + 1);
    assert_eq!(
        harness.outcomes(),
        [Outcome::Changed { token, shard, transno, change, answer, sums: None, logged: None }]
    );
    harness.settle();
    assert!(harness.take().is_empty());
    assert!(harness.shards.is_durable());
    assert_eq!(harness.shards.written_bytes(), 5);
}

#[test]
fn writes_during_a_sync_share_the_next_one() {
    let mut harness = Harness::with_file(0);
    harness.write(0, 1);
    let first = harness.one();
    harness.done(&first);
    harness.settle();
    let sync = harness.one();
    for offset in 1..4 {
        harness.write(offset, 1);
        let write = harness.one();
        harness.done(&write);
        harness.settle();
        assert!(harness.take().is_empty(), "one sync at a time");
    }
    harness.done(&sync);
    assert_eq!(harness.outcomes().len(), 1);
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    let offsets: Vec<u64> = harness
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
fn appends_run_one_after_the_other() {
    let mut harness = Harness::with_file(100);
    let tokens = [harness.append(10), harness.append(20)];
    let first = harness.one();
    assert!(matches!(first, Action::Object(ObjectAction::Write { object_offset: 100, .. })));
    harness.write(0, 1);
    assert!(harness.take().is_empty(), "nothing overtakes an append");
    harness.done(&first);
    let second = harness.one();
    assert!(matches!(second, Action::Object(ObjectAction::Write { object_offset: 110, .. })));
    harness.done(&second);
    let third = harness.one();
    assert!(matches!(third, Action::Object(ObjectAction::Write { object_offset: 0, .. })));
    harness.append(1);
    assert!(harness.take().is_empty(), "an append waits for changes that may move the end");
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    let offsets: Vec<(Token, u64)> = harness
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
fn plain_writes_run_in_parallel() {
    let mut harness = Harness::with_file(0);
    for index in 0..5 {
        harness.write(index * 10, 10);
    }
    let actions = harness.take();
    let writes = actions
        .iter()
        .filter(|action| matches!(action, Action::Object(ObjectAction::Write { .. })));
    assert_eq!(writes.count(), 5);
    assert_eq!(released(&actions), [1, 2, 3, 4, 5]);
}

#[test]
fn a_failed_append_leaves_nothing_of_itself() {
    let mut harness = Harness::with_file(100);
    let first = harness.append(10);
    harness.append(20);
    let write = harness.one();
    harness.fail(&write, 28);
    assert_eq!(harness.outcomes(), [refused(first, Status::NoSpace)]);
    harness.stat(Some(104));
    // It may be resent, and must not be there twice.
    let cut = harness.one();
    assert!(
        matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: 100, .. })),
        "{cut:?}"
    );
    harness.cut_done(&cut);
    assert!(matches!(
        harness.one(),
        Action::Object(ObjectAction::Write { object_offset: 100, .. })
    ));
    assert_eq!(harness.outcomes(), [], "nothing to record");
}

#[test]
fn a_failed_write_does_not_undo_concurrent_ones() {
    let mut harness = Harness::with_file(100);
    let failed = harness.write(300, 50);
    let first = harness.one();
    harness.write(100, 100);
    let second = harness.one();
    harness.fail(&first, 5);
    assert_eq!(harness.outcomes(), [refused(failed, Status::Io)]);
    let token = harness.read(0, 1000);
    assert!(harness.take().is_empty(), "the other write runs");
    harness.done(&second);
    harness.stat(Some(310));
    let cut = harness.one();
    assert!(
        matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: 200, .. })),
        "{cut:?}"
    );
    harness.fail(&cut, 5);
    assert_eq!(harness.outcomes(), [refused(token, Status::Io)], "it cannot be read meanwhile");
    harness.read(0, 1000);
    harness.stat(Some(310));
    let cut = harness.one();
    harness.cut_done(&cut);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Read { read_bytes: 200, .. })));
}

#[test]
fn a_truncation_that_failed_half_way_is_settled_when_it_is_recorded() {
    let mut harness = Harness::with_file(100);
    let failed = harness.truncate(10);
    let cut = harness.one();
    harness.fail(&cut, 5);
    assert_eq!(harness.outcomes(), [refused(failed, Status::Io)]);
    let token = harness.durable_glimpse();
    harness.stat(Some(10));
    let change = truncated(10, 5);
    let outcomes = harness.outcomes();
    let [Outcome::Record { shard, transno, change: without_access }, sized] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    let (shard, transno) = (*shard, *transno);
    assert_eq!(without_access, &change);
    let Outcome::Sized { token: sized_token, until, contents, .. } = sized else {
        panic!("{sized:?}")
    };
    assert_eq!((*sized_token, *until, contents.size_bytes), (token, transno, 10));
    harness.append(5);
    assert!(harness.take().is_empty(), "fenced");
    harness.shards.on_durable(shard, transno);
    harness.with(|shards, turn| shards.on_logged(turn, FILE));
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Write { object_offset: 10, .. })));
}

#[test]
fn a_fenced_shard_serves_reads_only() {
    let mut harness = Harness::with_file(100);
    let running = harness.append(10);
    let first = harness.one();
    let waiting = harness.append(20);
    harness.with(Shards::fence);
    assert_eq!(harness.outcomes(), [refused(waiting, Status::Io)]);
    harness.done(&first);
    assert_eq!(harness.outcomes(), [refused(running, Status::Io)]);
    let late = harness.truncate(0);
    assert_eq!(harness.outcomes(), [refused(late, Status::Io)]);
    harness.take();
    harness.read(0, 1000);
    harness.stat(Some(110));
    assert!(
        matches!(harness.one(), Action::Object(ObjectAction::Read { read_bytes: 100, .. })),
        "the failed change is not included"
    );
}

#[test]
fn a_replay_that_fails_fences_and_hides_its_object() {
    let mut harness = Harness::with_file(100);
    let bulk = harness.bulk(10);
    let token = Token(99);
    let Change::Contents(change) = written(0, 10, 77, WALL_NS) else { panic!("a write") };
    let lost = LostWrite { token, transno: Transno(3), change, bulk, client: CLIENT };
    harness.with(|shards, turn| shards.replay(turn, lost));
    let write = harness.one();
    let read = harness.read(0, 10);
    harness.fail(&write, 5);
    let failed = Outcome::Failed { status: Status::Io };
    let outcomes = [failed, refused(token, Status::Io), refused(read, Status::Io)];
    assert_eq!(harness.outcomes(), outcomes);
    let read = harness.read(0, 10);
    assert_eq!(
        harness.outcomes(),
        [refused(read, Status::Io)],
        "acknowledged changes are missing in it"
    );
}

#[test]
fn after_a_failed_sync_nothing_is_recorded() {
    let mut harness = Harness::with_file(0);
    harness.write(0, 1);
    let write = harness.one();
    harness.done(&write);
    harness.settle();
    let sync = harness.one();
    harness.write(1, 1);
    let write = harness.one();
    harness.done(&write);
    harness.fail(&sync, 5);
    assert_eq!(harness.outcomes(), [Outcome::Failed { status: Status::Io }]);
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    assert_eq!(harness.outcomes(), [], "behind a lost change");
    harness.read(0, 10);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Stat { .. })), "queried again");
}

#[test]
fn truncations_are_fenced_until_their_record_is_durable() {
    let mut harness = Harness::with_file(100);
    let token = harness.truncate(40);
    let outcome = harness.finish();
    assert!(matches!(outcome, Outcome::Changed { token: of, .. } if of == token));
    harness.append(1);
    harness.write(0, 1);
    assert!(harness.take().is_empty(), "the log still says 100");
    harness.with(|shards, turn| shards.on_logged(turn, FILE));
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Write { object_offset: 40, .. })));
}

#[test]
fn truncations_run_alone() {
    let mut harness = Harness::with_file(100);
    harness.write(90, 20);
    let write = harness.one();
    harness.truncate(50);
    harness.append(5);
    assert!(harness.take().is_empty());
    harness.done(&write);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Truncate { size_bytes: 50, .. })));
}

#[test]
fn an_empty_write_is_not_recorded() {
    let mut harness = Harness::with_file(0);
    let token = harness.request(
        Op::Write,
        &Write {
            inode: FILE,
            file_offset: 9,
            append: false,
            clears: wire::ClearPrivileges::Nothing,
        },
        None,
    );
    let nothing = Answer::Written(Written { file_offset: 9, written_bytes: 0 });
    assert_eq!(harness.outcomes(), [answered(token, nothing)]);
}

#[test]
fn reads_end_with_the_file() {
    let mut harness = Harness::with_file(100);
    let token = harness.read(100, 10);
    assert_eq!(harness.outcomes(), [answered(token, Answer::Bytes(None))]);
    let token = harness.read(95, 10);
    let read = harness.one();
    assert!(matches!(
        read,
        Action::Object(ObjectAction::Read { object_offset: 95, read_bytes: 5, .. })
    ));
    let bulk = Some(harness.bulk(5));
    harness.with(|shards, turn| shards.on_read(turn, ticket(&read), Ok(bulk)));
    assert_eq!(harness.outcomes(), [answered(token, Answer::Bytes(bulk))]);
    let token = harness.read(0, 10);
    let read = harness.one();
    harness.with(|shards, turn| shards.on_read(turn, ticket(&read), Err(Errno(5))));
    assert_eq!(harness.outcomes(), [refused(token, Status::Io)]);
    assert_eq!(harness.shards.read_bytes(), 5);
}

/// Such a write did not look for the lease that the read's client has.
#[test]
fn a_read_whose_bytes_are_kept_waits_for_the_writes_in_progress() {
    let mut harness = Harness::with_file(100);
    harness.write(0, 10);
    let write = harness.one();
    harness.read(0, 10);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Read { .. })), "one that is not");
    let body = Read { inode: FILE, file_offset: 0, read_bytes: 10, accesses: false }.to_bytes();
    let (token, op, shard) = (Token(90), Op::Read, SHARDS.data_shard(FILE, 0));
    let (layout, bulk, client, kept) = (None, None, CLIENT, true);
    let request = DataRequest {
        token,
        op,
        shard,
        layout,
        body: &body,
        bulk,
        client,
        kept,
        behind: false,
        is_cut: false,
    };
    harness.with(|shards, turn| shards.submit(turn, &request)).unwrap();
    assert!(harness.take().is_empty(), "it waits");
    harness.done(&write);
    let mut actions = harness.take();
    actions.retain(|action| matches!(action, Action::Object(ObjectAction::Read { .. })));
    assert_eq!(actions.len(), 1);
}

#[test]
fn glimpses_see_what_was_written_at_once() {
    let mut harness = Harness::with_file(100);
    let token = harness.glimpse();
    let write_time = Some(Timestamp::from_ns(5));
    let contents = Contents { size_bytes: 100, allocated_bytes: 4096, write_time };
    assert_eq!(harness.outcomes(), [answered(token, Answer::Glimpsed(contents))]);
    harness.write(100, 50);
    let write = harness.one();
    harness.done(&write);
    let token = harness.glimpse();
    // The allocated bytes are queried; size and time are already known.
    let asked = ticket(&harness.one());
    harness.on_stat(asked, Some(3));
    let write_time = Some(Timestamp::from_ns(WALL_NS));
    let contents = Contents { size_bytes: 150, allocated_bytes: 4096, write_time };
    assert_eq!(harness.outcomes(), [answered(token, Answer::Glimpsed(contents))]);
    let token = harness.glimpse();
    assert_eq!(harness.outcomes(), [answered(token, Answer::Glimpsed(contents))]);
}

#[test]
fn a_file_never_written_is_empty() {
    let mut harness = Harness::new(&[]);
    let tokens = [harness.glimpse(), harness.read(0, 10)];
    harness.stat(None);
    let contents = Contents { size_bytes: 0, allocated_bytes: 0, write_time: None };
    let expected =
        [answered(tokens[0], Answer::Glimpsed(contents)), answered(tokens[1], Answer::Bytes(None))];
    assert_eq!(harness.outcomes(), expected);
}

#[test]
fn after_a_start_unrecorded_bytes_are_cut_off() {
    let write = written(90, 10, 0, 5);
    for (recorded, size_bytes) in [(vec![(FILE, write)], 100), (vec![], 0)] {
        let mut harness = Harness::new(&recorded);
        harness.append(5);
        harness.stat(Some(130));
        let cut = harness.one();
        assert!(
            matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: to, .. }) if to == size_bytes)
        );
        harness.cut_done(&cut);
        let append = harness.one();
        assert!(
            matches!(append, Action::Object(ObjectAction::Write { object_offset, .. }) if object_offset == size_bytes)
        );
        assert!(harness.outcomes().is_empty());
    }
}

#[test]
fn a_cut_that_is_not_durable_ends_the_shard() {
    let mut harness = Harness::new(&[(FILE, written(90, 10, 0, 5))]);
    let append = harness.append(5);
    harness.stat(Some(130));
    let cut = harness.one();
    harness.done(&cut);
    let sync = harness.one();
    harness.fail(&sync, 5);
    let failed = Outcome::Failed { status: Status::Io };
    assert_eq!(harness.outcomes(), [failed, refused(append, Status::Io)]);
}

#[test]
fn after_a_start_a_shorter_size_is_recorded_first() {
    let write = written(90, 10, 0, 5);
    let mut harness = Harness::new(&[(FILE, write)]);
    harness.append(5);
    harness.stat(Some(60));
    let change = truncated(60, 5);
    let without_access = harness.outcomes();
    assert!(
        matches!(&without_access[..], [Outcome::Record { change: found, .. }] if *found == change)
    );
    assert!(harness.take().is_empty(), "fenced");
    harness.with(|shards, turn| shards.on_logged(turn, FILE));
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Write { object_offset: 60, .. })));
}

#[test]
fn the_recorded_size_is_applied_once_per_boot() {
    let mut harness = Harness::sized(&[], 1);
    harness.write(0, 50);
    harness.stat(None);
    harness.finish();
    // Another object pushes the file out of the cache.
    for inode in [InodeNo(8), InodeNo(9), InodeNo(10)] {
        let body = Glimpse { inode }.to_bytes();
        harness.try_ask(Op::Glimpse, SHARDS.data_shard(inode, 0), &body, None).unwrap();
        harness.stat(None);
    }
    harness.outcomes();
    let token = harness.glimpse();
    harness.stat(Some(50));
    assert!(harness.take().is_empty(), "not cut to the size in the log of earlier boots");
    let outcomes = harness.outcomes();
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
fn a_failed_size_query_fails_queued_operations() {
    let mut harness = Harness::new(&[]);
    let tokens = [harness.append(5), harness.read(0, 1)];
    let stat = ticket(&harness.one());
    harness.with(|shards, turn| shards.on_stat(turn, stat, Err(Errno(5))));
    let expected = tokens.map(|token| refused(token, Status::Io));
    assert_eq!(harness.outcomes(), expected);
    let actions = harness.take();
    assert_eq!(released(&actions), [1]);
    assert!(harness.shards.is_idle());
}

#[test]
fn removal_comes_last_and_is_recorded() {
    let mut harness = Harness::with_file(10);
    harness.write(0, 5);
    let write = harness.one();
    harness.with(|shards, turn| shards.remove(turn, FILE));
    harness.done(&write);
    assert!(harness.take().is_empty());
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    assert_eq!(harness.outcomes().len(), 1);
    let remove = harness.one();
    assert!(matches!(remove, Action::Object(ObjectAction::Remove { .. })));
    harness.done(&remove);
    let outcomes = harness.outcomes();
    assert!(matches!(
        outcomes[0],
        Outcome::Record {
            change: Change::Contents(ContentsChange::ObjectRemoved { inode: FILE }),
            ..
        }
    ));
    assert_eq!(outcomes[1], Outcome::Removed { inode: FILE, result: Ok(()) });
    // Removing a missing object is not recorded.
    harness.with(|shards, turn| shards.remove(turn, FILE));
    let remove = harness.one();
    harness.fail(&remove, 5);
    let failed = Outcome::Removed { inode: FILE, result: Err(Status::Io) };
    assert_eq!(harness.outcomes(), [failed]);
    assert!(harness.shards.is_idle());
}

#[test]
fn requests_are_checked() {
    let mut harness = Harness::with_file(100);
    let max = i64::MAX.unsigned_abs();
    let shard = SHARDS.data_shard(FILE, 0);
    let bulk = harness.bulk(10);
    let beyond = Write {
        inode: FILE,
        file_offset: max - 9,
        append: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    let token = harness.request(Op::Write, &beyond, Some(bulk));
    assert_eq!(harness.outcomes(), [refused(token, Status::TooLarge)]);
    let token = harness.truncate(max + 1);
    assert_eq!(harness.outcomes(), [refused(token, Status::TooLarge)]);
    let token = harness.read(max + 1, 1);
    assert_eq!(harness.outcomes(), [refused(token, Status::Invalid)]);
    let elsewhere = ShardId::data((shard.index() + 1) % 4);
    let body = Glimpse { inode: FILE }.to_bytes();
    assert_eq!(harness.try_ask(Op::Glimpse, elsewhere, &body, None), Err(ProtocolError::Route));
    let bulk = Some(harness.bulk(1));
    assert_eq!(harness.try_ask(Op::Write, shard, b"?", bulk), Err(ProtocolError::Malformed));
    assert_eq!(released(&harness.take()), [1, 2]);
    assert!(harness.outcomes().is_empty());
}

#[test]
fn an_append_beyond_the_largest_size_is_refused() {
    let max = i64::MAX.unsigned_abs();
    let mut harness = Harness::with_file(max - 5);
    let token = harness.append(6);
    assert_eq!(harness.outcomes(), [refused(token, Status::TooLarge)]);
    assert_eq!(released(&harness.take()), [1]);
    harness.append(5);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Write { .. })));
}

#[test]
fn a_request_that_may_make_a_file_longer_states_a_layout_that_fits() {
    let mut harness = Harness::new(&[]);
    let small = Layout { stripe_unit_bytes: 1 << 15, ..Layout::DEFAULT };
    let clears = wire::ClearPrivileges::Nothing;
    let write = Write { inode: FILE, file_offset: 0, append: true, clears }.to_bytes();
    let glimpse = Glimpse { inode: FILE }.to_bytes();
    let (token, shard, client) = (Token(1), SHARDS.data_shard(FILE, 0), CLIENT);
    for (op, body, layout, accepted) in [
        (Op::Write, &write, None, false),
        (Op::Write, &write, Some(small), false),
        (Op::Write, &write, Some(Layout { stripe_unit_bytes: 1 << 16, ..small }), true),
        (Op::Glimpse, &glimpse, None, true),
        (Op::Glimpse, &glimpse, Some(small), false),
    ] {
        let request = DataRequest {
            token,
            op,
            shard,
            layout,
            body,
            bulk: None,
            client,
            kept: false,
            behind: false,
            is_cut: false,
        };
        let result = harness.with(|shards, turn| shards.submit(turn, &request));
        let wanted = if accepted { Ok(()) } else { Err(ProtocolError::Malformed) };
        assert_eq!(result, wanted, "{op:?} {layout:?}");
    }
}

#[test]
fn metadata_changes_are_refused_at_a_data_shard() {
    let mut changes = Vec::new();
    Change::InodeRemoved { inode: FILE }.encode(&mut Writer::new(&mut changes));
    let mut shard = Recorded::new(ShardId::data(0));
    assert!(shard.replay(Transno(1), &changes).is_err());
}

#[test]
fn numbers_of_an_earlier_term_are_never_used_again() {
    let mut shard = Recorded::new(ShardId::data(0));
    shard.replay(Transno((3 << 32) + 17), &[]).unwrap();
    assert_eq!(shard.start_transno(), Transno(4 << 32));
    shard.start_term(Term(2));
    assert_eq!(shard.start_transno(), Transno(4 << 32), "a term below the numbers");
    shard.start_term(Term(9));
    assert_eq!(shard.start_transno(), Transno(9 << 32), "a term above them");
}

#[test]
fn the_cache_is_bounded() {
    let mut harness = Harness::sized(&[], 10);
    for number in 1..200 {
        let inode = InodeNo(number);
        let body = Glimpse { inode }.to_bytes();
        harness.try_ask(Op::Glimpse, SHARDS.data_shard(inode, 0), &body, None).unwrap();
        harness.stat(None);
    }
    assert!(harness.shards.objects.len() <= 20, "{} objects", harness.shards.objects.len());
}

/// Two lost writes of a shard, of which the later one is applied first: recorded in the order of
/// their requests.
#[test]
fn replays_are_recorded_in_the_order_of_their_requests() {
    let mut harness = Harness::new(&[]);
    let same = |inode: &InodeNo| SHARDS.data_shard(*inode, 0) == SHARDS.data_shard(FILE, 0);
    let other = (FILE.0 + 1..).map(InodeNo).find(same).unwrap();
    for (inode, number) in [(FILE, 5), (other, 6)] {
        let bulk = harness.bulk(3);
        let (token, transno) = (Token(number), Transno(number));
        let (object_offset, write_bytes, crc32c, write_time_ns) = (0, 3, 77, 7);
        let change =
            ContentsChange::Write { inode, object_offset, write_bytes, crc32c, write_time_ns };
        let lost = LostWrite { token, transno, change, bulk, client: CLIENT };
        harness.with(|shards, turn| shards.replay(turn, lost));
    }
    let stats = harness.take();
    for index in [1, 0] {
        harness.on_stat(ticket(&stats[index]), None);
        let written = harness.take();
        harness.done(&written[0]);
        harness.settle();
        let sync = harness.one();
        harness.done(&sync);
        let recorded: Vec<Token> = harness
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
