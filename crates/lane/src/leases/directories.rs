//! Grants of new directories to the clients that have made them: with the reply to the Mkdir where it is
//! at the shard of the parent, else with the reply to a Getattr that follows it.

use super::table::Lease;
use super::writing::Writer;
use crate::Lane;
use crate::request::ReceivedRequest;
use disk::Change;
use interface::{Mono, Turn};
use wire::{
    ClientUuid, Entry, FileKind, InodeNo, LeaseNo, Op, SessionId, ShardId, Wire as _, attr_flag,
    lease_flag, request_flag,
};

impl Lane {
    /// The directory that a part of a transaction will make at a shard.
    pub(crate) fn made_by(&self, shard: ShardId, part: &[u8]) -> Option<InodeNo> {
        let meta = &self.metas[self.meta_index(shard)];
        disk::Changes::new(part).find_map(|change| match change {
            Ok(Change::Inode { row }) if row.kind == FileKind::Directory && row.nlink > 0 => {
                meta.attributes(row.inode).is_none().then_some(row.inode)
            }
            Ok(_) | Err(_) => None,
        })
    }

    /// A directory will be made: whether its client may have it depends on the free space.
    pub(crate) fn await_made(&mut self, turn: &mut Turn<'_>) {
        if self.leases.term_ms > 0 {
            self.ask_for_space(turn);
        }
    }

    /// A transaction of this client has made a directory.
    pub(crate) fn remember_made(&mut self, now: Mono, inode: InodeNo, client: ClientUuid) {
        if self.leases.term_ms > 0 {
            self.leases.writing.made.add(inode, client, now);
        }
    }

    /// Lets a client change the names of the directory that it has made, and whose attributes it is
    /// granted, if it asks for that.
    pub(super) fn grant_made(
        &mut self,
        granting: ((SessionId, ClientUuid), LeaseNo, Mono),
        received: &ReceivedRequest<'_>,
        attributes: u8,
    ) -> u8 {
        let ((_, client), ..) = granting;
        let request = received.request;
        let asks = request.op == Op::Getattr
            && request.flags & request_flag::BEHIND != 0
            && !received.open.binding.read_only;
        if !asks || attributes == 0 || self.leases.writing.made.is_empty() {
            return 0;
        }
        let Ok(Entry { attr }) = Entry::decode_all(self.scratch.reply()) else { return 0 };
        let made = &mut self.leases.writing.made;
        let is_its = made.maker(attr.inode) == Some(client);
        // What it has got since may have other names.
        let is_empty = attr.nlink > 0 && attr.flags & attr_flag::EMPTY != 0;
        if !is_its {
            return 0;
        }
        made.forget(attr.inode);
        if is_empty { self.grant_directory(granting, received) } else { 0 }
    }

    /// Lets a client change the names of the directory that the reply shows, which it has made.
    pub(super) fn grant_directory(
        &mut self,
        (holder, lease_no, now): ((SessionId, ClientUuid), LeaseNo, Mono),
        received: &ReceivedRequest<'_>,
    ) -> u8 {
        let Ok(Entry { attr }) = Entry::decode_all(self.scratch.reply()) else { return 0 };
        let (session, client) = holder;
        let spreads = self.metas[self.meta_index(received.request.shard)].spreads_new_files();
        let writing = &self.leases.writing;
        if spreads
            || attr.flags & attr_flag::XATTRS != 0
            || attr.inode.shard() != received.request.shard
            || !writing.has_room_for_directory(client)
            || !writing.has_space_for(client, self.free_space.free_bytes())
        {
            return 0;
        }
        let lease = Lease::new(session, lease_no, now);
        self.leases.writing.insert_directory(attr.inode, Writer { client, lease });
        self.leases.lease_no_last = lease_no;
        self.leases.counts.granted_count += 1;
        lease_flag::WRITING
    }
}
