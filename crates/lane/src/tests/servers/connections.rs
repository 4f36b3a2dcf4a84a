//! Connections between servers: who may make one, and what happens while there is none.

use super::cluster::Cluster;
use super::{Act, RenameHow, check, done, furnished, joined, of};
use crate::test_server::FS;
use crate::tests::peer::{HelloFields, Peer, handshake, handshake_frame};
use alloc::vec::Vec;
use interface::Event;
use wire::{
    FrameKind, Header, InodeNo, LaneId, PeerHello, PeerLane, PeerProof, ServerId, Status, Wire as _,
};

fn lane(server: u16, lane: u16) -> PeerLane {
    PeerLane { server: ServerId(server), lane: LaneId(lane) }
}

fn hello(from: PeerLane, to: PeerLane, boot_id: u64) -> Vec<u8> {
    let hello = PeerHello { fs: FS, from, boot_id, to, nonce: [5; 32] };
    handshake(FrameKind::PeerHello, &hello.to_bytes())
}

#[test]
fn each_pair_of_lanes_has_one_connection() {
    let mut cluster = Cluster::new(1, &[2, 3]);
    for _ in 0..500 {
        cluster.step();
    }
    for (server, count) in [(0, 2), (1, 3)] {
        for index in 0..count {
            let connected = cluster.servers[server].lane(index).connected_peer_count();
            assert_eq!(connected, 5 - count, "of server {server}");
        }
    }
}

#[test]
fn a_server_that_goes_away_and_comes_back_is_named_once_each_time() {
    let mut cluster = Cluster::new(1, &[2, 3]);
    let after_steps = |cluster: &mut Cluster| {
        (0..500).for_each(|_| cluster.step());
        let lines = core::mem::take(&mut cluster.servers[0].lines);
        lines.into_iter().filter(|line| line.contains("server 2")).collect::<Vec<_>>()
    };
    assert!(after_steps(&mut cluster).is_empty(), "that it connects is no news");
    for _ in 0..2 {
        cluster.crash(1);
        assert_eq!(after_steps(&mut cluster), ["lane 0: server 2 is away; what needs it waits"]);
        cluster.start(1);
        assert_eq!(after_steps(&mut cluster), ["lane 0: server 2 is back"]);
    }
    // Of servers that are ended together none says so.
    cluster.servers[0].event(0, Event::Stop);
    cluster.crash(1);
    assert!(after_steps(&mut cluster).is_empty());
}

#[test]
fn who_lacks_the_key_is_refused_and_tells_nothing() {
    let mut cluster = Cluster::new(2, &[1, 1]);
    for _ in 0..200 {
        cluster.step();
    }
    let server = &mut cluster.servers[0];
    let conn = server.connect();
    server.send(conn, hello(lane(2, 0), lane(1, 0), 1), None);
    server.run();
    assert_eq!(handshake_frame(&server.take(conn)).0, FrameKind::PeerChallenge);
    let proof = PeerProof { proof: [7; 32] }.to_bytes();
    server.send(conn, handshake(FrameKind::PeerProof, &proof), None);
    server.run();
    assert!(server.is_closed(conn));
    assert_eq!(server.lane(0).connected_peer_count(), 1, "the true one stays");
}

#[test]
fn a_hello_of_or_for_another_lane_or_an_earlier_start_is_refused() {
    let mut cluster = Cluster::new(3, &[1, 1]);
    cluster.crash(1);
    cluster.start(1);
    for _ in 0..200 {
        cluster.step();
    }
    let server = &mut cluster.servers[0];
    let wrong = [
        hello(lane(2, 0), lane(2, 0), 2),
        hello(lane(2, 9), lane(1, 0), 2),
        hello(lane(1, 0), lane(1, 0), 2),
        hello(lane(3, 0), lane(1, 0), 2),
        hello(lane(2, 0), lane(1, 5), 2),
        // The start before.
        hello(lane(2, 0), lane(1, 0), 1),
    ];
    for frame in wrong {
        let conn = server.connect();
        server.send(conn, frame, None);
        server.run();
        assert!(server.is_closed(conn) && server.take(conn).is_empty());
    }
}

#[test]
fn a_client_cannot_send_a_message_of_a_server() {
    let mut cluster = Cluster::new(4, &[1, 1]);
    for _ in 0..200 {
        cluster.step();
    }
    let server = &mut cluster.servers[0];
    for kind in [Header::PeerMessage, Header::MapNote, Header::Handshake(FrameKind::PeerProof)] {
        let peer = Peer::new(server, &HelloFields::new(kind_number(&kind)));
        let mut frame = Vec::new();
        kind.encode(&mut frame, None, |to| to.put(&[0; 40]));
        server.send(peer.conn, frame, None);
        server.run();
        assert!(server.is_closed(peer.conn), "{kind:?}");
    }
    // Nor one that has proven nothing.
    let conn = server.connect();
    let mut frame = Vec::new();
    Header::PeerMessage.encode(&mut frame, None, |to| to.put(&[0; 40]));
    server.send(conn, frame, None);
    server.run();
    assert!(server.is_closed(conn));
}

const fn kind_number(kind: &Header) -> u8 {
    match kind {
        Header::PeerMessage => 21,
        Header::MapNote => 22,
        _ => 23,
    }
}

#[test]
fn a_server_with_another_key_never_joins() {
    let mut cluster = Cluster::new(5, &[1, 1]);
    cluster.crash(1);
    cluster.servers[1].fs_key = [9; 32];
    cluster.start(1);
    for _ in 0..2_000 {
        cluster.step();
    }
    assert_eq!(cluster.servers[0].lane(0).connected_peer_count(), 0);
    assert!(cluster.servers[1].lines.iter().any(|line| line.contains("key")));
}

#[test]
fn a_change_waits_for_a_server_that_is_cut_off_and_others_do_not() {
    let mut cluster = Cluster::new(6, &[1, 1]);
    let mut client = joined(&mut cluster, 1);
    let mut other = joined(&mut cluster, 2);
    let (from, to) = furnished(&mut cluster, &mut client);
    cluster.parted.push((0, 1));
    for _ in 0..50 {
        cluster.step();
    }
    client.begin(&mut cluster, of(&Act::Rename((from, "f"), (to, "h"), RenameHow::Replace)));
    for _ in 0..400 {
        cluster.step();
    }
    assert_eq!(client.receive(&mut cluster), None, "it waits");
    // What lies on one server only goes on, also the names that the change is about.
    done(&mut cluster, &mut other, Act::Create(from, "x"));
    done(&mut cluster, &mut other, Act::Create(to, "h"));
    done(&mut cluster, &mut other, Act::Unlink(to, "h"));
    cluster.parted.clear();
    let mut answer = None;
    for _ in 0..3_000 {
        cluster.step();
        answer = answer.or_else(|| client.receive(&mut cluster));
    }
    assert_eq!(answer.map(|answer| answer.0), Some(Status::Ok));
    check(&mut cluster, &mut client);
}

#[test]
fn a_change_waits_until_the_map_says_which_lanes_a_restarted_server_has() {
    let mut cluster = Cluster::new(7, &[1, 1]);
    let mut client = joined(&mut cluster, 1);
    let (from, _) = furnished(&mut cluster, &mut client);
    let dirs = ["i", "j", "k", "l"].map(|text| Act::Mkdir(InodeNo::ROOT, text));
    let dirs = dirs.map(|act| done(&mut cluster, &mut client, act).unwrap());
    // With two lanes its shard is at the second one.
    let to = *dirs.iter().find(|dir| dir.shard().index() == 3).unwrap();
    cluster.settle();
    cluster.crash(1);
    cluster.start_untold(1, 2);
    for _ in 0..500 {
        cluster.step();
    }
    assert_eq!(cluster.servers[0].lane(0).connected_peer_count(), 1, "to the first lane");
    client.begin(&mut cluster, of(&Act::Rename((from, "f"), (to, "h"), RenameHow::Replace)));
    for _ in 0..400 {
        cluster.step();
    }
    assert_eq!(client.receive(&mut cluster), None, "it waits");
    cluster.tell_map();
    let mut answer = None;
    for _ in 0..3_000 {
        cluster.step();
        answer = answer.or_else(|| client.receive(&mut cluster));
    }
    assert_eq!(answer.map(|answer| answer.0), Some(Status::Ok));
    client.connect(&mut cluster);
    check(&mut cluster, &mut client);
}
