//! Write leases of files that were there before: who alone opens one for writing may write it behind.

use super::writing::BEHIND;
use super::*;
use wire::{ClearPrivileges, Close, Write};

const WRITING: u8 = lease_flag::WRITING;

impl Holder {
    /// Opens a file for writing, and asks to write it behind. Returns whether that is granted.
    fn open_behind(&mut self, server: &mut TestServer, inode: InodeNo, id: u64) -> bool {
        self.send_open_behind(server, inode, id);
        assert!(self.has_reply(server));
        let opened = self.reply(server);
        assert_eq!(opened.head.status, Status::Ok);
        opened.granted() & WRITING != 0
    }

    fn send_open_behind(&mut self, server: &mut TestServer, inode: InodeNo, id: u64) {
        let handle = Handle { id: HandleId(id), open_for: OpenFor::Write };
        let open = wire::Open { caller: ROOT, inode, handle };
        self.send_to(server, (Op::Open, inode.shard(), 2), BEHIND, &open);
        server.run();
    }

    fn close_handle(&mut self, server: &mut TestServer, inode: InodeNo, id: u64) {
        let close = Close { inode, handle: HandleId(id) };
        assert_eq!(self.ask(server, Op::Close, 1, &close).head.status, Status::Ok);
    }

    /// Appends four bytes behind, where the file ends so.
    fn append_behind(&mut self, server: &mut TestServer, inode: InodeNo, end: u64) -> Status {
        let (append, clears) = (true, ClearPrivileges::Nothing);
        let write = Write { inode, file_offset: end, append, clears };
        let shard = server.map.data_shard(inode, 0);
        let flags = request_flag::BEHIND;
        let head = Request { flags, ..self.peer.head(Op::Write, shard, 1) };
        self.peer.send(server, &head, &write.to_bytes(), Some(b"abcd"));
        assert!(self.has_reply(server));
        self.reply(server).head.status
    }
}

/// A file that nobody has open, and two clients.
fn scene(seed: u64) -> (TestServer, Holder, Holder, InodeNo) {
    let mut server = started(seed);
    let mut writer = Holder::new(&mut server, 1);
    let other = Holder::new(&mut server, 2);
    let file = writer.create(&mut server, "f");
    // The first one asks for the free space.
    assert!(!writer.open_behind(&mut server, file, 900), "the free space is not known");
    writer.close_handle(&mut server, file, 900);
    (server, writer, other, file)
}

#[test]
fn who_alone_opens_a_file_may_write_it_behind_until_another_one_looks() {
    let (mut server, mut writer, mut other, file) = scene(181);
    assert!(writer.open_behind(&mut server, file, 901));
    assert_eq!(writer.append_behind(&mut server, file, 0), Status::Ok);
    let getattr = Getattr { inode: file };
    other.send(&mut server, Op::Getattr, 0, &getattr);
    assert!(!other.has_reply(&mut server));
    assert!(writer.recalled(&mut server).contains(&Key::Writing(file)));
    writer.ack(&mut server);
    assert!(other.has_reply(&mut server));
    // A further open by the same client gets none: another handle writes already.
    assert!(!writer.open_behind(&mut server, file, 902));
    writer.close_handle(&mut server, file, 901);
    writer.close_handle(&mut server, file, 902);
    server.pass_ms(2_000);
    assert!(writer.open_behind(&mut server, file, 903), "it is alone again");
}

#[test]
fn nobody_gets_it_while_another_client_has_the_file_open() {
    for open_for in [OpenFor::Read, OpenFor::Write] {
        let (mut server, mut writer, mut other, file) = scene(182);
        let handle = Handle { id: HandleId(1), open_for };
        let open = wire::Open { caller: ROOT, inode: file, handle };
        other.send(&mut server, Op::Open, 1, &open);
        if !other.has_reply(&mut server) {
            writer.ack(&mut server);
        }
        assert_eq!(other.reply(&mut server).head.status, Status::Ok);
        // What it caches of an open file is recalled first.
        writer.send_open_behind(&mut server, file, 901);
        if !writer.has_reply(&mut server) {
            other.ack(&mut server);
        }
        assert!(writer.has_reply(&mut server));
        assert_eq!(writer.reply(&mut server).granted() & WRITING, 0);
    }
}

#[test]
fn a_late_acknowledgement_does_not_end_a_later_lease() {
    let (mut server, mut writer, mut other, file) = scene(183);
    assert!(writer.open_behind(&mut server, file, 901));
    other.send(&mut server, Op::Getattr, 0, &Getattr { inode: file });
    assert!(!other.has_reply(&mut server));
    assert!(writer.recalled(&mut server).contains(&Key::Writing(file)));
    writer.close_handle(&mut server, file, 901);
    assert!(other.has_reply(&mut server), "the close has ended it");
    assert_eq!(other.reply(&mut server).head.status, Status::Ok);
    writer.send_open_behind(&mut server, file, 902);
    other.ack(&mut server);
    assert!(writer.has_reply(&mut server));
    assert!(writer.reply(&mut server).granted() & WRITING != 0);
    writer.ack(&mut server);
    other.send(&mut server, Op::Getattr, 0, &Getattr { inode: file });
    assert!(!other.has_reply(&mut server), "the later one is held");
    // Nor does the term of the earlier recall end it.
    writer.ack(&mut server);
    assert!(other.has_reply(&mut server));
}

#[test]
fn who_was_fenced_gets_none_of_that_file() {
    let (mut server, mut writer, mut other, file) = scene(184);
    assert!(writer.open_behind(&mut server, file, 901));
    other.send(&mut server, Op::Getattr, 0, &Getattr { inode: file });
    assert!(!other.has_reply(&mut server));
    server.pass_ms(10_000);
    assert!(other.has_reply(&mut server));
    assert_eq!(writer.append_behind(&mut server, file, 0), Status::Stale, "it is too late");
    writer.close_handle(&mut server, file, 901);
    assert!(!writer.open_behind(&mut server, file, 902), "its late writes are still refused");
}

#[test]
fn a_file_with_two_names_gets_none() {
    let (mut server, mut writer, _, file) = scene(185);
    let link = wire::Link { caller: ROOT, inode: file, parent: InodeNo::ROOT, name: name("g") };
    assert_eq!(writer.ask(&mut server, Op::Link, 1, &link).head.status, Status::Ok);
    assert!(!writer.open_behind(&mut server, file, 901));
}
