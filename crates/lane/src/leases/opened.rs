//! Write leases of files that were there before: the one client that has such a file open may write it
//! behind, as its maker may write a new one (docs/protocol.md R20.38, `writing`).
//!
//! ```text
//! Open for writing ─ others' leases recalled ─▶ nobody else has it open ─▶ write lease
//! ```
//! Invariant: while a client writes a file behind, no other client has it open, and it has one handle
//! that writes.

use super::Leases;
use super::table::Lease;
use super::writing::Writer;
use crate::Lane;
use crate::request::ReceivedRequest;
use interface::Mono;
use meta::LeaseKey;
use wire::{
    ClientUuid, Entry, FileKind, InodeNo, LeaseNo, Op, OpenFor, Rule, SessionId, Wire as _,
    lease_flag, request_flag,
};

impl Leases {
    /// A session has acknowledged a recall of its leases up to a grant. It may have another one since.
    pub(super) fn end_recalled_writing(
        &mut self,
        inode: InodeNo,
        (session, lease_no_max): (SessionId, LeaseNo),
    ) {
        let writer = self.writing.files.get(&inode);
        if writer.is_some_and(|writer| writer.lease.lease_no <= lease_no_max) {
            self.end_writing(inode, session);
        }
    }
}

impl Lane {
    /// Lets a client write the file behind that it has just opened for writing, if it asks for that.
    pub(super) fn grant_writing_opened(
        &mut self,
        ((session, client), lease_no, now): ((SessionId, ClientUuid), LeaseNo, Mono),
        received: &ReceivedRequest<'_>,
        body: &[u8],
    ) -> u8 {
        let request = received.request;
        if request.op != Op::Open || request.flags & request_flag::BEHIND == 0 {
            return 0;
        }
        let opened = wire::Open::decode_all(body).map(|open| open.handle.open_for);
        let Ok(Entry { attr }) = Entry::decode_all(self.scratch.reply()) else { return 0 };
        let inode = attr.inode;
        let is_plain = attr.kind == FileKind::File
            && attr.nlink == 1
            && attr.layout.is_none_or(|layout| !layout.may_spread());
        // A fence of another server's data shard would outlive what this server knows of it.
        let map = &self.config.map;
        let is_here = map.place(map.data_shard(inode, 0)).server == self.config.server;
        let meta = &self.metas[self.meta_index(request.shard)];
        let is_alone = meta.is_opened_once(inode, client)
            || (!self.config.rules.hold(Rule::WriteOpened) && meta.is_written_by(inode, client));
        let may_be_granted = opened.is_ok_and(OpenFor::writes)
            && is_plain
            && is_here
            && inode.shard() == request.shard
            && is_alone
            && meta.is_leasable(inode, client);
        let (key, writing) = (LeaseKey::Writing(inode), &self.leases.writing);
        if !may_be_granted
            || writing.has(inode)
            || !writing.was_never_taken(inode)
            || !writing.has_room()
            || !writing.has_space_for(client, self.free_space.free_bytes())
            || self.leases.heat.is_hot(key, now)
            || self.leases.is_awaited(key, now)
        {
            return 0;
        }
        let lease = Lease::new(session, lease_no, now);
        self.leases.writing.insert(inode, Writer { client, lease });
        self.leases.lease_no_last = lease_no;
        self.leases.counts.granted_count += 1;
        lease_flag::WRITING
    }
}
