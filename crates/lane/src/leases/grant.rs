//! Grants: what the reply to an executed request lets its client cache.

use super::table::{Lease, Refusal};
use super::{Leases, RECORDED_COUNT_MAX};
use crate::Lane;
use crate::acknowledgements::Gate;
use crate::request::ReceivedRequest;
use alloc::vec::Vec;
use disk::{Change, ClientChange};
use interface::{Mono, Turn};
use meta::LeaseKey;
use wire::{
    Attr, Changes, ClientUuid, Dirent, Grants, HEADER_BYTES, InodeNo, LeaseGrant, LeaseNo,
    NamedInodes, NewFiles, Op, OpenFor, Reader, Retry, Rule, SessionId, ShardId, SquashedIds,
    Status, Wire as _, lease_flag, request_flag,
};

/// What a reply grants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplyLease {
    pub(crate) grant: LeaseGrant,
    /// The encoded attributes of further inodes.
    pub(crate) further: Vec<u8>,
    pub(crate) new_files: Option<NewFiles>,
    /// What the request has changed besides.
    pub(crate) named: Option<NamedInodes>,
}

impl ReplyLease {
    /// It grants nothing.
    fn naming(named: NamedInodes) -> Self {
        let (lease_no, granted) = (LeaseNo(0), lease_flag::NAMED_INODES);
        let grant = LeaseGrant { lease_no, term_ms: 0, granted, further_count: 0 };
        Self { grant, further: Vec::new(), new_files: None, named: Some(named) }
    }
}

/// A reply that is being given leases.
#[derive(Clone, Copy, Debug)]
struct Granting {
    holder: (SessionId, ClientUuid),
    index: usize,
    lease_no: LeaseNo,
    now: Mono,
}

impl Leases {
    /// Grants a key, unless something speaks against it.
    fn grant(&mut self, key: LeaseKey, granting: Granting, rules: wire::Rules) -> bool {
        let Granting { holder, lease_no, now, .. } = granting;
        if rules.hold(Rule::LeaseWaiter) && self.is_awaited(key, now) {
            return false;
        }
        if self.heat.is_hot(key, now) {
            self.counts.refused_hot_count += 1;
            return false;
        }
        let (session, client) = holder;
        let times = (now, self.term_from(now));
        self.table.renew(session, times, self.lease_no_last);
        match self.table.grant(key, client, Lease::new(session, lease_no, now), times) {
            Ok(()) => {
                self.counts.granted_count += 1;
                self.lease_no_last = lease_no;
                true
            }
            Err(Refusal::Share(too_large)) => {
                self.counts.refused_share_count += 1;
                if let Some(session) = too_large {
                    self.outgoing.entry(session).or_default().all = true;
                }
                false
            }
            Err(Refusal::Recalled) => false,
        }
    }
}

impl Lane {
    /// What the reply to a request grants that was executed with this status; its message lies in
    /// [`crate::scratch::Scratch`].
    pub(crate) fn grant(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        status: Status,
    ) -> Option<ReplyLease> {
        let request = received.request;
        let row = request.op.row();
        if request.flags & request_flag::LEASES == 0 || row.grants == Grants::Nothing {
            return None;
        }
        // That a name does not exist is worth knowing as well.
        let absent = row.grants == Grants::Name
            && row.retry == Retry::Repeat
            && status == Status::NotFound
            && received.denied.is_none();
        let client = received.open.client;
        if !(status == Status::Ok || absent) {
            return None;
        }
        let named = self.named_inodes(request.op);
        if !self.may_grant(received) {
            return named.map(ReplyLease::naming);
        }
        let granting = Granting {
            holder: (request.session, client),
            index: self.meta_index(request.shard),
            lease_no: LeaseNo(self.leases.lease_no_last.0 + 1),
            now: turn.now.mono,
        };
        if request.flags & request_flag::BEHIND != 0 {
            self.ask_for_space(turn);
        }
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let names = self.metas[granting.index].leasable_names(request.op, body);
        let mut entry_count = 0;
        let granted = match row.grants {
            // Pages are granted before a read begins.
            Grants::Nothing | Grants::Pages => 0,
            // Who caches attributes shows them exactly.
            Grants::Attributes if self.shows_late_space(request.shard) => 0,
            Grants::Attributes => {
                let Granting { holder, lease_no, now, .. } = granting;
                let attributes = self.grant_attributes(granting);
                attributes | self.grant_made((holder, lease_no, now), received, attributes)
            }
            Grants::Name => {
                let name = self.grant_key(names[0], granting, lease_flag::NAME);
                if absent {
                    name
                } else {
                    let Granting { holder, lease_no, now, .. } = granting;
                    let writing = self.grant_writing((holder, lease_no, now), received, body);
                    name | self.grant_attributes(granting) | writing
                }
            }
            Grants::RemovedName => self.grant_key(names[0], granting, lease_flag::NAME),
            Grants::Inode => 0,
            Grants::BothNames => {
                self.grant_key(names[0], granting, lease_flag::NAME)
                    | self.grant_key(names[1], granting, lease_flag::NEW_NAME)
            }
            Grants::Contents => {
                let Granting { holder, lease_no, now, .. } = granting;
                let opened = self.grant_opened(granting, body);
                opened | self.grant_writing_opened((holder, lease_no, now), received, body)
            }
            Grants::Entries => {
                entry_count = self.grant_entries(granting, request.op.inodes(body)[0]);
                0
            }
        };
        let mut further =
            if absent { Vec::new() } else { self.grant_further(granting, (request.op, body)) };
        self.grant_settled(granting, &mut further);
        let Granting { holder, lease_no, .. } = granting;
        let new_files = self.give_new_files((holder, lease_no), received, (body, granted));
        let is_nothing =
            granted == 0 && entry_count == 0 && further.is_empty() && new_files.is_none();
        if is_nothing {
            return named.map(ReplyLease::naming);
        }
        let given = if new_files.is_some() { lease_flag::NEW_FILES } else { 0 };
        let names = if named.is_some() { lease_flag::NAMED_INODES } else { 0 };
        let lease = self.lease(granting, granted | given | names, &further);
        Some(ReplyLease { new_files, named, ..lease })
    }

    /// The inodes that a removal or rename has changed besides the directories of the names, if they
    /// are as few as can be named. A client that knew none of the names forgets no others then.
    fn named_inodes(&self, op: Op) -> Option<NamedInodes> {
        let is_named = matches!(op.row().grants, Grants::RemovedName | Grants::BothNames);
        if !is_named || self.leases.term_ms == 0 {
            return None;
        }
        let mut named = NamedInodes::default();
        for change in disk::Changes::new(self.scratch.changes()) {
            let inode = match change {
                Ok(Change::Inode { row }) => row.inode,
                Ok(Change::InodeRemoved { inode } | Change::DirAttrs { inode, .. }) => inode,
                Ok(_) => continue,
                Err(_) => return None,
            };
            if !named.0.contains(&Some(inode)) {
                *named.0.iter_mut().find(|place| place.is_none())? = Some(inode);
            }
        }
        Some(named)
    }

    fn lease(&self, granting: Granting, granted: u8, further: &[Attr]) -> ReplyLease {
        let term_ms = u32::try_from(self.leases.term_ms).unwrap_or(u32::MAX);
        let further_count = u8::try_from(further.len()).unwrap_or(u8::MAX);
        let grant = LeaseGrant { lease_no: granting.lease_no, term_ms, granted, further_count };
        let further = further.iter().flat_map(Attr::to_bytes).collect();
        ReplyLease { grant, further, new_files: None, named: None }
    }

    /// Grants the attributes of inodes that the reply's message does not show, as they are after
    /// the request: of the directories whose names it changed, or that it listed, and of inodes
    /// whose number of names changed.
    fn grant_further(&mut self, granting: Granting, (op, body): (Op, &[u8])) -> Vec<Attr> {
        let row = op.row();
        let (client, meta) = (granting.holder.1, &self.metas[granting.index]);
        let mut inodes: Vec<InodeNo> = if matches!(row.grants, Grants::Inode | Grants::Entries) {
            op.inodes(body)[0].into_iter().collect()
        } else if row.changes == Changes::Always {
            meta.leasable_directories((op, body), client).into_iter().flatten().collect()
        } else {
            return Vec::new();
        };
        if matches!(row.grants, Grants::RemovedName | Grants::BothNames) {
            let changes = disk::Changes::new(self.scratch.changes());
            let changed = changes.filter_map(|change| match change {
                Ok(Change::Inode { row }) if row.nlink > 0 => Some(row.inode),
                Ok(Change::DirAttrs { inode, .. }) => Some(inode),
                Ok(_) | Err(_) => None,
            });
            inodes.extend(changed);
        }
        inodes.truncate(usize::from(LeaseGrant::FURTHER_COUNT_MAX));
        let mut further = Vec::new();
        for inode in inodes {
            let meta = &self.metas[granting.index];
            let attr = meta.attributes(inode).filter(|_| meta.is_leasable(inode, client));
            let key = LeaseKey::Attributes(inode);
            if let Some(attr) = attr
                && self.leases.grant(key, granting, self.config.rules)
            {
                further.push(attr);
            }
        }
        further
    }

    /// Adds the attributes of files that were settled since the session was granted them.
    fn grant_settled(&mut self, granting: Granting, further: &mut Vec<Attr>) {
        let (session, client) = granting.holder;
        while further.len() < usize::from(LeaseGrant::FURTHER_COUNT_MAX) {
            let Some(inode) = self.leases.settled.take(session) else { return };
            let key = LeaseKey::Attributes(inode);
            let mut held = self.leases.table.live(key, granting.now).iter();
            let is_held = held.any(|lease| lease.session == session && !lease.is_recalled());
            if !is_held || !self.is_own(inode.shard()) {
                continue;
            }
            let meta = &self.metas[self.meta_index(inode.shard())];
            let attr = meta.attributes(inode).filter(|attr| !attr.is_size_at_data());
            if let Some(attr) = attr.filter(|_| meta.is_leasable(inode, client))
                && self.leases.grant(key, granting, self.config.rules)
            {
                further.push(attr);
            }
        }
    }

    /// Whether a client may be granted anything now.
    fn may_grant(&mut self, received: &ReceivedRequest<'_>) -> bool {
        self.grants_to_recorded(received)
            && (!self.config.rules.hold(Rule::LeaseRestart)
                || self.is_recorded((received.request.shard, received.request.session)))
    }

    /// Whether it may, if its session is recorded.
    fn grants_to_recorded(&self, received: &ReceivedRequest<'_>) -> bool {
        let replaced = received.open.binding.squash.ids == SquashedIds::All;
        self.leases.term_ms > 0 && !replaced && self.recovery.is_over() && !self.commit.has_failed()
    }

    /// Suspends a request that asks for what its client may change behind until its session is durably
    /// recorded: what it grants, as that a new directory is empty, no later reply can grant. Returns
    /// whether it did. It waits for one flush, once for each session.
    pub(crate) fn waits_for_record(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        const ASKS: u16 = request_flag::LEASES | request_flag::BEHIND;
        let request = received.request;
        let asks = request.flags & ASKS == ASKS
            && matches!(request.op, Op::Mkdir | Op::Getattr | Op::Create | Op::Open);
        let asks = asks && self.config.rules.hold(Rule::LeaseRestart);
        let key = (request.shard, request.session);
        if !asks || !self.grants_to_recorded(received) || self.is_recorded(key) {
            return false;
        }
        // Without space for a record there is none to wait for.
        let recorded_in = self.sessions.table(key).and_then(|table| table.recorded_in);
        let Some(batch_no) = recorded_in else { return false };
        self.ask_for_space(turn);
        self.suspend_for_record(turn, received, Gate::of(key.0, batch_no));
        true
    }

    /// Whether the next recovery awaits a session: it is durably recorded at a shard of this lane. If
    /// it is not, it is recorded where it asks. Another session of its client does not do: that lane
    /// of the client may be back while this one still answers from its cache.
    pub(super) fn is_recorded(&mut self, (shard, session): (ShardId, SessionId)) -> bool {
        let known = self.leases.recorded.get(&session).copied();
        let mut likely = [Some(shard), known].into_iter().flatten();
        if likely.any(|shard| self.is_safely_recorded((shard, session))) {
            return true;
        }
        let found = self.shards().into_iter().find(|at| self.is_safely_recorded((*at, session)));
        match found {
            Some(at) => {
                if self.leases.recorded.len() >= RECORDED_COUNT_MAX {
                    self.leases.recorded.clear();
                }
                self.leases.recorded.insert(session, at);
            }
            None => {
                self.leases.recorded.remove(&session);
                self.record_session((shard, session));
            }
        }
        found.is_some()
    }

    /// Records a session that has changed nothing at a shard, unless records of contents come first.
    pub(crate) fn record_session(&mut self, (shard, session): (ShardId, SessionId)) {
        if shard.is_data() && !self.data.is_recorded(shard) {
            return;
        }
        let Some(row) = self.sessions.get(session).map(|session| session.row) else { return };
        let open_no = self.commit.open_no();
        let has_space = self.space_for_own() && !self.is_stopping();
        let table = self.sessions.table_or_new((shard, session));
        if has_space && table.recorded_in.is_none() {
            table.recorded_in = Some(open_no);
            let opened = ClientChange::SessionOpened { session, row };
            self.record_of_lane(shard, &Change::Client(opened));
        }
    }

    fn is_safely_recorded(&self, key: (ShardId, SessionId)) -> bool {
        let recorded_in = self.sessions.table(key).and_then(|table| table.recorded_in);
        recorded_in.is_some_and(|batch_no| self.commit.is_safe(Gate::of(key.0, batch_no)))
    }

    fn grant_key(&mut self, key: Option<LeaseKey>, granting: Granting, flag: u8) -> u8 {
        let granted = key.is_some_and(|key| self.leases.grant(key, granting, self.config.rules));
        if granted { flag } else { 0 }
    }

    /// Grants the attributes of the inode that the reply shows.
    fn grant_attributes(&mut self, granting: Granting) -> u8 {
        let Some(inode) = self.shown_inode(granting) else { return 0 };
        self.grant_key(Some(LeaseKey::Attributes(inode)), granting, lease_flag::ATTRIBUTES)
    }

    /// The inode whose attributes begin the reply, if they may be cached.
    fn shown_inode(&self, granting: Granting) -> Option<InodeNo> {
        let inode: InodeNo = Reader::new(self.scratch.reply()).read().ok()?;
        self.metas[granting.index].is_leasable(inode, granting.holder.1).then_some(inode)
    }

    /// Grants the attributes of an opened file and, if the handle cannot change them, its contents.
    fn grant_opened(&mut self, granting: Granting, body: &[u8]) -> u8 {
        let opened = wire::Open::decode_all(body).map(|open| open.handle.open_for);
        let granted = self.grant_attributes(granting);
        let Some(inode) = self.shown_inode(granting).filter(|_| granted != 0) else { return 0 };
        if !opened.is_ok_and(|open_for| !OpenFor::writes(open_for)) {
            return granted;
        }
        granted | self.grant_key(Some(LeaseKey::Contents(inode)), granting, lease_flag::CONTENTS)
    }

    /// Grants names and attributes of listed entries, and marks them in the reply. Returns how
    /// many.
    fn grant_entries(&mut self, granting: Granting, dir: Option<InodeNo>) -> usize {
        let Some(dir) = dir else { return 0 };
        let mut reply = self.scratch.take_reply();
        let mut marks = Vec::new();
        let reply_bytes = reply.len();
        let mut from = Reader::new(&reply);
        let head: Result<(InodeNo, bool, u32), _> =
            from.read().and_then(|parent| Ok((parent, from.read()?, from.read()?)));
        let entry_count = head.map_or(0, |(_, _, count)| count);
        for _ in 0..entry_count {
            let Ok(entry) = from.read::<Dirent<'_>>() else { break };
            // The mark is the last byte of an entry.
            let mark = reply_bytes - from.left() - 1;
            if entry.attr.is_some() && self.grant_entry(granting, dir, &entry) {
                marks.push(mark);
            }
        }
        marks.iter().for_each(|mark| reply[*mark] = u8::from(true));
        self.scratch.return_reply(reply);
        marks.len()
    }

    fn grant_entry(&mut self, granting: Granting, dir: InodeNo, entry: &Dirent<'_>) -> bool {
        let meta = &self.metas[granting.index];
        let name = meta.leasable_name(dir, entry.name);
        let leasable = meta.is_leasable(entry.inode, granting.holder.1);
        let attributes = LeaseKey::Attributes(entry.inode);
        leasable
            && self.grant_key(Some(attributes), granting, lease_flag::ATTRIBUTES) != 0
            && self.grant_key(name, granting, lease_flag::NAME) != 0
    }
}
