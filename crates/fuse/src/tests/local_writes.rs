//! Files that are opened to read and write without the server, and what changes them.

use super::FILE;
use super::answers::setattr_args;
use super::harness::{Harness, ReceivedRequest, request, u32s, u64s};
use super::local_opens::file;
use crate::abi::Opcode;
use alloc::vec::Vec;
use interface::{BufId, Bulk, Event, MountMessage, NO_MAC, PeerEvent};
use wire::{
    Attr, HandleId, InodeNo, LaneId, LeaseKey, Op, OpenFor, Reopen, Status, Wire as _, Written,
};

const READ_WRITE: u32 = 2;
const APPEND: u32 = 0o2000;
/// `FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES`.
const PAST_CACHE: u32 = 1 | 1 << 6;
const OTHER: InodeNo = InodeNo(FILE.0 + 8);

impl Harness {
    /// Opens the file to read and write without a request: the kernel's handle.
    fn opens_to_write(&mut self) -> u64 {
        self.opens(READ_WRITE);
        assert!(self.requests.is_empty(), "{:?}", self.requests);
        let reply = self.reply();
        assert_eq!(reply.status, Status::Ok);
        let flags = u32::from_ne_bytes(reply.payload[8..12].try_into().unwrap());
        assert_eq!(flags, PAST_CACHE);
        u64::from_ne_bytes(reply.payload[..8].try_into().unwrap())
    }

    fn writes(&mut self, handle: u64) {
        let args = [u64s(&[handle, 0]), u32s(&[100, 0]), u64s(&[0]), u32s(&[2, 0])].concat();
        let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 100, crc32c: None, mac: NO_MAC };
        self.kernel_bytes(Some(11), request(Opcode::Write as u32, 11, FILE, &args), Some(data));
    }

    fn opens_at_server(&mut self) -> ReceivedRequest {
        let received = self.take();
        assert_eq!(received.head.op, Op::Reopen);
        let reopen = Reopen::decode_all(&received.body).unwrap();
        assert_eq!((reopen.inode, reopen.handle.open_for), (FILE, OpenFor::ReadWrite));
        received
    }
}

fn opened_by(received: &ReceivedRequest) -> HandleId {
    Reopen::decode_all(&received.body).unwrap().handle.id
}

/// A mount that has the file open so.
fn opened() -> (Harness, u64) {
    let (mut harness, _) = Harness::knows(file());
    let handle = harness.opens_to_write();
    (harness, handle)
}

#[test]
fn a_file_that_is_not_written_is_opened_and_closed_without_a_request() {
    let (mut harness, _) = Harness::knows(file());
    for _ in 0..3 {
        let handle = harness.opens_to_write();
        harness.closes_it(handle);
        assert!(harness.requests.is_empty());
    }
    harness.opens_to_write();
    harness.opens(READ_WRITE);
    assert_eq!(harness.take().head.op, Op::Open, "the second one at a time is the server's");
}

#[test]
fn each_change_waits_until_the_server_has_it_open_for_writing() {
    let fallocate = u64s(&[1, 0, 100, 0]);
    let truncate = setattr_args(1 << 3 | 1 << 6, 50, 0);
    let copy = u64s(&[1, 0, FILE.0, 1, 0, 100, 0]);
    let changes: [(Opcode, InodeNo, Vec<u8>); 4] = [
        (Opcode::Write, FILE, Vec::new()),
        (Opcode::Fallocate, FILE, fallocate),
        (Opcode::Setattr, FILE, truncate),
        (Opcode::CopyFileRange, OTHER, copy),
    ];
    for (opcode, node, args) in changes {
        let (mut harness, handle) = opened();
        if opcode == Opcode::Write {
            harness.writes(handle);
        } else {
            harness.kernel_request(opcode, 11, node, &args);
        }
        if opcode == Opcode::Setattr {
            // As any change of attributes.
            let register = harness.registers(handle);
            harness.is_registered(&register);
        }
        let opens = harness.opens_at_server();
        assert_ne!(opened_by(&opens), HandleId(handle));
        assert!(harness.requests.is_empty(), "{opcode:?}");
        harness.answer(&opens, &[]);
        assert_ne!(harness.take().head.op, Op::Reopen, "{opcode:?} goes on");
        harness.closes_it(handle);
        if opcode == Opcode::Write {
            assert_eq!(harness.take().head.op, Op::Close);
        }
    }
}

#[test]
fn what_follows_the_first_change_waits_no_more_and_both_are_closed() {
    let (mut harness, handle) = opened();
    for is_first in [true, false] {
        harness.writes(handle);
        if is_first {
            let opens = harness.opens_at_server();
            harness.answer(&opens, &[]);
        }
        let write = harness.take();
        assert_eq!(write.head.op, Op::Write);
        harness.answer(&write, &Written { file_offset: 0, written_bytes: 100 }.to_bytes());
        assert_eq!(harness.reply().status, Status::Ok);
    }
    harness.wait_ms(500);
    let register = harness.registers(handle);
    harness.is_registered(&register);
    harness.closes_it(handle);
    assert_eq!([harness.take().head.op, harness.take().head.op], [Op::Close; 2]);
}

#[test]
fn a_change_fails_if_the_server_refuses_to_open_it() {
    let (mut harness, handle) = opened();
    harness.writes(handle);
    let opens = harness.opens_at_server();
    harness.fail(&opens, Status::ReadOnly);
    assert_eq!(harness.reply().status, Status::ReadOnly);
    harness.writes(handle);
    assert_eq!(harness.reply().status, Status::ReadOnly, "it is not asked again");
    assert!(harness.requests.is_empty());
    harness.closes_it(handle);
    assert!(harness.requests.is_empty(), "it knows of neither handle");
    assert!(harness.lane.behind.table.as_ref().unwrap().unwritten.is_empty());
}

#[test]
fn a_file_that_is_closed_while_it_is_being_opened_is_closed_at_the_server() {
    for status in [Status::Ok, Status::Io] {
        let (mut harness, handle) = opened();
        harness.writes(handle);
        let opens = harness.opens_at_server();
        harness.kernel_request(Opcode::Interrupt, 12, InodeNo(0), &u64s(&[11]));
        harness.wait_ms(20);
        assert_eq!(harness.reply().status, Status::Interrupted);
        harness.closes_it(handle);
        assert!(harness.requests.is_empty());
        if status == Status::Ok {
            harness.answer(&opens, &[]);
            assert_eq!(harness.take().head.op, Op::Close);
        } else {
            harness.fail(&opens, status);
        }
        assert!(harness.requests.is_empty());
        assert!(harness.lane.behind.table.as_ref().unwrap().unwritten.is_empty());
    }
}

#[test]
fn a_recall_does_not_wait_until_it_is_open_for_writing() {
    let (mut harness, lookup) = Harness::knows(file());
    let handle = harness.opens_to_write();
    harness.writes(handle);
    let opens = harness.opens_at_server();
    harness.recall(&lookup, 1, &[LeaseKey::Attributes(FILE)]);
    harness.all_notified();
    let register = harness.registers(handle);
    harness.is_registered(&register);
    harness.all_notified();
    assert_eq!(harness.acknowledged.len(), 1);
    harness.answer(&opens, &[]);
    assert_eq!(harness.take().head.op, Op::Write);
}

#[test]
fn the_lane_that_has_opened_it_opens_it_for_writing() {
    let (mut harness, _) = Harness::knows(file());
    let table = harness.lane.behind.table.clone().unwrap();
    assert!(table.unwritten.begin(FILE));
    harness.peer_messages.clear();
    harness.writes(9);
    assert!(harness.requests.is_empty());
    let message = MountMessage::OpenToWrite { inode: FILE };
    assert_eq!(harness.peer_messages, [(LaneId(1), message), (LaneId(2), message)]);
    assert_ne!(table.unwritten.end(FILE), 0, "it waits");
    let written = MountMessage::Written { inode: FILE };
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message: written }));
    assert_eq!(harness.take().head.op, Op::Write);

    let (mut harness, _) = opened();
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    let opens = harness.opens_at_server();
    harness.answer(&opens, &[]);
    assert!(harness.lane.behind.table.as_ref().unwrap().unwritten.is_empty());
}

#[test]
fn after_a_restart_of_the_server_both_handles_are_registered() {
    let (mut harness, handle) = opened();
    harness.answers_recovery = true;
    harness.writes(handle);
    let opens = harness.opens_at_server();
    harness.answer(&opens, &[]);
    let write = harness.take();
    harness.answer(&write, &Written { file_offset: 0, written_bytes: 100 }.to_bytes());
    harness.shape.start_again();
    harness.hang_up();
    harness.all_notified();
    harness.wait_ms(1_000);
    let again = core::mem::take(&mut harness.requests);
    let reopened = again.iter().filter(|received| received.head.op == Op::Reopen);
    let reopened: Vec<HandleId> = reopened.map(opened_by).collect();
    assert_eq!(reopened, [HandleId(handle), opened_by(&opens)]);
}

#[test]
fn programs_that_write_what_they_open_so_get_it_from_the_server() {
    let (mut harness, handle) = opened();
    harness.writes(handle);
    let opens = harness.opens_at_server();
    harness.answer(&opens, &[]);
    harness.requests.clear();
    for _ in 0..16 {
        harness.opens(READ_WRITE);
        assert_eq!(harness.take().head.op, Op::Open);
    }
}

#[test]
fn what_the_server_might_refuse_or_is_sure_to_be_written_is_asked_for() {
    let unlike = [
        Attr { mode: 0o440, ..file() },
        Attr { mode: 0o664, uid: 5, ..file() },
        Attr { nlink: 0, ..file() },
    ];
    for attr in unlike {
        let (mut harness, _) = Harness::knows(attr);
        harness.opens(READ_WRITE);
        assert_eq!(harness.take().head.op, Op::Open, "{attr:?}");
    }
    let (mut harness, _) = Harness::knows(file());
    harness.opens(READ_WRITE | APPEND);
    assert_eq!(harness.take().head.op, Op::Open);
    assert!(harness.lane.behind.table.as_ref().unwrap().unwritten.is_empty());
}
