//! Files that are opened without the server.

use super::answers::setattr_args;
use super::harness::{Harness, ReceivedRequest, request, u32s, u64s};
use super::{DIRECTORY, FILE, attr, known};
use crate::Behind;
use crate::abi::Opcode;
use alloc::sync::Arc;
use client::{Answer, Call, Granted, LOCAL_MS_MAX, TakenAnswer, Term};
use interface::{Event, MountMessage, PeerEvent};
use wire::{
    Attr, Entry, FileKind, HandleId, InodeNo, LaneId, LeaseKey, Name, Op, Reopen, Status,
    Wire as _, attr_flag, lease_flag,
};

const OTHER: InodeNo = InodeNo(FILE.0 + 8);
const BOTH: u8 = lease_flag::NAME | lease_flag::ATTRIBUTES;

pub(super) fn file() -> Attr {
    attr(FILE, FileKind::File)
}

fn release_args(handle: u64) -> alloc::vec::Vec<u8> {
    [u64s(&[handle]), u32s(&[0, 0]), u64s(&[0])].concat()
}

impl Harness {
    /// A mount that has looked up a file, under leases.
    pub(super) fn knows(attr: Attr) -> (Self, ReceivedRequest) {
        let mut harness =
            Self::with_cache(&known::cache()).writes_behind(Arc::new(Behind::default()));
        harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, b"a\0");
        let received = harness.take();
        harness.grant_leases(&received, Ok(&Entry { attr }.to_bytes()), (1, BOTH));
        assert_eq!(harness.reply().status, Status::Ok);
        (harness, received)
    }

    pub(super) fn opens(&mut self, flags: u32) {
        self.kernel_request(Opcode::Open, 8, FILE, &u32s(&[flags, 0]));
    }

    /// Opens it without a request: the kernel's handle.
    fn opens_locally(&mut self) -> u64 {
        self.opens(0);
        assert!(self.requests.is_empty(), "{:?}", self.requests);
        let reply = self.reply();
        assert_eq!(reply.status, Status::Ok);
        u64::from_ne_bytes(reply.payload[..8].try_into().unwrap())
    }

    pub(super) fn closes_it(&mut self, handle: u64) {
        self.kernel_request(Opcode::Release, 9, FILE, &release_args(handle));
        assert_eq!(self.reply().status, Status::Ok);
    }

    /// The server is asked to register the file.
    pub(super) fn registers(&mut self, handle: u64) -> ReceivedRequest {
        let received = self.take();
        assert_eq!(received.head.op, Op::Reopen);
        let reopen = Reopen::decode_all(&received.body).unwrap();
        let id = HandleId(handle & !(1 << 61));
        assert_eq!((reopen.inode, reopen.handle.id), (FILE, id));
        received
    }

    pub(super) fn is_registered(&mut self, received: &ReceivedRequest) {
        self.answer(received, &[]);
    }
}

/// `FOPEN_KEEP_CACHE`: the kernel keeps its pages.
const KEEPS: u32 = 1 << 1;

#[test]
fn pages_that_were_read_through_a_file_are_kept_when_it_is_opened_again_at_once() {
    let (mut harness, _) = Harness::knows(file());
    let opens = |harness: &mut Harness| {
        harness.opens(0);
        let reply = harness.reply();
        let handle = u64::from_ne_bytes(reply.payload[..8].try_into().unwrap());
        let flags = u32::from_ne_bytes(reply.payload[8..12].try_into().unwrap());
        (handle, flags & KEEPS != 0)
    };
    let (handle, keeps) = opens(&mut harness);
    assert!(!keeps, "the kernel may have others");
    harness.closes_it(handle);
    let (handle, keeps) = opens(&mut harness);
    assert!(!keeps, "nothing shows that the kernel has dropped others");
    let args = [u64s(&[handle, 0]), u32s(&[4096, 0]), u64s(&[0]), u32s(&[0, 0])].concat();
    harness.kernel_request(Opcode::Read, 12, FILE, &args);
    let received = harness.take();
    harness.grant_leases(&received, Ok(&[]), (2, lease_flag::CONTENTS));
    assert_eq!(harness.reply().status, Status::Ok);
    harness.closes_it(handle);
    let (_, keeps) = opens(&mut harness);
    assert!(keeps);
}

#[test]
fn a_file_is_opened_and_closed_without_a_request() {
    let (mut harness, _) = Harness::knows(file());
    for _ in 0..3 {
        let handle = harness.opens_locally();
        harness.closes_it(handle);
        assert!(harness.requests.is_empty());
    }
    let handle = harness.opens_locally();
    harness.opens(0);
    assert_eq!(harness.take().head.op, Op::Open, "the second one at a time is the server's");
    harness.closes_it(handle);
}

#[test]
fn a_recall_waits_until_the_server_knows_that_the_file_is_open() {
    for key in [LeaseKey::Attributes(FILE), LeaseKey::All] {
        let (mut harness, lookup) = Harness::knows(file());
        let handle = harness.opens_locally();
        harness.recall(&lookup, 1, &[key]);
        harness.all_notified();
        let register = harness.registers(handle);
        assert!(harness.acknowledged.is_empty(), "{key:?}");
        harness.is_registered(&register);
        harness.all_notified();
        assert_eq!(harness.acknowledged.len(), 1, "{key:?}");
        harness.closes_it(handle);
        assert_eq!(harness.take().head.op, Op::Close);
        harness.opens(0);
        assert_eq!(harness.take().head.op, Op::Open, "without a lease");
    }
}

#[test]
fn a_recall_of_a_closed_file_waits_for_nothing() {
    let (mut harness, lookup) = Harness::knows(file());
    let handle = harness.opens_locally();
    harness.closes_it(handle);
    harness.recall(&lookup, 1, &[LeaseKey::Attributes(FILE)]);
    harness.all_notified();
    assert_eq!(harness.acknowledged.len(), 1);
    assert!(harness.requests.is_empty());
}

#[test]
fn what_stays_open_is_registered_and_closed_at_the_server() {
    let (mut harness, _) = Harness::knows(file());
    let handle = harness.opens_locally();
    harness.wait_ms(499);
    assert!(harness.requests.is_empty());
    harness.wait_ms(1);
    let register = harness.registers(handle);
    harness.closes_it(handle);
    assert!(harness.requests.is_empty(), "a Reopen that is sent again would come behind the Close");
    harness.is_registered(&register);
    assert_eq!(harness.take().head.op, Op::Close);
    // Once it is not open so, it may be again.
    harness.opens_locally();
}

#[test]
fn a_change_of_this_mount_waits_for_it_on_any_lane() {
    let rename = [&u64s(&[DIRECTORY.0])[..], b"b\0a\0"].concat();
    let requests = [
        (Opcode::Unlink, DIRECTORY, b"a\0".to_vec(), Op::Unlink),
        (Opcode::Rename, DIRECTORY, rename, Op::Rename),
        (Opcode::Setattr, FILE, setattr_args(1, 0, 0), Op::Setattr),
    ];
    for (opcode, node, args, op) in requests {
        let (mut harness, _) = Harness::knows(file());
        let handle = harness.opens_locally();
        harness.kernel_request(opcode, 10, node, &args);
        let register = harness.registers(handle);
        assert!(harness.requests.is_empty(), "{opcode:?}");
        harness.is_registered(&register);
        assert_eq!(harness.take().head.op, op);
        // Its process may be killed before that.
        let (mut harness, _) = Harness::knows(file());
        let handle = harness.opens_locally();
        harness.kernel_request(opcode, 10, node, &args);
        let register = harness.registers(handle);
        harness.kernel_request(Opcode::Interrupt, 11, InodeNo(0), &u64s(&[10]));
        harness.wait_ms(20);
        assert_eq!(harness.reply().status, Status::Interrupted);
        harness.is_registered(&register);
        assert!(harness.requests.is_empty(), "{opcode:?}");
    }
    // Another lane has it open.
    let (mut harness, _) = Harness::knows(file());
    let table = harness.lane.behind.table.clone().unwrap();
    assert!(table.local.begin(FILE));
    harness.peer_messages.clear();
    harness.kernel_request(Opcode::Unlink, 10, DIRECTORY, b"a\0");
    assert!(harness.requests.is_empty());
    let message = MountMessage::Register { inode: FILE };
    assert_eq!(harness.peer_messages, [(LaneId(1), message), (LaneId(2), message)]);
    assert_ne!(table.local.end(FILE), 0, "it waits");
    let message = MountMessage::Written { inode: FILE };
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    assert_eq!(harness.take().head.op, Op::Unlink);
}

#[test]
fn another_lane_that_needs_it_has_it_registered() {
    let (mut harness, _) = Harness::knows(file());
    let handle = harness.opens_locally();
    let message = MountMessage::Register { inode: FILE };
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    let register = harness.registers(handle);
    harness.is_registered(&register);
    assert!(harness.lane.behind.table.as_ref().unwrap().local.is_empty());
}

#[test]
fn a_file_is_opened_under_the_lease_of_another_lane() {
    let (mut harness, _) = Harness::knows(Attr { inode: OTHER, ..file() });
    harness.opens(0);
    assert_eq!(harness.take().head.op, Op::Open, "its attributes are not known");
    let cache = harness.lane.cache.clone().unwrap();
    let (lane, now) = (LaneId(1), harness.now().mono);
    let until = now.after_ms(LOCAL_MS_MAX);
    let (call, granted) = (
        Call::Getattr(wire::Getattr { inode: FILE }),
        Granted { attributes: Some(until), ..Granted::default() },
    );
    let (result, further) = (Ok(Answer::Entry(file())), &[][..]);
    for (no, is_opened) in [(1, false), (2, true)] {
        // The first one ends while the file may still be open.
        cache.set_term(lane, Term { no, until: until.after_ms(no - 1) });
        let asked = cache.begin(now, lane, &call);
        let taken = TakenAnswer { result: &result, granted: &granted, further, listing: None };
        cache.learn((now, asked), &call, &taken);
        harness.opens(0);
        assert_eq!(harness.requests.is_empty(), is_opened, "term {no}");
        harness.requests.clear();
    }
    assert_eq!(harness.reply().status, Status::Ok);
}

#[test]
fn a_recall_waits_for_what_another_lane_has_opened_under_the_lease() {
    for key in [LeaseKey::Attributes(FILE), LeaseKey::All] {
        let (mut harness, lookup) = Harness::knows(file());
        let table = harness.lane.behind.table.clone().unwrap();
        assert!(table.local.begin(FILE));
        harness.recall(&lookup, 1, &[key]);
        harness.all_notified();
        let message = MountMessage::Register { inode: FILE };
        assert_eq!(harness.peer_messages, [(LaneId(1), message), (LaneId(2), message)]);
        assert!(harness.acknowledged.is_empty(), "{key:?}");
        assert_ne!(table.local.end(FILE), 0, "it waits");
        let message = MountMessage::Written { inode: FILE };
        harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
        harness.all_notified();
        assert_eq!(harness.acknowledged.len(), 1, "{key:?}");
    }
}

#[test]
fn at_the_end_of_a_term_other_lanes_register_what_they_have_opened_under_it() {
    let (mut harness, _) = Harness::knows(file());
    harness.answers_recovery = true;
    let table = harness.lane.behind.table.clone().unwrap();
    assert!(table.local.begin(FILE));
    harness.hang_up();
    let message = MountMessage::Register { inode: FILE };
    assert_eq!(harness.peer_messages, [(LaneId(1), message), (LaneId(2), message)]);
}

#[test]
fn after_a_lost_connection_the_server_gets_to_know_it() {
    for is_restarted in [false, true] {
        let (mut harness, _) = Harness::knows(file());
        harness.answers_recovery = true;
        let handle = harness.opens_locally();
        if is_restarted {
            harness.shape.start_again();
        }
        harness.hang_up();
        harness.all_notified();
        harness.wait_ms(1_000);
        let register = harness.registers(handle);
        harness.is_registered(&register);
        assert!(harness.requests.is_empty());
    }
}

#[test]
fn what_the_server_might_refuse_is_asked_for() {
    let unlike = [
        Attr { flags: attr_flag::XATTRS, ..file() },
        Attr { nlink: 0, ..file() },
        Attr { mode: 0o240, ..file() },
        Attr { uid: 5, ..file() },
        Attr {
            layout: Some(wire::Layout { stripe_unit_bytes: 65536, stripe_count: 2, narrow: false }),
            ..file()
        },
    ];
    for attr in unlike {
        let (mut harness, _) = Harness::knows(attr);
        harness.opens(0);
        assert_eq!(harness.take().head.op, Op::Open, "{attr:?}");
    }
    for flags in [1, 0o40] {
        let (mut harness, _) = Harness::knows(file());
        harness.opens(flags);
        assert_eq!(harness.take().head.op, Op::Open, "{flags}");
    }
    // The server does not trust root.
    let (mut harness, _) = Harness::knows(file());
    let mut bytes = request(Opcode::Open as u32, 8, FILE, &u32s(&[0, 0]));
    bytes[24..28].copy_from_slice(&0_u32.to_ne_bytes());
    harness.kernel_bytes(Some(8), bytes, None);
    assert_eq!(harness.take().head.op, Op::Open);
}

#[test]
fn a_name_that_is_not_known_may_be_that_of_any_file_that_is_open() {
    let (mut harness, _) = Harness::knows(file());
    let handle = harness.opens_locally();
    let other = Name::new(b"other").unwrap();
    assert!(
        harness.lane.cache.as_ref().unwrap().found(interface::Mono(0), DIRECTORY, other).is_none()
    );
    harness.kernel_request(Opcode::Unlink, 10, DIRECTORY, b"other\0");
    let register = harness.registers(handle);
    harness.is_registered(&register);
    assert_eq!(harness.take().head.op, Op::Unlink);
    let _: InodeNo = FILE;
}

#[test]
fn behind_the_lease_it_is_read_when_the_server_knows_that_it_is_open() {
    let (mut harness, lookup) = Harness::knows(file());
    let handle = harness.opens_locally();
    harness.recall(&lookup, 1, &[LeaseKey::Attributes(FILE)]);
    harness.all_notified();
    let register = harness.registers(handle);
    let args = [u64s(&[handle, 0]), u32s(&[100, 0]), u64s(&[0]), u32s(&[0, 0])].concat();
    harness.kernel_request(Opcode::Read, 12, FILE, &args);
    assert!(harness.requests.is_empty(), "{:?}", harness.requests);
    harness.is_registered(&register);
    let ops: alloc::vec::Vec<Op> = harness.requests.iter().map(|it| it.head.op).collect();
    assert_eq!(ops, [Op::Read]);
}
