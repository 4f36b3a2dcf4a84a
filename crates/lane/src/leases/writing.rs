//! Write leases: new files that their clients write behind. A client answers writes to such a file
//! before they are executed, so what names the file waits until it says that they were.
//!
//! ```text
//! Create ─▶ held ─ another client names the file ─▶ recalled ─▶ written: it goes on
//!             └─ last Close for writing, written        └─ a term is over: fenced, it goes on
//! ```
//! Such a lease has no term: its holder may be silent for as long as nobody else needs the file.
//!
//! Invariant: a client whose lease was taken gets none of its later writes behind executed.

use super::Leases;
use super::outgoing::Recalled;
use super::table::Lease;
use crate::Lane;
use crate::peers::message::PeerBody;
use crate::request::ReceivedRequest;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use interface::{Action, Mono, StoreAction, StoreSpace, Ticket, Turn};
use meta::LeaseKey;
use wire::{
    ClientUuid, Created, HEADER_BYTES, InodeNo, LeaseNo, Op, OpenFor, Rule, SessionId, Status,
    Wire as _, lease_flag, request_flag,
};

/// The most files that clients of a lane write behind.
const COUNT_MAX: usize = 65_536;
/// The most fences that a lane remembers.
const FENCE_COUNT_MAX: usize = 65_536;
/// A client has at most this many bytes under way: [`wire::BEHIND_BYTES_MAX`] of each client that
/// holds such leases are promised, and at most this part of the free space.
const PROMISED_PART: u64 = 64;
/// How old the known free space may be.
const SPACE_MS_MAX: u64 = 1_000;

/// A file that is written behind.
#[derive(Clone, Copy, Debug)]
struct Writer {
    client: ClientUuid,
    lease: Lease,
}

/// The write leases of a lane.
#[derive(Debug)]
pub(super) struct Writing {
    files: BTreeMap<InodeNo, Writer>,
    /// The number of files of each client.
    clients: BTreeMap<ClientUuid, usize>,
    /// Clients whose leases were taken: they may still send what they have answered.
    fences: BTreeSet<(InodeNo, ClientUuid)>,
    /// Leases that this lane has taken, and from whom.
    taken: BTreeMap<InodeNo, ClientUuid>,
    free_bytes: u64,
    /// When the free space was asked for.
    asked_at: Option<Mono>,
}

impl Writing {
    pub(super) const fn new() -> Self {
        Self {
            files: BTreeMap::new(),
            clients: BTreeMap::new(),
            fences: BTreeSet::new(),
            taken: BTreeMap::new(),
            free_bytes: 0,
            asked_at: None,
        }
    }

    pub(super) fn has_any(&self) -> bool {
        !self.files.is_empty()
    }

    pub(super) fn has(&self, inode: InodeNo) -> bool {
        self.files.contains_key(&inode)
    }

    fn insert(&mut self, inode: InodeNo, writer: Writer) {
        self.end(inode);
        *self.clients.entry(writer.client).or_default() += 1;
        self.files.insert(inode, writer);
    }

    /// Returns the client that held it.
    fn end(&mut self, inode: InodeNo) -> Option<ClientUuid> {
        let client = self.files.remove(&inode)?.client;
        if let Some(count) = self.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
        Some(client)
    }

    /// Whether what this client has under way besides will fit.
    fn has_space_for(&self, client: ClientUuid) -> bool {
        let others = self.clients.keys().filter(|other| **other != client).count();
        let count = u64::try_from(others).unwrap_or(u64::MAX).saturating_add(1);
        self.free_bytes / PROMISED_PART >= wire::BEHIND_BYTES_MAX.saturating_mul(count)
    }

    fn fence(&mut self, fence: (InodeNo, ClientUuid)) {
        self.fences.insert(fence);
        if self.fences.len() > FENCE_COUNT_MAX {
            self.fences.pop_first();
        }
    }
}

impl Leases {
    /// Whether clients write files behind.
    pub(crate) fn has_writing(&self) -> bool {
        self.writing.has_any()
    }

    /// The number of files that are written behind.
    pub(super) fn writing_count(&self) -> usize {
        self.writing.files.len()
    }

    /// Recalls a file from the client that writes it behind, unless it is this one. Returns whether
    /// it has to be waited for.
    pub(super) fn recall_writing(&mut self, inode: InodeNo, client: ClientUuid, now: Mono) -> bool {
        let until = self.term_from(now);
        let Some(writer) = self.writing.files.get_mut(&inode) else { return false };
        if writer.client == client {
            return false;
        }
        if !writer.lease.is_recalled() {
            writer.lease.ends_at = until;
            let recalled = Recalled { lease: writer.lease, key: LeaseKey::Writing(inode) };
            self.counts.recalled_count += 1;
            self.outgoing.entry(recalled.lease.session).or_default().add(recalled, &[]);
            self.set_expiry(LeaseKey::Writing(inode), until);
        }
        true
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

    /// A recalled file's holder was silent for a term. Returns the client that is fenced.
    pub(super) fn take_writing(&mut self, inode: InodeNo) -> Option<ClientUuid> {
        let client = self.writing.end(inode)?;
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
    /// Whether this lane has taken the write lease of a file, for checks of a simulation.
    #[must_use]
    pub fn has_taken_writing(&self, inode: InodeNo) -> bool {
        self.leases.writing.taken.contains_key(&inode)
    }

    /// Lets a client write the file behind that it has just created, if it asks for that.
    pub(super) fn grant_writing(
        &mut self,
        (holder, lease_no, now): ((SessionId, ClientUuid), LeaseNo, Mono),
        received: &ReceivedRequest<'_>,
        body: &[u8],
    ) -> u8 {
        let asks = received.request.flags & request_flag::BEHIND != 0;
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
            || attr.layout.is_some_and(|layout| layout.is_spread())
            || attr.inode.shard() != received.request.shard
            || writing.files.len() >= COUNT_MAX
            || !writing.has_space_for(client)
        {
            return 0;
        }
        let lease = Lease::new(session, lease_no, now);
        self.leases.writing.insert(attr.inode, Writer { client, lease });
        self.leases.lease_no_last = lease_no;
        self.leases.counts.granted_count += 1;
        lease_flag::WRITING
    }

    /// Asks for the free space of the store, if it is not known any more.
    pub(super) fn ask_for_space(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let writing = &mut self.leases.writing;
        if writing.asked_at.is_none_or(|at| at.after_ms(SPACE_MS_MAX) <= now) {
            if writing.asked_at.is_none_or(|at| at.after_ms(10 * SPACE_MS_MAX) <= now) {
                writing.free_bytes = 0; // Not known any more.
            }
            writing.asked_at = Some(now);
            turn.act(StoreAction::Space { ticket: Ticket(crate::ticket::FREE_SPACE_TICKET) });
        }
    }

    /// The free space of the store.
    pub(crate) fn on_free_space(&mut self, space: Option<StoreSpace>) {
        self.leases.writing.free_bytes = space.map_or(0, |space| space.available_bytes);
    }

    /// A request was executed: a Reopen may claim a write lease, and a Close may end one.
    pub(crate) fn note_writing(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        status: Status,
    ) {
        if status == Status::Ok {
            self.claim_writing(turn, received);
            self.close_writing(turn, received);
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

    /// A client has closed a file: it no longer writes it behind, unless it has it open still.
    fn close_writing(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
        let request = received.request;
        if request.op != Op::Close || !self.leases.has_writing() {
            return;
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let Ok(wire::Close { inode, .. }) = wire::Close::decode_all(body) else { return };
        let client = received.open.client;
        let held = self.leases.writing.files.get(&inode).is_some_and(|it| it.client == client);
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
        self.end_leases(turn, held.into_iter().map(LeaseKey::Writing).collect());
    }

    /// Tells the data shard of a file that a client's lease of it was taken.
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

    /// Whether a change of attributes that its caller has the answer of comes too late: others may have
    /// looked at the file.
    pub(crate) fn refuses_setattr_behind(
        &self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let request = received.request;
        if request.op != Op::Setattr || request.flags & request_flag::BEHIND == 0 {
            return false;
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let inode = request.op.inodes(body)[0].unwrap_or(InodeNo(0));
        let writer = self.leases.writing.files.get(&inode);
        self.config.rules.hold(Rule::WriteBehind)
            && writer.is_none_or(|writer| writer.client != received.open.client)
    }

    /// Refuses a write behind of a client whose lease was taken. Returns whether it did.
    pub(super) fn refuses_write_behind(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let request = received.request;
        let fences = &self.leases.writing.fences;
        if fences.is_empty() || request.flags & request_flag::BEHIND == 0 {
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
