//! A mount lane between a kernel made of bytes and a scripted server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation
)]

extern crate std;

mod answers;
mod behind;
mod contents;
mod counts;
mod files_ahead;
mod harness;
mod header;
mod known;
mod leases;
mod life;
mod listings;
mod listings_ahead;
mod local_opens;
mod local_writes;
mod locks;
mod moves;
mod names;
mod opened;
mod opens;
mod pages;
mod profile;
mod soft;
mod traces;

use wire::{Attr, FileKind, InodeNo, Timestamp, Transno};

/// A directory.
const DIRECTORY: InodeNo = InodeNo((1 << 48) | 5);
/// A file.
const FILE: InodeNo = InodeNo((2 << 48) | 77);

pub(crate) fn attr(inode: InodeNo, kind: FileKind) -> Attr {
    let time = |secs| Timestamp { secs, nanos: 9 };
    Attr {
        inode,
        kind,
        flags: 0,
        mode: 0o640,
        nlink: 3,
        uid: 1001,
        gid: 1002,
        rdev: 0x0010_3203,
        size_bytes: 12_345,
        allocated_bytes: 16_384,
        atime: time(-1),
        mtime: time(200),
        mtime_set: time(200),
        ctime: time(300),
        birth: time(-100),
        version: Transno(5),
        layout: (kind == FileKind::File).then_some(wire::Layout::DEFAULT),
    }
}
