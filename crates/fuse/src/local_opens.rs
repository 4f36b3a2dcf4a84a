//! Files that are opened to be read without the server, under a lease of their attributes: the client
//! lane registers those that stay open, or whose lease is recalled (`client::Client::open_locally`).
//!
//! What would make the server refuse to register one waits until it is registered or closed: at other
//! mounts because the lease is not given up before; at this one what removes the file's name, changes who
//! may open it, or needs its handle at the server. All lanes of a mount see which files are open so: the
//! lane that has the lease has the one register it that has opened the file.
//!
//! Invariant: a place names a file from before its attributes are looked at until it is registered or
//! closed.

use crate::abi::Opcode;
use crate::args::split;
use crate::behind::Behind;
use crate::early::Waiting;
use crate::handle::FileHandle;
use crate::lane::MountLane;
use crate::leases::version_of;
use crate::node::Node;
use crate::out::{put_cached_open, put_open};
use alloc::vec::Vec;
use client::LOCAL_MS_MAX;
use interface::{Mono, MountMessage, Turn};
use wire::{Attr, FileKind, InodeNo, Name, OpenFor};

const OWNER_READS: u32 = 0o400;
const OWNER_WRITES: u32 = 0o200;
const ALL_READ: u32 = 0o444;
const ALL_WRITE: u32 = 0o222;

impl MountLane {
    /// An OPEN to read, or to read and write: answered at once, if it may be.
    pub(crate) fn open_locally(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        open_for: OpenFor,
    ) -> bool {
        let Some(table) = self.behind.table.clone() else { return false };
        let header = self.pendings.get(pending_id).map(|pending| split(&pending.request));
        let Some(Ok((header, _))) = header else { return false };
        let (inode, now) = (header.inode, turn.now.mono);
        let may = self.is_serving() && self.client.takes_calls() && !self.client.are_ids_replaced();
        if !may || !table.local.begin(inode) {
            return false;
        }
        let opened = self.local_file(now, (inode, open_for), (header.uid, header.gid));
        let opened =
            opened.and_then(|attr| Some((attr, self.client.open_locally(now, (inode, open_for))?)));
        let Some((attr, handle)) = opened else {
            self.end_local(turn, &table, inode);
            return false;
        };
        if open_for.writes() {
            // Past the page cache, as all that may be written: nobody would recall what it leaves there.
            self.encode(turn, pending_id, |out| put_open(out, &attr, handle));
            return true;
        }
        let keeps = self.leases.has_pages_of(now, &attr, None);
        let opened = FileHandle::new(handle, &attr).cached();
        if !keeps {
            self.set_pages(turn, inode, (Some(version_of(&attr)), Some(opened)));
        }
        self.encode(turn, pending_id, |out| put_cached_open(out, opened, keeps));
        true
    }

    /// The attributes of a file, if the server certainly lets a caller open it to read it.
    fn local_file(
        &mut self,
        now: Mono,
        (inode, open_for): (InodeNo, OpenFor),
        (uid, gid): (u32, u32),
    ) -> Option<Attr> {
        // Whichever lane has the lease, until the file is registered if it stays open.
        let known = self.cache.as_ref()?.attributes(now.after_ms(LOCAL_MS_MAX), inode)?;
        let attr = known.value;
        // One without a name is removed with its last handle at the server, which asks nobody.
        let is_plain = attr.kind == FileKind::File
            && attr.nlink > 0
            && attr.has_no_xattrs()
            && !attr.is_size_at_data()
            && !attr.layout.is_some_and(|layout| layout.is_spread());
        let is_mapped = (uid == 0 || gid == 0) && !self.client.is_root_trusted();
        let (all, owner) = if open_for.writes() {
            (ALL_READ | ALL_WRITE, OWNER_READS | OWNER_WRITES)
        } else {
            (ALL_READ, OWNER_READS)
        };
        let is_permitted =
            uid == 0 || attr.mode & all == all || (uid == attr.uid && attr.mode & owner == owner);
        let may = is_plain && !is_mapped && is_permitted;
        if open_for.writes() {
            return (may && !self.client.is_read_only()).then_some(attr);
        }
        let until = Some(self.client.term().until);
        (may && self.leases.allows_pages(now, inode, until)).then_some(attr)
    }

    /// Files that were open so are registered or closed. Returns whether there were any.
    pub(crate) fn end_local_opens(&mut self, turn: &mut Turn<'_>) -> bool {
        let has_ended = self.end_unwritten(turn);
        let ended = self.client.take_ended_local();
        let Some(table) = self.behind.table.clone().filter(|_| !ended.is_empty()) else {
            return has_ended;
        };
        ended.into_iter().for_each(|inode| self.end_local(turn, &table, inode));
        true
    }

    fn end_local(&mut self, turn: &mut Turn<'_>, table: &Behind, inode: InodeNo) {
        let waiters = table.local.end(inode);
        self.wake(turn, inode, waiters);
    }

    /// Whether a request waits for a file that is open so.
    pub(crate) fn waits_for_local(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        table: &Behind,
    ) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, mut args)) = split(&pending.request) else { return false };
        let Some(opcode) = Opcode::from_number(header.opcode) else { return false };
        let (lane, now) = (self.client.lane(), turn.now.mono);
        let named = |directory: InodeNo, name: &[u8]| {
            let name = Name::new(name).ok()?;
            match self.cache.as_ref().and_then(|cache| cache.found(now, directory, name)) {
                Some(found) => found.value.filter(|inode| table.local.waits(*inode, lane)),
                None => table.local.any_waits(lane),
            }
        };
        #[expect(clippy::wildcard_enum_match_arm, reason = "no other request is against an open")]
        let inode = match opcode {
            Opcode::Unlink => args.text().ok().and_then(|name| named(header.inode, name)),
            Opcode::Rename | Opcode::Rename2 => {
                let to = args.u64().map(|node| Node(node).inode());
                let names = split(&pending.request)
                    .and_then(|(header, args)| args.names_of_rename(header.opcode));
                let (Ok(to), Ok((_, new))) = (to, names) else { return false };
                named(to, &new)
            }
            Opcode::Setattr
            | Opcode::Setxattr
            | Opcode::Removexattr
            | Opcode::Getlk
            | Opcode::Setlk
            | Opcode::Setlkw => Some(header.inode).filter(|it| table.local.waits(*it, lane)),
            // Without the lease others may write it behind, who do not know that it is open. The data
            // shard asks nobody.
            Opcode::Read | Opcode::Lseek | Opcode::CopyFileRange => {
                let known = self.cache.as_ref().and_then(|it| it.attributes(now, header.inode));
                let reads = Some(header.inode).filter(|_| known.is_none());
                reads.filter(|it| table.local.waits(*it, lane))
            }
            _ => None,
        };
        let Some(inode) = inode else { return false };
        self.behind.waiting.push((inode, Waiting::Request(pending_id)));
        self.register(turn, inode);
        true
    }

    /// The lane that has opened a file registers it.
    fn register(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        if !self.client.register_local(inode) {
            self.send_to_peer_lanes(turn, MountMessage::Register { inode });
        }
    }

    /// Another client is about to change a file: the lease is given up when the server knows that it is
    /// open.
    pub(crate) fn register_recalled(&mut self, turn: &mut Turn<'_>, work_no: u64, inode: InodeNo) {
        let table = self.behind.table.as_ref();
        if table.is_some_and(|table| table.local.waits(inode, self.client.lane())) {
            self.register(turn, inode);
            self.hold_work(work_no);
            self.end_registered(work_no, inode);
        }
    }

    /// The recall goes on, unless the file is still to be registered.
    pub(crate) fn end_registered(&mut self, work_no: u64, inode: InodeNo) {
        let table = self.behind.table.as_ref();
        if table.is_some_and(|table| table.local.waits(inode, self.client.lane())) {
            self.behind.waiting.push((inode, Waiting::Registered(work_no)));
        } else {
            self.end_wait(Some(work_no));
        }
    }

    /// The same for all files.
    pub(crate) fn register_all(&mut self, turn: &mut Turn<'_>, work_no: u64) {
        for inode in self.all_local() {
            self.register_recalled(turn, work_no, inode);
        }
    }

    /// The term of this lane's leases has ended: what was opened under them is registered.
    pub(crate) fn register_behind_term(&mut self, turn: &mut Turn<'_>) {
        for inode in self.all_local() {
            self.register(turn, inode);
        }
    }

    fn all_local(&self) -> Vec<InodeNo> {
        self.behind.table.as_ref().map(|table| table.local.all()).unwrap_or_default()
    }

    /// Files that have been open so for long are registered.
    pub(crate) fn register_old(&mut self, turn: &mut Turn<'_>) {
        if let Some(at) = self.client.register_old_local(turn.now.mono) {
            turn.act(interface::Action::WakeAt { at });
        }
    }
}
