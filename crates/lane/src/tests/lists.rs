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
struct Rig {
    server: TestServer,
    peers: Vec<Peer>,
    inode: InodeNo,
    shard: ShardId,
}

fn pieces(all: &[(u64, u32)]) -> Pieces {
    let piece = |&(file_offset, piece_bytes): &(u64, u32)| Piece { file_offset, piece_bytes };
    Pieces::new(all.iter().map(piece).collect()).unwrap()
}

impl Rig {
    fn new(share: Share) -> Self {
        let mut server = TestServer::new(83);
        server.limits.share = share;
        server.start(1);
        let mut peers: Vec<Peer> =
            (1..=2).map(|who| Peer::new(&mut server, &HelloFields::new(who))).collect();
        let inode = peers[0].create(&mut server, "f");
        let shard = server.map.data_shard(inode, 0);
        let mut rig = Self { server, peers, inode, shard };
        for who in 0..2 {
            // Its first change is durable before it is answered.
            let (_, got) = rig.write_list(who, 1, &[(0, 12), (12, 8)], b"0123456789abcdefghij");
            assert_eq!(got.unwrap().head.flags, reply_flag::GATED);
        }
        rig
    }

    fn ask(
        &mut self,
        who: usize,
        (op, slot): (Op, u16),
        body: &[u8],
        bytes: &[u8],
    ) -> (Request, Option<ReceivedReply>) {
        let peer = &mut self.peers[who];
        let mut head = peer.head(op, self.shard, slot);
        head.ack_xid = Xid(head.xid.0 - 1);
        peer.send(&mut self.server, &head, body, Some(bytes));
        self.server.run();
        (head, self.peers[who].replies(&mut self.server).pop())
    }

    fn write_list(
        &mut self,
        who: usize,
        slot: u16,
        all: &[(u64, u32)],
        bytes: &[u8],
    ) -> (Request, Option<ReceivedReply>) {
        let body = self.list_body(all);
        self.ask(who, (Op::WriteList, slot), &body, bytes)
    }

    fn list_body(&self, all: &[(u64, u32)]) -> Vec<u8> {
        let clears = ClearPrivileges::Nothing;
        WriteList { inode: self.inode, pieces: pieces(all), clears }.to_bytes()
    }

    fn write(
        &mut self,
        who: usize,
        slot: u16,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> Option<ReceivedReply> {
        let (inode, file_offset) = (self.inode, offset.unwrap_or(0));
        let (append, clears) = (offset.is_none(), ClearPrivileges::Nothing);
        let body = Write { inode, file_offset, append, clears }.to_bytes();
        self.ask(who, (Op::Write, slot), &body, bytes).1
    }

    /// The bytes of a list, and how long its file is.
    fn read_list(&mut self, who: usize, all: &[(u64, u32)]) -> (Vec<u8>, u64) {
        let body = ReadList { inode: self.inode, pieces: pieces(all), accesses: false };
        let got =
            self.peers[who].ask_data(&mut self.server, (Op::ReadList, 0, self.inode), &body, None);
        assert_eq!(got.head.status, Status::Ok);
        (got.bulk, ListRead::decode_all(&got.body).unwrap().size_bytes)
    }

    fn all(&mut self, who: usize) -> Vec<u8> {
        self.read_list(who, &[(0, 1000)]).0
    }

    fn held_foreign(&self) -> u64 {
        self.server.counters(0).reply_gating.deferred_foreign_count
    }

    /// The server loses all that is not durable; the first client reconnects and replays `kept`,
    /// possibly with other bytes. Returns the status of each.
    fn bring_back(&mut self, kept: &[(Request, ReceivedReply, Vec<u8>)]) -> Vec<Status> {
        self.server.crash_losing_all();
        self.server.start(1);
        self.server.run();
        let mut peer =
            Peer::new(&mut self.server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
        peer.xid = 1 << 40;
        for (head, got, bytes) in kept {
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
    let mut rig = Rig::new(Share::Write);
    let change_count = rig.server.counters(0).change_count;
    let (_, got) = rig.write_list(0, 2, &[(15, 3), (0, 2), (30, 1)], b"XYZabQ");
    let got = got.unwrap();
    assert_eq!(got.head.flags, reply_flag::TOKEN);
    let written = Written::decode_all(&got.body).unwrap();
    assert_eq!(written, Written { file_offset: 15, written_bytes: 6 });
    let whole = b"ab23456789abcdeXYZij\0\0\0\0\0\0\0\0\0\0Q";
    assert_eq!(rig.all(0), whole);
    let read = rig.read_list(1, &[(28, 10), (0, 3), (31, 5), (15, 3), (1, 2)]);
    assert_eq!(read, (b"\0\0Qab2XYZb2".to_vec(), 31), "each what the file has of it");
    rig.server.pass_ms(50);
    rig.server.run();
    assert_eq!(rig.server.counters(0).change_count, change_count + 1);
    rig.server.crash();
    rig.server.start(1);
    rig.server.run();
    rig.server.pass_ms(10_000);
    rig.server.run();
    rig.peers[0] = Peer::new(&mut rig.server, &HelloFields::new(9));
    assert_eq!(rig.all(0), whole, "after a restart");
}

#[test]
fn a_list_depends_on_another_clients_write_to_any_of_its_ranges() {
    let mut rig = Rig::new(Share::Write);
    rig.write_list(0, 2, &[(0, 2), (10, 2)], b"aaaa");
    let before = rig.held_foreign();
    let (_, got) = rig.write_list(1, 2, &[(2, 8), (12, 2)], b"bbbbbbbbbb");
    assert_eq!(got.unwrap().head.flags, reply_flag::TOKEN);
    assert_eq!(rig.held_foreign(), before, "side by side, one between the other's pieces");
    let (_, got) = rig.write_list(1, 3, &[(4, 1), (11, 1)], b"cc");
    assert!(got.unwrap().head.flags & reply_flag::GATED != 0);
    assert_eq!(rig.held_foreign(), before + 1, "its second piece is in the way");
    // And other writes depend on a list.
    rig.write_list(0, 3, &[(0, 1), (18, 5)], b"zzzzzz");
    let flags = rig.write(1, 2, Some(22), b"d").unwrap().head.flags;
    assert!(flags & reply_flag::GATED != 0, "a write");
    rig.write_list(0, 4, &[(0, 1), (40, 5)], b"yyyyyy");
    let flags = rig.write(1, 3, None, b"end").unwrap().head.flags;
    assert!(flags & reply_flag::GATED != 0, "an append, whose end the list is");
    assert_eq!(rig.held_foreign(), before + 3);
}

#[test]
fn with_sharing_off_no_reply_waits_for_a_received_list() {
    let mut rig = Rig::new(Share::Off);
    rig.write_list(0, 2, &[(0, 2), (10, 2)], b"aaaa");
    let batch_count = rig.server.counters(0).batch_count;
    assert!(rig.all(1).starts_with(b"aa"));
    assert_eq!(rig.server.counters(0).batch_count, batch_count);
}

#[test]
fn a_strict_reader_of_a_list_sees_only_what_is_durable() {
    for share in [Share::Write, Share::Strict] {
        let mut rig = Rig::new(share);
        rig.write_list(0, 2, &[(0, 2), (10, 2)], b"aaaa");
        let batch_count = rig.server.counters(0).batch_count;
        rig.read_list(1, &[(2, 8), (12, 5)]);
        assert_eq!(rig.server.counters(0).batch_count, batch_count, "it shows nothing new");
        let (bytes, _) = rig.read_list(1, &[(2, 8), (11, 5)]);
        assert_eq!(bytes, b"23456789acdef");
        let waited = rig.server.counters(0).batch_count > batch_count;
        assert_eq!(waited, share == Share::Strict);
        rig.write_list(0, 3, &[(0, 2), (10, 2)], b"bbbb");
        let batch_count = rig.server.counters(0).batch_count;
        rig.read_list(0, &[(0, 20)]);
        assert_eq!(rig.server.counters(0).batch_count, batch_count, "one's own");
    }
}

/// A list is resent after a lost reply and another client's write: it gets the same reply and does
/// not overwrite the later write.
#[test]
fn a_list_takes_effect_once() {
    for crash in [false, true] {
        let mut rig = Rig::new(Share::Write);
        let all = [(0, 2), (10, 2)];
        let (head, first) = rig.write_list(0, 2, &all, b"aaaa");
        let first = first.unwrap();
        rig.write(1, 2, Some(11), b"NEW");
        rig.server.pass_ms(50);
        rig.server.run();
        let mut head = Request { flags: request_flag::RESENT, ..head };
        if crash {
            rig.server.crash();
            rig.server.start(1);
            rig.server.run();
            rig.peers[0] =
                Peer::new(&mut rig.server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
            rig.peers[0].xid = 1 << 40;
            head.conn_epoch = 2;
            rig.end_recovery();
        }
        let body = rig.list_body(&all);
        rig.peers[0].send(&mut rig.server, &head, &body, Some(b"aaaa"));
        rig.server.run();
        let again = rig.peers[0].replies(&mut rig.server).pop().unwrap();
        assert_eq!(again.head.flags, reply_flag::FROM_SLOT);
        assert_eq!((again.head.transno, &again.body), (first.head.transno, &first.body));
        assert_eq!(rig.all(0), b"aa23456789aNEWefghij");
    }
}

/// Lost lists and writes are replayed as they were, in order.
#[test]
fn a_lost_list_is_replayed_whole() {
    let mut rig = Rig::new(Share::Write);
    let mut kept = Vec::new();
    let lists = [
        (&[(2, 4), (10, 2), (25, 2)][..], &b"AAAABBCC"[..]),
        (&[(11, 1), (4, 1)], b"xy"),
        (&[(40, 3), (0, 1)], b"end!"),
    ];
    for (index, (all, bytes)) in lists.into_iter().enumerate() {
        let (head, got) = rig.write_list(0, 2 + index as u16, all, bytes);
        let got = got.unwrap();
        assert_eq!(got.head.flags, reply_flag::TOKEN);
        kept.push((head, got, bytes.to_vec()));
    }
    let whole = rig.all(0);
    assert_eq!(&whole[..20], b"!1AAyA6789Bxcdefghij");
    assert_eq!(whole.len(), 43);
    assert_eq!(rig.bring_back(&kept), [Status::Ok; 3]);
    rig.end_recovery();
    assert_eq!(rig.all(0), whole);
    assert_eq!(rig.server.counters(0).recovery.replayed_count, 3);
    // They are in the log now.
    rig.server.crash();
    rig.server.start(1);
    rig.server.run();
    rig.server.pass_ms(10_000);
    rig.server.run();
    rig.peers[0] = Peer::new(&mut rig.server, &HelloFields::new(9));
    assert_eq!(rig.all(0), whole);
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
        let mut rig = Rig::new(Share::Write);
        let (head, got) = rig.write_list(0, 2, &[(2, 4), (10, 2)], b"AAAABB");
        let kept = [(head, got.unwrap(), bytes.to_vec())];
        assert_eq!(rig.bring_back(&kept), []);
        assert_eq!(rig.server.counters(0).recovery.forged_count, 1);
    }
}

/// A list's token is not valid for a plain write.
#[test]
fn a_list_is_not_replayed_as_a_write() {
    let mut rig = Rig::new(Share::Write);
    let (head, got) = rig.write_list(0, 2, &[(2, 6)], b"AAAABB");
    let kept = [(Request { op: Op::Write, ..head }, got.unwrap(), b"AAAABB".to_vec())];
    assert_eq!(rig.bring_back(&kept), []);
    assert_eq!(rig.server.counters(0).recovery.forged_count, 1);
}

#[test]
fn a_synchronous_list_is_durable_before_its_reply() {
    let mut rig = Rig::new(Share::Write);
    let body = rig.list_body(&[(0, 1), (5, 1)]);
    let mut head = rig.peers[0].head(Op::WriteList, rig.shard, 2);
    head.flags = request_flag::SYNC;
    rig.peers[0].send(&mut rig.server, &head, &body, Some(b"dd"));
    rig.server.run();
    let got = rig.peers[0].replies(&mut rig.server).pop().unwrap();
    assert_eq!(got.head.flags, reply_flag::GATED);
    assert!(got.head.committed >= got.head.transno);
}

#[test]
fn a_list_of_nothing_and_one_that_overlaps_change_nothing() {
    let mut rig = Rig::new(Share::Write);
    let before = rig.all(0);
    let body = rig.list_body(&[]);
    let head = rig.peers[0].head(Op::WriteList, rig.shard, 2);
    rig.peers[0].send(&mut rig.server, &head, &body, None);
    rig.server.run();
    let got = rig.peers[0].replies(&mut rig.server).pop().unwrap();
    assert_eq!((got.head.status, got.head.transno), (Status::Ok, Transno(0)));
    let (_, got) = rig.write_list(0, 2, &[(0, 5), (4, 2)], b"overlap");
    let got = got.unwrap();
    assert_eq!((got.head.status, got.head.transno), (Status::Invalid, Transno(0)));
    assert_eq!(rig.all(0), before);
}

/// The list of an evicted client is not replayed, and its undurable changes are lost.
#[test]
fn the_list_of_an_evicted_client_is_not_replayed() {
    let mut rig = Rig::new(Share::Write);
    let (head, got) = rig.write_list(0, 2, &[(0, 1), (10, 1)], b"ee");
    let got = got.unwrap();
    // A seed with which the kernel has not written the list before the crash.
    rig.server.rng = fastrand::Rng::with_seed(1);
    rig.server.crash_losing_all();
    rig.server.start(1);
    rig.server.run();
    rig.server.pass_ms(60_000);
    rig.server.run();
    let (_, welcome) = super::peer::send_handshake(
        &mut rig.server,
        &HelloFields { conn_epoch: 2, ..HelloFields::new(1) },
    );
    welcome.unwrap_err();
    rig.peers[0] = Peer::new(&mut rig.server, &HelloFields::new(9));
    assert_eq!(rig.all(0), b"0123456789abcdefghij");
    let (flags, transno) = (request_flag::REPLAY, got.head.transno);
    let session = rig.peers[0].session;
    let head = Request { flags, transno, session, ..head };
    let body = Replay { reply: Bytes(&got.body), token: Bytes(&got.token) }.to_bytes();
    rig.peers[0].send(&mut rig.server, &head, &body, Some(b"ee"));
    rig.server.run();
    assert_eq!(rig.server.counters(0).recovery.forged_count, 1, "another's token");
}
