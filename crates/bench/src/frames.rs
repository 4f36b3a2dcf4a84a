//! The frames that a limit exchanges: as large as a real server's.

use wire::{
    Attr, Entry, FileKind, Getattr, HEADER_BYTES, Header, InodeNo, Op, Read, Reply, Request,
    SessionId, Timestamp, Transno, Wire, Write, Writer, Written, Xid,
};

/// Bytes of a getattr's request.
pub(crate) fn getattr_request_bytes() -> usize {
    request_bytes(Op::Getattr, |to| Getattr { inode: InodeNo::ROOT }.encode(to))
}

/// A getattr's reply.
pub(crate) fn getattr_reply() -> Vec<u8> {
    let now = Timestamp::default();
    let attr = Attr {
        inode: InodeNo::ROOT,
        kind: FileKind::File,
        flags: 0,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size_bytes: 0,
        allocated_bytes: 0,
        atime: now,
        mtime: now,
        mtime_set: now,
        ctime: now,
        birth: now,
        version: Transno(1),
        layout: None,
    };
    reply(Op::Getattr, None, |to| Entry { attr }.encode(to))
}

/// Bytes of a read's request.
pub(crate) fn read_request_bytes() -> usize {
    let read = Read { inode: InodeNo::ROOT, file_offset: 0, read_bytes: 0, accesses: true };
    request_bytes(Op::Read, |to| read.encode(to))
}

/// The head of a read's reply, before so many bytes that carry no checksum.
pub(crate) fn read_reply(bulk_bytes: u32) -> Vec<u8> {
    reply(Op::Read, Some((bulk_bytes, None)), |_| {})
}

/// Bytes of a write's request before its contents.
pub(crate) fn write_request_bytes() -> usize {
    let write = Write {
        inode: InodeNo::ROOT,
        file_offset: 0,
        append: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    request_bytes(Op::Write, |to| write.encode(to))
}

/// A write's reply.
pub(crate) fn write_reply(written_bytes: u32) -> Vec<u8> {
    reply(Op::Write, None, |to| Written { file_offset: 0, written_bytes }.encode(to))
}

fn request_bytes(op: Op, body: impl FnOnce(&mut Writer<'_>)) -> usize {
    let mut out = Vec::new();
    Header::Request(Request::of(op)).encode(&mut out, None, body);
    assert!(out.len() > HEADER_BYTES, "these requests have a body");
    out.len()
}

fn reply(op: Op, bulk: Option<(u32, Option<u32>)>, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    Header::Reply(reply_head(op)).encode(&mut out, bulk, body);
    Header::put_sums(&mut out, None);
    out
}

/// A reply to the first request, saying that all went well.
pub(crate) const fn reply_head(op: Op) -> Reply {
    let (session, xid) = (SessionId(1), Xid(1));
    Reply { session, xid, credits: 64, boot_id: 1, ..Reply::of(op) }
}
