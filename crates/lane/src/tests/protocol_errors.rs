//! A peer that breaks the protocol loses its connection; no other client is affected.

use super::peer::{HelloFields, Peer, create, handshake, request};
use crate::test_server::TestServer;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use fastrand::Rng;
use wire::{
    FrameKind, Getattr, InodeNo, LaneId, Op, Request, SessionId, ShardId, Status, Wire, Xid,
};

const META: ShardId = ShardId::meta(0);

fn getattr() -> Vec<u8> {
    Getattr { inode: InodeNo::ROOT }.to_bytes()
}

/// Sends a frame and checks that only the sender loses its connection.
fn breaks(what: &str, send: impl FnOnce(&mut TestServer, &mut Peer)) {
    let mut server = TestServer::started(11, 1);
    let mut bystander = Peer::new(&mut server, &HelloFields::new(1));
    let mut culprit = Peer::new(&mut server, &HelloFields::new(2));
    let before = server.counters(0);
    send(&mut server, &mut culprit);
    server.run();
    assert!(server.is_closed(culprit.conn), "{what}: the connection is closed");
    let after = server.counters(0);
    assert_eq!(after.protocol_error_count, before.protocol_error_count + 1, "{what}: counted once");
    assert_eq!(after.conn_count, before.conn_count - 1, "{what}: forgotten");
    assert!(server.lines.iter().any(|line| line.contains("closed")), "{what}: logged");
    let got = bystander.ask(&mut server, Op::Getattr, 0, &Getattr { inode: InodeNo::ROOT });
    assert_eq!(got.head.status, Status::Ok, "{what}: the bystander goes on");
    assert!(!server.is_closed(bystander.conn), "{what}");
    // The client may reconnect.
    Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(2) });
}

/// A Getattr with one wrong field in its head.
fn breaks_head(what: &str, spoil: impl FnOnce(&mut Request)) {
    breaks(what, |server, culprit| {
        let mut head = culprit.head(Op::Getattr, META, 0);
        spoil(&mut head);
        culprit.send(server, &head, &getattr(), None);
    });
}

#[test]
fn heads_are_checked() {
    breaks_head("another session", |head| head.session = SessionId(head.session.0 ^ 1));
    breaks_head("an earlier connection", |head| head.conn_epoch -= 1);
    breaks_head("a slot for what changes nothing", |head| head.slot = 1);
    breaks_head("no xid", |head| head.xid = Xid(0));
    breaks_head("a shard that does not exist", |head| head.shard = ShardId::meta(2));
    breaks_head("a data shard for names", |head| head.shard = ShardId::data(0));
    for (what, slot) in [("no slot for a change", 0), ("a slot never granted", 17)] {
        breaks(what, |server, culprit| {
            let head = culprit.head(Op::Create, META, slot);
            culprit.send(server, &head, &create("a").to_bytes(), None);
        });
    }
}

#[test]
fn frames_are_checked() {
    breaks("a second Hello", |server, culprit| {
        server.send(
            culprit.conn,
            handshake(FrameKind::Hello, &HelloFields::new(2).hello(&server.secret)),
            None,
        );
    });
    breaks("a body too long", |server, culprit| {
        let head = culprit.head(Op::Getattr, META, 0);
        culprit.send(server, &head, &[getattr(), vec![0]].concat(), None);
    });
    breaks("a body for a ping", |server, culprit| {
        let head = culprit.head(Op::Ping, META, 0);
        culprit.send(server, &head, &[1], None);
    });
    breaks("a bulk where none belongs", |server, culprit| {
        let head = culprit.head(Op::Getattr, META, 0);
        culprit.send(server, &head, &getattr(), Some(b"bulk"));
    });
    breaks("a malformed write", |server, culprit| {
        let head = culprit.head(Op::Write, ShardId::data(0), 1);
        culprit.send(server, &head, b"x", Some(b"bulk"));
    });
    breaks("a write to another shard's object", |server, culprit| {
        let right = server.map.data_shard(InodeNo(2), 0).index();
        let head = culprit.head(Op::Write, ShardId::data((right + 1) % 4), 1);
        let write = wire::Write {
            inode: InodeNo(2),
            file_offset: 0,
            append: false,
            clears: wire::ClearPrivileges::Nothing,
        };
        culprit.send(server, &head, &write.to_bytes(), Some(b"bulk"));
    });
}

#[test]
fn slots_are_used_one_at_a_time() {
    breaks("a busy slot", |server, culprit| {
        for text in ["a", "b"] {
            let head = culprit.head(Op::Create, META, 1);
            culprit.send(server, &head, &create(text).to_bytes(), None);
        }
    });
    breaks("one xid for two ops", |server, culprit| {
        let head = culprit.head(Op::Create, META, 1);
        culprit.send(server, &head, &create("a").to_bytes(), None);
        server.run();
        let head = Request { op: Op::Rmdir, ..head };
        culprit.send(server, &head, &[], None);
    });
}

#[test]
fn credits_are_a_limit() {
    breaks("more requests than credits", |server, culprit| {
        let statfs = wire::Statfs { inode: InodeNo::ROOT }.to_bytes();
        for _ in 0..=80 {
            let head = culprit.head(Op::Statfs, META, 0);
            culprit.send(server, &head, &statfs, None);
        }
        // None of them is answered before the last arrives.
        server.rng = Rng::with_seed(3);
        while server.counters(0).protocol_error_count == 0 {
            server.run_turns_only(0);
        }
    });
}

#[test]
fn unauthenticated_peers_are_cut_off_at_the_first_wrong_frame() {
    let mut server = TestServer::started(12, 1);
    let mut bystander = Peer::new(&mut server, &HelloFields::new(1));
    let head = bystander.head(Op::Getattr, META, 0);
    let proof = handshake(FrameKind::Proof, &[0; 32]);
    let hello = handshake(FrameKind::Hello, &HelloFields::new(2).hello(&server.secret));
    let mut rng = Rng::with_seed(1);
    let noise = (0..200).map(|_| rng.u8(..)).collect();
    let long = HelloFields {
        export: "a name that is much longer than any export's name could ever be, sixty-four at most",
        ..HelloFields::new(2)
    };
    let long = handshake(FrameKind::Hello, &long.hello(&server.secret));
    for (frames, bulk) in [
        (vec![request(&head, &getattr(), None)], None),
        (vec![proof.clone()], None),
        (vec![hello.clone(), hello.clone()], None),
        (vec![hello.clone(), request(&head, &getattr(), None)], None),
        (vec![noise], None),
        (vec![long], None),
        (vec![hello[..hello.len() - 1].to_vec()], None),
        (vec![hello.clone()], Some(vec![1])),
    ] {
        let conn = server.connect();
        let count = frames.len();
        for frame in frames {
            server.send(conn, frame, bulk.clone());
        }
        server.run();
        assert!(server.is_closed(conn), "a stranger with {count} frames");
        assert!(!server.is_admitted(conn));
    }
    assert_eq!(server.counters(0).conn_count, 1);
    assert!(
        server.lines.len() < 8,
        "logged now and then, not each time: {:?}",
        server.lines.to_vec()
    );
    let got = bystander.ask(&mut server, Op::Getattr, 0, &Getattr { inode: InodeNo::ROOT });
    assert_eq!(got.head.status, Status::Ok);
    assert!(server.lines[0].to_string().contains("closed"));
}

#[test]
fn a_wrong_lane_reply_names_the_right_lane() {
    let mut server = TestServer::started(13, 2);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    for (op, slot, bulk) in [(Op::Getattr, 0, None), (Op::Write, 1, Some(&b"bulk"[..]))] {
        let shard = if bulk.is_some() { ShardId::data(1) } else { ShardId::meta(1) };
        let head = peer.head(op, shard, slot);
        peer.send(&mut server, &head, &[], bulk);
        server.run();
        let replies = peer.replies(&mut server);
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].head.status, Status::WrongLane);
        assert_eq!(replies[0].head.lane_hint, LaneId(1));
    }
    assert!(!server.is_closed(peer.conn));
}
