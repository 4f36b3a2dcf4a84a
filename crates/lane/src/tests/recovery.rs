//! Recovery: which changes are replayed after a restart, in which order, and which clients are
//! evicted.

use super::peer::{
    HelloFields, Peer, ROOT, ReceivedReply, create, got, name, noted, send_handshake,
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
struct Rig {
    server: TestServer,
    who: Vec<HelloFields>,
    peers: Vec<Option<Peer>>,
    kept: Vec<Vec<RetainedReply>>,
}

impl Rig {
    fn new(share: Share, who: Vec<HelloFields>) -> Self {
        let mut server = TestServer::new(51);
        server.limits.share = share;
        server.start(1);
        let mut peers = Vec::new();
        for (index, who) in who.iter().enumerate() {
            let mut peer = Peer::new(&mut server, who);
            peer.create(&mut server, &alloc::format!("warm{index}"));
            peers.push(Some(peer));
        }
        let kept = who.iter().map(|_| Vec::new()).collect();
        Self { server, who, peers, kept }
    }

    fn clients(share: Share, count: u8) -> Self {
        Self::new(share, (1..=count).map(HelloFields::new).collect())
    }

    /// Sends a request and retains its reply, if there is one.
    fn ask<'a>(
        &mut self,
        who: usize,
        (op, slot): (Op, u16),
        body: &impl Wire<'a>,
    ) -> Option<ReceivedReply> {
        let peer = self.peers[who].as_mut().unwrap();
        let mut head = peer.head(op, META, slot);
        head.ack_xid = Xid(head.xid.0 - 1);
        peer.send(&mut self.server, &head, &body.to_bytes(), None);
        self.server.run_turns_only(0);
        let got = peer.replies(&mut self.server).pop();
        if let Some(got) = &got {
            assert_eq!(got.head.status, Status::Ok);
            self.kept[who].push(RetainedReply { head, got: got.clone() });
        }
        got
    }

    /// Ends the append in flight; the deferred replies arrive and are retained.
    fn land(&mut self, who: usize) {
        self.server.land_log(0);
        self.server.run_turns_only(0);
        let got = self.replies(who).pop().unwrap();
        let Reply { op, shard, slot, session, xid, .. } = got.head;
        let head = Request { shard, slot, session, xid, ..Request::of(op) };
        self.kept[who].push(RetainedReply { head, got });
    }

    /// All actions in flight are lost.
    fn kill(&mut self) {
        self.server.crash_losing_all();
        self.peers.iter_mut().for_each(|peer| *peer = None);
        self.server.start(1);
        self.server.run();
    }

    fn connect(&mut self, who: usize) {
        self.who[who].conn_epoch += 1;
        let mut peer = Peer::new(&mut self.server, &self.who[who]);
        peer.xid = 1 << 40;
        self.peers[who] = Some(peer);
    }

    fn resume(&mut self, who: usize, replay_count: u32) -> Resumed {
        let known_committed = Transno(0);
        let body = Resume { known_committed, replay_count };
        let peer = self.peers[who].as_mut().unwrap();
        let head = peer.head(Op::Resume, META, 0);
        peer.send(&mut self.server, &head, &body.to_bytes(), None);
        self.server.run();
        let replies = self.peers[who].as_ref().unwrap().replies(&mut self.server);
        Resumed::decode_all(&replies[0].body).unwrap()
    }

    fn send_replay(&mut self, who: usize, index: usize, spoil: impl FnOnce(&mut Vec<u8>)) {
        let RetainedReply { head, got } = self.kept[who][index].clone();
        let mut token = got.token;
        spoil(&mut token);
        let peer = self.peers[who].as_ref().unwrap();
        let head = Request {
            flags: request_flag::REPLAY,
            transno: got.head.transno,
            conn_epoch: peer.conn_epoch,
            ..head
        };
        let body = Replay { reply: Bytes(&got.body), token: Bytes(&token) }.to_bytes();
        peer.send(&mut self.server, &head, &body, None);
    }

    fn replay(&mut self, who: usize, index: usize) -> Option<ReceivedReply> {
        self.send_replay(who, index, |_| {});
        self.server.run();
        self.replies(who).pop()
    }

    fn replies(&mut self, who: usize) -> Vec<ReceivedReply> {
        self.peers[who].as_ref().unwrap().replies(&mut self.server)
    }

    fn done(&mut self, who: usize) {
        let peer = self.peers[who].as_mut().unwrap();
        let head = peer.head(Op::ReplayDone, META, 0);
        peer.send(&mut self.server, &head, &wire::ReplayDone { reopen_count: 0 }.to_bytes(), None);
        self.server.run();
    }

    /// Replays everything.
    fn come_back(&mut self, who: usize) {
        self.connect(who);
        for index in 0..self.kept[who].len() {
            self.send_replay(who, index, |_| {});
        }
        self.done(who);
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
    let mut rig = Rig::clients(Share::Write, 1);
    for slot in 1..=16 {
        rig.ask(0, (Op::Create, slot), &create(&alloc::format!("f{slot}"))).unwrap();
    }
    rig.kill();
    rig.connect(0);
    let resumed = rig.resume(0, 0);
    assert!(resumed.recovering && resumed.committed < rig.kept[0][0].got.head.transno);
    for _ in 0..2 {
        for index in 0..16 {
            let got = rig.replay(0, index).unwrap();
            assert_eq!(got.head.status, Status::Ok);
            assert_eq!(got.head.transno, rig.kept[0][index].got.head.transno);
        }
    }
    rig.done(0);
    assert_eq!((rig.counts().replayed_count, rig.counts().already_durable_count), (16, 16));
    assert_eq!(rig.names().len(), 17);
    // A resend of a replayed change is answered from the slot, with the same bytes.
    let RetainedReply { head, got } = rig.kept[0][15].clone();
    let conn_epoch = rig.peers[0].as_ref().unwrap().conn_epoch;
    let head = Request { conn_epoch, flags: request_flag::RESENT, ..head };
    let body = create("f16").to_bytes();
    rig.peers[0].as_ref().unwrap().send(&mut rig.server, &head, &body, None);
    rig.server.run();
    assert_eq!(rig.replies(0).last().unwrap().body, got.body);
}

/// A whiteout over a file changes five things with a version, more than any other request.
#[test]
fn exchanges_and_whiteouts_are_replayed() {
    let mut rig = Rig::clients(Share::Write, 1);
    for (slot, text) in [(1, "a"), (2, "b"), (3, "c")] {
        rig.ask(0, (Op::Create, slot), &create(text)).unwrap();
    }
    let exchange = Rename { how: RenameHow::Exchange, ..rename("a", "b") };
    rig.ask(0, (Op::Rename, 4), &exchange).unwrap();
    let whiteout = Rename { how: RenameHow::Whiteout, ..rename("a", "c") };
    rig.ask(0, (Op::Rename, 5), &whiteout).unwrap();
    rig.ask(0, (Op::Rename, 6), &rename("a", "d")).unwrap();
    rig.kill();
    rig.come_back(0);
    assert_eq!((rig.counts().rejected_count, rig.counts().replayed_count), (0, 6));
    assert_eq!(rig.names(), ["b", "c", "d", "warm0"].map(String::from).into());
}

/// S12: the server crashes again after some replays, durable or not.
#[test]
fn a_second_crash_during_recovery_loses_nothing() {
    for replayed in 0..=8 {
        for durable in [false, true] {
            let mut rig = Rig::clients(Share::Write, 1);
            for slot in 1..=8 {
                rig.ask(0, (Op::Create, slot), &create(&alloc::format!("f{slot}"))).unwrap();
            }
            rig.kill();
            rig.connect(0);
            for index in 0..replayed {
                rig.send_replay(0, index, |_| {});
            }
            if durable {
                rig.server.run();
            } else {
                rig.server.run_turns_only(0);
            }
            rig.kill();
            rig.come_back(0);
            let expected = if durable { replayed as u64 } else { 0 };
            assert_eq!(rig.counts().already_durable_count, expected);
            assert_eq!(rig.counts().rejected_count, 0);
            assert_eq!(rig.names().len(), 9);
        }
    }
}

/// S2, S20: one client is missing; the other's interleaved changes survive, in either order.
#[test]
fn a_missing_client_does_not_cost_others_their_changes() {
    let mut rig = Rig::clients(Share::Write, 2);
    rig.ask(0, (Op::Create, 1), &create("lost")).unwrap();
    rig.ask(1, (Op::Create, 1), &create("kept")).unwrap();
    rig.ask(1, (Op::Setattr, 2), &chmod(InodeNo::ROOT)).unwrap();
    rig.ask(1, (Op::Create, 3), &create("kept too")).unwrap();
    rig.kill();
    rig.come_back(1);
    let mut visitor = Peer::new(&mut rig.server, &HelloFields::new(98));
    let head = visitor.head(Op::Getattr, META, 0);
    let body = wire::Getattr { inode: InodeNo::ROOT }.to_bytes();
    visitor.send(&mut rig.server, &head, &body, None);
    rig.server.run();
    assert!(visitor.replies(&mut rig.server).is_empty(), "the window is open");
    rig.server.pass_ms(5_000);
    rig.server.run();
    assert!(rig.server.lines.last().unwrap().contains("recovery waits for client "));
    rig.server.pass_ms(5_000);
    rig.server.run();
    assert_eq!(visitor.replies(&mut rig.server).len(), 1, "the early request was deferred");
    let counts = rig.counts();
    assert_eq!((counts.known_count, counts.returned_count, counts.evicted_count), (2, 1, 1));
    assert_eq!((counts.replayed_count, counts.rejected_count), (3, 0));
    let names = rig.names();
    assert!(!names.contains("lost") && names.contains("kept") && names.contains("kept too"));
    // The evicted client is refused, also after a restart; under another uuid it is admitted.
    for restart in [false, true] {
        if restart {
            rig.server.crash();
            rig.server.start(1);
            rig.server.run();
        }
        let refused =
            send_handshake(&mut rig.server, &HelloFields { conn_epoch: 9, ..HelloFields::new(1) })
                .1;
        assert_eq!(refused, Err(Refusal { reason: RefusalReason::Evicted }));
    }
    assert!(send_handshake(&mut rig.server, &HelloFields::new(3)).1.is_ok());
}

/// A server that was stopped for long admits the clients that connected meanwhile before it evicts
/// any.
#[test]
fn a_client_that_connects_to_a_suspended_server_is_not_evicted() {
    let mut rig = Rig::clients(Share::Write, 2);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    rig.kill();
    rig.server.sleep(100_000_000_000);
    rig.server.run();
    rig.come_back(0);
    assert_eq!(rig.counts().evicted_count, 0);
    rig.server.pass_ms(2_500);
    rig.server.run();
    assert_eq!((rig.counts().returned_count, rig.counts().evicted_count), (1, 1));
    assert!(rig.names().contains("a"));
}

#[test]
fn two_clients_replay_in_either_order() {
    for first in [0, 1] {
        let mut rig = Rig::clients(Share::Write, 2);
        rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
        rig.ask(1, (Op::Setattr, 1), &chmod(InodeNo::ROOT)).unwrap();
        rig.ask(1, (Op::Create, 2), &create("b")).unwrap();
        rig.ask(0, (Op::Create, 2), &create("c")).unwrap();
        rig.kill();
        rig.come_back(first);
        rig.come_back(1 - first);
        assert_eq!((rig.counts().replayed_count, rig.counts().rejected_count), (4, 0));
        assert_eq!(rig.names().len(), 5);
    }
}

/// S17: create, another client's rename, the first one's rename back; the other client is dead. The
/// control, with sharing off, is below.
#[test]
fn a_chain_of_changes_survives_a_missing_link() {
    for missing in [None, Some(0), Some(1)] {
        let mut rig = Rig::clients(Share::Write, 2);
        assert!(rig.ask(0, (Op::Create, 1), &create("a")).is_some());
        assert!(rig.ask(1, (Op::Rename, 1), &rename("a", "x")).is_none());
        rig.land(1);
        assert!(rig.ask(0, (Op::Rename, 2), &rename("x", "a")).is_none());
        rig.land(0);
        assert_eq!(rig.server.counters(0).reply_gating.deferred_foreign_count, 2);
        rig.kill();
        for who in [1, 0].into_iter().filter(|who| missing != Some(*who)) {
            rig.come_back(who);
        }
        rig.server.pass_ms(10_000);
        rig.server.run();
        let names = rig.names();
        // The last rename is the first client's; the others waited until they were durable.
        assert_eq!(names.contains("a"), missing != Some(0), "{missing:?}");
        assert_eq!(names.contains("x"), missing == Some(0), "{missing:?}");
        assert_eq!(rig.counts().rejected_count, 0);
    }
}

/// With sharing off no reply waits for other clients; changes that depend on a missing client are
/// lost, and their client is evicted.
#[test]
fn with_sharing_off_changes_that_depend_on_a_missing_client_are_lost() {
    let mut rig = Rig::clients(Share::Off, 2);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    rig.ask(0, (Op::Create, 2), &create("b")).unwrap();
    assert!(rig.ask(1, (Op::Rename, 1), &rename("a", "x")).is_some(), "no reply waits");
    rig.kill();
    rig.come_back(1);
    assert_eq!(rig.counts().replayed_count, 0, "in one order with the others");
    rig.server.pass_ms(10_000);
    rig.server.run();
    let counts = rig.counts();
    assert_eq!((counts.rejected_count, counts.evicted_count), (1, 2));
    let refused =
        send_handshake(&mut rig.server, &HelloFields { conn_epoch: 9, ..HelloFields::new(2) }).1;
    assert!(refused.is_err());
}

/// The lanes of one client depend on each other without reply gating: their replays are executed in
/// one order.
#[test]
fn the_lanes_of_a_client_replay_in_the_order_of_their_changes() {
    let peer_lane = HelloFields { client_lane: LaneId(1), ..HelloFields::new(1) };
    let mut rig = Rig::new(Share::Write, alloc::vec![HelloFields::new(1), peer_lane]);
    let body =
        Mkdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d"), mode: 0o755, umask: 0 };
    let got = rig.ask(0, (Op::Mkdir, 1), &body).unwrap();
    let dir = wire::Entry::decode_all(&got.body).unwrap().attr.inode;
    // The first lane's next request acknowledges the reply.
    rig.ask(0, (Op::Create, 2), &create("e")).unwrap();
    rig.ask(1, (Op::Create, 1), &wire::Create { parent: dir, ..create("f") }).unwrap();
    rig.kill();
    rig.connect(1);
    assert!(rig.replay(1, 0).is_none(), "the peer lane may have something older");
    rig.connect(0);
    for index in 0..2 {
        assert!(rig.replay(0, index).is_some());
    }
    rig.done(0);
    assert_eq!(rig.replies(1).len(), 1);
    rig.done(1);
    assert_eq!((rig.counts().replayed_count, rig.counts().rejected_count), (3, 0));
    assert_eq!(rig.counts().returned_count, 1);
}

/// S27.
#[test]
fn a_forged_token_evicts() {
    let mut rig = Rig::clients(Share::Write, 2);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    rig.ask(1, (Op::Create, 1), &create("b")).unwrap();
    rig.kill();
    rig.connect(0);
    rig.send_replay(0, 0, |token| *token.last_mut().unwrap() ^= 1);
    rig.server.run();
    assert!(rig.server.is_closed(rig.peers[0].as_ref().unwrap().conn));
    rig.come_back(1);
    let counts = rig.counts();
    assert_eq!((counts.forged_count, counts.evicted_count, counts.replayed_count), (1, 1, 1));
    let names = rig.names();
    assert!(names.contains("b") && !names.contains("a"));
    let refused =
        send_handshake(&mut rig.server, &HelloFields { conn_epoch: 9, ..HelloFields::new(1) }).1;
    assert!(refused.is_err());
}

/// A recovery may be cut off any number of times: the tokens keep the number of their key.
#[test]
fn a_token_is_replayed_several_starts_later_and_under_its_own_keys_number_only() {
    for key_no in [1, 2, 3, 4, 5] {
        let mut rig = Rig::clients(Share::Write, 1);
        rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
        assert_eq!(rig.kept[0][0].got.token[..4], [1, 0, 0, 0], "signed in term 1");
        (0..3).for_each(|_| rig.kill());
        assert_eq!(rig.server.boot_id, 4);
        rig.connect(0);
        rig.send_replay(0, 0, |token| token[0] = key_no);
        rig.server.run();
        let is_own = key_no == 1;
        assert_eq!(rig.counts().forged_count, u64::from(!is_own), "key {key_no}");
        if is_own {
            rig.done(0);
            assert_eq!(rig.counts().replayed_count, 1);
            assert!(rig.names().contains("a"));
        }
    }
}

/// A token is not valid for another request.
#[test]
fn a_token_is_valid_for_one_request() {
    let mut rig = Rig::clients(Share::Write, 1);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    rig.kill();
    rig.connect(0);
    rig.kept[0][0].head.xid.0 += 1;
    rig.send_replay(0, 0, |_| {});
    rig.server.run();
    assert_eq!(rig.counts().forged_count, 1);
}

#[test]
fn recovery_does_not_wait_for_a_client_that_said_goodbye() {
    let mut rig = Rig::clients(Share::Write, 2);
    rig.ask(1, (Op::Create, 1), &create("a")).unwrap();
    let peer = rig.peers[0].as_mut().unwrap();
    let head = peer.head(Op::Goodbye, META, 0);
    peer.send(&mut rig.server, &head, &[], None);
    rig.server.run();
    assert_eq!(rig.replies(0).len(), 1);
    rig.kill();
    rig.come_back(1);
    assert_eq!((rig.counts().known_count, rig.counts().evicted_count), (1, 0));
    assert!(rig.names().contains("a"));
}

#[test]
fn recovery_does_not_wait_for_a_long_absent_client_nor_evicts_it() {
    let mut rig = Rig::clients(Share::Write, 2);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    let conn = rig.peers[0].as_ref().unwrap().conn;
    rig.server.cut(conn);
    rig.server.run();
    rig.server.pass_ms(61_000);
    rig.server.run();
    rig.kill();
    rig.come_back(1);
    assert_eq!((rig.counts().known_count, rig.counts().evicted_count), (1, 0));
    assert!(rig.names().contains("a"));
    rig.connect(0);
    let resumed = rig.resume(0, 0);
    assert!(!resumed.recovering);
    assert_eq!(resumed.committed, rig.kept[0][0].got.head.transno);
}

#[test]
fn recovery_waits_shorter_for_absent_clients_of_a_rebooted_host() {
    for comes in [false, true] {
        let mut rig = Rig::clients(Share::Write, 3);
        rig.ask(1, (Op::Create, 1), &create("a")).unwrap();
        rig.ask(2, (Op::Create, 1), &create("b")).unwrap();
        rig.kill();
        rig.come_back(1);
        rig.connect(2);
        let other = HelloFields { host_boot_id: [3; 16], ..HelloFields::new(7) };
        Peer::new(&mut rig.server, &other);
        assert_eq!(rig.counts().evicted_count, 0, "a report alone evicts no client");
        if comes {
            rig.connect(0);
        }
        rig.server.pass_ms(4_000);
        rig.server.run();
        // Two clients have reconnected unchanged: the report about their host is wrong.
        assert_eq!(rig.counts().evicted_count, u64::from(!comes));
        if comes {
            rig.done(0);
        }
        rig.send_replay(2, 0, |_| {});
        rig.done(2);
        let names = rig.names();
        assert!(names.contains("a") && names.contains("b"));
    }
}

/// Another credential, or another export: its reports about hosts and predecessors do not affect
/// other parties, and under the same uuid it is another client.
#[test]
fn the_same_uuid_under_another_export_is_another_client() {
    let mut rig = Rig::clients(Share::Write, 1);
    let mine = rig.peers[0].as_ref().unwrap().session;
    let stranger = |client| HelloFields { export: "guests", ..HelloFields::new(client) };
    let victim = rig.who[0].client;
    let other = Peer::new(&mut rig.server, &HelloFields { conn_epoch: 99, ..stranger(1) });
    assert_ne!(other.session, mine);
    assert!(!rig.server.is_closed(rig.peers[0].as_ref().unwrap().conn));
    Peer::new(&mut rig.server, &HelloFields { predecessor: victim, ..stranger(2) });
    assert!(!rig.server.is_closed(rig.peers[0].as_ref().unwrap().conn));
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    rig.kill();
    Peer::new(&mut rig.server, &HelloFields { predecessor: victim, ..stranger(3) });
    Peer::new(&mut rig.server, &HelloFields { host_boot_id: [3; 16], ..stranger(4) });
    // Its replay belongs to no client here.
    let mut thief = Rig { who: alloc::vec![stranger(1)], peers: alloc::vec![None], ..rig };
    thief.connect(0);
    thief.kept[0][0].head.session = thief.peers[0].as_ref().unwrap().session;
    thief.send_replay(0, 0, |_| {});
    thief.server.run();
    assert!(thief.server.is_closed(thief.peers[0].as_ref().unwrap().conn));
    assert_eq!((thief.counts().forged_count, thief.counts().evicted_count), (1, 0));
    thief.server.pass_ms(4_000);
    thief.server.run();
    assert_eq!(thief.counts().evicted_count, 0);
    thief.kept[0][0].head.session = mine;
    let mut rig = Rig { who: alloc::vec![HelloFields::new(1)], ..thief };
    rig.come_back(0);
    assert_eq!((rig.counts().replayed_count, rig.counts().evicted_count), (1, 0));
    assert!(rig.names().contains("a"));
}

/// A client cannot hold a replay back for a later recovery.
#[test]
fn a_late_replay_is_refused_for_good() {
    let mut rig = Rig::clients(Share::Write, 1);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    rig.kill();
    rig.connect(0);
    rig.done(0);
    rig.server.run();
    assert!(!rig.names().contains("a"));
    // It has changed nothing since, but is known.
    for _ in 0..2 {
        rig.kill();
        assert_eq!(rig.counts().known_count, 1);
        rig.connect(0);
        let got = rig.replay(0, 0).unwrap();
        assert_eq!(got.head.status, Status::Overflow);
        assert_eq!(rig.counts().forged_count, 1);
        rig.done(0);
        assert!(!rig.names().contains("a"));
    }
}

/// A token that outlived its session is invalid, however often the server starts.
#[test]
fn a_replay_of_an_ended_session_is_refused() {
    let mut rig = Rig::clients(Share::Write, 2);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    rig.server.run();
    let peer = rig.peers[0].as_mut().unwrap();
    let head = peer.head(Op::Goodbye, META, 0);
    peer.send(&mut rig.server, &head, &[], None);
    rig.server.run();
    let mut other = rig.peers[1].take().unwrap();
    let unlink = wire::Unlink { caller: ROOT, parent: InodeNo::ROOT, name: name("a") };
    assert_eq!(other.ask(&mut rig.server, Op::Unlink, 1, &unlink).head.status, Status::Ok);
    for again in [false, true] {
        rig.server.run();
        rig.kill();
        rig.connect(0);
        let got = rig.replay(0, 0).unwrap();
        // The second time it has a new session, with later transactions than the token's.
        let status = if again { Status::Ok } else { Status::Overflow };
        assert_eq!(got.head.status, status);
        assert_eq!(rig.counts().forged_count, u64::from(!again));
        assert_eq!(rig.counts().replayed_count, 0);
        rig.done(0);
        rig.come_back(1);
        assert!(!rig.names().contains("a"));
        rig.who[0].conn_epoch += 1;
        let mut peer = Peer::new(&mut rig.server, &rig.who[0]);
        peer.xid = 1 << 50;
        peer.create(&mut rig.server, "c");
        rig.server.run();
    }
}

#[test]
fn recovery_does_not_wait_for_a_replaced_client() {
    let mut rig = Rig::clients(Share::Write, 2);
    rig.ask(1, (Op::Create, 1), &create("a")).unwrap();
    rig.kill();
    rig.come_back(1);
    assert_eq!(rig.server.counters(0).recovery.evicted_count, 0);
    let predecessor = rig.who[0].client;
    Peer::new(&mut rig.server, &HelloFields { predecessor, ..HelloFields::new(7) });
    assert_eq!(rig.counts().evicted_count, 1);
    assert!(rig.names().contains("a"));
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
    let mut rig = Rig::clients(Share::Write, 1);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    rig.kill();
    let passed = |rig: &Rig, point| rig.server.points.get(&point).copied().unwrap_or(0);
    assert_eq!(passed(&rig, ProtocolPoint::RecoveryBegun), 1);
    assert_eq!(passed(&rig, ProtocolPoint::Replayed), 0);
    rig.come_back(0);
    for point in [
        ProtocolPoint::Replayed,
        ProtocolPoint::ReplayDone,
        ProtocolPoint::ReplaysDurable,
        ProtocolPoint::RecoveryEnded,
    ] {
        assert_eq!(passed(&rig, point), 1, "{point:?}");
    }
    assert_eq!(rig.server.share_before, Some(Share::Write));
}

/// Replays that a failed log did not accept are not reported durable, though recovery is over.
#[test]
fn replays_that_are_lost_again_are_not_reported_durable() {
    let mut rig = Rig::clients(Share::Off, 1);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    let transno = rig.kept[0][0].got.head.transno;
    rig.server.limits.share = Share::Write;
    rig.kill();
    rig.server.failing.push((Kind::Log, interface::Errno(5)));
    rig.come_back(0);
    assert!(rig.server.lines.iter().any(|line| line.contains("log cannot be written")));
    assert_eq!(
        rig.server.share_before,
        Some(Share::Off),
        "they will come again, and need its order"
    );
    rig.server.pass_ms(1000);
    rig.server.run();
    let conn = rig.peers[0].as_ref().unwrap().conn;
    for received in rig.server.take(conn) {
        assert_eq!(noted(&received), None);
        assert!(got(received).head.committed < transno);
    }
    assert!(rig.resume(0, 0).committed < transno);
}

/// Nor are they lost: a client without a durable number retains them for the next boot and replays
/// them again.
#[test]
fn clients_retain_replays_behind_a_broken_log() {
    let mut rig = Rig::clients(Share::Write, 1);
    rig.ask(0, (Op::Create, 1), &create("a")).unwrap();
    let transno = rig.kept[0][0].got.head.transno;
    rig.kill();
    rig.server.failing.push((Kind::Log, interface::Errno(5)));
    rig.come_back(0);
    let conn = rig.peers[0].as_ref().unwrap().conn;
    rig.server.cut(conn);
    rig.connect(0);
    let resumed = rig.resume(0, 1);
    assert!(resumed.recovering && resumed.committed < transno, "{resumed:?}");
    let again = rig.replay(0, 0).unwrap().head;
    assert_eq!((again.status, again.committed < transno), (Status::Ok, true));
    rig.done(0);
    rig.replies(0);
    assert!(!rig.resume(0, 0).recovering, "there is nothing left to replay");
    rig.kill();
    rig.come_back(0);
    assert!(rig.names().contains("a"));
    // A failed append may or may not have reached the disk.
    let counts = rig.counts();
    assert_eq!(
        (counts.replayed_count + counts.already_durable_count, counts.evicted_count),
        (1, 0)
    );
}

/// S21: changes that were reported durable are lost.
#[test]
fn a_store_that_lost_durable_changes_is_detected() {
    let mut rig = Rig::clients(Share::Write, 1);
    rig.kill();
    rig.connect(0);
    let peer = rig.peers[0].as_mut().unwrap();
    let head = peer.head(Op::Resume, META, 0);
    let known_committed = Transno(u64::MAX);
    let body = Resume { known_committed, replay_count: 0 }.to_bytes();
    peer.send(&mut rig.server, &head, &body, None);
    rig.server.run();
    assert_eq!(rig.counts().lost_durable_count, 1);
    assert!(rig.server.lines.last().unwrap().contains("lost data that it had reported durable"));
}
