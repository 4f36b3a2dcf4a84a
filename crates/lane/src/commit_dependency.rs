//! Reply gating (docs/protocol.md §6): the batch that a reply depends on.
//!
//! A request is executed at once. Its reply leaves when every change that it depends on is durable,
//! except changes that its own client would replay. A dependency is a batch that is not safe for
//! the shard of the change. As in docs/protocol.md §3, a change counts as received when its
//! client's requests to this lane acknowledge it: some replies wait without need, but none leaves
//! too early.

use crate::Lane;
use crate::acknowledgements::{Gate, Scope};
use crate::config::Share;
use crate::last_writer::{DirWriters, LastWriter};
use crate::request::ReceivedRequest;
use crate::request_header::SlotId;
use crate::session::State;
use meta::{AccessMode, DependencyKey, KeyAccess};
use wire::{ClientUuid, Created, InodeNo, Op, Rule, ShardId, Status, Transno, Wire, request_flag};

/// Why a reply waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// For a change of its own client, which may lack the reply to it.
    OwnUnacked,
    /// For another client's change.
    Foreign,
    /// For the changes that it shows (`--share strict`).
    Strict,
    /// For its own change.
    Itself,
}

/// The batch that a reply waits for, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommitDependency {
    pub(crate) until: Gate,
    pub(crate) reason: Reason,
}

impl CommitDependency {
    /// Both: the later of two, of equals the first. Of changes of two shards, what every shard of
    /// the lane requires.
    pub(crate) fn later(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        let later = if other.until.batch_no > one.until.batch_no { other } else { one };
        let is_same = one.until.scope == other.until.scope;
        let scope = if is_same { later.until.scope } else { Scope::Lane };
        Some(Self { until: Gate { scope, ..later.until }, ..later })
    }
}

impl Lane {
    /// The dependency of the reply to the request that a metadata shard has just executed.
    pub(crate) fn dependency(
        &self,
        received: &ReceivedRequest<'_>,
        effect: &meta::Effect,
    ) -> Option<CommitDependency> {
        let request = received.request;
        let limits = &self.config.limits;
        let strict = limits.share == Share::Strict;
        let changed = effect.transno.0 > 0;
        if !changed && effect.status != Status::Ok && !strict {
            return None;
        }
        let synced = limits.sync || request.flags & request_flag::SYNC != 0;
        let long = self.scratch.outcome_bytes() > limits.token_bytes_max;
        let flags = self.config.rules.hold(Rule::SizeFlag) && self.flags_size(request.op);
        // Replays leave no last-writer records: a change behind them waits until they are durable.
        let early = !self.recovery.is_over();
        if changed && (synced || long || flags || early) {
            return Some(self.dependency_on_itself(request.shard));
        }
        let shard = self.meta_index(request.shard);
        let client = (received.open.client, request.shard);
        let mut dependency = None;
        for used in self.metas[shard].uses() {
            dependency = CommitDependency::later(dependency, self.dependency_of(used, client));
        }
        if strict && !changed {
            dependency = dependency
                .map(|dependency| CommitDependency { reason: Reason::Strict, ..dependency });
        }
        if changed {
            let slot_id =
                SlotId { shard: request.shard, session: request.session, slot: request.slot };
            dependency = CommitDependency::later(dependency, self.dependency_of_session(&slot_id));
        }
        dependency
    }

    /// The dependency of a participant's answer, which the coordinator may turn into a failure: it
    /// depends on every client's changes.
    pub(crate) fn dependency_of_look(&self, shard: ShardId) -> Option<CommitDependency> {
        self.dependency_of_failure(shard, ClientUuid([0; 16]))
    }

    /// The dependency of a cross-shard request that fails or has nothing to do.
    pub(crate) fn dependency_of_failure(
        &self,
        shard: ShardId,
        client: ClientUuid,
    ) -> Option<CommitDependency> {
        let strict = self.config.limits.share == Share::Strict;
        let uses = self.metas[self.meta_index(shard)].uses().iter().filter(|_| strict);
        let gates = uses.map(|used| self.dependency_of(used, (client, shard)));
        let dependency = gates.fold(None, CommitDependency::later);
        dependency.map(|dependency| CommitDependency { reason: Reason::Strict, ..dependency })
    }

    /// Whether a change of this op moves a file's size to its data shard. A later write may be
    /// durable earlier than the change, and its client lost.
    fn flags_size(&self, op: Op) -> bool {
        let found = || Created::decode_all(self.scratch.reply()).is_ok_and(|created| !created.made);
        matches!(op, Op::Open | Op::Reopen) || (op == Op::Create && found())
    }

    /// The dependency on a session's first record at a shard, which names the session: before it is
    /// durable, no change of the session could be replayed.
    pub(crate) fn dependency_of_session(&self, slot_id: &SlotId) -> Option<CommitDependency> {
        let table = self.sessions.table((slot_id.shard, slot_id.session));
        match table.and_then(|table| table.recorded_in) {
            None => Some(self.dependency_on_itself(slot_id.shard)),
            Some(batch_no) => {
                let until = Gate::of(slot_id.shard, batch_no);
                let dependency = CommitDependency { until, reason: Reason::Itself };
                (!self.commit.is_safe(until)).then_some(dependency)
            }
        }
    }

    /// The dependency of a change on its own record, which is in the open batch.
    pub(crate) const fn dependency_on_itself(&self, shard: ShardId) -> CommitDependency {
        CommitDependency { until: self.commit.open_gate(shard), reason: Reason::Itself }
    }

    fn dependency_of(
        &self,
        used: &KeyAccess,
        (client, shard): (ClientUuid, ShardId),
    ) -> Option<CommitDependency> {
        let rules = self.config.rules;
        match (used.key, used.mode) {
            (_, AccessMode::Make | AccessMode::Share) => None,
            (DependencyKey::Exists(_), _) if !rules.hold(Rule::ExistMarks) => None,
            (DependencyKey::Topology, _) if !rules.hold(Rule::Topology) => None,
            (
                DependencyKey::Entries(dir),
                AccessMode::Whole | AccessMode::Depend | AccessMode::Durable,
            ) => self.dependency_of_all(dir, (client, shard)),
            (
                key,
                AccessMode::Change | AccessMode::Depend | AccessMode::Whole | AccessMode::Durable,
            ) => {
                let last_writer = self.commit.last_writer(key)?;
                let reason = match used.mode {
                    AccessMode::Durable => Reason::Itself,
                    AccessMode::Change
                    | AccessMode::Depend
                    | AccessMode::Whole
                    | AccessMode::Make
                    | AccessMode::Share => self.waits(last_writer, client)?,
                };
                Some(CommitDependency { until: last_writer.until, reason })
            }
        }
    }

    /// Whether a reply waits for a change, and why.
    fn waits(&self, last_writer: &LastWriter, client: ClientUuid) -> Option<Reason> {
        let (own, rules) = (last_writer.client == client, self.config.rules);
        let off = self.config.limits.share == Share::Off;
        if (own && !rules.hold(Rule::OwnUnacked)) || (!own && off && !rules.hold(Rule::OffUnacked))
        {
            return None;
        }
        let free = (own || off) && self.is_received(last_writer);
        let reason = if own { Reason::OwnUnacked } else { Reason::Foreign };
        (!free).then_some(reason)
    }

    /// The dependency on all changes in a directory: entries of other clients, and the client's own
    /// unless it has received all replies up to the last.
    fn dependency_of_all(
        &self,
        dir: InodeNo,
        (client, shard): (ClientUuid, ShardId),
    ) -> Option<CommitDependency> {
        let mut found = self.commit.dir_writers(dir);
        found.find_map(|dir_writers| self.dependency_of_entries(&dir_writers, (client, shard)))
    }

    /// The same for the changes of one generation of batches.
    fn dependency_of_entries(
        &self,
        DirWriters { last, other }: &DirWriters,
        (client, shard): (ClientUuid, ShardId),
    ) -> Option<CommitDependency> {
        let other = other.as_ref().filter(|_| self.config.rules.hold(Rule::EntriesSecond));
        let is_foreign = |last_writer: &&LastWriter| last_writer.client != client;
        let foreign = [Some(last), other].into_iter().flatten().find(is_foreign);
        let of_foreign = match self.config.limits.share {
            Share::Off => None,
            Share::Write | Share::Strict => foreign
                .map(|foreign| CommitDependency { until: foreign.until, reason: Reason::Foreign }),
        };
        // That of another client's change may be an earlier batch than that of an own one.
        if of_foreign.is_some_and(|dependency| dependency.until == last.until) {
            return of_foreign;
        }
        let reason = self.waits_for_all(last, (client, shard));
        let of_all = reason.map(|reason| CommitDependency { until: last.until, reason });
        CommitDependency::later(of_foreign, of_all)
    }

    /// Whether a reply waits for the changes in a directory up to the last: the client's own, or
    /// with sharing off those of all clients.
    fn waits_for_all(
        &self,
        last: &LastWriter,
        (client, shard): (ClientUuid, ShardId),
    ) -> Option<Reason> {
        if !self.config.rules.hold(Rule::EntriesCumulative) {
            return self.waits(last, client);
        }
        let reason = if last.client == client { Reason::OwnUnacked } else { Reason::Foreign };
        let off = self.config.limits.share == Share::Off;
        let of_all_clients = off && self.config.rules.hold(Rule::OffUnacked);
        let received = if of_all_clients {
            let here = self.sessions.tables().filter(|((at, _), _)| *at == shard);
            here.into_iter().all(|(_, table)| table.is_received_up_to(last.transno))
        } else if last.client == client {
            !self.config.rules.hold(Rule::OwnUnacked)
                || self.has_received_up_to(client, shard, last.transno)
        } else {
            off
        };
        (!received).then_some(reason)
    }

    /// Whether a client has received all replies of a shard up to a transaction.
    pub(crate) fn has_received_up_to(
        &self,
        client: ClientUuid,
        shard: ShardId,
        transno: Transno,
    ) -> bool {
        self.sessions.of_client(client).iter().all(|session| {
            let table = self.sessions.table((shard, *session));
            table.is_none_or(|table| table.is_received_up_to(transno))
        })
    }

    /// Whether the client of a change has acknowledged its reply.
    fn is_received(&self, last_writer: &LastWriter) -> bool {
        let table = self.sessions.table((last_writer.shard, last_writer.session));
        let slot = table.and_then(|table| table.at(last_writer.slot));
        slot.is_some_and(|slot| {
            slot.xid > last_writer.xid
                || (slot.xid == last_writer.xid && slot.state == State::Acknowledged)
        })
    }

    /// Adds the last-writer records of the request that a metadata shard has just executed.
    pub(crate) fn record_last_writer(&mut self, received: &ReceivedRequest<'_>, transno: Transno) {
        let request = received.request;
        let last_writer = LastWriter {
            client: received.open.client,
            session: request.session,
            shard: request.shard,
            slot: request.slot,
            xid: request.xid,
            transno,
            until: self.commit.open_gate(request.shard),
        };
        self.record_last_writers(last_writer, request.op);
    }

    /// Adds the last-writer records of a change.
    pub(crate) fn record_last_writers(&mut self, last_writer: LastWriter, op: Op) {
        let removes = matches!(op, Op::Unlink | Op::Rmdir | Op::Rename);
        let rules = self.config.rules;
        let index = self.meta_index(last_writer.shard);
        let Self { metas, commit, .. } = self;
        for used in metas[index].uses() {
            let is_name = matches!(used.key, DependencyKey::Name(..));
            if (rules.hold(Rule::Tombstones) || !removes || !is_name)
                && (rules.hold(Rule::ExistMarks) || !matches!(used.key, DependencyKey::Exists(_)))
            {
                commit.on_written(used, last_writer);
            }
        }
    }

    /// Counts a deferred reply.
    pub(crate) const fn count_deferred(&mut self, reason: Reason) {
        let gates = &mut self.stats.reply_gating;
        self.stats.deferred_count += 1;
        match reason {
            Reason::OwnUnacked => gates.deferred_own_count += 1,
            Reason::Foreign => gates.deferred_foreign_count += 1,
            Reason::Strict => gates.deferred_strict_count += 1,
            Reason::Itself => gates.deferred_self_count += 1,
        }
    }

    /// The index of a metadata shard of this lane.
    pub(crate) fn meta_index(&self, shard: ShardId) -> usize {
        let index = self.config.map.index_at_lane(shard);
        let is_there = self.metas.get(index).is_some_and(|meta| meta.id() == shard);
        if is_there {
            return index;
        }
        // With several servers a lane's shards have gaps.
        self.metas.binary_search_by_key(&shard, meta::Shard::id).unwrap_or(usize::MAX)
    }
}
