//! Secret rotation: two valid secrets, and the clients of a retired one.

use super::peer::{HelloFields, Peer, ReceivedReply, handshake, handshake_frame};
use crate::test_server::TestServer;
use alloc::vec::Vec;
use interface::{ConnId, Event};
use wire::{
    ByteRange, Challenge, Credential, FrameKind, InodeNo, LaneId, LockKind, LockSet, LockType, Op,
    PLAIN, Proof, Proven, Refusal, RefusalReason, Secret, Secrets, SetLock, Status, Wire,
};

const OLD: Secret = Secret::new([3; 32]);
const NEW: Secret = Secret::new([6; 32]);
const BOTH: Secrets = Secrets { current: NEW, earlier: Some(OLD) };
const NEW_ALONE: Secrets = Secrets { current: NEW, earlier: None };

/// A server with two valid secrets; peers use the old one.
fn started(seed: u64, lane_count: u16) -> TestServer {
    let mut server = TestServer::started(seed, lane_count);
    renew(&mut server, BOTH);
    server
}

fn renew(server: &mut TestServer, secrets: Secrets) {
    for lane in 0..usize::from(server.lane_count()) {
        server.event(lane, Event::Secrets(Some(secrets)));
    }
    server.run();
}

/// A connection with `secret`, after its Challenge.
fn challenged(
    server: &mut TestServer,
    fields: &HelloFields,
    secret: &Secret,
) -> (ConnId, Challenge) {
    let conn = server.connect();
    server.send(conn, handshake(FrameKind::Hello, &fields.hello(secret)), None);
    server.run();
    let (kind, challenge) = handshake_frame(&server.take(conn));
    assert_eq!(kind, FrameKind::Challenge);
    (conn, Challenge::decode_all(&challenge).unwrap())
}

/// Proves `secret`; returns the server's frame.
fn prove(
    server: &mut TestServer,
    fields: &HelloFields,
    secret: &Secret,
    at: (ConnId, &Challenge),
) -> (FrameKind, Vec<u8>) {
    let hello = fields.hello(secret);
    let proven = Proven { hello: &hello, nonce: &at.1.nonce, channel: &PLAIN };
    let proof = Proof { proof: secret.client_proof(proven) };
    server.send(at.0, handshake(FrameKind::Proof, &proof.to_bytes()), None);
    server.run();
    handshake_frame(&server.take(at.0))
}

/// Whether the server accepts a client's secret; if not, it refuses it as wrong.
fn is_known(server: &mut TestServer, fields: &HelloFields, secret: &Secret) -> bool {
    let (conn, challenge) = challenged(server, fields, secret);
    let hello = fields.hello(secret);
    let proven = Proven { hello: &hello, nonce: &challenge.nonce, channel: &PLAIN };
    let known = secret.server_proven(proven, &challenge.proof);
    let (kind, body) = prove(server, fields, secret, (conn, &challenge));
    if !known {
        assert_eq!(kind, FrameKind::Refusal);
        let reason = Refusal::decode_all(&body).unwrap().reason;
        assert_eq!((reason, server.is_closed(conn)), (RefusalReason::WrongSecret, true));
    }
    known
}

fn lock(peer: &mut Peer, server: &mut TestServer) -> bool {
    let (inode, kind, range, pid) = (InodeNo::new(0, 77), LockKind::Posix, ByteRange::ALL, 5);
    let lock = Some(LockType::Write);
    let ask = SetLock { inode, kind, owner: 1, lock, range, pid, wait_id: 0, place: 0 };
    let ReceivedReply { head, body, .. } = peer.ask(server, Op::SetLock, 1, &ask);
    head.status == Status::Ok && LockSet::decode_all(&body).unwrap().granted
}

fn line_count(server: &TestServer, what: &str) -> usize {
    server.lines.iter().filter(|line| line.contains(what)).count()
}

#[test]
fn either_of_two_secrets_leads_to_the_same_session() {
    let mut server = started(1, 1);
    let old = Peer::new(&mut server, &HelloFields::new(1));
    server.secret = NEW;
    let new = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    assert_eq!(old.session, new.session);
    assert!(server.is_closed(old.conn) && !server.is_closed(new.conn));
    assert!(
        !is_known(&mut server, &HelloFields::new(2), &Secret::new([9; 32])),
        "and no third one"
    );
}

#[test]
fn a_retired_secret_ends_its_connections_and_is_refused() {
    let mut server = started(2, 2);
    let lanes = [0, 1, 2, 3].map(LaneId);
    let olds = lanes.map(|lane| {
        Peer::new(
            &mut server,
            &HelloFields { server_lane: lane, client_lane: lane, ..HelloFields::new(1) },
        )
    });
    server.secret = NEW;
    let new = Peer::new(&mut server, &HelloFields::new(2));
    let late = HelloFields::new(3);
    let (slow, challenge) = challenged(&mut server, &late, &OLD);
    renew(&mut server, NEW_ALONE);
    assert!(olds.iter().all(|peer| server.is_closed(peer.conn)), "at every lane");
    assert!(!server.is_closed(new.conn));
    assert_eq!(
        line_count(&server, "their secret was retired"),
        2,
        "once a lane: {:?}",
        server.lines
    );
    // It was valid at the Challenge.
    let (kind, body) = prove(&mut server, &late, &OLD, (slow, &challenge));
    let reason = Refusal::decode_all(&body).unwrap().reason;
    assert_eq!((kind, reason), (FrameKind::Refusal, RefusalReason::WrongSecret));
    assert!(!is_known(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) }, &OLD));
    assert!(is_known(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) }, &NEW));
}

#[test]
fn a_client_that_reconnects_with_the_new_secret_has_lost_nothing() {
    let mut server = started(3, 1);
    let mut old = Peer::new(&mut server, &HelloFields::new(1));
    assert!(lock(&mut old, &mut server));
    server.secret = NEW;
    let mut other = Peer::new(&mut server, &HelloFields::new(2));
    renew(&mut server, NEW_ALONE);
    server.pass_ms(4_000);
    server.run();
    let again = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    assert_eq!(again.session, old.session);
    server.pass_ms(120_000);
    server.run();
    assert!(!lock(&mut other, &mut server), "the lock is still the first one's");
    assert_eq!(line_count(&server, "did not come back"), 0);
}

#[test]
fn the_session_of_a_client_that_has_only_the_retired_secret_ends() {
    let mut server = started(4, 1);
    let mut old = Peer::new(&mut server, &HelloFields::new(1));
    assert!(lock(&mut old, &mut server));
    server.secret = NEW;
    let mut other = Peer::new(&mut server, &HelloFields::new(2));
    renew(&mut server, NEW_ALONE);
    assert!(!lock(&mut other, &mut server), "it may come back");
    server.pass_ms(5_000);
    server.run();
    assert!(lock(&mut other, &mut server), "as of any client that is away");
    server.pass_ms(60_000);
    server.run();
    assert_eq!(line_count(&server, "did not come back with a valid secret in 60 s"), 1);
    // Its locks are released, its replies retained.
    let again = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    assert_eq!(again.session, old.session);
}

#[test]
fn secrets_of_exports_are_valid_and_retired_with_the_stores() {
    let mut server = started(5, 1);
    let fields = |client| HelloFields {
        export: "guests",
        credential: Credential::Export,
        ..HelloFields::new(client)
    };
    let of = |store: &Secret| store.of_export(b"guests", 0);
    assert!(
        is_known(&mut server, &fields(1), &of(&OLD))
            && is_known(&mut server, &fields(2), &of(&NEW))
    );
    server.secret = of(&OLD);
    let peer = Peer::new(&mut server, &fields(3));
    renew(&mut server, NEW_ALONE);
    assert!(server.is_closed(peer.conn));
    assert!(
        !is_known(&mut server, &fields(4), &of(&OLD))
            && is_known(&mut server, &fields(4), &of(&NEW))
    );
    // The store's secret is never an export's.
    assert!(!is_known(&mut server, &fields(5), &NEW));
}

#[test]
fn the_same_secrets_again_change_nothing() {
    let mut server = started(6, 1);
    let peer = Peer::new(&mut server, &HelloFields::new(1));
    renew(&mut server, BOTH);
    assert!(!server.is_closed(peer.conn));
    // Nor does their order matter.
    renew(&mut server, Secrets { current: OLD, earlier: Some(NEW) });
    assert!(!server.is_closed(peer.conn));
}

#[test]
fn a_start_knows_the_clients_of_both_secrets() {
    let mut server = started(7, 1);
    let mut old = Peer::new(&mut server, &HelloFields::new(1));
    old.create(&mut server, "a");
    server.crash();
    server.secret = NEW;
    server.start(1);
    let fields = HelloFields { conn_epoch: 2, boot_id_last: 1, ..HelloFields::new(1) };
    let mut again = Peer::new(&mut server, &fields);
    assert_eq!(again.session, old.session);
    again.come_back(&mut server, InodeNo::ROOT.shard());
}
