//! Unstable writes: their dependencies, and their replays.

use super::peer::{HelloFields, Peer, ReceivedReply};
use crate::Share;
use crate::test_server::TestServer;
use alloc::vec::Vec;
use wire::{
    Allocate, Bytes, Glimpse, Glimpsed, InodeNo, Op, Read, Replay, Request, ShardId, Status,
    Timestamp, Truncate, Wire, Write, Xid, reply_flag, request_flag,
};

/// Two clients with durable sessions at the data shard of a file.
struct Harness {
    server: TestServer,
    peers: Vec<Peer>,
    inode: InodeNo,
    shard: ShardId,
}

impl Harness {
    fn new(share: Share) -> Self {
        let mut server = TestServer::new(71);
        server.limits.share = share;
        Self::of(server)
    }

    fn of(mut server: TestServer) -> Self {
        server.start(1);
        let mut peers: Vec<Peer> =
            (1..=2).map(|client| Peer::new(&mut server, &HelloFields::new(client))).collect();
        let inode = peers[0].create(&mut server, "f");
        let shard = server.map.data_shard(inode, 0);
        let mut harness = Self { server, peers, inode, shard };
        for client in 0..2 {
            // Its first one, which waits for the record of its session.
            assert!(harness.write(client, 1, Some(0), b"0123456789").1.is_some());
        }
        harness.server.pass_ms(100);
        harness.server.run();
        harness
    }

    /// Without an offset: at the end. Runs until only time could change anything.
    fn write(
        &mut self,
        client: usize,
        slot: u16,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> (Request, Option<ReceivedReply>) {
        let inode = self.inode;
        let body = Write {
            inode,
            file_offset: offset.unwrap_or(0),
            append: offset.is_none(),
            clears: wire::ClearPrivileges::Nothing,
        };
        let peer = &mut self.peers[client];
        let mut head = peer.head(Op::Write, self.shard, slot);
        head.ack_xid = Xid(head.xid.0 - 1);
        peer.send(&mut self.server, &head, &body.to_bytes(), Some(bytes));
        self.server.run();
        (head, self.peers[client].replies(&mut self.server).pop())
    }

    fn read(&mut self, client: usize) -> Vec<u8> {
        // Without an access time: its record would be a batch of its own, and batches are counted
        // here.
        let body = Read { inode: self.inode, file_offset: 0, read_bytes: 1000, accesses: false };
        self.peers[client].ask_data(&mut self.server, (Op::Read, 0, self.inode), &body, None).bulk
    }

    fn write_time(&mut self, client: usize) -> Timestamp {
        let body = Glimpse { inode: self.inode };
        let got = self.peers[client].ask_data(
            &mut self.server,
            (Op::Glimpse, 0, self.inode),
            &body,
            None,
        );
        Glimpsed::decode_all(&got.body).unwrap().contents.write_time.unwrap()
    }

    fn held(&self) -> (u64, u64) {
        let counters = self.server.counters(0);
        (counters.reply_gating.deferred_own_count, counters.reply_gating.deferred_foreign_count)
    }
}

#[test]
fn a_write_is_answered_with_a_token_and_durable_soon() {
    let mut harness = Harness::new(Share::Write);
    let batch_count = harness.server.counters(0).batch_count;
    let (_, got) = harness.write(0, 2, Some(10), b"abc");
    let got = got.unwrap();
    assert_eq!(got.head.flags, reply_flag::TOKEN);
    assert_eq!(
        harness.server.counters(0).batch_count,
        batch_count,
        "nothing was made durable for it"
    );
    harness.server.pass_ms(50);
    harness.server.run();
    assert_eq!(harness.server.counters(0).batch_count, batch_count + 1);
    let ping = harness.write(0, 2, Some(13), b"d").1.unwrap();
    assert!(ping.head.committed >= got.head.transno);
    // A synchronous request makes it durable at once.
    let head = harness.peers[0].head(Op::Sync, harness.shard, 0);
    harness.peers[0].send(&mut harness.server, &head, &[], None);
    harness.server.run();
    let synced = harness.peers[0].replies(&mut harness.server).pop().unwrap();
    assert!(synced.head.committed >= ping.head.transno);
}

/// The first write of a session at a lane records it at all of the lane's data shards.
#[test]
fn a_first_write_at_a_further_shard_waits_for_no_record_of_its_session() {
    let mut harness = Harness::new(Share::Write);
    for name in ["g", "h", "i", "j", "k", "l"] {
        harness.inode = harness.peers[0].create(&mut harness.server, name);
        harness.shard = harness.server.map.data_shard(harness.inode, 0);
        let got = harness.write(0, 1, Some(0), b"0123").1.unwrap();
        assert_eq!(got.head.flags, reply_flag::TOKEN, "{:?}", harness.shard);
    }
}

/// An fsync of a new file: its name's record becomes durable with its contents'.
#[test]
fn names_and_contents_of_an_fsync_become_durable_with_one_flush_of_the_log() {
    let mut server = TestServer::new(71);
    server.limits.log_ms = 20;
    let mut harness = Harness::of(server);
    harness.inode = harness.peers[0].create(&mut harness.server, "g");
    harness.shard = harness.server.map.data_shard(harness.inode, 0);
    assert!(harness.write(0, 1, Some(0), b"0123").1.is_some());
    let batch_count = harness.server.counters(0).batch_count;
    for shard in [harness.inode.shard(), harness.shard] {
        let head = harness.peers[0].head(Op::Sync, shard, 0);
        harness.peers[0].send(&mut harness.server, &head, &[], None);
    }
    harness.server.run();
    assert_eq!(harness.peers[0].replies(&mut harness.server).len(), 2);
    assert_eq!(harness.server.counters(0).batch_count, batch_count + 1);
    // Another client's call for names waits for no contents.
    harness.inode = harness.peers[0].create(&mut harness.server, "h");
    harness.shard = harness.server.map.data_shard(harness.inode, 0);
    assert!(harness.write(0, 1, Some(0), b"0123").1.is_some());
    let head = harness.peers[1].head(Op::Sync, harness.inode.shard(), 0);
    harness.peers[1].send(&mut harness.server, &head, &[], None);
    harness.server.run();
    assert_eq!(harness.peers[1].replies(&mut harness.server).len(), 1);
    assert_eq!(harness.server.counters(0).batch_count, batch_count + 2);
}

#[test]
fn a_write_depends_on_overlapping_writes_of_other_clients() {
    let mut harness = Harness::new(Share::Write);
    assert_eq!(harness.write(0, 2, Some(0), b"aaaa").1.unwrap().head.flags, reply_flag::TOKEN);
    let before = harness.held();
    assert_eq!(harness.write(1, 2, Some(4), b"bbbb").1.unwrap().head.flags, reply_flag::TOKEN);
    assert_eq!(harness.held(), before, "side by side");
    let flags = harness.write(1, 3, Some(2), b"cccc").1.unwrap().head.flags;
    assert!(flags & reply_flag::GATED != 0);
    assert_eq!(harness.held().1, before.1 + 1);
}

#[test]
fn an_append_builds_on_what_made_the_file_longer() {
    let mut harness = Harness::new(Share::Write);
    harness.write(0, 2, Some(0), b"xx");
    let before = harness.held();
    assert_eq!(harness.write(1, 2, None, b"end").1.unwrap().head.flags, reply_flag::TOKEN);
    assert_eq!(harness.held(), before, "what lies before the end does not matter");
    let flags = harness.write(0, 3, None, b"END").1.unwrap().head.flags;
    assert!(flags & reply_flag::GATED != 0);
    assert_eq!(harness.held().1, before.1 + 1);
}

#[test]
fn a_truncation_is_durable_before_it_is_answered() {
    let mut harness = Harness::new(Share::Write);
    harness.write(0, 2, Some(10), b"tail");
    let body = Truncate { inode: harness.inode, size_bytes: 3 };
    let got = harness.peers[0].ask_data(
        &mut harness.server,
        (Op::Truncate, 3, harness.inode),
        &body,
        None,
    );
    assert_eq!(got.head.flags, reply_flag::GATED);
    assert!(got.head.committed >= got.head.transno);
}

/// A hole is durable before its reply and punched once: a late resend does not erase a later write.
#[test]
fn a_hole_is_durable_before_it_is_answered_and_made_once() {
    let mut harness = Harness::new(Share::Write);
    harness.write(0, 2, Some(0), b"0123456789");
    let (allocation, keep_size) = (wire::Allocation::Punch, true);
    let body = Allocate {
        inode: harness.inode,
        file_offset: 2,
        range_bytes: 4,
        allocation,
        keep_size,
        clears: wire::ClearPrivileges::Nothing,
    };
    let asked = (Op::Allocate, 3, harness.inode);
    let got = harness.peers[0].ask_data(&mut harness.server, asked, &body, None);
    assert_eq!(got.head.flags, reply_flag::GATED);
    assert!(got.head.committed >= got.head.transno);
    harness.write(1, 4, Some(3), b"new");
    let head = Request {
        flags: request_flag::RESENT,
        xid: got.head.xid,
        ..harness.peers[0].head(asked.0, harness.shard, asked.1)
    };
    harness.peers[0].send(&mut harness.server, &head, &body.to_bytes(), None);
    harness.server.run();
    let again = harness.peers[0].replies(&mut harness.server);
    assert_eq!(again[0].head.transno, got.head.transno);
    assert_eq!(harness.read(1), b"01\0new6789");
}

/// Its client has received the reply to the one before, at a lane that has not said so.
#[test]
fn a_write_behind_depends_on_no_earlier_one_of_its_client() {
    for flags in [0, request_flag::BEHIND] {
        let mut harness = Harness::new(Share::Write);
        let held = harness.server.counters(0).deferred_count;
        let (inode, clears) = (harness.inode, wire::ClearPrivileges::Nothing);
        let ack_xid = harness.peers[0].xid;
        for (slot, file_offset) in [(2, 10), (3, 14)] {
            let body = Write { inode, file_offset, append: true, clears };
            let peer = &mut harness.peers[0];
            let head = peer.head(Op::Write, harness.shard, slot);
            let head = Request { ack_xid: Xid(ack_xid), flags, ..head };
            peer.send(&mut harness.server, &head, &body.to_bytes(), Some(b"more"));
            harness.server.run();
            let got = harness.peers[0].replies(&mut harness.server).pop().unwrap();
            assert_eq!(got.head.status, Status::Ok);
        }
        let held = harness.server.counters(0).deferred_count - held;
        assert_eq!(held, u64::from(flags == 0));
        assert_eq!(harness.read(1), b"0123456789moremore");
    }
}

#[test]
fn strict_readers_see_only_what_is_durable() {
    for share in [Share::Write, Share::Strict] {
        let mut harness = Harness::new(share);
        harness.write(0, 2, Some(0), b"new");
        let batch_count = harness.server.counters(0).batch_count;
        assert!(harness.read(1).starts_with(b"new3"));
        let waited = harness.server.counters(0).batch_count > batch_count;
        assert_eq!(waited, share == Share::Strict);
        // The same of size and time.
        harness.write(0, 3, Some(20), b"end");
        let batch_count = harness.server.counters(0).batch_count;
        harness.write_time(0);
        assert_eq!(harness.server.counters(0).batch_count, batch_count, "one's own");
        harness.write_time(1);
        let waited = harness.server.counters(0).batch_count > batch_count;
        assert_eq!(waited, share == Share::Strict);
        assert!(harness.read(0).starts_with(b"new3"), "one's own");
    }
}

/// The server loses all that was not durable; the writes are replayed in place and in order. Other
/// bytes than the signed ones are refused.
#[test]
fn lost_writes_are_replayed_in_place() {
    for other in [false, true] {
        let mut harness = Harness::new(Share::Write);
        let mut retained = Vec::new();
        for (slot, offset, bytes) in
            [(2, Some(2), &b"AAAA"[..]), (3, Some(4), b"BBBB"), (4, None, b"<end>")]
        {
            let (head, got) = harness.write(0, slot, offset, bytes);
            retained.push((head, got.unwrap(), bytes.to_vec()));
        }
        harness.server.crash_losing_all();
        harness.server.start(1);
        harness.server.run();
        let client = HelloFields { conn_epoch: 2, ..HelloFields::new(1) };
        let mut peer = Peer::new(&mut harness.server, &client);
        peer.xid = 1 << 40;
        for (head, got, bytes) in &retained {
            let flags = request_flag::REPLAY;
            let transno = got.head.transno;
            let head = Request { flags, transno, conn_epoch: 2, ..*head };
            let body = Replay { reply: Bytes(&got.body), token: Bytes(&got.token) }.to_bytes();
            let bytes = if other { b"other".to_vec() } else { bytes.clone() };
            peer.send(&mut harness.server, &head, &body, Some(&bytes));
        }
        harness.server.run();
        let statuses: Vec<Status> =
            peer.replies(&mut harness.server).iter().map(|got| got.head.status).collect();
        // A client with other bytes is refused at the first.
        let expected: &[Status] = if other { &[] } else { &[Status::Ok; 3] };
        assert_eq!(statuses, expected);
        if !other {
            for shard in [ShardId::meta(0), harness.shard] {
                peer.come_back(&mut harness.server, shard);
            }
            harness.server.pass_ms(10_000);
            harness.server.run();
            harness.peers[0] = peer;
            assert_eq!(harness.read(0), b"01AABBBB89<end>");
            assert_eq!(harness.server.counters(0).recovery.replayed_count, 3);
        }
    }
}

/// The server crashes before a write is durable, again and again: the file's time stays that of the
/// write, whatever happens to the object's file.
#[test]
fn the_time_of_a_write_outlives_crashes() {
    for is_bounded in [false, true] {
        let mut server = TestServer::new(71);
        if is_bounded {
            server.bound_names(1 << 20);
        }
        let mut harness = Harness::of(server);
        let (head, got) = harness.write(0, 2, Some(2), b"AAAA");
        let got = got.unwrap();
        let write_time = harness.write_time(0);
        harness.server.crash_losing_all();
        harness.server.pass_ms(1000);
        harness.server.start(1);
        harness.server.run();
        let client = HelloFields { conn_epoch: 2, ..HelloFields::new(1) };
        let mut peer = Peer::new(&mut harness.server, &client);
        peer.xid = 1 << 40;
        let (flags, transno) = (request_flag::REPLAY, got.head.transno);
        let head = Request { flags, transno, conn_epoch: 2, ..head };
        let body = Replay { reply: Bytes(&got.body), token: Bytes(&got.token) }.to_bytes();
        peer.send(&mut harness.server, &head, &body, Some(b"AAAA"));
        harness.server.run();
        assert_eq!(peer.replies(&mut harness.server).pop().unwrap().head.status, Status::Ok);
        for shard in [ShardId::meta(0), harness.shard] {
            peer.come_back(&mut harness.server, shard);
        }
        harness.server.pass_ms(10_000);
        harness.server.run();
        harness.peers[0] = peer;
        assert_eq!(harness.read(0), b"01AAAA6789");
        assert_eq!(harness.write_time(0), write_time, "after the replay");
        for number in 3..6 {
            harness.server.crash();
            harness.server.start(1);
            harness.server.run();
            harness.server.pass_ms(10_000);
            harness.server.run();
            harness.peers[0] = Peer::new(&mut harness.server, &HelloFields::new(number));
            assert_eq!(harness.write_time(0), write_time, "after crash {number}");
            assert_eq!(harness.read(0), b"01AAAA6789");
        }
    }
}
