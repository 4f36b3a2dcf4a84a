//! Files that nobody writes any more, and whose bytes are not durable yet.

use super::*;

const OPENED: u8 = lease_flag::ATTRIBUTES | lease_flag::CONTENTS;
/// Longer than bytes stay unstable.
const SETTLED_MS: u64 = 100;

impl Holder {
    /// Opens a file for writing, which is recalled from another client.
    fn begin(&mut self, server: &mut TestServer, inode: InodeNo, other: &mut Self) -> HandleId {
        let handle = Handle { id: HandleId(100 + self.handle_count), open_for: OpenFor::Write };
        self.handle_count += 1;
        self.send(server, Op::Open, 1, &wire::Open { caller: ROOT, inode, handle });
        server.run();
        other.ack(server);
        assert_eq!(self.reply(server).head.status, Status::Ok);
        handle.id
    }

    /// Opens a file, writes four bytes, and closes it.
    fn write(&mut self, server: &mut TestServer, file: InodeNo, other: &mut Self) {
        let handle = self.begin(server, file, other);
        self.send_write(server, file, 0);
        self.written(server);
        self.close(server, file, handle);
    }

    fn close(&mut self, server: &mut TestServer, inode: InodeNo, handle: HandleId) {
        let closed = self.ask(server, Op::Close, 1, &wire::Close { inode, handle });
        assert_eq!(closed.head.status, Status::Ok);
    }

    /// What is granted to open a file, and its size where the reply has it.
    fn opened(&mut self, server: &mut TestServer, file: InodeNo) -> (u8, Option<u64>) {
        let opened = self.open(server, file, OpenFor::Read);
        assert_eq!(opened.head.status, Status::Ok);
        let attr = Entry::decode_all(&opened.message).unwrap().attr;
        (opened.granted(), (!attr.is_size_at_data()).then_some(attr.size_bytes))
    }
}

/// A file that nobody has written, and two clients that have written before: the record of a client's
/// first write is durable at once.
fn two_writers(seed: u64) -> (TestServer, Holder, Holder, InodeNo) {
    let mut server = started(seed);
    let mut maker = Peer::new(&mut server, &HelloFields::new(3));
    let [file, mine, yours] = ["f", "g", "h"].map(|text| maker.create(&mut server, text));
    let (mut first, mut second) = (Holder::new(&mut server, 1), Holder::new(&mut server, 2));
    first.write(&mut server, mine, &mut second);
    second.write(&mut server, yours, &mut first);
    (server, first, second, file)
}

#[test]
fn a_file_is_granted_to_its_only_writer_when_it_is_closed() {
    let (mut server, mut writer, mut reader, file) = two_writers(81);
    writer.write(&mut server, file, &mut reader);
    assert_eq!(reader.opened(&mut server, file), (0, Some(4)), "it does not write them again");
    assert_eq!(writer.opened(&mut server, file), (OPENED, Some(4)));
    assert_eq!(writer.getattr(&mut server, file).granted(), lease_flag::ATTRIBUTES);
    server.pass_ms(SETTLED_MS);
    server.run();
    assert_eq!(reader.opened(&mut server, file), (OPENED, Some(4)));
    assert_eq!(writer.opened(&mut server, file), (OPENED, Some(4)));
}

#[test]
fn what_its_only_writer_is_granted_is_recalled() {
    let (mut server, mut writer, mut other, file) = two_writers(82);
    writer.write(&mut server, file, &mut other);
    assert_eq!(writer.opened(&mut server, file).0, OPENED);
    let handle = Handle { id: HandleId(50), open_for: OpenFor::Write };
    other.send(&mut server, Op::Open, 1, &wire::Open { caller: ROOT, inode: file, handle });
    server.run();
    let recalled = BTreeSet::from([Key::Attributes(file), Key::Contents(file)]);
    assert_eq!(writer.recalled(&mut server), recalled);
    assert!(!other.has_reply(&mut server));
    writer.ack(&mut server);
    assert_eq!(other.reply(&mut server).head.status, Status::Ok);
    assert_eq!(writer.opened(&mut server, file).0, 0, "another client writes it");
}

#[test]
fn a_file_of_two_writers_is_granted_when_it_is_settled() {
    let (mut server, mut first, mut second, file) = two_writers(83);
    let before = first.begin(&mut server, file, &mut second);
    first.send_write(&mut server, file, 0);
    first.written(&mut server);
    let handles = [before, second.begin(&mut server, file, &mut first)];
    second.close(&mut server, file, handles[1]);
    first.close(&mut server, file, handles[0]);
    for holder in [&mut first, &mut second] {
        assert_eq!(holder.opened(&mut server, file).0, 0, "the other one may have written");
    }
    // Opening it again makes nobody the only writer.
    first.write(&mut server, file, &mut second);
    assert_eq!(first.opened(&mut server, file).0, 0);
    server.pass_ms(SETTLED_MS);
    server.run();
    for holder in [&mut first, &mut second] {
        assert_eq!(holder.opened(&mut server, file).0, OPENED);
    }
}

#[test]
fn who_writes_again_before_a_file_is_settled_is_still_its_only_writer() {
    let (mut server, mut writer, mut other, file) = two_writers(84);
    for _ in 0..3 {
        writer.write(&mut server, file, &mut other);
        assert_eq!(other.opened(&mut server, file).0, 0);
    }
    assert_eq!(writer.opened(&mut server, file).0, OPENED);
}

#[test]
fn the_attributes_of_a_settled_file_ride_on_a_later_reply_to_who_holds_them() {
    let (mut server, mut writer, mut other, file) = two_writers(85);
    writer.write(&mut server, file, &mut other);
    assert_eq!(writer.lookup(&mut server, "g").further(file), None, "it is not settled");
    server.pass_ms(SETTLED_MS);
    server.run();
    let told = writer.lookup(&mut server, "g").further(file);
    assert_eq!(told.map(|attr| (attr.is_size_at_data(), attr.size_bytes)), Some((false, 4)));
    assert_eq!(writer.lookup(&mut server, "g").further(file), None, "it is told once");
    other.send(&mut server, Op::Setattr, 1, &chmod(file, 0o600));
    server.run();
    assert_eq!(writer.recalled(&mut server), BTreeSet::from([Key::Attributes(file)]));
}

#[test]
fn who_has_lost_the_attributes_of_a_settled_file_is_not_told_them() {
    let (mut server, mut writer, mut other, file) = two_writers(86);
    writer.write(&mut server, file, &mut other);
    server.pass_ms(SETTLED_MS);
    server.run();
    other.send(&mut server, Op::Setattr, 1, &chmod(file, 0o600));
    server.run();
    writer.ack(&mut server);
    assert_eq!(other.reply(&mut server).head.status, Status::Ok);
    assert_eq!(writer.lookup(&mut server, "g").further(file), None);
    assert_eq!(other.lookup(&mut server, "g").further(file), None);
}

#[test]
fn a_size_is_settled_behind_a_change_that_waits_for_pages() {
    let (mut server, mut holder, mut writer, file) = super::pages::scene(87);
    let handle = writer.begin(&mut server, file, &mut holder);
    assert!(holder.read_pages(&mut server, file) & lease_flag::CONTENTS != 0);
    let truncate = wire::Truncate { inode: file, size_bytes: 2 };
    writer.send_change(&mut server, (Op::Truncate, 0, file), &truncate, None);
    assert!(!writer.has_reply(&mut server));
    // Its program was killed.
    writer.close(&mut server, file, handle);
    server.pass_ms(SETTLED_MS);
    server.run();
    holder.ack(&mut server);
    writer.written(&mut server);
    server.pass_ms(SETTLED_MS);
    server.run();
    assert_eq!(writer.opened(&mut server, file).1, Some(2));
}
