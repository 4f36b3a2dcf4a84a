//! Recovery: which changes are replayed after a restart, in which order, and which clients are
//! evicted.

use super::peer::{
    HelloFields, Peer, ROOT, ReceivedReply, commit_rows, create, got, name, send_handshake,
};
use crate::Share;
use crate::test_server::{Kind, TestServer};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use interface::ProtocolPoint;
use wire::{
    Bytes, InodeNo, LaneId, Listing, Mkdir, Op, Readdir, Refusal, RefusalReason, Rename, RenameHow,
    Replay, Reply, Request, Resume, Resumed, SetTime, Setattr, ShardId, Status, Transno, Wire, Xid,
    request_flag,
};

const META: ShardId = ShardId::meta(0);

/// A reply to a change that may be lost, as its client retains it.
#[derive(Clone, Debug)]
struct RetainedReply {
    head: Request,
    got: ReceivedReply,
}

/// Clients with durable sessions, a log whose appends never end, and the changes that the clients
/// retain.
struct Harness {
    server: TestServer,
    hellos: Vec<HelloFields>,
    peers: Vec<Option<Peer>>,
    retained: Vec<Vec<RetainedReply>>,
}

impl Harness {
    fn new(share: Share, hellos: Vec<HelloFields>) -> Self {
        let mut server = TestServer::new(51);
        server.limits.share = share;
        server.start(1);
        let mut peers = Vec::new();
        for (index, hello) in hellos.iter().enumerate() {
            let mut peer = Peer::new(&mut server, hello);
            peer.create(&mut server, &alloc::format!("warm{index}"));
            peers.push(Some(peer));
        }
        let retained = hellos.iter().map(|_| Vec::new()).collect();
        Self { server, hellos, peers, retained }
    }

    fn clients(share: Share, count: u8) -> Self {
        Self::new(share, (1..=count).map(HelloFields::new).collect())
    }

    /// Sends a request and retains its reply, if there is one.
    fn ask<'a>(
        &mut self,
        client: usize,
        (op, slot): (Op, u16),
        body: &impl Wire<'a>,
    ) -> Option<ReceivedReply> {
        let peer = self.peers[client].as_mut().unwrap();
        let mut head = peer.head(op, META, slot);
        head.ack_xid = Xid(head.xid.0 - 1);
        peer.send(&mut self.server, &head, &body.to_bytes(), None);
        self.server.run_turns_only(0);
        let got = peer.replies(&mut self.server).pop();
        if let Some(got) = &got {
            assert_eq!(got.head.status, Status::Ok);
            self.retained[client].push(RetainedReply { head, got: got.clone() });
        }
        got
    }

    /// Ends the append in flight; the deferred replies arrive and are retained.
    fn land(&mut self, client: usize) {
        self.server.land_log(0);
        self.server.run_turns_only(0);
        let got = self.replies(client).pop().unwrap();
        let Reply { op, shard, slot, session, xid, .. } = got.head;
        let head = Request { shard, slot, session, xid, ..Request::of(op) };
        self.retained[client].push(RetainedReply { head, got });
    }

    /// All actions in flight are lost.
    fn kill(&mut self) {
        self.server.crash_losing_all();
        self.peers.iter_mut().for_each(|peer| *peer = None);
        self.server.start(1);
        self.server.run();
    }

    fn connect(&mut self, client: usize) {
        self.hellos[client].conn_epoch += 1;
        let mut peer = Peer::new(&mut self.server, &self.hellos[client]);
        peer.xid = 1 << 40;
        self.peers[client] = Some(peer);
    }

    fn resume(&mut self, client: usize, replay_count: u32) -> Resumed {
        let known_committed = Transno(0);
        let body = Resume { known_committed, replay_count };
        let peer = self.peers[client].as_mut().unwrap();
        let head = peer.head(Op::Resume, META, 0);
        peer.send(&mut self.server, &head, &body.to_bytes(), None);
        self.server.run();
        let replies = self.peers[client].as_ref().unwrap().replies(&mut self.server);
        Resumed::decode_all(&replies[0].body).unwrap()
    }

    fn send_replay(&mut self, client: usize, index: usize, spoil: impl FnOnce(&mut Vec<u8>)) {
        let RetainedReply { head, got } = self.retained[client][index].clone();
        let mut token = got.token;
        spoil(&mut token);
        let peer = self.peers[client].as_ref().unwrap();
        let head = Request {
            flags: request_flag::REPLAY,
            transno: got.head.transno,
            conn_epoch: peer.conn_epoch,
            ..head
        };
        let body = Replay { reply: Bytes(&got.body), token: Bytes(&token) }.to_bytes();
        peer.send(&mut self.server, &head, &body, None);
    }

    fn replay(&mut self, client: usize, index: usize) -> Option<ReceivedReply> {
        self.send_replay(client, index, |_| {});
        self.server.run();
        self.replies(client).pop()
    }

    fn replies(&mut self, client: usize) -> Vec<ReceivedReply> {
        self.peers[client].as_ref().unwrap().replies(&mut self.server)
    }

    fn done(&mut self, client: usize) {
        let peer = self.peers[client].as_mut().unwrap();
        let head = peer.head(Op::ReplayDone, META, 0);
        peer.send(&mut self.server, &head, &wire::ReplayDone { reopen_count: 0 }.to_bytes(), None);
        self.server.run();
    }

    /// Replays everything.
    fn come_back(&mut self, client: usize) {
        self.connect(client);
        for index in 0..self.retained[client].len() {
            self.send_replay(client, index, |_| {});
        }
        self.done(client);
    }

    fn counts(&self) -> wire::RecoveryCounts {
        self.server.counters(0).recovery
    }

    /// The names in the root, once recovery is over.
    fn names(&mut self) -> BTreeSet<String> {
        let mut visitor = Peer::new(&mut self.server, &HelloFields::new(99));
        let (caller, inode, cookie) = (ROOT, InodeNo::ROOT, 0);
        let (listing_bytes_max, attrs, handle) = (8192, false, None);
        let body = Readdir { caller, inode, cookie, listing_bytes_max, attrs, handle };
        let got = visitor.ask(&mut self.server, Op::Readdir, 0, &body);
        let listing = Listing::decode_all(&got.body).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let names = listing.entries.iter().map(|entry| text(entry.name.bytes())).collect();
        self.server.cut(visitor.conn);
        names
    }
}

fn rename<'a>(from: &'a str, to: &'a str) -> Rename<'a> {
    let (caller, parent) = (ROOT, InodeNo::ROOT);
    let (name, new_name) = (name(from), name(to));
    Rename { caller, parent, name, new_parent: parent, new_name, how: RenameHow::Replace }
}

fn chmod(inode: InodeNo) -> Setattr<'static> {
    let (atime, mtime) = (SetTime::Keep, SetTime::Keep);
    let (uid, gid, clears) = (None, None, wire::ClearPrivileges::Nothing);
    Setattr { caller: ROOT, inode, mode: Some(0o711), uid, gid, atime, mtime, clears }
}

#[test]
fn lost_changes_are_replayed_once() {
    let mut harness = Harness::clients(Share::Write, 1);
    for slot in 1..=16 {
        harness.ask(0, (Op::Create, slot), &create(&alloc::format!("f{slot}"))).unwrap();
    }
    harness.kill();
    harness.connect(0);
    let resumed = harness.resume(0, 0);
    assert!(resumed.recovering && resumed.committed < harness.retained[0][0].got.head.transno);
    for _ in 0..2 {
        for index in 0..16 {
            let got = harness.replay(0, index).unwrap();
            assert_eq!(got.head.status, Status::Ok);
            assert_eq!(got.head.transno, harness.retained[0][index].got.head.transno);
        }
    }
    harness.done(0);
    assert_eq!((harness.counts().replayed_count, harness.counts().already_durable_count), (16, 16));
    assert_eq!(harness.names().len(), 17);
    // A resend of a replayed change is answered from the slot, with the same bytes.
    let RetainedReply { head, got } = harness.retained[0][15].clone();
    let conn_epoch = harness.peers[0].as_ref().unwrap().conn_epoch;
    let head = Request { conn_epoch, flags: request_flag::RESENT, ..head };
    let body = create("f16").to_bytes();
    harness.peers[0].as_ref().unwrap().send(&mut harness.server, &head, &body, None);
    harness.server.run();
    assert_eq!(harness.replies(0).last().unwrap().body, got.body);
}

/// A whiteout over a file changes five things with a version, more than any other request.
#[test]
fn exchanges_and_whiteouts_are_replayed() {
    let mut harness = Harness::clients(Share::Write, 1);
    for (slot, text) in [(1, "a"), (2, "b"), (3, "c")] {
        harness.ask(0, (Op::Create, slot), &create(text)).unwrap();
    }
    let exchange = Rename { how: RenameHow::Exchange, ..rename("a", "b") };
    harness.ask(0, (Op::Rename, 4), &exchange).unwrap();
    let whiteout = Rename { how: RenameHow::Whiteout, ..rename("a", "c") };
    harness.ask(0, (Op::Rename, 5), &whiteout).unwrap();
    harness.ask(0, (Op::Rename, 6), &rename("a", "d")).unwrap();
    harness.kill();
    harness.come_back(0);
    assert_eq!((harness.counts().rejected_count, harness.counts().replayed_count), (0, 6));
    assert_eq!(harness.names(), ["b", "c", "d", "warm0"].map(String::from).into());
}

/// S12: the server crashes again after some replays, durable or not.
#[test]
fn a_second_crash_during_recovery_loses_nothing() {
    for replayed in 0..=8 {
        for durable in [false, true] {
            let mut harness = Harness::clients(Share::Write, 1);
            for slot in 1..=8 {
                harness.ask(0, (Op::Create, slot), &create(&alloc::format!("f{slot}"))).unwrap();
            }
            harness.kill();
            harness.connect(0);
            for index in 0..replayed {
                harness.send_replay(0, index, |_| {});
            }
            if durable {
                harness.server.run();
            } else {
                harness.server.run_turns_only(0);
            }
            harness.kill();
            harness.come_back(0);
            let expected = if durable { replayed as u64 } else { 0 };
            assert_eq!(harness.counts().already_durable_count, expected);
            assert_eq!(harness.counts().rejected_count, 0);
            assert_eq!(harness.names().len(), 9);
        }
    }
}

/// S2, S20: one client is missing; the other's interleaved changes survive, in either order.
#[test]
fn a_missing_client_does_not_cost_others_their_changes() {
    let mut harness = Harness::clients(Share::Write, 2);
    harness.ask(0, (Op::Create, 1), &create("lost")).unwrap();
    harness.ask(1, (Op::Create, 1), &create("kept")).unwrap();
    harness.ask(1, (Op::Setattr, 2), &chmod(InodeNo::ROOT)).unwrap();
    harness.ask(1, (Op::Create, 3), &create("kept too")).unwrap();
    harness.kill();
    harness.come_back(1);
    let mut visitor = Peer::new(&mut harness.server, &HelloFields::new(98));
    let head = visitor.head(Op::Getattr, META, 0);
    let body = wire::Getattr { inode: InodeNo::ROOT }.to_bytes();
    visitor.send(&mut harness.server, &head, &body, None);
    harness.server.run();
    assert!(visitor.replies(&mut harness.server).is_empty(), "the window is open");
    harness.server.pass_ms(5_000);
    harness.server.run();
    assert!(harness.server.lines.last().unwrap().contains("recovery waits for client "));
    harness.server.pass_ms(5_000);
    harness.server.run();
    assert_eq!(visitor.replies(&mut harness.server).len(), 1, "the early request was deferred");
    let counts = harness.counts();
    assert_eq!((counts.known_count, counts.returned_count, counts.evicted_count), (2, 1, 1));
    assert_eq!((counts.replayed_count, counts.rejected_count), (3, 0));
    let names = harness.names();
    assert!(!names.contains("lost") && names.contains("kept") && names.contains("kept too"));
    // The evicted client is refused, also after a restart; under another uuid it is admitted.
    for restart in [false, true] {
        if restart {
            harness.server.crash();
            harness.server.start(1);
            harness.server.run();
        }
        let refused = send_handshake(
            &mut harness.server,
            &HelloFields { conn_epoch: 9, ..HelloFields::new(1) },
        )
        .1;
        assert_eq!(refused, Err(Refusal { reason: RefusalReason::Evicted }));
    }
    assert!(send_handshake(&mut harness.server, &HelloFields::new(3)).1.is_ok());
}

/// A server that was stopped for long admits the clients that connected meanwhile before it evicts
/// any.
#[test]
fn a_client_that_connects_to_a_suspended_server_is_not_evicted() {
    let mut harness = Harness::clients(Share::Write, 2);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.kill();
    harness.server.sleep(100_000_000_000);
    harness.server.run();
    harness.come_back(0);
    assert_eq!(harness.counts().evicted_count, 0);
    harness.server.pass_ms(2_500);
    harness.server.run();
    assert_eq!((harness.counts().returned_count, harness.counts().evicted_count), (1, 1));
    assert!(harness.names().contains("a"));
}

#[test]
fn two_clients_replay_in_either_order() {
    for first in [0, 1] {
        let mut harness = Harness::clients(Share::Write, 2);
        harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
        harness.ask(1, (Op::Setattr, 1), &chmod(InodeNo::ROOT)).unwrap();
        harness.ask(1, (Op::Create, 2), &create("b")).unwrap();
        harness.ask(0, (Op::Create, 2), &create("c")).unwrap();
        harness.kill();
        harness.come_back(first);
        harness.come_back(1 - first);
        assert_eq!((harness.counts().replayed_count, harness.counts().rejected_count), (4, 0));
        assert_eq!(harness.names().len(), 5);
    }
}

/// S17: create, another client's rename, the first one's rename back; the other client is dead. The
/// control, with sharing off, is below.
#[test]
fn a_chain_of_changes_survives_a_missing_link() {
    for missing in [None, Some(0), Some(1)] {
        let mut harness = Harness::clients(Share::Write, 2);
        assert!(harness.ask(0, (Op::Create, 1), &create("a")).is_some());
        assert!(harness.ask(1, (Op::Rename, 1), &rename("a", "x")).is_none());
        harness.land(1);
        assert!(harness.ask(0, (Op::Rename, 2), &rename("x", "a")).is_none());
        harness.land(0);
        assert_eq!(harness.server.counters(0).reply_gating.deferred_foreign_count, 2);
        harness.kill();
        for client in [1, 0].into_iter().filter(|client| missing != Some(*client)) {
            harness.come_back(client);
        }
        harness.server.pass_ms(10_000);
        harness.server.run();
        let names = harness.names();
        // The last rename is the first client's; the others waited until they were durable.
        assert_eq!(names.contains("a"), missing != Some(0), "{missing:?}");
        assert_eq!(names.contains("x"), missing == Some(0), "{missing:?}");
        assert_eq!(harness.counts().rejected_count, 0);
    }
}

/// With sharing off no reply waits for other clients; changes that depend on a missing client are
/// lost, and their client is evicted.
#[test]
fn with_sharing_off_changes_that_depend_on_a_missing_client_are_lost() {
    let mut harness = Harness::clients(Share::Off, 2);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.ask(0, (Op::Create, 2), &create("b")).unwrap();
    assert!(harness.ask(1, (Op::Rename, 1), &rename("a", "x")).is_some(), "no reply waits");
    harness.kill();
    harness.come_back(1);
    assert_eq!(harness.counts().replayed_count, 0, "in one order with the others");
    harness.server.pass_ms(10_000);
    harness.server.run();
    let counts = harness.counts();
    assert_eq!((counts.rejected_count, counts.evicted_count), (1, 2));
    let refused =
        send_handshake(&mut harness.server, &HelloFields { conn_epoch: 9, ..HelloFields::new(2) })
            .1;
    assert!(refused.is_err());
}

/// The lanes of one client depend on each other without reply gating: their replays are executed in
/// one order.
#[test]
fn the_lanes_of_a_client_replay_in_the_order_of_their_changes() {
    let peer_lane = HelloFields { client_lane: LaneId(1), ..HelloFields::new(1) };
    let mut harness = Harness::new(Share::Write, alloc::vec![HelloFields::new(1), peer_lane]);
    let body =
        Mkdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d"), mode: 0o755, umask: 0 };
    let got = harness.ask(0, (Op::Mkdir, 1), &body).unwrap();
    let dir = wire::Entry::decode_all(&got.body).unwrap().attr.inode;
    // The first lane's next request acknowledges the reply.
    harness.ask(0, (Op::Create, 2), &create("e")).unwrap();
    harness.ask(1, (Op::Create, 1), &wire::Create { parent: dir, ..create("f") }).unwrap();
    harness.kill();
    harness.connect(1);
    assert!(harness.replay(1, 0).is_none(), "the peer lane may have something older");
    harness.connect(0);
    for index in 0..2 {
        assert!(harness.replay(0, index).is_some());
    }
    harness.done(0);
    assert_eq!(harness.replies(1).len(), 1);
    harness.done(1);
    assert_eq!((harness.counts().replayed_count, harness.counts().rejected_count), (3, 0));
    assert_eq!(harness.counts().returned_count, 1);
}

/// S27.
#[test]
fn a_forged_token_evicts() {
    let mut harness = Harness::clients(Share::Write, 2);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.ask(1, (Op::Create, 1), &create("b")).unwrap();
    harness.kill();
    harness.connect(0);
    harness.send_replay(0, 0, |token| *token.last_mut().unwrap() ^= 1);
    harness.server.run();
    assert!(harness.server.is_closed(harness.peers[0].as_ref().unwrap().conn));
    harness.come_back(1);
    let counts = harness.counts();
    assert_eq!((counts.forged_count, counts.evicted_count, counts.replayed_count), (1, 1, 1));
    let names = harness.names();
    assert!(names.contains("b") && !names.contains("a"));
    let refused =
        send_handshake(&mut harness.server, &HelloFields { conn_epoch: 9, ..HelloFields::new(1) })
            .1;
    assert!(refused.is_err());
}

/// A recovery may be cut off any number of times: the tokens keep the number of their key.
#[test]
fn a_token_is_replayed_several_starts_later_and_under_its_own_keys_number_only() {
    for key_no in [1, 2, 3, 4, 5] {
        let mut harness = Harness::clients(Share::Write, 1);
        harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
        assert_eq!(harness.retained[0][0].got.token[..4], [1, 0, 0, 0], "signed in term 1");
        (0..3).for_each(|_| harness.kill());
        assert_eq!(harness.server.boot_id, 4);
        harness.connect(0);
        harness.send_replay(0, 0, |token| token[0] = key_no);
        harness.server.run();
        let is_own = key_no == 1;
        assert_eq!(harness.counts().forged_count, u64::from(!is_own), "key {key_no}");
        if is_own {
            harness.done(0);
            assert_eq!(harness.counts().replayed_count, 1);
            assert!(harness.names().contains("a"));
        }
    }
}

/// A token is not valid for another request.
#[test]
fn a_token_is_valid_for_one_request() {
    let mut harness = Harness::clients(Share::Write, 1);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.kill();
    harness.connect(0);
    harness.retained[0][0].head.xid.0 += 1;
    harness.send_replay(0, 0, |_| {});
    harness.server.run();
    assert_eq!(harness.counts().forged_count, 1);
}

#[test]
fn recovery_does_not_wait_for_a_client_that_sent_goodbye() {
    let mut harness = Harness::clients(Share::Write, 2);
    harness.ask(1, (Op::Create, 1), &create("a")).unwrap();
    let peer = harness.peers[0].as_mut().unwrap();
    let head = peer.head(Op::Goodbye, META, 0);
    peer.send(&mut harness.server, &head, &[], None);
    harness.server.run();
    assert_eq!(harness.replies(0).len(), 1);
    harness.kill();
    harness.come_back(1);
    assert_eq!((harness.counts().known_count, harness.counts().evicted_count), (1, 0));
    assert!(harness.names().contains("a"));
}

#[test]
fn recovery_does_not_wait_for_a_long_absent_client_nor_evicts_it() {
    let mut harness = Harness::clients(Share::Write, 2);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    let conn = harness.peers[0].as_ref().unwrap().conn;
    harness.server.cut(conn);
    harness.server.run();
    harness.server.pass_ms(61_000);
    harness.server.run();
    harness.kill();
    harness.come_back(1);
    assert_eq!((harness.counts().known_count, harness.counts().evicted_count), (1, 0));
    assert!(harness.names().contains("a"));
    harness.connect(0);
    let resumed = harness.resume(0, 0);
    assert!(!resumed.recovering);
    assert_eq!(resumed.committed, harness.retained[0][0].got.head.transno);
}

#[test]
fn recovery_waits_shorter_for_absent_clients_of_a_rebooted_host() {
    for comes in [false, true] {
        let mut harness = Harness::clients(Share::Write, 3);
        harness.ask(1, (Op::Create, 1), &create("a")).unwrap();
        harness.ask(2, (Op::Create, 1), &create("b")).unwrap();
        harness.kill();
        harness.come_back(1);
        harness.connect(2);
        let other = HelloFields { host_boot_id: [3; 16], ..HelloFields::new(7) };
        Peer::new(&mut harness.server, &other);
        assert_eq!(harness.counts().evicted_count, 0, "a report alone evicts no client");
        if comes {
            harness.connect(0);
        }
        harness.server.pass_ms(4_000);
        harness.server.run();
        // Two clients have reconnected unchanged: the report about their host is wrong.
        assert_eq!(harness.counts().evicted_count, u64::from(!comes));
        if comes {
            harness.done(0);
        }
        harness.send_replay(2, 0, |_| {});
        harness.done(2);
        let names = harness.names();
        assert!(names.contains("a") && names.contains("b"));
    }
}

/// Another credential, or another export: its reports about hosts and predecessors do not affect
/// other parties, and under the same uuid it is another client.
#[test]
fn the_same_uuid_under_another_export_is_another_client() {
    let mut harness = Harness::clients(Share::Write, 1);
    let mine = harness.peers[0].as_ref().unwrap().session;
    let stranger = |client| HelloFields { export: "guests", ..HelloFields::new(client) };
    let victim = harness.hellos[0].client;
    Peer::new(&mut harness.server, &HelloFields { predecessor: victim, ..stranger(2) });
    assert!(!harness.server.is_closed(harness.peers[0].as_ref().unwrap().conn));
    let other = Peer::new(&mut harness.server, &HelloFields { conn_epoch: 99, ..stranger(1) });
    assert_ne!(other.session, mine);
    assert!(!harness.server.is_closed(harness.peers[0].as_ref().unwrap().conn));
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.kill();
    Peer::new(&mut harness.server, &HelloFields { predecessor: victim, ..stranger(3) });
    Peer::new(&mut harness.server, &HelloFields { host_boot_id: [3; 16], ..stranger(4) });
    // Its replay belongs to no client here.
    let mut thief =
        Harness { hellos: alloc::vec![stranger(1)], peers: alloc::vec![None], ..harness };
    thief.connect(0);
    thief.retained[0][0].head.session = thief.peers[0].as_ref().unwrap().session;
    thief.send_replay(0, 0, |_| {});
    thief.server.run();
    assert!(thief.server.is_closed(thief.peers[0].as_ref().unwrap().conn));
    assert_eq!((thief.counts().forged_count, thief.counts().evicted_count), (1, 0));
    thief.server.pass_ms(4_000);
    thief.server.run();
    assert_eq!(thief.counts().evicted_count, 0);
    thief.retained[0][0].head.session = mine;
    let mut harness = Harness { hellos: alloc::vec![HelloFields::new(1)], ..thief };
    harness.come_back(0);
    assert_eq!((harness.counts().replayed_count, harness.counts().evicted_count), (1, 0));
    assert!(harness.names().contains("a"));
}

/// A client cannot hold a replay back for a later recovery.
#[test]
fn a_late_replay_is_refused_for_good() {
    let mut harness = Harness::clients(Share::Write, 1);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.kill();
    harness.connect(0);
    harness.done(0);
    harness.server.run();
    assert!(!harness.names().contains("a"));
    // It has changed nothing since, but is known.
    for _ in 0..2 {
        harness.kill();
        assert_eq!(harness.counts().known_count, 1);
        harness.connect(0);
        let got = harness.replay(0, 0).unwrap();
        assert_eq!(got.head.status, Status::Overflow);
        assert_eq!(harness.counts().forged_count, 1);
        harness.done(0);
        assert!(!harness.names().contains("a"));
    }
}

/// A token that outlived its session is invalid, however often the server starts.
#[test]
fn a_replay_of_an_ended_session_is_refused() {
    let mut harness = Harness::clients(Share::Write, 2);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.server.run();
    let peer = harness.peers[0].as_mut().unwrap();
    let head = peer.head(Op::Goodbye, META, 0);
    peer.send(&mut harness.server, &head, &[], None);
    harness.server.run();
    let mut other = harness.peers[1].take().unwrap();
    let unlink =
        wire::Unlink { caller: ROOT, parent: InodeNo::ROOT, name: name("a"), behind: None };
    assert_eq!(other.ask(&mut harness.server, Op::Unlink, 1, &unlink).head.status, Status::Ok);
    for again in [false, true] {
        harness.server.run();
        harness.kill();
        harness.connect(0);
        let got = harness.replay(0, 0).unwrap();
        // The second time it has a new session, with later transactions than the token's.
        let status = if again { Status::Ok } else { Status::Overflow };
        assert_eq!(got.head.status, status);
        assert_eq!(harness.counts().forged_count, u64::from(!again));
        assert_eq!(harness.counts().replayed_count, 0);
        harness.done(0);
        harness.come_back(1);
        assert!(!harness.names().contains("a"));
        harness.hellos[0].conn_epoch += 1;
        let mut peer = Peer::new(&mut harness.server, &harness.hellos[0]);
        peer.xid = 1 << 50;
        peer.create(&mut harness.server, "c");
        harness.server.run();
    }
}

#[test]
fn recovery_does_not_wait_for_a_replaced_client() {
    let mut harness = Harness::clients(Share::Write, 2);
    harness.ask(1, (Op::Create, 1), &create("a")).unwrap();
    harness.kill();
    harness.come_back(1);
    assert_eq!(harness.server.counters(0).recovery.evicted_count, 0);
    let predecessor = harness.hellos[0].client;
    Peer::new(&mut harness.server, &HelloFields { predecessor, ..HelloFields::new(7) });
    assert_eq!(harness.counts().evicted_count, 1);
    assert!(harness.names().contains("a"));
}

/// A client that another lane evicted is evicted at this one too.
#[test]
fn an_eviction_reaches_all_lanes() {
    let mut server = TestServer::started(61, 2);
    for lane in 0..2 {
        let mut peer = Peer::new(
            &mut server,
            &HelloFields { server_lane: LaneId(lane), ..HelloFields::new(1) },
        );
        peer.xid += 1000 * u64::from(lane);
        let shard = ShardId::meta(lane);
        let parent = if lane == 0 { InodeNo::ROOT } else { InodeNo::new(1, 1) };
        let mut head = peer.head(Op::Create, shard, 1);
        head.ack_xid = Xid(0);
        peer.send(&mut server, &head, &wire::Create { parent, ..create("a") }.to_bytes(), None);
        server.run();
    }
    server.crash();
    server.start(2);
    server.run();
    server.pass_ms(10_000);
    server.run();
    for lane in 0..2 {
        let refused = send_handshake(
            &mut server,
            &HelloFields { server_lane: LaneId(lane), conn_epoch: 9, ..HelloFields::new(1) },
        );
        assert!(refused.1.is_err(), "lane {lane}");
    }
}

#[test]
fn the_stages_are_passed_in_their_order() {
    let mut harness = Harness::clients(Share::Write, 1);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.kill();
    let passed = |harness: &Harness, point| harness.server.points.get(&point).copied().unwrap_or(0);
    assert_eq!(passed(&harness, ProtocolPoint::RecoveryBegun), 1);
    assert_eq!(passed(&harness, ProtocolPoint::Replayed), 0);
    harness.come_back(0);
    for point in [
        ProtocolPoint::Replayed,
        ProtocolPoint::ReplayDone,
        ProtocolPoint::ReplaysDurable,
        ProtocolPoint::RecoveryEnded,
    ] {
        assert_eq!(passed(&harness, point), 1, "{point:?}");
    }
    assert_eq!(harness.server.promised.map(|it| it.share), Some(Share::Write));
}

/// Replays that a failed log did not accept are not reported durable, though recovery is over.
#[test]
fn replays_that_are_lost_again_are_not_reported_durable() {
    let mut harness = Harness::clients(Share::Off, 1);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    let transno = harness.retained[0][0].got.head.transno;
    harness.server.limits.share = Share::Write;
    harness.kill();
    harness.server.failing.push((Kind::Log, interface::Errno(5)));
    harness.come_back(0);
    assert!(harness.server.lines.iter().any(|line| line.contains("log cannot be written")));
    assert_eq!(
        harness.server.promised.map(|it| it.share),
        Some(Share::Off),
        "they will come again, and need its order"
    );
    harness.server.pass_ms(1000);
    harness.server.run();
    let conn = harness.peers[0].as_ref().unwrap().conn;
    for received in harness.server.take(conn) {
        assert_eq!(commit_rows(&received), None);
        assert!(got(received).head.committed < transno);
    }
    assert!(harness.resume(0, 0).committed < transno);
}

/// Nor are they lost: a client without a durable number retains them for the next boot and replays
/// them again.
#[test]
fn clients_retain_replays_behind_a_broken_log() {
    let mut harness = Harness::clients(Share::Write, 1);
    harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    let transno = harness.retained[0][0].got.head.transno;
    harness.kill();
    harness.server.failing.push((Kind::Log, interface::Errno(5)));
    harness.come_back(0);
    let conn = harness.peers[0].as_ref().unwrap().conn;
    harness.server.cut(conn);
    harness.connect(0);
    let resumed = harness.resume(0, 1);
    assert!(resumed.recovering && resumed.committed < transno, "{resumed:?}");
    let again = harness.replay(0, 0).unwrap().head;
    assert_eq!((again.status, again.committed < transno), (Status::Ok, true));
    harness.done(0);
    harness.replies(0);
    assert!(!harness.resume(0, 0).recovering, "there is nothing left to replay");
    harness.kill();
    harness.come_back(0);
    assert!(harness.names().contains("a"));
    // A failed append may or may not have reached the disk.
    let counts = harness.counts();
    assert_eq!(
        (counts.replayed_count + counts.already_durable_count, counts.evicted_count),
        (1, 0)
    );
}

/// S21: changes that were reported durable are lost.
#[test]
fn a_store_that_lost_durable_changes_is_detected() {
    let mut harness = Harness::clients(Share::Write, 1);
    harness.kill();
    harness.connect(0);
    let peer = harness.peers[0].as_mut().unwrap();
    let head = peer.head(Op::Resume, META, 0);
    let known_committed = Transno(u64::MAX);
    let body = Resume { known_committed, replay_count: 0 }.to_bytes();
    peer.send(&mut harness.server, &head, &body, None);
    harness.server.run();
    assert_eq!(harness.counts().lost_durable_count, 1);
    assert!(
        harness.server.lines.last().unwrap().contains("lost data that it had reported durable")
    );
}
