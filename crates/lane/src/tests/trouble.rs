//! Full disks, failing disks, clients that leave, files that are destroyed.

use super::peer::{HelloFields, Peer, ROOT, create, name};
use crate::test_server::{Kind, TestServer};
use interface::Errno;
use wire::counters::Metric;
use wire::{
    Getattr, Glimpse, Glimpsed, Handle, HandleId, InodeNo, Op, OpenFor, Read, Status, Truncate,
    Unlink, Wire, Write, Written, reply_flag,
};

fn unlink(text: &str) -> Unlink<'_> {
    Unlink { caller: ROOT, parent: InodeNo::ROOT, name: name(text), behind: None }
}

fn write(peer: &mut Peer, server: &mut TestServer, inode: InodeNo, bytes: &[u8]) -> Status {
    let body =
        Write { inode, file_offset: 0, append: true, clears: wire::ClearPrivileges::Nothing };
    peer.ask_data(server, (Op::Write, 1, inode), &body, Some(bytes)).head.status
}

fn read(peer: &mut Peer, server: &mut TestServer, inode: InodeNo) -> alloc::vec::Vec<u8> {
    let body = Read { inode, file_offset: 0, read_bytes: 100_000, accesses: true };
    let got = peer.ask_data(server, (Op::Read, 0, inode), &body, None);
    assert_eq!(got.head.status, Status::Ok);
    got.bulk
}

#[test]
fn a_read_returns_the_written_bytes() {
    let mut server = TestServer::started(20, 2);
    let fields = |lane| HelloFields {
        server_lane: wire::LaneId(lane),
        client_lane: wire::LaneId(lane),
        ..HelloFields::new(1)
    };
    let mut peers = [Peer::new(&mut server, &fields(0)), Peer::new(&mut server, &fields(1))];
    let inode = peers[0].create(&mut server, "a");
    let data = &mut peers[usize::from(server.map.lane(server.map.data_shard(inode, 0)).0)];
    let body =
        Write { inode, file_offset: 3, append: false, clears: wire::ClearPrivileges::Nothing };
    let got = data.ask_data(&mut server, (Op::Write, 1, inode), &body, Some(b"hello"));
    assert_eq!(got.head.status, Status::Ok);
    let written = Written::decode_all(&got.body).unwrap();
    assert_eq!(written, Written { file_offset: 3, written_bytes: 5 });
    assert_eq!(read(data, &mut server, inode), b"\0\0\0hello");
    let got = data.ask_data(&mut server, (Op::Glimpse, 0, inode), &Glimpse { inode }, None);
    let contents = Glimpsed::decode_all(&got.body).unwrap().contents;
    assert_eq!((contents.size_bytes, contents.allocated_bytes), (8, 4096));
    assert!(contents.write_time.is_some());
    let body = Truncate { inode, size_bytes: 4 };
    let got = data.ask_data(&mut server, (Op::Truncate, 1, inode), &body, None);
    assert_eq!(got.head.status, Status::Ok);
    assert_eq!(read(data, &mut server, inode), b"\0\0\0h");
}

#[test]
fn a_broken_log_fences_the_lane() {
    let mut server = TestServer::started(21, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "before");
    server.failing.push((Kind::Log, Errno(5)));
    let flags = wire::request_flag::SYNC;
    for slot in 1..=2 {
        let text = alloc::format!("f{slot}");
        let head = wire::Request { flags, ..peer.head(Op::Create, InodeNo::ROOT.shard(), slot) };
        peer.send(&mut server, &head, &create(&text).to_bytes(), None);
    }
    let head = peer.head(Op::Sync, InodeNo::ROOT.shard(), 0);
    peer.send(&mut server, &head, &[], None);
    server.run();
    let replies = peer.replies(&mut server);
    assert_eq!(replies.len(), 3, "in the failed batch, behind it, and its dependent");
    assert!(replies.iter().all(|got| got.head.status == Status::Io));
    assert!(server.lines.last().unwrap().contains("log cannot be written"));
    assert_eq!(peer.ask(&mut server, Op::Create, 1, &create("b")).head.status, Status::ReadOnly);
    assert_eq!(write(&mut peer, &mut server, inode, b"bytes"), Status::ReadOnly);
    assert_eq!(peer.ask(&mut server, Op::Sync, 0, &[0_u8; 0]).head.status, Status::Io);
    let got = peer.ask(&mut server, Op::Getattr, 0, &Getattr { inode });
    assert_eq!(got.head.status, Status::Ok, "reading goes on");
    assert_eq!(read(&mut peer, &mut server, inode), b"");
    server.event(0, interface::Event::Stop);
    server.run();
    assert!(server.is_stopped());
}

/// A resend has no token, and the change will never be durable.
#[test]
fn a_reply_lost_to_a_broken_log_is_not_repeated() {
    let mut server = TestServer::started(25, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "before");
    let shard = server.map.data_shard(inode, 0);
    assert_eq!(write(&mut peer, &mut server, inode, b"before"), Status::Ok);
    // It is durable, or the next one would wait for its acknowledgement.
    server.pass_ms(100);
    server.run();
    server.failing.push((Kind::Log, Errno(5)));
    let asked = [peer.head(Op::Create, InodeNo::ROOT.shard(), 1), peer.head(Op::Write, shard, 2)];
    let bytes = Some(&b"bytes"[..]);
    let body =
        Write { inode, file_offset: 0, append: true, clears: wire::ClearPrivileges::Nothing }
            .to_bytes();
    peer.send(&mut server, &asked[0], &create("a").to_bytes(), None);
    peer.send(&mut server, &asked[1], &body, bytes);
    server.run_turns_only(0);
    server.land_objects(0);
    server.land_log(0);
    server.run();
    let replies = peer.replies(&mut server);
    assert!(replies.iter().all(|got| got.head.status == Status::Ok && !got.token.is_empty()));
    assert_eq!(replies.len(), 2);
    assert!(server.lines.last().unwrap().contains("log cannot be written"));
    let again = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    let resent = asked.map(|head| wire::Request {
        flags: wire::request_flag::RESENT,
        conn_epoch: 2,
        ..head
    });
    again.send(&mut server, &resent[0], &create("a").to_bytes(), None);
    again.send(&mut server, &resent[1], &body, bytes);
    server.run();
    let replies = again.replies(&mut server);
    assert_eq!(replies.len(), 2);
    assert!(replies.iter().all(|got| got.head.status == Status::Io));
}

/// A sync of an object fails while a batch is in flight: the batch's outcome changes nothing.
#[test]
fn a_batch_that_ends_behind_the_fence_changes_nothing() {
    for lost in [false, true] {
        let mut server = TestServer::new(26);
        server.limits.logged_bytes_max = 0;
        server.start(1);
        let mut peer = Peer::new(&mut server, &HelloFields::new(1));
        let inode = peer.create(&mut server, "a");
        assert_eq!(write(&mut peer, &mut server, inode, b"before"), Status::Ok);
        let flags = wire::request_flag::SYNC;
        let created = peer.head(Op::Create, InodeNo::ROOT.shard(), 2);
        let created = wire::Request { flags, ..created };
        peer.send(&mut server, &created, &create("b").to_bytes(), None);
        server.run_turns_only(0);
        server.failing.push((Kind::Sync, Errno(5)));
        let body =
            Write { inode, file_offset: 0, append: true, clears: wire::ClearPrivileges::Nothing }
                .to_bytes();
        let written = peer.head(Op::Write, server.map.data_shard(inode, 0), 1);
        let written = wire::Request { flags, ..written };
        peer.send(&mut server, &written, &body, Some(b"bytes"));
        server.run_turns_only(0);
        server.land_objects(0);
        assert!(server.lines.last().unwrap().contains("contents cannot be made durable"));
        let line_count = server.lines.len();
        if lost {
            server.failing.push((Kind::Log, Errno(5)));
        }
        server.land_log(0);
        server.run();
        let replies = peer.replies(&mut server);
        assert_eq!(replies.len(), 2);
        assert!(replies.iter().all(|got| got.head.status == Status::Io));
        assert_eq!(server.lines.len(), line_count, "the fence is logged once");
        assert_eq!(peer.ask(&mut server, Op::Sync, 0, &[0_u8; 0]).head.status, Status::Io);
    }
}

#[test]
fn a_full_log_refuses_what_takes_space_first_and_recovers() {
    let mut server = TestServer::started(22, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "a");
    assert_eq!(write(&mut peer, &mut server, inode, b"one"), Status::Ok);
    server.set_space((1 << 20) - 1);
    server.run();
    assert_eq!(peer.ask(&mut server, Op::Create, 1, &create("b")).head.status, Status::NoSpace);
    server.pass_ms(7);
    assert_eq!(write(&mut peer, &mut server, inode, b"two"), Status::NoSpace);
    let [refused, full_us, disk] = full_log(&server);
    assert!(refused == 2 && full_us >= 7000 && disk == 1, "{refused} {full_us} {disk}");
    let got = peer.ask(&mut server, Op::Getattr, 0, &Getattr { inode });
    assert_eq!(got.head.status, Status::Ok, "reading goes on");
    assert_eq!(peer.ask(&mut server, Op::Unlink, 1, &unlink("a")).head.status, Status::Ok);
    server.set_space(1000);
    server.run();
    assert_eq!(peer.ask(&mut server, Op::Unlink, 1, &unlink("c")).head.status, Status::NoSpace);
    server.set_space(1 << 30);
    server.run();
    assert_eq!(full_log(&server), [3, 0, 0]);
    assert_eq!(peer.ask(&mut server, Op::Create, 1, &create("b")).head.status, Status::Ok);
}

/// How many changes the log had no space for, since when it has none, and whether the disk has none.
fn full_log(server: &TestServer) -> [u64; 3] {
    let counts = server.lane(0).refusal_counts(server.now.mono);
    [Metric::LogRefused, Metric::LogFullAge, Metric::DiskFull]
        .map(|metric| counts.iter().find(|(at, _)| *at == metric).unwrap().1)
}

#[test]
fn a_log_that_awaits_a_checkpoint_asks_for_a_resend_and_leaves_the_slot() {
    let mut server = TestServer::new(24);
    server.limits.logged_bytes_max = 0;
    server.start(1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    server.awaits_checkpoint = true;
    server.set_space(1000);
    server.run();
    let got = peer.ask(&mut server, Op::Create, 1, &create("b")).head;
    assert_eq!(got.status, Status::RetryLater);
    assert!(got.retry_after_ms > 0);
    assert_eq!(full_log(&server)[2], 0, "the disk has space");
    server.set_space(1 << 30);
    server.run();
    assert_eq!(peer.ask(&mut server, Op::Create, 1, &create("b")).head.status, Status::Ok);
}

/// A bug: ENOSPC on an empty disk, when a client resent a request after a restart while the log
/// awaited a checkpoint.
#[test]
fn a_resend_to_a_log_that_awaits_a_checkpoint_takes_effect_once() {
    let mut server = TestServer::started(25, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "a");
    let made = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    let written = peer.head(Op::Write, server.map.data_shard(inode, 0), 2);
    let body =
        Write { inode, file_offset: 0, append: true, clears: wire::ClearPrivileges::Nothing }
            .to_bytes();
    let body = body.as_slice();
    let again = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    let resent = [made, written].map(|head| wire::Request {
        flags: wire::request_flag::RESENT,
        conn_epoch: 2,
        ..head
    });
    server.awaits_checkpoint = true;
    server.set_space(1000);
    server.run();
    for (round, status) in
        [Status::RetryLater, Status::RetryLater, Status::Ok, Status::Ok].into_iter().enumerate()
    {
        if round == 2 {
            server.set_space(1 << 30);
            server.run();
        }
        again.send(&mut server, &resent[0], &create("b").to_bytes(), None);
        again.send(&mut server, &resent[1], body, Some(b"bytes"));
        server.run();
        let replies = again.replies(&mut server);
        assert_eq!(replies.len(), 2);
        for got in replies {
            assert_eq!(got.head.status, status);
            let from_slot = got.head.flags & wire::reply_flag::FROM_SLOT != 0;
            assert_eq!(from_slot, round == 3, "once it was executed, it is only answered");
        }
        server.pass_ms(100);
        server.run();
    }
}

#[test]
fn a_growing_log_never_exceeds_its_reserve() {
    // The test server asserts it; here many requests use up the reserve at a time.
    let mut server = TestServer::started(23, 1);
    server.set_space(3 << 20);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let value = [7; 60_000];
    let mut statuses = alloc::vec::Vec::new();
    for _ in 0..8 {
        for slot in 1..=16 {
            let head = peer.head(Op::Setxattr, InodeNo::ROOT.shard(), slot);
            let body = wire::Setxattr {
                caller: ROOT,
                inode: InodeNo::ROOT,
                name: wire::Bytes(b"user.a"),
                value: wire::Bytes(&value),
                flags: 0,
            };
            peer.send(&mut server, &head, &body.to_bytes(), None);
        }
        server.run();
        statuses.extend(peer.replies(&mut server).iter().map(|got| got.head.status));
    }
    assert_eq!(statuses.len(), 128);
    assert!(statuses.contains(&Status::Ok));
    assert_eq!(statuses.last(), Some(&Status::NoSpace));
}

#[test]
fn failed_writes_are_reported_and_not_recorded() {
    let mut server = TestServer::new(24);
    server.limits.logged_bytes_max = 0;
    server.start(1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "a");
    assert_eq!(write(&mut peer, &mut server, inode, b"one"), Status::Ok);
    server.failing.push((Kind::Write, Errno(28)));
    assert_eq!(write(&mut peer, &mut server, inode, b"two"), Status::NoSpace);
    assert_eq!(write(&mut peer, &mut server, inode, b"three"), Status::Ok);
    let bytes = read(&mut peer, &mut server, inode);
    assert!(bytes.starts_with(b"one"));
    assert!(bytes.ends_with(b"three"));
    server.pass_ms(50);
    server.run();
    server.crash();
    server.start(1);
    server.run();
    let mut peer = Peer::new(&mut server, &HelloFields::new(2));
    server.pass_ms(10_000);
    server.run();
    assert_eq!(read(&mut peer, &mut server, inode), bytes);
}

/// Written contents may be lost, and nothing behind them can be recorded: no change is
/// acknowledged.
#[test]
fn contents_that_cannot_be_made_durable_fence_the_lane() {
    let mut server = TestServer::new(24);
    server.limits.logged_bytes_max = 0;
    server.start(1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "a");
    assert_eq!(write(&mut peer, &mut server, inode, b"one"), Status::Ok);
    server.failing.push((Kind::Sync, Errno(5)));
    assert_eq!(write(&mut peer, &mut server, inode, b"two"), Status::Ok, "with a token");
    let head = peer.head(Op::Sync, server.map.data_shard(inode, 0), 0);
    peer.send(&mut server, &head, &[], None);
    server.run();
    assert_eq!(peer.replies(&mut server)[0].head.status, Status::Io);
    assert!(server.lines.last().unwrap().contains("contents cannot be made durable"));
    assert_eq!(write(&mut peer, &mut server, inode, b"three"), Status::ReadOnly);
    assert!(read(&mut peer, &mut server, inode).starts_with(b"one"));
}

/// Under strict sharing, a read behind a fence neither shows a change that may be lost nor waits
/// for it.
#[test]
fn a_strict_read_behind_a_fence_refuses_changes_that_may_be_lost() {
    let mut server = TestServer::new(29);
    server.limits.share = crate::Share::Strict;
    server.start(1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "a");
    server.failing.push((Kind::Log, Errno(5)));
    let created = peer.ask(&mut server, Op::Create, 1, &create("b"));
    assert!(created.head.status == Status::Ok && !created.token.is_empty());
    assert!(server.lines.last().unwrap().contains("log cannot be written"));
    let mut other = Peer::new(&mut server, &HelloFields::new(2));
    let lookup = |text| wire::Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name(text) };
    let getattr = Getattr { inode };
    assert_eq!(other.ask(&mut server, Op::Getattr, 0, &getattr).head.status, Status::Ok);
    assert_eq!(other.ask(&mut server, Op::Lookup, 0, &lookup("b")).head.status, Status::Io);
}

/// A failed read depends on nothing, and reports its failure.
#[test]
fn a_failed_strict_read_does_not_look_like_an_empty_file() {
    let mut server = TestServer::new(31);
    server.limits.share = crate::Share::Strict;
    server.start(1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "a");
    assert_eq!(write(&mut peer, &mut server, inode, b"one"), Status::Ok);
    assert_eq!(write(&mut peer, &mut server, inode, b"two"), Status::Ok, "with a token");
    let mut other = Peer::new(&mut server, &HelloFields::new(2));
    server.failing.push((Kind::Read, Errno(5)));
    let body = Read { inode, file_offset: 0, read_bytes: 100, accesses: true };
    let got = other.ask_data(&mut server, (Op::Read, 0, inode), &body, None);
    assert_eq!(got.head.status, Status::Io);
}

/// A change that cannot be replayed while the disk fails is replayed at a later boot.
#[test]
fn a_client_retains_a_replay_that_cannot_be_written() {
    let mut server = TestServer::started(30, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let inode = peer.create(&mut server, "a");
    let shard = server.map.data_shard(inode, 0);
    assert_eq!(write(&mut peer, &mut server, inode, b"warm"), Status::Ok);
    server.pass_ms(100);
    server.run();
    let head = peer.head(Op::Write, shard, 2);
    let body =
        Write { inode, file_offset: 4, append: false, clears: wire::ClearPrivileges::Nothing }
            .to_bytes();
    peer.send(&mut server, &head, &body, Some(b"lost"));
    server.run_turns_only(0);
    server.land_objects(0);
    server.run_turns_only(0);
    let got = peer.replies(&mut server).pop().unwrap();
    assert!(!got.token.is_empty());
    for fails in [true, false] {
        server.crash_losing_all();
        if fails {
            server.failing.push((Kind::Write, Errno(5)));
        }
        server.start(1);
        let epoch = if fails { 2 } else { 3 };
        peer = Peer::new(&mut server, &HelloFields { conn_epoch: epoch, ..HelloFields::new(1) });
        let replay = wire::Request {
            flags: wire::request_flag::REPLAY,
            conn_epoch: epoch,
            transno: got.head.transno,
            ..head
        };
        let (reply, token) = (wire::Bytes(&got.body), wire::Bytes(&got.token));
        let redo = wire::Replay { reply, token }.to_bytes();
        peer.send(&mut server, &replay, &redo, Some(b"lost"));
        peer.xid = 1 << (40 + epoch);
        for shard in server.shard_counts.shards() {
            let done = peer.head(Op::ReplayDone, shard, 0);
            peer.send(&mut server, &done, &wire::ReplayDone { reopen_count: 0 }.to_bytes(), None);
        }
        server.run();
        let replies = peer.replies(&mut server);
        let replayed = replies.iter().find(|got| got.head.op == Op::Write).unwrap().head;
        assert_eq!(replayed.status, Status::Ok);
        assert_eq!(server.counters(0).recovery.rejected_count, 0);
        if fails {
            assert!(replayed.committed < got.head.transno, "its client keeps it");
            let body = Read { inode, file_offset: 0, read_bytes: 100, accesses: true };
            let seen = peer.ask_data(&mut server, (Op::Read, 0, inode), &body, None);
            assert_eq!(seen.head.status, Status::Io, "no client sees the file without it");
        } else {
            assert_eq!(read(&mut peer, &mut server, inode), b"warmlost");
        }
    }
}

#[test]
fn unlinked_files_are_destroyed_everywhere() {
    for lane_count in 1..=3 {
        let mut server = TestServer::started(25, lane_count);
        let lanes = 0..lane_count;
        let mut peers: alloc::vec::Vec<Peer> = lanes
            .map(|lane| {
                let lane = wire::LaneId(lane);
                let fields =
                    HelloFields { server_lane: lane, client_lane: lane, ..HelloFields::new(1) };
                Peer::new(&mut server, &fields)
            })
            .collect();
        for text in ["a", "b", "c", "d", "e"] {
            let inode = peers[0].create(&mut server, text);
            let lane = usize::from(server.map.lane(server.map.data_shard(inode, 0)).0);
            assert_eq!(write(&mut peers[lane], &mut server, inode, b"bytes"), Status::Ok);
        }
        assert_eq!(server.object_count(), 5);
        server.pass_ms(100);
        server.run();
        server.failing.push((Kind::Remove, Errno(5)));
        for text in ["a", "b", "c", "d", "e"] {
            let got = peers[0].ask(&mut server, Op::Unlink, 1, &unlink(text));
            assert_eq!(got.head.status, Status::Ok);
        }
        assert_eq!(server.object_count(), 1, "one removal failed");
        server.pass_ms(10_100);
        server.run();
        assert_eq!(server.object_count(), 0, "and was tried again");
        assert_eq!(server.lane(0).inode_count(), 1, "the root is left");
        server.crash();
        server.start(1);
        assert_eq!(server.lane(0).inode_count(), 1, "also after a restart");
    }
}

const HELD: Handle = Handle { id: HandleId(1), open_for: OpenFor::Write };

/// A client with an open, unlinked file of a few bytes.
fn hold_without_name(server: &mut TestServer) -> (Peer, InodeNo) {
    let mut peer = Peer::new(server, &HelloFields::new(1));
    let opening = wire::Create { handle: Some(HELD), ..create("a") };
    let got = peer.ask(server, Op::Create, 1, &opening);
    let inode = wire::Created::decode_all(&got.body).unwrap().attr.inode;
    assert_eq!(write(&mut peer, server, inode, b"bytes"), Status::Ok);
    server.pass_ms(100);
    server.run();
    assert_eq!(peer.ask(server, Op::Unlink, 1, &unlink("a")).head.status, Status::Ok);
    (peer, inode)
}

/// The server crashes and starts, and client 1 reconnects.
fn restart(server: &mut TestServer) -> Peer {
    server.crash();
    server.start(1);
    server.run();
    let mut peer = Peer::new(server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    peer.xid += 1000;
    peer
}

#[test]
fn an_open_file_outlives_its_name_until_its_client_expires() {
    let mut server = TestServer::started(26, 1);
    let (peer, _) = hold_without_name(&mut server);
    assert_eq!(server.object_count(), 1, "it is open");
    server.cut(peer.conn);
    server.run();
    server.pass_ms(60_100);
    server.run();
    assert_eq!(server.object_count(), 0);
}

#[test]
fn an_open_file_without_a_name_survives_a_restart_if_it_is_reopened() {
    for reopened in [true, false] {
        let mut server = TestServer::started(27, 1);
        let inode = hold_without_name(&mut server).1;
        let mut peer = restart(&mut server);
        if reopened {
            peer.come_back(&mut server, InodeNo::ROOT.shard());
            let got = peer.ask(&mut server, Op::Reopen, 1, &wire::Reopen { inode, handle: HELD });
            assert_eq!(got.head.status, Status::Ok);
        }
        assert_eq!(server.object_count(), 1, "it may be opened again");
        if reopened {
            let shard = server.map.data_shard(inode, 0);
            peer.come_back(&mut server, shard);
        }
        server.pass_ms(10_000);
        server.run();
        assert_eq!(server.object_count(), usize::from(reopened));
        if reopened {
            let close = wire::Close { inode, handle: HELD.id };
            assert_eq!(peer.ask(&mut server, Op::Close, 1, &close).head.status, Status::Ok);
            assert_eq!(server.object_count(), 0);
        }
    }
}

/// Recovery does not end before announced handles are reopened, unless that takes too long.
#[test]
fn recovery_waits_for_announced_handles() {
    for comes in [true, false] {
        let mut server = TestServer::started(29, 1);
        let inode = hold_without_name(&mut server).1;
        let mut peer = restart(&mut server);
        let shard = server.map.data_shard(inode, 0);
        peer.come_back(&mut server, shard);
        let head = peer.head(Op::ReplayDone, InodeNo::ROOT.shard(), 0);
        let done = wire::ReplayDone { reopen_count: 1 }.to_bytes();
        peer.send(&mut server, &head, &done, None);
        server.run();
        assert_eq!(server.object_count(), 1, "everybody is back, and one handle is missing");
        if comes {
            let head = peer.head(Op::Reopen, InodeNo::ROOT.shard(), 1);
            peer.send(&mut server, &head, &wire::Reopen { inode, handle: HELD }.to_bytes(), None);
        } else {
            server.pass_ms(10_000);
        }
        server.run();
        assert_eq!(peer.replies(&mut server).last().unwrap().head.status, Status::Ok);
        assert_eq!(server.object_count(), usize::from(comes));
        let got = peer.ask(&mut server, Op::Getattr, 0, &Getattr { inode });
        assert_eq!(got.head.status, if comes { Status::Ok } else { Status::Stale });
    }
}

/// The connection of a reopened handle ends while it waits for the replays of its client's other lane.
#[test]
fn recovery_waits_for_a_handle_that_is_reopened_again() {
    let mut server = TestServer::started(31, 1);
    let inode = hold_without_name(&mut server).1;
    let other = |conn_epoch| HelloFields {
        conn_epoch,
        client_lane: wire::LaneId(1),
        ..HelloFields::new(1)
    };
    Peer::new(&mut server, &other(1)).create(&mut server, "b");
    server.pass_ms(100);
    server.run();
    let mut peer = restart(&mut server);
    let (meta, data) = (InodeNo::ROOT.shard(), server.map.data_shard(inode, 0));
    peer.come_back(&mut server, data);
    let head = peer.head(Op::ReplayDone, meta, 0);
    peer.send(&mut server, &head, &wire::ReplayDone { reopen_count: 1 }.to_bytes(), None);
    let reopen = wire::Reopen { inode, handle: HELD }.to_bytes();
    let head = peer.head(Op::Reopen, meta, 1);
    peer.send(&mut server, &head, &reopen, None);
    server.run();
    server.cut(peer.conn);
    server.run();
    let mut other = Peer::new(&mut server, &other(2));
    other.xid += 1000;
    other.come_back(&mut server, meta);
    server.run();
    assert_eq!(server.object_count(), 1, "every lane is back, and a handle is missing");
    let again = Peer::new(&mut server, &HelloFields { conn_epoch: 3, ..HelloFields::new(1) });
    let head = wire::Request { conn_epoch: again.conn_epoch, ..head };
    again.send(&mut server, &head, &reopen, None);
    server.run();
    assert_eq!(again.replies(&mut server).last().unwrap().head.status, Status::Ok);
    assert_eq!(server.object_count(), 1, "its file has no name, and is open");
}

/// The server learns of another map while a reopened handle waits for the end of the replays.
#[test]
fn a_handle_that_was_reopened_is_kept_whatever_map_comes() {
    let mut server = TestServer::started(30, 1);
    let inode = hold_without_name(&mut server).1;
    let mut peer = restart(&mut server);
    let (meta, data) = (InodeNo::ROOT.shard(), server.map.data_shard(inode, 0));
    peer.come_back(&mut server, data);
    let head = peer.head(Op::Reopen, meta, 1);
    peer.send(&mut server, &head, &wire::Reopen { inode, handle: HELD }.to_bytes(), None);
    server.run();
    let before = server.map.clone();
    let (epoch, shards) = (wire::MapEpoch(before.epoch().0 + 1), before.shard_counts());
    let newer = wire::Map::new(epoch, shards, before.servers().into(), before.runs().into());
    server.set_map(&newer.unwrap());
    server.run();
    assert!(peer.replies(&mut server).is_empty(), "it waits");
    let head = peer.head(Op::ReplayDone, meta, 0);
    peer.send(&mut server, &head, &wire::ReplayDone { reopen_count: 1 }.to_bytes(), None);
    server.run();
    let replies = peer.replies(&mut server);
    let reopened = replies.iter().find(|reply| reply.head.op == Op::Reopen).unwrap();
    assert_eq!(reopened.head.status, Status::Ok);
    assert_eq!(server.object_count(), 1, "its file has no name, and is open");
}

#[test]
fn space_and_counters_are_reported() {
    let mut server = TestServer::started(28, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    peer.create(&mut server, "a");
    let got = peer.ask(&mut server, Op::Statfs, 0, &wire::Statfs { inode: InodeNo::ROOT });
    let space = wire::Space::decode_all(&got.body).unwrap();
    assert_eq!(space.available_bytes, 1 << 38);
    let got = peer.ask(&mut server, Op::Stats, 0, &[0_u8; 0]);
    let stats = wire::Stats::decode_all(&got.body).unwrap();
    assert_eq!((stats.change_count, stats.batch_count, stats.deferred_count), (1, 1, 1));
    assert_eq!(stats.inode_count, space.inode_count);
    assert_eq!(stats, wire::Stats { request_count: stats.request_count, ..server.counters(0) });
    assert_eq!((stats.turn_count, stats.cpu_ns, stats.spin_hit_count), (104, 101, 110));
    assert_eq!((stats.voluntary_switch_count, stats.involuntary_switch_count), (102, 103));
    assert_eq!((stats.syscall_count, stats.clock_read_count), (105, 106));
    let objects = stats.objects;
    assert_eq!((objects.handed_count, objects.thread_count), (112, 113));
    assert_eq!((objects.under_way_max, objects.under_way_one_max), (114, 115));
    assert_eq!((stats.message_out_count, stats.send_count, stats.spin_count), (107, 108, 109));
    assert_eq!(peer.ask(&mut server, Op::Ping, 0, &[0_u8; 0]).head.status, Status::Ok);
}

#[test]
fn requests_during_an_append_share_the_next_batch() {
    let mut server = TestServer::started(29, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    for slot in 1..=16 {
        let head = peer.head(Op::Create, InodeNo::ROOT.shard(), slot);
        let text = alloc::format!("f{slot}");
        peer.send(&mut server, &head, &create(&text).to_bytes(), None);
    }
    server.run_turns_only(0);
    server.run();
    let replies = peer.replies(&mut server);
    assert_eq!(replies.len(), 16);
    assert!(replies.iter().all(|got| got.head.flags & reply_flag::GATED != 0));
    assert_eq!(server.counters(0).batch_count, 2, "one was in flight, the rest went together");
}
