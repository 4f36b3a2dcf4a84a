//! Inspections: passed on for administrators, one request at a time, and ended with their
//! connection.

use super::peer::{HelloFields, Peer};
use crate::test_server::TestServer;
use interface::Event;
use wire::{Bytes, Inspect, Inspected, Inspection, Op, Purpose, ShardId, Status, Wire};

const START: Inspect = Inspect::Start(Inspection::Dump);

fn admin(server: &mut TestServer) -> Peer {
    Peer::new(server, &HelloFields { purpose: Purpose::Administer, ..HelloFields::new(9) })
}

fn send(server: &mut TestServer, peer: &mut Peer, ask: Inspect) {
    let head = peer.head(Op::Inspect, ShardId::meta(0), 0);
    peer.send(server, &head, &ask.to_bytes(), None);
    server.run();
}

#[test]
fn an_inspection_request_is_passed_on_and_answered() {
    let mut server = TestServer::started(50, 1);
    let mut admin = admin(&mut server);
    send(&mut server, &mut admin, START);
    assert_eq!(server.inspections, [(admin.conn, Some(START))]);
    assert!(admin.replies(&mut server).is_empty(), "nothing is known yet");
    let reply = Inspected { end: true, bytes: Bytes(b"output") }.to_bytes();
    server.inspected(admin.conn, Status::Ok, &reply);
    server.run();
    let replies = admin.replies(&mut server);
    assert_eq!((replies[0].head.status, &replies[0].body), (Status::Ok, &reply));
    send(&mut server, &mut admin, Inspect::Read { stream_offset: 6 });
    server.inspected(admin.conn, Status::NotFound, &[]);
    server.run();
    assert_eq!(admin.replies(&mut server)[0].head.status, Status::NotFound);
}

#[test]
fn a_second_request_of_a_connection_is_refused_while_the_first_waits() {
    let mut server = TestServer::started(51, 1);
    let mut admin = admin(&mut server);
    send(&mut server, &mut admin, START);
    send(&mut server, &mut admin, Inspect::Read { stream_offset: 0 });
    assert_eq!(admin.replies(&mut server)[0].head.status, Status::Invalid);
    assert_eq!(server.inspections.len(), 1);
}

#[test]
fn an_inspection_ends_with_its_connection() {
    let mut server = TestServer::started(52, 1);
    let mut admin = admin(&mut server);
    send(&mut server, &mut admin, START);
    server.cut(admin.conn);
    server.run();
    assert_eq!(server.inspections.last(), Some(&(admin.conn, None)));
    // A late reply finds no connection.
    server.inspected(admin.conn, Status::Ok, &[]);
    server.run();
}

#[test]
fn a_lane_that_is_to_stop_does_not_wait_for_an_inspection() {
    let mut server = TestServer::started(53, 1);
    let mut admin = admin(&mut server);
    send(&mut server, &mut admin, START);
    server.event(0, Event::Stop);
    server.run();
    assert!(server.is_closed(admin.conn));
    assert_eq!(server.inspections.last(), Some(&(admin.conn, None)));
}

#[test]
fn a_client_that_does_not_administer_inspects_nothing() {
    let mut server = TestServer::started(54, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let got = peer.ask(&mut server, Op::Inspect, 0, &START);
    assert_eq!((got.head.status, got.body.len()), (Status::NotPermitted, 0));
    assert!(server.inspections.is_empty());
    let head = peer.head(Op::Inspect, ShardId::meta(0), 0);
    peer.send(&mut server, &head, &[7], None);
    server.run();
    assert!(server.is_closed(peer.conn), "it is no request");
}
