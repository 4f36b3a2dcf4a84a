//! A server that has started at another address: clients find it by a map of another one.

use super::harness::{Harness, ReceivedRequest, SECOND, second_address};
use super::servers::{OTHER, changed, getattr, two_servers};
use interface::ConnId;
use wire::{Header, Map, MapEpoch, ServerAddress, ServerId, request_flag};

/// Where the first server is in the end.
fn elsewhere() -> ServerAddress {
    ServerAddress::At(core::net::SocketAddr::from(([10, 0, 0, 9], 7117)))
}

const SECOND_AT: fn() -> ServerAddress = || ServerAddress::At(second_address());

/// The map behind the start of the first server at another address.
fn moved() -> Map {
    let map = two_servers(2, (2, 1));
    let mut rows = map.servers().to_vec();
    rows[0].address = elsewhere();
    Map::new(MapEpoch(2), map.shard_counts(), rows.into(), map.runs().into()).unwrap()
}

/// The first server starts there.
fn start_elsewhere(harness: &mut Harness) {
    harness.shape.boot_id += 1;
    harness.shape.map = moved();
}

fn push_map(harness: &mut Harness, conn: ConnId) {
    let mut frame = alloc::vec::Vec::new();
    Header::MapNote.encode(&mut frame, None, |to| to.write(&moved()));
    harness.frame(conn, frame, None);
}

/// The lost change is replayed at the first server.
fn is_replayed(harness: &mut Harness) {
    let replay: ReceivedRequest = harness.take();
    assert_eq!((replay.head.flags, replay.head.transno.0), (request_flag::REPLAY, 5));
    assert_eq!(harness.server_of(replay.conn), ServerId::FIRST);
}

fn wait(harness: &mut Harness, ms: u64) {
    (0..ms / 50).for_each(|_| harness.wait_ms(50));
}

#[test]
fn a_client_without_another_connection_asks_another_server() {
    let mut harness = Harness::with_two_servers();
    changed(&mut harness, super::FILE, 5);
    harness.refusing.push(ServerAddress::Initial);
    harness.addresses.clear();
    harness.hang_up();
    wait(&mut harness, 900);
    assert!(!harness.addresses.contains(&SECOND_AT()), "not at once");
    start_elsewhere(&mut harness);
    wait(&mut harness, 2_000);
    let others = harness.addresses.iter().filter(|at| **at != ServerAddress::Initial);
    assert!(others.eq(&[SECOND_AT(), elsewhere()]), "{:?}", harness.addresses);
    is_replayed(&mut harness);
}

#[test]
fn a_connected_server_tells_and_the_attempt_at_the_earlier_address_is_given_up() {
    let mut harness = Harness::with_two_servers();
    let first = changed(&mut harness, super::FILE, 5);
    harness.call(2, getattr(OTHER));
    let second = harness.take();
    harness.silent.push(ServerAddress::Initial);
    harness.addresses.clear();
    harness.server.close(first);
    harness.run();
    wait(&mut harness, 5_000);
    assert_eq!(harness.addresses, [ServerAddress::Initial], "no answer, and nobody else is asked");
    assert_eq!(harness.server_of(second.conn), SECOND);
    start_elsewhere(&mut harness);
    push_map(&mut harness, second.conn);
    harness.wait_ms(50);
    assert_eq!(harness.addresses, [ServerAddress::Initial, elsewhere()]);
    harness.requests.retain(|request| request.head.flags == request_flag::REPLAY);
    is_replayed(&mut harness);
}

/// A router, or a name of several servers, may lead there from this client alone.
#[test]
fn the_address_that_the_client_was_started_with_stays_in_use() {
    let mut harness = Harness::with_two_servers();
    let first = changed(&mut harness, super::FILE, 5);
    harness.call(2, getattr(OTHER));
    let second = harness.take();
    harness.refusing.push(ServerAddress::Initial);
    harness.server.close(first);
    harness.run();
    harness.refusing = alloc::vec![elsewhere()];
    start_elsewhere(&mut harness);
    harness.addresses.clear();
    push_map(&mut harness, second.conn);
    wait(&mut harness, 1_000);
    assert_eq!(harness.addresses, [elsewhere(), ServerAddress::Initial]);
    harness.requests.retain(|request| request.head.flags == request_flag::REPLAY);
    is_replayed(&mut harness);
}

#[test]
fn nobody_else_is_asked_while_another_server_is_connected() {
    let mut harness = Harness::with_two_servers();
    let first = changed(&mut harness, super::FILE, 5);
    harness.call(2, getattr(OTHER));
    harness.refusing.push(ServerAddress::Initial);
    harness.addresses.clear();
    harness.server.close(first);
    harness.run();
    wait(&mut harness, 5_000);
    assert!(harness.addresses.len() > 5);
    assert!(harness.addresses.iter().all(|at| *at == ServerAddress::Initial));
}
