//! What waits until nothing of a file, or of the names of a directory, is under way behind the server.
//!
//! ```text
//! request, SETATTR, RELEASE, recall ─▶ waiting ─ the last answer, on any lane ─▶ goes on, in order
//! ```
//! Invariant: a recall of a write lease is acknowledged when nothing of its file or directory is under
//! way, and no change of it is answered early after that.

use crate::abi::Opcode;
use crate::args::split;
use crate::behind::Behind;
use crate::early::Waiting;
use crate::lane::MountLane;
use crate::names_behind::Removed;
use crate::shared::lane_bit;
use alloc::sync::Arc;
use alloc::vec::Vec;
use interface::{Mono, MountMessage, PeerAction, Turn};
use wire::{InodeNo, RenameHow};

impl MountLane {
    /// Whether a request waits for what is changed behind, or is answered here. Otherwise it goes on.
    pub(crate) fn is_behind(&mut self, turn: &mut Turn<'_>, pending_id: usize) -> bool {
        let Some(table) = self.behind.table.clone() else { return false };
        if let Some(ended) = self.sync_ahead_of(pending_id) {
            return self.sync_rest(turn, pending_id, (&table, ended));
        }
        self.begin_sizes(pending_id, &table);
        let is_awaited = self.pendings.get(pending_id).is_some_and(|it| it.awaited.is_some());
        if is_awaited {
            return false;
        }
        if !table.local.is_empty() && self.waits_for_local(turn, pending_id, &table)
            || !table.unwritten.is_empty() && self.waits_to_write(turn, pending_id, &table)
        {
            return true;
        }
        if table.is_empty() {
            return false;
        }
        self.is_file_behind(turn, pending_id, &table)
            || self.are_names_behind(turn, pending_id, &table)
    }

    fn is_file_behind(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        table: &Arc<Behind>,
    ) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, mut args)) = split(&pending.request) else { return false };
        let Some(opcode) = Opcode::from_number(header.opcode) else { return false };
        let inode = header.inode;
        #[expect(clippy::wildcard_enum_match_arm, reason = "all others wait for their inode")]
        match opcode {
            Opcode::Write => self.write(turn, pending_id, table),
            Opcode::Setattr => self.set_attributes(turn, pending_id, table),
            Opcode::Getxattr => {
                self.says_no_capability(turn, pending_id, (table, inode))
                    || self.waits(table, pending_id, inode)
            }
            Opcode::Flush => self.fails(turn, (pending_id, opcode), (table, inode)),
            Opcode::Fsync => {
                table.see_sync(inode);
                self.waits_to_sync(turn, pending_id, (table, inode))
                    || self.fails(turn, (pending_id, opcode), (table, inode))
            }
            Opcode::Lookup | Opcode::Create | Opcode::Unlink => {
                let name = match opcode {
                    Opcode::Unlink => args.text().ok(),
                    _ => args.name_of(header.opcode),
                };
                let named = name.and_then(|name| table.named(inode, name));
                named.is_some_and(|inode| self.waits(table, pending_id, inode))
            }
            Opcode::Rename | Opcode::Rename2 => {
                let to = args.u64().map(|node| crate::node::Node(node).inode());
                let names = split(&pending.request)
                    .and_then(|(header, args)| args.names_of_rename(header.opcode));
                let (Ok(to), Ok((old, new))) = (to, names) else { return false };
                let named = [table.named(inode, &old), table.named(to, &new)];
                let named: Vec<InodeNo> = named.into_iter().flatten().collect();
                let mut waits = false;
                for inode in named {
                    table.end(inode);
                    waits = waits || self.waits(table, pending_id, inode);
                }
                waits
            }
            Opcode::Link => {
                let Ok(inode) = args.u64().map(InodeNo) else { return false };
                table.end(inode);
                self.waits(table, pending_id, inode)
            }
            Opcode::CopyFileRange => {
                let to = args.skip(16).and_then(|()| args.u64()).map(InodeNo);
                let Ok(to) = to else { return false };
                table.end(to);
                self.waits(table, pending_id, inode) || self.waits(table, pending_id, to)
            }
            Opcode::Syncfs => {
                while let Some((inode, next)) = table.busy_from(self.scanned(pending_id)) {
                    if let Some(pending) = self.pendings.get_mut(pending_id) {
                        pending.scanned = next;
                    }
                    if self.waits(table, pending_id, inode) {
                        return true;
                    }
                }
                false
            }
            Opcode::Release
            | Opcode::Releasedir
            | Opcode::Opendir
            | Opcode::Readdir
            | Opcode::Readdirplus
            | Opcode::Mkdir
            | Opcode::Mknod
            | Opcode::Symlink
            | Opcode::Rmdir
            | Opcode::Tmpfile
            | Opcode::Statfs
            | Opcode::Fsyncdir
            | Opcode::Init
            | Opcode::Destroy
            | Opcode::Forget
            | Opcode::BatchForget
            | Opcode::Interrupt => false,
            Opcode::Fallocate | Opcode::Setxattr | Opcode::Removexattr => {
                table.end(inode);
                self.waits(table, pending_id, inode)
            }
            _ => self.waits(table, pending_id, inode),
        }
    }

    fn scanned(&self, pending_id: usize) -> usize {
        self.pendings.get(pending_id).map_or(usize::MAX, |pending| pending.scanned)
    }

    /// Whether a request changes, or reads, the names of a directory in which others are changed behind:
    /// it waits, or is answered here. Otherwise it goes on.
    fn are_names_behind(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        table: &Arc<Behind>,
    ) -> bool {
        if self.looks_up_first(turn.now.mono, pending_id) {
            return false;
        }
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, mut args)) = split(&pending.request) else { return false };
        let Some(opcode) = Opcode::from_number(header.opcode) else { return false };
        let directory = header.inode;
        #[expect(clippy::wildcard_enum_match_arm, reason = "all others read and change no names")]
        match opcode {
            Opcode::Create | Opcode::Unlink => {
                self.change_name_early(turn, pending_id, (table, opcode))
                    || self.changes_names(table, pending_id, directory)
            }
            Opcode::Mkdir | Opcode::Mknod | Opcode::Symlink | Opcode::Setattr => {
                self.changes_names(table, pending_id, directory)
            }
            Opcode::Readdir | Opcode::Readdirplus => {
                // It changes the time of access.
                self.changes_names(table, pending_id, directory)
            }
            Opcode::Opendir | Opcode::Fsyncdir => self.names_wait(table, pending_id, directory),
            Opcode::Rmdir => {
                let named = args.text().ok().and_then(|it| table.directories.named(directory, it));
                named.is_some_and(|named| self.ends_names(turn, (table, pending_id), named, true))
                    || self.changes_names(table, pending_id, directory)
            }
            Opcode::Link => {
                if let Ok(linked) = args.u64() {
                    table.directories.link(InodeNo(linked));
                }
                self.ends_names(turn, (table, pending_id), directory, false)
            }
            Opcode::Rename | Opcode::Rename2 => {
                let to = args.u64().map(|node| crate::node::Node(node).inode());
                let names = split(&pending.request)
                    .and_then(|(header, args)| args.names_of_rename(header.opcode));
                let (Ok(to), Ok((old, new))) = (to, names) else { return false };
                let exchanges = opcode == Opcode::Rename2
                    && args.u32().and_then(RenameHow::from_flags) == Ok(RenameHow::Exchange);
                let directories = &table.directories;
                let named = [directories.named(directory, &old), directories.named(to, &new)];
                // What is moved may have other names, and may be known elsewhere.
                let moved_to = Some(to).filter(|to| *to != directory);
                let moved_back = moved_to.filter(|_| exchanges).map(|_| directory);
                let moved = moved_to.into_iter().chain(moved_back);
                for ended in named.into_iter().flatten().chain(moved) {
                    if self.ends_names(turn, (table, pending_id), ended, false) {
                        return true;
                    }
                }
                self.changes_names(table, pending_id, directory)
            }
            Opcode::Setxattr | Opcode::Removexattr => {
                self.ends_names(turn, (table, pending_id), directory, true)
            }
            _ => false,
        }
    }

    /// The request waits if something of the file is under way. Returns whether it does.
    pub(crate) fn waits(&mut self, table: &Behind, pending_id: usize, inode: InodeNo) -> bool {
        let waits = table.waits(inode, self.client.lane());
        if waits {
            self.behind.waiting.push((inode, Waiting::Request(pending_id)));
        }
        waits
    }

    /// The same for a directory.
    fn names_wait(&mut self, table: &Behind, pending_id: usize, directory: InodeNo) -> bool {
        let waits = table.directories.waits(directory, self.client.lane());
        if waits {
            self.behind.waiting.push((directory, Waiting::Request(pending_id)));
        }
        waits
    }

    /// The same for a request that changes the directory: others see its attributes after it.
    fn changes_names(&mut self, table: &Behind, pending_id: usize, directory: InodeNo) -> bool {
        let waits = self.names_wait(table, pending_id, directory);
        if !waits {
            table.directories.hide(directory);
        }
        waits
    }

    /// The same, and no further name in it is changed behind. `by_server`: the server ends the lease with
    /// the request.
    fn ends_names(
        &mut self,
        turn: &mut Turn<'_>,
        (table, pending_id): (&Behind, usize),
        directory: InodeNo,
        by_server: bool,
    ) -> bool {
        table.directories.end(directory);
        if self.names_wait(table, pending_id, directory) {
            return true;
        }
        let is_own = |(_, lane): &Removed| *lane == self.client.lane();
        match table.directories.remove_ended(directory) {
            Some(removed) if by_server && is_own(&removed) => self.client.forget_writing(directory),
            Some(removed) => self.give_back(turn, removed),
            None => {}
        }
        false
    }

    /// The lane that has a directory's lease gives it back.
    pub(crate) fn give_back(&mut self, turn: &mut Turn<'_>, (directory, lane): Removed) {
        if lane == self.client.lane() {
            self.end_writing(turn.now.mono, directory, None);
        } else {
            let message = MountMessage::Written { inode: directory };
            turn.act(PeerAction::Message { to: lane, message });
        }
    }

    /// A change of a name was answered, or could not be begun.
    pub(crate) fn end_name_change(&mut self, turn: &mut Turn<'_>, directory: InodeNo) {
        let Some(table) = self.behind.table.clone() else { return };
        let waiters = table.directories.end_change(directory);
        if let Some(removed) = table.directories.remove_ended(directory) {
            self.give_back(turn, removed);
        }
        self.wake(turn, directory, waiters);
    }

    /// Another client needs a file, or a directory.
    pub(crate) fn recall_writing(&mut self, now: Mono, work_no: u64, inode: InodeNo) {
        let Some(table) = self.behind.table.clone() else { return };
        if self.end_behind(&table, inode) {
            self.add_wait(work_no);
            self.behind.waiting.push((inode, Waiting::Recall(work_no)));
        } else if let Some(until) = self.given_until(now, inode) {
            self.add_wait(work_no);
            self.end_writing_at(until, inode, Some(work_no));
        } else {
            self.client.end_writing(inode);
        }
    }

    /// Until when the kernel may have attributes of a directory that it was given for a moment.
    fn given_until(&self, now: Mono, inode: InodeNo) -> Option<Mono> {
        let given_until = self.behind.table.as_ref()?.directories.given_until(inode);
        (given_until > now).then_some(given_until)
    }

    /// The server hears that nothing of a file or directory is under way, and a recall that waits for that
    /// goes on: once the kernel has none of the attributes that it was given for a moment.
    fn end_writing(&mut self, now: Mono, inode: InodeNo, work_no: Option<u64>) {
        match self.given_until(now, inode) {
            Some(until) => self.end_writing_at(until, inode, work_no),
            None => {
                self.client.end_writing(inode);
                self.end_wait(work_no);
            }
        }
    }

    /// Connections were lost: no further change is answered early.
    pub(crate) fn end_lost_writing(&mut self, now: Mono) {
        for inode in self.client.take_ended_writing() {
            let Some(table) = self.behind.table.clone() else { continue };
            if self.end_behind(&table, inode) {
                self.behind.waiting.push((inode, Waiting::Written));
            } else {
                self.end_writing(now, inode, None);
            }
        }
    }

    /// No further change of a file or directory is answered early. Returns whether something is under
    /// way.
    fn end_behind(&self, table: &Behind, inode: InodeNo) -> bool {
        table.end(inode);
        table.directories.end(inode);
        let waits = self.is_busy_behind(table, inode);
        if !waits {
            table.directories.remove_ended(inode);
        }
        waits
    }

    /// Whether something of a file or directory is under way; if so, this lane is told when that is over.
    fn is_busy_behind(&self, table: &Behind, inode: InodeNo) -> bool {
        let lane = self.client.lane();
        table.waits(inode, lane) || table.directories.waits(inode, lane)
    }

    /// Tells the lanes that wait for a file or directory, this one included.
    pub(crate) fn wake(&mut self, turn: &mut Turn<'_>, inode: InodeNo, waiters: u64) {
        let own = lane_bit(self.client.lane());
        let are_aliased = waiters != 0 && self.client.lane_count() > 64;
        if waiters & !own != 0 || are_aliased {
            self.send_to_peer_lanes(turn, MountMessage::Written { inode });
        }
        if waiters & own != 0 {
            self.go_on_behind(turn, inode);
        }
    }

    /// Something of a file or directory was under way, and is over: what waited for it goes on, in order.
    pub(crate) fn go_on_behind(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let Some(table) = self.behind.table.clone() else { return };
        let of_file = self.behind.waiting.extract_if(.., |(other, _)| *other == inode);
        let of_file: Vec<Waiting> = of_file.map(|(_, waiting)| waiting).collect();
        for waiting in of_file {
            match waiting {
                Waiting::Write(write) => self.write_behind(turn, inode, write),
                Waiting::Setting(number, request) => {
                    self.set_behind(turn, inode, (number, request));
                }
                Waiting::Request(pending_id) => self.begin(turn, pending_id),
                Waiting::Registered(work_no) => self.end_registered(work_no, inode),
                waiting if self.is_busy_behind(&table, inode) => {
                    self.behind.waiting.push((inode, waiting));
                }
                Waiting::Release(handle) => self.release_behind(turn, inode, handle),
                Waiting::Recall(work_no) => {
                    self.end_writing(turn.now.mono, inode, Some(work_no));
                }
                Waiting::Written => self.end_writing(turn.now.mono, inode, None),
                Waiting::Directory(directory) => self.end_name_change(turn, directory),
            }
        }
        // Its place was given to another one, or another lane has ended it.
        if !table.is_held(inode) && !table.directories.is_held(inode) {
            self.end_writing(turn.now.mono, inode, None);
        }
    }
}
