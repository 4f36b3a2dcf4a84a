//! Directories of 100,000 names: complete and in order whatever the buffer's size.

use super::harness::{Harness, u32s, u64s};
use super::std::collections::BTreeMap;
use super::{DIRECTORY, attr};
use crate::abi::Opcode;
use crate::listing::{END_POSITION, cookie_before, position_behind};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wire::{
    Dirent, FileKind, InodeNo, List, Listing, Name, Op, Readdir, Status, Wire, Writer, attr_flag,
};

/// One record of the kernel's buffer.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    node: Option<u64>,
    inode: u64,
    position: u64,
    kind: u32,
    name: String,
}

fn records(bytes: &[u8], plus: bool) -> Vec<Record> {
    let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        assert_eq!(at % 8, 0);
        let node = plus.then(|| u64_at(at));
        at += if plus { 128 } else { 0 };
        let name_bytes = u32_at(at + 16) as usize;
        let name = String::from_utf8(bytes[at + 24..at + 24 + name_bytes].to_vec()).unwrap();
        let (inode, position, kind) = (u64_at(at), u64_at(at + 8), u32_at(at + 20));
        found.push(Record { node, inode, position, kind, name });
        at += (24 + name_bytes).next_multiple_of(8);
    }
    assert_eq!(at, bytes.len(), "records end at the end of the buffer");
    found
}

/// The server's directory: names by cookie.
struct Directory {
    names: BTreeMap<u64, String>,
}

impl Directory {
    fn new(count: u64) -> Self {
        // Cookies with holes; the first is the smallest possible.
        let name = |n: u64| format!("{n:0width$}", width = 1 + (n % 40) as usize);
        Self { names: (0..count).map(|n| (1 + n * 3, name(n))).collect() }
    }

    /// The server's reply body.
    fn list(&self, request: &Readdir<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut count = 0;
        let mut end = true;
        for (cookie, name) in self.names.range(request.cookie + 1..) {
            let inode = InodeNo((3 << 48) | cookie);
            let mut attr = attr(inode, FileKind::File);
            if cookie % 2 == 0 {
                attr.flags = attr_flag::SIZE_AT_DATA;
            }
            let dirent = Dirent {
                cookie: *cookie,
                inode,
                kind: FileKind::File,
                name: Name::new(name.as_bytes()).unwrap(),
                attr: request.attrs.then_some(attr),
                granted: false,
            };
            let before = bytes.len();
            dirent.encode(&mut Writer::new(&mut bytes));
            if bytes.len() + 13 > request.listing_bytes_max as usize {
                bytes.truncate(before);
                end = false;
                break;
            }
            count += 1;
        }
        Listing { parent: InodeNo::ROOT, end, entries: List::new(count, &bytes) }.to_bytes()
    }
}

fn read_at(
    harness: &mut Harness,
    directory: &Directory,
    opcode: Opcode,
    at: u64,
    size: u32,
) -> Vec<u8> {
    let args = [u64s(&[0, at]), u32s(&[size, 0]), u64s(&[0, 0])].concat();
    harness.kernel_request(opcode, 7, DIRECTORY, &args);
    if at == END_POSITION {
        // The server has reported the end.
        let reply = harness.reply();
        assert_eq!((reply.status, reply.payload.len()), (Status::Ok, 0));
        return Vec::new();
    }
    let received = harness.take();
    assert_eq!(received.head.op, Op::Readdir);
    let request = Readdir::decode_all(&received.body).unwrap();
    assert!(request.listing_bytes_max >= 512 && request.listing_bytes_max <= 131_072);
    let body = directory.list(&request);
    harness.answer(&received, &body);
    let reply = harness.reply();
    assert_eq!(reply.status, Status::Ok);
    assert!(reply.payload.len() <= size as usize);
    reply.payload
}

fn read_all(
    directory: &Directory,
    opcode: Opcode,
    size: impl Fn(&mut fastrand::Rng) -> u32,
) -> Vec<Record> {
    let mut harness = Harness::new();
    let mut rng = fastrand::Rng::with_seed(77);
    let mut all: Vec<Record> = Vec::new();
    loop {
        let at = all.last().map_or(0, |record| record.position);
        let bytes = read_at(&mut harness, directory, opcode, at, size(&mut rng));
        let some = records(&bytes, opcode == Opcode::Readdirplus);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

fn check(directory: &Directory, all: &[Record]) {
    let names: Vec<_> = all.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(names[..2], [".", ".."]);
    assert_eq!((all[0].inode, all[1].inode), (DIRECTORY.0, 1));
    assert!(names[2..].iter().eq(directory.names.values()), "complete and in order");
    assert!(all.windows(2).all(|pair| pair[0].position < pair[1].position));
}

#[test]
fn a_hundred_thousand_names_are_listed_completely() {
    let directory = Directory::new(100_000);
    check(&directory, &read_all(&directory, Opcode::Readdir, |_| 32_768));
    check(&directory, &read_all(&directory, Opcode::Readdirplus, |_| 1 << 20));
}

#[test]
fn buffers_of_any_size_give_the_same_listing() {
    let directory = Directory::new(500);
    for opcode in [Opcode::Readdir, Opcode::Readdirplus] {
        let all = read_all(&directory, opcode, |rng| 208 + rng.u64(..3_000) as u32);
        check(&directory, &all);
    }
}

#[test]
fn positions_are_unique_whatever_the_cookie() {
    let close = END_POSITION - 4..END_POSITION + 4;
    for cookie in (1..5).chain(close).chain([u64::MAX / 2]) {
        let position = position_behind(cookie);
        assert_ne!(position, END_POSITION);
        assert_eq!(cookie_before(position), cookie);
        assert!(position < position_behind(cookie + 1));
    }
    assert_eq!([0, 1, 2].map(cookie_before), [0, 0, 0], "before and behind the dots");
}

#[test]
fn an_empty_directory_has_its_dots() {
    let directory = Directory::new(0);
    let all = read_all(&directory, Opcode::Readdir, |_| 4096);
    check(&directory, &all);
    assert_eq!(all.len(), 2);
}

#[test]
fn a_listing_continues_although_names_are_created_and_removed() {
    let mut directory = Directory::new(50);
    let mut harness = Harness::new();
    let first = records(&read_at(&mut harness, &directory, Opcode::Readdir, 0, 600), false);
    let last = first.last().unwrap();
    // The name it stopped at is removed; one is created before it and one behind.
    directory.names.remove(&(last.position - 2));
    directory.names.insert(2, "before".to_string());
    directory.names.insert(last.position - 1, "behind".to_string());
    let at = last.position;
    let next = records(&read_at(&mut harness, &directory, Opcode::Readdir, at, 600), false);
    assert_eq!(next[0].name, "behind");
}

#[test]
fn attributes_are_left_out_where_the_data_shard_has_the_size() {
    let directory = Directory::new(4);
    let all = read_all(&directory, Opcode::Readdirplus, |_| 8192);
    let nodes: Vec<_> = all.iter().map(|record| record.node.unwrap()).collect();
    let inode = |cookie: u64| (3 << 48) | cookie;
    assert_eq!(nodes, [0, 0, inode(1), 0, inode(7), 0]);
    assert!(all.iter().all(|record| record.kind == 8 || record.kind == 4));
}

#[test]
fn a_buffer_too_small_for_one_name_is_an_error() {
    let directory = Directory::new(4);
    let mut harness = Harness::new();
    harness.kernel_request(
        Opcode::Readdir,
        7,
        DIRECTORY,
        &[u64s(&[0, 0]), u32s(&[16, 0])].concat(),
    );
    let received = harness.take();
    let body = directory.list(&Readdir::decode_all(&received.body).unwrap());
    harness.answer(&received, &body);
    assert_eq!(harness.status(), Status::Invalid, "an empty answer would mean the end");
}
