//! The node ids of directories, over requests: each parent has its own, and what the kernel moves keeps
//! the one that it has.

use super::rig::{Rig, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::abi::{Opcode, size};
use alloc::vec::Vec;
use interface::{Event, LaneMessage, PeerEvent};
use wire::{
    Dirent, Entry, FileKind, InodeNo, LaneId, List, Listing, Lookup, Mkdir, Name, Op, Rename,
    Renamed, Status, Wire,
};

const MOVED: InodeNo = InodeNo((3 << 48) | 9);
const OTHER: InodeNo = InodeNo((4 << 48) | 6);

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Asks for something that answers with an entry; the server's reply has `inode`. Its node id.
fn entry(rig: &mut Rig, opcode: Opcode, parent: u64, inode: InodeNo, kind: FileKind) -> u64 {
    let mut args = if opcode == Opcode::Mkdir { u32s(&[0o755, 0]) } else { Vec::new() };
    args.extend(b"d\0");
    rig.ask(opcode, 7, InodeNo(parent), &args);
    let asked = rig.take();
    rig.answer(&asked, &Entry { attr: attr(inode, kind) }.to_bytes());
    let reply = rig.reply();
    assert_eq!((reply.status, reply.payload.len()), (Status::Ok, size::ENTRY_OUT));
    assert_eq!(u64_at(&reply.payload, 40), inode.0, "the attributes have the inode's number");
    u64_at(&reply.payload, 0)
}

fn lookup(rig: &mut Rig, parent: u64, inode: InodeNo) -> u64 {
    entry(rig, Opcode::Lookup, parent, inode, FileKind::Directory)
}

fn rename(rig: &mut Rig, from: u64, to: u64, renamed: Renamed) {
    let mut args = u64s(&[to, 2]);
    args.extend(b"d\0d\0");
    rig.ask(Opcode::Rename2, 7, InodeNo(from), &args);
    let asked = rig.take();
    rig.answer(&asked, &renamed.to_bytes());
    assert_eq!(rig.status(), Status::Ok);
}

#[test]
fn a_directory_has_a_node_below_each_parent_and_requests_name_its_inode() {
    let mut rig = Rig::new();
    let below_root = lookup(&mut rig, 1, MOVED);
    let below_other = lookup(&mut rig, DIRECTORY.0, MOVED);
    assert_ne!(below_root, below_other);
    assert_eq!(lookup(&mut rig, 1, MOVED), below_root);
    assert_eq!(entry(&mut rig, Opcode::Mkdir, 1, MOVED, FileKind::Directory), below_root);
    assert_eq!(entry(&mut rig, Opcode::Lookup, 1, FILE, FileKind::File), FILE.0);
    // What lies in it has a node below each of its nodes.
    assert_ne!(lookup(&mut rig, below_root, OTHER), lookup(&mut rig, below_other, OTHER));

    for node in [below_root, below_other] {
        rig.ask(Opcode::Lookup, 7, InodeNo(node), b"a\0");
        let asked = rig.take();
        assert_eq!(asked.head.op, Op::Lookup);
        assert_eq!(Lookup::decode_all(&asked.body).unwrap().parent, MOVED);
        rig.fail(&asked, Status::NotFound);
        assert_eq!(rig.status(), Status::NotFound);
        rig.ask(Opcode::Mkdir, 7, InodeNo(node), &[&u32s(&[0o755, 0])[..], b"a\0"].concat());
        let asked = rig.take();
        assert_eq!(Mkdir::decode_all(&asked.body).unwrap().parent, MOVED);
        rig.fail(&asked, Status::Exists);
        assert_eq!(rig.status(), Status::Exists);
        rig.ask(Opcode::Rename, 7, InodeNo(1), &[&u64s(&[node])[..], b"a\0b\0"].concat());
        let asked = rig.take();
        assert_eq!(Rename::decode_all(&asked.body).unwrap().new_parent, MOVED);
        rig.fail(&asked, Status::NotFound);
        assert_eq!(rig.status(), Status::NotFound);
    }
}

#[test]
fn a_listing_with_attributes_has_the_nodes_that_a_lookup_has() {
    let mut rig = Rig::new();
    let parent = lookup(&mut rig, 1, OTHER);
    let node = lookup(&mut rig, parent, MOVED);
    let args = [u64s(&[0, 2]), u32s(&[4096, 0]), u64s(&[0, 0])].concat();
    rig.ask(Opcode::Readdirplus, 7, InodeNo(parent), &args);
    let asked = rig.take();
    let attr = attr(MOVED, FileKind::Directory);
    let name = Name::new(b"d").unwrap();
    let dirent =
        Dirent { cookie: 1, inode: MOVED, kind: FileKind::Directory, name, attr: Some(attr) };
    let entries = dirent.to_bytes();
    let listing = Listing { parent: InodeNo::ROOT, end: true, entries: List::new(1, &entries) };
    rig.answer(&asked, &listing.to_bytes());
    let payload = rig.reply().payload;
    assert_eq!((u64_at(&payload, 0), u64_at(&payload, size::ENTRY_OUT)), (node, MOVED.0));
}

#[test]
fn what_the_kernel_renames_keeps_its_node_at_all_lanes() {
    let mut rig = Rig::new();
    let to = lookup(&mut rig, 1, DIRECTORY);
    let node = lookup(&mut rig, 1, MOVED);
    rename(&mut rig, 1, 1, Renamed { moved: Some(MOVED), exchanged: None });
    assert!(rig.mails.is_empty(), "below the same parent nothing changes");
    rename(&mut rig, 1, to, Renamed { moved: None, exchanged: None });
    assert!(rig.mails.is_empty(), "files have one node everywhere");

    rename(&mut rig, 1, to, Renamed { moved: Some(MOVED), exchanged: None });
    let message = LaneMessage::Moved { node, parent: to };
    assert_eq!(rig.mails, [(LaneId(1), message), (LaneId(2), message)]);
    assert_eq!(lookup(&mut rig, to, MOVED), node);
    let mut peer_lane = Rig::new();
    assert_ne!(lookup(&mut peer_lane, to, MOVED), node);
    peer_lane.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    assert_eq!(lookup(&mut peer_lane, to, MOVED), node);
    assert!(peer_lane.mails.is_empty(), "what was heard is not told again");
}

#[test]
fn both_directories_of_an_exchange_keep_their_nodes() {
    let mut rig = Rig::new();
    let to = lookup(&mut rig, 1, DIRECTORY);
    let nodes = (lookup(&mut rig, 1, MOVED), lookup(&mut rig, to, OTHER));
    rename(&mut rig, 1, to, Renamed { moved: Some(MOVED), exchanged: Some(OTHER) });
    assert_eq!((lookup(&mut rig, to, MOVED), lookup(&mut rig, 1, OTHER)), nodes);
}

#[test]
fn a_rename_that_failed_or_was_given_up_moves_no_node() {
    let mut rig = Rig::new();
    let to = lookup(&mut rig, 1, DIRECTORY);
    let (node, there) = (lookup(&mut rig, 1, MOVED), lookup(&mut rig, to, MOVED));
    let mut args = u64s(&[to]);
    args.extend(b"d\0d\0");
    rig.ask(Opcode::Rename, 7, InodeNo(1), &args);
    let asked = rig.take();
    rig.fail(&asked, Status::NotFound);
    assert_eq!(rig.status(), Status::NotFound);
    assert_eq!((lookup(&mut rig, 1, MOVED), lookup(&mut rig, to, MOVED)), (node, there));
    assert!(rig.mails.is_empty());
}
