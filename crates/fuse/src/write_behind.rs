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
use crate::behind::{Begun, Behind, Extent, How, NewFile, Setting};
use crate::cache::{begin_call, call_of};
use crate::early::{Early, QueuedWrite, Waiting};
use crate::handle::FileHandle;
use crate::lane::MountLane;
use crate::out::{put_attr_out, put_written};
use crate::pending::Awaited;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use client::{Answer, Asked, Call, CallId, Granted, TakenAnswer, Write};
use interface::{Action, LogLevel, Span, Turn};
use wire::{Attr, ClearPrivileges, Contents, HandleId, InodeNo, SetTime, Status, Timestamp};

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
                let file = NewFile { attr, handle, creator, parent, name };
                !has_privileges && table.insert(&file, Begun::Created)
            });
        if !inserted {
            self.client.end_writing(attr.inode);
        }
    }

    /// Tells a caller that an earlier change has failed. Returns whether it does. An `fsync` takes the
    /// error. A `close` does not: a process that was forked closes the files of its parent when it
    /// executes a program, and hears nothing of it.
    pub(crate) fn fails(
        &mut self,
        turn: &mut Turn<'_>,
        (pending_id, opcode): (usize, Opcode),
        (table, inode): (&Behind, InodeNo),
    ) -> bool {
        let is_close = opcode == Opcode::Flush;
        let error = if is_close { table.error(inode) } else { table.take_error(inode) };
        let Some(status) = error else { return false };
        self.reply(turn, pending_id, status, Span::default(), None);
        true
    }

    /// The kernel asks for file capabilities before it changes the owner, and at the first write: a
    /// new file has none. Returns whether that is the answer.
    pub(crate) fn says_no_capability(
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
    pub(crate) fn write(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        table: &Arc<Behind>,
    ) -> bool {
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
        let joinable_bytes = self.joinable_bytes(inode);
        let write_bytes_wide = write_bytes.into();
        let extent =
            Extent { file_offset, write_bytes: write_bytes_wide, is_awaited, joinable_bytes };
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
            How::Awaited => {
                if let Some(pending) = self.pendings.get_mut(pending_id) {
                    pending.awaited = Some(Awaited { inode, size_bytes: None });
                }
                false
            }
            how @ (How::Behind(file_offset) | How::Joined(file_offset)) => {
                let Some(bulk) = bulk else { return false };
                let copy = self.client.copy(turn, bulk);
                let clears = crate::begin::cleared_by_write(keeps_set_id);
                let write = QueuedWrite { file_offset, copy, clears, write_count: 1 };
                if matches!(how, How::Joined(_)) {
                    self.keep_joined(inode, write);
                } else {
                    self.begin_joining(inode);
                    self.write_behind(turn, inode, write);
                }
                self.encode(turn, pending_id, |out| put_written(out, write_bytes));
                true
            }
        }
    }

    /// Sends a write, when its file is created.
    pub(crate) fn write_behind(&mut self, turn: &mut Turn<'_>, inode: InodeNo, write: QueuedWrite) {
        let Some(table) = self.behind.table.clone() else { return };
        if table.write_waits(inode, self.client.lane()) {
            return self.behind.waiting.push((inode, Waiting::Write(write)));
        }
        if table.is_lost(inode) {
            return self.end_write(turn, (inode, write), Err(Status::Stale));
        }
        let call = Call::Write(write_of(&table, inode, write));
        let asked = begin_call(self.cache.as_ref(), &mut self.client, (turn.now.mono, &call));
        let id = self.behind.add(Early::Write(inode, write, asked));
        self.client.call(turn, id, call);
    }

    /// A write was executed, or is lost.
    fn end_write(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, write): (InodeNo, QueuedWrite),
        outcome: Result<(), Status>,
    ) {
        let Some(table) = self.behind.table.clone() else { return };
        self.client.release_copy(write.copy);
        let ended = self.go_on_with_joined(turn, (inode, write), outcome);
        let Some(ended) = ended else { return };
        let write_bytes = ended.write_bytes;
        if let Err(status) = outcome {
            let lost = format!("{write_bytes} bytes are lost that were written to inode {inode}");
            self.say_lost(turn, &lost, status);
        }
        let waiters = table.end_write(inode, ended, outcome);
        self.wake(turn, inode, waiters);
    }

    fn end_setting(&mut self, turn: &mut Turn<'_>, inode: InodeNo, outcome: Result<(), Status>) {
        let Some(table) = self.behind.table.clone() else { return };
        if let Err(status) = outcome {
            let lost = format!("a change of attributes is lost of inode {inode}");
            self.say_lost(turn, &lost, status);
        }
        let waiters = table.end_setting(inode, outcome);
        self.wake(turn, inode, waiters);
    }

    /// A SETATTR: answered at once, if it cannot fail.
    pub(crate) fn set_attributes(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        table: &Arc<Behind>,
    ) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, _)) = split(&pending.request) else { return false };
        let inode = header.inode;
        if let Some(waits) = self.set_size(pending_id, table) {
            return waits;
        }
        if let Some(waits) = self.set_opened(pending_id, table) {
            return waits;
        }
        let Some((attr, creator)) = table.attr(inode) else { return false };
        let Some(pending) = self.pendings.get(pending_id) else { return false };
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
            How::Later | How::Failed(_) | How::Awaited | How::Joined(_) => {
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
    pub(crate) fn set_behind(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (number, request): (u64, Vec<u8>),
    ) {
        let Some(table) = &self.behind.table else { return };
        if table.setting_waits(inode, number, self.client.lane()) {
            return self.behind.waiting.push((inode, Waiting::Setting(number, request)));
        }
        if table.is_lost(inode) {
            return self.end_setting(turn, inode, Err(Status::Stale));
        }
        self.send_setting(turn, inode, request);
    }

    fn send_setting(&mut self, turn: &mut Turn<'_>, inode: InodeNo, request: Vec<u8>) {
        let table = self.behind.table.as_ref();
        let is_plain = table.is_some_and(|table| table.is_plain(inode));
        let mut asked = None;
        let id = self.behind.add(Early::Setting { inode, request: Vec::new(), asked: None });
        if let Ok(call) = setting_of(&request, is_plain) {
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

    /// A call was answered whose caller has its answer.
    pub(crate) fn on_early_answer(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        (result, granted): (&Result<Answer, Status>, &Granted),
    ) {
        let Some(table) = self.behind.table.clone() else { return };
        let outcome = result.as_ref().map(|_| ()).map_err(|status| *status);
        // Through an export that is read-only by now: what is made behind is executed still.
        let is_sent_again = |inode| outcome == Err(Status::ReadOnly) && table.send_behind(inode);
        match self.behind.calls.remove(&call.0) {
            Some(Early::Write(inode, write, asked)) => {
                let call = Call::Write(write_of(&table, inode, write));
                self.learn_early(turn, asked, &call, (result, granted));
                if is_sent_again(inode) {
                    return self.write_behind(turn, inode, write);
                }
                self.end_write(turn, (inode, write), outcome);
            }
            Some(Early::Setting { inode, request, asked }) => {
                let result = result.map(|answer| with_size(&table, answer));
                if let Ok(call) = setting_of(&request, false) {
                    self.learn_early(turn, asked, &call, (&result, granted));
                }
                if is_sent_again(inode) {
                    return self.send_setting(turn, inode, request);
                }
                self.end_setting(turn, inode, outcome);
            }
            Some(Early::Create(create)) => self.on_created(turn, create, (result, granted)),
            Some(Early::Unlink(unlink)) => self.on_unlinked(turn, unlink, (result, granted)),
            None => {}
        }
    }

    pub(crate) fn learn_early(
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

    pub(crate) fn say_lost(&self, turn: &mut Turn<'_>, lost: &str, status: Status) {
        let line = format!("{lost}: {}", status.text());
        let line = turn.arena.put(line.as_bytes());
        turn.act(Action::Log { level: LogLevel::Alarm, line });
    }
}

fn write_of(table: &Behind, inode: InodeNo, write: QueuedWrite) -> Write {
    let QueuedWrite { file_offset, copy, clears, .. } = write;
    let behind = !table.is_plain(inode);
    let (append, sync) = (behind, false);
    Write { inode, file_offset, append, bulk: Some(copy), sync, clears, behind }
}

/// The answer to a SETATTR, whose attributes may be without a size, with the size that the mount knows:
/// that of a file that it alone has had open, and never written.
fn with_size(table: &Behind, answer: Answer) -> Answer {
    if let Answer::Entry(attr) = answer
        && attr.is_size_at_data()
        && table.is_unwritten(attr.inode)
    {
        return Answer::Entry(attr.with_contents(Contents::EMPTY));
    }
    answer
}

/// The call of a SETATTR that is answered early.
fn setting_of(request: &[u8], is_plain: bool) -> Result<Call<'_>, Status> {
    let Call::Setattr(args) = call_of(request)? else { return Err(Status::Invalid) };
    Ok(if is_plain { Call::Setattr(args) } else { Call::SetattrBehind(args) })
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
