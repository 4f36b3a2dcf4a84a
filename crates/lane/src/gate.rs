//! Gates: until what is durable a reply has to wait (PROTOCOL.md §1).
//!
//! A request is executed at once; its reply leaves when everything it depends on is durable that its
//! client would not bring back by itself. At most two batches are not durable, so a gate is one of
//! them. Instead of the vector of PROTOCOL.md §0 a peer lane's change counts as received when that
//! lane's own requests say so: sometimes a reply waits that need not, never the other way round.

use crate::Lane;
use crate::commit::Held;
use crate::config::Share;
use crate::dispatch::Arrived;
use crate::marks::{Mark, Marks};
use crate::session::State;
use meta::{AccessMode, DependencyKey, KeyAccess};
use wire::{ClientUuid, Created, InodeNo, Op, Rule, ShardId, Status, Transno, Wire, request_flag};

/// A batch that is not durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Until {
    /// The one in flight.
    Flying,
    /// The one that is being filled.
    Open,
}

/// Why a reply waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// For a change of its own client, which may not have that one's reply.
    OwnUnacked,
    /// For another client's change.
    Foreign,
    /// For what it shows.
    Strict,
    /// For its own change.
    Itself,
}

/// What a reply waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gate {
    pub(crate) until: Until,
    pub(crate) reason: Reason,
}

impl Gate {
    pub(crate) const ITSELF: Self = Self { until: Until::Open, reason: Reason::Itself };

    /// The later of two; of equals the first.
    pub(crate) fn later(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) if other.until > one.until => Some(other),
            (Some(one), _) => Some(one),
            (None, other) => other,
        }
    }
}

impl Lane {
    /// The gate of what a metadata shard has just executed.
    pub(crate) fn gate(&self, arrived: &Arrived<'_>, effect: &meta::Effect) -> Option<Gate> {
        let request = arrived.request;
        let limits = &self.config.limits;
        let strict = limits.share == Share::Strict;
        let changed = effect.transno.0 > 0;
        if !changed && effect.status != Status::Ok && !strict {
            return None;
        }
        let synced = limits.sync || request.flags & request_flag::SYNC != 0;
        let long = self.changes.len() + self.reply.len() > limits.token_bytes_max;
        let flags = self.config.rules.hold(Rule::SizeFlag) && self.flags_size(request.op);
        // Replays leave no marks: what is executed behind them before they are durable waits.
        let early = !self.recovery.is_over();
        if changed && (synced || long || flags || early) {
            return Some(Gate::ITSELF);
        }
        let shard = self.meta_index(request.shard);
        let asker = (arrived.open.client, request.shard);
        let mut gate = None;
        for used in self.metas[shard].uses() {
            gate = Gate::later(gate, self.gate_of(used, asker));
        }
        if strict && !changed {
            gate = gate.map(|gate| Gate { reason: Reason::Strict, ..gate });
        }
        if changed {
            let held = Held { shard: request.shard, session: request.session, slot: request.slot };
            gate = Gate::later(gate, self.gate_of_session(&held));
        }
        gate
    }

    /// The gate of what a coordinator is told, which it may answer a failure from: it waits as if the
    /// asker was nobody who ever changed anything.
    pub(crate) fn gate_of_look(&self, shard: ShardId) -> Option<Gate> {
        self.gate_of_failure(shard, ClientUuid([0; 16]))
    }

    /// The gate of a failure, or of having nothing to do, over several shards.
    pub(crate) fn gate_of_failure(&self, shard: ShardId, client: ClientUuid) -> Option<Gate> {
        let strict = self.config.limits.share == Share::Strict;
        let uses = self.metas[self.meta_index(shard)].uses().iter().filter(|_| strict);
        let gates = uses.map(|used| self.gate_of(used, (client, shard)));
        let gate = gates.fold(None, Gate::later);
        gate.map(|gate| Gate { reason: Reason::Strict, ..gate })
    }

    /// Whether a change of this op says that a file's size is with its contents from now on. What
    /// is written next may be durable earlier than the change, and its client gone.
    fn flags_size(&self, op: Op) -> bool {
        let found = || Created::decode_all(&self.reply).is_ok_and(|created| !created.made);
        op == Op::Open || (op == Op::Create && found())
    }

    /// A session's first record at a shard says who it is; before that is durable, nothing of it
    /// could be brought back.
    pub(crate) fn gate_of_session(&self, held: &Held) -> Option<Gate> {
        let table = self.slots.get(&(held.shard, held.session));
        match table.and_then(|table| table.recorded_in) {
            None => Some(Gate::ITSELF),
            Some(batch_no) => {
                let until = self.commit.until(batch_no)?;
                Some(Gate { until, reason: Reason::Itself })
            }
        }
    }

    fn gate_of(&self, used: &KeyAccess, (client, shard): (ClientUuid, ShardId)) -> Option<Gate> {
        let rules = self.config.rules;
        match (used.key, used.mode) {
            (_, AccessMode::Make | AccessMode::Share) => None,
            (DependencyKey::Exists(_), _) if !rules.hold(Rule::ExistMarks) => None,
            (DependencyKey::Topology, _) if !rules.hold(Rule::Topology) => None,
            (
                DependencyKey::Entries(dir),
                AccessMode::Whole | AccessMode::Depend | AccessMode::Durable,
            ) => self.gate_of_all(dir, (client, shard)),
            (
                key,
                AccessMode::Change | AccessMode::Depend | AccessMode::Whole | AccessMode::Durable,
            ) => {
                let newest = |marks: &Marks| marks.last(key).copied();
                let (mark, until) = match newest(&self.commit.open.marks) {
                    Some(mark) => (mark, Until::Open),
                    None => (newest(&self.commit.flying.marks)?, Until::Flying),
                };
                let reason = match used.mode {
                    AccessMode::Durable => Reason::Itself,
                    AccessMode::Change
                    | AccessMode::Depend
                    | AccessMode::Whole
                    | AccessMode::Make
                    | AccessMode::Share => self.waits(&mark, client)?,
                };
                Some(Gate { until, reason })
            }
        }
    }

    /// Whether a dependency on a change gates.
    fn waits(&self, mark: &Mark, client: ClientUuid) -> Option<Reason> {
        let (own, rules) = (mark.client == client, self.config.rules);
        let off = self.config.limits.share == Share::Off;
        if (own && !rules.hold(Rule::OwnUnacked)) || (!own && off && !rules.hold(Rule::OffUnacked))
        {
            return None;
        }
        let free = (own || off) && self.is_received(mark);
        let reason = if own { Reason::OwnUnacked } else { Reason::Foreign };
        (!free).then_some(reason)
    }

    /// Everything that was changed in a directory: the entries that others made or removed, and
    /// one's own unless all replies up to the last are received.
    fn gate_of_all(&self, dir: InodeNo, (client, shard): (ClientUuid, ShardId)) -> Option<Gate> {
        let rules = self.config.rules;
        let gate_in = |marks: &Marks, until: Until| {
            let sharers = marks.sharers(dir)?;
            let other = sharers.other.filter(|_| rules.hold(Rule::EntriesSecond));
            let foreign = [Some(sharers.last), other]
                .into_iter()
                .flatten()
                .find(|mark| mark.client != client);
            let waits = match (self.config.limits.share, foreign) {
                (Share::Off, _) => self.waits_for_all(&sharers.last, (client, shard)),
                (Share::Write | Share::Strict, Some(_)) => Some(Reason::Foreign),
                (Share::Write | Share::Strict, None) => {
                    self.waits_for_all(&sharers.last, (client, shard))
                }
            };
            waits.map(|reason| Gate { until, reason })
        };
        let open = gate_in(&self.commit.open.marks, Until::Open);
        open.or_else(|| gate_in(&self.commit.flying.marks, Until::Flying))
    }

    /// Own changes up to the last; with sharing off, everybody's.
    fn waits_for_all(&self, last: &Mark, (client, shard): (ClientUuid, ShardId)) -> Option<Reason> {
        if !self.config.rules.hold(Rule::EntriesCumulative) {
            return self.waits(last, client);
        }
        let reason = if last.client == client { Reason::OwnUnacked } else { Reason::Foreign };
        let off = self.config.limits.share == Share::Off;
        let everybodys = off && self.config.rules.hold(Rule::OffUnacked);
        let received = if everybodys {
            let here = self.slots.iter().filter(|((at, _), _)| *at == shard);
            here.into_iter().all(|(_, table)| table.is_received_up_to(last.transno))
        } else if last.client == client {
            !self.config.rules.hold(Rule::OwnUnacked)
                || self.has_received_up_to(client, shard, last.transno)
        } else {
            off
        };
        (!received).then_some(reason)
    }

    /// Whether a client has all replies of a shard up to a transaction.
    pub(crate) fn has_received_up_to(
        &self,
        client: ClientUuid,
        shard: ShardId,
        transno: Transno,
    ) -> bool {
        self.clients.sessions_of(client).iter().all(|session| {
            let table = self.slots.get(&(shard, *session));
            table.is_none_or(|table| table.is_received_up_to(transno))
        })
    }

    /// Whether a change's own client is known to have its reply.
    fn is_received(&self, mark: &Mark) -> bool {
        let table = self.slots.get(&(mark.shard, mark.session));
        let slot = table.and_then(|table| table.at(mark.slot));
        slot.is_some_and(|slot| {
            slot.xid > mark.xid || (slot.xid == mark.xid && slot.state == State::Acknowledged)
        })
    }

    /// Leaves the marks of what a metadata shard has just changed.
    pub(crate) fn mark(&mut self, arrived: &Arrived<'_>, transno: Transno) {
        let request = arrived.request;
        let mark = Mark {
            client: arrived.open.client,
            session: request.session,
            shard: request.shard,
            slot: request.slot,
            xid: request.xid,
            transno,
        };
        self.leave_marks(mark, request.op);
    }

    /// The same for whoever changed something.
    pub(crate) fn leave_marks(&mut self, mark: Mark, op: Op) {
        let removes = matches!(op, Op::Unlink | Op::Rmdir | Op::Rename);
        let rules = self.config.rules;
        let index = self.meta_index(mark.shard);
        let Self { metas, commit, .. } = self;
        for used in metas[index].uses() {
            let is_name = matches!(used.key, DependencyKey::Name(..));
            if (rules.hold(Rule::Tombstones) || !removes || !is_name)
                && (rules.hold(Rule::ExistMarks) || !matches!(used.key, DependencyKey::Exists(_)))
            {
                commit.open.marks.insert(used, mark);
            }
        }
    }

    /// Counts a reply that waits.
    pub(crate) const fn count_held(&mut self, reason: Reason) {
        let gates = &mut self.stats.reply_gating;
        self.stats.deferred_count += 1;
        match reason {
            Reason::OwnUnacked => gates.deferred_own_count += 1,
            Reason::Foreign => gates.deferred_foreign_count += 1,
            Reason::Strict => gates.deferred_strict_count += 1,
            Reason::Itself => gates.deferred_self_count += 1,
        }
    }

    /// Where a metadata shard of this lane is found.
    pub(crate) fn meta_index(&self, shard: ShardId) -> usize {
        usize::from(shard.index() / self.config.map.lane_count)
    }
}
