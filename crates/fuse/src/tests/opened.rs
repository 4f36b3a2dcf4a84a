//! Writes to a file that was opened, and not created, which are answered before the server has made
//! them.

use super::answers::setattr_args;
use super::harness::{Harness, ReceivedRequest, request, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::Behind;
use crate::abi::Opcode;
use alloc::sync::Arc;
use alloc::vec::Vec;
use interface::{BufId, Bulk, NO_MAC};
use wire::{
    Attr, Contents, Created, Entry, FileKind, Op, Status, Wire as _, Written, attr_flag,
    lease_flag, request_flag,
};

const SIZE: u32 = 8;
const APPEND: u32 = 0o2000;

/// A mount that has opened a file for writing, alone, and the size that the reply has shown.
fn opened(size_bytes: Option<u64>) -> Harness {
    let mut harness = Harness::with_leases();
    harness.lane = harness.lane.with_write_behind(Arc::new(Behind::default()));
    harness.kernel_request(Opcode::Open, 7, FILE, &u32s(&[1, 0]));
    let received = harness.take();
    assert_eq!(received.head.op, Op::Open);
    assert!(received.head.flags & request_flag::BEHIND != 0);
    let flags = if size_bytes.is_some() { 0 } else { attr_flag::SIZE_AT_DATA };
    let shown = Attr { size_bytes: size_bytes.unwrap_or(0), flags, ..attr(FILE, FileKind::File) };
    let granted = lease_flag::ATTRIBUTES | lease_flag::WRITING;
    harness.grant_leases(&received, Ok(&Entry { attr: shown }.to_bytes()), (1, granted));
    assert_eq!(harness.reply().status, Status::Ok);
    harness
}

/// The kernel writes 100 bytes. Returns whether it has its reply, which is a success.
fn write(harness: &mut Harness, file_offset: u64, flags: u32) -> bool {
    let args = [u64s(&[1, file_offset]), u32s(&[100, 0]), u64s(&[0]), u32s(&[1 | flags, 0])];
    let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 100, crc32c: None, mac: NO_MAC };
    let bytes = request(Opcode::Write as u32, 11, FILE, &args.concat());
    harness.kernel_bytes(Some(11), bytes, Some(data));
    let reply = harness.replies.pop();
    reply.is_some_and(|reply| {
        assert_eq!(reply.status, Status::Ok);
        true
    })
}

/// The write that the server gets, and whether its caller has the answer.
fn take_write(harness: &mut Harness) -> (ReceivedRequest, wire::Write, bool) {
    let received = harness.take();
    assert_eq!(received.head.op, Op::Write);
    let body = wire::Write::decode_all(&received.body).unwrap();
    let is_behind = received.head.flags & request_flag::BEHIND != 0;
    (received, body, is_behind)
}

fn end_write(harness: &mut Harness, write: &ReceivedRequest, file_offset: u64) {
    harness.answer(write, &Written { file_offset, written_bytes: 100 }.to_bytes());
}

#[test]
fn a_write_at_the_end_is_answered_at_once() {
    let mut harness = opened(Some(300));
    assert!(write(&mut harness, 300, 0));
    let (received, body, is_behind) = take_write(&mut harness);
    assert!(is_behind && body.append);
    assert_eq!(body.file_offset, 300);
    end_write(&mut harness, &received, 300);
    assert!(write(&mut harness, 0, APPEND));
    let (_, body, _) = take_write(&mut harness);
    assert_eq!(body.file_offset, 400);
}

fn bytes_of(received: &ReceivedRequest) -> u32 {
    received.bulk.map_or(0, |bulk| bulk.bulk_bytes)
}

/// A write is under way, and this many further ones are answered.
fn joined(further_count: u64) -> (Harness, ReceivedRequest) {
    let mut harness = opened(Some(300));
    assert!(write(&mut harness, 300, 0));
    let (received, ..) = take_write(&mut harness);
    for count in 1..=further_count {
        assert!(write(&mut harness, 300 + 100 * count, 0));
    }
    assert!(harness.requests.is_empty(), "they are made together");
    (harness, received)
}

#[test]
fn what_follows_a_write_under_way_is_made_together() {
    let (mut harness, received) = joined(3);
    end_write(&mut harness, &received, 300);
    let (received, body, is_behind) = take_write(&mut harness);
    assert!(is_behind && body.append);
    assert_eq!((body.file_offset, bytes_of(&received)), (400, 300));
    // And so on.
    assert!(write(&mut harness, 700, 0));
    harness.answer(&received, &Written { file_offset: 400, written_bytes: 300 }.to_bytes());
    let (received, body, _) = take_write(&mut harness);
    assert_eq!((body.file_offset, bytes_of(&received)), (700, 100));
    end_write(&mut harness, &received, 700);
    let counts = harness.lane.behind.counts().unwrap();
    assert_eq!((counts.written_count, counts.written_bytes), (5, 500));
    assert_eq!((counts.held_bytes, counts.lost_count), (0, 0));
}

#[test]
fn what_is_made_together_is_bounded() {
    let (mut harness, received) = joined(256);
    assert!(!write(&mut harness, 300 + 257 * 100, 0), "as many are made together");
    end_write(&mut harness, &received, 300);
    let (received, ..) = take_write(&mut harness);
    assert_eq!(bytes_of(&received), 25_600);
}

#[test]
fn no_more_is_joined_once_anything_waits() {
    let (mut harness, received) = joined(1);
    harness.kernel_request(Opcode::Getattr, 9, FILE, &[]);
    assert!(harness.replies.is_empty(), "who looks waits");
    assert!(!write(&mut harness, 500, 0));
    end_write(&mut harness, &received, 300);
    let (received, ..) = take_write(&mut harness);
    assert_eq!(bytes_of(&received), 100, "what was answered before");
    assert!(harness.replies.is_empty());
    harness.answer(&received, &Written { file_offset: 400, written_bytes: 100 }.to_bytes());
    assert_eq!(harness.take().head.op, Op::Getattr);
    assert_eq!(harness.reply().status, Status::Ok, "the write goes on as well");
}

#[test]
fn what_was_joined_is_lost_with_the_write_before_it() {
    let (mut harness, received) = joined(2);
    harness.fail(&received, Status::NoSpace);
    assert!(harness.requests.is_empty());
    let counts = harness.lane.behind.counts().unwrap();
    assert_eq!((counts.lost_count, counts.lost_bytes, counts.held_bytes), (3, 300, 0));
    harness.kernel_request(Opcode::Flush, 10, FILE, &[0; 24]);
    assert_eq!(harness.reply().status, Status::NoSpace);
}

#[test]
fn a_write_elsewhere_is_waited_for_and_ends_it() {
    let mut harness = opened(Some(300));
    for file_offset in [100, 300] {
        assert!(!write(&mut harness, file_offset, 0));
        let (received, body, is_behind) = take_write(&mut harness);
        assert!(!is_behind && !body.append);
        end_write(&mut harness, &received, file_offset);
        assert_eq!(harness.reply().status, Status::Ok);
    }
}

#[test]
fn an_append_shows_where_the_file_ends() {
    let mut harness = opened(None);
    assert!(!write(&mut harness, 0, APPEND), "the end is not known");
    let (received, _, is_behind) = take_write(&mut harness);
    assert!(!is_behind);
    assert!(!write(&mut harness, 0, APPEND), "nor is it before the reply");
    assert!(harness.requests.is_empty());
    end_write(&mut harness, &received, 5000);
    assert_eq!(harness.replies.remove(0).status, Status::Ok);
    assert_eq!(harness.reply().status, Status::Ok, "the second one was answered early");
    let (_, body, is_behind) = take_write(&mut harness);
    assert!(is_behind);
    assert_eq!(body.file_offset, 5100);
}

/// The kernel sets the size, and writes behind the new end meanwhile. Returns how that write is made.
fn cut_and_write(harness: &mut Harness, size_bytes: u64, status: Status) -> (wire::Write, bool) {
    harness.kernel_request(Opcode::Setattr, 8, FILE, &setattr_args(SIZE, size_bytes, 0));
    assert!(!write(harness, size_bytes, 0), "the size is not known before the reply");
    let shown = Attr { size_bytes, ..attr(FILE, FileKind::File) };
    let contents = Contents { size_bytes, ..Contents::EMPTY };
    loop {
        let received = harness.take();
        match received.head.op {
            Op::Truncate if status != Status::Ok => harness.fail(&received, status),
            Op::Open | Op::Getattr => harness.answer(&received, &Entry { attr: shown }.to_bytes()),
            Op::Glimpse => harness.answer(&received, &contents.to_bytes()),
            Op::Write => {
                let body = wire::Write::decode_all(&received.body).unwrap();
                return (body, received.head.flags & request_flag::BEHIND != 0);
            }
            _ => harness.answer(&received, &[]),
        }
    }
}

#[test]
fn a_cut_file_is_written_behind_from_its_new_end_on() {
    for (known, cut) in [(Some(300), 0), (None, 0), (None, 200)] {
        let mut harness = opened(known);
        let (body, is_behind) = cut_and_write(&mut harness, cut, Status::Ok);
        assert!(is_behind);
        assert_eq!(body.file_offset, cut);
        let statuses: Vec<Status> = harness.replies.iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [Status::Ok; 2], "the write has its answer");
    }
}

#[test]
fn behind_a_cut_that_fails_writes_are_waited_for() {
    let mut harness = opened(Some(300));
    let (_, is_behind) = cut_and_write(&mut harness, 0, Status::Io);
    assert!(!is_behind);
    assert_eq!(harness.reply().status, Status::Io);
}

#[test]
fn changes_of_attributes_are_waited_for() {
    for (valid, is_behind_wanted) in [(1, false), (16 | 32, true)] {
        let mut harness = opened(Some(300));
        assert!(write(&mut harness, 300, 0));
        let (received, ..) = take_write(&mut harness);
        harness.kernel_request(Opcode::Setattr, 8, FILE, &setattr_args(valid, 0, 0o600));
        assert!(harness.requests.is_empty(), "the write comes before it");
        end_write(&mut harness, &received, 300);
        let received = harness.take();
        assert_eq!(received.head.op, Op::Setattr);
        assert_eq!(received.head.flags & request_flag::BEHIND, 0);
        assert!(harness.replies.is_empty());
        let attr = Attr { size_bytes: 400, ..attr(FILE, FileKind::File) };
        harness.answer(&received, &Entry { attr }.to_bytes());
        assert_eq!(harness.reply().status, Status::Ok);
        assert_eq!(write(&mut harness, 400, 0), is_behind_wanted);
    }
}

#[test]
fn a_lookup_is_answered_with_what_was_written() {
    let mut harness = opened(Some(300));
    let entry = |size_bytes| Attr { size_bytes, ..attr(FILE, FileKind::File) };
    assert!(write(&mut harness, 300, 0));
    let (received, ..) = take_write(&mut harness);
    harness.kernel_request(Opcode::Lookup, 12, DIRECTORY, b"a\0");
    let lookup = harness.take();
    harness.answer(&lookup, &Entry { attr: entry(300) }.to_bytes());
    assert!(harness.replies.is_empty(), "that may be of before the write");
    end_write(&mut harness, &received, 300);
    let lookup = harness.take();
    assert_eq!(lookup.head.op, Op::Lookup);
    harness.answer(&lookup, &Entry { attr: entry(300) }.to_bytes());
    let getattr = harness.take();
    assert_eq!(getattr.head.op, Op::Getattr);
    harness.answer(&getattr, &Entry { attr: entry(400) }.to_bytes());
    let reply = harness.reply();
    assert_eq!(reply.status, Status::Ok);
    // Behind the node, its generation and two validities: the number and the size.
    let size_bytes = u64::from_ne_bytes(reply.payload[48..56].try_into().unwrap());
    assert_eq!(size_bytes, 400);
}

#[test]
fn a_create_that_finds_the_file_ends_it() {
    let mut harness = opened(Some(300));
    assert!(write(&mut harness, 300, 0));
    let (received, ..) = take_write(&mut harness);
    let args = [&u32s(&[0o101, 0o100_644, 0o022, 0])[..], b"a\0"].concat();
    harness.kernel_request(Opcode::Create, 12, DIRECTORY, &args);
    let create = harness.take();
    let shown = Attr { size_bytes: 300, ..attr(FILE, FileKind::File) };
    harness.answer(&create, &Created { attr: shown, made: false }.to_bytes());
    assert!(harness.replies.is_empty());
    let close = harness.take();
    assert_eq!(close.head.op, Op::Close, "it is done anew");
    harness.answer(&close, &[]);
    end_write(&mut harness, &received, 300);
    let create = harness.take();
    assert_eq!(create.head.op, Op::Create);
    harness.answer(&create, &Created { attr: shown, made: false }.to_bytes());
    let getattr = harness.take();
    assert_eq!(getattr.head.op, Op::Getattr);
    let shown = Attr { size_bytes: 400, ..shown };
    harness.answer(&getattr, &Entry { attr: shown }.to_bytes());
    assert_eq!(harness.reply().status, Status::Ok);
    assert!(!write(&mut harness, 400, 0));
    assert!(!take_write(&mut harness).2);
}

#[test]
fn a_write_that_fails_is_reported_once_and_the_rest_is_waited_for() {
    let mut harness = opened(Some(300));
    assert!(write(&mut harness, 300, 0));
    let (received, ..) = take_write(&mut harness);
    harness.fail(&received, Status::NoSpace);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        harness.kernel_request(Opcode::Fsync, 10, FILE, &[0; 16]);
        while !harness.requests.is_empty() {
            let received = harness.take();
            harness.answer(&received, &[]);
        }
        statuses.push(harness.reply().status);
    }
    assert_eq!(statuses, [Status::NoSpace, Status::Ok]);
    assert!(!write(&mut harness, 300, 0));
    assert!(!take_write(&mut harness).2);
}
