//! Several servers: each has its own connections, sessions, boots and recovery, and the newest map
//! says where a request goes.

use super::harness::{Harness, ReceivedRequest, SECOND, SECOND_SESSION, SESSION, second_address};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call};
use alloc::vec::Vec;
use interface::ConnId;
use wire::{
    Attr, Entry, FileKind, Generation, Getattr, Header, InodeNo, Map, MapEpoch, Op, ServerAddress,
    ServerId, ServerRow, ShardCounts, ShardId, ShardRange, ShardRun, ShardSet, Term, Wire,
    request_flag,
};

/// A file of metadata shard 5, which the second server has.
pub(super) const OTHER: InodeNo = InodeNo((5 << 48) | 77);

/// A map of both servers: the metadata shards are half and half, all data shards are the first
/// one's.
pub(super) fn two_servers(epoch: u64, terms: (u32, u32)) -> Map {
    let server = |id, address| ServerRow { id, lane_count: 2, address };
    let run = |first, shard_count, server, term| ShardRun { first, shard_count, server, term };
    let (first, second) = (Term(terms.0), Term(terms.1));
    Map::new(
        MapEpoch(epoch),
        ShardCounts { meta: 8, data: 8 },
        [
            server(ServerId::FIRST, ServerAddress::Initial),
            server(SECOND, ServerAddress::At(second_address())),
        ]
        .into(),
        [
            run(ShardId::meta(0), 4, ServerId::FIRST, first),
            run(ShardId::meta(4), 4, SECOND, second),
            run(ShardId::data(0), 8, ServerId::FIRST, first),
        ]
        .into(),
    )
    .unwrap()
}

/// The same, where half of the data shards are the second one's.
pub(super) fn two_data_servers(epoch: u64, terms: (u32, u32)) -> Map {
    let map = two_servers(epoch, terms);
    let run = |first, server, term| ShardRun { first, shard_count: 4, server, term: Term(term) };
    let runs = [
        run(ShardId::meta(0), ServerId::FIRST, terms.0),
        run(ShardId::meta(4), SECOND, terms.1),
        run(ShardId::data(0), ServerId::FIRST, terms.0),
        run(ShardId::data(4), SECOND, terms.1),
    ];
    Map::new(MapEpoch(epoch), map.shard_counts(), map.servers().into(), runs.into()).unwrap()
}

pub(super) const fn getattr(inode: InodeNo) -> Call<'static> {
    Call::Getattr(Getattr { inode })
}

const fn change(inode: InodeNo) -> Call<'static> {
    Call::Setattr(wire::Setattr {
        caller: CALLER,
        inode,
        mode: Some(0o600),
        uid: None,
        gid: None,
        atime: wire::SetTime::Keep,
        mtime: wire::SetTime::Keep,
        clears: wire::ClearPrivileges::Nothing,
    })
}

fn entry(inode: InodeNo) -> Vec<u8> {
    Entry { attr: attr(inode, 0) }.to_bytes()
}

/// Makes a change that is answered and may still be lost.
pub(super) fn changed(harness: &mut Harness, inode: InodeNo, transno: u64) -> ConnId {
    harness.call(1, change(inode));
    let request = harness.take();
    harness.token(&request, transno, &entry(inode));
    assert!(harness.outcome().is_ok());
    request.conn
}

/// The second server's requests.
fn of_second(harness: &Harness) -> Vec<ReceivedRequest> {
    let requests = harness.requests.iter();
    requests.filter(|request| harness.server_of(request.conn) == SECOND).cloned().collect()
}

#[test]
fn a_call_goes_to_the_server_that_has_the_shard() {
    let mut harness = Harness::with_two_servers();
    for (id, inode) in [(1, FILE), (2, OTHER)] {
        harness.call(id, getattr(inode));
    }
    assert_eq!(harness.requests.len(), 2);
    let servers = [(ServerId::FIRST, SESSION), (SECOND, SECOND_SESSION)];
    for (server, session) in servers {
        let request = harness.take();
        assert_eq!((harness.server_of(request.conn), request.head.session), (server, session));
        assert_eq!(request.head.map_epoch, MapEpoch(1));
        harness.answer(&request, &entry(FILE));
        assert!(harness.outcome().is_ok());
    }
    let at = ServerAddress::At(second_address());
    assert_eq!(harness.addresses, [ServerAddress::Initial, at]);
}

#[test]
fn a_walk_asks_no_second_server_for_what_it_passes() {
    let name = wire::Name::new(b"dir").unwrap();
    let args = wire::Lookup { caller: CALLER, parent: InodeNo::ROOT, name };
    let named = Attr::elsewhere(OTHER, FileKind::Directory);
    for (call, follows) in [(Call::Resolve(args), false), (Call::Lookup(args), true)] {
        let mut harness = Harness::with_two_servers();
        harness.call(1, call);
        let request = harness.take();
        assert_eq!(request.head.op, Op::Lookup);
        harness.answer(&request, &Entry { attr: named }.to_bytes());
        let asked: Vec<Op> = of_second(&harness).iter().map(|request| request.head.op).collect();
        if follows {
            assert_eq!(asked, [Op::Getattr], "attributes are wanted");
            continue;
        }
        assert_eq!(asked, []);
        let Ok(Answer::Entry(found)) = harness.outcome() else { panic!("an entry") };
        assert_eq!((found.inode, found.kind), (OTHER, FileKind::Directory));
    }
}

/// [`two_servers`] and one more shard of each kind, at the second server, which new files take.
fn grown(epoch: u64, terms: (u32, u32)) -> Map {
    let before = two_servers(epoch, terms);
    let run = |first| ShardRun { first, shard_count: 1, server: SECOND, term: Term(1) };
    let mut runs = before.runs().to_vec();
    runs.insert(2, run(ShardId::meta(8)));
    runs.push(run(ShardId::data(8)));
    let shards = ShardCounts { meta: 9, data: 9 };
    let set = |first, shard_count| ShardSet::new([ShardRange { first, shard_count }]).unwrap();
    let generations = [
        Generation { metas: set(0, 8), datas: set(0, 8) },
        Generation { metas: set(8, 1), datas: set(8, 1) },
    ];
    let map = Map::new(MapEpoch(epoch), shards, before.servers().into(), runs.into()).unwrap();
    map.with_generations(generations.into()).unwrap()
}

#[test]
fn a_map_with_more_shards_is_taken_when_it_is_pushed() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, getattr(FILE));
    let request = harness.take();
    harness.answer(&request, &entry(FILE));
    assert!(harness.outcome().is_ok());
    let mut frame = Vec::new();
    Header::MapNote.encode(&mut frame, None, |to| to.write(&grown(2, (1, 1))));
    harness.frame(request.conn, frame, None);
    harness.call(2, getattr(FILE));
    let next = harness.take();
    assert_eq!(
        (next.conn, next.head.map_epoch),
        (request.conn, MapEpoch(2)),
        "the connection stays"
    );
    harness.answer(&next, &entry(FILE));
    assert!(harness.outcome().is_ok());
}

/// Another lane of the client knows the file; this one's map does not have its data shards.
#[test]
fn contents_of_a_later_generation_are_asked_for_by_the_map_that_has_it() {
    const LATER: InodeNo = InodeNo((5 << 48) | (1 << 40) | 77);
    let mut harness = Harness::with_two_servers();
    let read = wire::Read { inode: LATER, file_offset: 0, read_bytes: 9, accesses: true };
    harness.call(1, Call::Read(read));
    let getattr = harness.take();
    assert_eq!((getattr.head.op, getattr.head.shard), (Op::Getattr, LATER.shard()));
    let newer = grown(2, (1, 1));
    harness.shape.map = newer.clone();
    harness.refuse_map(&getattr, &newer);
    let again = harness.take();
    let layout = Some(wire::Layout::DEFAULT);
    harness.answer(&again, &Entry { attr: wire::Attr { layout, ..attr(LATER, 0) } }.to_bytes());
    let read = harness.take();
    assert_eq!((read.head.op, read.head.shard), (Op::Read, newer.data_shard(LATER, 0)));
    assert_eq!(read.head.shard, ShardId::data(8));
    harness.answer(&read, &[]);
    assert_eq!(harness.outcome(), Ok(Answer::Bytes(None)));
}

/// An inode of a later generation, at a shard that the first map does not have.
fn later_inode() -> InodeNo {
    InodeNo::new(8, *InodeNo::counts_of(1).start())
}

/// The requests that ask each server for a newer map.
fn map_asks(harness: &mut Harness) -> [ReceivedRequest; 2] {
    let asks = [harness.take(), harness.take()];
    assert!(harness.requests.is_empty() && harness.answered.is_empty(), "the call waits");
    let servers = asks.each_ref().map(|ask| (ask.head.op, harness.server_of(ask.conn)));
    assert_eq!(servers, [(Op::Ping, ServerId::FIRST), (Op::Ping, SECOND)]);
    asks
}

/// Another lane of the client knows the directory; this one's map does not have the new server's shards.
#[test]
fn a_request_to_a_shard_of_a_later_generation_waits_for_its_map() {
    let mut harness = Harness::with_two_servers();
    for id in [1, 2] {
        harness.call(id, getattr(later_inode()));
    }
    let [first, second] = map_asks(&mut harness);
    // One server does not have it yet.
    harness.answer(&first, &[]);
    assert!(harness.answered.is_empty());
    let newer = grown(2, (1, 1));
    harness.shape.map = newer.clone();
    harness.refuse_map(&second, &newer);
    let routed = [harness.take(), harness.take(), harness.take()];
    let (pings, routed): (Vec<_>, Vec<_>) =
        routed.into_iter().partition(|request| request.head.op == Op::Ping);
    assert_eq!((pings.len(), routed.len()), (1, 2));
    harness.answer(&pings[0], &[]);
    for request in routed {
        assert_eq!(
            (harness.server_of(request.conn), request.head.shard),
            (SECOND, ShardId::meta(8))
        );
        harness.answer(&request, &entry(later_inode()));
        assert!(harness.outcome().is_ok());
    }
}

#[test]
fn a_map_that_is_pushed_ends_the_wait_for_it() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, getattr(later_inode()));
    let [first, second] = map_asks(&mut harness);
    let newer = grown(2, (1, 1));
    harness.shape.map = newer.clone();
    let mut frame = Vec::new();
    Header::MapNote.encode(&mut frame, None, |to| to.write(&newer));
    harness.frame(first.conn, frame, None);
    let routed = harness.take();
    assert_eq!((routed.head.op, routed.head.shard), (Op::Getattr, ShardId::meta(8)));
    harness.answer(&routed, &entry(later_inode()));
    assert!(harness.outcome().is_ok());
    harness.answer(&first, &[]);
    harness.answer(&second, &[]);
    assert!(harness.requests.is_empty() && harness.answered.is_empty());
}

#[test]
fn an_inode_at_a_shard_of_no_map_is_stale() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, getattr(InodeNo::new(8, 77)));
    assert_eq!(harness.outcome(), Err(wire::Status::Stale), "its generation is known");
    for id in [2, 3] {
        harness.call(id, getattr(later_inode()));
        let [first, second] = map_asks(&mut harness);
        harness.answer(&second, &[]);
        assert!(harness.answered.is_empty());
        harness.answer(&first, &[]);
        assert_eq!(harness.outcome(), Err(wire::Status::Stale));
    }
    assert_eq!(harness.client.busy_count(), 0);
}

#[test]
fn a_map_with_more_shards_leaves_the_sessions_of_the_others_alone() {
    let mut harness = Harness::with_two_servers();
    let conn = changed(&mut harness, FILE, 5);
    harness.call(2, getattr(FILE));
    let before = harness.take();
    harness.answer(&before, &entry(FILE));
    assert!(harness.outcome().is_ok());
    let newer = grown(2, (1, 1));
    harness.shape.map = newer.clone();
    harness.call(3, getattr(FILE));
    let refused = harness.take();
    harness.refuse_map(&refused, &newer);
    let again = harness.take();
    assert_eq!((again.conn, again.head.xid), (conn, refused.head.xid), "the session went on");
    assert_eq!(again.head.map_epoch, MapEpoch(2));
    harness.answer(&again, &entry(FILE));
    assert!(harness.outcome().is_ok());
    // What is new is where the new shards are.
    let inode = InodeNo::new(8, *InodeNo::counts_of(1).start());
    harness.call(4, getattr(inode));
    let request = harness.take();
    assert_eq!((harness.server_of(request.conn), request.head.shard), (SECOND, ShardId::meta(8)));
    harness.answer(&request, &entry(inode));
    assert!(harness.outcome().is_ok());
    assert_eq!(newer.data_shard(inode, 0), ShardId::data(8));
    assert!(harness.client.replay_bytes() > 0, "the change may still be lost");
    assert_eq!(harness.client.take_reports(), []);
}

#[test]
fn a_map_in_which_files_would_lie_elsewhere_is_not_taken() {
    let mut harness = Harness::with_two_servers();
    let (servers, runs) = (two_servers(2, (1, 1)), grown(2, (1, 1)));
    let shards = runs.shard_counts();
    let other = Map::new(MapEpoch(2), shards, servers.servers().into(), runs.runs().into());
    harness.call(1, getattr(FILE));
    let refused = harness.take();
    harness.refuse_map(&refused, &other.unwrap());
    assert!(harness.requests.is_empty(), "it is sent again later");
    harness.call(2, getattr(OTHER));
    assert_eq!(harness.take().head.map_epoch, MapEpoch(1));
}

#[test]
fn a_restart_of_one_server_leaves_the_others_calls_alone() {
    let mut harness = Harness::with_two_servers();
    harness.answers_recovery = false;
    let first_conn = changed(&mut harness, FILE, 5);
    let second_conn = changed(&mut harness, OTHER, 7);
    harness.call(2, getattr(FILE));
    harness.call(3, getattr(OTHER));
    let flying = harness.take();
    harness.requests.clear();
    harness.restart_second(two_servers(2, (1, 2)));
    assert!(!harness.closed.contains(&first_conn) && first_conn != second_conn);
    // The second server's session recovers.
    let resume = harness.take();
    assert_eq!((resume.head.op, resume.head.shard), (Op::Resume, OTHER.shard()));
    assert_eq!(harness.server_of(resume.conn), SECOND);
    assert!(harness.requests.is_empty(), "only its own sessions recover");
    // Meanwhile the first server answers what it has, and gets new requests.
    harness.answer(&flying, &entry(FILE));
    assert!(harness.outcome().is_ok());
    harness.call(4, getattr(FILE));
    let request = harness.take();
    assert_eq!((request.conn, request.head.map_epoch), (first_conn, MapEpoch(2)));
    harness.answer(&request, &entry(FILE));
    assert!(harness.outcome().is_ok());
    harness.resumed(&resume, 0, true);
    let replay = harness.take();
    assert_eq!((replay.head.flags, replay.head.transno.0), (request_flag::REPLAY, 7));
    harness.answer(&replay, &[]);
    let done = harness.take();
    assert_eq!(done.head.op, Op::ReplayDone);
    harness.answer(&done, &[]);
    let [resent] = &of_second(&harness)[..] else { panic!("one call waits") };
    assert_eq!((resent.head.op, resent.head.flags), (Op::Getattr, request_flag::RESENT));
    let resent = resent.clone();
    harness.answer(&resent, &entry(OTHER));
    assert_eq!(harness.outcome(), Ok(Answer::Entry(attr(OTHER, 0))));
    assert!(harness.client.replay_bytes() > 0, "both changes may still be lost");
    assert_eq!(harness.client.take_reports(), []);
}

#[test]
fn a_client_comes_back_to_a_restarted_server_whose_lanes_have_other_numbers() {
    let mut harness = Harness::with_two_servers();
    harness.answers_recovery = false;
    // At the second lane of the second server, which then dies.
    let conn = changed(&mut harness, OTHER, 7);
    let boot_id = core::mem::take(&mut harness.second_boot_id);
    harness.close(conn);
    harness.call(2, getattr(FILE));
    let refused = harness.take();
    // It has one lane since it has started again.
    harness.second_boot_id = boot_id.map(|boot_id| boot_id + 1);
    let newer = two_servers(2, (1, 2));
    let lane_count = |row: &ServerRow| if row.id == SECOND { 1 } else { row.lane_count };
    let rows = newer.servers().iter().map(|row| ServerRow { lane_count: lane_count(row), ..*row });
    let (rows, shards) = (rows.collect::<Vec<_>>(), newer.shard_counts());
    let newer = Map::new(newer.epoch(), shards, rows.into(), newer.runs().into()).unwrap();
    harness.shape.map = newer.clone();
    harness.refuse_map(&refused, &newer);
    let [resume] = &of_second(&harness)[..] else { panic!("no call is needed for that") };
    assert_eq!((resume.head.op, resume.head.shard), (Op::Resume, OTHER.shard()));
}

#[test]
fn a_request_refused_for_its_map_goes_where_the_newer_one_says() {
    let mut harness = Harness::with_two_servers();
    harness.shape.map = Map::single_server(2, ShardCounts { meta: 8, data: 8 }, Term(1));
    harness.call(1, change(OTHER));
    let refused = harness.take();
    assert_eq!((harness.server_of(refused.conn), refused.head.slot), (ServerId::FIRST, 1));
    harness.call(2, getattr(FILE));
    let other = harness.take();
    let newer = two_servers(3, (1, 2));
    harness.shape.map = newer.clone();
    harness.refuse_map(&refused, &newer);
    assert_eq!(harness.client.map(), Some(&newer));
    let again = harness.requests.iter().find(|request| request.head.op == Op::Setattr).unwrap();
    assert_eq!(harness.server_of(again.conn), SECOND);
    assert_eq!((again.head.xid, again.head.slot), (refused.head.xid, refused.head.slot));
    assert_eq!(again.head.flags, request_flag::RESENT, "it may have been executed before");
    assert_eq!((again.head.map_epoch, again.head.session), (MapEpoch(3), SECOND_SESSION));
    let again = again.clone();
    harness.durable(&again, 9, &entry(OTHER));
    assert_eq!(harness.outcome(), Ok(Answer::Entry(attr(OTHER, 0))));
    assert_eq!(harness.client.busy_count(), 1, "the call to a shard that stays");
    assert_eq!(other.head.op, Op::Getattr);
}

#[test]
fn a_map_that_goes_backwards_is_ignored() {
    let older = two_servers(4, (1, 3));
    let lower_term = two_servers(9, (1, 2));
    for map in [older, lower_term] {
        let mut harness = Harness::with_two_servers();
        let known = two_servers(5, (1, 3));
        harness.shape.map = known.clone();
        harness.call(1, getattr(OTHER));
        let refused = harness.take();
        harness.refuse_map(&refused, &map);
        assert_eq!(harness.client.map(), Some(&known));
        assert!(harness.requests.is_empty(), "it is sent again after a pause");
        harness.wait_ms(200);
        let again = harness.take();
        assert_eq!((again.head.xid, again.head.map_epoch), (refused.head.xid, MapEpoch(5)));
        harness.answer(&again, &entry(OTHER));
        assert!(harness.outcome().is_ok());
        // A server that has not got the map yet welcomes the client with its own.
        harness.shape.map = map;
        harness.hang_up();
        harness.call(2, getattr(FILE));
        assert_eq!(harness.client.map(), Some(&known));
        let request = harness.take();
        assert_eq!(request.head.map_epoch, MapEpoch(5));
    }
}

#[test]
fn another_server_at_a_servers_address_is_left() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, getattr(FILE));
    let request = harness.take();
    harness.answer(&request, &entry(FILE));
    assert!(harness.outcome().is_ok());
    harness.second_boot_id = None;
    harness.call(2, getattr(OTHER));
    harness.wait_ms(5_000);
    assert!(harness.requests.is_empty() && harness.answers().is_empty());
    assert_eq!(harness.client.refusal(), None);
    harness.second_boot_id = Some(1);
    harness.wait_ms(5_000);
    let request = harness.take();
    assert_eq!(harness.server_of(request.conn), SECOND);
}

#[test]
fn a_statfs_adds_up_the_servers_space() {
    let mut harness = Harness::with_two_servers();
    harness.call(1, getattr(FILE));
    let request = harness.take();
    harness.answer(&request, &entry(FILE));
    assert!(harness.outcome().is_ok());
    harness.call(2, Call::Statfs);
    assert_eq!(harness.requests.len(), 4, "two lanes of two servers");
    while !harness.requests.is_empty() {
        let request = harness.take();
        let is_second = harness.server_of(request.conn) == SECOND;
        let space = wire::Space {
            total_bytes: if is_second { 5_000 } else { 1_000 },
            free_bytes: 10,
            available_bytes: 10,
            inode_count: 3,
            inode_free_count: 50,
            lane_count: 2,
        };
        harness.answer(&request, &space.to_bytes());
    }
    let Ok(Answer::Space(space)) = harness.outcome() else { panic!("no space") };
    assert_eq!((space.total_bytes, space.inode_count, space.inode_free_count), (6_000, 12, 100));
    // Of one alone: the other need not answer.
    harness.call(3, Call::ServerStatfs);
    assert_eq!(harness.requests.len(), 2, "two lanes of one server");
    while !harness.requests.is_empty() {
        let request = harness.take();
        assert_ne!(harness.server_of(request.conn), SECOND);
        let space = wire::Space { total_bytes: 1_000, inode_count: 3, ..space };
        harness.answer(&request, &space.to_bytes());
    }
    let Ok(Answer::Space(space)) = harness.outcome() else { panic!("no space") };
    assert_eq!((space.total_bytes, space.inode_count), (1_000, 6));
}

#[test]
fn a_goodbye_refused_for_its_map_is_sent_again() {
    let mut harness = Harness::with_two_servers();
    changed(&mut harness, OTHER, 7);
    harness.call(2, Call::Goodbye);
    let newer = two_servers(2, (1, 1));
    harness.shape.map = newer.clone();
    let goodbyes: Vec<_> = harness.requests.drain(..).collect();
    assert_eq!(goodbyes.len(), 2, "one to each lane with a connection or a session");
    for goodbye in &goodbyes {
        assert_eq!(goodbye.head.op, Op::Goodbye);
        harness.refuse_map(goodbye, &newer);
    }
    assert_eq!(harness.requests.len(), 2);
    while !harness.requests.is_empty() {
        let goodbye = harness.take();
        assert_eq!(goodbye.head.map_epoch, MapEpoch(2));
        harness.answer(&goodbye, &[]);
    }
    assert_eq!(harness.outcome(), Ok(Answer::Done));
    assert_eq!((harness.client.busy_count(), harness.client.replay_bytes()), (0, 0));
}

#[test]
fn handles_being_registered_at_one_server_hold_back_its_requests_alone() {
    let mut harness = Harness::with_two_servers();
    let open_for = wire::OpenFor::Read;
    let open = crate::Open { caller: CALLER, inode: OTHER, open_for, sizes: false };
    harness.call(1, Call::Open(open));
    let request = harness.take();
    harness.answer(&request, &entry(OTHER));
    assert!(harness.outcome().is_ok());
    harness.restart_second(two_servers(2, (1, 2)));
    let reopen = harness.take();
    assert_eq!((reopen.head.op, harness.server_of(reopen.conn)), (Op::Reopen, SECOND));
    harness.call(2, getattr(OTHER));
    assert!(harness.requests.is_empty(), "it waits for the handle");
    harness.call(3, getattr(FILE));
    let request = harness.take();
    assert_eq!(harness.server_of(request.conn), ServerId::FIRST);
    harness.answer(&reopen, &[]);
    let request = harness.take();
    assert_eq!(harness.server_of(request.conn), SECOND);
}

/// A map of a hundred servers of sixteen lanes, each with as many shards of both kinds.
fn hundred_servers() -> Map {
    const COUNT: u16 = 100;
    const LANES: u16 = 16;
    let ids = 0..COUNT;
    let server = |at: u16| {
        let address = match at {
            0 => ServerAddress::Initial,
            _ => ServerAddress::At(second_address()),
        };
        ServerRow { id: ServerId(at + 1), lane_count: LANES, address }
    };
    let run =
        |first, at| ShardRun { first, shard_count: LANES, server: ServerId(at + 1), term: Term(1) };
    let metas = ids.clone().map(|at| run(ShardId::meta(at * LANES), at));
    let datas = ids.clone().map(|at| run(ShardId::data(at * LANES), at));
    let counts = ShardCounts { meta: COUNT * LANES, data: COUNT * LANES };
    let runs: Vec<_> = metas.chain(datas).collect();
    Map::new(MapEpoch(1), counts, ids.map(server).collect(), runs.into()).unwrap()
}

#[test]
fn a_client_of_a_hundred_servers_pays_for_the_lanes_that_it_uses() {
    let mut harness = Harness::new(16);
    harness.shape.map = hundred_servers();
    harness.second_boot_id = Some(1);
    // Files of one lane of the first server, and of one of the second.
    for (call, shard) in [(1, 3), (2, 3 + 16), (3, 3)] {
        let inode = InodeNo::new(shard, 77);
        harness.call(call, getattr(inode));
        let request = harness.take();
        harness.answer(&request, &entry(inode));
        assert!(harness.outcome().is_ok());
    }
    // Besides these, that of the first connection.
    let links = harness.client.servers.links();
    assert_eq!(links.len(), 3);
    assert!(links.iter().all(|link| link.is_up()));
}
