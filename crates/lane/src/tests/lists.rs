//! List writes: answered before they are durable, executed once, dependencies where another client
//! writes to one of their ranges, and replayed whole.

use super::peer::{HelloFields, Peer, ReceivedReply};
use crate::Share;
use crate::test_server::TestServer;
use alloc::vec::Vec;
use wire::{
    Bytes, ClearPrivileges, InodeNo, ListRead, Op, Piece, Pieces, ReadList, Replay, Request,
    ShardId, Status, Transno, Wire, Write, WriteList, Written, Xid, reply_flag, request_flag,
};

/// Two clients with durable sessions at the data shard of a file of twenty bytes.
struct Harness {
    server: TestServer,
    peers: Vec<Peer>,
    inode: InodeNo,
    shard: ShardId,
}

fn pieces(all: &[(u64, u32)]) -> Pieces {
    let piece = |&(file_offset, piece_bytes): &(u64, u32)| Piece { file_offset, piece_bytes };
    Pieces::new(all.iter().map(piece).collect()).unwrap()
}

impl Harness {
    fn new(share: Share) -> Self {
        let mut server = TestServer::new(83);
        server.limits.share = share;
        server.start(1);
        let mut peers: Vec<Peer> =
            (1..=2).map(|client| Peer::new(&mut server, &HelloFields::new(client))).collect();
        let inode = peers[0].create(&mut server, "f");
        let shard = server.map.data_shard(inode, 0);
        let mut harness = Self { server, peers, inode, shard };
        for client in 0..2 {
            // Its first change is durable before it is answered.
            let (_, got) =
                harness.write_list(client, 1, &[(0, 12), (12, 8)], b"0123456789abcdefghij");
            assert_eq!(got.unwrap().head.flags, reply_flag::GATED);
        }
        harness
    }

    fn ask(
        &mut self,
        client: usize,
        (op, slot): (Op, u16),
        body: &[u8],
        bytes: &[u8],
    ) -> (Request, Option<ReceivedReply>) {
        let peer = &mut self.peers[client];
        let mut head = peer.head(op, self.shard, slot);
        head.ack_xid = Xid(head.xid.0 - 1);
        peer.send(&mut self.server, &head, body, Some(bytes));
        self.server.run();
        (head, self.peers[client].replies(&mut self.server).pop())
    }

    fn write_list(
        &mut self,
        client: usize,
        slot: u16,
        all: &[(u64, u32)],
        bytes: &[u8],
    ) -> (Request, Option<ReceivedReply>) {
        let body = self.list_body(all);
        self.ask(client, (Op::WriteList, slot), &body, bytes)
    }

    fn list_body(&self, all: &[(u64, u32)]) -> Vec<u8> {
        let clears = ClearPrivileges::Nothing;
        WriteList { inode: self.inode, pieces: pieces(all), clears }.to_bytes()
    }

    fn write(
        &mut self,
        client: usize,
        slot: u16,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> Option<ReceivedReply> {
        let (inode, file_offset) = (self.inode, offset.unwrap_or(0));
        let (append, clears) = (offset.is_none(), ClearPrivileges::Nothing);
        let body = Write { inode, file_offset, append, clears }.to_bytes();
        self.ask(client, (Op::Write, slot), &body, bytes).1
    }

    /// The bytes of a list, and how long its file is.
    fn read_list(&mut self, client: usize, all: &[(u64, u32)]) -> (Vec<u8>, u64) {
        let body = ReadList { inode: self.inode, pieces: pieces(all), accesses: false };
        let got = self.peers[client].ask_data(
            &mut self.server,
            (Op::ReadList, 0, self.inode),
            &body,
            None,
        );
        assert_eq!(got.head.status, Status::Ok);
        (got.bulk, ListRead::decode_all(&got.body).unwrap().size_bytes)
    }

    fn all(&mut self, client: usize) -> Vec<u8> {
        self.read_list(client, &[(0, 1000)]).0
    }

    fn held_foreign(&self) -> u64 {
        self.server.counters(0).reply_gating.deferred_foreign_count
    }

    /// The server loses all that is not durable; the first client reconnects and replays `retained`,
    /// possibly with other bytes. Returns the status of each.
    fn bring_back(&mut self, retained: &[(Request, ReceivedReply, Vec<u8>)]) -> Vec<Status> {
        self.server.crash_losing_all();
        self.server.start(1);
        self.server.run();
        let mut peer =
            Peer::new(&mut self.server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
        peer.xid = 1 << 40;
        for (head, got, bytes) in retained {
            let (flags, transno) = (request_flag::REPLAY, got.head.transno);
            let head = Request { flags, transno, conn_epoch: 2, ..*head };
            let body = Replay { reply: Bytes(&got.body), token: Bytes(&got.token) }.to_bytes();
            peer.send(&mut self.server, &head, &body, Some(bytes));
        }
        self.server.run();
        let replies = peer.replies(&mut self.server);
        self.peers[0] = peer;
        replies.iter().map(|got| got.head.status).collect()
    }

    fn end_recovery(&mut self) {
        for shard in [ShardId::meta(0), self.shard] {
            self.peers[0].come_back(&mut self.server, shard);
        }
        self.server.pass_ms(10_000);
        self.server.run();
    }
}

#[test]
fn a_list_is_one_change_with_one_token() {
    let mut harness = Harness::new(Share::Write);
    let change_count = harness.server.counters(0).change_count;
    let (_, got) = harness.write_list(0, 2, &[(15, 3), (0, 2), (30, 1)], b"XYZabQ");
    let got = got.unwrap();
    assert_eq!(got.head.flags, reply_flag::TOKEN);
    let written = Written::decode_all(&got.body).unwrap();
    assert_eq!(written, Written { file_offset: 15, written_bytes: 6 });
    let whole = b"ab23456789abcdeXYZij\0\0\0\0\0\0\0\0\0\0Q";
    assert_eq!(harness.all(0), whole);
    let read = harness.read_list(1, &[(28, 10), (0, 3), (31, 5), (15, 3), (1, 2)]);
    assert_eq!(read, (b"\0\0Qab2XYZb2".to_vec(), 31), "each what the file has of it");
    harness.server.pass_ms(50);
    harness.server.run();
    assert_eq!(harness.server.counters(0).change_count, change_count + 1);
    harness.server.crash();
    harness.server.start(1);
    harness.server.run();
    harness.server.pass_ms(10_000);
    harness.server.run();
    harness.peers[0] = Peer::new(&mut harness.server, &HelloFields::new(9));
    assert_eq!(harness.all(0), whole, "after a restart");
}

#[test]
fn a_list_depends_on_another_clients_write_to_any_of_its_ranges() {
    let mut harness = Harness::new(Share::Write);
    harness.write_list(0, 2, &[(0, 2), (10, 2)], b"aaaa");
    let before = harness.held_foreign();
    let (_, got) = harness.write_list(1, 2, &[(2, 8), (12, 2)], b"bbbbbbbbbb");
    assert_eq!(got.unwrap().head.flags, reply_flag::TOKEN);
    assert_eq!(harness.held_foreign(), before, "side by side, one between the other's pieces");
    let (_, got) = harness.write_list(1, 3, &[(4, 1), (11, 1)], b"cc");
    assert!(got.unwrap().head.flags & reply_flag::GATED != 0);
    assert_eq!(harness.held_foreign(), before + 1, "its second piece is in the way");
    // And other writes depend on a list.
    harness.write_list(0, 3, &[(0, 1), (18, 5)], b"zzzzzz");
    let flags = harness.write(1, 2, Some(22), b"d").unwrap().head.flags;
    assert!(flags & reply_flag::GATED != 0, "a write");
    harness.write_list(0, 4, &[(0, 1), (40, 5)], b"yyyyyy");
    let flags = harness.write(1, 3, None, b"end").unwrap().head.flags;
    assert!(flags & reply_flag::GATED != 0, "an append, whose end the list is");
    assert_eq!(harness.held_foreign(), before + 3);
}

#[test]
fn with_sharing_off_no_reply_waits_for_a_received_list() {
    let mut harness = Harness::new(Share::Off);
    harness.write_list(0, 2, &[(0, 2), (10, 2)], b"aaaa");
    let batch_count = harness.server.counters(0).batch_count;
    assert!(harness.all(1).starts_with(b"aa"));
    assert_eq!(harness.server.counters(0).batch_count, batch_count);
}

#[test]
fn a_strict_reader_of_a_list_sees_only_what_is_durable() {
    for share in [Share::Write, Share::Strict] {
        let mut harness = Harness::new(share);
        harness.write_list(0, 2, &[(0, 2), (10, 2)], b"aaaa");
        let batch_count = harness.server.counters(0).batch_count;
        harness.read_list(1, &[(2, 8), (12, 5)]);
        assert_eq!(harness.server.counters(0).batch_count, batch_count, "it shows nothing new");
        let (bytes, _) = harness.read_list(1, &[(2, 8), (11, 5)]);
        assert_eq!(bytes, b"23456789acdef");
        let waited = harness.server.counters(0).batch_count > batch_count;
        assert_eq!(waited, share == Share::Strict);
        harness.write_list(0, 3, &[(0, 2), (10, 2)], b"bbbb");
        let batch_count = harness.server.counters(0).batch_count;
        harness.read_list(0, &[(0, 20)]);
        assert_eq!(harness.server.counters(0).batch_count, batch_count, "one's own");
    }
}

/// A list is resent after a lost reply and another client's write: it gets the same reply and does
/// not overwrite the later write.
#[test]
fn a_list_takes_effect_once() {
    for crash in [false, true] {
        let mut harness = Harness::new(Share::Write);
        let all = [(0, 2), (10, 2)];
        let (head, first) = harness.write_list(0, 2, &all, b"aaaa");
        let first = first.unwrap();
        harness.write(1, 2, Some(11), b"NEW");
        harness.server.pass_ms(50);
        harness.server.run();
        let mut head = Request { flags: request_flag::RESENT, ..head };
        if crash {
            harness.server.crash();
            harness.server.start(1);
            harness.server.run();
            harness.peers[0] = Peer::new(
                &mut harness.server,
                &HelloFields { conn_epoch: 2, ..HelloFields::new(1) },
            );
            harness.peers[0].xid = 1 << 40;
            head.conn_epoch = 2;
            harness.end_recovery();
        }
        let body = harness.list_body(&all);
        harness.peers[0].send(&mut harness.server, &head, &body, Some(b"aaaa"));
        harness.server.run();
        let again = harness.peers[0].replies(&mut harness.server).pop().unwrap();
        assert_eq!(again.head.flags, reply_flag::FROM_SLOT);
        assert_eq!((again.head.transno, &again.body), (first.head.transno, &first.body));
        assert_eq!(harness.all(0), b"aa23456789aNEWefghij");
    }
}

/// Lost lists and writes are replayed as they were, in order.
#[test]
fn a_lost_list_is_replayed_whole() {
    let mut harness = Harness::new(Share::Write);
    let mut retained = Vec::new();
    let lists = [
        (&[(2, 4), (10, 2), (25, 2)][..], &b"AAAABBCC"[..]),
        (&[(11, 1), (4, 1)], b"xy"),
        (&[(40, 3), (0, 1)], b"end!"),
    ];
    for (index, (all, bytes)) in lists.into_iter().enumerate() {
        let (head, got) = harness.write_list(0, 2 + index as u16, all, bytes);
        let got = got.unwrap();
        assert_eq!(got.head.flags, reply_flag::TOKEN);
        retained.push((head, got, bytes.to_vec()));
    }
    let whole = harness.all(0);
    assert_eq!(&whole[..20], b"!1AAyA6789Bxcdefghij");
    assert_eq!(whole.len(), 43);
    assert_eq!(harness.bring_back(&retained), [Status::Ok; 3]);
    harness.end_recovery();
    assert_eq!(harness.all(0), whole);
    assert_eq!(harness.server.counters(0).recovery.replayed_count, 3);
    // They are in the log now.
    harness.server.crash();
    harness.server.start(1);
    harness.server.run();
    harness.server.pass_ms(10_000);
    harness.server.run();
    harness.peers[0] = Peer::new(&mut harness.server, &HelloFields::new(9));
    assert_eq!(harness.all(0), whole);
}

/// Other bytes of the same length and checksum: the generator of CRC-32C, added to them.
fn twin(bytes: &[u8]) -> Vec<u8> {
    const GENERATOR: u64 = 0x1_1edc_6f41;
    let mut twin = bytes.to_vec();
    for place in 0..33 {
        // The first bit that is summed is the lowest of a byte.
        let bit = GENERATOR >> (32 - place) & 1;
        twin[place / 8] ^= (bit as u8) << (place % 8);
    }
    assert_eq!(wire::crc32c(&twin), wire::crc32c(bytes));
    twin
}

#[test]
fn a_replay_with_other_bytes_than_signed_is_refused() {
    let twin = twin(b"AAAABB");
    for bytes in [&b"AAAABX"[..], b"AAAAB", b"AAAABBB", &twin] {
        let mut harness = Harness::new(Share::Write);
        let (head, got) = harness.write_list(0, 2, &[(2, 4), (10, 2)], b"AAAABB");
        let retained = [(head, got.unwrap(), bytes.to_vec())];
        assert_eq!(harness.bring_back(&retained), []);
        assert_eq!(harness.server.counters(0).recovery.forged_count, 1);
    }
}

/// A list's token is not valid for a plain write.
#[test]
fn a_list_is_not_replayed_as_a_write() {
    let mut harness = Harness::new(Share::Write);
    let (head, got) = harness.write_list(0, 2, &[(2, 6)], b"AAAABB");
    let retained = [(Request { op: Op::Write, ..head }, got.unwrap(), b"AAAABB".to_vec())];
    assert_eq!(harness.bring_back(&retained), []);
    assert_eq!(harness.server.counters(0).recovery.forged_count, 1);
}

#[test]
fn a_synchronous_list_is_durable_before_its_reply() {
    let mut harness = Harness::new(Share::Write);
    let body = harness.list_body(&[(0, 1), (5, 1)]);
    let mut head = harness.peers[0].head(Op::WriteList, harness.shard, 2);
    head.flags = request_flag::SYNC;
    harness.peers[0].send(&mut harness.server, &head, &body, Some(b"dd"));
    harness.server.run();
    let got = harness.peers[0].replies(&mut harness.server).pop().unwrap();
    assert_eq!(got.head.flags, reply_flag::GATED);
    assert!(got.head.committed >= got.head.transno);
}

#[test]
fn a_list_of_nothing_and_one_that_overlaps_change_nothing() {
    let mut harness = Harness::new(Share::Write);
    let before = harness.all(0);
    let body = harness.list_body(&[]);
    let head = harness.peers[0].head(Op::WriteList, harness.shard, 2);
    harness.peers[0].send(&mut harness.server, &head, &body, None);
    harness.server.run();
    let got = harness.peers[0].replies(&mut harness.server).pop().unwrap();
    assert_eq!((got.head.status, got.head.transno), (Status::Ok, Transno(0)));
    let (_, got) = harness.write_list(0, 2, &[(0, 5), (4, 2)], b"overlap");
    let got = got.unwrap();
    assert_eq!((got.head.status, got.head.transno), (Status::Invalid, Transno(0)));
    assert_eq!(harness.all(0), before);
}

/// The list of an evicted client is not replayed, and its undurable changes are lost.
#[test]
fn the_list_of_an_evicted_client_is_not_replayed() {
    let mut harness = Harness::new(Share::Write);
    let (head, got) = harness.write_list(0, 2, &[(0, 1), (10, 1)], b"ee");
    let got = got.unwrap();
    // A seed with which the kernel has not written the list before the crash.
    harness.server.rng = fastrand::Rng::with_seed(1);
    harness.server.crash_losing_all();
    harness.server.start(1);
    harness.server.run();
    harness.server.pass_ms(60_000);
    harness.server.run();
    let (_, welcome) = super::peer::send_handshake(
        &mut harness.server,
        &HelloFields { conn_epoch: 2, ..HelloFields::new(1) },
    );
    welcome.unwrap_err();
    harness.peers[0] = Peer::new(&mut harness.server, &HelloFields::new(9));
    assert_eq!(harness.all(0), b"0123456789abcdefghij");
    let (flags, transno) = (request_flag::REPLAY, got.head.transno);
    let session = harness.peers[0].session;
    let head = Request { flags, transno, session, ..head };
    let body = Replay { reply: Bytes(&got.body), token: Bytes(&got.token) }.to_bytes();
    harness.peers[0].send(&mut harness.server, &head, &body, Some(b"ee"));
    harness.server.run();
    assert_eq!(harness.server.counters(0).recovery.forged_count, 1, "another's token");
}
