//! Reply gating: which replies wait for which changes, and what they carry if they do not.

use super::peer::{HelloFields, Peer, ROOT, ReceivedReply, commit_rows, create, name};
use crate::Share;
use crate::acknowledgements::{Acknowledger, Gate};
use crate::test_server::TestServer;
use alloc::vec;
use alloc::vec::Vec;
use wire::{
    Find, Handle, HandleId, Header, InodeNo, LaneAcks, LaneId, List, Lookup, Mkdir, Op, OpenFor,
    Pattern, Predicate, Received, Request, Rmdir, SetTime, Setattr, Status, Unlink, Wire, Write,
    Xid, reply_flag, request_flag,
};

/// Clients with durable sessions, and a log whose appends end on demand.
struct Harness {
    server: TestServer,
    peers: Vec<Peer>,
}

impl Harness {
    fn new(share: Share) -> Self {
        let mut server = TestServer::new(41);
        server.limits.share = share;
        server.start(1);
        let mut peers: Vec<Peer> =
            (1..=3).map(|number| Peer::new(&mut server, &HelloFields::new(number))).collect();
        for (index, peer) in peers.iter_mut().enumerate() {
            peer.create(&mut server, &alloc::format!("warm{index}"));
        }
        Self { server, peers }
    }

    /// Sends a request and lets the lane take turns; no log append ends.
    fn ask<'a>(
        &mut self,
        client: usize,
        (op, slot): (Op, u16),
        body: &impl Wire<'a>,
    ) -> Option<ReceivedReply> {
        self.ask_head(client, (op, slot), body, |_| {})
    }

    fn ask_head<'a>(
        &mut self,
        client: usize,
        (op, slot): (Op, u16),
        body: &impl Wire<'a>,
        change: impl FnOnce(&mut Request),
    ) -> Option<ReceivedReply> {
        let mut head = self.peers[client].head(op, InodeNo::ROOT.shard(), slot);
        change(&mut head);
        self.peers[client].send(&mut self.server, &head, &body.to_bytes(), None);
        self.server.run_turns_only(0);
        self.peers[client].replies(&mut self.server).pop()
    }

    fn mkdir(&mut self, client: usize, slot: u16, text: &str) -> InodeNo {
        let body =
            Mkdir { caller: ROOT, parent: InodeNo::ROOT, name: name(text), mode: 0o777, umask: 0 };
        let got = self.ask(client, (Op::Mkdir, slot), &body).expect("answered at once");
        wire::Entry::decode_all(&got.body).unwrap().attr.inode
    }

    fn held(&self) -> [u64; 4] {
        let gates = self.server.counters(0).reply_gating;
        [
            gates.deferred_own_count,
            gates.deferred_foreign_count,
            gates.deferred_strict_count,
            gates.deferred_self_count,
        ]
    }

    /// Ends the append; deferred replies arrive.
    fn land(&mut self, client: usize) -> ReceivedReply {
        self.server.run();
        let mut replies = self.peers[client].replies(&mut self.server);
        assert_eq!(replies.len(), 1, "what waited came");
        let got = replies.remove(0);
        assert_eq!(got.head.status, Status::Ok);
        assert!(got.head.flags & reply_flag::GATED != 0);
        let counters = self.server.counters(0);
        assert_eq!(counters.reply_gating.released_count, counters.deferred_count);
        got
    }
}

fn within(parent: InodeNo, text: &str) -> wire::Create<'_> {
    wire::Create { parent, ..create(text) }
}

fn chmod(inode: InodeNo) -> Setattr<'static> {
    let (atime, mtime) = (SetTime::Keep, SetTime::Keep);
    let (uid, gid, clears) = (None, None, wire::ClearPrivileges::Nothing);
    Setattr { caller: ROOT, inode, mode: Some(0o711), uid, gid, atime, mtime, clears }
}

fn unlink(parent: InodeNo, text: &str) -> Unlink<'_> {
    Unlink { caller: ROOT, parent, name: name(text), behind: None }
}

/// S18.
#[test]
fn creates_in_one_directory_do_not_depend_on_each_other() {
    for share in Share::ALL {
        let mut harness = Harness::new(share);
        let before = harness.server.counters(0);
        for slot in 1..=16 {
            for client in 0..3 {
                let text = alloc::format!("f{client}-{slot}");
                let got = harness.ask(client, (Op::Create, slot), &create(&text)).unwrap();
                assert_eq!(got.head.flags, reply_flag::TOKEN);
                assert!(got.head.committed < got.head.transno);
            }
        }
        let after = harness.server.counters(0);
        assert_eq!(after.deferred_count, before.deferred_count);
        assert_eq!(after.reply_gating.token_count, before.reply_gating.token_count + 48);
        harness.server.run();
        let batches = harness.server.counters(0).batch_count - before.batch_count;
        assert_eq!(batches, 2, "the one that was in flight and one for all the rest");
    }
}

/// Replies to a session's first change and to those behind it wait for the session's record.
#[test]
fn a_session_is_durable_before_its_first_reply() {
    let mut server = TestServer::started(42, 1);
    let peer = Peer::new(&mut server, &HelloFields::new(1));
    let mut harness = Harness { server, peers: alloc::vec![peer] };
    for slot in 1..=3 {
        let text = alloc::format!("f{slot}");
        assert!(harness.ask(0, (Op::Create, slot), &create(&text)).is_none());
    }
    assert_eq!(harness.held(), [0, 0, 0, 3]);
    harness.server.run();
    assert_eq!(harness.peers[0].replies(&mut harness.server).len(), 3);
}

/// S16, the reply's half.
#[test]
fn a_reply_depends_on_an_own_change_until_its_reply_is_received() {
    for received in [false, true] {
        let mut harness = Harness::new(Share::Write);
        let dir = harness.mkdir(0, 1, "d");
        let xid = harness.peers[0].xid;
        let got = harness.ask_head(0, (Op::Create, 2), &within(dir, "f"), |head| {
            head.ack_xid = Xid(if received { xid } else { xid - 1 });
        });
        assert_eq!(got.is_some(), received);
        assert_eq!(harness.held()[0], u64::from(!received));
        if !received {
            harness.land(0);
        }
    }
    // Reuse of the slot acknowledges it as well.
    let mut harness = Harness::new(Share::Write);
    let dir = harness.mkdir(0, 1, "d");
    assert!(harness.ask(0, (Op::Create, 1), &within(dir, "f")).is_none(), "it depends on itself");
}

/// So does a read.
#[test]
fn a_read_acknowledges_received_replies() {
    for received in [false, true] {
        let mut harness = Harness::new(Share::Write);
        let dir = harness.mkdir(0, 1, "d");
        let xid = harness.peers[0].xid;
        let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name("d") };
        let looked = harness.ask_head(0, (Op::Lookup, 0), &lookup, |head| {
            head.ack_xid = Xid(if received { xid } else { xid - 1 });
        });
        assert!(looked.is_some());
        let old = |head: &mut Request| head.ack_xid = Xid(xid - 1);
        let got = harness.ask_head(0, (Op::Create, 2), &within(dir, "f"), old);
        assert_eq!(got.is_some(), received);
    }
}

/// Says over the connection of a peer that lanes of its client have received replies.
fn say_received(harness: &mut Harness, peer: usize, lanes: &[LaneAcks]) {
    let encoded: Vec<u8> = lanes.iter().flat_map(Wire::to_bytes).collect();
    let lanes = List::new(u32::try_from(lanes.len()).unwrap(), &encoded);
    let received = Received { shard: InodeNo::ROOT.shard(), lanes };
    let mut frame = Vec::new();
    Header::Received.encode(&mut frame, None, |to| to.write(&received));
    harness.server.send(harness.peers[peer].conn, frame, None);
    harness.server.run_turns_only(0);
}

/// A harness in which peer 3 is another lane of the client of peer 0.
fn with_peer_lane() -> Harness {
    let mut harness = Harness::new(Share::Write);
    let fields = HelloFields { client_lane: LaneId(1), ..HelloFields::new(1) };
    let mut peer = Peer::new(&mut harness.server, &fields);
    peer.create(&mut harness.server, "warm3");
    harness.peers.push(peer);
    harness
}

#[test]
fn a_lane_says_which_replies_another_one_of_its_client_has_received() {
    // Who says it, of which lane, up to how many xids before the reply's, and what above.
    let cases = [
        (3, (0, 1, 0), false),
        (3, (2, 0, 0), false),
        // It has a lane of this number as well, which is another client's.
        (1, (0, 0, 0), false),
        (3, (0, 1, 1), true),
        (3, (0, 0, 0), true),
    ];
    for (peer, (lane, before, sack), is_free) in cases {
        let mut harness = with_peer_lane();
        let dir = harness.mkdir(0, 1, "d");
        let ack_xid = Xid(harness.peers[0].xid - before);
        let lanes = [LaneAcks { client_lane: LaneId(lane), ack_xid, sack }];
        say_received(&mut harness, peer, &lanes);
        let got = harness.ask(3, (Op::Create, 2), &within(dir, "f"));
        assert_eq!((got.is_some(), harness.held()[0]), (is_free, u64::from(!is_free)), "{lanes:?}");
    }
}

#[test]
fn what_says_too_much_of_lanes_is_refused() {
    for (count, is_refused) in [(64, false), (65, true)] {
        let mut harness = with_peer_lane();
        let acks = LaneAcks { client_lane: LaneId(0), ack_xid: Xid(0), sack: 0 };
        say_received(&mut harness, 3, &vec![acks; count]);
        assert_eq!(harness.server.is_closed(harness.peers[3].conn), is_refused, "{count} lanes");
    }
}

#[test]
fn a_change_in_another_clients_new_directory_waits() {
    let mut harness = Harness::new(Share::Write);
    let dir = harness.mkdir(0, 1, "d");
    assert!(harness.ask(1, (Op::Create, 1), &within(dir, "f")).is_none());
    assert_eq!(harness.held()[1], 1);
    harness.land(1);
    // So does opening another client's new file.
    let got = harness.ask(0, (Op::Create, 2), &create("g")).unwrap();
    let inode = wire::Created::decode_all(&got.body).unwrap().attr.inode;
    let handle = Handle { id: HandleId(1), open_for: OpenFor::Read };
    let open = wire::Open { caller: ROOT, inode, handle };
    assert!(harness.ask(1, (Op::Open, 1), &open).is_none());
    assert_eq!(harness.held()[1], 2);
    harness.land(1);
}

#[test]
fn a_removed_name_is_a_dependency() {
    let mut harness = Harness::new(Share::Write);
    assert!(harness.ask(0, (Op::Unlink, 1), &unlink(InodeNo::ROOT, "warm0")).is_some());
    assert!(harness.ask(1, (Op::Create, 1), &create("warm0")).is_none());
    assert_eq!(harness.held()[1], 1);
    harness.land(1);
}

#[test]
fn attributes_and_entries_of_a_directory_are_independent() {
    let mut harness = Harness::new(Share::Write);
    assert!(harness.ask(0, (Op::Create, 1), &create("a")).is_some());
    assert!(harness.ask(1, (Op::Setattr, 1), &chmod(InodeNo::ROOT)).is_some());
    assert!(harness.ask(0, (Op::Create, 2), &create("b")).is_some());
    assert!(harness.ask(2, (Op::Setattr, 1), &chmod(InodeNo::ROOT)).is_none(), "the second waits");
    assert_eq!(harness.held()[..2], [0, 1]);
}

/// The last change of the entries is the client's own; the one before is another client's.
#[test]
fn removing_a_directory_depends_on_all_changes_in_it() {
    let mut harness = Harness::new(Share::Write);
    let dir = harness.mkdir(0, 1, "d");
    let rmdir = Rmdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d") };
    for client in [0, 1] {
        let body = within(dir, if client == 0 { "own" } else { "foreign" });
        let head = |head: &mut Request| head.ack_xid = Xid(head.xid.0 - 1);
        harness.ask_head(client, (Op::Create, 2), &body, head);
    }
    harness.server.run();
    harness.peers.iter().for_each(|peer| drop(peer.replies(&mut harness.server)));
    let acked = |head: &mut Request| head.ack_xid = Xid(head.xid.0 - 1);
    // Something is in flight, so that the rest is in one batch.
    assert!(harness.ask(2, (Op::Create, 1), &create("z")).is_some());
    assert!(harness.ask_head(1, (Op::Unlink, 3), &unlink(dir, "foreign"), acked).is_some());
    assert!(harness.ask_head(0, (Op::Unlink, 3), &unlink(dir, "own"), acked).is_some());
    let before = harness.held();
    assert!(harness.ask_head(0, (Op::Rmdir, 4), &rmdir, acked).is_none());
    assert_eq!(harness.held()[1], before[1] + 1, "a foreign change before the own last one");
    harness.land(0);
}

/// A reply before the last received one is missing.
#[test]
fn own_entries_are_received_when_all_of_them_are() {
    for missing in [false, true] {
        let mut harness = Harness::new(Share::Write);
        let dir = harness.mkdir(0, 1, "d");
        for (slot, text) in [(2, "a"), (3, "b")] {
            harness.ask(0, (Op::Create, slot), &within(dir, text));
        }
        harness.server.run();
        harness.peers[0].replies(&mut harness.server);
        let first = harness.peers[0].xid + 1;
        assert!(harness.ask(2, (Op::Create, 1), &create("z")).is_some());
        let old = |head: &mut Request| head.ack_xid = Xid(first - 1);
        assert!(harness.ask_head(0, (Op::Unlink, 4), &unlink(dir, "a"), old).is_some());
        assert!(harness.ask_head(0, (Op::Unlink, 5), &unlink(dir, "b"), old).is_some());
        let rmdir = Rmdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d") };
        let got = harness.ask_head(0, (Op::Rmdir, 6), &rmdir, |head| {
            head.ack_xid = Xid(first - 1);
            head.sack = if missing { 0b10 } else { 0b11 };
        });
        assert_eq!(got.is_none(), missing);
    }
}

#[test]
fn a_strict_read_hides_changes_that_may_be_lost() {
    for share in [Share::Write, Share::Strict] {
        let mut harness = Harness::new(share);
        assert!(harness.ask(0, (Op::Create, 1), &create("a")).is_some());
        let strict = share == Share::Strict;
        let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name("a") };
        assert_eq!(harness.ask(1, (Op::Lookup, 0), &lookup).is_none(), strict);
        let exists = harness.ask(2, (Op::Create, 1), &create("a"));
        assert_eq!(exists.is_none(), strict);
        let other = Lookup { name: name("warm1"), ..lookup };
        assert!(harness.ask(1, (Op::Lookup, 0), &other).is_none() == strict, "the same directory");
        assert_eq!(harness.held()[2], if strict { 3 } else { 0 });
        harness.server.run();
        assert_eq!(harness.peers[1].replies(&mut harness.server).len(), if strict { 2 } else { 0 });
    }
}

/// Matching and missing names both reveal changes that may be lost.
#[test]
fn a_strict_search_hides_changes_that_may_be_lost() {
    for share in [Share::Write, Share::Strict] {
        for pattern in [b"a", b"z"] {
            let mut harness = Harness::new(share);
            assert!(harness.ask(0, (Op::Create, 1), &create("a")).is_some());
            let find = Find {
                caller: ROOT,
                inode: InodeNo::ROOT,
                cookie: 0,
                listing_bytes_max: 4096,
                attrs: true,
                directories: false,
                predicate: Predicate { name: Pattern::new(pattern).ok(), ..Predicate::ANY },
            };
            let waits = harness.ask(1, (Op::Find, 0), &find).is_none();
            assert_eq!(waits, share == Share::Strict);
        }
    }
}

/// A directory that is not empty because of a change that may be lost; and the same for its times.
#[test]
fn a_strict_listing_hides_changes_that_may_be_lost() {
    for share in [Share::Write, Share::Strict] {
        let mut harness = Harness::new(share);
        let dir = harness.mkdir(0, 1, "d");
        harness.server.run();
        assert!(harness.ask(0, (Op::Create, 2), &within(dir, "a")).is_some());
        let strict = share == Share::Strict;
        let rmdir = Rmdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d") };
        assert_eq!(harness.ask(1, (Op::Rmdir, 1), &rmdir).is_none(), strict);
        let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name("d") };
        assert_eq!(harness.ask(2, (Op::Lookup, 0), &lookup).is_none(), strict);
    }
}

#[test]
fn with_sharing_off_a_reply_waits_for_changes_whose_reply_may_be_lost() {
    for received in [false, true] {
        let mut harness = Harness::new(Share::Off);
        assert!(harness.ask(0, (Op::Setattr, 1), &chmod(InodeNo::ROOT)).is_some());
        let xid = harness.peers[0].xid;
        assert!(harness.ask(2, (Op::Create, 1), &create("a")).is_some());
        let got = harness.ask_head(0, (Op::Create, 2), &create("b"), |head| {
            head.ack_xid = Xid(if received { xid } else { xid - 1 });
        });
        assert!(got.is_some());
        let got = harness.ask(1, (Op::Setattr, 1), &chmod(InodeNo::ROOT));
        assert_eq!(got.is_some(), received);
    }
}

#[test]
fn a_synchronous_request_waits_for_the_disk() {
    let mut harness = Harness::new(Share::Write);
    let got = harness.ask_head(0, (Op::Create, 1), &create("a"), |head| {
        head.flags = request_flag::SYNC;
    });
    assert!(got.is_none());
    let got = harness.land(0);
    assert!(got.head.committed >= got.head.transno);
    assert!(got.token.is_empty());
    let synced = harness.ask(0, (Op::Sync, 0), &[0_u8; 0]);
    assert!(synced.is_some(), "everything is durable");
    assert!(harness.ask(0, (Op::Create, 1), &create("b")).is_some());
    assert!(harness.ask(1, (Op::Sync, 0), &[0_u8; 0]).is_none());
    assert_eq!(harness.held()[3], 5, "three first records, a synchronous create, a sync");
    harness.server.run();
    assert_eq!(harness.peers[1].replies(&mut harness.server)[0].head.flags, reply_flag::GATED);
}

/// A reply may leave when its dependency is durable, though its own change is not.
#[test]
fn a_deferred_reply_leaves_with_the_batch_that_it_depends_on() {
    let mut harness = Harness::new(Share::Write);
    let dir = harness.mkdir(0, 1, "d"); // In flight.
    assert!(harness.ask(1, (Op::Create, 1), &within(dir, "f")).is_none()); // In the open batch.
    harness.server.land_log(0);
    harness.server.run_turns_only(0);
    let got = harness.peers[1].replies(&mut harness.server).pop().unwrap();
    assert_eq!(got.head.flags, reply_flag::GATED | reply_flag::TOKEN);
    assert!(got.head.committed < got.head.transno);
}

#[test]
fn an_idle_client_gets_a_commit_notification() {
    let mut harness = Harness::new(Share::Write);
    let got = harness.ask(0, (Op::Create, 1), &create("a")).unwrap();
    harness.server.run();
    assert!(harness.server.take(harness.peers[0].conn).is_empty());
    harness.server.pass_ms(100);
    harness.server.run();
    let received = harness.server.take(harness.peers[0].conn);
    let rows = commit_rows(&received[0]).unwrap();
    assert_eq!((received.len(), rows.len()), (1, 1));
    assert_eq!((rows[0].shard, rows[0].committed), (got.head.shard, got.head.transno));
    let wake_count = harness.server.wake_count;
    for _ in 0..10 {
        harness.server.pass_ms(100);
        harness.server.run();
    }
    assert!(harness.server.take(harness.peers[0].conn).is_empty());
    assert_eq!(harness.server.wake_count, wake_count, "an idle server stays idle");
    assert_eq!(harness.server.counters(0).reply_gating.commit_notification_count, 1);
}

/// The reply to a resend waits until the executed change is durable.
#[test]
fn the_reply_to_a_resend_waits_until_the_change_is_durable() {
    let mut harness = Harness::new(Share::Write);
    let head = harness.peers[0].head(Op::Create, InodeNo::ROOT.shard(), 1);
    for again in [false, true] {
        harness.peers[0].send(&mut harness.server, &head, &create("a").to_bytes(), None);
        harness.server.run_turns_only(0);
        assert_eq!(harness.peers[0].replies(&mut harness.server).is_empty(), again);
    }
    harness.land(0);
}

#[test]
fn a_write_depends_on_the_size_flag_that_another_open_set() {
    let mut harness = Harness::new(Share::Write);
    let file = harness.peers[0].create(&mut harness.server, "file");
    let open = |number| wire::Open {
        caller: ROOT,
        inode: file,
        handle: Handle { id: HandleId(number), open_for: OpenFor::Write },
    };
    assert!(harness.ask(0, (Op::Open, 1), &open(1)).is_none(), "the flag is its own change");
    assert!(
        harness.ask(0, (Op::Open, 2), &open(2)).is_none(),
        "the flag may be lost with its client"
    );
    harness.server.run();
    assert_eq!(harness.peers[0].replies(&mut harness.server).len(), 2);
}

/// A client opens a file to be read by itself, and for writing at the server before it changes it.
#[test]
fn a_reopen_for_writing_is_answered_when_the_size_flag_that_it_sets_is_durable() {
    let mut harness = Harness::new(Share::Write);
    let file = harness.peers[0].create(&mut harness.server, "file");
    harness.server.run();
    let reopen = |number, open_for| wire::Reopen {
        inode: file,
        handle: Handle { id: HandleId(number), open_for },
    };
    let read = harness.ask(0, (Op::Reopen, 1), &reopen(1, OpenFor::Read)).unwrap();
    assert_eq!(read.head.status, Status::Ok);
    assert!(harness.ask(0, (Op::Reopen, 1), &reopen(2, OpenFor::ReadWrite)).is_none());
    harness.land(0);
}

/// A batch is safe when all required members have acknowledged it, not when the local flush has.
#[test]
fn a_reply_waits_for_the_slowest_member_and_independent_ones_do_not() {
    let mut harness = Harness::new(Share::Write);
    let slow = Acknowledger(1);
    harness.server.lane_mut(0).commit.require(InodeNo::ROOT.shard(), slow);
    harness.mkdir(0, 1, "d");
    let body = Rmdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d") };
    assert!(harness.ask(1, (Op::Rmdir, 1), &body).is_none(), "it depends on the mkdir");
    harness.server.run();
    assert!(
        harness.peers[1].replies(&mut harness.server).is_empty(),
        "flushed, but not acknowledged"
    );
    let sealed_no = harness.server.lane_mut(0).commit.sealed_no();
    let gate = Gate::of(InodeNo::ROOT.shard(), sealed_no);
    let before = harness.held();
    let got = harness.ask(2, (Op::Create, 1), &create("independent")).expect("answered at once");
    assert_eq!((got.head.flags, harness.held()), (reply_flag::TOKEN, before));
    let commit = &mut harness.server.lane_mut(0).commit;
    assert!(!commit.is_safe(gate), "the slow member delays it");
    commit.acknowledge(slow, commit.sealed_no());
    assert!(commit.is_safe(gate));
    harness.server.event(0, interface::Event::Tick);
    harness.server.run_turns_only(0);
    let got = harness.peers[1].replies(&mut harness.server).pop().expect("released");
    assert_eq!(got.head.status, Status::Ok);
    assert!(got.head.flags & reply_flag::GATED != 0);
}

#[test]
fn a_slow_member_delays_the_shards_that_require_it_alone() {
    let mut harness = Harness::new(Share::Write);
    let file = harness.peers[0].create(&mut harness.server, "file");
    let data = harness.server.map.data_shard(file, 0);
    let slow = Acknowledger(1);
    harness.server.lane_mut(0).commit.require(InodeNo::ROOT.shard(), slow);
    harness.mkdir(0, 1, "d");
    let body = Rmdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d") };
    assert!(harness.ask(1, (Op::Rmdir, 1), &body).is_none(), "it depends on the mkdir");
    let clears = wire::ClearPrivileges::Nothing;
    let body = Write { inode: file, file_offset: 0, append: false, clears }.to_bytes();
    let head = harness.peers[2].head(Op::Write, data, 1);
    let head = Request { flags: request_flag::SYNC, ..head };
    harness.peers[2].send(&mut harness.server, &head, &body, Some(b"bytes"));
    harness.server.run();
    let got = harness.peers[2].replies(&mut harness.server).pop().expect("the flush suffices");
    assert_eq!((got.head.status, got.head.flags), (Status::Ok, reply_flag::GATED));
    assert!(harness.peers[1].replies(&mut harness.server).is_empty(), "its shard requires more");
    let commit = &mut harness.server.lane_mut(0).commit;
    commit.acknowledge(slow, commit.sealed_no());
    harness.server.event(0, interface::Event::Tick);
    harness.server.run_turns_only(0);
    let got = harness.peers[1].replies(&mut harness.server).pop().expect("released");
    assert_eq!(got.head.status, Status::Ok);
}
