//! Write leases: files that their clients write behind ([`super::opened`]: files that were there
//! before), and new directories whose names their clients change behind. A client answers such changes before they are executed, so what names the
//! file or directory waits until it says that they were.
//!
//! ```text
//! Create ─▶ held ─ another client names the file ─▶ recalled ─▶ written: it goes on
//! Mkdir       └─ last Close for writing, written        └─ a term is over: fenced ─▶ told: it goes on
//!                directory removed, its extended attributes set
//! ```
//! Such a lease has no term: its holder may be silent for as long as nobody else needs the file.
//!
//! Invariant: a client whose lease was taken gets none of its later writes behind executed.

use super::Leases;
use super::behind::behind;
use super::made::Made;
use super::numbers::{GIVEN_COUNT, Numbers};
use super::outgoing::Recalled;
use super::table::Lease;
use crate::Lane;
use crate::peers::message::PeerBody;
use crate::request::ReceivedRequest;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use disk::Change;
use interface::{Action, Mono, Turn};
use meta::LeaseKey;
use wire::{
    Claim, ClientUuid, Create, Created, HEADER_BYTES, InodeNo, LeaseNo, NewFiles, Op, OpenFor,
    Request, Rule, SessionId, ShardId, SquashedIds, Status, Wire as _, lease_flag, request_flag,
};

/// The most files and directories that clients of a lane change behind.
const COUNT_MAX: usize = 65_536;
/// The most directories among them, and those of one client. They are held for long.
const DIRECTORY_COUNT_MAX: usize = COUNT_MAX / 2;
const CLIENT_DIRECTORY_COUNT_MAX: usize = 4096;
/// The most numbers that a claim names.
const CLAIMED_COUNT_MAX: u32 = 65_536;
/// The most fences that a lane remembers.
const FENCE_COUNT_MAX: usize = 65_536;
/// A client has at most this many bytes under way: [`wire::BEHIND_BYTES_MAX`] of each client that
/// holds such leases are promised, and at most this part of the free space.
const PROMISED_PART: u64 = 64;

/// Who changes a file or directory behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) client: ClientUuid,
    pub(super) lease: Lease,
}

/// What a client changes behind.
#[derive(Clone, Copy, Default, Debug)]
struct Held {
    count: usize,
    /// Directories among it.
    directory_count: usize,
}

/// The write leases of a lane.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) files: BTreeMap<InodeNo, Writer>,
    /// The directories among them.
    directories: BTreeMap<InodeNo, ClientUuid>,
    clients: BTreeMap<ClientUuid, Held>,
    /// Directories that were removed in this turn.
    removed: Vec<InodeNo>,
    pub(super) numbers: Numbers,
    pub(super) made: Made,
    /// Clients whose leases were taken: they may still send what they have answered.
    fences: BTreeSet<(InodeNo, ClientUuid)>,
    /// Leases of files that this lane has taken, and from whom.
    taken: BTreeMap<InodeNo, ClientUuid>,
    /// Of directories, for checks of a simulation.
    taken_directories: BTreeSet<InodeNo>,
}

impl Writing {
    pub(super) fn new() -> Self {
        Self {
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
            clients: BTreeMap::new(),
            removed: Vec::new(),
            numbers: Numbers::default(),
            made: Made::default(),
            fences: BTreeSet::new(),
            taken: BTreeMap::new(),
            taken_directories: BTreeSet::new(),
        }
    }

    /// Whether requests of other clients may have to wait, or end what is remembered.
    pub(super) fn has_any(&self) -> bool {
        !(self.files.is_empty() && self.made.is_empty())
    }

    pub(super) fn has(&self, inode: InodeNo) -> bool {
        self.files.contains_key(&inode)
    }

    pub(super) fn insert(&mut self, inode: InodeNo, writer: Writer) {
        self.end(inode);
        self.clients.entry(writer.client).or_default().count += 1;
        self.files.insert(inode, writer);
    }

    pub(super) fn insert_directory(&mut self, inode: InodeNo, writer: Writer) {
        self.insert(inode, writer);
        self.clients.entry(writer.client).or_default().directory_count += 1;
        self.directories.insert(inode, writer.client);
    }

    /// Whether a client may have another directory.
    pub(super) fn has_room_for_directory(&self, client: ClientUuid) -> bool {
        let held = self.clients.get(&client).copied().unwrap_or_default();
        self.files.len() < COUNT_MAX
            && self.directories.len() < DIRECTORY_COUNT_MAX
            && held.directory_count < CLIENT_DIRECTORY_COUNT_MAX
    }

    /// Returns the client that held it.
    fn end(&mut self, inode: InodeNo) -> Option<ClientUuid> {
        let client = self.files.remove(&inode)?.client;
        let was_directory = self.directories.remove(&inode).is_some();
        if let Some(held) = self.clients.get_mut(&client) {
            held.count -= 1;
            held.directory_count -= usize::from(was_directory);
            if held.count == 0 {
                self.clients.remove(&client);
            }
        }
        Some(client)
    }

    /// Whether what this client has under way besides will fit such a free space.
    pub(super) fn has_space_for(&self, client: ClientUuid, free_bytes: u64) -> bool {
        let others = self.clients.keys().filter(|other| **other != client).count();
        let count = u64::try_from(others).unwrap_or(u64::MAX).saturating_add(1);
        free_bytes / PROMISED_PART >= wire::BEHIND_BYTES_MAX.saturating_mul(count)
    }

    /// Whether there may be a further one.
    pub(super) fn has_room(&self) -> bool {
        self.files.len() < COUNT_MAX
    }

    /// Whether a lease of this file may be granted again: none of it was taken, as far as is known.
    pub(super) fn was_never_taken(&self, inode: InodeNo) -> bool {
        self.taken.len() < FENCE_COUNT_MAX && !self.taken.contains_key(&inode)
    }

    fn fence(&mut self, fence: (InodeNo, ClientUuid)) {
        self.fences.insert(fence);
        if self.fences.len() > FENCE_COUNT_MAX {
            self.fences.pop_first();
        }
    }
}

impl Leases {
    /// Whether clients write files behind, or may be granted directories that they have made.
    pub(crate) fn has_writing(&self) -> bool {
        self.writing.has_any()
    }

    /// Directories that clients change behind, if there are any.
    pub(crate) fn changed_behind(&self) -> Option<&BTreeMap<InodeNo, ClientUuid>> {
        Some(&self.writing.directories).filter(|directories| !directories.is_empty())
    }

    /// What was changed may have removed directories. Their leases end with the turn.
    pub(crate) fn note_removed(&mut self, changes: &[u8]) {
        let Writing { directories, made, .. } = &self.writing;
        if directories.is_empty() && made.is_empty() {
            return;
        }
        let removed = disk::Changes::new(changes).filter_map(|change| match change {
            Ok(Change::InodeRemoved { inode }) => Some(inode),
            Ok(Change::Inode { row }) if row.nlink == 0 => Some(row.inode),
            Ok(_) | Err(_) => None,
        });
        for inode in removed {
            self.writing.made.forget(inode);
            if self.writing.directories.contains_key(&inode) {
                self.writing.removed.push(inode);
            }
        }
    }

    /// A session has ended: what it was given is void.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.writing.numbers.forget_session(session);
        self.settled.forget_session(session);
    }

    /// The same for a client, and what it has claimed.
    pub(crate) fn forget_numbers(&mut self, client: ClientUuid) {
        self.writing.numbers.forget(client);
    }

    /// The number of files and directories that are changed behind.
    pub(super) fn writing_count(&self) -> usize {
        self.writing.files.len()
    }

    /// Recalls a file from the client that writes it behind, unless it is this one. Returns whether
    /// it has to be waited for.
    pub(super) fn recall_writing(&mut self, inode: InodeNo, client: ClientUuid, now: Mono) -> bool {
        self.writing.made.named_by(inode, client);
        if self.writing.files.get(&inode).is_none_or(|writer| writer.client == client) {
            return false;
        }
        self.recall_from_writer(inode, now);
        true
    }

    pub(super) fn recall_from_writer(&mut self, inode: InodeNo, now: Mono) {
        let until = self.term_from(now);
        let Some(writer) = self.writing.files.get_mut(&inode) else { return };
        if !writer.lease.is_recalled() {
            writer.lease.ends_at = until;
            self.heat.recalled(LeaseKey::Writing(inode), writer.lease.granted_at, now);
            let recalled = Recalled { lease: writer.lease, key: LeaseKey::Writing(inode) };
            self.counts.recalled_count += 1;
            self.outgoing.entry(recalled.lease.session).or_default().add(recalled, &[]);
            self.set_expiry(LeaseKey::Writing(inode), until);
        }
    }

    /// Whether a client has the write lease of a file or directory.
    pub(super) fn has_writer(&self, inode: InodeNo) -> bool {
        self.writing.files.contains_key(&inode)
    }

    /// The session that is to say that a file was written.
    pub(super) fn recalled_writer(&self, inode: InodeNo) -> Option<SessionId> {
        let writer = self.writing.files.get(&inode)?;
        writer.lease.is_recalled().then_some(writer.lease.session)
    }

    /// A session says that nothing of a file is under way.
    pub(super) fn end_writing(&mut self, inode: InodeNo, session: SessionId) -> bool {
        let is_its = self.writing.files.get(&inode).is_some_and(|it| it.lease.session == session);
        is_its && self.writing.end(inode).is_some()
    }

    /// A session has ended in order.
    pub(super) fn end_writing_of(&mut self, session: SessionId, touched: &mut Vec<LeaseKey>) {
        let files = self.writing.files.iter();
        let held = files.filter(|(_, writer)| writer.lease.session == session);
        for inode in held.map(|(inode, _)| *inode).collect::<Vec<_>>() {
            self.writing.end(inode);
            touched.push(LeaseKey::Writing(inode));
        }
    }

    /// A recalled holder was silent for a term. Returns the client that is to be fenced at the data
    /// shards of a file. What it changes behind in a directory is refused here; its other directories
    /// are recalled, so that a client that walks through them waits for one further term only.
    pub(super) fn take_writing(&mut self, inode: InodeNo, now: Mono) -> Option<ClientUuid> {
        let is_directory = self.writing.directories.contains_key(&inode);
        let client = self.writing.end(inode)?;
        if is_directory {
            self.writing.taken_directories.insert(inode);
            if self.writing.taken_directories.len() > FENCE_COUNT_MAX {
                self.writing.taken_directories.pop_first();
            }
            let directories = self.writing.directories.iter();
            let held = directories.filter(|(_, holder)| **holder == client);
            for other in held.map(|(other, _)| *other).collect::<Vec<_>>() {
                self.recall_from_writer(other, now);
            }
            return None;
        }
        self.writing.taken.insert(inode, client);
        if self.writing.taken.len() > FENCE_COUNT_MAX {
            self.writing.taken.pop_first();
        }
        Some(client)
    }

    /// The leases that were taken, each with the client that is fenced.
    pub(crate) fn taken_writing(&self) -> Vec<(InodeNo, ClientUuid)> {
        self.writing.taken.iter().map(|(inode, client)| (*inode, *client)).collect()
    }

    /// The files that a client writes behind.
    pub(crate) fn written_by(&self, client: ClientUuid) -> impl Iterator<Item = InodeNo> {
        let files = self.writing.files.iter();
        files.filter(move |(_, writer)| writer.client == client).map(|(inode, _)| *inode)
    }
}

impl Lane {
    /// Whether this lane has taken the write lease of a file or directory, for checks of a simulation.
    #[must_use]
    pub fn has_taken_writing(&self, inode: InodeNo) -> bool {
        let writing = &self.leases.writing;
        writing.taken.contains_key(&inode) || writing.taken_directories.contains(&inode)
    }

    /// Lets a client write the file behind that it has just created, or change the names of the
    /// directory that it has just made, if it asks for that.
    pub(super) fn grant_writing(
        &mut self,
        (holder, lease_no, now): ((SessionId, ClientUuid), LeaseNo, Mono),
        received: &ReceivedRequest<'_>,
        body: &[u8],
    ) -> u8 {
        let asks =
            received.request.flags & request_flag::BEHIND != 0 && !received.open.binding.read_only;
        if asks && received.request.op == Op::Mkdir {
            return self.grant_directory((holder, lease_no, now), received);
        }
        if !asks || received.request.op != Op::Create {
            return 0;
        }
        let opened = wire::Create::decode_all(body).ok().and_then(|create| create.handle);
        let made = Created::decode_all(self.scratch.reply()).ok().filter(|created| created.made);
        let Some(Created { attr, .. }) = made else { return 0 };
        let writes = opened.is_some_and(|handle| OpenFor::writes(handle.open_for));
        let writing = &self.leases.writing;
        let (session, client) = holder;
        if !writes
            || attr.inode.shard() != received.request.shard
            || !writing.has_room()
            || !writing.has_space_for(client, self.free_space.free_bytes())
        {
            return 0;
        }
        let lease = Lease::new(session, lease_no, now);
        self.leases.writing.insert(attr.inode, Writer { client, lease });
        self.leases.lease_no_last = lease_no;
        self.leases.counts.granted_count += 1;
        lease_flag::WRITING
    }

    /// Gives a client numbers for files that it creates behind: with the first directory that its
    /// session is granted, or in which it creates, and when it has used one of the second half of the
    /// newest ones.
    pub(super) fn give_new_files(
        &mut self,
        (holder, lease_no): ((SessionId, ClientUuid), LeaseNo),
        received: &ReceivedRequest<'_>,
        (body, granted): (&[u8], u8),
    ) -> Option<NewFiles> {
        let Request { op, shard, session, flags, .. } = *received.request;
        let (_, client) = holder;
        // Another session of the client may have the directory's lease.
        let creates = || {
            let create = Create::decode_all(body).ok().filter(|create| create.behind.is_none());
            let holder = create.and_then(|it| self.leases.writing.directories.get(&it.parent));
            flags & request_flag::BEHIND != 0 && holder == Some(&client)
        };
        let is_granted =
            matches!(op, Op::Mkdir | Op::Getattr) && granted & lease_flag::WRITING != 0;
        let is_directory = is_granted || (op == Op::Create && creates());
        if !is_directory && op != Op::Create {
            return None;
        }
        let index = self.meta_index(shard);
        let (key, conn) = ((shard, session), received.conn);
        let numbers = &mut self.leases.writing.numbers;
        let again = if is_directory { numbers.given_before(key, conn) } else { None };
        let is_short = numbers.is_short(key) || (is_directory && numbers.is_new(key));
        if self.metas[index].spreads_new_files() {
            return None;
        }
        let new = if is_short { self.metas[index].reserve_inodes(GIVEN_COUNT) } else { None };
        let first = new.or(again)?;
        let layout = self.metas[index].layout_behind(first);
        if new.is_some() {
            self.leases.writing.numbers.give(key, (holder.1, conn), first);
        }
        self.leases.lease_no_last = lease_no;
        Some(NewFiles { first, count: GIVEN_COUNT, layout })
    }

    /// Directories were removed, by whom they were changed behind.
    pub(super) fn end_removed(&mut self, turn: &mut Turn<'_>) {
        let removed = core::mem::take(&mut self.leases.writing.removed);
        for inode in &removed {
            self.leases.writing.end(*inode);
        }
        self.end_leases(turn, removed.into_iter().map(LeaseKey::Writing).collect());
    }

    /// A client claims a directory whose names it changes behind, and numbers for its creates.
    /// Returns whether it has it.
    pub(crate) fn claim_directory(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
        claim: Claim,
    ) -> bool {
        let Claim { inode, first, count } = claim;
        let (session, client) = (received.request.session, received.open.client);
        let holder = self.leases.writing.directories.get(&inode).copied();
        if self.recovery.is_over() {
            return holder == Some(client);
        }
        let index = self.meta_index(inode.shard());
        let is_free = match holder {
            Some(holder) => holder == client,
            None => self.leases.writing.has_room_for_directory(client),
        };
        // Also where no leases are granted any more: what its callers have the answers of is to be done.
        let claims = is_free
            && received.open.binding.squash.ids != SquashedIds::All
            && count <= CLAIMED_COUNT_MAX
            && self.metas[index].may_claim(inode, first, count)
            && (count == 0 || self.leases.writing.numbers.claim(client, (first, count)));
        if claims && holder.is_none() {
            let lease = Lease::new(session, LeaseNo(0), turn.now.mono);
            self.leases.writing.insert_directory(inode, Writer { client, lease });
        }
        claims
    }

    /// A request was executed: a Reopen may claim a write lease, and a Close or a change of extended
    /// attributes may end one.
    pub(crate) fn note_writing(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        status: Status,
    ) {
        if status == Status::Ok {
            self.claim_writing(turn, received);
            self.close_writing(turn, received);
            self.end_changed_behind(turn, received);
        }
    }

    /// A client has changed extended attributes of a directory. What it creates there from now on is
    /// not as it can know.
    fn end_changed_behind(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
        let op = received.request.op;
        if !matches!(op, Op::Setxattr | Op::Removexattr) {
            return;
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let named = op.inodes(body)[0];
        if let Some(inode) = named.filter(|it| self.leases.writing.directories.contains_key(it)) {
            self.leases.writing.end(inode);
            self.end_leases(turn, Vec::from([LeaseKey::Writing(inode)]));
        }
    }

    /// A request about names is answered, whatever the answer: its number is used.
    pub(crate) fn note_behind(&mut self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) {
        if self.leases.writing.numbers.is_empty() {
            return;
        }
        let request = received.request;
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        if let Some((_, Some(number))) = behind(request, body) {
            let holder = (request.session, received.open.client);
            self.leases.writing.numbers.spend(holder, number);
        }
    }

    /// A client registers a file again that it writes behind.
    fn claim_writing(&mut self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) {
        let request = received.request;
        let claims = request.op == Op::Reopen && request.flags & request_flag::BEHIND != 0;
        if !claims || self.recovery.is_over() {
            return;
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let Some(inode) = request.op.inodes(body)[0] else { return };
        let lease = Lease::new(request.session, LeaseNo(0), turn.now.mono);
        let writer = Writer { client: received.open.client, lease };
        self.leases.writing.insert(inode, writer);
    }

    /// A client has closed a file: it no longer writes it behind, unless it has it open still. The lease
    /// of a directory has nothing to do with its handles.
    fn close_writing(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
        let request = received.request;
        if request.op != Op::Close || !self.leases.has_writing() {
            return;
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let Ok(wire::Close { inode, .. }) = wire::Close::decode_all(body) else { return };
        let client = received.open.client;
        let writing = &self.leases.writing;
        let held = writing.files.get(&inode).is_some_and(|it| it.client == client)
            && !writing.directories.contains_key(&inode);
        let index = self.meta_index(request.shard);
        if held && !self.metas[index].is_written_by(inode, client) {
            self.leases.writing.end(inode);
            self.end_leases(turn, Vec::from([LeaseKey::Writing(inode)]));
        }
    }

    /// The eviction of a client is in force.
    pub(crate) fn end_writing_of_client(&mut self, turn: &mut Turn<'_>, client: ClientUuid) {
        let held: Vec<InodeNo> = self.leases.written_by(client).collect();
        for inode in &held {
            self.leases.writing.end(*inode);
        }
        self.leases.writing.made.forget_client(client);
        self.leases.forget_numbers(client);
        self.end_leases(turn, held.into_iter().map(LeaseKey::Writing).collect());
    }

    /// Tells all data shards that may have parts of a file that a client's lease of it was taken.
    pub(super) fn fence_writer(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, client): (InodeNo, ClientUuid),
    ) {
        self.send_to_contents(turn, inode, &PeerBody::WriterFenced { inode, client });
    }

    /// A metadata shard has taken a write lease of a file of this lane.
    pub(crate) fn on_writer_fenced(&mut self, inode: InodeNo, client: ClientUuid) {
        self.leases.writing.fence((inode, client));
    }

    /// Whether a change of attributes or names that its caller has the answer of comes too late: others
    /// may have looked at the file or directory. Or it has a number that its client may not choose.
    pub(crate) fn refuses_behind(&self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) -> bool {
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let Some((inode, number)) = behind(received.request, body) else { return false };
        let (writing, client) = (&self.leases.writing, received.open.client);
        let holds = |inode| writing.files.get(&inode).is_some_and(|it| it.client == client);
        let is_late = self.config.rules.hold(Rule::WriteBehind)
            && !holds(inode)
            && !(received.request.op == Op::Setattr
                && self.only_directory(received.request.shard, inode).is_some_and(holds));
        is_late || number.is_some_and(|number| !writing.numbers.is_valid(client, number))
    }

    /// The directory of a file with one name: who holds its lease has shown the file to nobody.
    fn only_directory(&self, shard: ShardId, inode: InodeNo) -> Option<InodeNo> {
        let meta = &self.metas[self.meta_index(shard)];
        let has_one_name = meta.attributes(inode).is_some_and(|attr| attr.nlink == 1);
        let is_file = |dir: &InodeNo| has_one_name && *dir != inode;
        meta.containing_directories(inode).find(is_file)
    }

    /// Refuses a write behind of a client whose lease was taken. Returns whether it did.
    pub(super) fn refuses_write_behind(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let request = received.request;
        let fences = &self.leases.writing.fences;
        let is_behind = request.op != Op::Open && request.flags & request_flag::BEHIND != 0;
        if fences.is_empty() || !is_behind {
            return false;
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let inode = request.op.inodes(body)[0].unwrap_or(InodeNo(0));
        let is_fenced = fences.contains(&(inode, received.open.client));
        if is_fenced {
            if let Some(bulk) = received.bulk {
                turn.act(Action::Release { buf: bulk.buf });
            }
            self.end_refused(turn, received, Status::Stale);
        }
        is_fenced
    }
}
