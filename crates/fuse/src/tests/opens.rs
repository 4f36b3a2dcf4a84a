//! Files that are opened again without the server.

use super::harness::{Harness, ReceivedRequest, request, u32s, u64s};
use super::{FILE, attr};
use crate::abi::{FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, Opcode};
use crate::handle::FileHandle;
use alloc::vec::Vec;
use interface::{Event, MountMessage, PeerEvent};
use wire::{
    Attr, Close, Entry, FileKind, HandleId, InodeNo, LaneId, Layout, LeaseKey, Op, Open, Status,
    Wire, lease_flag, welcome_flag,
};

const ALL: u8 = lease_flag::ATTRIBUTES | lease_flag::CONTENTS;
const READ_ONLY: u32 = 0;

impl Harness {
    fn send_open(&mut self, inode: InodeNo, flags: u32) {
        self.kernel_request(Opcode::Open, 8, inode, &u32s(&[flags, 0]));
    }

    fn opened(&mut self) -> (u64, u32) {
        let reply = self.reply();
        assert_eq!(reply.status, Status::Ok);
        let handle = u64::from_ne_bytes(reply.payload[..8].try_into().unwrap());
        (handle, u32::from_ne_bytes(reply.payload[8..12].try_into().unwrap()))
    }

    /// An open that the server answers: what it received, and the kernel's handle.
    fn first_open(&mut self, inode: InodeNo) -> (ReceivedRequest, u64) {
        self.send_open(inode, READ_ONLY);
        let received = self.take();
        assert_eq!(received.head.op, Op::Open);
        let body = Entry { attr: attr(inode, FileKind::File) }.to_bytes();
        self.grant_leases(&received, Ok(&body), (2, ALL));
        (received, self.opened().0)
    }

    /// An open that the server never sees.
    fn next_open(&mut self) -> (u64, u32) {
        self.send_open(FILE, READ_ONLY);
        assert!(self.requests.is_empty());
        self.opened()
    }

    fn close(&mut self, handle: u64) {
        let args = [u64s(&[handle]), u32s(&[0, 0]), u64s(&[0])].concat();
        self.kernel_request(Opcode::Release, 9, FILE, &args);
        assert_eq!(self.reply().status, Status::Ok);
    }

    /// The handles that the server is asked to close.
    fn closes(&mut self) -> Vec<HandleId> {
        let mut all = core::mem::take(&mut self.requests);
        all.retain(|received| received.head.op != Op::Ping);
        let handle = |received: &ReceivedRequest| {
            assert_eq!(received.head.op, Op::Close);
            Close::decode_all(&received.body).unwrap().handle
        };
        all.iter().map(handle).collect()
    }

    fn asks_again(&mut self) {
        self.send_open(FILE, READ_ONLY);
        assert_eq!(self.take().head.op, Op::Open);
    }
}

fn registered(received: &ReceivedRequest) -> HandleId {
    Open::decode_all(&received.body).unwrap().handle.id
}

#[test]
fn a_cached_file_is_opened_again_without_the_server() {
    let mut harness = Harness::with_leases();
    let (_, first) = harness.first_open(FILE);
    harness.close(first);
    let mut handles = Vec::from([first]);
    for _ in 0..3 {
        let (handle, flags) = harness.next_open();
        assert_eq!(flags, FOPEN_KEEP_CACHE);
        handles.push(handle);
        harness.close(handle);
    }
    assert!(harness.requests.is_empty());
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), 4, "locks and losses belong to one open");
}

#[test]
fn it_is_closed_when_its_contents_are_recalled() {
    let mut harness = Harness::with_leases();
    let (received, first) = harness.first_open(FILE);
    harness.close(first);
    harness.recall(&received, 1, &[LeaseKey::Attributes(FILE)]);
    let (again, _) = harness.next_open();
    harness.close(again);
    harness.recall(&received, 2, &[LeaseKey::Contents(FILE)]);
    assert_eq!(
        harness.closes(),
        [registered(&received)],
        "before the kernel has dropped its pages"
    );
    harness.asks_again();
}

#[test]
fn while_it_is_used_it_stays_open() {
    let mut harness = Harness::with_leases();
    let (received, first) = harness.first_open(FILE);
    let (second, flags) = harness.next_open();
    assert_eq!(flags, 0, "the first reply may not have been applied");
    harness.recall(&received, 1, &[LeaseKey::All]);
    assert!(harness.closes().is_empty());
    harness.close(first);
    assert!(harness.closes().is_empty());
    harness.close(second);
    assert_eq!(harness.closes(), [registered(&received)]);
    harness.asks_again();
}

#[test]
fn it_is_closed_when_its_lease_has_ended() {
    let mut harness = Harness::with_leases();
    let (received, first) = harness.first_open(FILE);
    harness.close(first);
    harness.wait_ms(8_999);
    assert!(harness.closes().is_empty());
    harness.wait_ms(1);
    assert_eq!(harness.closes(), [registered(&received)]);
    harness.asks_again();
}

#[test]
fn it_is_closed_when_the_kernel_forgets_it() {
    for batch in [false, true] {
        let mut harness = Harness::with_leases();
        let (received, first) = harness.first_open(FILE);
        harness.close(first);
        harness.peer_messages.clear();
        let (opcode, node, args) = if batch {
            let other = InodeNo(FILE.0 + 1);
            let args = [u32s(&[2, 0]), u64s(&[other.0, 1, FILE.0, 3])].concat();
            (Opcode::BatchForget, InodeNo(0), args)
        } else {
            (Opcode::Forget, FILE, u64s(&[1]))
        };
        harness.kernel_bytes(None, request(opcode as u32, 0, node, &args), None);
        assert_eq!(harness.closes(), [registered(&received)]);
        let message = MountMessage::Forgotten { inode: FILE };
        assert_eq!(harness.peer_messages, [(LaneId(1), message), (LaneId(2), message)]);
    }
    let mut harness = Harness::with_leases();
    let (received, first) = harness.first_open(FILE);
    let message = MountMessage::Forgotten { inode: FILE };
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    assert!(harness.closes().is_empty(), "the forget has overtaken the release");
    harness.close(first);
    assert_eq!(harness.closes(), [registered(&received)]);
}

#[test]
fn it_is_closed_with_the_mount_and_a_lost_connection() {
    let mut harness = Harness::with_leases();
    let (received, first) = harness.first_open(FILE);
    harness.close(first);
    harness.event(Event::Stop);
    assert_eq!(harness.closes(), [registered(&received)]);

    let mut harness = Harness::with_leases();
    let (received, first) = harness.first_open(FILE);
    harness.close(first);
    harness.hang_up();
    harness.all_notified();
    assert_eq!(harness.closes(), [registered(&received)]);
}

#[test]
fn a_peer_lane_passes_on_the_close_of_an_open_that_the_server_does_not_know() {
    let mut harness = Harness::with_leases();
    let (received, first) = harness.first_open(FILE);
    let (second, _) = harness.next_open();
    harness.recall(&received, 1, &[LeaseKey::Contents(FILE)]);
    for handle in [second, first] {
        assert!(harness.closes().is_empty());
        let message = MountMessage::Release { handle: HandleId(handle & !(1 << 61)) };
        harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    }
    assert_eq!(harness.closes(), [registered(&received)]);
}

#[test]
fn only_opens_to_read_are_kept() {
    for flags in [1, 2, 0o40] {
        let mut harness = Harness::with_leases();
        let (_, first) = harness.first_open(FILE);
        harness.close(first);
        harness.send_open(FILE, flags);
        let received = harness.take();
        assert_eq!(received.head.op, Op::Open);
        let body = Entry { attr: attr(FILE, FileKind::File) }.to_bytes();
        harness.grant_leases(&received, Ok(&body), (3, lease_flag::ATTRIBUTES));
        let (handle, opened) = harness.opened();
        assert_ne!(opened & FOPEN_DIRECT_IO, 0);
        harness.close(handle);
        assert_eq!(harness.closes(), [registered(&received)]);
    }
}

#[test]
fn where_ids_are_replaced_only_the_user_that_the_server_has_checked_opens_it() {
    for (flags, is_asked) in [(0, true), (welcome_flag::ROOT_TRUSTED, false)] {
        let mut harness = Harness::with_leases();
        harness.shape.flags = flags;
        let (_, first) = harness.first_open(FILE);
        harness.close(first);
        let (again, _) = harness.next_open();
        harness.close(again);
        let mut bytes = request(Opcode::Open as u32, 8, FILE, &u32s(&[READ_ONLY, 0]));
        bytes[24..28].copy_from_slice(&0_u32.to_ne_bytes()); // uid
        harness.kernel_bytes(Some(8), bytes, None);
        assert_eq!(!harness.requests.is_empty(), is_asked);
    }
}

#[test]
fn of_too_many_the_first_is_closed() {
    let mut harness = Harness::with_leases();
    let mut first = None;
    for number in 0..251 {
        let (received, handle) = harness.first_open(InodeNo(FILE.0 + number));
        first.get_or_insert(registered(&received));
        harness.close(handle);
        harness.wait_ms(1);
        assert_eq!(harness.requests.is_empty(), number < 250, "a quarter of 1,000");
    }
    assert_eq!(harness.closes(), [first.unwrap()]);
}

#[test]
fn a_file_over_several_data_shards_is_cached_and_kept() {
    let mut harness = Harness::with_leases();
    let layout = Some(Layout { stripe_unit_bytes: 1 << 20, stripe_count: 3, narrow: false });
    harness.send_open(FILE, READ_ONLY);
    let received = harness.take();
    let body = Entry { attr: Attr { layout, ..attr(FILE, FileKind::File) } }.to_bytes();
    harness.grant_leases(&received, Ok(&body), (2, ALL));
    let (handle, flags) = harness.opened();
    assert_eq!(flags & FOPEN_DIRECT_IO, 0, "each part grants its pages");
    harness.close(handle);
    let (again, _) = harness.next_open();
    assert!(harness.requests.is_empty(), "it is kept");
    assert!(FileHandle(again).is_spread(), "another lane has to learn its layout");
}

#[test]
fn a_lane_that_has_not_opened_such_a_file_learns_its_layout_before_it_reads() {
    let layout = Layout { stripe_unit_bytes: 1 << 20, stripe_count: 3, narrow: false };
    for stripe_count in [1, 3] {
        let mut harness = Harness::new();
        let layout = Layout { stripe_count, ..layout };
        let opened = Attr { layout: Some(layout), ..attr(FILE, FileKind::File) };
        // As another lane has opened it.
        let handle = FileHandle::new(HandleId(1 << 48 | 7), &opened).0;
        let args = [u64s(&[handle, 3 << 20]), u32s(&[4096, 0]), u64s(&[0]), u32s(&[0, 0])].concat();
        harness.kernel_request(Opcode::Read, 2, FILE, &args);
        if stripe_count > 1 {
            let getattr = harness.take();
            assert_eq!(getattr.head.op, Op::Getattr);
            harness.answer(&getattr, &Entry { attr: opened }.to_bytes());
        }
        let read = harness.take();
        assert_eq!(read.head.op, Op::Read);
        assert_eq!(read.head.layout, (stripe_count > 1).then_some(layout));
    }
}
