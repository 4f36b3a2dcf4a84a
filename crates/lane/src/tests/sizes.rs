//! The size that a metadata shard tells of a file never outlives the bytes it speaks of.

use super::peer::{Got, Peer, ROOT, Who};
use crate::toy::{Kind, Toy};
use door::Errno;
use wire::Rules;
use wire::{
    Close, Contents, Entry, Getattr, Glimpse, Glimpsed, Handle, HandleId, InodeNo, Op, Open, Read,
    Status, Wire, Write, attr_flag,
};

/// A file with ten durable bytes that a client has open for writing.
struct Rig {
    toy: Toy,
    writer: Peer,
    inode: InodeNo,
}

const HANDLE: Handle = Handle { id: HandleId(7), write: true };

impl Rig {
    fn new(rules: Rules) -> Self {
        let mut toy = Toy::new(81);
        toy.rules = rules;
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
        let body = Write { inode: *inode, file_offset, append: false };
        let got = writer.ask_data(toy, (Op::Write, 2, *inode), &body, Some(bytes));
        assert_eq!(got.head.status, Status::Ok);
    }

    fn sync(&mut self) -> Got {
        let head = self.writer.head(Op::Sync, self.toy.map.data_shard(self.inode, 0), 0);
        self.writer.send(&mut self.toy, &head, &[], None);
        self.toy.run();
        self.writer.replies(&mut self.toy).pop().unwrap()
    }

    fn glimpse(&mut self, durable: bool) -> Result<Contents, Status> {
        let Self { toy, writer, inode } = self;
        let body = Glimpse { inode: *inode, durable };
        let got = writer.ask_data(toy, (Op::Glimpse, 0, *inode), &body, None);
        if got.head.status != Status::Ok {
            return Err(got.head.status);
        }
        Ok(Glimpsed::decode_all(&got.body).unwrap().contents)
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
    assert_eq!(after.batch_count, before.batch_count + 1, "hurried");
    rig.write(11, b"a");
    rig.glimpse(false).unwrap();
    assert_eq!(rig.toy.counters(0).batch_count, after.batch_count);
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
