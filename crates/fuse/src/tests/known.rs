//! What the mount answers by itself, and how many exchanges operations take.

use super::harness::{Harness, KernelReply, ReceivedRequest, request, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::abi::{FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, Opcode};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use client::{Cache, CacheSize};
use interface::{BufId, Bulk, Event, KernelEvent, NO_MAC};
use wire::{
    Attr, Bytes, Created, Entry, FileKind, InodeNo, LeaseKey, Name, Op, Rules, Status, Value,
    Wire as _, Written, attr_flag, lease_flag,
};

const SECOND_NS: u64 = 1_000_000_000;
const BOTH: u8 = lease_flag::NAME | lease_flag::ATTRIBUTES;
const PARENT: InodeNo = InodeNo((1 << 48) | 4);

pub(super) fn cache() -> Arc<Cache> {
    let size = CacheSize {
        name_count_max: 256,
        attributes_count_max: 256,
        directory_count_max: 64,
        slot_count: 65_536,
    };
    Arc::new(Cache::new([1, 2, 3], size, Rules::default()))
}

fn entry(attr: Attr) -> Vec<u8> {
    Entry { attr }.to_bytes()
}

fn file() -> Attr {
    attr(FILE, FileKind::File)
}

fn directory() -> Attr {
    attr(DIRECTORY, FileKind::Directory)
}

fn u64_at(reply: &KernelReply, at: usize) -> u64 {
    u64::from_ne_bytes(reply.payload[at..at + 8].try_into().unwrap())
}

/// The validity of a name in a `fuse_entry_out`, in seconds.
fn name_secs(reply: &KernelReply) -> u64 {
    assert_eq!(reply.status, Status::Ok);
    u64_at(reply, 16)
}

impl Harness {
    /// A request that needs no exchange.
    fn locally(&mut self, opcode: Opcode, node: InodeNo, args: &[u8]) -> KernelReply {
        self.kernel_request(opcode, 7, node, args);
        assert!(self.requests.is_empty(), "{opcode:?}: {:?}", self.requests);
        self.reply()
    }

    /// A request that needs one, which is answered with these grants.
    fn remotely(
        &mut self,
        (opcode, node, args): (Opcode, InodeNo, &[u8]),
        result: Result<&[u8], Status>,
        granted: u8,
    ) -> (ReceivedRequest, KernelReply) {
        self.kernel_request(opcode, 7, node, args);
        let received = self.take();
        assert!(self.requests.is_empty());
        self.grant_leases(&received, result, (1, granted));
        (received, self.reply())
    }

    /// Makes a directory: its node.
    fn makes_directory(&mut self) -> InodeNo {
        let mkdir = [u32s(&[0o755, 0o022]), b"d\0".to_vec()].concat();
        let made = entry(Attr { flags: attr_flag::EMPTY, ..directory() });
        let (_, reply) = self.remotely((Opcode::Mkdir, PARENT, &mkdir), Ok(&made), BOTH);
        InodeNo(u64_at(&reply, 0))
    }

    fn creates(&mut self, node: InodeNo, name: &[u8]) -> (ReceivedRequest, KernelReply) {
        let args = [&u32s(&[0o101, 0o100_644, 0o022, 0])[..], name, b"\0"].concat();
        let body = Created { attr: file(), made: true }.to_bytes();
        self.further = vec![directory()];
        self.remotely((Opcode::Create, node, &args), Ok(&body), BOTH)
    }
}

#[test]
fn a_file_is_made_and_written_with_two_exchanges() {
    let mut harness = Harness::with_cache(&cache());
    let node = harness.makes_directory();
    assert_eq!(harness.locally(Opcode::Getattr, node, b"").status, Status::Ok);
    assert_eq!(harness.locally(Opcode::Lookup, node, b"a\0").status, Status::NotFound);
    let (received, reply) = harness.creates(node, b"a");
    assert_eq!(received.head.op, Op::Create);
    let handle = u64_at(&reply, 128);
    assert_eq!(harness.locally(Opcode::Getattr, node, b"").status, Status::Ok);
    assert_eq!(harness.locally(Opcode::Lookup, node, b"b\0").status, Status::NotFound);
    let getxattr = [u32s(&[0, 0]), b"security.capability\0".to_vec()].concat();
    assert_eq!(harness.locally(Opcode::Getxattr, FILE, &getxattr).status, Status::NoData);
    let write = [u64s(&[handle, 0]), u32s(&[100, 0]), u64s(&[0]), u32s(&[1, 0])].concat();
    let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 100, crc32c: None, mac: NO_MAC };
    let bytes = request(Opcode::Write as u32, 8, FILE, &write);
    harness.kernel_bytes(Some(8), bytes, Some(data));
    let received = harness.take();
    assert_eq!(received.head.op, Op::Write);
    harness.answer(&received, &Written { file_offset: 0, written_bytes: 100 }.to_bytes());
    assert_eq!(harness.reply().status, Status::Ok);
    let flush = u64s(&[handle, 0, 5]);
    assert_eq!(harness.locally(Opcode::Flush, FILE, &flush).status, Status::Ok);
    harness.kernel_request(Opcode::Release, 9, FILE, &u64s(&[handle, 0, 0]));
    assert_eq!(harness.reply().status, Status::Ok, "nothing is awaited");
    assert_eq!(harness.take().head.op, Op::Close);
    assert!(harness.requests.is_empty());
}

#[test]
fn an_inode_without_a_label_says_that_labels_are_not_supported() {
    let getxattr = |name: &[u8]| [u32s(&[100, 0]), name.to_vec()].concat();
    let label = getxattr(b"security.selinux\0");
    let mut harness = Harness::with_cache(&cache());
    let lookup = (Opcode::Lookup, DIRECTORY, &b"a\0"[..]);
    harness.remotely(lookup, Ok(&entry(file())), 0);
    let asked = (Opcode::Getxattr, FILE, &label[..]);
    assert_eq!(harness.remotely(asked, Err(Status::NoData), 0).1.status, Status::NotSupported);
    assert_eq!(harness.remotely(asked, Err(Status::Stale), 0).1.status, Status::Stale);
    let (_, reply) = harness.remotely(asked, Ok(&Value { value: Bytes(b"a:b") }.to_bytes()), 0);
    assert_eq!((reply.status, &reply.payload[..]), (Status::Ok, &b"a:b"[..]));
    let other = getxattr(b"security.x\0");
    let (_, reply) = harness.remotely((Opcode::Getxattr, FILE, &other), Err(Status::NoData), 0);
    assert_eq!(reply.status, Status::NoData);
    harness.remotely(lookup, Ok(&entry(file())), BOTH);
    assert_eq!(harness.locally(Opcode::Getxattr, FILE, &label).status, Status::NotSupported);
    assert_eq!(harness.locally(Opcode::Getxattr, FILE, &other).status, Status::NoData);
}

#[test]
fn what_is_leased_is_answered_with_the_rest_of_the_lease() {
    let mut harness = Harness::with_cache(&cache());
    let lookup = (Opcode::Lookup, DIRECTORY, &b"a\0"[..]);
    harness.remotely(lookup, Ok(&entry(file())), BOTH);
    harness.wait_ms(3_000);
    let reply = harness.locally(Opcode::Lookup, DIRECTORY, b"a\0");
    assert_eq!((u64_at(&reply, 0), name_secs(&reply)), (FILE.0, 6));
    let reply = harness.locally(Opcode::Getattr, FILE, b"");
    assert_eq!(u64_at(&reply, 0), 6);
    let (_, reply) = harness.remotely(
        (Opcode::Lookup, DIRECTORY, b"b\0"),
        Err(Status::NotFound),
        lease_flag::NAME,
    );
    assert_eq!(name_secs(&reply), 9);
    assert_eq!(name_secs(&harness.locally(Opcode::Lookup, DIRECTORY, b"b\0")), 9);
    harness.wait_ms(6_000);
    harness.remotely(lookup, Ok(&entry(file())), BOTH);
}

#[test]
fn the_kernel_keeps_no_absent_name_without_a_lease_of_its_own() {
    let mut harness = Harness::with_cache(&cache());
    let node = harness.makes_directory();
    let reply = harness.locally(Opcode::Lookup, node, b"a\0");
    assert!((reply.status, reply.payload.len()) == (Status::NotFound, 0));
}

#[test]
fn the_kernel_keeps_listings_as_long_as_the_directory_is_held() {
    let mut harness = Harness::with_cache(&cache());
    let flags = |reply: &KernelReply| u64_at(reply, 8);
    let open = (Opcode::Opendir, DIRECTORY, &u32s(&[0, 0])[..]);
    let (_, reply) = harness.remotely(open, Ok(&entry(directory())), 0);
    assert_eq!(flags(&reply), 0, "nothing is granted");
    let attributes = lease_flag::ATTRIBUTES;
    let (received, reply) = harness.remotely(open, Ok(&entry(directory())), attributes);
    assert_eq!(flags(&reply), u64::from(FOPEN_CACHE_DIR), "older listings are dropped");
    let (_, reply) = harness.remotely(open, Ok(&entry(directory())), attributes);
    assert_eq!(flags(&reply), u64::from(FOPEN_CACHE_DIR), "they may still be there");
    harness.wait_ms(20);
    let (_, reply) = harness.remotely(open, Ok(&entry(directory())), attributes);
    assert_eq!(flags(&reply), u64::from(FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE));
    harness.wait_ms(9_000);
    let (_, reply) = harness.remotely(open, Ok(&entry(directory())), attributes);
    assert_eq!(flags(&reply), u64::from(FOPEN_CACHE_DIR), "a listing grants its entries anew");
    harness.recall(&received, 1, &[LeaseKey::Attributes(DIRECTORY)]);
    let (_, reply) = harness.remotely(open, Ok(&entry(directory())), 0);
    assert_eq!(flags(&reply), 0);
}

#[test]
fn a_directory_that_is_held_is_opened_again_with_its_handle() {
    let mut harness = Harness::with_cache(&cache());
    let open = (Opcode::Opendir, DIRECTORY, &u32s(&[0, 0])[..]);
    let granted = lease_flag::ATTRIBUTES | lease_flag::CONTENTS;
    let (received, reply) = harness.remotely(open, Ok(&entry(directory())), granted);
    let handle = u64_at(&reply, 0);
    let release = u64s(&[handle, 0, 0]);
    harness.wait_ms(20);
    for _ in 0..2 {
        harness.locally(Opcode::Releasedir, DIRECTORY, &release);
        let reply = harness.locally(open.0, open.1, open.2);
        let flags = u64::from(FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE);
        assert_eq!((u64_at(&reply, 0), u64_at(&reply, 8)), (handle, flags));
    }
    // While it is open, another open has a handle of its own, and that one is kept.
    let (_, reply) = harness.remotely(open, Ok(&entry(directory())), granted);
    let other = u64_at(&reply, 0);
    assert_ne!(other, handle);
    harness.kernel_request(Opcode::Releasedir, 9, DIRECTORY, &release);
    assert_eq!(harness.reply().status, Status::Ok);
    assert_eq!(harness.take().head.op, Op::Close);
    harness.locally(Opcode::Releasedir, DIRECTORY, &u64s(&[other, 0, 0]));
    assert_eq!(u64_at(&harness.locally(open.0, open.1, open.2), 0), other);
    harness.locally(Opcode::Releasedir, DIRECTORY, &u64s(&[other, 0, 0]));
    // A recall of its attributes: its names are not known. One of its contents: it is removed.
    harness.recall(&received, 1, &[LeaseKey::Attributes(DIRECTORY)]);
    harness.all_notified();
    let (received, _) = harness.remotely(open, Ok(&entry(directory())), 0);
    harness.recall(&received, 2, &[LeaseKey::Contents(DIRECTORY)]);
    assert_eq!(harness.take().head.op, Op::Close);
}

#[test]
fn nothing_is_answered_behind_a_recall() {
    let name = Name::new(b"a").unwrap();
    let entry = entry(file());
    let lookup = (Opcode::Lookup, DIRECTORY, &b"a\0"[..]);
    for key in [LeaseKey::Attributes(FILE), LeaseKey::Name(DIRECTORY, name), LeaseKey::All] {
        let mut harness = Harness::with_cache(&cache());
        let (received, _) = harness.remotely(lookup, Ok(&entry), BOTH);
        harness.recall(&received, 1, &[key]);
        assert!(harness.acknowledged.is_empty());
        harness.remotely(lookup, Ok(&entry), 0);
        harness.all_notified();
        assert_eq!(harness.acknowledged, [(vec![1], 0)]);
        harness.remotely(lookup, Ok(&entry), 0);
    }
    // Names of a directory are known as long as its attributes are leased.
    let mut harness = Harness::with_cache(&cache());
    let node = harness.makes_directory();
    let (received, _) = harness.creates(node, b"a");
    harness.locally(Opcode::Lookup, node, b"b\0");
    harness.recall(&received, 1, &[LeaseKey::Attributes(DIRECTORY)]);
    harness.remotely((Opcode::Lookup, node, b"b\0"), Err(Status::NotFound), 0);
    harness.locally(Opcode::Lookup, node, b"a\0");
}

#[test]
fn nothing_is_answered_when_a_connection_was_lost() {
    let mut harness = Harness::with_cache(&cache());
    let lookup = (Opcode::Lookup, DIRECTORY, &b"a\0"[..]);
    harness.remotely(lookup, Ok(&entry(file())), BOTH);
    harness.hang_up();
    harness.all_notified();
    harness.remotely(lookup, Ok(&entry(file())), 0);
}

#[test]
fn what_another_lane_has_learned_is_answered_without_validity() {
    let cache = cache();
    let (mut here, mut there) = (Harness::with_cache(&cache), Harness::with_cache(&cache));
    there.lane.client = super::harness::client_of_lane(1);
    here.remotely((Opcode::Lookup, DIRECTORY, b"a\0"), Ok(&entry(file())), BOTH);
    let reply = there.locally(Opcode::Lookup, DIRECTORY, b"a\0");
    assert_eq!((u64_at(&reply, 0), name_secs(&reply), u64_at(&reply, 24)), (FILE.0, 0, 0));
    let reply = here.locally(Opcode::Lookup, DIRECTORY, b"a\0");
    assert_eq!((name_secs(&reply), u64_at(&reply, 24) * SECOND_NS), (9, 9 * SECOND_NS));
}

#[test]
fn what_the_kernel_asks_again_and_again_is_leased_by_the_lane_that_is_asked() {
    let cache = cache();
    let (mut here, mut there) = (Harness::with_cache(&cache), Harness::with_cache(&cache));
    there.lane.client = super::harness::client_of_lane(1).with_leases();
    let lookup = (Opcode::Lookup, DIRECTORY, &b"a\0"[..]);
    let getattr = (Opcode::Getattr, FILE, &b""[..]);
    here.remotely(lookup, Ok(&entry(file())), BOTH);
    for (request, grants) in [(lookup, 0), (getattr, 0), (lookup, BOTH)] {
        for _ in 0..6 {
            there.locally(request.0, request.1, request.2);
        }
        there.remotely(request, Ok(&entry(file())), grants);
    }
    let reply = there.locally(Opcode::Lookup, DIRECTORY, b"a\0");
    assert_eq!((name_secs(&reply), u64_at(&reply, 24) * SECOND_NS), (9, 9 * SECOND_NS));
    // A kernel that may keep no names does not ask less after an exchange.
    here.lane.leases.forgets_names = false;
    for _ in 0..14 {
        here.locally(Opcode::Lookup, DIRECTORY, b"a\0");
    }
}

#[test]
fn what_another_lane_changes_is_asked_for() {
    let cache = cache();
    let (mut here, mut there) = (Harness::with_cache(&cache), Harness::with_cache(&cache));
    let node = here.makes_directory();
    there.creates(node, b"a");
    here.locally(Opcode::Lookup, node, b"a\0");
    there.remotely((Opcode::Unlink, node, b"a\0"), Ok(&[]), 0);
    let reply = here.locally(Opcode::Lookup, node, b"a\0");
    assert_eq!(reply.status, Status::NotFound);
    here.remotely((Opcode::Getattr, FILE, b""), Err(Status::Stale), 0);
    here.remotely((Opcode::Getattr, node, b""), Err(Status::Stale), 0);
}

#[test]
fn a_change_that_was_abandoned_outdates_everything_when_it_is_over() {
    let mut harness = Harness::with_cache(&cache());
    let lookup = (Opcode::Lookup, DIRECTORY, &b"a\0"[..]);
    harness.remotely(lookup, Ok(&entry(file())), BOTH);
    harness.kernel_request(Opcode::Unlink, 8, PARENT, b"x\0");
    let received = harness.take();
    let interrupt = request(Opcode::Interrupt as u32, 9, InodeNo(0), &u64s(&[8]));
    harness.kernel_bytes(None, interrupt, None);
    harness.wait_ms(20);
    harness.wait_ms(1_000);
    assert_eq!(harness.status(), Status::Interrupted);
    harness.remotely((Opcode::Getattr, FILE, b""), Ok(&entry(file())), BOTH);
    harness.locally(Opcode::Getattr, FILE, b"");
    harness.answer(&received, &[]);
    harness.event(Event::Kernel(KernelEvent::Notified {
        ticket: interface::Ticket(0),
        result: Ok(()),
    }));
    harness.remotely((Opcode::Getattr, FILE, b""), Ok(&entry(file())), 0);
}
