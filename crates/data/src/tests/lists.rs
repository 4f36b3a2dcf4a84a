//! Lists of pieces: a list write is one change, alone at its object; a list read covers several
//! ranges.

use super::*;
use crate::LostWrite;
use interface::ObjectPiece;
use wire::{
    ClearPrivileges, FILE_BYTES_MAX, MapEpoch, Piece, Pieces, ReadList, ServerAddress, ServerId,
    ServerRow, ShardRun, WriteList,
};

fn pieces(all: &[(u64, u32)]) -> Pieces {
    let piece = |&(file_offset, piece_bytes): &(u64, u32)| Piece { file_offset, piece_bytes };
    Pieces::new(all.iter().map(piece).collect()).unwrap()
}

fn list(all: &[(u64, u32)], write_time_ns: u64) -> ContentsChange {
    ContentsChange::WriteList { inode: FILE, pieces: pieces(all), crc32c: 77, write_time_ns }
}

impl Harness {
    fn write_list(&mut self, all: &[(u64, u32)]) -> Token {
        let pieces = pieces(all);
        let bulk = (pieces.count() > 0).then(|| self.bulk(pieces.total_bytes()));
        self.request(
            Op::WriteList,
            &WriteList { inode: FILE, pieces, clears: ClearPrivileges::Nothing },
            bulk,
        )
    }

    pub(super) fn read_list(&mut self, all: &[(u64, u32)]) -> Token {
        self.ask_list_of(CLIENT, all)
    }

    fn ask_list_of(&mut self, client: ClientUuid, all: &[(u64, u32)]) -> Token {
        let body = ReadList { inode: FILE, pieces: pieces(all), accesses: false }.to_bytes();
        self.token_count += 1;
        let (token, shard) = (Token(self.token_count), SHARDS.data_shard(FILE, 0));
        let request = DataRequest {
            token,
            op: Op::ReadList,
            shard,
            layout: None,
            body: &body,
            bulk: None,
            client,
            kept: false,
            behind: false,
            is_cut: false,
        };
        self.with(|shards, turn| shards.submit(turn, &request)).unwrap();
        token
    }

    /// The write actions: offset, start in the buffer, number of bytes.
    fn writes(&mut self) -> (Vec<Action>, Vec<(u64, u32, u32)>) {
        let mut actions = self.take();
        let bufs = released(&actions);
        actions.retain(|action| matches!(action, Action::Object(ObjectAction::Write { .. })));
        let places = actions
            .iter()
            .map(|action| match action {
                Action::Object(ObjectAction::Write { object_offset, bulk, .. }) => {
                    assert_eq!(bufs, [bulk.buf.0], "one buffer, released once");
                    (*object_offset, bulk.start, bulk.bulk_bytes)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        (actions, places)
    }

    /// The ranges read of the first object.
    fn pieces_read(&mut self, action: &Action) -> Pieces {
        let Action::Object(ObjectAction::ReadList { pieces, .. }) = action else {
            panic!("{action:?}")
        };
        let mut from = wire::Reader::new(self.arena.get(*pieces));
        let all = core::iter::from_fn(|| from.read().ok()).map(|piece| {
            let ObjectPiece { stripe_index, object_offset: file_offset, piece_bytes } = piece;
            assert_eq!(stripe_index, 0);
            Piece { file_offset, piece_bytes }
        });
        Pieces::new(all.collect()).unwrap()
    }

    pub(super) fn on_read(&mut self, action: &Action, bulk: Option<Bulk>) {
        let ticket = ticket(action);
        self.with(|shards, turn| shards.on_read(turn, ticket, Ok(bulk)));
    }

    fn all_outcomes(&mut self) -> Vec<Outcome> {
        core::iter::from_fn(|| self.shards.outcome()).collect()
    }

    /// The dependencies of a write that was just applied.
    fn depends(&mut self) -> Dependencies {
        match &self.all_outcomes()[..] {
            [Outcome::Written { depends, .. }] => *depends,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_list_is_one_change_when_its_last_piece_is_written() {
    let mut harness = Harness::with_file(100);
    let all = [(50, 10), (0, 5), (5, 5), (200, 1)];
    let token = harness.write_list(&all);
    let (writes, places) = harness.writes();
    assert_eq!(places, [(50, 0, 10), (0, 10, 10), (200, 20, 1)], "adjacent pieces are joined");
    for write in [2, 0] {
        harness.done(&writes[write]);
        assert!(harness.all_outcomes().is_empty(), "not all of it is there");
    }
    harness.done(&writes[1]);
    let change = Change::Contents(list(&all, WALL_NS));
    let (shard, transno) = (SHARDS.data_shard(FILE, 0), Transno((1 << 32) + 1));
    let answer = Answer::Written(Written { file_offset: 50, written_bytes: 21 });
    let outcomes = harness.all_outcomes();
    let wanted = Outcome::Written {
        token,
        shard,
        transno,
        change: change.clone(),
        answer,
        depends: Dependencies::default(),
    };
    assert_eq!(outcomes, [wanted]);
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    let outcomes = harness.all_outcomes();
    assert_eq!(
        outcomes,
        [Outcome::Changed { token, shard, transno, change, answer, sums: None, logged: None }]
    );
    let contents = harness.shards.known(FILE, false).unwrap();
    assert_eq!(contents.size_bytes, 201);
    assert_eq!(harness.shards.written_bytes(), 21);
}

#[test]
fn a_list_is_alone_at_its_object() {
    let mut harness = Harness::with_file(100);
    harness.write(0, 10);
    let running = harness.one();
    harness.write_list(&[(0, 1), (50, 1)]);
    let read = harness.read(0, 10);
    harness.append(5);
    harness.truncate(7);
    assert!(
        harness.take().is_empty(),
        "it waits for running operations, and later ones wait for it"
    );
    harness.done(&running);
    let (writes, _) = harness.writes();
    assert_eq!(writes.len(), 2);
    harness.done(&writes[0]);
    assert!(harness.take().is_empty(), "no reader sees half a list");
    harness.done(&writes[1]);
    let action = harness.one();
    assert!(matches!(action, Action::Object(ObjectAction::Read { .. })));
    let bulk = harness.bulk(10);
    harness.on_read(&action, Some(bulk));
    assert!(harness.outcomes().contains(&answered(read, Answer::Bytes(Some(bulk)))));
    assert!(
        matches!(harness.one(), Action::Object(ObjectAction::Write { object_offset: 100, .. })),
        "the append"
    );
}

#[test]
fn appends_and_cuts_find_the_size_that_a_list_left() {
    let mut harness = Harness::with_file(100);
    harness.write_list(&[(300, 50), (0, 1)]);
    harness.append(7);
    harness.truncate(120);
    let (writes, _) = harness.writes();
    writes.iter().for_each(|write| harness.done(write));
    let append = harness.one();
    assert!(matches!(append, Action::Object(ObjectAction::Write { object_offset: 350, .. })));
    harness.done(&append);
    let cut = harness.one();
    assert!(matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: 120, .. })));
    harness.done(&cut);
    harness.outcomes();
    harness.read_list(&[(100, 50), (300, 50)]);
    let read = harness.one();
    assert_eq!(harness.pieces_read(&read), pieces(&[(100, 20)]));
}

#[test]
fn a_list_depends_on_its_pieces_and_not_on_the_gaps() {
    const OTHER: ClientUuid = ClientUuid([2; 16]);
    let first = Transno((1 << 32) + 1);
    for (all, foreign) in [
        (&[(0, 10), (90, 10)][..], 0),
        (&[(0, 10), (49, 1)], 0),
        (&[(60, 5), (0, 10)], 0),
        (&[(90, 5), (59, 1)], 1),
        (&[(0, 51), (70, 1)], 1),
        (&[(10, 10), (0, 10), (55, 1), (70, 1)], 1),
    ] {
        let mut harness = Harness::with_file(100);
        harness.write(50, 10);
        let write = harness.one();
        harness.done(&write);
        harness.all_outcomes();
        let token = harness.ask_list_of(OTHER, all);
        let action = harness.one();
        let bulk = harness.bulk(pieces(all).total_bytes());
        harness.on_read(&action, Some(bulk));
        let shown = Transno(first.0 * foreign);
        let answer = Answer::List { bulk: Some(bulk), size_bytes: 100 };
        assert_eq!(
            harness.all_outcomes(),
            [Outcome::Answered { token, result: Ok(answer), shown }],
            "{all:?}"
        );
        harness.write_list(all);
        let (writes, _) = harness.writes();
        writes.iter().for_each(|write| harness.done(write));
        let own = Transno(first.0 * foreign);
        assert_eq!(harness.depends(), Dependencies { own, foreign: Transno(0) }, "{all:?}");
    }
}

#[test]
fn later_changes_depend_on_every_piece_of_a_list() {
    let first = Transno((1 << 32) + 1);
    for (place, own) in [((9, 3), 1), ((20, 5), 0), ((95, 2), 1), ((31, 1), 0), ((30, 1), 1)] {
        let mut harness = Harness::with_file(100);
        harness.write_list(&[(90, 10), (0, 10), (30, 1)]);
        let (writes, _) = harness.writes();
        writes.iter().for_each(|write| harness.done(write));
        harness.all_outcomes();
        harness.write(place.0, place.1);
        let write = harness.one();
        harness.done(&write);
        let own = Transno(first.0 * own);
        assert_eq!(harness.depends(), Dependencies { own, foreign: Transno(0) }, "{place:?}");
    }
    // An append depends on changes that extended the file, including lists.
    let mut harness = Harness::with_file(10);
    harness.write_list(&[(90, 10), (0, 10)]);
    let (writes, _) = harness.writes();
    writes.iter().for_each(|write| harness.done(write));
    harness.all_outcomes();
    harness.append(1);
    let write = harness.one();
    harness.done(&write);
    assert_eq!(harness.depends().own, first);
}

#[test]
fn a_list_that_fails_in_one_piece_fails() {
    let mut harness = Harness::with_file(100);
    let token = harness.write_list(&[(0, 10), (200, 10), (400, 10)]);
    let (writes, _) = harness.writes();
    harness.fail(&writes[1], 28);
    assert!(harness.all_outcomes().is_empty(), "the others run");
    harness.done(&writes[0]);
    harness.done(&writes[2]);
    assert_eq!(harness.all_outcomes(), [refused(token, Status::NoSpace)]);
    assert_eq!(harness.shards.known(FILE, false), None, "its contents are unknown");
    harness.read(0, 1000);
    harness.stat(Some(410));
    let cut = harness.one();
    assert!(
        matches!(cut, Action::Object(ObjectAction::Truncate { size_bytes: 100, .. })),
        "{cut:?}"
    );
}

#[test]
fn a_lost_list_is_replayed_whole_with_its_number_and_time() {
    let mut harness = Harness::new(&[]);
    let bulk = harness.bulk(15);
    let (token, transno) = (Token(9), Transno(9));
    let all = [(50, 10), (0, 5)];
    let change = list(&all, 7);
    harness.with(|shards, turn| {
        let change = change.clone();
        shards.replay(turn, LostWrite { token, transno, change, bulk, client: CLIENT });
    });
    let later = harness.write(52, 2);
    harness.stat(None);
    let (writes, places) = harness.writes();
    assert_eq!(places, [(50, 0, 10), (0, 10, 5)]);
    harness.done(&writes[0]);
    assert!(harness.take().is_empty(), "alone");
    harness.done(&writes[1]);
    let write = harness.one();
    harness.done(&write);
    harness.settle();
    let sync = harness.one();
    harness.done(&sync);
    let outcomes = harness.outcomes();
    let [
        Outcome::Changed { transno: old, change: recorded, .. },
        Outcome::Changed { token: second, .. },
    ] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!((*old, recorded), (transno, &Change::Contents(change)));
    assert_eq!(*second, later);
}

#[test]
fn a_list_read_is_cut_at_the_file_size() {
    let mut harness = Harness::with_file(100);
    let token = harness.read_list(&[(90, 20), (100, 5), (0, 10), (10, 5), (5, 10)]);
    let action = harness.one();
    assert_eq!(harness.pieces_read(&action), pieces(&[(90, 10), (0, 15), (5, 10)]));
    let bulk = harness.bulk(35);
    harness.on_read(&action, Some(bulk));
    let answer = Answer::List { bulk: Some(bulk), size_bytes: 100 };
    assert_eq!(harness.outcomes(), [answered(token, answer)]);
    assert_eq!(answer.buf(), Some(bulk.buf));
    assert_eq!(harness.shards.read_bytes(), 35);
    let token = harness.read_list(&[(100, 5), (1 << 40, 1)]);
    assert!(harness.take().is_empty(), "there is nothing to be read");
    let answer = Answer::List { bulk: None, size_bytes: 100 };
    assert_eq!(harness.outcomes(), [answered(token, answer)]);
    let token = harness.read_list(&[(0, 10)]);
    let action = harness.one();
    let short = harness.bulk(9);
    harness.on_read(&action, Some(short));
    assert_eq!(harness.outcomes(), [refused(token, Status::Io)], "fewer than the object had");
    assert_eq!(released(&harness.take()), [short.buf.0]);
}

#[test]
fn an_invalid_list_is_refused_and_its_buffer_released() {
    let mut harness = Harness::with_file(100);
    let shard = SHARDS.data_shard(FILE, 0);
    let body = |all: &[(u64, u32)]| {
        WriteList { inode: FILE, pieces: pieces(all), clears: ClearPrivileges::Nothing }.to_bytes()
    };
    for bulk_bytes in [14, 16] {
        let bulk = harness.bulk(bulk_bytes);
        let tried = harness.try_ask(Op::WriteList, shard, &body(&[(0, 10), (20, 5)]), Some(bulk));
        assert_eq!(tried, Err(ProtocolError::Malformed), "{bulk_bytes} bytes for 15");
        assert_eq!(released(&harness.take()), [bulk.buf.0]);
    }
    let tried = harness.try_ask(Op::WriteList, shard, &body(&[(0, 10)]), None);
    assert_eq!(tried, Err(ProtocolError::Malformed));
    let bulk = harness.bulk(15);
    let overlapping = body(&[(0, 10), (9, 5)]);
    let token = harness.try_ask(Op::WriteList, shard, &overlapping, Some(bulk)).unwrap();
    assert_eq!(harness.outcomes(), [refused(token, Status::Invalid)]);
    assert_eq!(released(&harness.take()), [bulk.buf.0]);
    // Behind the largest size, encoded by hand: such pieces cannot be constructed.
    let mut beyond = body(&[(0, 10)]);
    beyond[10..18].copy_from_slice(&(FILE_BYTES_MAX - 9).to_le_bytes());
    let bulk = harness.bulk(10);
    let token = harness.try_ask(Op::WriteList, shard, &beyond, Some(bulk)).unwrap();
    assert_eq!(harness.outcomes(), [refused(token, Status::TooLarge)]);
    assert_eq!(released(&harness.take()), [bulk.buf.0]);
    let token = harness.write_list(&[]);
    let answer = Answer::Written(Written { file_offset: 0, written_bytes: 0 });
    assert_eq!(harness.outcomes(), [answered(token, answer)], "a list of nothing does nothing");
    assert!(harness.take().is_empty());
}

#[test]
fn a_fenced_shard_writes_no_list() {
    let mut harness = Harness::with_file(100);
    let running = harness.write_list(&[(0, 1), (5, 1)]);
    let (writes, _) = harness.writes();
    let waiting = harness.write_list(&[(0, 1)]);
    harness.with(Shards::fence);
    assert_eq!(harness.outcomes(), [refused(waiting, Status::Io)]);
    writes.iter().for_each(|write| harness.done(write));
    assert_eq!(harness.outcomes(), [refused(running, Status::Io)]);
    assert_eq!(released(&harness.take()), [2], "of the one that waited");
    let late = harness.write_list(&[(0, 1)]);
    assert_eq!(harness.outcomes(), [refused(late, Status::Io)]);
}

#[test]
fn an_abandoned_list_goes_to_the_shard_that_it_had_gone_to() {
    let run = |first, server| ShardRun {
        first: ShardId::data(first),
        shard_count: 2,
        server,
        term: Term(1),
    };
    let server = |id| ServerRow { id, lane_count: 1, address: ServerAddress::Initial };
    let meta = ShardRun { first: ShardId::meta(0), shard_count: 1, ..run(0, ServerId(1)) };
    let map = Map::new(
        MapEpoch(1),
        SHARDS,
        [server(ServerId(1)), server(ServerId(2))].into(),
        [meta, run(0, ServerId(1)), run(2, ServerId(2))].into(),
    )
    .unwrap();
    let layout = Some(Layout { stripe_unit_bytes: 1 << 16, stripe_count: 2, narrow: false });
    let config = DataConfig { map: map.clone(), ..Harness::new(&[]).shards.shape };
    let nothing = WriteList { inode: FILE, pieces: pieces(&[]), clears: ClearPrivileges::Nothing };
    let body = nothing.to_bytes();
    for shard in (0..4).map(ShardId::data) {
        let request = DataRequest {
            token: Token(1),
            op: Op::WriteList,
            shard,
            layout,
            body: &body,
            bulk: None,
            client: CLIENT,
            kept: false,
            behind: false,
            is_cut: false,
        };
        let is_a_part = [0, 1].iter().any(|part| map.data_shard(FILE, *part) == shard);
        assert_eq!(crate::decode::decode(&request, &config).is_ok(), is_a_part, "{shard}");
    }
}
