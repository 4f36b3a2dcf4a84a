//! What the kernel may cache, and how it is made to drop it.

use super::harness::{Dropped, Harness, KernelReply, ReceivedRequest, request, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::abi::{FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, Opcode, init_flag};
use alloc::vec;
use alloc::vec::Vec;
use interface::{BufId, Bulk, Errno, Event, MountMessage, NO_MAC, PeerEvent};
use wire::{
    Attr, Created, Dirent, Entry, FileKind, InodeNo, LaneId, LeaseKey, List, Listing, Name, Op,
    Renamed, Reply, Status, Wire, Writer, lease_flag, reply_flag,
};

const SECOND_NS: u64 = 1_000_000_000;
const BOTH: u8 = lease_flag::NAME | lease_flag::ATTRIBUTES;
const ABSENT: Result<(), Errno> = Err(Errno(2));
const BUSY: Result<(), Errno> = Err(Errno(16));

fn name(bytes: &[u8]) -> Name<'_> {
    Name::new(bytes).unwrap()
}

fn u64_at(reply: &KernelReply, at: usize) -> u64 {
    u64::from_ne_bytes(reply.payload[at..at + 8].try_into().unwrap())
}

fn u32_at(reply: &KernelReply, at: usize) -> u32 {
    u32::from_ne_bytes(reply.payload[at..at + 4].try_into().unwrap())
}

/// The validity of name and attributes in a `fuse_entry_out`.
fn validity(reply: &KernelReply) -> (u64, u64) {
    assert_eq!(reply.status, Status::Ok);
    let ns = |at, nanos_at| u64_at(reply, at) * SECOND_NS + u64::from(u32_at(reply, nanos_at));
    (ns(16, 32), ns(24, 36))
}

/// The validity in a `fuse_attr_out`.
fn attributes_ns(reply: &KernelReply) -> u64 {
    assert_eq!(reply.status, Status::Ok);
    u64_at(reply, 0) * SECOND_NS + u64::from(u32_at(reply, 8))
}

fn entry(attr: Attr) -> Vec<u8> {
    Entry { attr }.to_bytes()
}

fn file() -> Attr {
    attr(FILE, FileKind::File)
}

impl Harness {
    fn look_up(&mut self, node: InodeNo, grants: (u64, u8), found: Attr) -> KernelReply {
        self.kernel_request(Opcode::Lookup, 7, node, b"a\0");
        let received = self.take();
        self.grant_leases(&received, Ok(&entry(found)), grants);
        self.reply()
    }

    fn cached(&mut self) -> ReceivedRequest {
        self.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
        let received = self.take();
        self.grant_leases(&received, Ok(&entry(file())), (1, BOTH));
        assert_eq!(validity(&self.reply()), (9 * SECOND_NS, 9 * SECOND_NS));
        received
    }

    /// Opens the file to read it, at the server: its handle, and the flags of the reply.
    fn open(&mut self, attr: Attr, granted: u8) -> (u64, u32) {
        self.lane.client.forget_kept(FILE);
        self.kernel_request(Opcode::Open, 8, FILE, &u32s(&[0, 0]));
        let received = self.take();
        self.grant_leases(&received, Ok(&entry(attr)), (2, granted));
        let reply = self.reply();
        (u64_at(&reply, 0), u32_at(&reply, 8))
    }

    fn getattr(&mut self, handle: u64) -> ReceivedRequest {
        let args = [u32s(&[1, 0]), u64s(&[handle])].concat();
        self.kernel_request(Opcode::Getattr, 9, FILE, &args);
        self.take()
    }
}

#[test]
fn only_what_is_granted_is_valid() {
    for (granted, name_ns, attributes_ns) in [
        (0, 0, 0),
        (lease_flag::NAME, 9 * SECOND_NS, 0),
        (lease_flag::ATTRIBUTES, 0, 9 * SECOND_NS),
        (BOTH, 9 * SECOND_NS, 9 * SECOND_NS),
    ] {
        let mut harness = Harness::with_leases();
        let reply = harness.look_up(DIRECTORY, (1, granted), file());
        assert_eq!(validity(&reply), (name_ns, attributes_ns));
    }
    let mut harness = Harness::with_leases();
    harness.lane.leases.forgets_names = false;
    let reply = harness.look_up(DIRECTORY, (1, BOTH), file());
    assert_eq!(validity(&reply), (0, 9 * SECOND_NS), "such a kernel could wait for itself");
}

/// The kernel asks for attributes that are not valid before `open` returns, and answers ESTALE by
/// creating the file a second time.
#[test]
fn a_file_that_was_destroyed_before_its_create_is_answered_is_not_asked_for() {
    let mut harness = Harness::with_leases();
    // O_RDWR | O_EXCL
    let args = [u32s(&[0o202, 0o100_666, 0o22, 0]), b"a\0".to_vec()].concat();
    harness.kernel_request(Opcode::Create, 7, DIRECTORY, &args);
    let received = harness.take();
    let reply = Reply { flags: reply_flag::FROM_SLOT, ..harness.reply_to(&received) };
    let created = Created { attr: Attr { nlink: 1, ..file() }, made: true };
    harness.put_reply(received.conn, reply, &created.to_bytes(), None);
    harness.run();
    let reopen = harness.take();
    assert_eq!(reopen.head.op, Op::Reopen);
    harness.fail(&reopen, Status::Stale);
    let reply = harness.reply();
    let (name_ns, attributes_ns) = validity(&reply);
    assert_eq!(name_ns, 0);
    assert!(attributes_ns >= SECOND_NS);
    assert_eq!(u32_at(&reply, 40 + 64), 0, "links");
}

#[test]
fn an_absent_name_is_cached_if_that_is_granted() {
    let mut harness = Harness::with_leases();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    let received = harness.take();
    harness.grant_leases(&received, Err(Status::NotFound), (1, lease_flag::NAME));
    let reply = harness.reply();
    assert_eq!((u64_at(&reply, 0), validity(&reply)), (0, (9 * SECOND_NS, 0)));
    harness.kernel_request(Opcode::Lookup, 8, DIRECTORY, b"b\0");
    let received = harness.take();
    harness.fail(&received, Status::NotFound);
    assert_eq!(harness.status(), Status::NotFound);
}

#[test]
fn a_recall_that_arrives_with_the_reply_leaves_no_validity() {
    let mut harness = Harness::with_leases();
    harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
    let received = harness.take();
    harness.granting_frame(&received, Ok(&entry(file())), (1, BOTH));
    harness.recall(&received, 1, &[LeaseKey::Attributes(FILE)]);
    assert_eq!(validity(&harness.reply()), (0, 0));
}

#[test]
fn a_recall_is_acknowledged_when_the_kernel_has_dropped_all_of_it() {
    let mut harness = Harness::with_leases();
    let received = harness.cached();
    let keys = [
        LeaseKey::Attributes(FILE),
        LeaseKey::Name(DIRECTORY, name(b"a")),
        LeaseKey::Contents(FILE),
    ];
    harness.recall(&received, 4, &keys);
    let wanted = [
        Dropped::Attributes(FILE.0),
        Dropped::Name(DIRECTORY.0, b"a".to_vec()),
        Dropped::Contents(FILE.0),
    ];
    assert_eq!(harness.dropped(), wanted);
    harness.notified(Ok(()));
    harness.notified(ABSENT);
    assert!(harness.acknowledged.is_empty());
    harness.notified(Ok(()));
    assert_eq!(harness.acknowledged, [(vec![4], 0)]);
}

#[test]
fn a_name_that_takes_too_long_is_forgotten_with_all_others() {
    let mut harness = Harness::with_leases();
    let received = harness.cached();
    harness.recall(&received, 4, &[LeaseKey::Name(DIRECTORY, name(b"a"))]);
    harness.recall(&received, 5, &[LeaseKey::Name(DIRECTORY, name(b"b"))]);
    harness.wait_ms(1);
    assert_eq!(harness.notifies.len(), 2);
    harness.wait_ms(1);
    let (slow, all) = (harness.notifies.pop_front().unwrap(), harness.notifies.pop_back().unwrap());
    assert_eq!(all.1, Dropped::AllNames);
    harness.notifies.push_front(all);
    harness.notified(Ok(()));
    assert_eq!(harness.acknowledged, [(vec![4, 5], 0)]);
    harness.notifies.push_front(slow);
    harness.all_notified();
    assert_eq!(harness.acknowledged.len(), 1, "late outcomes mean nothing");
}

#[test]
fn a_directory_that_is_being_changed_is_not_waited_for() {
    let mut harness = Harness::with_leases();
    let received = harness.cached();
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"b\0");
    harness.recall(&received, 4, &[LeaseKey::Name(DIRECTORY, name(b"a"))]);
    let name = Dropped::Name(DIRECTORY.0, b"a".to_vec());
    assert_eq!(harness.dropped(), [name, Dropped::AllNames]);
    harness.notifies.pop_front();
    harness.notified(Ok(()));
    assert_eq!(harness.acknowledged, [(vec![4], 0)], "the unlink may wait for this recall");
    assert_eq!(harness.take().head.op, Op::Unlink);
}

#[test]
fn with_a_mount_below_the_names_expire() {
    let mut harness = Harness::with_leases();
    let received = harness.cached();
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"b\0");
    harness.take();
    harness.recall(&received, 4, &[LeaseKey::Name(DIRECTORY, name(b"a"))]);
    harness.notifies.pop_front();
    harness.notified(BUSY);
    harness.wait_ms(8_999);
    assert!(harness.acknowledged.is_empty());
    assert!(harness.notifies.is_empty(), "nothing is detached");
    harness.wait_ms(1);
    assert_eq!(harness.acknowledged, [(vec![4], 0)], "all validity of before has expired");
    assert_eq!(harness.take().head.op, wire::Op::Ping);
    let reply = harness.look_up(DIRECTORY, (200, BOTH), file());
    assert_eq!(validity(&reply), (0, 9 * SECOND_NS), "names are not cached for a while");
}

#[test]
fn with_a_mount_below_the_name_of_a_directory_expires_and_nothing_is_detached() {
    let mut harness = Harness::with_leases();
    let received = harness.cached();
    harness.recall(&received, 4, &[LeaseKey::Name(DIRECTORY, name(b"a"))]);
    harness.notified(BUSY);
    let expired = [Dropped::ExpiredName(DIRECTORY.0, b"a".to_vec())];
    assert_eq!(harness.dropped(), expired);
    harness.all_notified();
    harness.wait_ms(19);
    assert!(harness.acknowledged.is_empty(), "a lookup may not have been applied yet");
    harness.wait_ms(1);
    assert_eq!(harness.dropped(), expired);
    assert!(harness.acknowledged.is_empty());
    harness.notified(Ok(()));
    assert_eq!(harness.acknowledged, [(vec![4], 0)]);
    let reply = harness.look_up(DIRECTORY, (200, BOTH), file());
    assert_eq!(validity(&reply), (0, 9 * SECOND_NS), "names are not cached for a while");
}

#[test]
fn attributes_of_a_node_that_is_being_made_are_dropped_again() {
    let mut harness = Harness::with_leases();
    let received = harness.cached();
    harness.recall(&received, 4, &[LeaseKey::Attributes(FILE)]);
    harness.notified(ABSENT);
    assert_eq!(harness.dropped(), [Dropped::AllNames]);
    harness.all_notified();
    assert!(harness.acknowledged.is_empty(), "the reply may not have been applied yet");
    harness.wait_ms(20);
    assert_eq!(harness.dropped(), [Dropped::Attributes(FILE.0)]);
    harness.notified(Ok(()));
    assert_eq!(harness.acknowledged, [(vec![4], 0)]);

    harness.wait_ms(1_000);
    harness.recall(&received, 5, &[LeaseKey::Attributes(FILE)]);
    harness.notified(ABSENT);
    assert_eq!(harness.acknowledged.len(), 2, "it was given long ago");
}

#[test]
fn a_directory_is_dropped_below_each_of_its_nodes() {
    let mut harness = Harness::with_leases();
    let inner = InodeNo((1 << 48) | 900);
    let mut nodes = Vec::new();
    for parent in [DIRECTORY, InodeNo((1 << 48) | 6)] {
        let reply = harness.look_up(parent, (1, BOTH), attr(inner, FileKind::Directory));
        nodes.push(u64_at(&reply, 0));
    }
    assert_ne!(nodes[0], nodes[1]);
    nodes.sort_unstable();
    harness.kernel_request(Opcode::Lookup, 7, InodeNo(nodes[0]), b"a\0");
    let received = harness.take();
    harness.grant_leases(&received, Ok(&entry(file())), (2, BOTH));
    harness.reply();
    let keys = [LeaseKey::Attributes(inner), LeaseKey::Name(inner, name(b"a"))];
    harness.recall(&received, 3, &keys);
    let mut dropped = harness.dropped();
    let attributes: Vec<_> = nodes.iter().map(|node| Dropped::Attributes(*node)).collect();
    assert_eq!(dropped.drain(..2).collect::<Vec<_>>(), attributes);
    let names: Vec<_> = nodes.iter().map(|node| Dropped::Name(*node, b"a".to_vec())).collect();
    assert_eq!(dropped, names);
}

#[test]
fn entries_of_a_listing_are_valid_if_they_say_so() {
    let mut harness = Harness::with_leases();
    let args = [u64s(&[1, 2]), u32s(&[4096, 0]), u64s(&[0, 0])].concat();
    harness.kernel_request(Opcode::Readdirplus, 7, DIRECTORY, &args);
    let received = harness.take();
    let mut entries = Vec::new();
    for (cookie, text, granted) in [(1, b"a", true), (2, b"b", false)] {
        let (name, kind) = (name(text), FileKind::File);
        let dirent = Dirent { cookie, inode: FILE, kind, name, attr: Some(file()), granted };
        dirent.encode(&mut Writer::new(&mut entries));
    }
    let listing = Listing { parent: InodeNo::ROOT, end: true, entries: List::new(2, &entries) };
    harness.grant_leases(&received, Ok(&listing.to_bytes()), (1, 0));
    let mut reply = harness.reply();
    assert_eq!(validity(&reply), (9 * SECOND_NS, 9 * SECOND_NS));
    reply.payload.drain(..128 + 32);
    assert_eq!(validity(&reply), (0, 0));
}

#[test]
fn a_name_that_was_renamed_is_dropped_although_another_lane_has_given_its_validity() {
    let mut harness = Harness::with_leases();
    let args = [u64s(&[DIRECTORY.0]), b"a\0b\0".to_vec()].concat();
    harness.kernel_request(Opcode::Rename, 7, DIRECTORY, &args);
    let received = harness.take();
    let renamed = Renamed { moved: None, exchanged: None };
    let granted = lease_flag::NAME | lease_flag::NEW_NAME;
    harness.grant_leases(&received, Ok(&renamed.to_bytes()), (1, granted));
    assert_eq!(harness.status(), Status::Ok);
    harness.recall(&received, 2, &[LeaseKey::Name(DIRECTORY, name(b"b"))]);
    assert_eq!(harness.dropped(), [Dropped::Name(DIRECTORY.0, b"b".to_vec())]);
    assert!(harness.acknowledged.is_empty(), "the kernel has not dropped it yet");
    harness.notified(Ok(()));
    assert_eq!(harness.acknowledged, [(vec![2], 0)]);
}

#[test]
fn a_rename_without_leases_on_both_names_makes_the_kernel_forget_them_first() {
    for (granted, forgets) in [
        (lease_flag::NAME | lease_flag::NEW_NAME, false),
        (lease_flag::NAME, true),
        (lease_flag::NEW_NAME, true),
    ] {
        let mut harness = Harness::with_leases();
        let args = [u64s(&[DIRECTORY.0]), b"a\0b\0".to_vec()].concat();
        harness.kernel_request(Opcode::Rename, 7, DIRECTORY, &args);
        let received = harness.take();
        let renamed = Renamed { moved: None, exchanged: None };
        harness.grant_leases(&received, Ok(&renamed.to_bytes()), (1, granted));
        assert_eq!(harness.status(), Status::Ok);
        let wanted = if forgets { vec![Dropped::AllNames] } else { vec![] };
        assert_eq!(harness.dropped(), wanted);
        assert!(harness.replies_before.iter().all(|count| *count == 0), "before the reply");
        if forgets {
            harness.notified(BUSY);
            let expired = |name: &[u8]| Dropped::ExpiredName(DIRECTORY.0, name.to_vec());
            let names = [&b"a"[..], b"b"].map(expired);
            assert_eq!(harness.dropped(), names);
            harness.all_notified();
            harness.wait_ms(19);
            assert!(harness.dropped().is_empty());
            harness.wait_ms(1);
            assert_eq!(harness.dropped(), names, "a lookup may have been applied meanwhile");
        }
    }
}

#[test]
fn a_file_is_cached_if_its_contents_are_granted_and_keeps_pages_if_unchanged() {
    let mut harness = Harness::with_leases();
    let (plain, flags) = harness.open(file(), lease_flag::ATTRIBUTES);
    assert_ne!(flags & FOPEN_DIRECT_IO, 0);
    let (cached, flags) = harness.open(file(), lease_flag::CONTENTS);
    assert_eq!((flags, cached >> 61), (0, 1), "pages of before are dropped");
    assert_eq!(plain >> 61, 0);
    assert_eq!(harness.open(file(), lease_flag::CONTENTS).1, 0, "they may still be there");
    harness.wait_ms(20);
    assert_eq!(harness.open(file(), lease_flag::CONTENTS).1, FOPEN_KEEP_CACHE);
    let mut changed = file();
    changed.ctime.nanos += 1;
    assert_eq!(harness.open(changed, lease_flag::CONTENTS).1, 0);
    harness.wait_ms(20);
    assert_eq!(harness.open(changed, lease_flag::CONTENTS).1, FOPEN_KEEP_CACHE);
    let unsettled = Attr { flags: wire::attr_flag::SIZE_AT_DATA, ..changed };
    harness.lane.client.forget_kept(FILE);
    harness.kernel_request(Opcode::Open, 8, FILE, &u32s(&[0, 0]));
    let received = harness.take();
    harness.grant_leases(&received, Ok(&entry(unsettled)), (2, lease_flag::CONTENTS));
    let glimpse = harness.take();
    assert_eq!(glimpse.head.op, wire::Op::Glimpse);
    harness.fail(&glimpse, Status::Io);
    assert_eq!(u32_at(&harness.reply(), 8), 0, "it is open all the same");
    assert_eq!(harness.open(changed, lease_flag::CONTENTS).1, 0);
}

#[test]
fn peer_lanes_know_the_version_of_the_pages() {
    let mut harness = Harness::with_leases();
    let opened = Some(harness.open(file(), lease_flag::CONTENTS).0);
    let version = Some(crate::leases::version_of(&file()));
    let message = MountMessage::Pages { inode: FILE, version, opened };
    assert_eq!(harness.peer_messages, [(LaneId(1), message), (LaneId(2), message)]);
    let mut other = Harness::with_leases();
    other.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    other.wait_ms(20);
    assert_eq!(other.open(file(), lease_flag::CONTENTS).1, FOPEN_KEEP_CACHE);
    assert!(other.peer_messages.is_empty(), "nothing has changed");
}

#[test]
fn reads_that_follow_an_open_at_once_keep_the_attributes() {
    let mut harness = Harness::with_leases();
    let (first, _) = harness.open(file(), lease_flag::CONTENTS);
    let shown = |harness: &mut Harness, handle| {
        let received = harness.getattr(handle);
        harness.grant_leases(&received, Ok(&entry(file())), (3, lease_flag::ATTRIBUTES));
        attributes_ns(&harness.reply())
    };
    assert_eq!(shown(&mut harness, first), 9 * SECOND_NS, "the open was applied");
    let (_, flags) = harness.open(file(), lease_flag::CONTENTS);
    assert_eq!(flags, 0, "another process may not have been given the first reply");
    // Through an open file of before: each reply drops pages, until the first has been applied.
    let mut other = Harness::with_leases();
    let (before, _) = other.open(file(), lease_flag::CONTENTS);
    other.wait_ms(20);
    let mut changed = file();
    changed.ctime.nanos += 1;
    other.open(changed, lease_flag::CONTENTS);
    for ms in 0..30 {
        let received = other.getattr(before);
        other.grant_leases(&received, Ok(&entry(changed)), (3, lease_flag::ATTRIBUTES));
        let is_valid = attributes_ns(&other.reply()) > 0;
        assert_eq!(is_valid, ms >= 20, "after {ms} ms");
        other.wait_ms(1);
    }
}

#[test]
fn a_cached_read_without_a_lease_drops_the_pages() {
    let mut harness = Harness::with_leases();
    // Seconds, size and nanoseconds of the change of contents.
    let shown = |reply: &KernelReply| (u64_at(reply, 48), u64_at(reply, 24), u32_at(reply, 68));
    let (secs, size_bytes, nanos) = (200, file().size_bytes, file().mtime.nanos);
    let (handle, _) = harness.open(file(), lease_flag::CONTENTS);
    harness.wait_ms(20);
    let received = harness.getattr(handle);
    harness.grant_leases(&received, Ok(&entry(file())), (3, lease_flag::ATTRIBUTES));
    let reply = harness.reply();
    assert_eq!(attributes_ns(&reply), 9 * SECOND_NS, "nothing has changed");
    assert_eq!(shown(&reply), (secs, size_bytes, nanos));

    let mut before = Vec::new();
    for _ in 0..3 {
        let received = harness.getattr(handle);
        harness.answer(&received, &entry(file()));
        let reply = harness.reply();
        assert_eq!(attributes_ns(&reply), 0, "another client may be changing it");
        let found = shown(&reply);
        assert_eq!((found.0, found.1), (secs, size_bytes));
        assert!(found.2 != nanos && !before.contains(&found.2), "each is another one");
        before.push(found.2);
    }

    // The change was one of the ctime alone.
    let mut changed = file();
    changed.ctime.nanos += 1;
    for pages_are_dropped in [true, false] {
        let received = harness.getattr(handle);
        harness.grant_leases(&received, Ok(&entry(changed)), (4, lease_flag::ATTRIBUTES));
        let reply = harness.reply();
        assert_eq!(shown(&reply).2 != nanos, pages_are_dropped);
        assert_eq!(attributes_ns(&reply) == 0, pages_are_dropped);
        harness.wait_ms(20);
    }
    let received = harness.getattr(handle & !(1 << 61));
    harness.answer(&received, &entry(file()));
    assert_eq!(shown(&harness.reply()).2, nanos, "no page of a direct file is read");
}

#[test]
fn privileges_that_a_write_clears_are_not_cached_any_more() {
    let mut harness = Harness::with_leases();
    // `fuse_write_in` with FUSE_WRITE_KILL_SUIDGID, of a file that had set-id bits.
    let args = [u64s(&[9 | 1 << 63, 600]), u32s(&[100, 4]), u64s(&[0]), u32s(&[0, 0])].concat();
    let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 100, crc32c: None, mac: NO_MAC };
    let bytes = request(Opcode::Write as u32, 7, FILE, &args);
    harness.kernel_bytes(Some(3), bytes, Some(data));
    let received = harness.take();
    assert_eq!(received.head.op, Op::Setattr);
    harness.answer(&received, &entry(file()));
    assert_eq!(harness.dropped(), [Dropped::Attributes(FILE.0)]);
    assert!(harness.replies.is_empty(), "the write follows");
}

#[test]
fn a_lost_connection_drops_everything_before_anything_is_sent() {
    let mut harness = Harness::with_leases();
    harness.cached();
    harness.open(file(), lease_flag::CONTENTS);
    harness.hang_up();
    let wanted = [Dropped::AllNames, Dropped::Attributes(FILE.0), Dropped::Contents(FILE.0)];
    assert_eq!(harness.dropped(), wanted);
    harness.kernel_request(Opcode::Getattr, 9, FILE, b"");
    assert!(harness.requests.is_empty());
    harness.all_notified();
    assert_eq!(harness.take().head.op, Op::Getattr);
    assert_eq!(harness.acknowledged, [(vec![], 2)]);
}

#[test]
fn a_page_that_is_being_read_does_not_hold_up_a_new_connection() {
    let mut harness = Harness::with_leases();
    harness.open(file(), lease_flag::CONTENTS);
    harness.hang_up();
    harness.kernel_request(Opcode::Getattr, 9, FILE, b"");
    harness.notified(Ok(()));
    assert_eq!(harness.dropped(), [Dropped::Contents(FILE.0)]);
    harness.wait_ms(99);
    assert!(harness.requests.is_empty());
    harness.wait_ms(1);
    assert_eq!(harness.take().head.op, Op::Getattr);
}

#[test]
fn a_recall_of_everything_drops_everything() {
    let mut harness = Harness::with_leases();
    let received = harness.cached();
    harness.recall(&received, 4, &[LeaseKey::All]);
    assert_eq!(harness.dropped(), [Dropped::AllNames, Dropped::Attributes(FILE.0)]);
    harness.notified(Ok(()));
    assert_eq!(harness.acknowledged, [(vec![4], 0)]);
}

#[test]
fn a_notify_that_is_stuck_is_logged_once() {
    let mut harness = Harness::with_leases();
    let received = harness.cached();
    harness.recall(&received, 4, &[LeaseKey::Contents(FILE)]);
    for ms in [1_999, 1, 1_000] {
        harness.wait_ms(ms);
    }
    assert_eq!(harness.logged.len(), 1);
    assert!(harness.acknowledged.is_empty());
}

#[test]
fn a_kernel_that_caches_gets_acls_and_lists_attributes_and_peer_lanes_hear_of_forgetting() {
    for (leases, minor) in [(true, 45), (true, 43), (false, 45)] {
        let mut harness = if leases { Harness::with_leases() } else { Harness::new() };
        harness.lane.leases.forgets_names = false;
        let args = [u32s(&[7, minor, 4096, u32::MAX, u32::MAX]), vec![0; 44]].concat();
        harness.kernel_request(Opcode::Init, 1, InodeNo(0), &args);
        let reply = harness.reply();
        let flags = u64::from(u32_at(&reply, 12));
        assert_eq!(flags & init_flag::DO_READDIRPLUS != 0, leases);
        let has_acl = flags & init_flag::POSIX_ACL != 0;
        assert_eq!((has_acl, harness.lane.leases.forgets_names), (leases, minor >= 44));
        let message = MountMessage::ForgetsNames;
        let told = [(LaneId(1), message), (LaneId(2), message)];
        assert_eq!(harness.peer_messages == told, minor >= 44);
    }
}
