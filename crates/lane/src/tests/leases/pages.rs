//! Pages: what a read leaves in a page cache, and the changes of contents that wait for it.

use super::*;
use alloc::vec;
use wire::{
    Allocate, Allocation, ClearPrivileges, Piece, Pieces, Read, Truncate, Write, WriteList,
};

const CLEARS: ClearPrivileges = ClearPrivileges::Nothing;

impl Holder {
    fn send_read(&mut self, server: &mut TestServer, inode: InodeNo, flags: u16) {
        let read = Read { inode, file_offset: 0, read_bytes: 4096, accesses: false };
        let shard = server.map.data_shard(inode, 0);
        self.send_to(server, (Op::Read, shard, 0), flags, &read);
        server.run();
    }

    /// Reads for a page cache. Returns what is granted.
    pub(super) fn read_pages(&mut self, server: &mut TestServer, inode: InodeNo) -> u8 {
        self.send_read(server, inode, request_flag::LEASES);
        let reply = self.reply(server);
        assert_eq!(reply.head.status, Status::Ok);
        reply.granted()
    }

    pub(super) fn send_change<'a>(
        &mut self,
        server: &mut TestServer,
        (op, flags, inode): (Op, u16, InodeNo),
        body: &impl Wire<'a>,
        bytes: Option<&[u8]>,
    ) {
        let shard = server.map.data_shard(inode, 0);
        let head = Request { flags, ..self.peer.head(op, shard, 1) };
        self.peer.send(server, &head, &body.to_bytes(), bytes);
        server.run();
    }

    pub(super) fn send_write(&mut self, server: &mut TestServer, inode: InodeNo, flags: u16) {
        let write = Write { inode, file_offset: 0, append: false, clears: CLEARS };
        self.send_change(server, (Op::Write, flags, inode), &write, Some(b"abcd"));
    }

    pub(super) fn written(&mut self, server: &mut TestServer) {
        assert!(self.has_reply(server), "it is answered");
        assert_eq!(self.reply(server).head.status, Status::Ok);
    }
}

/// A file with bytes, a client that has its pages, and the one that made it.
pub(super) fn scene(seed: u64) -> (TestServer, Holder, Holder, InodeNo) {
    let mut server = started(seed);
    let (mut writer, mut holder, file) = two(&mut server);
    writer.send_write(&mut server, file, 0);
    writer.written(&mut server);
    assert_eq!(holder.read_pages(&mut server, file), lease_flag::CONTENTS);
    (server, holder, writer, file)
}

#[test]
fn each_change_of_contents_waits_until_pages_are_dropped() {
    for op in [Op::Write, Op::WriteList, Op::Truncate, Op::Allocate] {
        let (mut server, mut holder, mut writer, inode) = scene(61);
        let change = (op, 0, inode);
        match op {
            Op::Write => writer.send_write(&mut server, inode, 0),
            Op::WriteList => {
                let pieces = Pieces::new(vec![Piece { file_offset: 0, piece_bytes: 4 }]).unwrap();
                let list = WriteList { inode, pieces, clears: CLEARS };
                writer.send_change(&mut server, change, &list, Some(b"efgh"));
            }
            Op::Truncate => {
                let truncate = Truncate { inode, size_bytes: 1 };
                writer.send_change(&mut server, change, &truncate, None);
            }
            _ => {
                let (file_offset, range_bytes) = (0, 2);
                let (allocation, keep_size) = (Allocation::Zero, true);
                let clears = CLEARS;
                let allocate =
                    Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
                writer.send_change(&mut server, change, &allocate, None);
            }
        }
        assert_eq!(holder.recalled(&mut server), BTreeSet::from([Key::Pages(inode)]), "{op:?}");
        assert!(!writer.has_reply(&mut server), "{op:?} waits");
        holder.ack(&mut server);
        writer.written(&mut server);
        writer.send_write(&mut server, inode, 0);
        writer.written(&mut server);
    }
}

#[test]
fn only_a_read_for_a_page_cache_gets_pages_and_its_client_may_write() {
    let (mut server, mut holder, mut writer, file) = scene(62);
    writer.send_read(&mut server, file, 0);
    assert_eq!(writer.reply(&mut server).granted(), 0);
    holder.send_write(&mut server, file, 0);
    holder.written(&mut server);
    assert!(writer.recalled(&mut server).is_empty());
}

#[test]
fn a_change_waits_no_longer_than_the_term() {
    let (mut server, _, mut writer, file) = scene(63);
    writer.send_write(&mut server, file, 0);
    server.pass_ms(9_000);
    assert!(!writer.has_reply(&mut server));
    server.pass_ms(1_000);
    writer.written(&mut server);
}

#[test]
fn a_read_beside_a_change_that_waits_is_answered_and_recalled_behind_its_reply() {
    let (mut server, mut holder, mut writer, file) = scene(64);
    writer.send_write(&mut server, file, 0);
    let mut third = Holder::new(&mut server, 3);
    assert_eq!(third.read_pages(&mut server, file), lease_flag::CONTENTS);
    assert_eq!(third.recalled(&mut server), BTreeSet::from([Key::Pages(file)]));
    // The holder has read another page before it heard of the recall.
    assert_eq!(holder.read_pages(&mut server, file), lease_flag::CONTENTS);
    holder.ack(&mut server);
    assert!(!writer.has_reply(&mut server), "the third client has a page");
    third.ack(&mut server);
    writer.written(&mut server);
}

#[test]
fn a_page_that_is_read_after_the_recall_has_a_lease_that_its_acknowledgement_does_not_end() {
    let (mut server, mut holder, mut writer, file) = scene(65);
    writer.send_write(&mut server, file, 0);
    holder.collect(&mut server);
    let first: Vec<RecallNo> = holder.recalls.drain(..).map(|recall| recall.recall_no).collect();
    assert_eq!(holder.read_pages(&mut server, file), lease_flag::CONTENTS);
    holder.send_ack(&mut server, &first, LeaseNo(0));
    assert!(!writer.has_reply(&mut server), "the page that was read last");
    holder.ack(&mut server);
    writer.written(&mut server);
}

#[test]
fn reads_that_go_on_delay_a_change_for_a_term_and_a_half_at_most() {
    let (mut server, mut holder, mut writer, file) = scene(66);
    writer.send_write(&mut server, file, 0);
    for second in 0..15 {
        assert!(!writer.has_reply(&mut server), "{second} s");
        holder.read_pages(&mut server, file);
        server.pass_ms(1_000);
    }
    writer.written(&mut server);
}

#[test]
fn what_is_written_back_while_pages_are_recalled_waits_for_nobody() {
    let (mut server, mut holder, mut writer, file) = scene(67);
    assert_eq!(writer.read_pages(&mut server, file), lease_flag::CONTENTS);
    let mut third = Holder::new(&mut server, 3);
    third.send_write(&mut server, file, 0);
    // Both have stored to their pages, and write them back before they drop them.
    for client in [&mut holder, &mut writer] {
        client.send_write(&mut server, file, request_flag::WRITE_BACK);
        client.written(&mut server);
        assert!(!third.has_reply(&mut server));
        client.ack(&mut server);
    }
    third.written(&mut server);
}

#[test]
fn what_is_written_back_otherwise_waits_as_any_change() {
    let (mut server, mut holder, mut writer, file) = scene(68);
    writer.send_write(&mut server, file, request_flag::WRITE_BACK);
    assert!(!writer.has_reply(&mut server));
    holder.ack(&mut server);
    writer.written(&mut server);
}

#[test]
fn pages_that_are_recalled_at_once_again_and_again_are_recalled_behind_the_reply() {
    let (mut server, mut holder, mut writer, file) = scene(69);
    for _ in 0..2 {
        writer.send_write(&mut server, file, 0);
        holder.ack(&mut server);
        writer.written(&mut server);
        assert_eq!(holder.read_pages(&mut server, file), lease_flag::CONTENTS);
    }
    assert_eq!(holder.recalled(&mut server), BTreeSet::from([Key::Pages(file)]));
    holder.ack(&mut server);
    writer.send_write(&mut server, file, 0);
    writer.written(&mut server);
}

#[test]
fn a_client_that_no_recovery_awaits_drops_its_pages_behind_the_reply() {
    let (mut server, _, _, file) = scene(70);
    // What was written is recorded, so that a session can be.
    server.pass_ms(50);
    server.run();
    let mut unknown = Holder::unknown(&mut server, HelloFields::new(9));
    assert_eq!(unknown.read_pages(&mut server, file), 0);
    assert_eq!(unknown.recalled(&mut server), BTreeSet::from([Key::Pages(file)]));
    server.run();
    assert_eq!(unknown.read_pages(&mut server, file), lease_flag::CONTENTS, "it is recorded");
}
