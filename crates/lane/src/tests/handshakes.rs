//! The handshake: which clients are admitted.

use super::peer::{HelloFields, Peer, create, handshake, handshake_frame, send_handshake};
use crate::Affinity;
use crate::test_server::TestServer;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use interface::Event;
use wire::{
    Challenge, Channel, FrameKind, Getattr, InodeNo, LaneId, Op, PLAIN, Proof, Proven, Refusal,
    RefusalReason, Status, Wire, welcome_flag,
};

fn refused(answer: Result<wire::Welcome, Refusal>) -> RefusalReason {
    answer.unwrap_err().reason
}

#[test]
fn a_connection_is_handed_to_the_lane_that_its_hello_names() {
    let mut server = TestServer::started(1, 3);
    for lane in 0..7 {
        let fields = HelloFields {
            server_lane: LaneId(lane),
            client_lane: LaneId(lane),
            ..HelloFields::new(1)
        };
        let (conn, welcome) = send_handshake(&mut server, &fields);
        let welcome = welcome.unwrap();
        assert_eq!(welcome.lane, LaneId(lane % 3));
        assert_eq!(server.lane_of(conn), usize::from(lane % 3));
        assert_eq!((welcome.map, welcome.boot_id), (server.map.clone(), 1));
        assert_eq!(welcome.slot_count, 16);
        assert_eq!(welcome.flags, welcome_flag::ROOT_TRUSTED, "no client can hold a handle");
    }
    assert!(server.handed_over_count > 0, "the listening lane was not always the right one");
}

/// The proxy lanes and the executing lanes of connections of a few clients to every lane.
fn places(affinity: Affinity) -> Vec<(u8, usize, usize)> {
    let mut server = TestServer::new(1);
    server.affinity = affinity;
    server.start(4);
    let mut found = Vec::new();
    for client in 1..9 {
        for lane in 0..4 {
            let (server_lane, client_lane) = (LaneId(lane), LaneId(lane));
            let fields = HelloFields { server_lane, client_lane, ..HelloFields::new(client) };
            let (conn, welcome) = send_handshake(&mut server, &fields);
            assert_eq!(welcome.unwrap().lane, LaneId(lane), "the owner answers");
            assert_eq!(server.lane_of(conn), usize::from(lane));
            found.push((client, server.proxy_of(conn), server.lane_of(conn)));
        }
    }
    found
}

#[test]
fn by_default_the_executing_lane_has_the_socket() {
    assert!(places(Affinity::Object).iter().all(|(_, front, owner)| front == owner));
}

#[test]
fn client_affinity_puts_all_sockets_of_a_client_on_one_lane() {
    let places = places(Affinity::Client);
    let mut used = BTreeSet::new();
    for of_client in places.chunk_by(|a, b| a.0 == b.0) {
        used.insert(of_client[0].1);
        assert!(of_client.iter().all(|(_, front, _)| *front == of_client[0].1));
        assert_eq!(of_client.len(), 4);
    }
    assert!(used.len() > 1, "clients are spread");
}

#[test]
fn random_affinity_spreads_sockets_over_all_lanes() {
    let places = places(Affinity::Random);
    assert!(places.iter().any(|(_, front, owner)| front == owner));
    assert!(places.iter().any(|(_, front, owner)| front != owner));
}

#[test]
fn a_wrong_secret_is_refused() {
    let mut server = TestServer::started(2, 1);
    let fields = HelloFields::new(1);
    let conn = server.connect();
    server.send(conn, handshake(FrameKind::Hello, &fields.hello(&server.secret)), None);
    server.run();
    assert!(!server.is_admitted(conn));
    server.take(conn);
    let proof = Proof { proof: [5; 32] };
    server.send(conn, handshake(FrameKind::Proof, &proof.to_bytes()), None);
    server.run();
    let (kind, body) = handshake_frame(&server.take(conn));
    assert_eq!(kind, FrameKind::Refusal);
    assert_eq!(Refusal::decode_all(&body).unwrap().reason, RefusalReason::WrongSecret);
    assert!(server.is_closed(conn));
    assert!(!server.is_admitted(conn));
}

/// The server's answer on a TLS connection to a proof for this channel.
fn answer_to_proof_of(channel: &Channel) -> FrameKind {
    let mut server = TestServer::started(2, 1);
    let fields = HelloFields::new(1);
    let conn = server.connect();
    server.seal(conn, [9; 32]);
    server.send(conn, handshake(FrameKind::Hello, &fields.hello(&server.secret)), None);
    server.run();
    let (_, challenge) = handshake_frame(&server.take(conn));
    let challenge = Challenge::decode_all(&challenge).unwrap();
    let hello = fields.hello(&server.secret);
    let proven = Proven { hello: &hello, nonce: &challenge.nonce, channel: &[9; 32] };
    assert!(server.secret.server_proven(proven, &challenge.proof));
    let proof = Proof { proof: server.secret.client_proof(Proven { channel, ..proven }) };
    server.send(conn, handshake(FrameKind::Proof, &proof.to_bytes()), None);
    server.run();
    assert_eq!(server.is_admitted(conn), !server.is_closed(conn));
    handshake_frame(&server.take(conn)).0
}

#[test]
fn a_proof_is_valid_on_its_own_channel_only() {
    assert_eq!(answer_to_proof_of(&[9; 32]), FrameKind::Welcome);
    assert_eq!(answer_to_proof_of(&[8; 32]), FrameKind::Refusal);
    assert_eq!(answer_to_proof_of(&PLAIN), FrameKind::Refusal);
}

#[test]
fn exports_are_looked_up() {
    let mut server = TestServer::started(3, 1);
    let (_, welcome) =
        send_handshake(&mut server, &HelloFields { export: "guests", ..HelloFields::new(1) });
    assert_eq!(welcome.unwrap().flags & welcome_flag::ROOT_TRUSTED, 0);
    let (conn, refusal) =
        send_handshake(&mut server, &HelloFields { export: "nothing", ..HelloFields::new(2) });
    assert_eq!(refused(refusal), RefusalReason::NoSuchExport);
    assert!(server.is_closed(conn));
}

#[test]
fn an_unauthenticated_client_cannot_probe_for_exports() {
    let mut server = TestServer::started(3, 1);
    let store = server.secret;
    for export in ["guests", "own", "nothing", ""] {
        let fields =
            HelloFields { export, credential: wire::Credential::Export, ..HelloFields::new(1) };
        let conn = server.connect();
        // A client with the store's secret can derive that of an export which is not defined.
        let secret = store.of_export(export.as_bytes(), 0);
        let hello = fields.hello(&secret);
        server.send(conn, handshake(FrameKind::Hello, &hello), None);
        server.run();
        let (kind, body) = handshake_frame(&server.take(conn));
        assert_eq!(kind, FrameKind::Challenge, "{export}");
        let challenge = Challenge::decode_all(&body).unwrap();
        let of = wire::Proven { hello: &hello, nonce: &challenge.nonce, channel: &wire::PLAIN };
        let proof = secret.client_proof(of);
        let is_known = ["guests", "own"].contains(&export);
        assert_eq!(secret.server_proven(of, &challenge.proof), is_known);
        server.send(conn, handshake(FrameKind::Proof, &Proof { proof }.to_bytes()), None);
        server.run();
        let (kind, body) = handshake_frame(&server.take(conn));
        if is_known {
            assert_eq!(kind, FrameKind::Welcome, "{export}");
        } else {
            assert_eq!(kind, FrameKind::Refusal, "{export}");
            let reason = Refusal::decode_all(&body).unwrap().reason;
            assert_eq!(reason, RefusalReason::WrongSecret);
            assert!(server.is_closed(conn));
        }
    }
}

#[test]
fn a_later_connection_replaces_an_earlier_one_and_never_the_reverse() {
    let mut server = TestServer::started(4, 1);
    let first = Peer::new(&mut server, &HelloFields { conn_epoch: 5, ..HelloFields::new(1) });
    for conn_epoch in [4, 5] {
        let (_, refusal) =
            send_handshake(&mut server, &HelloFields { conn_epoch, ..HelloFields::new(1) });
        assert_eq!(refused(refusal), RefusalReason::OldEpoch);
        assert!(!server.is_closed(first.conn));
    }
    let second = Peer::new(&mut server, &HelloFields { conn_epoch: 6, ..HelloFields::new(1) });
    assert!(server.is_closed(first.conn));
    assert_eq!(first.session, second.session);
    let peer_lane =
        Peer::new(&mut server, &HelloFields { client_lane: LaneId(1), ..HelloFields::new(1) });
    assert_ne!(peer_lane.session, second.session);
    assert!(!server.is_closed(second.conn));
}

#[test]
fn handshakes_time_out_and_are_limited() {
    let mut server = TestServer::new(5);
    server.limits.handshake_count_max = 2;
    server.limits.conn_count_max = 3;
    server.start(1);
    let secret = server.secret;
    let hello = || handshake(FrameKind::Hello, &HelloFields::new(1).hello(&secret));
    let slow = [server.connect(), server.connect(), server.connect()];
    for conn in slow {
        server.send(conn, hello(), None);
        server.run();
    }
    assert!(server.is_closed(slow[0]), "the oldest yielded to the third");
    assert!(!server.is_closed(slow[1]) && !server.is_closed(slow[2]));
    // Connections without a proof do not keep out a client that proves the secret.
    let proven = Peer::new(&mut server, &HelloFields::new(9));
    assert!(server.is_closed(slow[1]) && !server.is_closed(proven.conn));
    server.cut(proven.conn);
    server.pass_ms(9_000);
    server.run();
    assert!(!server.is_closed(slow[2]));
    server.pass_ms(1_100);
    server.run();
    assert!(server.is_closed(slow[2]));
    for client in 1..=3 {
        Peer::new(&mut server, &HelloFields::new(client));
    }
    let (_, refusal) = send_handshake(&mut server, &HelloFields::new(4));
    assert_eq!(refused(refusal), RefusalReason::Busy);
}

#[test]
fn a_satisfied_handshake_timer_causes_no_wakeup() {
    let mut server = TestServer::started(13, 1);
    let wake_count = server.wake_count;
    for client in 1..=64 {
        Peer::new(&mut server, &HelloFields::new(client));
        server.pass_ms(5);
        server.run();
    }
    assert!(server.wake_count <= wake_count + 1, "asked for the first deadline only");
    let asked_count = server.wake_count;
    // The timers fire and cause no action.
    for _ in 0..60 {
        server.pass_ms(1000);
        server.run();
    }
    assert!(server.wake_count <= asked_count + 1, "an idle lane is left alone");
}

#[test]
fn handles_are_unknown_after_a_restart_until_the_first_request() {
    let mut server = TestServer::started(6, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    peer.create(&mut server, "a");
    server.crash();
    server.start(1);
    let unknown = |server: &mut TestServer, conn_epoch, boot_id_last| {
        let (conn, welcome) = send_handshake(
            server,
            &HelloFields { conn_epoch, boot_id_last, ..HelloFields::new(1) },
        );
        (conn, welcome.unwrap().flags & welcome_flag::HANDLES_UNKNOWN != 0)
    };
    assert!(unknown(&mut server, 2, 1).1);
    assert!(unknown(&mut server, 3, 2).1, "its Welcome may have been lost");
    let mut peer = Peer::new(&mut server, &HelloFields { conn_epoch: 4, ..HelloFields::new(1) });
    peer.come_back(&mut server, InodeNo::ROOT.shard());
    peer.ask(&mut server, Op::Create, 1, &create("b"));
    assert!(!unknown(&mut server, 5, 2).1);
}

#[test]
fn a_client_that_was_disconnected_for_long_has_lost_its_handles() {
    let mut server = TestServer::started(7, 1);
    let peer = Peer::new(&mut server, &HelloFields::new(1));
    server.cut(peer.conn);
    server.run();
    let again = |server: &mut TestServer, conn_epoch| {
        let (conn, welcome) = send_handshake(
            server,
            &HelloFields { conn_epoch, boot_id_last: 1, ..HelloFields::new(1) },
        );
        (conn, welcome.unwrap().flags & welcome_flag::HANDLES_UNKNOWN != 0)
    };
    server.pass_ms(59_000);
    server.run();
    let (conn, unknown) = again(&mut server, 2);
    assert!(!unknown);
    server.cut(conn);
    server.run();
    server.pass_ms(61_000);
    server.run();
    assert!(again(&mut server, 3).1);
}

#[test]
fn a_stop_finishes_what_was_begun() {
    let mut server = TestServer::started(8, 2);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("a").to_bytes(), None);
    while !server.lane(0).commit.is_in_flight() {
        assert!(server.step());
    }
    for lane in 0..2 {
        server.event(lane, Event::Stop);
    }
    while server.lane(0).commit.is_in_flight() {
        assert!(!server.is_stopped());
        assert!(server.step());
    }
    server.run();
    assert!(server.is_stopped());
    let replies = peer.replies(&mut server);
    assert_eq!(replies.len(), 1, "what was begun is answered");
    assert_eq!(replies[0].head.status, Status::Ok);
    assert!(server.is_closed(peer.conn));
    server.crash();
    server.start(1);
    Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) })
        .come_back(&mut server, InodeNo::ROOT.shard());
    let mut peer = Peer::new(&mut server, &HelloFields::new(2));
    let got = peer.ask(&mut server, Op::Getattr, 0, &Getattr { inode: InodeNo::ROOT });
    assert_eq!(got.head.status, Status::Ok);
    for lane in 0..1 {
        server.event(lane, Event::Stop);
    }
    server.run();
    let (_, refusal) = send_handshake(&mut server, &HelloFields::new(3));
    assert_eq!(refused(refusal), RefusalReason::Stopping);
}
