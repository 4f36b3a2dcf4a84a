//! Files that are created, and names that are removed, before the server has done it.

mod ended;
mod looked_up;
mod read_only;

use super::answers::setattr_args;
use super::attr;
use super::harness::{Dropped, Harness, KernelReply, ReceivedRequest, request, u32s, u64s};
use crate::Behind;
use crate::abi::Opcode;
use crate::names_behind::GIVEN_MS_MAX;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use client::{Cache, CacheSize};
use interface::{BufId, Bulk, Event, MountMessage, NO_MAC, PeerEvent};
use wire::{
    Attr, Claim, Create, CreateBehind, Created, Entry, FileKind, InodeNo, LaneId, LeaseKey, List,
    Listing, NewFiles, Op, Rules, Status, Timestamp, Unlink, Wire as _, Written, attr_flag,
    lease_flag, request_flag,
};

const PARENT: InodeNo = InodeNo((1 << 48) | 4);
const DIR: InodeNo = InodeNo((1 << 48) | 50);
const FIRST: InodeNo = InodeNo((1 << 48) | 1000);
const SECOND: InodeNo = InodeNo((1 << 48) | 1001);
const BOTH: u8 = lease_flag::NAME | lease_flag::ATTRIBUTES;
const ALL: u8 = BOTH | lease_flag::WRITING;
const NOW: u32 = 16 | 32 | 128 | 256;
/// When the directory was made, by the server.
const MADE_AT: Timestamp = Timestamp { secs: 300, nanos: 9 };

fn cache() -> Arc<Cache> {
    let size = CacheSize {
        name_count_max: 64,
        attributes_count_max: 64,
        directory_count_max: 64,
        slot_count: 65_536,
    };
    Arc::new(Cache::new([1, 2, 3], size, Rules::default()))
}

fn directory() -> Attr {
    let dir = attr(DIR, FileKind::Directory);
    Attr { mode: 0o755, nlink: 2, layout: None, ..dir }
}

fn file(inode: InodeNo) -> Attr {
    Attr { nlink: 1, size_bytes: 0, allocated_bytes: 0, ..attr(inode, FileKind::File) }
}

fn created(inode: InodeNo) -> Vec<u8> {
    Created { attr: file(inode), made: true }.to_bytes()
}

/// A mount that has made a directory, in which it may change names behind.
fn mount() -> Harness {
    mount_with(directory())
}

fn mount_with(made: Attr) -> Harness {
    mount_of((made, 5), 1)
}

/// The same, with so many numbers and lanes of the server.
fn mount_of((made, count): (Attr, u32), lane_count: u16) -> Harness {
    let mut harness = Harness::with_cache(&cache()).writes_behind(Arc::new(Behind::default()));
    harness.shape.set_lane_count(lane_count);
    harness.shape.flags |= wire::welcome_flag::ROOT_TRUSTED;
    let mkdir = [u32s(&[0o755, 0o022]), b"d\0".to_vec()].concat();
    harness.kernel_request(Opcode::Mkdir, 7, PARENT, &mkdir);
    let received = harness.take();
    assert_ne!(received.head.flags & request_flag::BEHIND, 0);
    let layout = wire::Layout::DEFAULT;
    harness.new_files = Some(NewFiles { first: FIRST, count, layout });
    let made = Entry { attr: Attr { flags: made.flags | attr_flag::EMPTY, ..made } }.to_bytes();
    let granted = ALL | lease_flag::NEW_FILES;
    harness.grant_leases(&received, Ok(&made), (1, granted));
    assert_eq!(harness.reply().status, Status::Ok);
    harness
}

fn u64_at(reply: &KernelReply, at: usize) -> u64 {
    u64::from_ne_bytes(reply.payload[at..at + 8].try_into().unwrap())
}

/// The time of modification in a `fuse_attr_out`.
fn mtime_of(reply: &KernelReply) -> (u64, u32) {
    let nanos = u32::from_ne_bytes(reply.payload[68..72].try_into().unwrap());
    (u64_at(reply, 48), nanos)
}

impl Harness {
    fn create_with(&mut self, flags: u32, mode: u32, name: &[u8]) {
        let args = [&u32s(&[flags, mode, 0o022, 0])[..], name, b"\0"].concat();
        self.kernel_request(Opcode::Create, 7, DIR, &args);
    }

    /// Creates a file, which is answered at once: its number.
    fn creates_early(&mut self, name: &[u8]) -> InodeNo {
        self.create_with(0o101, 0o100_644, name);
        let reply = self.reply();
        assert_eq!(reply.status, Status::Ok);
        InodeNo(u64_at(&reply, 0))
    }

    /// The next create at the server, which has this number.
    fn take_create(&mut self, inode: InodeNo) -> ReceivedRequest {
        let received = self.take();
        assert_eq!(received.head.op, Op::Create);
        assert_ne!(received.head.flags & request_flag::BEHIND, 0);
        let create = Create::decode_all(&received.body).unwrap();
        assert_eq!(create.behind.map(|behind| behind.inode), Some(inode));
        received
    }

    /// The next create at the server succeeds.
    fn is_made(&mut self, inode: InodeNo, granted: u8) {
        let received = self.take_create(inode);
        self.grant_leases(&received, Ok(&created(inode)), (2, granted));
    }

    fn write_at(&mut self, inode: InodeNo, file_offset: u64) {
        let args = [u64s(&[1, file_offset]), u32s(&[100, 0]), u64s(&[0]), u32s(&[1, 0])].concat();
        let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 100, crc32c: None, mac: NO_MAC };
        self.kernel_bytes(Some(8), request(Opcode::Write as u32, 8, inode, &args), Some(data));
    }

    fn unlink(&mut self, name: &[u8]) {
        self.kernel_request(Opcode::Unlink, 9, DIR, &[name, b"\0"].concat());
    }

    fn lookup(&mut self, name: &[u8]) {
        self.kernel_request(Opcode::Lookup, 10, DIR, &[name, b"\0"].concat());
    }

    /// Seconds and nanoseconds for which the kernel may keep the directory's attributes.
    fn directory_valid_ns(&mut self) -> (u64, u32) {
        self.kernel_request(Opcode::Getattr, 12, DIR, &[0; 16]);
        let reply = self.reply();
        (u64_at(&reply, 0), u32::from_ne_bytes(reply.payload[8..12].try_into().unwrap()))
    }

    fn rmdir(&mut self) {
        self.kernel_request(Opcode::Rmdir, 11, PARENT, b"d\0");
    }
}

#[test]
fn a_file_is_made_written_changed_and_closed_before_the_server_has_made_it() {
    let mut harness = mount();
    harness.create_with(0o101, 0o100_644, b"a");
    let reply = harness.reply();
    assert_eq!((reply.status, u64_at(&reply, 0)), (Status::Ok, FIRST.0));
    let handle = u64_at(&reply, 128);
    let validity = (u64_at(&reply, 16), u64_at(&reply, 24));
    assert_eq!(validity, (9, 9), "of the name, and of the attributes: nobody else knows the file");
    harness.write_at(FIRST, 0);
    assert_eq!(harness.reply().status, Status::Ok);
    harness.kernel_request(Opcode::Setattr, 8, FIRST, &setattr_args(NOW, 0, 0));
    assert_eq!(harness.reply().status, Status::Ok);
    harness.kernel_request(Opcode::Release, 9, FIRST, &u64s(&[handle, 0, 0]));
    assert_eq!(harness.reply().status, Status::Ok);
    let received = harness.take_create(FIRST);
    assert!(harness.requests.is_empty(), "what follows comes behind it");
    let create = Create::decode_all(&received.body).unwrap();
    assert_eq!(create.behind, Some(CreateBehind { inode: FIRST, at: MADE_AT }));
    assert_eq!(create.handle.map(|handle| handle.id.0), Some(handle));
    harness.grant_leases(&received, Ok(&created(FIRST)), (2, ALL));
    let written = harness.take();
    assert_eq!(written.head.op, Op::Write);
    assert_ne!(written.head.flags & request_flag::BEHIND, 0);
    harness.answer(&written, &Written { file_offset: 0, written_bytes: 100 }.to_bytes());
    let set = harness.take();
    assert_eq!(set.head.op, Op::Setattr);
    harness.answer(&set, &Entry { attr: file(FIRST) }.to_bytes());
    assert_eq!(harness.take().head.op, Op::Close);
}

#[test]
fn nothing_is_synced_before_the_file_is_made() {
    let mut harness = mount();
    let inode = harness.creates_early(b"a");
    harness.write_at(inode, 0);
    assert_eq!(harness.reply().status, Status::Ok);
    harness.kernel_request(Opcode::Fsync, 12, inode, &u64s(&[1, 0]));
    assert_eq!(harness.requests.len(), 1, "the create alone");
    harness.is_made(inode, ALL);
    let written = harness.take();
    assert_eq!(written.head.op, Op::Write);
    for _ in 0..2 {
        let ahead = harness.take();
        assert_eq!(ahead.head.op, Op::Sync, "of its name, and of what the data shard has received");
        harness.answer(&ahead, &[]);
    }
    harness.answer(&written, &Written { file_offset: 0, written_bytes: 100 }.to_bytes());
    let contents = harness.take();
    assert_eq!(contents.head.op, Op::Sync);
    harness.answer(&contents, &[]);
    assert_eq!(harness.reply().status, Status::Ok);
}

#[test]
fn several_creates_are_under_way_and_answered_in_any_order() {
    let mut harness = mount();
    let names = [b"a", b"b", b"c"];
    let inodes: Vec<InodeNo> = names.iter().map(|name| harness.creates_early(&name[..])).collect();
    assert_eq!(inodes, [FIRST, SECOND, InodeNo(FIRST.0 + 2)]);
    let mut received: Vec<_> = inodes.iter().map(|inode| harness.take_create(*inode)).collect();
    received.swap(0, 2);
    let answers = received.iter().zip(inodes.iter().rev());
    for (received, inode) in answers {
        harness.further = vec![directory()];
        harness.grant_leases(received, Ok(&created(*inode)), (2, ALL));
    }
    // The names are known: nothing is asked.
    harness.lookup(b"d");
    assert_eq!(harness.reply().status, Status::NotFound);
    harness.lookup(b"b");
    assert_eq!(u64_at(&harness.reply(), 0), SECOND.0);
    harness.creates_early(b"d");
}

#[test]
fn who_looks_waits_and_who_asks_for_the_directory_sees_the_change() {
    let mut harness = mount();
    harness.now_ms += 1_000;
    harness.creates_early(b"a");
    harness.kernel_request(Opcode::Getattr, 8, DIR, &[0; 16]);
    let shown = mtime_of(&harness.reply());
    assert!(shown >= (300, 9), "{shown:?}");
    harness.kernel_request(Opcode::Lookup, 8, PARENT, b"d\0");
    let reply = harness.reply();
    assert_eq!(u64_at(&reply, 40 + 40), shown.0, "by its name as well");
    let create = harness.take_create(FIRST);
    harness.lookup(b"a");
    harness.kernel_request(Opcode::Getattr, 11, FIRST, &[0; 16]);
    let readdir = [u64s(&[3, 0]), u32s(&[4096, 0])].concat();
    harness.kernel_request(Opcode::Readdir, 12, DIR, &readdir);
    harness.rmdir();
    let mkdir = [u32s(&[0o755, 0o022]), b"x\0".to_vec()].concat();
    harness.kernel_request(Opcode::Mkdir, 13, DIR, &mkdir);
    let set = setattr_args(NOW, 0, 0);
    harness.kernel_request(Opcode::Setattr, 14, DIR, &set);
    assert!(harness.replies.is_empty() && harness.requests.is_empty(), "all wait");
    harness.grant_leases(&create, Ok(&created(FIRST)), (2, ALL));
    let ops: Vec<Op> = harness.requests.iter().map(|received| received.head.op).collect();
    assert_eq!(ops, [Op::Readdir, Op::Rmdir, Op::Mkdir, Op::Setattr]);
    // The file is looked at without the server: it is known that the removal is not of this one.
    let looked: Vec<Status> = harness.replies.iter().map(|reply| reply.status).collect();
    assert_eq!(looked, [Status::Ok; 2]);
}

#[test]
fn the_times_of_a_directory_do_not_go_back_in_a_late_answer() {
    let mut harness = mount();
    harness.kernel_request(Opcode::Lookup, 8, PARENT, b"e\0");
    let lookup = harness.take();
    harness.creates_early(b"a");
    // The directory has got this name as well: an answer of before the create.
    let old = Attr { mtime: Timestamp { secs: 200, nanos: 9 }, ..directory() };
    harness.grant_leases(&lookup, Ok(&Entry { attr: old }.to_bytes()), (2, BOTH));
    let reply = harness.reply();
    assert_eq!(u64_at(&reply, 40 + 40), MADE_AT.secs.cast_unsigned());
    assert_eq!(u64_at(&reply, 24), 0, "it is not to be kept");
}

#[test]
fn a_refused_create_is_reported_and_what_followed_it_is_lost() {
    let mut harness = mount();
    let inode = harness.creates_early(b"a");
    harness.write_at(inode, 0);
    assert_eq!(harness.reply().status, Status::Ok);
    let received = harness.take_create(inode);
    harness.fail(&received, Status::Stale);
    assert!(harness.requests.is_empty(), "nothing is written");
    // The kernel drops the attributes, which have no lease.
    harness.all_notified();
    harness.run();
    let lines: Vec<_> = harness.logged.iter().map(|(_, line)| line.clone()).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with(b"a file is lost that was created as inode"));
    harness.kernel_request(Opcode::Fsync, 10, inode, &u64s(&[1, 0]));
    assert_eq!(harness.status(), Status::Io);
    // Its directory is used as all others from now on, and the name is asked for.
    harness.create_with(0o101, 0o100_644, b"b");
    assert!(harness.replies.is_empty());
    let received = harness.take();
    assert_eq!(received.head.op, Op::Create);
    assert_eq!(Create::decode_all(&received.body).unwrap().behind, None);
    harness.lookup(b"a");
    assert_eq!(harness.take().head.op, Op::Lookup);
}

#[test]
fn a_file_without_a_lease_keeps_its_directory_busy_until_it_is_written() {
    let mut harness = mount();
    let inode = harness.creates_early(b"a");
    harness.write_at(inode, 0);
    assert_eq!(harness.reply().status, Status::Ok);
    let create = harness.take_create(inode);
    harness.grant_leases(&create, Ok(&created(inode)), (2, BOTH));
    let written = harness.take();
    assert_eq!((written.head.op, written.head.flags & request_flag::BEHIND), (Op::Write, 0));
    harness.rmdir();
    assert!(harness.requests.is_empty());
    harness.answer(&written, &Written { file_offset: 0, written_bytes: 100 }.to_bytes());
    assert_eq!(harness.take().head.op, Op::Rmdir);
}

#[test]
fn what_is_shown_without_a_lease_is_dropped_before_the_directory_is_idle() {
    let (name, attributes) = (lease_flag::NAME, lease_flag::ATTRIBUTES);
    for (granted, is_dropped) in
        [(0, true), (name, true), (attributes, true), (name | attributes, false)]
    {
        let mut harness = mount();
        harness.create_with(0o101, 0o100_644, b"a");
        let reply = harness.reply();
        let [inode, name_secs, attributes_secs] = [0, 16, 24].map(|at| u64_at(&reply, at));
        assert!(name_secs > 0 && attributes_secs > 0, "the kernel may keep both");
        let create = harness.take_create(InodeNo(inode));
        let made = created(InodeNo(inode));
        harness.grant_leases(&create, Ok(&made), (2, lease_flag::WRITING | granted));
        harness.rmdir();
        if is_dropped {
            assert!(harness.requests.is_empty(), "the kernel has not dropped them");
            let drops =
                |it: fn(&Dropped) -> bool| harness.notifies.iter().any(|(_, notify)| it(notify));
            assert!(drops(|it| matches!(it, Dropped::Name(..))));
            assert!(drops(|it| matches!(it, Dropped::Attributes(_))));
            harness.all_notified();
        }
        assert!(harness.notifies.is_empty());
        assert_eq!(harness.take().head.op, Op::Rmdir);
    }
}

#[test]
fn a_recall_is_acknowledged_when_nothing_is_under_way() {
    let mut harness = mount();
    harness.creates_early(b"a");
    let create = harness.take_create(FIRST);
    harness.recall(&create, 1, &[LeaseKey::Writing(DIR)]);
    assert!(harness.acknowledged.is_empty());
    harness.create_with(0o101, 0o100_644, b"b");
    assert!(harness.replies.is_empty(), "nothing is answered early any more");
    harness.grant_leases(&create, Ok(&created(FIRST)), (200, ALL));
    assert_eq!(harness.acknowledged, [(vec![1], 0)]);
    let received = harness.take();
    assert_eq!(Create::decode_all(&received.body).unwrap().behind, None);
}

#[test]
fn an_idle_directory_is_given_up_at_once() {
    let mut harness = mount();
    harness.creates_early(b"a");
    let create = harness.take_create(FIRST);
    harness.grant_leases(&create, Ok(&created(FIRST)), (2, ALL));
    harness.recall(&create, 1, &[LeaseKey::Writing(DIR)]);
    assert_eq!(harness.acknowledged, [(vec![1], 0)]);
}

/// The kernel may use what it was given for a moment for two of its ticks.
#[test]
fn attributes_are_given_for_a_moment_and_the_lease_ends_behind_it() {
    for is_idle in [false, true] {
        let mut harness = mount();
        harness.creates_early(b"a");
        let create = harness.take_create(FIRST);
        let ends = |harness: &mut Harness| {
            harness.grant_leases(&create, Ok(&created(FIRST)), (200, ALL));
        };
        assert_eq!(harness.directory_valid_ns(), (0, 1_000));
        if is_idle {
            ends(&mut harness);
        }
        harness.recall(&create, 1, &[LeaseKey::Writing(DIR)]);
        if !is_idle {
            assert_eq!(harness.directory_valid_ns(), (0, 0), "the lease is about to end");
            ends(&mut harness);
        }
        assert!(harness.acknowledged.is_empty());
        harness.wait_ms(GIVEN_MS_MAX - 1);
        assert!(harness.acknowledged.is_empty());
        harness.wait_ms(1);
        assert_eq!(harness.acknowledged, [(vec![1], 0)]);
    }
}

#[test]
fn a_removal_is_answered_at_once_and_the_name_waits_for_it() {
    let mut harness = mount();
    let inode = harness.creates_early(b"a");
    harness.is_made(inode, ALL);
    harness.unlink(b"a");
    assert_eq!(harness.status(), Status::Ok);
    let received = harness.take();
    assert_eq!(received.head.op, Op::Unlink);
    assert_ne!(received.head.flags & request_flag::BEHIND, 0);
    assert_eq!(Unlink::decode_all(&received.body).unwrap().behind, Some(MADE_AT));
    harness.create_with(0o101, 0o100_644, b"a");
    harness.kernel_request(Opcode::Getattr, 11, inode, &[0; 16]);
    assert!(harness.replies.is_empty() && harness.requests.is_empty());
    // Other names do not wait.
    harness.creates_early(b"b");
    harness.take_create(SECOND);
    harness.grant_leases(&received, Ok(&[]), (2, lease_flag::NAME));
    assert_eq!(harness.reply().status, Status::Ok, "the create of the name");
    harness.take_create(InodeNo(FIRST.0 + 2));
    assert_eq!(harness.take().head.op, Op::Getattr);
}

#[test]
fn a_file_that_was_just_written_is_removed_at_once() {
    let mut harness = mount();
    let inode = harness.creates_early(b"a");
    harness.is_made(inode, ALL);
    harness.write_at(inode, 0);
    assert_eq!(harness.reply().status, Status::Ok);
    let written = harness.take();
    harness.answer(&written, &Written { file_offset: 0, written_bytes: 100 }.to_bytes());
    // Its attributes are not known any more.
    harness.unlink(b"a");
    assert_eq!(harness.status(), Status::Ok);
    let received = harness.take();
    assert_eq!(Unlink::decode_all(&received.body).unwrap().behind, Some(MADE_AT));
}

#[test]
fn what_may_have_other_names_is_removed_by_the_server() {
    // A link was made and removed; another directory's file was moved here; a file has two names.
    let link = |harness: &mut Harness, inode: InodeNo| {
        let args = [u64s(&[inode.0]), b"l\0".to_vec()].concat();
        harness.kernel_request(Opcode::Link, 9, PARENT, &args);
        let received = harness.take();
        harness.grant_leases(&received, Ok(&Entry { attr: file(inode) }.to_bytes()), (3, BOTH));
        assert_eq!(harness.reply().status, Status::Ok);
    };
    let mut harness = mount();
    let inode = harness.creates_early(b"a");
    harness.is_made(inode, ALL);
    link(&mut harness, inode);
    harness.unlink(b"a");
    assert!(harness.replies.is_empty());
    assert_eq!(Unlink::decode_all(&harness.take().body).unwrap().behind, None);
    let mut harness = mount();
    let rename = [u64s(&[DIR.0]), b"x\0y\0".to_vec()].concat();
    harness.kernel_request(Opcode::Rename, 9, PARENT, &rename);
    let received = harness.take();
    harness.grant_leases(
        &received,
        Ok(&wire::Renamed { moved: None, exchanged: None }.to_bytes()),
        (3, 0),
    );
    assert_eq!(harness.reply().status, Status::Ok);
    harness.create_with(0o101, 0o100_644, b"a");
    assert!(harness.replies.is_empty());
}

#[test]
fn what_the_server_may_refuse_or_change_goes_through() {
    let shared = Attr { mode: 0o2755, ..directory() };
    let sticky = Attr { mode: 0o1777, ..directory() };
    let other = Attr { uid: 7, mode: 0o777, ..directory() };
    let closed = Attr { mode: 0o555, ..directory() };
    let with_acl = Attr { flags: attr_flag::XATTRS, ..directory() };
    for dir in [shared, sticky, other, closed, with_acl] {
        let mut harness = mount_with(dir);
        harness.create_with(0o101, 0o100_644, b"a");
        assert!(harness.replies.is_empty(), "{dir:?}");
        assert_eq!(Create::decode_all(&harness.take().body).unwrap().behind, None);
    }
    // O_DSYNC; set-id bits.
    for (flags, mode) in [(0o10_101, 0o100_644), (0o101, 0o104_755)] {
        let mut harness = mount();
        harness.create_with(flags, mode, b"a");
        assert!(harness.replies.is_empty());
    }
}

#[test]
fn without_a_number_a_create_waits_for_those_before_it() {
    let mut harness = mount();
    let names: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
    let inodes: Vec<InodeNo> = names.iter().map(|name| harness.creates_early(name)).collect();
    harness.create_with(0o101, 0o100_644, b"f");
    assert!(harness.replies.is_empty());
    assert_eq!(harness.requests.len(), 5);
    for inode in &inodes[..4] {
        harness.is_made(*inode, ALL);
    }
    assert!(harness.requests.iter().all(|received| received.head.op == Op::Create));
    assert_eq!(harness.requests.len(), 1);
    // The last one gives further numbers.
    let layout = wire::Layout::DEFAULT;
    harness.new_files = Some(NewFiles { first: InodeNo((1 << 48) | 9000), count: 2, layout });
    harness.is_made(inodes[4], ALL | lease_flag::NEW_FILES);
    let reply = harness.reply();
    assert_eq!(u64_at(&reply, 0), (1 << 48) | 9000);
    assert_eq!(harness.take().head.op, Op::Create);
}

#[test]
fn beyond_a_limit_a_create_waits_for_one_of_those_before_it() {
    let mut harness = mount_of((directory(), 100), 1);
    let inodes: Vec<InodeNo> =
        (0..32).map(|count| harness.creates_early(format!("f{count}").as_bytes())).collect();
    harness.create_with(0o101, 0o100_644, b"further");
    assert!(harness.replies.is_empty());
    assert_eq!(harness.requests.len(), 32);
    harness.is_made(inodes[0], ALL);
    assert_eq!(u64_at(&harness.reply(), 0), FIRST.0 + 32);
    assert_eq!(harness.requests.len(), 32);
}

#[test]
fn another_lane_is_told_when_nothing_is_under_way() {
    let mut harness = mount();
    harness.creates_early(b"a");
    let table = harness.lane.behind.table.clone().unwrap();
    // Another lane waits, and has ended it meanwhile.
    assert!(table.directories.waits(DIR, LaneId(2)));
    table.directories.end(DIR);
    harness.is_made(FIRST, ALL);
    let told = MountMessage::Written { inode: DIR };
    assert!(harness.peer_messages.contains(&(LaneId(2), told)));
    assert!(table.directories.is_empty(), "it has given it back");
}

#[test]
fn what_another_lane_waits_for_goes_on_here() {
    let mut harness = mount();
    let table = harness.lane.behind.table.clone().unwrap();
    // Another lane creates.
    assert!(table.directories.begin(DIR, MADE_AT));
    harness.rmdir();
    assert!(harness.requests.is_empty());
    table.directories.end_change(DIR);
    let message = MountMessage::Written { inode: DIR };
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(2), message }));
    assert_eq!(harness.take().head.op, Op::Rmdir);
}

#[test]
fn a_listing_of_the_parent_shows_the_change() {
    let mut harness = mount();
    let readdir = [u64s(&[3, 0]), u32s(&[4096, 0])].concat();
    harness.kernel_request(Opcode::Readdirplus, 12, PARENT, &readdir);
    let listed = harness.take();
    harness.creates_early(b"a");
    let old = Attr { mtime: Timestamp { secs: 200, nanos: 9 }, ..directory() };
    let name = wire::Name::new(b"d").unwrap();
    let (kind, attr) = (FileKind::Directory, Some(old));
    let entry = wire::Dirent { inode: DIR, kind, name, cookie: 1, attr, granted: true };
    let entries = entry.to_bytes();
    let parent = InodeNo::ROOT;
    let listing = Listing { parent, entries: List::new(1, &entries), end: true };
    harness.grant_leases(&listed, Ok(&listing.to_bytes()), (2, BOTH));
    let reply = harness.reply();
    let secs = MADE_AT.secs.to_ne_bytes();
    let shown = reply.payload.windows(8).filter(|bytes| **bytes == secs).count();
    assert!(shown >= 2, "mtime and ctime");
}

#[test]
fn a_restarted_server_hears_which_directories_are_being_changed() {
    let mut harness = mount();
    harness.creates_early(b"a");
    harness.creates_early(b"b");
    harness.answers_recovery = true;
    harness.shape.flags |= wire::welcome_flag::HANDLES_UNKNOWN;
    harness.shape.start_again();
    harness.hang_up();
    harness.wait_ms(1_000);
    let claim = harness.take();
    assert_eq!(claim.head.op, Op::Claim);
    let claimed = Claim::decode_all(&claim.body).unwrap();
    assert_eq!(claimed, Claim { inode: DIR, first: FIRST, count: 2 });
    assert!(harness.requests.is_empty(), "it comes before the creates");
    harness.answer(&claim, &[]);
    let resent = [harness.take_create(FIRST), harness.take_create(SECOND)];
    for received in &resent {
        assert_ne!(received.head.flags & request_flag::RESENT, 0);
    }
    // Numbers of the time before are void, and the directory is not used so any more.
    harness.create_with(0o101, 0o100_644, b"c");
    assert!(harness.replies.is_empty());
}

#[test]
fn an_unmount_waits_for_what_is_under_way() {
    let mut harness = mount();
    harness.creates_early(b"a");
    harness.event(Event::Stop);
    assert!(harness.requests.iter().all(|received| received.head.op == Op::Create));
    assert_eq!(harness.stopped_count, 0);
    harness.is_made(FIRST, ALL);
    assert_eq!(harness.stopped_count, 1);
}
