//! The node ids of directories, over requests: each parent has its own, and a directory that the
//! kernel moves retains its node id.

use super::harness::{Harness, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::abi::{Opcode, size};
use alloc::vec::Vec;
use interface::{Event, MountMessage, PeerEvent};
use wire::{
    Dirent, Entry, FileKind, InodeNo, LaneId, List, Listing, Lookup, Mkdir, Name, Op, Rename,
    Renamed, Status, Wire,
};

const MOVED: InodeNo = InodeNo((3 << 48) | 9);
const OTHER: InodeNo = InodeNo((4 << 48) | 6);

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Sends a request whose reply is an entry of `inode`; returns its node id.
fn entry(
    harness: &mut Harness,
    opcode: Opcode,
    parent: u64,
    inode: InodeNo,
    kind: FileKind,
) -> u64 {
    let mut args = if opcode == Opcode::Mkdir { u32s(&[0o755, 0]) } else { Vec::new() };
    args.extend(b"d\0");
    harness.kernel_request(opcode, 7, InodeNo(parent), &args);
    let received = harness.take();
    harness.answer(&received, &Entry { attr: attr(inode, kind) }.to_bytes());
    let reply = harness.reply();
    assert_eq!((reply.status, reply.payload.len()), (Status::Ok, size::ENTRY_OUT));
    assert_eq!(u64_at(&reply.payload, 40), inode.0, "the attributes have the inode's number");
    u64_at(&reply.payload, 0)
}

fn lookup(harness: &mut Harness, parent: u64, inode: InodeNo) -> u64 {
    entry(harness, Opcode::Lookup, parent, inode, FileKind::Directory)
}

fn rename(harness: &mut Harness, from: u64, to: u64, renamed: Renamed) {
    let mut args = u64s(&[to, 2]);
    args.extend(b"d\0d\0");
    harness.kernel_request(Opcode::Rename2, 7, InodeNo(from), &args);
    let received = harness.take();
    harness.answer(&received, &renamed.to_bytes());
    assert_eq!(harness.status(), Status::Ok);
}

#[test]
fn a_directory_has_a_node_below_each_parent_and_requests_name_its_inode() {
    let mut harness = Harness::new();
    let below_root = lookup(&mut harness, 1, MOVED);
    let below_other = lookup(&mut harness, DIRECTORY.0, MOVED);
    assert_ne!(below_root, below_other);
    assert_eq!(lookup(&mut harness, 1, MOVED), below_root);
    assert_eq!(entry(&mut harness, Opcode::Mkdir, 1, MOVED, FileKind::Directory), below_root);
    assert_eq!(entry(&mut harness, Opcode::Lookup, 1, FILE, FileKind::File), FILE.0);
    // Its entries have a node below each of its nodes.
    assert_ne!(lookup(&mut harness, below_root, OTHER), lookup(&mut harness, below_other, OTHER));

    for node in [below_root, below_other] {
        harness.kernel_request(Opcode::Lookup, 7, InodeNo(node), b"a\0");
        let received = harness.take();
        assert_eq!(received.head.op, Op::Lookup);
        assert_eq!(Lookup::decode_all(&received.body).unwrap().parent, MOVED);
        harness.fail(&received, Status::NotFound);
        assert_eq!(harness.status(), Status::NotFound);
        harness.kernel_request(
            Opcode::Mkdir,
            7,
            InodeNo(node),
            &[&u32s(&[0o755, 0])[..], b"a\0"].concat(),
        );
        let received = harness.take();
        assert_eq!(Mkdir::decode_all(&received.body).unwrap().parent, MOVED);
        harness.fail(&received, Status::Exists);
        assert_eq!(harness.status(), Status::Exists);
        harness.kernel_request(
            Opcode::Rename,
            7,
            InodeNo(1),
            &[&u64s(&[node])[..], b"a\0b\0"].concat(),
        );
        let received = harness.take();
        assert_eq!(Rename::decode_all(&received.body).unwrap().new_parent, MOVED);
        harness.fail(&received, Status::NotFound);
        assert_eq!(harness.status(), Status::NotFound);
    }
}

#[test]
fn a_listing_with_attributes_has_the_nodes_that_a_lookup_has() {
    let mut harness = Harness::new();
    let parent = lookup(&mut harness, 1, OTHER);
    let node = lookup(&mut harness, parent, MOVED);
    let args = [u64s(&[0, 2]), u32s(&[4096, 0]), u64s(&[0, 0])].concat();
    harness.kernel_request(Opcode::Readdirplus, 7, InodeNo(parent), &args);
    let received = harness.take();
    let attr = attr(MOVED, FileKind::Directory);
    let name = Name::new(b"d").unwrap();
    let dirent = Dirent {
        cookie: 1,
        inode: MOVED,
        kind: FileKind::Directory,
        name,
        attr: Some(attr),
        granted: false,
    };
    let entries = dirent.to_bytes();
    let listing = Listing { parent: InodeNo::ROOT, end: true, entries: List::new(1, &entries) };
    harness.answer(&received, &listing.to_bytes());
    let payload = harness.reply().payload;
    assert_eq!((u64_at(&payload, 0), u64_at(&payload, size::ENTRY_OUT)), (node, MOVED.0));
}

#[test]
fn a_renamed_directory_retains_its_node_at_all_lanes() {
    let mut harness = Harness::new();
    let to = lookup(&mut harness, 1, DIRECTORY);
    let node = lookup(&mut harness, 1, MOVED);
    rename(&mut harness, 1, 1, Renamed { moved: Some(MOVED), exchanged: None });
    assert!(harness.peer_messages.is_empty(), "below the same parent nothing changes");
    rename(&mut harness, 1, to, Renamed { moved: None, exchanged: None });
    assert!(harness.peer_messages.is_empty(), "files have one node everywhere");

    rename(&mut harness, 1, to, Renamed { moved: Some(MOVED), exchanged: None });
    let message = MountMessage::Moved { node, parent: to };
    assert_eq!(harness.peer_messages, [(LaneId(1), message), (LaneId(2), message)]);
    assert_eq!(lookup(&mut harness, to, MOVED), node);
    let mut peer_lane = Harness::new();
    assert_ne!(lookup(&mut peer_lane, to, MOVED), node);
    peer_lane.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    assert_eq!(lookup(&mut peer_lane, to, MOVED), node);
    assert!(peer_lane.peer_messages.is_empty(), "a peer message is not sent again");
}

#[test]
fn both_directories_of_an_exchange_retain_their_nodes() {
    let mut harness = Harness::new();
    let to = lookup(&mut harness, 1, DIRECTORY);
    let nodes = (lookup(&mut harness, 1, MOVED), lookup(&mut harness, to, OTHER));
    rename(&mut harness, 1, to, Renamed { moved: Some(MOVED), exchanged: Some(OTHER) });
    assert_eq!((lookup(&mut harness, to, MOVED), lookup(&mut harness, 1, OTHER)), nodes);
}

#[test]
fn a_failed_or_abandoned_rename_moves_no_node() {
    let mut harness = Harness::new();
    let to = lookup(&mut harness, 1, DIRECTORY);
    let (node, there) = (lookup(&mut harness, 1, MOVED), lookup(&mut harness, to, MOVED));
    let mut args = u64s(&[to]);
    args.extend(b"d\0d\0");
    harness.kernel_request(Opcode::Rename, 7, InodeNo(1), &args);
    let received = harness.take();
    harness.fail(&received, Status::NotFound);
    assert_eq!(harness.status(), Status::NotFound);
    assert_eq!((lookup(&mut harness, 1, MOVED), lookup(&mut harness, to, MOVED)), (node, there));
    assert!(harness.peer_messages.is_empty());
}
