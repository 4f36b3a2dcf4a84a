//! Encoding answers as the kernel's replies.

use crate::abi::Opcode;
use crate::args::split;
use crate::begin::clear_privileges;
use crate::cache::begin_call;
use crate::lane::MountLane;
use crate::leases::{Validity, version_of};
use crate::listing::{Buffer, put_listing};
use crate::node::Node;
use crate::out::{
    put_absent, put_attr_out, put_created, put_entry, put_lock, put_statfs, put_statx_out, put_u64,
    put_value_size, put_written,
};
use crate::pending::{Continuation, Progress};
use alloc::vec::Vec;
use client::{Answer, Call, CallId, Granted, Resize};
use interface::{Action, Mono, MountMessage, Span, Turn};
use wire::{
    Attr, Caller, ClearPrivileges, FileKind, Groups, InodeNo, Listing, Renamed, Status, Wire,
};

/// Not checked: the open handle is the permission.
const NOBODY: Caller<'_> = Caller { uid: 65_534, gid: 65_534, groups: Groups::Known(&[]) };

impl MountLane {
    /// A call was answered: encodes the reply, or continues with the rest of the request.
    pub(crate) fn on_answer(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        result: Result<Answer, Status>,
        granted: Granted,
    ) {
        let now = turn.now.mono;
        if self.keeps_for_later(pending_id, &result) {
            return;
        }
        let (result, granted) = self.as_shown(result, granted);
        let Some(pending) = self.pendings.get(pending_id) else {
            self.discard(turn, result);
            return;
        };
        if pending.continuation == Continuation::LookedUp && result != Err(Status::NeedGroups) {
            return self.go_on(turn, pending_id, Progress::LookedUp);
        }
        let answer = match result {
            Ok(answer) => answer,
            Err(Status::NeedGroups) => return self.look_up_groups(turn, pending_id),
            Err(Status::NotFound) if granted.name.is_some() && self.is_lookup(pending_id) => {
                let name_ns = self.leases.of_name(now, self.node(pending_id), granted.name);
                return self.reply_absent(turn, pending_id, name_ns);
            }
            Err(status) => return self.fail(turn, pending_id, pending.continuation, status),
        };
        match (pending.continuation, answer) {
            (Continuation::Done | Continuation::LockWait, Answer::Done) => {
                self.reply(turn, pending_id, Status::Ok, Span::default(), None);
            }
            (Continuation::Opendir, Answer::Opened { handle, .. }) => {
                self.client.keep(handle);
                let inode = self.node(pending_id).inode();
                self.reply_opened_directory(turn, pending_id, (inode, handle));
            }
            (Continuation::Renamed { from, to }, Answer::Renamed(renamed)) => {
                self.see_renamed(now, pending_id, (from, to), renamed);
                self.move_nodes(turn, (from, to), renamed);
                if !self.keeps_renamed(now, (from, to), granted) {
                    let names = self.renamed_names(pending_id, (from, to));
                    self.forget_renamed(turn, names);
                }
                self.reply(turn, pending_id, Status::Ok, Span::default(), None);
            }
            (Continuation::Entry, Answer::Entry(attr))
                if self.looks_again(turn, pending_id, attr.inode) => {}
            (Continuation::EntryAgain, Answer::Entry(attr)) => {
                self.see_name(now, pending_id, &attr);
                // The answer does not say what was granted for the name.
                let node = Node::plain(attr.inode);
                self.encode(turn, pending_id, |out| {
                    put_entry(out, node, &attr, Validity::default());
                });
            }
            (Continuation::Entry, Answer::Entry(attr) | Answer::Created { attr, .. }) => {
                let parent = self.node(pending_id);
                self.see_name(now, pending_id, &attr);
                self.change_names_from_now(turn, pending_id, (&attr, granted));
                let node = self.moves.node(parent, &attr);
                let validity = self.leases.of_entry(now, (parent, node), &attr, granted);
                self.encode(turn, pending_id, |out| put_entry(out, node, &attr, validity));
            }
            (Continuation::CachedAttr { through }, Answer::Entry(attr))
                if self.leases.on
                    && (granted.attributes.is_none()
                        || !self.leases.has_pages_of(now, &attr, Some(through))) =>
            {
                let version = granted.attributes.map(|_| version_of(&attr));
                self.set_pages(turn, attr.inode, (version, None));
                let shown = self.leases.without_pages(attr);
                self.encode(turn, pending_id, |out| put_attr_out(out, &shown, 0));
            }
            (Continuation::Attr | Continuation::CachedAttr { .. }, Answer::Entry(attr)) => {
                let attributes_ns = self.attributes_ns(now, pending_id, &attr, granted);
                self.encode(turn, pending_id, |out| put_attr_out(out, &attr, attributes_ns));
            }
            (Continuation::Statx, Answer::Entry(attr)) => {
                let attributes_ns = self.attributes_ns(now, pending_id, &attr, granted);
                self.encode(turn, pending_id, |out| put_statx_out(out, &attr, attributes_ns));
            }
            (Continuation::Resized { keeps_set_id, rest }, Answer::Entry(attr)) => {
                match attr.cleared_by_write(keeps_set_id) {
                    ClearPrivileges::Nothing if !rest => {
                        let attributes_ns = self.attributes_ns(now, pending_id, &attr, granted);
                        self.encode(turn, pending_id, |out| {
                            put_attr_out(out, &attr, attributes_ns)
                        });
                    }
                    clears @ (ClearPrivileges::Nothing
                    | ClearPrivileges::Capability
                    | ClearPrivileges::All) => {
                        self.go_on(turn, pending_id, Progress::Size(clears));
                    }
                }
            }
            (Continuation::Cleared, Answer::Entry(attr)) => {
                self.forget_attributes(turn, attr.inode);
                self.go_on(turn, pending_id, Progress::Cleared)
            }
            (
                Continuation::Create { truncate, .. },
                Answer::Created { attr, made: false, handle: Some(handle) },
            ) if self.looks_at_created_again(turn, pending_id, (attr.inode, handle, truncate)) => {}
            (Continuation::CreatedAgain { handle }, Answer::Entry(attr)) => {
                self.see_name(now, pending_id, &attr);
                self.encode(turn, pending_id, |out| {
                    put_created(out, &attr, handle, Validity::default());
                });
            }
            (
                Continuation::Create { truncate, keeps_set_id },
                Answer::Created { attr, made, handle: Some(handle) },
            ) => {
                if truncate && !made {
                    let continuation = Continuation::CreateTruncated { handle, keeps_set_id };
                    self.truncate_created(turn, pending_id, attr.inode, continuation);
                } else {
                    let parent = self.node(pending_id);
                    self.see_name(now, pending_id, &attr);
                    let node = Node::plain(attr.inode);
                    let is_destroyed =
                        attr.nlink == 0 && self.opcode(pending_id) == Some(Opcode::Create);
                    let validity = if is_destroyed {
                        self.leases.of_destroyed()
                    } else {
                        self.leases.of_entry(now, (parent, node), &attr, granted)
                    };
                    if made {
                        self.write_behind_from_now(pending_id, (&attr, handle), granted);
                    }
                    self.encode(turn, pending_id, |out| put_created(out, &attr, handle, validity));
                }
            }
            (Continuation::CreateTruncated { handle, keeps_set_id }, Answer::Entry(attr)) => {
                match attr.cleared_by_write(keeps_set_id) {
                    ClearPrivileges::Nothing => {
                        // The answer does not say what was granted for the name.
                        self.encode(turn, pending_id, |out| {
                            put_created(out, &attr, handle, Validity::default());
                        });
                    }
                    clears @ (ClearPrivileges::Capability | ClearPrivileges::All) => {
                        let continuation =
                            Continuation::CreateTruncated { handle, keeps_set_id: true };
                        let request = Call::Setattr(clear_privileges(NOBODY, attr.inode, clears));
                        self.call_for(turn, pending_id, continuation, request);
                    }
                }
            }
            (Continuation::Open, Answer::Opened { attr, handle }) => {
                self.write_opened_from_now(pending_id, (&attr, handle), granted);
                self.reply_opened(turn, pending_id, (&attr, handle), granted.contents);
            }
            (Continuation::Target, Answer::Target(target)) => {
                self.reply(turn, pending_id, Status::Ok, target, None);
            }
            (
                Continuation::Value { buffer_bytes } | Continuation::Label { buffer_bytes },
                Answer::Value(value),
            ) => {
                self.reply_value(turn, pending_id, buffer_bytes, value);
            }
            (Continuation::Listing { position, buffer_bytes, plus }, Answer::Listing(listing)) => {
                let place = (position, buffer_bytes, plus);
                self.reply_listing(turn, pending_id, place, listing, granted);
            }
            (Continuation::Bytes, Answer::Bytes(bulk)) => {
                self.reply(turn, pending_id, Status::Ok, Span::default(), bulk);
                if let Some(bulk) = bulk {
                    turn.act(Action::Release { buf: bulk.buf });
                }
            }
            (Continuation::Pages, Answer::Bytes(bulk)) => {
                let inode = self.node(pending_id).inode();
                self.reply(turn, pending_id, Status::Ok, Span::default(), bulk);
                if let Some(bulk) = bulk {
                    turn.act(Action::Release { buf: bulk.buf });
                }
                self.hold_pages(turn, inode, granted.contents);
            }
            (Continuation::CopyRead { to, file_offset, clears }, Answer::Bytes(bulk)) => {
                self.write_copy(turn, pending_id, (to, file_offset, clears), bulk);
            }
            (Continuation::CopyWritten { buf }, Answer::Written(written)) => {
                turn.act(Action::Release { buf });
                self.encode(turn, pending_id, |out| put_written(out, written.written_bytes));
            }
            (Continuation::Written, Answer::Written(written)) => {
                self.see_end(pending_id, written);
                self.encode(turn, pending_id, |out| put_written(out, written.written_bytes));
            }
            (Continuation::Sought, Answer::Sought(file_offset)) => {
                self.encode(turn, pending_id, |out| put_u64(out, file_offset));
            }
            (Continuation::Space, Answer::Space(space)) => {
                self.encode(turn, pending_id, |out| put_statfs(out, &space));
            }
            (Continuation::LockFound, Answer::LockFound(found)) => {
                self.encode(turn, pending_id, |out| put_lock(out, found));
            }
            (_, answer) => {
                self.discard(turn, Ok(answer));
                self.reply(turn, pending_id, Status::Io, Span::default(), None);
            }
        }
    }

    pub(crate) fn encode(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        fill: impl FnOnce(&mut alloc::vec::Vec<u8>),
    ) {
        let payload = turn.arena.write(fill);
        self.reply(turn, pending_id, Status::Ok, payload, None);
    }

    fn fail(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        continuation: Continuation,
        status: Status,
    ) {
        if let Continuation::CopyWritten { buf } = continuation {
            turn.act(Action::Release { buf });
        }
        if status == Status::NeedClearPrivileges {
            return self.go_on(turn, pending_id, Progress::NeedsClear);
        }
        if let Continuation::CreateTruncated { handle, .. }
        | Continuation::CreatedAgain { handle } = continuation
        {
            self.client.release(turn, handle);
        }
        if let (Continuation::Label { .. }, Status::NoData) = (continuation, status) {
            // `ls -l` asks for it of each file, unless it hears that the file system has none.
            return self.reply(turn, pending_id, Status::NotSupported, Span::default(), None);
        }
        let refused = self.client.refusal().is_some();
        let is_removed = status == Status::Stale && !refused && self.is_about_a_name(pending_id);
        let status = if is_removed { Status::NotFound } else { errno(status) };
        self.reply(turn, pending_id, status, Span::default(), None);
    }

    /// Whether a request is about a name in a directory: in a removed directory no name exists, and
    /// programs expect ENOENT there.
    fn is_about_a_name(&self, pending_id: usize) -> bool {
        self.opcode(pending_id).is_some_and(Opcode::is_of_names)
    }

    fn is_lookup(&self, pending_id: usize) -> bool {
        self.opcode(pending_id) == Some(Opcode::Lookup)
    }

    pub(crate) fn opcode(&self, pending_id: usize) -> Option<Opcode> {
        let pending = self.pendings.get(pending_id);
        let header = pending.and_then(|pending| split(&pending.request).ok());
        header.and_then(|(header, _)| Opcode::from_number(header.opcode))
    }

    /// A looked up name does not exist, and the kernel may cache that.
    fn reply_absent(&mut self, turn: &mut Turn<'_>, pending_id: usize, name_ns: u64) {
        if name_ns == 0 {
            return self.reply(turn, pending_id, Status::NotFound, Span::default(), None);
        }
        if let Some(pending) = self.pendings.get_mut(pending_id) {
            pending.is_absent = true;
        }
        self.encode(turn, pending_id, |out| put_absent(out, name_ns));
    }

    /// How long the kernel may cache the attributes of the node that a request is about.
    fn attributes_ns(
        &mut self,
        now: Mono,
        pending_id: usize,
        attr: &Attr,
        granted: Granted,
    ) -> u64 {
        self.leases.of_attributes(now, self.node(pending_id), attr, granted.attributes)
    }

    /// Whether the kernel may go on using the names of a rename. It has their validity from the lane
    /// that made or looked up the old name, and this lane hears of their recall.
    fn keeps_renamed(&mut self, now: Mono, (from, to): (Node, Node), granted: Granted) -> bool {
        let until = self.client.validity_end(now);
        granted.name.is_some()
            && granted.new_name.is_some()
            && self.leases.take_over_names(now, from, until)
            && self.leases.take_over_names(now, to, until)
    }

    /// The directories of a rename, by their nodes, and the names in them.
    fn renamed_names(&self, pending_id: usize, nodes: (Node, Node)) -> [(u64, Vec<u8>); 2] {
        let pending = self.pendings.get(pending_id);
        let names = pending.and_then(|pending| split(&pending.request).ok());
        let names = names.and_then(|(header, args)| args.names_of_rename(header.opcode).ok());
        let (old, new) = names.unwrap_or_default();
        [(nodes.0.0, old), (nodes.1.0, new)]
    }

    /// The inode has the name that a request is about.
    fn see_name(&mut self, now: Mono, pending_id: usize, attr: &Attr) {
        let Some(pending) = self.pendings.get(pending_id) else { return };
        let Ok((header, args)) = split(&pending.request) else { return };
        if let Some(name) = args.name_of(header.opcode) {
            self.names.see(now, (attr.inode, attr.kind), (header.inode, name));
        }
    }

    /// Directories have other names.
    fn see_renamed(
        &mut self,
        now: Mono,
        pending_id: usize,
        (from, to): (Node, Node),
        Renamed { moved, exchanged }: Renamed,
    ) {
        let [(_, old), (_, new)] = self.renamed_names(pending_id, (from, to));
        for (inode, parent, name) in [(moved, to, new), (exchanged, from, old)] {
            if let Some(inode) = inode {
                self.names.see(now, (inode, FileKind::Directory), (parent.inode(), &name));
            }
        }
    }

    /// The node that a request is about.
    pub(crate) fn node(&self, pending_id: usize) -> Node {
        let pending = self.pendings.get(pending_id);
        let header = pending.and_then(|pending| split(&pending.request).ok());
        header.map_or(Node::plain(InodeNo(0)), |(header, _)| header.node)
    }

    /// Directories that the kernel renamed move below other nodes and retain their node ids. Peer
    /// lanes learn it before the kernel gets the reply.
    fn move_nodes(&mut self, turn: &mut Turn<'_>, (from, to): (Node, Node), renamed: Renamed) {
        if from == to {
            return;
        }
        let Renamed { moved, exchanged } = renamed;
        let moved = moved.map(|inode| (self.moves.directory(from, inode), to));
        let exchanged = exchanged.map(|inode| (self.moves.directory(to, inode), from));
        for (node, parent) in [moved, exchanged].into_iter().flatten() {
            self.moves.put(node, parent);
            self.send_to_peer_lanes(turn, MountMessage::Moved { node: node.0, parent: parent.0 });
        }
    }

    /// Releases what an unwanted answer holds.
    pub(crate) fn discard(&mut self, turn: &mut Turn<'_>, result: Result<Answer, Status>) {
        match result {
            Ok(Answer::Bytes(Some(bulk)) | Answer::List { bulk: Some(bulk), .. }) => {
                turn.act(Action::Release { buf: bulk.buf });
            }
            Ok(Answer::Opened { handle, .. } | Answer::Created { handle: Some(handle), .. }) => {
                self.client.release(turn, handle);
            }
            Ok(
                Answer::Done
                | Answer::Entry(_)
                | Answer::Created { handle: None, .. }
                | Answer::Target(_)
                | Answer::Listing(_)
                | Answer::Found(_)
                | Answer::Value(_)
                | Answer::Space(_)
                | Answer::Bytes(None)
                | Answer::List { bulk: None, .. }
                | Answer::Written(_)
                | Answer::Sought(_)
                | Answer::Renamed(_)
                | Answer::LockFound(_)
                | Answer::Stats(_)
                | Answer::Counters(_)
                | Answer::Traces(_)
                | Answer::Exports(_)
                | Answer::Frozen(_)
                | Answer::Inspected(_),
            )
            | Err(_) => {}
        }
    }

    /// The kernel expected to create the file, so it does not truncate it by itself.
    fn truncate_created(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        inode: InodeNo,
        continuation: Continuation,
    ) {
        self.begin_resize(pending_id, inode);
        let resize = Resize { caller: NOBODY, inode, size_bytes: 0, open_for_write: true };
        self.call_for(turn, pending_id, continuation, Call::Resize(resize));
    }

    /// Makes a further call for a request.
    pub(crate) fn call_for(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        continuation: Continuation,
        request: Call<'_>,
    ) {
        let made = (turn.now.mono, &request);
        let asked = begin_call(self.cache.as_ref(), &mut self.client, made);
        let Some(pending) = self.pendings.get_mut(pending_id) else { return };
        pending.continuation = continuation;
        pending.asked = asked;
        pending.asked_server = true;
        let call = CallId(u64::try_from(pending_id).unwrap_or(u64::MAX));
        self.client.call(turn, call, request);
        self.note_abandoned(pending_id);
    }

    fn reply_value(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        buffer_bytes: u32,
        value: Span,
    ) {
        let value_bytes = u32::try_from(value.bytes_count()).unwrap_or(u32::MAX);
        if buffer_bytes == 0 {
            self.encode(turn, pending_id, |out| put_value_size(out, value_bytes));
        } else if value_bytes > buffer_bytes {
            self.reply(turn, pending_id, Status::Range, Span::default(), None);
        } else {
            self.reply(turn, pending_id, Status::Ok, value, None);
        }
    }

    fn reply_listing(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (position, buffer_bytes, plus): (u64, u32, bool),
        listing: Span,
        granted: Granted,
    ) {
        let node = self.node(pending_id);
        let mut records = core::mem::take(&mut self.records);
        records.clear();
        let end = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
        let mut buffer = Buffer {
            out: &mut records,
            end,
            plus,
            node,
            moves: &self.moves,
            leases: &mut self.leases,
            names: &mut self.names,
            now: turn.now.mono,
            granted_until: granted.entries,
            behind: self.behind.table.as_deref(),
        };
        let outcome = Listing::decode_all(turn.arena.get(listing))
            .map_err(|_| Status::Io)
            .and_then(|listing| put_listing(&mut buffer, position, &listing));
        match outcome {
            Ok(()) => {
                let payload = turn.arena.put(&records);
                self.reply(turn, pending_id, Status::Ok, payload, None);
            }
            Err(status) => self.reply(turn, pending_id, status, Span::default(), None),
        }
        self.records = records;
    }
}

/// The errno for a status: statuses of our own have no errno.
const fn errno(status: Status) -> Status {
    if status.number() >= 1000 { Status::Io } else { status }
}
