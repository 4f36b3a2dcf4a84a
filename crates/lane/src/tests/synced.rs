//! Small writes that are synced: one batch of the log, and no sync of their file.

use super::peer::{HelloFields, Peer};
use crate::test_server::{Kind, TestServer};
use alloc::vec::Vec;
use interface::{Errno, StoreEvent, StoreSpace, Ticket};
use wire::{
    ClearPrivileges, InodeNo, Op, Read, Request, ShardId, Status, Wire, Write, request_flag,
};

struct Writer {
    peer: Peer,
    inode: InodeNo,
}

impl Writer {
    /// With a file, and a session that is durable at its data shard.
    fn new(server: &mut TestServer, number: u8) -> Self {
        let mut peer = Peer::new(server, &HelloFields::new(number));
        let inode = peer.create(server, &alloc::format!("file{number}"));
        let mut writer = Self { peer, inode };
        writer.write(server, 0, b"0123456789");
        server.run();
        assert_eq!(writer.statuses(server), [Status::Ok]);
        server.pass_ms(100);
        server.run();
        writer
    }

    fn write(&mut self, server: &mut TestServer, file_offset: u64, bytes: &[u8]) {
        let (inode, clears) = (self.inode, ClearPrivileges::Nothing);
        let body = Write { inode, file_offset, append: false, clears };
        let mut head = self.peer.head(Op::Write, server.map.data_shard(inode, 0), 1);
        head.ack_xid = wire::Xid(head.xid.0 - 1);
        self.peer.send(server, &head, &body.to_bytes(), Some(bytes));
    }

    fn sync(&mut self, server: &mut TestServer) {
        let head = self.peer.head(Op::Sync, server.map.data_shard(self.inode, 0), 0);
        self.peer.send(server, &head, &[], None);
    }

    /// Sends a write behind to the end of the file.
    fn write_behind(&mut self, server: &mut TestServer, file_offset: u64) {
        let (inode, clears) = (self.inode, ClearPrivileges::Nothing);
        let body = Write { inode, file_offset, append: true, clears };
        let head = self.peer.head(Op::Write, server.map.data_shard(inode, 0), 1);
        let (ack_xid, flags) = (wire::Xid(head.xid.0 - 1), request_flag::BEHIND);
        let head = Request { ack_xid, flags, ..head };
        self.peer.send(server, &head, &body.to_bytes(), Some(b"behind"));
    }

    /// Sends the sync of a shard, which waits for writes behind.
    fn sync_behind(&mut self, server: &mut TestServer, shard: ShardId) {
        let head = Request { flags: request_flag::BEHIND, ..self.peer.head(Op::Sync, shard, 0) };
        self.peer.send(server, &head, &[], None);
    }

    fn answered(&self, server: &mut TestServer) -> Vec<(Op, Status)> {
        let replies = self.peer.replies(server);
        replies.iter().map(|got| (got.head.op, got.head.status)).collect()
    }

    fn statuses(&self, server: &mut TestServer) -> Vec<Status> {
        self.peer.replies(server).iter().map(|got| got.head.status).collect()
    }

    fn read(&mut self, server: &mut TestServer) -> Vec<u8> {
        let inode = self.inode;
        let body = Read { inode, file_offset: 0, read_bytes: 100_000, accesses: false };
        let got = self.peer.ask_data(server, (Op::Read, 0, inode), &body, None);
        assert_eq!(got.head.status, Status::Ok);
        got.bulk
    }
}

#[test]
fn each_costs_one_batch_and_no_sync_of_its_file() {
    let mut server = TestServer::started(81, 1);
    let mut writer = Writer::new(&mut server, 1);
    let batch_count = server.counters(0).batch_count;
    server.failing.push((Kind::Sync, Errno(5)));
    for count in 1..=10 {
        // An overwrite would first remove the block's checksum.
        writer.write(&mut server, 3 + count * 7, b"another");
        server.run();
        writer.sync(&mut server);
        server.run();
        assert_eq!(writer.statuses(&mut server), [Status::Ok; 2]);
        assert_eq!(server.counters(0).batch_count, batch_count + count);
    }
    assert_eq!(server.failing.len(), 1, "no file was synced");
}

#[test]
fn many_writers_share_a_batch() {
    let mut server = TestServer::started(82, 1);
    let mut writers: Vec<Writer> = (1..=8).map(|n| Writer::new(&mut server, n)).collect();
    server.failing.push((Kind::Sync, Errno(5)));
    for writer in &mut writers {
        writer.write(&mut server, 10, b"more");
    }
    server.run_turns_only(0);
    server.land_objects(0);
    let batch_count = server.counters(0).batch_count;
    for writer in &mut writers {
        writer.sync(&mut server);
    }
    server.run_turns_only(0);
    server.land_objects(0);
    server.run();
    for writer in &mut writers {
        assert_eq!(writer.statuses(&mut server), [Status::Ok; 2]);
    }
    // The first is not kept waiting for what the others load.
    assert!(server.counters(0).batch_count - batch_count <= 2);
    assert_eq!(server.failing.len(), 1, "no file was synced");
}

#[test]
fn a_crash_that_takes_the_page_cache_loses_nothing_that_was_synced() {
    for seed in 0..40 {
        let mut server = TestServer::started(seed, 1);
        let mut writer = Writer::new(&mut server, 1);
        let mut expected = b"0123456789".to_vec();
        for (offset, bytes) in [(4, &b"abc"[..]), (10, b"defghijkl"), (30, b"mn"), (2, b"opq")] {
            writer.write(&mut server, offset as u64, bytes);
            server.run();
            writer.sync(&mut server);
            server.run();
            assert_eq!(writer.statuses(&mut server), [Status::Ok; 2]);
            expected.resize(expected.len().max(offset + bytes.len()), 0);
            expected[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        for _ in 0..2 {
            server.crash_losing_all();
            server.start(1);
            let mut other = Peer::new(&mut server, &HelloFields::new(2));
            server.pass_ms(70_000);
            server.run();
            core::mem::swap(&mut writer.peer, &mut other);
            assert_eq!(writer.read(&mut server), expected, "seed {seed}");
        }
    }
}

#[test]
fn a_write_behind_that_was_received_before_is_waited_for_and_durable() {
    for seed in 0..10 {
        let mut server = TestServer::started(seed, 1);
        let mut writer = Writer::new(&mut server, 1);
        let mut other = Writer::new(&mut server, 2);
        let shard = server.map.data_shard(writer.inode, 0);
        writer.write_behind(&mut server, 10);
        server.run_turns_only(0);
        writer.sync(&mut server);
        other.sync_behind(&mut server, shard);
        server.run_turns_only(0);
        assert_eq!(writer.answered(&mut server), [(Op::Sync, Status::Ok)], "it has no number");
        assert_eq!(other.answered(&mut server), []);
        server.run();
        assert_eq!(writer.answered(&mut server), [(Op::Write, Status::Ok)]);
        assert_eq!(other.answered(&mut server), [(Op::Sync, Status::Ok)]);
        server.crash_losing_all();
        server.start(1);
        let mut reader = Peer::new(&mut server, &HelloFields::new(3));
        server.pass_ms(70_000);
        server.run();
        core::mem::swap(&mut writer.peer, &mut reader);
        assert_eq!(writer.read(&mut server), b"0123456789behind", "seed {seed}");
    }
}

#[test]
fn a_refused_write_behind_is_not_waited_for() {
    let mut server = TestServer::started(84, 1);
    let mut writer = Writer::new(&mut server, 1);
    let shard = server.map.data_shard(writer.inode, 0);
    server.failing.push((Kind::Write, Errno(28)));
    for (file_offset, status) in [(10, Status::NoSpace), (11, Status::Stale)] {
        writer.write_behind(&mut server, file_offset);
        writer.sync_behind(&mut server, shard);
        server.run();
        let wanted = [(Op::Write, status), (Op::Sync, Status::Ok)];
        assert_eq!(writer.answered(&mut server), wanted);
    }
    assert!(server.failing.is_empty());
}

#[test]
fn behind_a_failed_log_nothing_waits_for_a_write() {
    let mut server = TestServer::started(85, 1);
    let mut writer = Writer::new(&mut server, 1);
    let shard = server.map.data_shard(writer.inode, 0);
    server.failing.push((Kind::Log, Errno(5)));
    writer.write_behind(&mut server, 10);
    server.run_turns_only(0);
    writer.sync_behind(&mut server, shard);
    server.run();
    assert!(server.failing.is_empty());
    assert!(writer.answered(&mut server).contains(&(Op::Sync, Status::Io)));
}

#[test]
fn the_name_of_a_file_that_is_being_written_becomes_durable_with_its_contents() {
    let mut server = TestServer::new(86);
    server.limits.log_ms = 20;
    server.start(1);
    server.run();
    let mut writer = Writer::new(&mut server, 1);
    writer.inode = writer.peer.create(&mut server, "new");
    let shard = server.map.data_shard(writer.inode, 0);
    let batch_count = server.counters(0).batch_count;
    writer.write_behind(&mut server, 0);
    server.run_turns_only(0);
    let of_name = writer.inode.shard();
    for shard in [shard, of_name] {
        writer.sync_behind(&mut server, shard);
    }
    server.run_turns_only(0);
    assert_eq!(writer.answered(&mut server), [(Op::Write, Status::Ok)]);
    server.run();
    assert_eq!(writer.answered(&mut server).len(), 2);
    assert_eq!(server.counters(0).batch_count, batch_count + 1);
}

/// Its object has not been made when the sync is answered.
#[test]
fn the_first_write_of_a_new_file_is_synced_without_its_object() {
    for is_lost in [true, false] {
        let mut server = TestServer::started(87, 1);
        let mut writer = Writer::new(&mut server, 1);
        writer.inode = writer.peer.create(&mut server, "new");
        writer.write(&mut server, 0, b"first");
        writer.sync(&mut server);
        server.run_turns_only(0);
        assert_eq!(writer.answered(&mut server), [(Op::Write, Status::Ok)]);
        server.land_log(0);
        server.run_turns_only(0);
        assert_eq!(writer.answered(&mut server), [(Op::Sync, Status::Ok)]);
        if !is_lost {
            server.run();
        }
        server.crash_losing_all();
        server.start(1);
        let mut reader = Peer::new(&mut server, &HelloFields::new(2));
        server.pass_ms(70_000);
        server.run();
        core::mem::swap(&mut writer.peer, &mut reader);
        assert_eq!(writer.read(&mut server), b"first");
    }
}

#[test]
fn the_first_write_of_a_new_file_waits_for_its_object_unless_there_is_much_space() {
    const ENOUGH: (u64, Option<u64>) = (4 << 30, Some(100_000));
    for (available_bytes, available_file_count, is_first) in [
        (ENOUGH.0, ENOUGH.1, true),
        (ENOUGH.0, None, true),
        (ENOUGH.0 - 1, ENOUGH.1, false),
        (ENOUGH.0, ENOUGH.1.map(|count| count - 1), false),
    ] {
        let mut server = TestServer::started(89, 1);
        let mut writer = Writer::new(&mut server, 1);
        writer.inode = writer.peer.create(&mut server, "new");
        server.pass_ms(2_000);
        let ticket = Ticket(crate::ticket::FREE_SPACE_TICKET);
        let (total_bytes, free_bytes) = (1 << 40, available_bytes);
        let space = StoreSpace { total_bytes, free_bytes, available_bytes, available_file_count };
        server.event(0, StoreEvent::Space { ticket, result: Ok(space) }.into());
        writer.write(&mut server, 0, b"first");
        server.run_turns_only(0);
        assert_eq!(!writer.answered(&mut server).is_empty(), is_first, "{space:?}");
        server.run();
    }
}

#[test]
fn after_a_first_write_that_fails_nothing_is_acknowledged_before_the_next_start() {
    let mut server = TestServer::started(88, 1);
    let mut writer = Writer::new(&mut server, 1);
    writer.inode = writer.peer.create(&mut server, "new");
    server.failing.push((Kind::Write, Errno(5)));
    writer.write(&mut server, 0, b"first");
    server.run();
    assert_eq!(writer.answered(&mut server), [(Op::Write, Status::Ok)]);
    assert!(server.failing.is_empty());
    writer.sync(&mut server);
    server.run();
    assert_eq!(writer.answered(&mut server), [(Op::Sync, Status::Io)]);
    let body = Read { inode: writer.inode, file_offset: 0, read_bytes: 10, accesses: false };
    let got = writer.peer.ask_data(&mut server, (Op::Read, 0, writer.inode), &body, None);
    assert_eq!(got.head.status, Status::Io);
}

#[test]
fn without_space_in_the_log_the_file_is_synced() {
    let mut server = TestServer::started(83, 1);
    let mut writer = Writer::new(&mut server, 1);
    server.set_space(4 << 20);
    server.run();
    writer.write(&mut server, 0, b"bytes");
    server.run();
    server.failing.push((Kind::Sync, Errno(5)));
    writer.sync(&mut server);
    server.run();
    assert_eq!(writer.statuses(&mut server), [Status::Ok, Status::Io]);
    assert!(server.failing.is_empty());
}
