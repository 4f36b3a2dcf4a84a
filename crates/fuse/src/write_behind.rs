//! Changes that are answered before the server has executed them: the first writes of a new file, one
//! at a time, each at the end of the file, and behind them changes of its times, mode and owner that
//! cannot fail (`behind`).
//!
//! ```text
//! WRITE ─▶ copy, call, reply ─▶ answer ─▶ what waits: SETATTR, RELEASE, recalls, requests
//! ```
//! A write is sent at once, so what a mount can lose with its process is what is under way. Whatever
//! shows or changes the file, by its inode or by the name that it was created under, waits for that:
//! an `fsync` (`sync_ahead`), and a `rename` over another file too.
//!
//! Invariant: a recall of a write lease is acknowledged when nothing of the file is under way, and
//! no write of it is answered early after that.

use crate::abi::{Opcode, WRITE_CACHE, open_flag, setattr_flag};
use crate::args::split;
use crate::begin::Decoded;
use crate::behind::{Behind, BehindCounts, Extent, How, NewFile, Setting, lane_bit};
use crate::cache::begin_call;
use crate::handle::FileHandle;
use crate::lane::MountLane;
use crate::out::{put_attr_out, put_written};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use client::{Answer, Asked, Call, CallId, Granted, TakenAnswer, Write};
use interface::{Action, Bulk, LogLevel, MountMessage, Span, Turn};
use wire::{Attr, ClearPrivileges, Groups, HandleId, InodeNo, SetTime, Status, Timestamp};

/// Ids of these calls begin here; those of requests are smaller.
const FIRST_CALL: u64 = 1 << 62;

/// A call whose caller has its answer.
#[derive(Debug)]
enum Early {
    Write { inode: InodeNo, copy: Bulk, asked: Option<Asked>, clears: ClearPrivileges },
    Setting { inode: InodeNo, request: Vec<u8>, asked: Option<Asked> },
}

/// What waits until nothing of a file is under way.
#[derive(Debug)]
enum Waiting {
    /// A request of the kernel.
    Request(usize),
    /// A change of attributes with its number, for what comes before it.
    Setting(u64, Vec<u8>),
    Release(HandleId),
    /// A recall.
    Recall(u64),
    /// The server is told that the file was written.
    Written,
}

/// What a lane has under way and waiting.
#[derive(Default, Debug)]
pub(crate) struct WriteBehind {
    pub(crate) table: Option<Arc<Behind>>,
    calls: BTreeMap<u64, Early>,
    call_count: u64,
    waiting: Vec<(InodeNo, Waiting)>,
}

impl WriteBehind {
    /// Whether nothing is under way and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.waiting.is_empty()
    }

    /// What the mount has written behind, if it does.
    pub(crate) fn counts(&self) -> Option<BehindCounts> {
        self.table.as_ref().map(|table| table.counts())
    }

    /// Whether this is the id of such a call.
    pub(crate) const fn has_made(call: CallId) -> bool {
        call.0 >= FIRST_CALL && call.0 < FIRST_CALL << 1
    }

    fn add(&mut self, early: Early) -> CallId {
        self.call_count += 1;
        let number = FIRST_CALL + self.call_count;
        self.calls.insert(number, early);
        CallId(number)
    }
}

impl MountLane {
    /// The same lane, which writes new files behind, as the other lanes of the mount.
    #[must_use]
    pub fn with_write_behind(mut self, table: Arc<Behind>) -> Self {
        if self.config.leases {
            self.client = self.client.with_writes_behind();
            self.behind.table = Some(table);
        }
        self
    }

    /// A file was created, and may be written behind. To be called before the kernel gets the reply.
    pub(crate) fn write_behind_from_now(
        &mut self,
        pending_id: usize,
        (attr, handle): (&Attr, HandleId),
        granted: Granted,
    ) {
        if !granted.writing {
            return;
        }
        let pending = self.pendings.get(pending_id);
        let request = pending.and_then(|pending| split(&pending.request).ok());
        let name = request
            .and_then(|(header, args)| args.name_of(header.opcode).map(|name| (header, name)));
        let has_privileges = attr.cleared_by_write(false) != ClearPrivileges::Nothing;
        let inserted =
            self.behind.table.as_ref().zip(name).is_some_and(|(table, (header, name))| {
                let (creator, parent) = (header.uid, header.inode);
                !has_privileges && table.insert(&NewFile { attr, handle, creator, parent, name })
            });
        if !inserted {
            self.client.end_writing(attr.inode);
        }
    }

    /// Whether a request waits for what is written behind, or is answered here. Otherwise it goes on.
    pub(crate) fn is_behind(&mut self, turn: &mut Turn<'_>, pending_id: usize) -> bool {
        let Some(table) = self.behind.table.clone() else { return false };
        if let Some(ended) = self.sync_ahead_of(pending_id) {
            return self.sync_rest(turn, pending_id, (&table, ended));
        }
        if table.is_empty() {
            return false;
        }
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, mut args)) = split(&pending.request) else { return false };
        let Some(opcode) = Opcode::from_number(header.opcode) else { return false };
        let inode = header.inode;
        #[expect(clippy::wildcard_enum_match_arm, reason = "all others wait for their inode")]
        match opcode {
            Opcode::Write => self.write(turn, pending_id, &table),
            Opcode::Setattr => self.set_attributes(turn, pending_id, &table),
            Opcode::Getxattr => {
                self.says_no_capability(turn, pending_id, (&table, inode))
                    || self.waits(&table, pending_id, inode)
            }
            Opcode::Flush => self.fails(turn, pending_id, (&table, inode)),
            Opcode::Fsync => {
                self.waits_to_sync(turn, pending_id, (&table, inode))
                    || self.fails(turn, pending_id, (&table, inode))
            }
            Opcode::Lookup | Opcode::Create => {
                let named = args.name_of(header.opcode).and_then(|name| table.named(inode, name));
                named.is_some_and(|inode| self.waits(&table, pending_id, inode))
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
                    waits = waits || self.waits(&table, pending_id, inode);
                }
                waits
            }
            Opcode::Link => {
                let Ok(inode) = args.u64().map(InodeNo) else { return false };
                table.end(inode);
                self.waits(&table, pending_id, inode)
            }
            Opcode::CopyFileRange => {
                let to = args.skip(16).and_then(|()| args.u64()).map(InodeNo);
                let Ok(to) = to else { return false };
                table.end(to);
                self.waits(&table, pending_id, inode) || self.waits(&table, pending_id, to)
            }
            Opcode::Syncfs => {
                while let Some((inode, next)) = table.busy_from(self.scanned(pending_id)) {
                    if let Some(pending) = self.pendings.get_mut(pending_id) {
                        pending.scanned = next;
                    }
                    if self.waits(&table, pending_id, inode) {
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
            | Opcode::Unlink
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
                self.waits(&table, pending_id, inode)
            }
            _ => self.waits(&table, pending_id, inode),
        }
    }

    fn scanned(&self, pending_id: usize) -> usize {
        self.pendings.get(pending_id).map_or(usize::MAX, |pending| pending.scanned)
    }

    /// The request waits if something of the file is under way. Returns whether it does.
    pub(crate) fn waits(&mut self, table: &Behind, pending_id: usize, inode: InodeNo) -> bool {
        let waits = table.waits(inode, self.client.lane());
        if waits {
            self.behind.waiting.push((inode, Waiting::Request(pending_id)));
        }
        waits
    }

    /// Tells the caller once that an earlier write has failed. Returns whether it does.
    fn fails(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (table, inode): (&Behind, InodeNo),
    ) -> bool {
        let Some(status) = table.take_error(inode) else { return false };
        self.reply(turn, pending_id, status, Span::default(), None);
        true
    }

    /// The kernel asks for file capabilities before it changes the owner, and at the first write: a
    /// new file has none. Returns whether that is the answer.
    fn says_no_capability(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (table, inode): (&Behind, InodeNo),
    ) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let name = split(&pending.request).and_then(|(_, mut args)| {
            args.skip(8)?; // size, padding
            args.text()
        });
        let says = name == Ok(b"security.capability") && table.has_no_xattrs(inode);
        if says {
            self.reply(turn, pending_id, Status::NoData, Span::default(), None);
        }
        says
    }

    /// A WRITE: answered at once, if it may be.
    fn write(&mut self, turn: &mut Turn<'_>, pending_id: usize, table: &Arc<Behind>) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, mut args)) = split(&pending.request) else { return false };
        let fields = args.u64().and_then(|handle| {
            let (file_offset, write_bytes) = (args.u64()?, args.u32()?);
            let write_flags = args.u32()?;
            args.skip(8)?; // lock_owner
            Ok((FileHandle(handle), file_offset, write_bytes, write_flags, args.u32()?))
        });
        let Ok((handle, file_offset, write_bytes, write_flags, flags)) = fields else {
            return false;
        };
        let keeps_set_id = write_flags & crate::abi::WRITE_KILL_SET_ID == 0;
        let is_mapped = write_flags & WRITE_CACHE != 0;
        let append = flags & open_flag::APPEND != 0 && !is_mapped;
        let inode = header.inode;
        let bulk = pending.bulk.filter(|bulk| bulk.bulk_bytes == write_bytes);
        let is_awaited = is_mapped
            || bulk.is_none()
            || flags & open_flag::DATA_SYNC != 0
            || handle.cleared_by_write(keeps_set_id) != ClearPrivileges::Nothing
            || !self.client.takes_calls();
        let file_offset = (!append).then_some(file_offset);
        let extent = Extent { file_offset, write_bytes: write_bytes.into(), is_awaited };
        match table.begin_write(inode, extent) {
            How::Through => false,
            How::Later => {
                // It may be over by now.
                self.waits(table, pending_id, inode) || self.write(turn, pending_id, table)
            }
            How::Failed(status) => {
                self.reply(turn, pending_id, status, Span::default(), None);
                true
            }
            How::Behind(file_offset) => {
                let Some(bulk) = bulk else { return false };
                let copy = self.client.copy(turn, bulk);
                let clears = crate::begin::cleared_by_write(keeps_set_id);
                let write = write_of((inode, file_offset), copy, clears);
                let call = Call::Write(write);
                let made = (turn.now.mono, &call);
                let asked = begin_call(self.cache.as_ref(), &mut self.client, made);
                let id = self.behind.add(Early::Write { inode, copy, asked, clears });
                self.client.call(turn, id, call);
                self.encode(turn, pending_id, |out| put_written(out, write_bytes));
                true
            }
        }
    }

    /// A SETATTR: answered at once, if it cannot fail.
    fn set_attributes(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        table: &Arc<Behind>,
    ) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, _)) = split(&pending.request) else { return false };
        let inode = header.inode;
        let Some((attr, creator)) = table.attr(inode) else { return false };
        let is_owner = match header.uid {
            0 => self.client.is_root_trusted() || creator == 0,
            uid => uid == attr.uid,
        };
        let caller = Setter { is_owner, is_root: header.uid == 0 && self.client.is_root_trusted() };
        let request = match pending.decoded() {
            Ok(Decoded::Call(Call::Setattr(request), _)) => Some(request),
            Ok(_) | Err(_) => None,
        };
        let request = request.filter(|request| {
            self.client.takes_calls()
                && !asks_for_size(&pending.request)
                && caller.may(request, &attr)
        });
        let Some(request) = request else {
            table.end(inode);
            return self.waits(table, pending_id, inode);
        };
        let Setting { number, attr } = match table.begin_setting(inode) {
            How::Through => return false,
            How::Later | How::Failed(_) => {
                return self.waits(table, pending_id, inode)
                    || self.set_attributes(turn, pending_id, table);
            }
            How::Behind(setting) => setting,
        };
        let now = Timestamp::from_ns(turn.now.wall_ns);
        let set = |time, before| match time {
            SetTime::Keep => before,
            SetTime::Now => now,
            SetTime::At(at) => at,
        };
        let shown = Attr {
            mode: request.mode.map_or(attr.mode, |mode| mode & 0o7777),
            uid: request.uid.unwrap_or(attr.uid),
            gid: request.gid.unwrap_or(attr.gid),
            atime: set(request.atime, attr.atime),
            mtime: set(request.mtime, attr.mtime),
            ctime: now,
            ..attr
        };
        let request = pending.request.clone();
        table.set_attr(&shown);
        self.encode(turn, pending_id, |out| put_attr_out(out, &shown, 0));
        self.set_behind(turn, inode, (number, request));
        true
    }

    /// Sends a change of attributes when nothing before it is under way.
    fn set_behind(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (number, request): (u64, Vec<u8>),
    ) {
        let Some(table) = &self.behind.table else { return };
        if table.setting_waits(inode, number, self.client.lane()) {
            return self.behind.waiting.push((inode, Waiting::Setting(number, request)));
        }
        let mut asked = None;
        let id = self.behind.add(Early::Setting { inode, request: Vec::new(), asked: None });
        if let Ok(call) = setting_of(&request) {
            asked = begin_call(self.cache.as_ref(), &mut self.client, (turn.now.mono, &call));
            self.client.call(turn, id, call);
        }
        self.behind.calls.insert(id.0, Early::Setting { inode, request, asked });
    }

    /// A file is released: it is closed when nothing of it is under way.
    pub(crate) fn release_behind(&mut self, turn: &mut Turn<'_>, inode: InodeNo, handle: HandleId) {
        if let Some(table) = &self.behind.table
            && table.waits(inode, self.client.lane())
        {
            return self.behind.waiting.push((inode, Waiting::Release(handle)));
        }
        if let Some(table) = &self.behind.table {
            table.release(inode, handle);
        }
        self.client.release_locks(inode, handle);
        self.client.release(turn, handle);
    }

    /// Another client needs a file.
    pub(crate) fn recall_writing(&mut self, work_no: u64, inode: InodeNo) {
        let Some(table) = self.behind.table.clone() else { return };
        table.end(inode);
        if table.waits(inode, self.client.lane()) {
            self.add_wait(work_no);
            self.behind.waiting.push((inode, Waiting::Recall(work_no)));
        } else {
            self.client.end_writing(inode);
        }
    }

    /// Connections were lost: no further write is answered early.
    pub(crate) fn end_lost_writing(&mut self) {
        for inode in self.client.take_ended_writing() {
            let Some(table) = self.behind.table.clone() else { continue };
            table.end(inode);
            if table.waits(inode, self.client.lane()) {
                self.behind.waiting.push((inode, Waiting::Written));
            } else {
                self.client.end_writing(inode);
            }
        }
    }

    /// A call was answered whose caller has its answer.
    pub(crate) fn on_early_answer(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        (result, granted): (&Result<Answer, Status>, &Granted),
    ) {
        let Some(table) = self.behind.table.clone() else { return };
        let outcome = result.as_ref().map(|_| ()).map_err(|status| *status);
        let (inode, waiters) = match self.behind.calls.remove(&call.0) {
            Some(Early::Write { inode, copy, asked, clears }) => {
                let write = write_of((inode, 0), copy, clears);
                self.learn_early(turn, asked, &Call::Write(write), (result, granted));
                self.client.release_copy(copy);
                if let Err(status) = outcome {
                    let lost = format!(
                        "{} bytes are lost that were written to inode {inode}",
                        copy.bulk_bytes
                    );
                    self.say_lost(turn, &lost, status);
                }
                (inode, table.end_write(inode, copy.bulk_bytes.into(), outcome))
            }
            Some(Early::Setting { inode, request, asked }) => {
                if let Ok(call) = setting_of(&request) {
                    self.learn_early(turn, asked, &call, (result, granted));
                }
                if let Err(status) = outcome {
                    let lost = format!("a change of attributes is lost of inode {inode}");
                    self.say_lost(turn, &lost, status);
                }
                (inode, table.end_setting(inode, outcome))
            }
            None => return,
        };
        self.wake(turn, inode, waiters);
    }

    fn learn_early(
        &self,
        turn: &Turn<'_>,
        asked: Option<Asked>,
        call: &Call<'_>,
        (result, granted): (&Result<Answer, Status>, &Granted),
    ) {
        if let Some((cache, asked)) = self.cache.as_ref().zip(asked) {
            let further = self.client.granted_further();
            let taken = TakenAnswer { result, granted, further, listing: None };
            cache.learn((turn.now.mono, asked), call, &taken);
        }
    }

    fn say_lost(&self, turn: &mut Turn<'_>, lost: &str, status: Status) {
        let line = format!("{lost}: {}", status.text());
        let line = turn.arena.put(line.as_bytes());
        turn.act(Action::Log { level: LogLevel::Alarm, line });
    }

    /// Tells the lanes that wait for a file, this one included.
    fn wake(&mut self, turn: &mut Turn<'_>, inode: InodeNo, waiters: u64) {
        let own = lane_bit(self.client.lane());
        let are_aliased = waiters != 0 && self.client.lane_count() > 64;
        if waiters & !own != 0 || are_aliased {
            self.send_to_peer_lanes(turn, MountMessage::Written { inode });
        }
        if waiters & own != 0 {
            self.go_on_behind(turn, inode);
        }
    }

    /// Something of a file was under way, and is over: what waited for it goes on, in order.
    pub(crate) fn go_on_behind(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let Some(table) = self.behind.table.clone() else { return };
        let lane = self.client.lane();
        let of_file = self.behind.waiting.extract_if(.., |(other, _)| *other == inode);
        let of_file: Vec<Waiting> = of_file.map(|(_, waiting)| waiting).collect();
        for waiting in of_file {
            match waiting {
                Waiting::Setting(number, request) => {
                    self.set_behind(turn, inode, (number, request));
                }
                Waiting::Request(pending_id) => self.begin(turn, pending_id),
                waiting if table.waits(inode, lane) => self.behind.waiting.push((inode, waiting)),
                Waiting::Release(handle) => self.release_behind(turn, inode, handle),
                Waiting::Recall(work_no) => {
                    self.client.end_writing(inode);
                    self.end_wait(Some(work_no));
                }
                Waiting::Written => self.client.end_writing(inode),
            }
        }
    }
}

const fn write_of(
    (inode, file_offset): (InodeNo, u64),
    bulk: Bulk,
    clears: ClearPrivileges,
) -> Write {
    let (append, sync, behind) = (true, false, true);
    Write { inode, file_offset, append, bulk: Some(bulk), sync, clears, behind }
}

/// The call of a SETATTR that is answered early.
fn setting_of(request: &[u8]) -> Result<Call<'_>, Status> {
    let (header, args) = split(request)?;
    let decoder =
        crate::begin::RequestDecoder { header, args, groups: Groups::Unknown, bulk: None };
    let decoded = decoder.decode(Opcode::Setattr)?;
    let Decoded::Call(Call::Setattr(args), _) = decoded else { return Err(Status::Invalid) };
    Ok(Call::SetattrBehind(args))
}

/// Whether a SETATTR changes the size.
fn asks_for_size(request: &[u8]) -> bool {
    let valid = split(request).and_then(|(_, mut args)| args.u32());
    valid.is_ok_and(|valid| valid & setattr_flag::SIZE != 0)
}

/// Who changes attributes of a file that is written behind.
#[derive(Clone, Copy, Debug)]
struct Setter {
    /// The server takes the caller for the file's owner, or for root.
    is_owner: bool,
    is_root: bool,
}

impl Setter {
    /// Whether the server certainly permits a change, and makes it as it is asked for.
    fn may(self, request: &wire::Setattr<'_>, attr: &Attr) -> bool {
        const SPECIAL: u32 = 0o7000;
        let keeps_owner = request.uid.is_none_or(|uid| uid == attr.uid)
            && request.gid.is_none_or(|gid| gid == attr.gid);
        // A change of owner clears bits of the mode, and a mode of others' groups loses one.
        let is_plain = (attr.mode | request.mode.unwrap_or(0)) & SPECIAL == 0;
        self.is_owner
            && (keeps_owner || self.is_root)
            && is_plain
            && (request.mode.is_none() || attr.has_no_xattrs())
            && request.clears == ClearPrivileges::Nothing
    }
}
