//! Files that are created, and names that are removed, before the server has done it, in directories that
//! this mount has made and that nobody else has looked at (`names_behind`).
//!
//! ```text
//! CREATE ─▶ number, handle, reply ─▶ call ─▶ answer ─▶ its write, its attributes, its release
//! UNLINK ─▶ reply ─▶ call ─▶ answer ─▶ what waits for the name
//! ```
//! Only what the server certainly permits is answered early: its reply would be the same. The kernel may
//! keep the name and the attributes of a new file for as long as those that it gets with leases: nobody else
//! knows the file before the create is answered, and the answer has the leases. Otherwise the kernel drops
//! them, and the directory is busy until it has.
//!
//! Invariant: what a mount does with a directory, or with a name in it, is executed in the order of its
//! callers.

use crate::abi::{Opcode, open_flag};
use crate::args::split;
use crate::behind::{Begun, Behind, NewFile, bit};
use crate::cache::{begin_call, call_of};
use crate::early::{Created, Early, EarlyCreate, EarlyUnlink, Waiting};
use crate::lane::MountLane;
use crate::leases::Validity;
use crate::names_behind::NewDirectory;
use crate::node::Node;
use crate::out::put_created;
use crate::pending::Progress;
use alloc::format;
use alloc::sync::Arc;
use client::{Answer, Call, Create, Granted, MakeBehind};
use core::sync::atomic::Ordering;
use interface::{Mono, Span, Turn};
use wire::{Attr, CreateBehind, FileKind, Handle, HandleId, InodeNo, Status, Timestamp, Transno};

/// A longer file is not small: it is better spread over the lanes of the server.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// The most creates of a lane under way: a further one waits for the first that is answered.
const CREATE_COUNT_MAX: usize = 32;
/// The caller may make and remove names in its directory.
const OWNER_WRITES: u32 = 0o300;
/// Set-id and sticky bits.
const SPECIAL: u32 = 0o7000;

impl MountLane {
    /// A directory was made, and its names may be changed behind. To be called before the kernel gets the
    /// reply.
    pub(crate) fn change_names_from_now(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (attr, granted): (&Attr, Granted),
    ) {
        if !granted.writing {
            return;
        }
        let lane = self.client.lane();
        let inserted = self.behind.table.as_ref().and_then(|table| {
            let (header, args) = split(&self.pendings.get(pending_id)?.request).ok()?;
            let (parent, name) = (header.inode, args.name_of(header.opcode)?);
            let is_plain = attr.kind == FileKind::Directory && may_have_new_names(attr);
            let new = NewDirectory { attr, parent, name, lane };
            is_plain.then(|| table.directories.insert(&new)).flatten()
        });
        match inserted {
            Some(Some(removed)) => self.give_back(turn, removed),
            Some(None) => {}
            None => self.client.end_writing(attr.inode),
        }
    }

    /// The time of a change of a name in a directory, if it may be made behind.
    fn names_change_at(
        &self,
        now: Mono,
        table: &Behind,
        (directory, uid, gid): (InodeNo, u32, u32),
    ) -> Option<Timestamp> {
        let client = &self.client;
        let is_mapped =
            client.are_ids_replaced() || ((uid == 0 || gid == 0) && !client.is_root_trusted());
        let may = self.is_serving()
            && client.takes_calls()
            && client.term().until > now
            && !client.is_read_only()
            && !is_mapped;
        if !may || !table.directories.is_held(directory) {
            return None;
        }
        let attr = table.directories.attr(directory).or_else(|| {
            let known = self.cache.as_ref()?.attributes(now, directory)?.value;
            table.directories.refresh(&known);
            table.directories.attr(directory)
        })?;
        let is_permitted =
            uid == 0 || (uid == attr.uid && attr.mode & OWNER_WRITES == OWNER_WRITES);
        let at = client.server_time(now, directory)?.max(attr.ctime);
        // A time of the future that was set stays as the server says.
        (is_permitted && may_have_new_names(&attr) && attr.mtime <= at).then_some(at)
    }

    /// A CREATE or UNLINK: answered at once, if it may be.
    pub(crate) fn change_name_early(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (table, opcode): (&Arc<Behind>, Opcode),
    ) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        if !split(&pending.request).is_ok_and(|(it, _)| table.directories.is_held(it.inode)) {
            return false;
        }
        let request = pending.request.clone();
        let begun = if opcode == Opcode::Create {
            self.begin_create(turn, pending_id, (table, &request))
        } else {
            self.begin_unlink(turn, pending_id, (table, &request))
        };
        begun.is_some()
    }

    fn begin_create(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (table, request): (&Arc<Behind>, &[u8]),
    ) -> Option<()> {
        let now = turn.now.mono;
        let (header, mut args) = split(request).ok()?;
        let flags = args.u32().ok()?;
        let create = create_of(request)?;
        let directory = create.parent;
        let is_plain = create.mode & SPECIAL == 0 && flags & open_flag::DATA_SYNC == 0;
        let open_for = create.open.filter(|_| is_plain)?;
        let at = self.names_change_at(now, table, (directory, header.uid, header.gid))?;
        let found = self.cache.as_ref()?.found(now, directory, create.name)?;
        if found.value.is_some() {
            return None;
        }
        if self.behind.create_count >= CREATE_COUNT_MAX {
            self.behind.further.push_back(pending_id);
            return Some(());
        }
        if !table.directories.begin(directory, at) {
            return None;
        }
        let inode = self.client.take_new_file(directory, (header.pid, table.synced()));
        let handle = inode.and_then(|_| self.client.begin_handle(open_for));
        let attr = inode.map(|inode| new_file(&create, inode, at));
        let made = attr.zip(handle).filter(|(attr, handle)| {
            let (creator, parent, name) = (header.uid, directory, create.name.bytes());
            let file = NewFile { attr, handle: handle.id, creator, parent, name };
            table.insert(&file, Begun::Creating)
        });
        let Some((attr, handle)) = made else {
            inode.into_iter().for_each(|inode| self.client.end_new_file(inode));
            handle.into_iter().for_each(|handle| self.client.cancel_handle(handle.id));
            self.end_name_change(turn, directory);
            return None;
        };
        let (node, until) = (Node::plain(attr.inode), Some(self.client.term().until));
        let early = Granted { name: until, attributes: until, ..Granted::default() };
        let validity = self.leases.of_entry(now, (header.node, node), &attr, early);
        self.names.see(now, (attr.inode, attr.kind), (directory, create.name.bytes()));
        self.encode(turn, pending_id, |out| put_created(out, &attr, handle.id, validity));
        let behind = CreateBehind { inode: attr.inode, at };
        let call = make_behind(&create, handle, behind);
        let asked = begin_call(self.cache.as_ref(), &mut self.client, (now, &call));
        let (request, is_given) = (request.to_vec(), validity != Validity::default());
        let early = EarlyCreate { directory, request, handle, behind, asked, is_given };
        let id = self.behind.add(Early::Create(early));
        self.behind.create_count += 1;
        self.client.call(turn, id, call);
        Some(())
    }

    /// A create was answered whose caller has its answer.
    pub(crate) fn on_created(
        &mut self,
        turn: &mut Turn<'_>,
        create: EarlyCreate,
        (result, granted): (&Result<Answer, Status>, &Granted),
    ) {
        let EarlyCreate { directory, request, handle, behind, asked, is_given } = create;
        self.behind.create_count -= 1;
        if let Some(args) = create_of(&request) {
            let call = make_behind(&args, handle, behind);
            self.learn_early(turn, asked, &call, (result, granted));
        }
        let inode = behind.inode;
        let result = match result {
            Ok(Answer::Created { attr, made: true, .. }) if attr.inode == inode => Ok(()),
            Ok(_) => {
                self.client.release(turn, handle.id);
                Err(Status::Io)
            }
            Err(status) => Err(*status),
        };
        let created = Created { directory, inode, result, is_granted: granted.writing };
        let has_leases = granted.name.is_some() && granted.attributes.is_some();
        if is_given && (result.is_err() || !has_leases) {
            let name = create_of(&request).map_or(&[][..], |create| create.name.bytes());
            self.drop_early_entry(turn, name, created);
        } else {
            self.end_create(turn, created);
        }
    }

    /// The kernel has dropped the names and attributes of files that it was given without leases.
    pub(crate) fn end_dropped_creates(&mut self, turn: &mut Turn<'_>) {
        for created in core::mem::take(&mut self.behind.dropped) {
            self.end_create(turn, created);
        }
    }

    fn end_create(&mut self, turn: &mut Turn<'_>, created: Created) {
        let Some(table) = self.behind.table.clone() else { return };
        let Created { directory, inode, result, is_granted } = created;
        match result {
            Ok(()) => table.directories.made_count.fetch_add(1, Ordering::Relaxed),
            Err(status) => {
                let lost = format!("a file is lost that was created as inode {inode}");
                self.say_lost(turn, &lost, status);
                table.directories.end(directory);
                table.directories.lost_count.fetch_add(1, Ordering::Relaxed)
            }
        };
        let waiters = table.end_create(inode, (result, is_granted));
        if result.is_ok() && !is_granted && table.waits(inode, self.client.lane()) {
            self.behind.waiting.push((inode, Waiting::Directory(directory)));
        } else {
            self.end_name_change(turn, directory);
        }
        self.wake(turn, inode, waiters);
        if let Some(pending_id) = self.behind.further.pop_front() {
            self.begin(turn, pending_id);
        }
    }

    fn begin_unlink(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (table, request): (&Arc<Behind>, &[u8]),
    ) -> Option<()> {
        let now = turn.now.mono;
        let (header, _) = split(request).ok()?;
        let args = unlink_of(request)?;
        let (directory, name) = (args.parent, args.name);
        let at = self.names_change_at(now, table, (directory, header.uid, header.gid))?;
        let cache = self.cache.as_ref()?;
        let inode = cache.found(now, directory, name)?.value?;
        // What is in such a directory was made there, so it has another name only if it was linked here.
        let attr = match cache.attributes(now, inode) {
            Some(known) => known.value,
            None => unknown(inode, at),
        };
        let is_single = attr.kind == FileKind::File
            && attr.nlink == 1
            && !table.directories.may_be_linked(inode);
        if !is_single || !table.directories.begin(directory, at) {
            return None;
        }
        let (handle, creator) = (HandleId(0), header.uid);
        let name = name.bytes();
        let file = NewFile { attr: &attr, handle, creator, parent: directory, name };
        if !table.begin_removal(&file) {
            self.end_name_change(turn, directory);
            return None;
        }
        self.reply(turn, pending_id, Status::Ok, Span::default(), None);
        let call = Call::UnlinkBehind(wire::Unlink { behind: Some(at), ..args });
        let asked = begin_call(self.cache.as_ref(), &mut self.client, (now, &call));
        let request = request.to_vec();
        let id =
            self.behind.add(Early::Unlink(EarlyUnlink { directory, inode, request, at, asked }));
        self.client.call(turn, id, call);
        Some(())
    }

    /// Whether a request is an UNLINK whose name is to be looked up first: the name is not known, in a
    /// directory whose names are changed behind. Otherwise the removal would be one of any file, and the
    /// attributes of all would be unknown.
    pub(crate) fn looks_up_first(&mut self, now: Mono, pending_id: usize) -> bool {
        let Some(table) = self.behind.table.as_ref().filter(|table| !table.is_empty()) else {
            return false;
        };
        let Some(pending) = self.pendings.get_mut(pending_id) else { return false };
        if pending.progress == Progress::LooksUp {
            return true;
        }
        let is_unlink =
            split(&pending.request).is_ok_and(|(it, _)| it.opcode == Opcode::Unlink as u32);
        if !is_unlink || pending.progress != Progress::Begun {
            return false;
        }
        let Some(args) = unlink_of(&pending.request) else { return false };
        let (directory, name) = (args.parent, args.name);
        let looks_up = table.directories.is_held(directory)
            && self.cache.as_ref().is_some_and(|it| it.found(now, directory, name).is_none());
        if looks_up {
            pending.progress = Progress::LooksUp;
        }
        looks_up
    }

    /// A removal was answered whose caller has its answer.
    pub(crate) fn on_unlinked(
        &mut self,
        turn: &mut Turn<'_>,
        unlink: EarlyUnlink,
        (result, granted): (&Result<Answer, Status>, &Granted),
    ) {
        let Some(table) = self.behind.table.clone() else { return };
        let EarlyUnlink { directory, inode, request, at, asked } = unlink;
        if let Some(args) = unlink_of(&request) {
            let call = Call::UnlinkBehind(wire::Unlink { behind: Some(at), ..args });
            self.learn_early(turn, asked, &call, (result, granted));
        }
        match result {
            Ok(_) => table.directories.removed_count.fetch_add(1, Ordering::Relaxed),
            Err(status) => {
                let lost = format!("the removal of a name of inode {inode} is lost");
                self.say_lost(turn, &lost, *status);
                table.directories.end(directory);
                table.directories.lost_count.fetch_add(1, Ordering::Relaxed)
            }
        };
        let waiters = table.end_removal(inode);
        self.end_name_change(turn, directory);
        self.wake(turn, inode, waiters);
    }

    /// The answer to a call that shows a directory in which names are being changed: as the changes under
    /// way leave it.
    pub(crate) fn shown(
        &self,
        now: Mono,
        call: &Call<'_>,
    ) -> Option<(Result<Answer, Status>, Granted)> {
        let table = self.behind.table.as_ref().filter(|table| !table.is_empty())?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "no other call asks for attributes")]
        let inode = match call {
            Call::Getattr(args) => args.inode,
            Call::Lookup(args) => table.directories.named(args.parent, args.name.bytes())?,
            _ => return None,
        };
        let attr = table.directories.attr(inode)?;
        if !table.directories.is_busy(inode) {
            return None;
        }
        let gives = matches!(call, Call::Getattr(_));
        let attributes = if gives { table.directories.give(inode, now) } else { None };
        Some((Ok(Answer::Entry(attr)), Granted { attributes, ..Granted::default() }))
    }

    /// The same where nothing is under way, and no lease has the attributes. The kernel asks again and
    /// again, and after a few times the server is asked, for a lease.
    pub(crate) fn shown_again(
        &self,
        now: Mono,
        call: &Call<'_>,
    ) -> Option<(Result<Answer, Status>, Granted)> {
        let table = self.behind.table.as_ref().filter(|table| !table.is_empty())?;
        let Call::Getattr(args) = call else { return None };
        let attr = table.directories.lasting_attr(args.inode)?;
        let may = self.client.term().until > now
            && self.cache.as_ref().is_some_and(|cache| cache.says_attributes(args.inode));
        let attributes = table.directories.give(args.inode, now);
        may.then_some((Ok(Answer::Entry(attr)), Granted { attributes, ..Granted::default() }))
    }

    /// An answer with the attributes of a directory: its times do not go back behind what was shown.
    pub(crate) fn as_shown(
        &self,
        result: Result<Answer, Status>,
        granted: Granted,
    ) -> (Result<Answer, Status>, Granted) {
        let Ok(Answer::Entry(attr)) = result else { return (result, granted) };
        let shown = self.behind.table.as_ref().and_then(|table| table.as_shown(&attr));
        match shown {
            Some(attr) => (Ok(Answer::Entry(attr)), Granted { attributes: None, ..granted }),
            None => (result, granted),
        }
    }
}

impl Behind {
    /// A program syncs a file, which this mount may have created.
    pub(crate) fn see_sync(&self, inode: InodeNo) {
        let Some((place, state)) = self.find(inode) else { return };
        if state & bit::OPENED == 0 {
            let is_small = place.size_bytes.load(Ordering::SeqCst) <= SMALL_BYTES_MAX;
            self.directories.synced.store(if is_small { inode.0 } else { 0 }, Ordering::Relaxed);
        }
    }

    /// The new file that was synced last, if it was small.
    pub(crate) fn synced(&self) -> Option<InodeNo> {
        Some(InodeNo(self.directories.synced.load(Ordering::Relaxed))).filter(|inode| inode.0 != 0)
    }

    /// Attributes of a directory, if those that were shown are newer.
    pub(crate) fn as_shown(&self, attr: &Attr) -> Option<Attr> {
        if attr.kind != FileKind::Directory || self.directories.is_empty() {
            return None;
        }
        let shown = self.directories.attr(attr.inode)?;
        let is_newer = shown.mtime > attr.mtime || shown.ctime > attr.ctime;
        let (mtime, ctime) = (shown.mtime.max(attr.mtime), shown.ctime.max(attr.ctime));
        is_newer.then_some(Attr { mtime, ctime, ..*attr })
    }
}

/// Whether new files in a directory get what their creators ask for, and nothing else.
const fn may_have_new_names(attr: &Attr) -> bool {
    attr.has_no_xattrs() && attr.mode & SPECIAL == 0
}

/// The attributes of a new file.
fn new_file(create: &Create<'_>, inode: InodeNo, at: Timestamp) -> Attr {
    let (mode, wire::Caller { uid, gid, .. }) = (create.mode & !create.umask, create.caller);
    Attr { mode, uid, gid, ..unknown(inode, at) }
}

/// Those of a file of which only the name is known.
fn unknown(inode: InodeNo, at: Timestamp) -> Attr {
    Attr {
        inode,
        kind: FileKind::File,
        flags: 0,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size_bytes: 0,
        allocated_bytes: 0,
        atime: at,
        mtime: at,
        mtime_set: at,
        ctime: at,
        birth: at,
        version: Transno(0),
        layout: None,
    }
}

const fn make_behind<'a>(create: &Create<'a>, handle: Handle, behind: CreateBehind) -> Call<'a> {
    let Create { caller, parent, name, mode, umask, .. } = *create;
    Call::CreateBehind(MakeBehind { caller, parent, name, mode, umask, handle, behind })
}

/// The arguments of a CREATE.
fn create_of(request: &[u8]) -> Option<Create<'_>> {
    if let Ok(Call::Create(create)) = call_of(request) { Some(create) } else { None }
}

/// The arguments of an UNLINK.
fn unlink_of(request: &[u8]) -> Option<wire::Unlink<'_>> {
    if let Ok(Call::Unlink(unlink)) = call_of(request) { Some(unlink) } else { None }
}
