//! A freeze: changes wait and are executed in order, reads do not wait, and it ends by itself.

use super::peer::{HelloFields, Peer, ROOT, ReceivedReply, create, name};
use crate::test_server::TestServer;
use alloc::vec::Vec;
use wire::{
    FREEZE_MS_MAX, Freeze, Frozen, Getattr, InodeNo, Lookup, Op, Purpose, ShardId, Status, Wire,
};

fn admin(server: &mut TestServer) -> Peer {
    Peer::new(server, &HelloFields { purpose: Purpose::Administer, ..HelloFields::new(9) })
}

/// The reply: whether a freeze was on already, and how many changes have not ended.
fn freeze(server: &mut TestServer, admin: &mut Peer, lease_ms: u32) -> (bool, u64) {
    let got = admin.ask(server, Op::Freeze, 0, &Freeze { lease_ms });
    assert_eq!(got.head.status, Status::Ok);
    let Frozen { held_on, change_count } = Frozen::decode_all(&got.body).unwrap();
    (held_on, change_count)
}

fn send_create(server: &mut TestServer, peer: &mut Peer, (slot, text): (u16, &str)) {
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), slot);
    peer.send(server, &head, &create(text).to_bytes(), None);
    server.run();
}

fn lookup(server: &mut TestServer, peer: &mut Peer, text: &str) -> Status {
    let ask = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name(text) };
    peer.ask(server, Op::Lookup, 0, &ask).head.status
}

#[test]
fn a_freeze_defers_changes_in_order_and_no_reads() {
    let mut server = TestServer::started(40, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    assert_eq!(freeze(&mut server, &mut admin, FREEZE_MS_MAX), (false, 0));
    send_create(&mut server, &mut peer, (1, "one"));
    send_create(&mut server, &mut peer, (2, "two"));
    assert!(peer.replies(&mut server).is_empty(), "they wait");
    assert_eq!(lookup(&mut server, &mut peer, "one"), Status::NotFound);
    let got = peer.ask(&mut server, Op::Getattr, 0, &Getattr { inode: InodeNo::ROOT });
    assert_eq!(got.head.status, Status::Ok);
    server.pass_ms(u64::from(FREEZE_MS_MAX) - 1000);
    assert_eq!(freeze(&mut server, &mut admin, FREEZE_MS_MAX), (true, 0), "it is prolonged");
    server.pass_ms(2000);
    server.run();
    assert!(peer.replies(&mut server).is_empty(), "they wait on");
    assert_eq!(freeze(&mut server, &mut admin, 0), (true, 0));
    server.run();
    let replies: Vec<ReceivedReply> = peer.replies(&mut server);
    let response: Vec<(u16, Status)> =
        replies.iter().map(|got| (got.head.slot, got.head.status)).collect();
    assert_eq!(response, [(1, Status::Ok), (2, Status::Ok)]);
    assert!(replies[0].head.transno < replies[1].head.transno);
    assert_eq!(lookup(&mut server, &mut peer, "two"), Status::Ok);
}

#[test]
fn a_freeze_ends_with_its_lease_and_that_is_reported() {
    let mut server = TestServer::started(41, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    freeze(&mut server, &mut admin, 1000);
    send_create(&mut server, &mut peer, (1, "one"));
    server.cut(admin.conn);
    server.run();
    assert!(peer.replies(&mut server).is_empty());
    server.pass_ms(1001);
    server.run();
    assert_eq!(peer.replies(&mut server).len(), 1);
    assert!(server.lines.iter().any(|line| line.contains("freeze was not ended")));
    let mut again = Peer::new(
        &mut server,
        &HelloFields { purpose: Purpose::Administer, conn_epoch: 2, ..HelloFields::new(9) },
    );
    assert_eq!(freeze(&mut server, &mut again, 1000), (false, 0), "it was not held on");
    // A deferred request of an ended connection is dropped.
    send_create(&mut server, &mut peer, (2, "two"));
    server.cut(peer.conn);
    server.run();
    freeze(&mut server, &mut again, 0);
    assert_eq!(lookup(&mut server, &mut again, "two"), Status::NotFound);
}

#[test]
fn a_resent_frozen_change_takes_effect_once() {
    let mut server = TestServer::started(42, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    freeze(&mut server, &mut admin, 1000);
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    for _ in 0..2 {
        peer.send(&mut server, &head, &create("one").to_bytes(), None);
    }
    server.run();
    freeze(&mut server, &mut admin, 0);
    server.run();
    let replies = peer.replies(&mut server);
    assert!(replies.iter().all(|got| got.head.status == Status::Ok), "none finds it there already");
    assert!(!replies.is_empty());
}

#[test]
fn a_freeze_needs_an_administrator_and_a_bounded_lease() {
    let mut server = TestServer::started(43, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    let got = peer.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: 1000 });
    assert_eq!((got.head.status, got.body.len()), (Status::NotPermitted, 0));
    let got = admin.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: FREEZE_MS_MAX + 1 });
    assert_eq!(got.head.status, Status::Invalid);
    send_create(&mut server, &mut peer, (1, "one"));
    assert_eq!(peer.replies(&mut server).len(), 1);
    let head = peer.head(Op::Freeze, ShardId::meta(0), 0);
    peer.send(&mut server, &head, &[1, 2, 3], None);
    server.run();
    assert!(server.is_closed(peer.conn), "it is no request");
}
