//! Fair shares: no party's log lines, claims or number of clients harm another party.

use super::peer::{HelloFields, Peer, ROOT, create, send_handshake};
use crate::test_server::TestServer;
use alloc::vec::Vec;
use wire::{
    ClientUuid, InodeNo, Op, Purpose, RefusalReason, ReplayDone, Request, Resume, ShardId, Status,
    Transno, Wire, Xid,
};

const META: ShardId = ShardId::meta(0);

/// A client with the store's secret.
fn user(number: u16) -> HelloFields {
    let mut client = ClientUuid([7; 16]);
    client.0[..2].copy_from_slice(&number.to_le_bytes());
    HelloFields { client, ..HelloFields::new(1) }
}

/// An administrator: of another party.
fn admin(number: u16) -> HelloFields {
    HelloFields { purpose: Purpose::Administer, ..user(1000 + number) }
}

fn refused(server: &mut TestServer, fields: &HelloFields) -> bool {
    let (_, answer) = send_handshake(server, fields);
    answer.is_err_and(|refusal| refusal.reason == RefusalReason::Busy)
}

/// It acknowledges all its replies.
fn acknowledge(server: &mut TestServer, peer: &mut Peer) {
    let head = Request { ack_xid: Xid(peer.xid), ..peer.head(Op::Sync, META, 0) };
    peer.send(server, &head, &[], None);
    server.run();
    server.take(peer.conn);
}

fn leave(server: &mut TestServer, peer: &Peer) {
    server.cut(peer.conn);
    server.run();
}

#[test]
fn the_newest_connection_of_the_largest_holder_is_closed_for_a_smaller_one() {
    let mut server = TestServer::new(1);
    server.limits.conn_count_max = 6;
    server.start(1);
    let crowd: Vec<Peer> = (0..6).map(|number| Peer::new(&mut server, &user(number))).collect();
    assert!(refused(&mut server, &user(6)), "a party does not yield to itself");
    let mut admins = Vec::new();
    for number in 0..3 {
        admins.push(Peer::new(&mut server, &admin(number)));
    }
    let closed: Vec<bool> = crowd.iter().map(|peer| server.is_closed(peer.conn)).collect();
    assert_eq!(closed, [false, false, false, true, true, true], "the newest first");
    assert!(admins.iter().all(|peer| !server.is_closed(peer.conn)));
    assert!(refused(&mut server, &admin(3)), "both hold as much");
    assert!(refused(&mut server, &user(7)));
}

#[test]
fn a_session_is_never_removed_while_it_owes_a_reply() {
    let mut server = TestServer::new(2);
    server.limits.session_count_max = 8;
    server.start(1);
    let mut first = Peer::new(&mut server, &user(0));
    let head = first.head(Op::Create, META, 1);
    first.send(&mut server, &head, &create("once").to_bytes(), None);
    server.run();
    leave(&mut server, &first);
    // Many clients of both parties, each of which disconnects at once.
    for number in 1..100 {
        let (conn, _) = send_handshake(&mut server, &user(number));
        server.cut(conn);
        server.run();
        let (conn, _) = send_handshake(&mut server, &admin(number));
        server.cut(conn);
        server.run();
    }
    assert!(server.lane(0).sessions.count() <= 8);
    let again = HelloFields { conn_epoch: 2, ..user(0) };
    let (conn, welcome) = send_handshake(&mut server, &again);
    let session = welcome.unwrap().session;
    assert_eq!(session, first.session);
    let peer = Peer { conn, session, conn_epoch: 2, xid: first.xid };
    peer.send(&mut server, &Request { conn_epoch: 2, ..head }, &create("once").to_bytes(), None);
    server.run();
    let replies = peer.replies(&mut server);
    assert_eq!(replies[0].head.status, Status::Ok, "answered, not executed again");
}

/// Six sessions of one party without connections, each with a reply that is never acknowledged.
fn fill_six(server: &mut TestServer) {
    for number in 0..6 {
        let mut peer = Peer::new(server, &user(number));
        peer.create(server, &alloc::format!("file-{number}"));
        leave(server, &peer);
    }
}

#[test]
fn a_party_that_fills_all_sessions_leaves_a_quarter_to_others() {
    let mut server = TestServer::new(3);
    server.limits.session_count_max = 8;
    server.start(1);
    fill_six(&mut server);
    assert!(refused(&mut server, &user(6)));
    let mut others: Vec<Peer> =
        (0..2).map(|number| Peer::new(&mut server, &admin(number))).collect();
    // All are in use or owe a reply: there is no space.
    assert!(refused(&mut server, &admin(2)));
    assert!(others.iter().all(|peer| !server.is_closed(peer.conn)));
    // A disconnected session that owes nothing makes space for its own party.
    let mut left = others.remove(0);
    acknowledge(&mut server, &mut left);
    leave(&mut server, &left);
    Peer::new(&mut server, &admin(3));
    let line = server.lines.iter().find(|line| line.contains("8 sessions")).unwrap();
    assert!(line.contains("with its credential have 6"), "{line}");
}

#[test]
fn abandoned_sessions_make_space_for_their_own_party() {
    let mut server = TestServer::new(4);
    server.limits.session_count_max = 8;
    server.start(1);
    fill_six(&mut server);
    assert!(refused(&mut server, &user(6)));
    server.pass_ms(3_601_000);
    server.run();
    Peer::new(&mut server, &user(6));
}

/// However many clients a party has, others can open files.
#[test]
fn a_party_has_at_most_three_quarters_of_the_handles() {
    let mut server = TestServer::new(8);
    server.limits.handle_count_max = 16;
    server.start(1);
    let mut admin = Peer::new(&mut server, &admin(0));
    let inode = admin.create(&mut server, "file");
    let open = |server: &mut TestServer, peer: &mut Peer| {
        let handle = wire::Handle { id: wire::HandleId(peer.xid), open_for: wire::OpenFor::Read };
        let open = wire::Open { caller: ROOT, inode, handle };
        peer.ask(server, Op::Open, 1, &open).head.status
    };
    let mut opened_count = 0;
    for number in 0..8 {
        let mut peer = Peer::new(&mut server, &user(number));
        loop {
            match open(&mut server, &mut peer) {
                Status::Ok => opened_count += 1,
                refused => break assert_eq!(refused, Status::TooManyFiles),
            }
        }
    }
    let reports = server.lines.iter().filter(|line| line.contains("at most 16 open files"));
    assert_eq!(reports.count(), 1, "however many opens were refused: {:?}", server.lines);
    assert_eq!(opened_count, 12);
    assert_eq!([(); 4].map(|()| open(&mut server, &mut admin)), [Status::Ok; 4]);
}

fn claim(server: &mut TestServer, peer: &mut Peer) {
    let head = peer.head(Op::Resume, META, 0);
    let resume = Resume { known_committed: Transno(u64::MAX), replay_count: 0 };
    peer.send(server, &head, &resume.to_bytes(), None);
    server.run();
    assert_eq!(peer.replies(server).len(), 1);
}

fn alarm_count(server: &TestServer) -> usize {
    server
        .lines
        .iter()
        .filter(|line| line.contains("lost data that it had reported durable"))
        .count()
}

#[test]
fn an_unproven_claim_raises_no_alarm() {
    let mut server = TestServer::started(5, 1);
    let mut peer = Peer::new(&mut server, &user(0));
    let line_count = server.lines.len();
    (0..1000).for_each(|_| claim(&mut server, &mut peer));
    assert_eq!((alarm_count(&server), server.counters(0).recovery.lost_durable_count), (0, 0));
    // Nor of a known session, in the boot in which it began.
    peer.create(&mut server, "a");
    (0..1000).for_each(|_| claim(&mut server, &mut peer));
    assert_eq!((alarm_count(&server), server.counters(0).recovery.lost_durable_count), (0, 0));
    assert!(server.lines.len() <= line_count + 2, "{:?}", server.lines);
}

#[test]
fn a_session_that_the_log_knew_is_believed_once() {
    let mut server = TestServer::started(6, 1);
    let mut peer = Peer::new(&mut server, &user(0));
    peer.create(&mut server, "a");
    server.crash();
    server.start(1);
    for conn_epoch in 2..5 {
        let mut peer = Peer::new(&mut server, &HelloFields { conn_epoch, ..user(0) });
        (0..100).for_each(|_| claim(&mut server, &mut peer));
    }
    assert_eq!((alarm_count(&server), server.counters(0).recovery.lost_durable_count), (1, 1));
}

#[test]
fn a_flood_of_reopens_does_not_prolong_recovery() {
    let mut server = TestServer::started(7, 1);
    let mut peer = Peer::new(&mut server, &user(0));
    peer.create(&mut server, "a");
    server.crash();
    server.start(1);
    server.run();
    assert!(!server.lane(0).recovery.is_over());
    // The awaited client does not reconnect; an unknown client announces many reopens.
    let mut stranger = Peer::new(&mut server, &user(1));
    let mut passed_ms = 0;
    while !server.lane(0).recovery.is_over() {
        server.pass_ms(500);
        passed_ms += 500;
        claim(&mut server, &mut stranger);
        let head = stranger.head(Op::ReplayDone, META, 0);
        let done = ReplayDone { reopen_count: u32::MAX };
        stranger.send(&mut server, &head, &done.to_bytes(), None);
        server.run();
        server.take(stranger.conn);
        let head = stranger.head(Op::Reopen, META, 1);
        let handle =
            wire::Handle { id: wire::HandleId(stranger.xid), open_for: wire::OpenFor::Read };
        let reopen = wire::Reopen { inode: InodeNo::ROOT, handle };
        stranger.send(&mut server, &head, &reopen.to_bytes(), None);
        server.run();
        server.take(stranger.conn);
        assert!(passed_ms < 60_000, "{:?}", server.lines);
    }
    let soft_ms = server.limits.recovery_soft_ms;
    assert!(passed_ms <= soft_ms + soft_ms / 2, "{passed_ms} ms");
}
