//! Write leases: others see a new file when its creator has written what it answered early.

use super::*;
use wire::{ClearPrivileges, Close, Glimpse, Reopen, ReplayDone, Write};

pub(super) const BEHIND: u16 = request_flag::LEASES | request_flag::BEHIND;

impl Holder {
    /// Creates a file and opens it for writing. Returns what is granted.
    fn create_behind(&mut self, server: &mut TestServer, text: &str) -> (InodeNo, u8) {
        let handle = Some(Handle { id: HandleId(900), open_for: OpenFor::Write });
        let body = wire::Create { handle, ..create(text) };
        self.send_to(server, (Op::Create, InodeNo::ROOT.shard(), 1), BEHIND, &body);
        server.run();
        let made = self.reply(server);
        (Created::decode_all(&made.message).unwrap().attr.inode, made.granted())
    }

    /// Writes behind at an offset. Returns the outcome.
    fn write_behind(
        &mut self,
        server: &mut TestServer,
        inode: InodeNo,
        file_offset: u64,
    ) -> Status {
        let (append, clears) = (true, ClearPrivileges::Nothing);
        let write = Write { inode, file_offset, append, clears };
        let flags = request_flag::BEHIND;
        let shard = server.map.data_shard(inode, 0);
        let head = Request { flags, ..self.peer.head(Op::Write, shard, 1) };
        self.peer.send(server, &head, &write.to_bytes(), Some(b"abcd"));
        assert!(self.has_reply(server));
        self.reply(server).head.status
    }

    fn glimpse(&mut self, server: &mut TestServer, inode: InodeNo) {
        let at = (Op::Glimpse, server.map.data_shard(inode, 0), 0);
        self.send_to(server, at, 0, &Glimpse { inode });
        assert!(self.has_reply(server));
        assert_eq!(self.reply(server).head.status, Status::Ok);
    }

    fn send_lookup(&mut self, server: &mut TestServer, text: &str) {
        let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name(text) };
        self.send(server, Op::Lookup, 0, &lookup);
    }
}

/// A file that the first client may write behind, and another client.
fn scene(seed: u64) -> (TestServer, Holder, Holder, InodeNo) {
    let mut server = started(seed);
    let mut writer = Holder::new(&mut server, 1);
    // The first create asks for the free space.
    let (_, granted) = writer.create_behind(&mut server, "first");
    assert_eq!(granted & lease_flag::WRITING, 0, "the free space is not known");
    let (file, granted) = writer.create_behind(&mut server, "f");
    assert_eq!(granted & lease_flag::WRITING, lease_flag::WRITING);
    let other = Holder::new(&mut server, 2);
    (server, writer, other, file)
}

#[test]
fn a_lookup_waits_until_the_file_is_written() {
    let (mut server, mut writer, mut other, file) = scene(81);
    other.send_lookup(&mut server, "f");
    assert!(!other.has_reply(&mut server));
    assert_eq!(writer.recalled(&mut server), BTreeSet::from([Key::Writing(file)]));
    assert_eq!(writer.write_behind(&mut server, file, 0), Status::Ok);
    assert!(!other.has_reply(&mut server), "more may be under way");
    writer.ack(&mut server);
    assert!(other.has_reply(&mut server));
    assert_eq!(other.reply(&mut server).head.status, Status::Ok);
    // The lease does not come back.
    other.send_lookup(&mut server, "f");
    assert!(other.has_reply(&mut server));
}

#[test]
fn its_own_client_waits_for_nothing_and_a_close_ends_it() {
    let (mut server, mut writer, mut other, file) = scene(82);
    assert_eq!(writer.lookup(&mut server, "f").head.status, Status::Ok);
    let close = Close { inode: file, handle: HandleId(900) };
    assert_eq!(writer.ask(&mut server, Op::Close, 1, &close).head.status, Status::Ok);
    other.send_lookup(&mut server, "f");
    server.run();
    assert_eq!(writer.recalled(&mut server), BTreeSet::new());
    assert!(other.has_reply(&mut server));
}

#[test]
fn a_close_is_answered_before_what_waits_for_it_goes_on() {
    let (mut server, mut writer, mut other, file) = scene(87);
    other.send_lookup(&mut server, "f");
    assert!(!other.has_reply(&mut server));
    let close = Close { inode: file, handle: HandleId(900) };
    let closed = writer.ask(&mut server, Op::Close, 1, &close);
    assert_eq!((closed.head.status, closed.message), (Status::Ok, Vec::new()));
    assert!(other.has_reply(&mut server));
    let found = other.reply(&mut server);
    assert_eq!(Entry::decode_all(&found.message).unwrap().attr.inode, file);
}

#[test]
fn a_write_behind_is_refused_where_the_file_does_not_end() {
    let (mut server, mut writer, _, file) = scene(83);
    assert_eq!(writer.write_behind(&mut server, file, 4), Status::Stale);
    assert_eq!(writer.write_behind(&mut server, file, 0), Status::Ok);
    assert_eq!(writer.write_behind(&mut server, file, 0), Status::Stale);
    assert_eq!(writer.write_behind(&mut server, file, 4), Status::Ok);
}

#[test]
fn a_silent_holder_is_fenced_after_a_term() {
    let (mut server, mut writer, mut other, file) = scene(84);
    other.send_lookup(&mut server, "f");
    assert!(!other.has_reply(&mut server));
    server.pass_ms(10_000);
    assert!(other.has_reply(&mut server));
    assert_eq!(writer.write_behind(&mut server, file, 0), Status::Stale, "it is too late");
}

#[test]
fn attributes_are_not_set_behind_without_the_lease() {
    let (mut server, mut writer, mut other, file) = scene(88);
    let set = |writer: &mut Holder, server: &mut TestServer| {
        let flags = request_flag::BEHIND;
        writer.send_to(server, (Op::Setattr, file.shard(), 1), flags, &chmod(file, 0o600));
        server.run();
        writer.reply(server).head.status
    };
    assert_eq!(set(&mut writer, &mut server), Status::Ok);
    other.send_lookup(&mut server, "f");
    assert!(!other.has_reply(&mut server));
    assert_eq!(set(&mut writer, &mut server), Status::Ok, "it is still waited for");
    server.pass_ms(10_000);
    assert!(other.has_reply(&mut server));
    assert_eq!(set(&mut writer, &mut server), Status::Stale, "the other one has looked");
}

#[test]
fn attributes_are_granted_with_the_space_that_the_contents_take() {
    let (mut server, mut writer, _, file) = scene(89);
    let set = |writer: &mut Holder, server: &mut TestServer| {
        writer.send_to(server, (Op::Setattr, file.shard(), 1), BEHIND, &chmod(file, 0o600));
        server.run();
        let reply = writer.reply(server);
        let attr = Entry::decode_all(&reply.message).unwrap().attr;
        assert!(!attr.is_size_at_data(), "the lane has the contents");
        (reply.granted(), attr.size_bytes, attr.allocated_bytes)
    };
    assert_eq!(set(&mut writer, &mut server), (lease_flag::ATTRIBUTES, 0, 0));
    assert_eq!(writer.write_behind(&mut server, file, 0), Status::Ok);
    let (granted, size_bytes, _) = set(&mut writer, &mut server);
    assert_eq!((granted, size_bytes), (0, 4), "the space was not looked at since");
    writer.glimpse(&mut server, file);
    let (granted, size_bytes, allocated_bytes) = set(&mut writer, &mut server);
    assert_eq!((granted, size_bytes), (lease_flag::ATTRIBUTES, 4));
    assert!(allocated_bytes > 0);
}

#[test]
fn a_connection_that_ends_ends_no_write_lease() {
    let (mut server, mut writer, mut other, file) = scene(85);
    writer.reconnect(&mut server);
    writer.send_ack(&mut server, &[], LeaseNo(u64::MAX));
    other.send_lookup(&mut server, "f");
    assert!(!other.has_reply(&mut server), "something may be under way");
    writer.ack(&mut server);
    assert!(other.has_reply(&mut server));
    assert_eq!(writer.write_behind(&mut server, file, 0), Status::Ok);
}

#[test]
fn a_write_lease_is_claimed_after_a_restart() {
    let (mut server, mut writer, mut other, file) = scene(86);
    server.crash();
    server.start(1);
    server.run();
    let handle = Handle { id: HandleId(900), open_for: OpenFor::Write };
    let reopen = Reopen { inode: file, handle };
    writer.reconnect(&mut server);
    end_replays(&mut server, &mut writer, 1);
    writer.send_to(&mut server, (Op::Reopen, file.shard(), 2), request_flag::BEHIND, &reopen);
    server.run();
    other.reconnect(&mut server);
    end_replays(&mut server, &mut other, 0);
    other.send_lookup(&mut server, "f");
    assert!(!other.has_reply(&mut server), "a write may be under way");
    writer.ack(&mut server);
    assert!(other.has_reply(&mut server));
}

/// Ends the replays of a client at all shards of its lane; it reopens files at the first one.
fn end_replays(server: &mut TestServer, holder: &mut Holder, reopen_count: u32) {
    let counts = server.map.shard_counts();
    let metas = (0..counts.meta).map(ShardId::meta);
    for shard in metas.chain((0..counts.data).map(ShardId::data)) {
        let is_first = shard == InodeNo::ROOT.shard();
        let done = ReplayDone { reopen_count: if is_first { reopen_count } else { 0 } };
        holder.send_to(server, (Op::ReplayDone, shard, 0), 0, &done);
    }
    server.run();
    holder.collect(server);
    holder.replies.clear();
    holder.lease_no_last = LeaseNo(0);
}
