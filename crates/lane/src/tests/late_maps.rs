//! A server restarts and lacks a map that its clients have from another server, or has one that they do
//! not take (docs/protocol.md R9.21): recovery waits for them, and for nobody else.

use super::peer::{HelloFields, Peer, create};
use crate::test_server::TestServer;
use wire::{
    Handle, HandleId, InodeNo, Map, MapEpoch, Op, OpenFor, ReplayDone, Request, Resume, Status,
    Transno, Wire, request_flag,
};

const SOFT_MS: u64 = 10_000;
const HARD_MS: u64 = 60_000;
/// Clients ask again at least this often.
const ASK_MS: u64 = 5_000;

/// The map of a server with another epoch.
fn later(server: &TestServer) -> Map {
    let known = &server.map;
    let (epoch, shards) = (MapEpoch(known.epoch().0 + 1), known.shard_counts());
    Map::new(epoch, shards, known.servers().into(), known.runs().into()).unwrap()
}

/// Two clients with durable changes; their server has restarted, and the first one is connected.
fn restarted(seed: u64) -> (TestServer, Peer) {
    let mut server = TestServer::started(seed, 1);
    for client in [1, 2] {
        let mut peer = Peer::new(&mut server, &HelloFields::new(client));
        peer.create(&mut server, if client == 1 { "a" } else { "b" });
    }
    server.crash();
    server.start(1);
    server.run();
    let peer = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    (server, Peer { xid: 1 << 40, ..peer })
}

/// Sends a request of recovery by a map; the status of its reply.
fn ask(server: &mut TestServer, peer: &mut Peer, op: Op, map: &Map) -> Status {
    let body = match op {
        Op::Resume => Resume { known_committed: Transno(0), replay_count: 0 }.to_bytes(),
        _ => ReplayDone { reopen_count: 0 }.to_bytes(),
    };
    let head = peer.head(op, InodeNo::ROOT.shard(), 0);
    let head = Request { map_epoch: map.epoch(), ..head };
    peer.send_routed(server, &head, &body, None);
    server.run();
    peer.replies(server).pop().unwrap().head.status
}

/// A client asks by a map that the server lacks, for so long.
fn wait(server: &mut TestServer, peer: &mut Peer, map: &Map, ms: u64) {
    let is_newer = map.epoch() > server.map.epoch();
    let refusal = if is_newer { Status::RetryLater } else { Status::StaleMap };
    for _ in 0..ms / ASK_MS {
        assert_eq!(ask(server, peer, Op::Resume, map), refusal);
        server.pass_ms(ASK_MS);
        server.run();
    }
}

fn evicted_count(server: &TestServer) -> u64 {
    server.counters(0).recovery.evicted_count
}

fn is_served(server: &mut TestServer, peer: &mut Peer) -> bool {
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(server, &head, &create("c").to_bytes(), None);
    server.run();
    peer.replies(server).pop().is_some_and(|reply| reply.head.status == Status::Ok)
}

/// The server learns of a map that the client goes by. It has the whole time to return from then on.
fn comes_back_with(server: &mut TestServer, peer: &mut Peer, map: &Map) {
    server.set_map(map);
    server.run();
    server.pass_ms(SOFT_MS - 1_000);
    server.run();
    assert_eq!(ask(server, peer, Op::Resume, map), Status::Ok);
    assert_eq!(ask(server, peer, Op::ReplayDone, map), Status::Ok);
    assert!(is_served(server, peer));
    assert_eq!(evicted_count(server), 1);
}

#[test]
fn a_client_that_knows_a_newer_map_is_waited_for_until_the_server_has_it() {
    let (mut server, mut peer) = restarted(41);
    let map = later(&server);
    wait(&mut server, &mut peer, &map, 2 * HARD_MS);
    assert_eq!(evicted_count(&server), 1, "the client that does not come back");
    assert!(!server.is_closed(peer.conn));
    comes_back_with(&mut server, &mut peer, &map);
}

#[test]
fn the_longer_a_map_is_missing_the_less_often_clients_ask() {
    let mut server = TestServer::started(47, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let map = later(&server);
    let mut after_ms = |server: &mut TestServer| {
        let head = peer.head(Op::Lookup, InodeNo::ROOT.shard(), 0);
        let head = Request { map_epoch: map.epoch(), ..head };
        peer.send_routed(server, &head, &[], None);
        server.run();
        peer.replies(server).pop().unwrap().head.retry_after_ms
    };
    assert_eq!(after_ms(&mut server), 20);
    server.pass_ms(400);
    assert_eq!(after_ms(&mut server), 100);
    server.pass_ms(HARD_MS);
    assert_eq!(after_ms(&mut server), 500);
}

#[test]
fn a_client_that_stops_asking_is_evicted_before_the_server_has_the_map() {
    let (mut server, mut peer) = restarted(42);
    let map = later(&server);
    wait(&mut server, &mut peer, &map, HARD_MS);
    server.cut(peer.conn);
    server.pass_ms(2 * SOFT_MS);
    server.run();
    assert_eq!(evicted_count(&server), 2);
}

#[test]
fn a_client_that_does_not_return_once_the_server_has_the_map_is_evicted() {
    let (mut server, mut peer) = restarted(43);
    let map = later(&server);
    wait(&mut server, &mut peer, &map, 2 * HARD_MS);
    server.set_map(&map);
    server.run();
    server.pass_ms(2 * SOFT_MS);
    server.run();
    assert_eq!(evicted_count(&server), 2);
}

/// etcd was restored from an older copy, so the server's map has a lower term of another server than the
/// client knows. It has a higher one when that server has started.
#[test]
fn a_client_that_does_not_take_a_restored_map_is_waited_for_until_there_is_a_newer_one() {
    let (mut server, mut peer) = restarted(48);
    let known = server.map.clone();
    let restored = later(&server);
    server.set_map(&restored);
    server.run();
    wait(&mut server, &mut peer, &known, 2 * HARD_MS);
    assert_eq!(evicted_count(&server), 1, "the client that does not come back");
    let map = later(&server);
    comes_back_with(&mut server, &mut peer, &map);
}

#[test]
fn a_client_that_had_an_older_map_and_stops_asking_is_evicted() {
    let (mut server, mut peer) = restarted(49);
    let known = server.map.clone();
    let map = later(&server);
    server.set_map(&map);
    server.run();
    wait(&mut server, &mut peer, &known, HARD_MS);
    assert_eq!(evicted_count(&server), 1);
    server.cut(peer.conn);
    server.pass_ms(2 * SOFT_MS);
    server.run();
    assert_eq!(evicted_count(&server), 2);
}

/// The connection is closed with each refused replay, so the client is without one most of the time.
#[test]
fn a_client_whose_replays_are_refused_for_their_map_is_waited_for() {
    let (mut server, _) = restarted(44);
    let map = later(&server);
    for conn_epoch in 3..20 {
        let mut peer = Peer::new(&mut server, &HelloFields { conn_epoch, ..HelloFields::new(1) });
        let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
        let replay = Request { map_epoch: map.epoch(), flags: request_flag::REPLAY, ..head };
        peer.send_routed(&mut server, &replay, &create("c").to_bytes(), None);
        server.run();
        assert!(server.is_closed(peer.conn));
        server.pass_ms(ASK_MS);
        server.run();
    }
    assert_eq!(evicted_count(&server), 1, "the other client");
}

#[test]
fn handles_that_wait_for_a_map_are_waited_for() {
    let mut server = TestServer::started(45, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "a");
    let handle = Handle { id: HandleId(7), open_for: OpenFor::ReadWrite };
    let open = wire::Open { caller: super::peer::ROOT, inode, handle };
    assert_eq!(peer.ask(&mut server, Op::Open, 1, &open).head.status, Status::Ok);
    server.crash();
    server.start(1);
    server.run();
    let peer = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    let mut peer = Peer { xid: 1 << 40, ..peer };
    let data = server.map.data_shard(inode, 0);
    peer.come_back(&mut server, data);
    let meta = InodeNo::ROOT.shard();
    let head = peer.head(Op::ReplayDone, meta, 0);
    peer.send(&mut server, &head, &ReplayDone { reopen_count: 1 }.to_bytes(), None);
    server.run();
    assert_eq!(peer.replies(&mut server).pop().unwrap().head.status, Status::Ok);
    // The client learns of the map only here.
    let map = later(&server);
    let reopen = wire::Reopen { inode, handle }.to_bytes();
    for _ in 0..2 * HARD_MS / ASK_MS {
        let head = peer.head(Op::Reopen, meta, 1);
        let head = Request { map_epoch: map.epoch(), ..head };
        peer.send_routed(&mut server, &head, &reopen, None);
        server.run();
        assert_eq!(peer.replies(&mut server).pop().unwrap().head.status, Status::RetryLater);
        server.pass_ms(ASK_MS);
        server.run();
    }
    assert!(server.counters(0).recovery.recovery_ms == 0, "it goes on");
    server.set_map(&map);
    server.run();
    let head = peer.head(Op::Reopen, meta, 1);
    peer.send(&mut server, &head, &reopen, None);
    server.run();
    assert_eq!(peer.replies(&mut server).pop().unwrap().head.status, Status::Ok);
}

/// Without the rule the client is evicted, and its changes are lost.
#[cfg(feature = "removable-rules")]
#[test]
fn without_the_rule_a_client_with_a_newer_map_is_evicted() {
    let mut server = TestServer::started(46, 1);
    server.rules = wire::Rules::default().without(wire::Rule::MapAwaited);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    peer.create(&mut server, "a");
    server.crash();
    server.start(1);
    server.run();
    let peer = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    let mut peer = Peer { xid: 1 << 40, ..peer };
    let map = later(&server);
    wait(&mut server, &mut peer, &map, SOFT_MS);
    assert_eq!(evicted_count(&server), 1);
}
