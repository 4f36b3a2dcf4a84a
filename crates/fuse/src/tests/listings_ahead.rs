//! Directories whose names were known are listed again when several of them are looked up.

use super::harness::{Harness, ReceivedRequest, u64s};
use super::{DIRECTORY, attr, known};
use crate::abi::Opcode;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use client::Cache;
use wire::{
    Attr, Dirent, Entry, FileKind, InodeNo, LeaseKey, List, Listing, Lookup, Name, Op, Readdir,
    Status, Wire as _, Writer, attr_flag, lease_flag,
};

const PARENT: InodeNo = InodeNo((1 << 48) | 4);
const BOTH: u8 = lease_flag::NAME | lease_flag::ATTRIBUTES;

fn file(no: u64) -> Attr {
    attr(InodeNo((1 << 48) | (100 + no)), FileKind::File)
}

struct Mount {
    harness: Harness,
    cache: Arc<Cache>,
    lease_no: u64,
}

impl Mount {
    /// That has known all names of a directory, and has lost its leases.
    fn has_lost() -> Self {
        let mut mount = Self::knows();
        mount.loses();
        mount
    }

    /// That knows all names of a directory: none.
    fn knows() -> Self {
        let cache = known::cache();
        let mut mount = Self { harness: Harness::with_cache(&cache), cache, lease_no: 0 };
        mount.harness.kernel_request(Opcode::Lookup, 7, PARENT, b"d\0");
        let received = mount.harness.take();
        let empty = Attr { flags: attr_flag::EMPTY, ..attr(DIRECTORY, FileKind::Directory) };
        mount.grants(&received, &Entry { attr: empty }.to_bytes());
        mount.harness.reply();
        mount
    }

    fn loses(&mut self) {
        self.harness.hang_up();
        self.harness.all_notified();
    }

    fn grants(&mut self, received: &ReceivedRequest, body: &[u8]) {
        self.lease_no += 1;
        self.harness.grant_leases(received, Ok(body), (self.lease_no, BOTH));
    }

    /// A LOOKUP; what the server is asked for.
    fn looks_up(&mut self, no: u64) -> Vec<ReceivedRequest> {
        let name = format!("f{no}\0");
        self.harness.kernel_request(Opcode::Lookup, 8, DIRECTORY, name.as_bytes());
        self.harness.requests.drain(..).collect()
    }

    /// One that the server answers; what else it is asked for.
    fn is_answered(&mut self, no: u64) -> Vec<ReceivedRequest> {
        let mut asked = self.looks_up(no);
        let lookup = asked.remove(0);
        assert_eq!(
            Lookup::decode_all(&lookup.body).unwrap().name.bytes(),
            format!("f{no}").as_bytes()
        );
        self.grants(&lookup, &Entry { attr: file(no) }.to_bytes());
        assert_eq!(self.harness.reply().status, Status::Ok);
        asked
    }

    fn answers_alone(&mut self, no: u64) {
        assert!(self.looks_up(no).is_empty(), "f{no}");
        assert_eq!(self.harness.reply().status, Status::Ok);
    }

    /// Answers a listing with files whose numbers are their cookies.
    fn lists(&mut self, received: &ReceivedRequest, files: core::ops::Range<u64>, end: bool) {
        let mut bytes = Vec::new();
        for no in files.clone() {
            let name = format!("f{no}");
            let name = Name::new(name.as_bytes()).unwrap();
            let (attr, kind) = (file(no), FileKind::File);
            let dirent = Dirent {
                cookie: no,
                inode: attr.inode,
                kind,
                name,
                attr: Some(attr),
                granted: true,
            };
            dirent.encode(&mut Writer::new(&mut bytes));
        }
        let count = u32::try_from(files.end - files.start).unwrap();
        let listing = Listing { parent: PARENT, end, entries: List::new(count, &bytes) };
        self.harness.further = vec![attr(DIRECTORY, FileKind::Directory)];
        self.grants(received, &listing.to_bytes());
        assert!(self.harness.replies.is_empty());
    }
}

#[track_caller]
fn readdir(asked: &[ReceivedRequest]) -> (u64, InodeNo) {
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].head.op, Op::Readdir);
    let request = Readdir::decode_all(&asked[0].body).unwrap();
    assert!(request.attrs);
    (request.cookie, request.inode)
}

#[test]
fn names_of_a_directory_that_was_known_are_asked_for_together() {
    let mut mount = Mount::has_lost();
    assert!(mount.is_answered(1).is_empty(), "one name alone");
    mount.answers_alone(1);
    let asked = mount.is_answered(2);
    assert_eq!(readdir(&asked), (0, DIRECTORY));
    mount.lists(&asked[0], 1..9, true);
    (1..9).for_each(|no| mount.answers_alone(no));
    assert!(mount.looks_up(9).is_empty(), "all names are known");
    assert_eq!(mount.harness.status(), Status::NotFound);
}

#[test]
fn parts_are_listed_as_far_as_names_are_asked_for() {
    let mut mount = Mount::has_lost();
    mount.is_answered(1);
    let asked = mount.is_answered(2);
    assert!(mount.is_answered(5).is_empty(), "a part is under way");
    mount.lists(&asked[0], 1..5, false);
    mount.answers_alone(4);
    let asked = mount.is_answered(8);
    assert_eq!(readdir(&asked), (4, DIRECTORY));
    mount.lists(&asked[0], 5..9, true);
    (5..9).for_each(|no| mount.answers_alone(no));
}

#[test]
fn what_is_recalled_is_asked_for_again() {
    let mut mount = Mount::has_lost();
    mount.is_answered(1);
    let asked = mount.is_answered(2);
    mount.lists(&asked[0], 1..9, true);
    let inode = file(5).inode;
    mount.harness.recall(&asked[0], 1, &[LeaseKey::Attributes(inode)]);
    mount.harness.all_notified();
    mount.answers_alone(4);
    mount.is_answered(5);
    let name = Name::new(b"f6").unwrap();
    let keys = [LeaseKey::Name(DIRECTORY, name), LeaseKey::Attributes(DIRECTORY)];
    mount.harness.recall(&asked[0], 2, &keys);
    mount.harness.all_notified();
    mount.is_answered(6);
}

#[test]
fn a_directory_that_was_not_known_or_still_is_known_is_not_listed() {
    let mut mount = Mount::knows();
    let inode = InodeNo((1 << 48) | 6);
    for no in 1..9 {
        let name = format!("f{no}\0");
        mount.harness.kernel_request(Opcode::Lookup, 8, inode, name.as_bytes());
        let asked: Vec<_> = mount.harness.requests.drain(..).collect();
        assert_eq!(asked.len(), 1, "it was not known");
        mount.grants(&asked[0], &Entry { attr: file(no) }.to_bytes());
        mount.harness.reply();
    }
    let now = interface::Mono(mount.harness.now_ms * 1_000_000);
    assert!(!mount.cache.has_lost_names(now, DIRECTORY));
    mount.loses();
    let now = interface::Mono(mount.harness.now_ms * 1_000_000);
    assert!(mount.cache.has_lost_names(now, DIRECTORY));
}

#[test]
fn who_may_not_list_a_directory_asks_for_each_name() {
    let mut mount = Mount::has_lost();
    mount.is_answered(1);
    let asked = mount.is_answered(2);
    mount.harness.fail(&asked[0], Status::Access);
    for no in 3..9 {
        assert!(mount.is_answered(no).is_empty(), "f{no}");
    }
    mount.harness.wait_ms(10_000);
    mount.harness.requests.clear();
    mount.is_answered(10);
    assert_eq!(mount.is_answered(11).len(), 1, "it may have changed");
}

#[test]
fn what_a_program_has_listed_is_not_listed_again() {
    let mut mount = Mount::has_lost();
    mount.is_answered(1);
    let args = [u64s(&[0, 0]), super::harness::u32s(&[65_536, 0]), u64s(&[0, 0])].concat();
    mount.harness.kernel_request(Opcode::Readdirplus, 9, DIRECTORY, &args);
    let received = mount.harness.take();
    let listing = Listing { parent: PARENT, end: true, entries: List::new(0, &[]) };
    mount.harness.further = vec![attr(DIRECTORY, FileKind::Directory)];
    mount.grants(&received, &listing.to_bytes());
    assert_eq!(mount.harness.reply().status, Status::Ok);
    let args = b"f2\0";
    mount.harness.kernel_request(Opcode::Lookup, 8, DIRECTORY, args);
    assert!(mount.harness.requests.is_empty(), "it is known to be absent");
}
