//! A request names the epoch of its client's map. Another epoch than the server's is refused before
//! anything else, and nothing is executed.

use super::peer::{HelloFields, Peer, ROOT, create, name};
use crate::test_server::TestServer;
use wire::{
    Entry, InodeNo, Lookup, Map, MapEpoch, Op, Request, ShardId, Status, Term, Wire, request_flag,
};

/// A server in its third start, so that there is an older epoch.
fn started_again(seed: u64) -> TestServer {
    let mut server = TestServer::started(seed, 2);
    for _ in 0..2 {
        server.crash();
        server.start(2);
        server.run();
    }
    server
}

fn names(server: &mut TestServer, peer: &mut Peer, text: &str) -> Status {
    let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name(text) };
    peer.ask(server, Op::Lookup, 0, &lookup).head.status
}

#[test]
fn an_older_epoch_is_refused_with_the_map_and_the_same_xid_is_then_executed_once() {
    let mut server = started_again(31);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    let body = create("a").to_bytes();
    for epoch in [0, 1, 2] {
        let stale = Request { map_epoch: MapEpoch(epoch), ..head };
        peer.send_routed(&mut server, &stale, &body, None);
        server.run();
        let replies = peer.replies(&mut server);
        let [reply] = &*replies else { panic!("one reply, not {replies:?}") };
        assert_eq!((reply.head.status, reply.head.xid), (Status::StaleMap, head.xid));
        assert_eq!(Map::decode_all(&reply.body), Ok(server.map.clone()));
        assert_eq!(names(&mut server, &mut peer, "a"), Status::NotFound);
    }
    let hint = server.map.epoch();
    let head = Request { map_epoch: hint, ..head };
    peer.send_routed(&mut server, &head, &body, None);
    server.run();
    let made = peer.replies(&mut server).remove(0);
    assert_eq!(made.head.status, Status::Ok);
    assert_eq!(made.head.flags & wire::reply_flag::FROM_SLOT, 0, "the slot had not been touched");
    // Over another connection the same request is answered by its slot.
    let mut again = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    let resent = Request { conn_epoch: 2, flags: request_flag::RESENT, ..head };
    again.send_routed(&mut server, &resent, &body, None);
    server.run();
    let answered = again.replies(&mut server).remove(0);
    assert_ne!(answered.head.flags & wire::reply_flag::FROM_SLOT, 0);
    assert_eq!(Entry::decode_all(&answered.body), Entry::decode_all(&made.body));
    assert_eq!(names(&mut server, &mut again, "a"), Status::Ok);
}

#[test]
fn a_later_epoch_has_to_ask_again_and_leaves_the_slot_as_it_was() {
    let mut server = started_again(32);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    let body = create("a").to_bytes();
    let later = Request { map_epoch: MapEpoch(server.map.epoch().0 + 1), ..head };
    peer.send_routed(&mut server, &later, &body, None);
    server.run();
    let reply = peer.replies(&mut server).remove(0);
    assert_eq!(reply.head.status, Status::RetryLater);
    assert!(reply.head.retry_after_ms > 0);
    assert_eq!(names(&mut server, &mut peer, "a"), Status::NotFound);
    peer.send(&mut server, &head, &body, None);
    server.run();
    let made = peer.replies(&mut server).remove(0);
    assert_eq!(made.head.status, Status::Ok);
    assert_eq!(made.head.flags & wire::reply_flag::FROM_SLOT, 0);
}

#[test]
fn numbers_of_changes_begin_with_the_term_of_their_shard() {
    let mut server = started_again(34);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let made = peer.ask(&mut server, Op::Create, 1, &create("a"));
    assert_eq!(made.head.status, Status::Ok);
    let term = server.map.place(made.head.shard).term;
    assert_eq!(term, Term::of_boot(server.boot_id));
    assert_eq!(made.head.transno.upper(), u64::from(term.0));
}

#[test]
fn stale_writes_and_requests_to_a_lane_are_refused_too_and_their_bytes_released() {
    let mut server = started_again(33);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    for (op, slot, bulk) in
        [(Op::Write, 1, Some(&b"bulk"[..])), (Op::Ping, 0, None), (Op::Goodbye, 0, None)]
    {
        let head = peer.head(op, ShardId::data(0), slot);
        let stale = Request { map_epoch: MapEpoch(1), ..head };
        peer.send_routed(&mut server, &stale, &[], bulk);
        server.run();
        let replies = peer.replies(&mut server);
        assert_eq!(replies[0].head.status, Status::StaleMap, "{op:?}");
    }
    assert!(!server.is_closed(peer.conn));
    assert_eq!(names(&mut server, &mut peer, "a"), Status::NotFound, "Goodbye had no effect");
}

#[test]
fn a_replay_refused_for_its_epoch_ends_the_connection() {
    for later in [true, false] {
        let mut server = started_again(35);
        let mut peer = Peer::new(&mut server, &HelloFields::new(1));
        let epoch = server.map.epoch().0;
        let map_epoch = MapEpoch(if later { epoch + 1 } else { epoch - 1 });
        let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
        let replay = Request { map_epoch, flags: request_flag::REPLAY, ..head };
        peer.send_routed(&mut server, &replay, &create("a").to_bytes(), None);
        server.run();
        let expected = if later { Status::RetryLater } else { Status::StaleMap };
        assert_eq!(peer.replies(&mut server)[0].head.status, expected);
        assert!(
            server.is_closed(peer.conn),
            "a ReplayDone behind it would end recovery without it"
        );
    }
}
