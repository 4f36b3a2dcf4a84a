//! Recalls: started by a request that conflicts with leases, sent at the end of the turn, ended by
//! an acknowledgement, by the client's word that it has dropped everything, by its Goodbye, or by
//! the term.

use super::Leases;
use super::barriers::BarrierNo;
use super::outgoing::{Keys, Outgoing, SentRecall};
use crate::Lane;
use crate::request::ReceivedRequest;
use crate::waiters::Cause;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use interface::{ConnId, Mono, NetAction, Turn};
use meta::{LeaseConflict, LeaseKey};
use wire::{
    Changes, ClientUuid, Executor, Header, InodeNo, LeaseNo, List, ProtocolError, Recall,
    RecallAck, RecallNo, Rule, SessionId, ShardId, Wire as _, Writer,
};

impl Leases {
    /// A session has acknowledged recalls, and dropped everything up to a grant. Adds the keys
    /// concerned.
    fn acknowledge(
        &mut self,
        session: SessionId,
        recall_nos: impl Iterator<Item = RecallNo>,
        dropped_until: LeaseNo,
        touched: &mut Vec<LeaseKey>,
    ) {
        // Dropped leases are those that are cached: what is written behind ends when it is written.
        for recall_no in recall_nos {
            // Others' recalls are not this session's to acknowledge.
            if self.recalls.get(&recall_no).is_none_or(|recall| recall.session != session) {
                continue;
            }
            let Some(recall) = self.recalls.remove(&recall_no) else { continue };
            if recall.all {
                self.table.end_all(session, recall.lease_no_max);
                self.touch_recalled(session, recall.lease_no_max, touched);
            }
            for key in &recall.keys {
                if let LeaseKey::Writing(inode) = key {
                    self.end_recalled_writing(*inode, (session, recall.lease_no_max));
                } else {
                    self.table.end(*key, session, recall.lease_no_max);
                }
            }
            touched.extend(recall.keys);
        }
        if dropped_until.0 > 0 {
            self.drop_all(session, dropped_until, touched);
        }
    }

    /// All leases of a session up to a grant have ended. Adds the keys that were recalled from it.
    fn drop_all(&mut self, session: SessionId, up_to: LeaseNo, touched: &mut Vec<LeaseKey>) {
        self.table.end_all(session, up_to.min(self.lease_no_last));
        self.touch_recalled(session, up_to, touched);
    }

    fn touch_recalled(&mut self, session: SessionId, up_to: LeaseNo, touched: &mut Vec<LeaseKey>) {
        self.recalls.retain(|_, recall| {
            let ends = recall.session == session && recall.lease_no_max <= up_to;
            if ends {
                touched.append(&mut recall.keys);
            }
            !ends
        });
        // Those that leave only at the end of this turn.
        let outgoing = self.outgoing.get(&session);
        let frames = outgoing.iter().flat_map(|outgoing| &outgoing.frames);
        touched.extend(frames.flat_map(|frame| &frame.keys));
    }
}

impl Leases {
    /// What clients change behind at a shard, and with which session.
    pub(crate) fn written_at(
        &self,
        shard: ShardId,
    ) -> impl Iterator<Item = (InodeNo, ClientUuid, SessionId)> {
        let all = self.writing.files.iter();
        let all = all.map(|(inode, writer)| (*inode, writer.client, writer.lease.session));
        all.filter(move |(inode, ..)| inode.shard() == shard)
    }

    /// Recalls the write leases of these. The barrier ends with the last of them.
    pub(crate) fn begin_barrier(&mut self, inodes: BTreeSet<InodeNo>, now: Mono) -> BarrierNo {
        inodes.iter().for_each(|inode| self.recall_from_writer(*inode, now));
        self.counts.wait_count += 1;
        self.barriers.add(inodes)
    }
}

impl Lane {
    /// The same as [`Self::waits_for_leases`] for a request that changes nothing.
    pub(crate) fn waits_for_writers(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let may_wait = self.leases.has_writing() || !self.telling.is_empty();
        may_wait && self.waits_for_leases(turn, received)
    }

    /// Suspends a request that changes what other clients cache, and recalls it. Returns whether
    /// it did.
    pub(crate) fn waits_for_leases(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        if self.waits_until_told(turn, received) {
            return true;
        }
        let row = received.request.op.row();
        let changes = row.executor == Executor::Metadata && row.changes != Changes::Never;
        let is_behind = row.executor == Executor::Metadata
            && self.leases.has_writing()
            && self.config.rules.hold(Rule::WriteBehind);
        if self.leases.is_empty() || !(changes || is_behind) {
            return false;
        }
        let index = self.meta_index(received.request.shard);
        let ask = self.meta_request(turn, received);
        let mut conflicts = Vec::new();
        if changes {
            self.metas[index].lease_conflicts(&ask, &mut conflicts);
        }
        if is_behind {
            self.metas[index].writing_conflicts((ask.op, ask.body), &mut conflicts);
        }
        let client = received.open.client;
        let Some(first) = self.recall_all(&conflicts, client, turn.now.mono) else {
            return false;
        };
        let keys = keys_of(&conflicts);
        self.leases.begin_wait(&keys, turn.now.mono);
        self.suspend_for_leases(turn, received, (first, keys));
        true
    }

    /// Recalls what conflicts with a change of a client. Returns the first key with a lease.
    fn recall_all(
        &mut self,
        conflicts: &[LeaseConflict],
        client: ClientUuid,
        now: Mono,
    ) -> Option<LeaseKey> {
        if !self.config.rules.hold(Rule::LeaseRecall) {
            return None;
        }
        let mut first = None;
        for conflict in conflicts {
            if self.leases.recall(conflict, client, now) {
                first.get_or_insert(conflict.key);
            }
        }
        first
    }

    /// The same for what a coordinator requires of a shard of this lane. Returns whether it has to
    /// retry.
    pub(crate) fn recall_required(
        &mut self,
        turn: &Turn<'_>,
        (shard, client): (ShardId, ClientUuid),
        wants: &[u8],
    ) -> bool {
        if self.leases.is_empty() && self.telling.is_empty() {
            return false;
        }
        let mut conflicts = Vec::new();
        self.metas[self.meta_index(shard)].required_lease_conflicts(wants, &mut conflicts);
        let found = self.recall_all(&conflicts, client, turn.now.mono).is_some()
            || self.telling.first_of(&conflicts).is_some();
        if found {
            self.leases.begin_retry(&keys_of(&conflicts), turn.now.mono);
        }
        found
    }

    /// An export has changed: its clients drop what they cache. Nothing waits for that.
    pub(crate) fn recall_from(&mut self, clients: &[ClientUuid]) {
        for session in self.leases.table.sessions_of(clients) {
            self.leases.outgoing.entry(session).or_default().all = true;
        }
    }

    /// An export is read-only from now on: its clients answer no change early any more, and say so
    /// when what they have under way was executed.
    pub(crate) fn recall_writing_from(&mut self, clients: &[ClientUuid], now: Mono) {
        let held = clients.iter().flat_map(|client| self.leases.written_by(*client));
        for inode in held.collect::<Vec<_>>() {
            self.leases.recall_from_writer(inode, now);
        }
    }

    /// Sends the recalls of this turn. A session without a connection drops everything when it
    /// reconnects.
    pub(crate) fn send_recalls(&mut self, turn: &mut Turn<'_>) {
        self.end_removed(turn);
        self.leases.writing.made.expire(turn.now.mono);
        while let Some((session, outgoing)) = self.leases.outgoing.pop_first() {
            let Outgoing { mut frames, all } = outgoing;
            if all {
                let mut encoded = Vec::new();
                wire::LeaseKey::All.encode(&mut Writer::new(&mut encoded));
                let lease_no_max = self.leases.lease_no_last;
                let until = self.leases.term_from(turn.now.mono);
                frames.push(Keys { encoded, keys: Vec::new(), lease_no_max, until });
            }
            for frame in frames {
                let Keys { encoded, keys, lease_no_max, until } = frame;
                let all = all && keys.is_empty();
                self.leases.recall_no_last.0 += 1;
                let recall_no = self.leases.recall_no_last;
                let count = u32::try_from(keys.len().max(1)).unwrap_or(u32::MAX);
                let sent = SentRecall { session, keys, lease_no_max, until, all };
                self.leases.recalls.insert(recall_no, sent);
                let Some(conn) = self.sessions.conn_of(session) else { continue };
                let keys = List::new(count, &encoded);
                let recall = Recall { recall_no, lease_no_max, keys };
                let frame = turn
                    .arena
                    .write(|out| Header::Recall.encode(out, None, |to| to.write(&recall)));
                turn.act(NetAction::Send { conn, frame, bulk: None });
            }
        }
    }

    /// A client has dropped leases.
    pub(crate) fn on_recall_ack(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        body: &[u8],
    ) -> Result<(), ProtocolError> {
        let ack = RecallAck::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
        let Some(served) = self.connections.served_mut(conn) else { return Ok(()) };
        let session = served.session();
        let mut touched = Vec::new();
        let RecallAck { recall_nos, dropped_until, written } = ack;
        self.leases.acknowledge(session, recall_nos.iter(), dropped_until, &mut touched);
        for inode in written.iter() {
            if self.leases.end_writing(inode, session) {
                touched.push(LeaseKey::Writing(inode));
            }
        }
        self.end_leases(turn, touched);
        Ok(())
    }

    /// A session has ended in order: it has dropped all its leases.
    pub(crate) fn drop_leases_of(&mut self, turn: &mut Turn<'_>, session: SessionId) {
        let mut touched = Vec::new();
        self.leases.drop_all(session, LeaseNo(u64::MAX), &mut touched);
        self.leases.end_writing_of(session, &mut touched);
        self.end_leases(turn, touched);
    }

    /// Recalled leases have expired.
    pub(crate) fn expire_leases(&mut self, turn: &mut Turn<'_>) {
        let mut expired = Vec::new();
        while let Some(key) = self.leases.next_expired(turn.now.mono) {
            // What its holder has under way cannot be executed during a freeze.
            if let LeaseKey::Writing(inode) = key
                && self.freeze.is_on()
                && self.leases.has_writer(inode)
            {
                self.leases.set_expiry(key, self.leases.term_from(turn.now.mono));
                continue;
            }
            if let LeaseKey::Writing(inode) = key
                && let Some(client) = self.leases.take_writing(inode, turn.now.mono)
            {
                self.fence_writer(turn, (inode, client));
            }
            expired.push(key);
        }
        self.leases.forget_recalls(turn.now.mono);
        self.end_leases(turn, expired);
    }

    /// Leases of these keys have ended: what waited for the last of a key goes on.
    pub(super) fn end_leases(&mut self, turn: &mut Turn<'_>, touched: Vec<LeaseKey>) {
        let (mut any, mut with_pages, mut barriers) = (false, Vec::new(), Vec::new());
        for key in touched {
            if self.leases.has_ended(key, turn.now.mono) {
                self.waiters.make_due(&Cause::Lease(key));
                any = true;
                if let LeaseKey::Pages(inode) = key {
                    with_pages.push(inode);
                } else if let LeaseKey::Writing(inode) = key {
                    self.leases.barriers.end(inode, &mut barriers);
                }
            }
        }
        with_pages.into_iter().for_each(|inode| self.on_pages_ended(turn, inode));
        barriers.into_iter().for_each(|barrier_no| self.end_barrier(turn, barrier_no));
        if any {
            self.work(turn);
            self.run_early_sizings(turn);
            self.run_early_parts(turn);
        }
    }

    /// A connection has ended. Its leases stay: the client may still answer from them.
    pub(crate) fn on_lease_holder_gone(&mut self, turn: &mut Turn<'_>, session: SessionId) {
        if !self.config.rules.hold(Rule::LeaseReconnect) {
            self.drop_leases_of(turn, session);
        }
    }
}

/// The keys of conflicts.
fn keys_of(conflicts: &[LeaseConflict]) -> Box<[LeaseKey]> {
    conflicts.iter().map(|conflict| conflict.key).collect()
}
