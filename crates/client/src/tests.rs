//! The client against a scripted server.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, clippy::expect_used)]

mod abandoned;
mod appends;
mod by_part;
mod calls;
mod connections;
mod durability;
mod eviction;
mod exactly_once;
mod harness;
mod interrupts;
mod layouts;
mod leases;
mod lists;
mod locks;
mod made;
mod moved;
mod parallel;
mod parallel_servers;
mod received;
mod replays;
mod replays_random;
mod secrets;
mod servers;
mod spread;
mod spread_model;
mod spread_pages;
mod widen;

use wire::{Attr, Caller, FileKind, Groups, InodeNo, Timestamp, Transno};

const CALLER: Caller<'static> = Caller { uid: 1000, gid: 1000, groups: Groups::Unknown };
/// A file of metadata shard 2.
const FILE: InodeNo = InodeNo((2 << 48) | 77);

fn attr(inode: InodeNo, flags: u32) -> Attr {
    let time = Timestamp { secs: 100, nanos: 0 };
    Attr {
        inode,
        kind: FileKind::File,
        flags,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        size_bytes: 1,
        allocated_bytes: 512,
        atime: time,
        mtime: time,
        mtime_set: time,
        ctime: time,
        birth: time,
        version: Transno(5),
        layout: Some(wire::Layout::DEFAULT),
    }
}
