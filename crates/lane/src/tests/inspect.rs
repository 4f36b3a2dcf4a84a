//! Inspections: passed on for who administers, one request at a time, and ended with their connection.

use super::peer::{Peer, Who};
use crate::toy::Toy;
use interface::Event;
use wire::{Bytes, Inspect, Inspected, Inspection, Op, Purpose, ShardId, Status, Wire};

const START: Inspect = Inspect::Start(Inspection::Dump);

fn admin(toy: &mut Toy) -> Peer {
    Peer::new(toy, &Who { purpose: Purpose::Administer, ..Who::new(9) })
}

fn send(toy: &mut Toy, peer: &mut Peer, ask: Inspect) {
    let head = peer.head(Op::Inspect, ShardId::meta(0), 0);
    peer.send(toy, &head, &ask.to_bytes(), None);
    toy.run();
}

#[test]
fn what_is_asked_is_passed_on_and_answered_when_the_answer_comes() {
    let mut toy = Toy::started(50, 1);
    let mut admin = admin(&mut toy);
    send(&mut toy, &mut admin, START);
    assert_eq!(toy.inspects, [(admin.conn, Some(START))]);
    assert!(admin.replies(&mut toy).is_empty(), "nothing is known yet");
    let reply = Inspected { end: true, bytes: Bytes(b"output") }.to_bytes();
    toy.inspected(admin.conn, Status::Ok, &reply);
    toy.run();
    let replies = admin.replies(&mut toy);
    assert_eq!((replies[0].head.status, &replies[0].body), (Status::Ok, &reply));
    send(&mut toy, &mut admin, Inspect::Read { stream_offset: 6 });
    toy.inspected(admin.conn, Status::NotFound, &[]);
    toy.run();
    assert_eq!(admin.replies(&mut toy)[0].head.status, Status::NotFound);
}

#[test]
fn a_second_request_of_a_connection_is_refused_while_the_first_waits() {
    let mut toy = Toy::started(51, 1);
    let mut admin = admin(&mut toy);
    send(&mut toy, &mut admin, START);
    send(&mut toy, &mut admin, Inspect::Read { stream_offset: 0 });
    assert_eq!(admin.replies(&mut toy)[0].head.status, Status::Invalid);
    assert_eq!(toy.inspects.len(), 1);
}

#[test]
fn an_inspection_ends_with_its_connection() {
    let mut toy = Toy::started(52, 1);
    let mut admin = admin(&mut toy);
    send(&mut toy, &mut admin, START);
    toy.cut(admin.conn);
    toy.run();
    assert_eq!(toy.inspects.last(), Some(&(admin.conn, None)));
    // An answer that was on its way finds nobody.
    toy.inspected(admin.conn, Status::Ok, &[]);
    toy.run();
}

#[test]
fn a_lane_that_is_to_stop_does_not_wait_for_an_inspection() {
    let mut toy = Toy::started(53, 1);
    let mut admin = admin(&mut toy);
    send(&mut toy, &mut admin, START);
    toy.event(0, Event::Stop);
    toy.run();
    assert!(toy.is_closed(admin.conn));
    assert_eq!(toy.inspects.last(), Some(&(admin.conn, None)));
}

#[test]
fn a_client_that_does_not_administer_inspects_nothing() {
    let mut toy = Toy::started(54, 1);
    let mut peer = Peer::new(&mut toy, &Who::new(1));
    let got = peer.ask(&mut toy, Op::Inspect, 0, &START);
    assert_eq!((got.head.status, got.body.len()), (Status::NotPermitted, 0));
    assert!(toy.inspects.is_empty());
    let head = peer.head(Op::Inspect, ShardId::meta(0), 0);
    peer.send(&mut toy, &head, &[7], None);
    toy.run();
    assert!(toy.is_closed(peer.conn), "it is no request");
}
