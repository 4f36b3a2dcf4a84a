//! The size that a metadata shard tells of a file never outlives the bytes it speaks of.

use super::peer::{Got, Peer, ROOT, Who};
use crate::Share;
use crate::toy::{Kind, Toy};
use door::Errno;
use wire::Rules;
use wire::{
    Close, Contents, Entry, Getattr, Glimpse, Glimpsed, Handle, HandleId, InodeNo, Op, Open, Read,
    SetTime, Setattr, Status, Wire, Write, attr_flag,
};

/// A file with ten durable bytes that a client has open for writing.
struct Rig {
    toy: Toy,
    writer: Peer,
    inode: InodeNo,
}

/// As [`crate::Limits::default`] has it.
const SYNC_MS: u64 = 50;
const HANDLE: Handle = Handle { id: HandleId(7), write: true };

impl Rig {
    fn new(rules: Rules) -> Self {
        Self::sharing(rules, Share::Write)
    }

    fn sharing(rules: Rules, share: Share) -> Self {
        let mut toy = Toy::new(81);
        toy.rules = rules;
        toy.limits.share = share;
        toy.start(1);
        let mut writer = Peer::new(&mut toy, &Who::new(1));
        let inode = writer.create(&mut toy, "f");
        let open = Open { caller: ROOT, inode, read: true, execute: false, handle: HANDLE };
        assert_eq!(writer.ask(&mut toy, Op::Open, 1, &open).head.status, Status::Ok);
        let mut rig = Self { toy, writer, inode };
        rig.write(0, b"0123456789");
        assert_eq!(rig.sync().head.status, Status::Ok);
        rig
    }

    fn write(&mut self, file_offset: u64, bytes: &[u8]) {
        let Self { toy, writer, inode } = self;
        let body =
            Write { inode: *inode, file_offset, append: false, takes: wire::Revoke::Nothing };
        let got = writer.ask_data(toy, (Op::Write, 2, *inode), &body, Some(bytes));
        assert_eq!(got.head.status, Status::Ok);
    }

    fn sync(&mut self) -> Got {
        let head = self.writer.head(Op::Sync, self.toy.map.data_shard(self.inode, 0), 0);
        self.writer.send(&mut self.toy, &head, &[], None);
        self.toy.run();
        self.writer.replies(&mut self.toy).pop().unwrap()
    }

    /// One that waits until everything is durable may have to wait until its time comes.
    fn glimpse(&mut self, durable: bool) -> Result<Contents, Status> {
        let Self { toy, writer, inode } = self;
        let head = writer.head(Op::Glimpse, toy.map.data_shard(*inode, 0), 0);
        let body = Glimpse { inode: *inode, durable };
        writer.send(toy, &head, &body.to_bytes(), None);
        toy.run();
        toy.pass_ms(if durable { SYNC_MS } else { 0 });
        toy.run();
        let got = writer.replies(toy).pop().expect("a reply to Glimpse");
        if got.head.status != Status::Ok {
            return Err(got.head.status);
        }
        Ok(Glimpsed::decode_all(&got.body).unwrap().contents)
    }

    /// What a request for attributes says: whether the size is elsewhere, and which it is.
    fn attr<'a>(&mut self, (op, slot): (Op, u16), body: &impl Wire<'a>) -> (bool, u64) {
        let got = self.writer.ask(&mut self.toy, op, slot, body);
        assert_eq!(got.head.status, Status::Ok);
        let attr = Entry::decode_all(&got.body).unwrap().attr;
        (attr.is_size_at_data(), attr.size_bytes)
    }

    fn close(&mut self, settle: Contents) {
        let Self { toy, writer, inode } = self;
        let close = Close { inode: *inode, handle: HANDLE.id, settle: Some(settle) };
        assert_eq!(writer.ask(toy, Op::Close, 1, &close).head.status, Status::Ok);
    }

    /// After a crash of the server that the writer does not outlive: the size that another client
    /// is told, and how many bytes there are.
    fn after_crash(mut self) -> (u64, u64) {
        self.toy.crash_losing_all();
        self.toy.start(1);
        self.toy.run();
        let Self { mut toy, inode, .. } = self;
        let mut peer = Peer::new(&mut toy, &Who::new(2));
        toy.pass_ms(10_000);
        toy.run();
        let got = peer.ask(&mut toy, Op::Getattr, 0, &Getattr { inode });
        let attr = Entry::decode_all(&got.body).unwrap().attr;
        let body = Glimpse { inode, durable: false };
        let got = peer.ask_data(&mut toy, (Op::Glimpse, 0, inode), &body, None);
        let contents = Glimpsed::decode_all(&got.body).unwrap().contents;
        let at_data = attr.flags & attr_flag::SIZE_AT_DATA != 0;
        let body = Read { inode, file_offset: 0, read_bytes: 1000, accesses: true };
        let got = peer.ask_data(&mut toy, (Op::Read, 0, inode), &body, None);
        let told_bytes = if at_data { contents.size_bytes } else { attr.size_bytes };
        (told_bytes, got.bulk.len() as u64)
    }
}

/// Settled with what a glimpse says that does not wait, the size is one of bytes that are lost;
/// with one that waits it never is.
#[test]
fn a_settled_size_is_one_of_bytes_that_are_there() {
    for (durable, after) in [(false, (20, 10)), (true, (20, 20))] {
        let mut rig = Rig::new(Rules::default());
        rig.write(10, b"abcdefghij");
        let contents = rig.glimpse(durable).unwrap();
        assert_eq!(contents.size_bytes, 20);
        rig.close(contents);
        assert_eq!(rig.after_crash(), after, "durable: {durable}");
    }
}

#[test]
fn who_asks_for_a_durable_size_waits_only_if_there_is_something_to_wait_for() {
    let mut rig = Rig::new(Rules::default());
    let before = rig.toy.counters(0);
    rig.glimpse(true).unwrap();
    assert_eq!(rig.toy.counters(0).gates.held_self_count, before.gates.held_self_count);
    rig.write(10, b"a");
    rig.glimpse(true).unwrap();
    let after = rig.toy.counters(0);
    assert_eq!(after.gates.held_self_count, before.gates.held_self_count + 1);
    assert_eq!(after.batch_count, before.batch_count + 1);
    rig.write(11, b"a");
    rig.glimpse(false).unwrap();
    assert_eq!(rig.toy.counters(0).batch_count, after.batch_count);
}

/// Nobody waits for a close: what was written becomes durable when its time comes, not earlier.
#[test]
fn a_durable_size_hurries_nobody_and_a_sync_does() {
    let mut rig = Rig::new(Rules::default());
    rig.write(10, b"a");
    let before = rig.toy.counters(0).batch_count;
    let head = rig.writer.head(Op::Glimpse, rig.toy.map.data_shard(rig.inode, 0), 0);
    let body = Glimpse { inode: rig.inode, durable: true }.to_bytes();
    rig.writer.send(&mut rig.toy, &head, &body, None);
    rig.toy.run();
    assert!(rig.writer.replies(&mut rig.toy).is_empty());
    assert_eq!(rig.toy.counters(0).batch_count, before);
    let head = rig.writer.head(Op::Sync, rig.toy.map.data_shard(rig.inode, 0), 0);
    rig.writer.send(&mut rig.toy, &head, &[], None);
    rig.toy.run();
    assert_eq!(rig.writer.replies(&mut rig.toy).len(), 2, "both are told");
    assert_eq!(rig.toy.counters(0).batch_count, before + 1);
}

/// The lane that has the contents completes what is told of a file: attributes that are set at
/// once, those that are asked for when the space is known as it is now.
#[test]
fn attributes_are_complete_where_the_contents_are_known() {
    let mut rig = Rig::new(Rules::default());
    let inode = rig.inode;
    let set = Setattr {
        caller: ROOT,
        inode,
        mode: Some(0o640),
        uid: None,
        gid: None,
        atime: SetTime::Keep,
        mtime: SetTime::Keep,
        revoke: wire::Revoke::Nothing,
    };
    rig.write(10, b"ab");
    assert_eq!(rig.attr((Op::Setattr, 3), &set), (false, 12));
    let (elsewhere, _) = rig.attr((Op::Getattr, 0), &Getattr { inode });
    assert!(elsewhere, "the space of what was just written is not known");
    rig.glimpse(false).unwrap();
    assert_eq!(rig.attr((Op::Getattr, 0), &Getattr { inode }), (false, 12));
    rig.write(12, b"c");
    assert_eq!(rig.attr((Op::Setattr, 3), &set), (false, 13));

    let mut rig = Rig::sharing(Rules::default(), Share::Strict);
    rig.write(10, b"ab");
    let (elsewhere, _) = rig.attr((Op::Setattr, 3), &set);
    assert!(elsewhere, "who may not be shown what may be lost asks for it");
}

#[test]
fn a_batch_that_nobody_waits_for_gathers() {
    let mut toy = Toy::new(82);
    toy.limits.log_ms = 5;
    toy.start(1);
    let mut peer = Peer::new(&mut toy, &Who::new(1));
    // The session's first change waits for its record, so it is not kept waiting.
    peer.create(&mut toy, "first");
    toy.pass_ms(5);
    toy.run();
    let batches = |toy: &Toy| toy.counters(0).batch_count;
    let before = batches(&toy);
    peer.create(&mut toy, "second");
    peer.create(&mut toy, "third");
    toy.pass_ms(4);
    toy.run();
    assert_eq!(batches(&toy), before, "they were answered, and are not durable");
    assert!(toy.lane(0).is_waiting(), "something goes on when time passes");
    toy.pass_ms(1);
    toy.run();
    assert_eq!(batches(&toy), before + 1);
    assert!(!toy.lane(0).is_waiting());
    peer.create(&mut toy, "fourth");
    let head = peer.head(Op::Sync, InodeNo::ROOT.shard(), 0);
    peer.send(&mut toy, &head, &[], None);
    toy.run();
    assert_eq!(peer.replies(&mut toy).len(), 1, "who waits is not kept waiting");
    assert_eq!(batches(&toy), before + 2);
}

#[test]
fn a_size_that_cannot_be_made_durable_is_not_told_to_who_would_settle_it() {
    let mut rig = Rig::new(Rules::default());
    rig.write(10, b"abc");
    rig.toy.failing.push((Kind::Sync, Errno(5)));
    assert_eq!(rig.glimpse(true), Err(Status::Io));
    assert_eq!(rig.glimpse(true), Err(Status::Io), "fenced");
    assert_eq!(rig.glimpse(false).map(|contents| contents.size_bytes), Ok(13));
}

#[test]
fn the_size_of_a_file_whose_writer_is_gone_is_that_of_its_bytes() {
    assert_eq!(Rig::new(Rules::default()).after_crash(), (10, 10));
}

#[cfg(feature = "planted")]
#[test]
fn a_size_that_is_not_flagged_as_elsewhere_is_noticed() {
    let unflagged = Rules::default().without(wire::Rule::SizeFlag);
    assert_eq!(Rig::new(unflagged).after_crash(), (0, 10));
}
