//! Leases: until when a frontend may cache what an answer says, and the recalls that end it.
//!
//! All leases of a client lane have one term, which ends with the first of those that it has at the
//! server's lanes. Each reply renews that of its lane, counted from the first sending of its request,
//! less a tenth; where no request is sent for a third of it, a Ping is, as long as the frontend is
//! used. What ends with a term does not come back with the next one. The client keeps no table of
//! grants: a recall names what to drop, and the frontend drops it, cached or not. When a connection
//! is lost, recalls may be lost with it: the frontend drops everything before the client sends
//! anything else to that lane.
//!
//! ```text
//! reply with a grant ─▶ job ─▶ next_granted_answer: judged then        recall ─▶ next_recall
//! any reply, or a Ping's ─▶ renew ─▶ term                               term is over ─▶ next term
//! connection lost ─▶ take_drop ─▶ (frontend drops) ─▶ dropped ─▶ dropped_until ─▶ requests
//! ```
//! Invariant: no answer has a grant up to a number that was recalled before the answer was taken, or
//! of a connection that was lost, or of a term that is over.

use crate::client::Client;
use crate::grants::{LinkLeases, OneGrant, ReplyGrant};
use crate::link::Link;
use crate::plan::{NewRequest, Plan, Target};
use crate::requests::Exchange;
use crate::{Answer, CallId};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use interface::{Bulk, ConnId, Mono, NetAction, Turn};
use wire::{
    Attr, Grants, Header, InodeNo, Layout, LeaseGrant, LeaseKey, LeaseNo, List, NamedInodes, Op,
    ProtocolError, Recall, RecallAck, RecallNo, Rule, Status, Wire as _, Writer, lease_flag,
    request_flag,
};

/// A client that was not used for this long sends no more Pings: its leases end.
pub const USED_MS_MAX: u64 = 300_000;

/// The term of all leases of a client lane. What was learned in one term is not used in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    /// Its number, from 1.
    pub no: u64,
    /// When it ends, unless it is renewed.
    pub until: Mono,
}

/// What a frontend may cache of an answer, and until when it may do so without looking at
/// [`Client::term`] again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Granted {
    /// The attributes of the answer's inode.
    pub attributes: Option<Mono>,
    /// The number of that grant. Attributes of an inode that came under a lower number are older.
    pub attributes_no: LeaseNo,
    /// The call's name: what it names, or that it does not exist, also because the call has removed
    /// it.
    pub name: Option<Mono>,
    /// The new name of a rename.
    pub new_name: Option<Mono>,
    /// The contents of the opened file; of [`crate::Call::ReadPages`] the pages of the file.
    pub contents: Option<Mono>,
    /// The entries of a listing that say so.
    pub entries: Option<Mono>,
    /// The file that was created may be written behind, or the names of the directory that was made
    /// changed behind, until [`Client::end_writing`].
    pub writing: bool,
    /// The inodes that an unlink, rmdir or rename has changed besides the directories of its names,
    /// if the server says so. The export's root has [`InodeNo::ROOT`].
    pub named: Option<NamedInodes>,
}

/// Attributes of an inode that the answer itself does not have: of the directory of a name that the
/// call has changed, of an inode with another number of names or other extended attributes, of a
/// directory that was listed. They are as the call has left them. The export's root has
/// [`InodeNo::ROOT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantedAttributes {
    /// The attributes.
    pub attr: Attr,
    /// Until when the frontend may answer from them.
    pub until: Mono,
    /// The number of the grant. Attributes of the inode that came under a lower number are older.
    pub lease_no: LeaseNo,
}

/// A recall, for its acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecallId {
    link_index: usize,
    conn_epoch: u32,
    recall_no: RecallNo,
    received_at: Mono,
}

/// What a frontend must drop. Names and attributes of the export's root have [`InodeNo::ROOT`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecalledKey {
    /// The attributes of an inode.
    Attributes(InodeNo),
    /// A name in a directory, existing or not.
    Name(InodeNo, Vec<u8>),
    /// The contents of a file.
    Contents(InodeNo),
    /// The pages of a file, mapped ones too.
    Pages(InodeNo),
    /// A file that is written behind: the recall is acknowledged when nothing of it is under way, and
    /// none of its writes is answered early after that.
    Writing(InodeNo),
    /// Everything.
    All,
}

/// A client lane's leases.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The frontend caches.
    pub(crate) asks: bool,
    /// The term.
    term_no: u64,
    /// When the frontend was last used.
    used_at: Mono,
    recalls: VecDeque<(RecallId, Vec<RecalledKey>)>,
    drop_wanted: bool,
    /// The frontend writes files behind.
    pub(crate) writes_behind: bool,
    /// It has asked for a directory that it has made, although no server has granted it anything.
    pub(crate) has_asked_for_made: bool,
    /// The files of which this lane has a write lease.
    pub(crate) writing: BTreeSet<InodeNo>,
    /// Those whose server's connection was lost since.
    pub(crate) writing_ended: Vec<InodeNo>,
    /// What was granted with the last answer besides.
    further: Vec<GrantedAttributes>,
}

impl Leases {
    pub(crate) const fn new() -> Self {
        Self {
            asks: false,
            term_no: 1,
            used_at: Mono(0),
            recalls: VecDeque::new(),
            drop_wanted: false,
            writes_behind: false,
            has_asked_for_made: false,
            writing: BTreeSet::new(),
            writing_ended: Vec::new(),
            further: Vec::new(),
        }
    }

    /// The flag of a request.
    pub(crate) fn flag(&self, exchange: &Exchange) -> u16 {
        let grants = match exchange.op.row().grants {
            Grants::Nothing => false,
            Grants::Pages => exchange.flags & request_flag::LEASES != 0,
            Grants::Attributes
            | Grants::Name
            | Grants::RemovedName
            | Grants::BothNames
            | Grants::Inode
            | Grants::Contents
            | Grants::Entries => true,
        };
        if !(self.asks && grants) {
            return 0;
        }
        let makes = matches!(exchange.op, Op::Create | Op::Mkdir);
        // What this lane says of the lease that it has may come behind the open.
        let opens = exchange.op == Op::Open
            && exchange.flags & request_flag::BEHIND != 0
            && !self.has_writing(exchange);
        let is_behind = (makes || opens) && self.writes_behind;
        request_flag::LEASES | if is_behind { request_flag::BEHIND } else { 0 }
    }

    /// The flag of a Reopen of a file that is written behind.
    pub(crate) fn claim(&self, exchange: &Exchange) -> u16 {
        let claims = exchange.op == Op::Reopen && self.has_writing(exchange);
        if claims { request_flag::BEHIND } else { 0 }
    }

    /// Whether an exchange is about a file of which this lane has a write lease.
    fn has_writing(&self, exchange: &Exchange) -> bool {
        matches!(exchange.target, Target::Inode(inode) if self.writing.contains(&inode))
    }
}

impl Client {
    /// The same client, for a frontend that caches: it asks for leases, and the frontend takes
    /// [`Self::next_granted_answer`], [`Self::next_recall`] and [`Self::take_drop`] in every turn.
    #[must_use]
    pub const fn with_leases(mut self) -> Self {
        self.leases.asks = true;
        self
    }

    /// The same client, for a frontend that also answers writes to files early that it has created,
    /// or has opened for writing alone ([`Granted::writing`]).
    #[must_use]
    pub const fn with_writes_behind(mut self) -> Self {
        self.leases.writes_behind = true;
        self
    }

    /// Nothing of a file or directory that this lane was allowed to change behind is under way, and no
    /// change of it is answered early any more.
    pub fn end_writing(&mut self, inode: InodeNo) {
        if self.leases.writing.remove(&inode) {
            let link_index = self.servers.link_of_inode(inode);
            if let Some(link) = link_index.and_then(|index| self.servers.link_mut(index)) {
                link.leases.written.push(inode);
            }
        }
    }

    /// A directory is removed, or gets extended attributes: its server ends the lease by itself.
    pub fn forget_writing(&mut self, inode: InodeNo) {
        self.close_writing(inode);
    }

    /// A file is closed: its server ends the lease, if there is one.
    pub(crate) fn close_writing(&mut self, inode: InodeNo) {
        self.leases.writing.remove(&inode);
    }

    /// The next answer, and what may be cached of it if that is done in this turn. As
    /// [`Self::next_answer`] otherwise.
    pub fn next_granted_answer(
        &mut self,
        now: Mono,
    ) -> Option<(CallId, Result<Answer, Status>, Granted)> {
        let (call, result, grants) = self.jobs.take_answer()?;
        let root = self.identity.root();
        let of = |inode| if Some(inode) == root { InodeNo::ROOT } else { inode };
        let ignores_recalled = self.config.rules.hold(Rule::LeaseLateGrant);
        let term = Some(self.term()).filter(|term| term.until > now);
        let judged = |grant: Option<OneGrant>| {
            let (grant, term) = (grant?, term?);
            let link = self.servers.link(grant.link_index)?;
            let holds = link.is_up()
                && link.conn_epoch == grant.conn_epoch
                && grant.term_no == term.no
                && (grant.lease_no > link.leases.recalled_no || !ignores_recalled);
            holds.then_some(term.until)
        };
        let attributes_no = grants.attributes.map_or(LeaseNo(0), |grant| grant.lease_no);
        // Of a file over several data shards each part grants its own pages.
        let all_hold = grants.parts.iter().all(|grant| judged(Some(*grant)).is_some());
        let granted = Granted {
            attributes: judged(grants.attributes),
            attributes_no,
            name: judged(grants.name),
            new_name: judged(grants.new_name),
            contents: judged(grants.contents).filter(|_| all_hold),
            entries: judged(grants.entries),
            writing: judged(grants.writing).is_some(),
            named: grants.named.map(|NamedInodes(named)| NamedInodes(named.map(|it| it.map(of)))),
        };
        if let (Ok(Answer::Opened { handle, attr }), Some(_)) = (&result, granted.contents) {
            let is_spread = attr.layout.is_some_and(|layout| layout.is_spread());
            self.handles.set_opened_by(*handle, |by| {
                (by.contents, by.is_spread) = (grants.contents, is_spread);
            });
        }
        let further = grants.further.iter().filter_map(|(attr, grant)| {
            let (attr, lease_no) = (Attr { inode: of(attr.inode), ..*attr }, grant.lease_no);
            Some(GrantedAttributes { attr, until: judged(Some(*grant))?, lease_no })
        });
        let further = further.collect();
        self.leases.further = further;
        if let (
            Ok(Answer::Created { attr, .. } | Answer::Opened { attr, .. } | Answer::Entry(attr)),
            Some(_),
        ) = (&result, grants.writing)
        {
            self.leases.writing.insert(attr.inode);
            if !granted.writing {
                self.end_writing(attr.inode); // It does not know of the lease.
            }
        }
        Some((call, result, granted))
    }

    /// The term of what is cached of this lane's answers.
    #[must_use]
    pub fn term(&self) -> Term {
        let links = self.servers.links().iter().map(|link| link.leases.until);
        let until = links.filter(|until| *until > Mono(0)).min().unwrap_or(Mono(0));
        Term { no: self.leases.term_no, until }
    }

    /// When everything is over that any lane of this client may have cached so far.
    #[must_use]
    pub fn validity_end(&self, now: Mono) -> Mono {
        let terms = self.servers.links().iter().map(|link| link.leases.term_ms);
        now.after_ms(terms.max().unwrap_or(0))
    }

    /// Whether a server has granted anything: servers without leases do not.
    #[must_use]
    pub fn was_granted_any(&self) -> bool {
        self.servers.links().iter().any(|link| link.leases.granted_no > LeaseNo(0))
    }

    /// The frontend was used at this time, by a call or without one.
    pub fn note_use(&mut self, at: Mono) {
        self.leases.used_at = self.leases.used_at.max(at);
    }

    /// What may be cached besides of the answer that [`Self::next_granted_answer`] returned last.
    #[must_use]
    pub fn granted_further(&self) -> &[GrantedAttributes] {
        &self.leases.further
    }

    /// The layout of a file, which another lane of this client has learned.
    pub fn learn_layout(&mut self, inode: InodeNo, layout: Layout) {
        if self.layouts.get(inode).is_none() {
            self.layouts.learn(inode, layout);
        }
    }

    /// The stripes of a file are at several data shards, as its open file says: requests about its
    /// contents need its layout, which another lane of this client has learned.
    pub fn expect_spread(&mut self, inode: InodeNo) {
        self.layouts.expect_spread(inode);
    }

    /// Whether a call that was abandoned may have been executed since: the frontend caches nothing
    /// any more that it has learned so far.
    pub const fn take_late_change(&mut self) -> bool {
        self.jobs.take_late_change()
    }

    /// The next recall: the frontend drops these from all caches, and then calls
    /// [`Self::acknowledge`].
    pub fn next_recall(&mut self) -> Option<(RecallId, Vec<RecalledKey>)> {
        self.leases.recalls.pop_front()
    }

    /// What a recall named is dropped. It is said at the latest by [`Self::settle`].
    pub fn acknowledge(&mut self, id: RecallId) {
        let RecallId { link_index, conn_epoch, recall_no, received_at } = id;
        let link = self.servers.link_mut(link_index);
        // On another connection everything was dropped.
        if let Some(link) = link.filter(|link| link.is_up() && link.conn_epoch == conn_epoch) {
            link.leases.acknowledged.push((recall_no, received_at));
        } else {
            self.counts.recalls.acknowledged_count += 1;
        }
    }

    /// Whether the frontend must drop everything it has cached, once; then it calls
    /// [`Self::dropped`]. Until then nothing is sent on some connections.
    pub const fn take_drop(&mut self) -> bool {
        core::mem::replace(&mut self.leases.drop_wanted, false)
    }

    /// Everything that was cached when [`Self::take_drop`] was called is dropped.
    pub fn dropped(&mut self) {
        if !self.leases.drop_wanted {
            for link in self.servers.links_mut() {
                link.leases.must_drop = false;
            }
        }
    }

    /// Files of which no further write may be answered early, because their server's connection was
    /// lost. The frontend calls [`Self::end_writing`] when nothing of them is under way.
    pub fn take_ended_writing(&mut self) -> Vec<InodeNo> {
        core::mem::take(&mut self.leases.writing_ended)
    }

    /// A buffer of this client with the same bytes, until [`Self::release_copy`].
    pub fn copy(&mut self, turn: &mut Turn<'_>, bulk: Bulk) -> Bulk {
        self.replay_space.copy(turn, bulk)
    }

    /// A buffer of this client with the bytes of several of them, one behind the other.
    pub fn join_copies(&mut self, turn: &mut Turn<'_>, copies: &[Bulk]) -> Bulk {
        self.replay_space.join(turn, copies)
    }

    /// Releases a copy at the end of the turn.
    pub fn release_copy(&mut self, copy: Bulk) {
        self.replay_space.release(copy);
    }

    /// Whether a call would be begun, and not refused at once.
    #[must_use]
    pub fn takes_calls(&self) -> bool {
        self.identity.stopped().is_none() && !self.is_full()
    }

    /// A connection was lost.
    pub(crate) fn lose_leases(&mut self, link_index: usize, now: Mono) {
        let of_link = |inode: &&InodeNo| self.servers.link_of_inode(**inode) == Some(link_index);
        let ended: Vec<InodeNo> = self.leases.writing.iter().filter(of_link).copied().collect();
        self.leases.writing_ended.extend(ended);
        self.check_term(now);
        let Some(link) = self.servers.link_mut(link_index) else { return };
        let unsaid_count = u64::try_from(link.leases.acknowledged.len()).unwrap_or(u64::MAX);
        self.counts.recalls.acknowledged_count += unsaid_count;
        link.leases.acknowledged.clear();
        if core::mem::replace(&mut link.leases.until, Mono(0)) > Mono(0) {
            link.leases.must_drop = true;
            self.leases.drop_wanted = true;
            self.end_term();
        }
    }

    /// Ends the term if it is over for one of the links: nothing that was granted in it comes back.
    pub(crate) fn check_term(&mut self, now: Mono) {
        let over = |link: &Link| link.leases.until > Mono(0) && link.leases.until <= now;
        if !self.servers.links().iter().any(over) {
            return;
        }
        for link in self.servers.links_mut().iter_mut().filter(|link| over(link)) {
            link.leases.until = Mono(0);
        }
        self.end_term();
    }

    /// How many terms have ended.
    pub(crate) const fn terms_ended_count(&self) -> u64 {
        self.leases.term_no - 1
    }

    fn end_term(&mut self) {
        self.leases.term_no += 1;
        self.end_all_kept(|_| true);
        self.register_all_local();
    }

    /// Renews the terms that nothing else renews.
    pub(crate) fn ping(&mut self, now: Mono) {
        if now >= self.leases.used_at.after_ms(USED_MS_MAX) {
            return;
        }
        for link_index in 0..self.servers.links().len() {
            let Some(link) = self.servers.link_mut(link_index) else { return };
            if ping_at(link).is_some_and(|at| at <= now) {
                link.leases.asked_at = now;
                let request = NewRequest::new(Plan::Ping, Op::Ping, Target::Link(link_index));
                let body = self.requests.take_body();
                self.begin_job(None, request, body);
            }
        }
    }

    /// When the next Ping is due, or the term ends.
    pub(crate) fn term_deadline(&self, now: Mono) -> Option<Mono> {
        let until = Some(self.term().until).filter(|until| *until > Mono(0));
        let idle_at = self.leases.used_at.after_ms(USED_MS_MAX);
        let pings = self.servers.links().iter().filter_map(ping_at);
        pings.filter(|at| now.max(*at) < idle_at).chain(until).min()
    }

    /// A reply renews the term of its lane, and may grant leases.
    pub(crate) fn on_granted(
        &mut self,
        now: Mono,
        (link_index, exchange_id): (usize, usize),
        reply: ReplyGrant,
    ) {
        self.check_term(now);
        let Some(exchange) = self.requests.get(exchange_id) else { return };
        let Some(link) = self.servers.link_mut(link_index) else { return };
        let Exchange { job_id, op, sent_at, is_split, .. } = *exchange;
        let ReplyGrant { lease, further, named, .. } = reply;
        let granted = lease.map_or(0, |lease| lease.granted & !lease_flag::NAMED_INODES);
        let granted_count = granted.count_ones() as usize;
        let granted_count = u64::try_from(granted_count + further.len()).unwrap_or(u64::MAX);
        self.counts.granted_count += granted_count;
        let (conn_epoch, leases) = (link.conn_epoch, &mut link.leases);
        // What a recall names is answered from the cache until the frontend has taken the recall.
        if leases.until > Mono(0) && self.leases.recalls.is_empty() {
            leases.until = leases.until.max(leases.term_from(sent_at));
        }
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.grants.named = named;
        }
        let grants = |lease: &LeaseGrant| lease.lease_no > LeaseNo(0);
        let Some(lease) = lease.filter(grants).filter(|_| self.leases.asks) else { return };
        leases.granted_no = leases.granted_no.max(lease.lease_no);
        leases.term_ms = lease.term_ms.into();
        let until = leases.term_from(sent_at);
        if leases.until == Mono(0) && until > now {
            (leases.until, leases.began_at) = (until, sent_at);
        }
        // A request that was sent before the term may have been executed in an earlier one.
        let holds = leases.until > Mono(0) && sent_at >= leases.began_at;
        let term_no = if holds { self.leases.term_no } else { 0 };
        let grant = OneGrant { link_index, conn_epoch, lease_no: lease.lease_no, term_no };
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.grants.add(op, lease.granted, grant);
            if is_split && op == Op::Read && lease.granted & lease_flag::CONTENTS != 0 {
                job.grants.parts.push(grant);
            }
            job.grants.further.extend(further.into_iter().map(|attr| (attr, grant)));
        }
    }

    /// Applies a recall.
    pub(crate) fn on_recall(
        &mut self,
        now: Mono,
        link_index: usize,
        recall: &Recall<'_>,
    ) -> Result<(), ProtocolError> {
        let root = self.identity.root();
        let asks = self.leases.asks;
        let link = self.servers.link_mut(link_index).filter(|link| asks && link.is_up());
        // Only a client that asks for leases receives recalls.
        let link = link.ok_or(ProtocolError::Kind)?;
        link.leases.recalled_no = link.leases.recalled_no.max(recall.lease_no_max);
        let of = |inode| if Some(inode) == root { InodeNo::ROOT } else { inode };
        let keys = recall.keys.iter().map(|key| match key {
            LeaseKey::Attributes(inode) => RecalledKey::Attributes(of(inode)),
            LeaseKey::Name(dir, name) => RecalledKey::Name(of(dir), name.bytes().to_vec()),
            LeaseKey::Contents(inode) => RecalledKey::Contents(of(inode)),
            LeaseKey::Pages(inode) => RecalledKey::Pages(inode),
            LeaseKey::Writing(inode) => RecalledKey::Writing(inode),
            LeaseKey::All => RecalledKey::All,
        });
        let (conn_epoch, recall_no) = (link.conn_epoch, recall.recall_no);
        let id = RecallId { link_index, conn_epoch, recall_no, received_at: now };
        let keys: Vec<RecalledKey> = keys.collect();
        self.counts.recalls.count(&keys);
        for key in &keys {
            match key {
                RecalledKey::Contents(inode) => self.forget_kept(*inode),
                RecalledKey::All => self.end_kept_of(link_index),
                RecalledKey::Attributes(_)
                | RecalledKey::Name(..)
                | RecalledKey::Pages(_)
                | RecalledKey::Writing(_) => {}
            }
        }
        self.leases.recalls.push_back((id, keys));
        Ok(())
    }

    /// Whether a link's connection must wait until the frontend has dropped everything.
    pub(crate) fn must_drop_first(&self, link_index: usize) -> bool {
        self.servers.link(link_index).is_some_and(|link| link.leases.must_drop)
    }

    /// Tells the server what was dropped.
    pub(crate) fn send_dropped(&mut self, turn: &mut Turn<'_>, link_index: usize, conn: ConnId) {
        let Some(link) = self.servers.link_mut(link_index) else { return };
        let leases = &mut link.leases;
        let mut dropped_until = LeaseNo(0);
        if !leases.must_drop {
            core::mem::swap(&mut dropped_until, &mut leases.dropped_until);
        }
        let nothing = leases.acknowledged.is_empty()
            && dropped_until == LeaseNo(0)
            && leases.written.is_empty();
        if nothing || link.goodbye_sent {
            return;
        }
        let mut numbers = Vec::new();
        let acknowledged = core::mem::take(&mut leases.acknowledged);
        for (recall_no, received_at) in &acknowledged {
            self.counts.recalls.acknowledged_count += 1;
            self.counts.recalls.time_ns += turn.now.mono.since_ns(*received_at);
            recall_no.encode(&mut Writer::new(&mut numbers));
        }
        let count = u32::try_from(acknowledged.len()).unwrap_or(u32::MAX);
        let recall_nos = List::new(count, &numbers);
        let written = core::mem::take(&mut leases.written);
        let written_count = u32::try_from(written.len()).unwrap_or(u32::MAX);
        let mut inodes = Vec::new();
        written.iter().for_each(|inode| inode.encode(&mut Writer::new(&mut inodes)));
        let written = List::new(written_count, &inodes);
        let ack = RecallAck { recall_nos, dropped_until, written };
        let frame =
            turn.arena.write(|out| Header::RecallAck.encode(out, None, |to| to.write(&ack)));
        turn.act(NetAction::Send { conn, frame, bulk: None });
    }
}

/// When a lane that has granted leases needs another request.
fn ping_at(link: &Link) -> Option<Mono> {
    let LinkLeases { until, asked_at, term_ms, .. } = &link.leases;
    let renews = link.is_up() && !link.goodbye_sent && *until > Mono(0);
    renews.then(|| asked_at.after_ms(term_ms / 3))
}
