//! The size of a file at its metadata shard never outlives the bytes that it counts.

use super::peer::{HelloFields, Peer, ROOT, ReceivedReply};
use crate::Share;
use crate::peers::message::PeerBody;
use crate::test_server::{Kind, TestServer};
use interface::Errno;
use wire::Rules;
use wire::{
    Close, Contents, Entry, Getattr, Glimpse, Glimpsed, Handle, HandleId, InodeNo, LaneId, Op,
    Open, OpenFor, Read, Reopen, ReplayDone, Request, SetTime, Setattr, Status, Wire, Write,
    attr_flag, request_flag,
};

/// A file with ten durable bytes that a client has open for writing.
struct Harness {
    server: TestServer,
    writer: Peer,
    inode: InodeNo,
}

/// The value of [`crate::Limits::default`].
const SYNC_MS: u64 = 50;
const HANDLE: Handle = Handle { id: HandleId(7), open_for: OpenFor::ReadWrite };

impl Harness {
    fn new(rules: Rules) -> Self {
        Self::sharing(rules, Share::Write)
    }

    fn sharing(rules: Rules, share: Share) -> Self {
        let mut server = TestServer::new(81);
        server.rules = rules;
        server.limits.share = share;
        server.start(1);
        let mut writer = Peer::new(&mut server, &HelloFields::new(1));
        let inode = writer.create(&mut server, "f");
        let mut harness = Self { server, writer, inode };
        harness.open();
        harness.write(0, b"0123456789");
        assert_eq!(harness.sync().head.status, Status::Ok);
        harness
    }

    fn write(&mut self, file_offset: u64, bytes: &[u8]) {
        let Self { server, writer, inode } = self;
        let body = Write {
            inode: *inode,
            file_offset,
            append: false,
            clears: wire::ClearPrivileges::Nothing,
        };
        let got = writer.ask_data(server, (Op::Write, 2, *inode), &body, Some(bytes));
        assert_eq!(got.head.status, Status::Ok);
    }

    fn sync(&mut self) -> ReceivedReply {
        let head = self.writer.head(Op::Sync, self.server.map.data_shard(self.inode, 0), 0);
        self.writer.send(&mut self.server, &head, &[], None);
        self.server.run();
        self.writer.replies(&mut self.server).pop().unwrap()
    }

    fn glimpse(&mut self) -> Contents {
        let Self { server, writer, inode } = self;
        let body = Glimpse { inode: *inode };
        let got = writer.ask_data(server, (Op::Glimpse, 0, *inode), &body, None);
        assert_eq!(got.head.status, Status::Ok);
        Glimpsed::decode_all(&got.body).unwrap().contents
    }

    /// Whether the metadata shard has the size, and its value.
    fn settled(&mut self) -> Option<u64> {
        let inode = self.inode;
        // The lane does not complete attributes that it would have to query.
        self.server.limits.share = Share::Strict;
        let (elsewhere, size_bytes) = self.attr((Op::Getattr, 0), &Getattr { inode });
        (!elsewhere).then_some(size_bytes)
    }

    /// The reply to Getattr: whether the size is at the data shard, and its value.
    fn attr<'a>(&mut self, (op, slot): (Op, u16), body: &impl Wire<'a>) -> (bool, u64) {
        let got = self.writer.ask(&mut self.server, op, slot, body);
        assert_eq!(got.head.status, Status::Ok);
        let attr = Entry::decode_all(&got.body).unwrap().attr;
        (attr.is_size_at_data(), attr.size_bytes)
    }

    fn open(&mut self) {
        let Self { server, writer, inode } = self;
        let open = Open { caller: ROOT, inode: *inode, handle: HANDLE };
        assert_eq!(writer.ask(server, Op::Open, 1, &open).head.status, Status::Ok);
    }

    fn close(&mut self) {
        let Self { server, writer, inode } = self;
        let close = Close { inode: *inode, handle: HANDLE.id };
        assert_eq!(writer.ask(server, Op::Close, 1, &close).head.status, Status::Ok);
    }

    /// After a crash of both the server and the writer: the size that another client sees, and the
    /// number of bytes.
    fn after_crash(mut self) -> (u64, u64) {
        self.server.crash_losing_all();
        self.server.start(1);
        self.server.run();
        let Self { mut server, inode, .. } = self;
        let mut peer = Peer::new(&mut server, &HelloFields::new(2));
        server.pass_ms(10_000);
        server.run();
        let got = peer.ask(&mut server, Op::Getattr, 0, &Getattr { inode });
        let attr = Entry::decode_all(&got.body).unwrap().attr;
        let body = Glimpse { inode };
        let got = peer.ask_data(&mut server, (Op::Glimpse, 0, inode), &body, None);
        let contents = Glimpsed::decode_all(&got.body).unwrap().contents;
        let at_data = attr.flags & attr_flag::SIZE_AT_DATA != 0;
        let body = Read { inode, file_offset: 0, read_bytes: 1000, accesses: true };
        let got = peer.ask_data(&mut server, (Op::Read, 0, inode), &body, None);
        let reported_bytes = if at_data { contents.size_bytes } else { attr.size_bytes };
        (reported_bytes, got.bulk.len() as u64)
    }
}

/// The metadata shard has the size of a closed file only when its bytes are durable: it never
/// counts lost bytes.
#[test]
fn a_settled_size_counts_durable_bytes() {
    for (passes, after) in [(false, (10, 10)), (true, (20, 20))] {
        let mut harness = Harness::sharing(Rules::default(), Share::Strict);
        harness.write(10, b"abcdefghij");
        harness.close();
        assert_eq!(harness.settled(), None, "the bytes are not durable");
        harness.server.pass_ms(if passes { SYNC_MS } else { 0 });
        harness.server.run();
        assert_eq!(harness.settled(), passes.then_some(20));
        assert_eq!(harness.after_crash(), after);
    }
}

#[test]
fn a_durable_size_is_settled_with_the_close() {
    let mut harness = Harness::sharing(Rules::default(), Share::Strict);
    assert_eq!(harness.settled(), None, "it is open for writing");
    harness.close();
    assert_eq!(harness.settled(), Some(10));
    harness.open();
    assert_eq!(harness.settled(), None);
}

/// A lane does not look for the contents of a file that it has created: the size is settled while
/// no object action ends.
#[test]
fn the_size_of_a_created_empty_file_is_settled_with_the_close() {
    let mut harness = Harness::sharing(Rules::default(), Share::Strict);
    let Harness { server, writer, .. } = &mut harness;
    let inode = writer.create(server, "g");
    let open = Open { caller: ROOT, inode, handle: HANDLE };
    assert_eq!(writer.ask(server, Op::Open, 1, &open).head.status, Status::Ok);
    let at_once = |server: &mut TestServer, writer: &mut Peer, (op, slot), body: &[u8]| {
        let head = writer.head(op, inode.shard(), slot);
        writer.send(server, &head, body, None);
        server.run_turns_only(0);
        writer.replies(server).pop().unwrap()
    };
    let close = Close { inode, handle: HANDLE.id }.to_bytes();
    assert_eq!(at_once(server, writer, (Op::Close, 1), &close).head.status, Status::Ok);
    let got = at_once(server, writer, (Op::Getattr, 0), &Getattr { inode }.to_bytes());
    let attr = Entry::decode_all(&got.body).unwrap().attr;
    assert_eq!((attr.is_size_at_data(), attr.size_bytes), (false, 0));
}

/// No request waits for a size: written contents become durable at their usual time.
#[test]
fn a_sync_hurries_the_disk_and_a_close_does_not() {
    let mut harness = Harness::sharing(Rules::default(), Share::Strict);
    harness.write(10, b"a");
    let before = harness.server.counters(0);
    harness.close();
    let closed = harness.server.counters(0);
    assert_eq!(closed.batch_count, before.batch_count);
    assert_eq!(
        closed.reply_gating.deferred_self_count, before.reply_gating.deferred_self_count,
        "the close is answered"
    );
    assert_eq!(harness.sync().head.status, Status::Ok);
    assert_eq!(harness.settled(), Some(11));
}

/// Between a close and the data shard's reply a client writes again.
#[test]
fn a_stale_size_is_ignored() {
    let mut harness = Harness::sharing(Rules::default(), Share::Strict);
    harness.write(10, b"abc");
    harness.close();
    harness.open();
    assert_eq!(harness.sync().head.status, Status::Ok);
    assert_eq!(harness.settled(), None, "it is being written");
    harness.write(13, b"def");
    harness.close();
    assert_eq!(harness.sync().head.status, Status::Ok);
    assert_eq!(harness.settled(), Some(16));
}

#[test]
fn sizes_are_settled_between_different_lanes() {
    let mut server = TestServer::started(83, 2);
    server.limits.share = Share::Strict;
    let mut peers = [0, 1].map(|lane| {
        let mut peer = Peer::new(
            &mut server,
            &HelloFields { server_lane: LaneId(lane), ..HelloFields::new(1) },
        );
        peer.xid += 1000 * u64::from(lane);
        peer
    });
    let inodes = ["a", "b", "c", "d"].map(|name| peers[0].create(&mut server, name));
    let away = |inode: &InodeNo| server.map.lane(server.map.data_shard(*inode, 0)) == LaneId(1);
    let inode = *inodes.iter().find(|inode| away(inode)).expect("one whose contents are elsewhere");
    let open = Open { caller: ROOT, inode, handle: HANDLE };
    assert_eq!(peers[0].ask(&mut server, Op::Open, 1, &open).head.status, Status::Ok);
    // A session's first change waits for its record.
    for file_offset in [0, 5] {
        let body =
            Write { inode, file_offset, append: false, clears: wire::ClearPrivileges::Nothing };
        let got = peers[1].ask_data(&mut server, (Op::Write, 2, inode), &body, Some(b"12345"));
        assert_eq!(got.head.status, Status::Ok);
    }
    let close = Close { inode, handle: HANDLE.id };
    assert_eq!(peers[0].ask(&mut server, Op::Close, 1, &close).head.status, Status::Ok);
    let attr = |server: &mut TestServer, peer: &mut Peer| {
        let got = peer.ask(server, Op::Getattr, 0, &Getattr { inode });
        Entry::decode_all(&got.body).unwrap().attr
    };
    assert!(attr(&mut server, &mut peers[0]).is_size_at_data());
    server.pass_ms(SYNC_MS);
    server.run();
    let attr = attr(&mut server, &mut peers[0]);
    assert_eq!((attr.is_size_at_data(), attr.size_bytes), (false, 10));
}

/// The lane with the contents completes a file's attributes: at once in replies to Setattr, and
/// with the exact space in replies to Getattr.
#[test]
fn attributes_are_complete_where_the_contents_are_known() {
    let mut harness = Harness::new(Rules::default());
    let inode = harness.inode;
    let set = Setattr {
        caller: ROOT,
        inode,
        mode: Some(0o640),
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        clears: wire::ClearPrivileges::Nothing,
    };
    harness.write(10, b"ab");
    assert_eq!(harness.attr((Op::Setattr, 3), &set), (false, 12));
    let (elsewhere, _) = harness.attr((Op::Getattr, 0), &Getattr { inode });
    assert!(elsewhere, "the space of what was just written is not known");
    harness.glimpse();
    assert_eq!(harness.attr((Op::Getattr, 0), &Getattr { inode }), (false, 12));
    harness.write(12, b"c");
    assert_eq!(harness.attr((Op::Setattr, 3), &set), (false, 13));

    let mut harness = Harness::sharing(Rules::default(), Share::Strict);
    harness.write(10, b"ab");
    let (elsewhere, _) = harness.attr((Op::Setattr, 3), &set);
    assert!(elsewhere, "a strict reader queries the size");
}

#[test]
fn a_batch_without_dependents_gathers() {
    let mut server = TestServer::new(82);
    server.limits.log_ms = 5;
    server.start(1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    // The session's first change waits for its record, so the batch is appended at once.
    peer.create(&mut server, "first");
    server.pass_ms(5);
    server.run();
    let batches = |server: &TestServer| server.counters(0).batch_count;
    let before = batches(&server);
    peer.create(&mut server, "second");
    peer.create(&mut server, "third");
    server.pass_ms(4);
    server.run();
    assert_eq!(batches(&server), before, "they were answered, and are not durable");
    assert!(server.lane(0).is_waiting(), "something goes on when time passes");
    server.pass_ms(1);
    server.run();
    assert_eq!(batches(&server), before + 1);
    assert!(!server.lane(0).is_waiting());
    peer.create(&mut server, "fourth");
    let head = peer.head(Op::Sync, InodeNo::ROOT.shard(), 0);
    peer.send(&mut server, &head, &[], None);
    server.run();
    assert_eq!(peer.replies(&mut server).len(), 1, "a batch with dependents is appended at once");
    assert_eq!(batches(&server), before + 2);
}

#[test]
fn a_size_that_cannot_be_made_durable_is_not_settled() {
    let mut harness = Harness::sharing(Rules::default(), Share::Strict);
    harness.write(10, b"abc");
    harness.server.failing.push((Kind::Sync, Errno(5)));
    harness.close();
    harness.server.pass_ms(SYNC_MS);
    harness.server.run();
    assert_eq!(harness.settled(), None);
    assert_eq!(harness.glimpse().size_bytes, 13);
}

#[test]
fn the_size_of_a_file_whose_writer_is_lost_is_that_of_its_bytes() {
    assert_eq!(Harness::new(Rules::default()).after_crash(), (10, 10));
}

#[cfg(feature = "removable-rules")]
#[test]
fn a_missing_size_flag_is_detected() {
    let unflagged = Rules::default().without(wire::Rule::SizeFlag);
    assert_eq!(Harness::new(unflagged).after_crash(), (0, 10));
}

/// A file is opened for writing by a Reopen, whose reply is lost with the server. When its resend is
/// answered the file is open for writing again, so another writer's close settles no size.
#[test]
fn a_reopen_that_is_sent_again_to_the_next_start_opens_the_file_there() {
    let mut harness = Harness::sharing(Rules::default(), Share::Strict);
    harness.close();
    assert_eq!(harness.settled(), Some(10));
    let Harness { server, writer, inode } = &mut harness;
    let (meta, handle) = (inode.shard(), Handle { id: HandleId(8), ..HANDLE });
    let head = writer.head(Op::Reopen, meta, 1);
    let reopen = Reopen { inode: *inode, handle }.to_bytes();
    writer.send(server, &head, &reopen, None);
    server.run();
    assert_eq!(writer.replies(server)[0].head.status, Status::Ok);
    server.crash_losing_all();
    server.start(1);
    server.run();
    let fields = HelloFields { conn_epoch: 2, ..HelloFields::new(1) };
    let mut again = Peer { xid: writer.xid, ..Peer::new(server, &fields) };
    again.come_back(server, server.map.data_shard(*inode, 0));
    let done = again.head(Op::ReplayDone, meta, 0);
    again.send(server, &done, &ReplayDone { reopen_count: 1 }.to_bytes(), None);
    let resent = Request { conn_epoch: 2, flags: request_flag::RESENT, ..head };
    again.send(server, &resent, &reopen, None);
    server.run();
    assert!(server.lane(0).recovery.is_over());
    assert!(again.replies(server).iter().all(|reply| reply.head.status == Status::Ok));
    harness.writer = again;
    harness.open();
    harness.close();
    assert_eq!(harness.settled(), None, "it is open for writing");
    harness.write(10, b"abcdefghij");
    assert_eq!(harness.sync().head.status, Status::Ok);
    let Harness { server, writer, inode } = &mut harness;
    let close = Close { inode: *inode, handle: handle.id };
    assert_eq!(writer.ask(server, Op::Close, 1, &close).head.status, Status::Ok);
    assert_eq!(harness.settled(), Some(20));
}

/// Replays make files longer: a lane in recovery sends no size.
#[test]
fn a_lane_in_recovery_sends_no_size() {
    let Harness { mut server, inode, .. } = Harness::new(Rules::default());
    server.crash_losing_all();
    server.start(1);
    server.run();
    assert!(!server.lane(0).recovery.is_over(), "the writer is waited for");
    let query = PeerBody::QueryContents { inode, number: 1, spread: None, is_fresh: false };
    server.apply_message(0, &query);
    server.run();
    assert!(server.lane(0).waiters.answers.has_no_sizes(), "nothing was looked up");
    assert_eq!(server.lane(0).recovery.sizings.len(), 1);
    server.pass_ms(100_000);
    server.run();
    assert!(server.lane(0).recovery.is_over() && server.lane(0).recovery.sizings.is_empty());
}
