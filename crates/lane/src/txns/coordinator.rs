//! The coordinator's side: gathers the state that the operation needs, lets all participants
//! prepare, decides.

use super::message::{TxnMessage, TxnMessageKind};
use super::{Running, Step, TimeOut};
use crate::Lane;
use crate::acknowledgements::BatchNo;
use crate::commit::ChangeRecord;
use crate::config::Share;
use crate::last_writer::LastWriter;
use crate::request::ReceivedRequest;
use crate::request_header::SlotId;
use crate::session::{Done, State};
use crate::waiters::{Awaited, Cause, Waiter};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use disk::{Change, TxnChange, TxnId};
use interface::{Action, ProtocolPoint, Turn};
use meta::Effect;
use wire::{
    Bytes, HEADER_BYTES, List, Op, Rule, ShardId, Status, Timestamp, Transno, Wire as _, Writer,
};

/// The longest pause before another try, as a power of two of milliseconds.
const PAUSE_SHIFT_MAX: u32 = 5;
/// The pause before another try while a participant's server is away.
const AWAY_MS: u64 = 100;

impl Lane {
    /// Begins a transaction for a request that turned out to need several shards.
    pub(crate) fn begin_across(&mut self, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
        let request = received.request;
        let target = received.target();
        let slot_id = SlotId { shard: request.shard, session: request.session, slot: request.slot };
        let slot = self.sessions.slot_or_new(&slot_id);
        (slot.xid, slot.op) = (request.xid, request.op);
        slot.state = State::Running(target);
        slot.lease = None;
        let index = self.meta_index(request.shard);
        let running = Running {
            slot_id,
            xid: request.xid,
            op: request.op,
            body: turn.arena.get(received.frame)[HEADER_BYTES..].to_vec(),
            client: received.open.client,
            squash: received.open.binding.squash,
            spread: self.metas[index].placement(),
            view: meta::View::default(),
            step: Step::Looking,
            touched: BTreeSet::new(),
            awaited: BTreeSet::new(),
            refused: None,
            try_count: 0,
            parted: BTreeSet::new(),
            files: Vec::new(),
            own: Vec::new(),
            reply: Vec::new(),
        };
        let txn = self.next_txn(request.shard);
        self.txns.running.insert(txn, running);
        turn.act(Action::Point(ProtocolPoint::TxnBegun));
        self.advance(turn, txn);
        self.work(turn);
    }

    fn next_txn(&mut self, coordinator: ShardId) -> TxnId {
        self.txns.count += 1;
        TxnId::new(coordinator, self.config.map.place(coordinator).term, self.txns.count)
    }

    /// Plans the operation with the state known so far.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>, txn: TxnId) {
        let index = self.meta_index(txn.coordinator);
        let Some(running) = self.txns.running.get_mut(&txn) else { return };
        running.step = Step::Looking;
        let ask = meta::MetaRequest {
            op: running.op,
            body: &running.body,
            client: running.client,
            squash: running.squash,
            export_root: None,
            now: Timestamp::from_ns(turn.now.wall_ns),
            records_reads: self.config.limits.share == Share::Strict,
            changed_behind: None,
        };
        let mut plan = core::mem::take(&mut self.txns.plan);
        self.metas[index].set_placement(running.spread);
        let outcome = self.metas[index].plan(&ask, txn, &running.view, &mut plan);
        match outcome {
            Ok(Status::CrossDevice) => self.ask_all(turn, txn, &plan.requirements),
            Ok(Status::Busy) if self.is_stuck(txn.coordinator) => {
                self.end_across(turn, txn, Status::Io, &[]);
            }
            Ok(Status::Busy) => {
                self.read_missing(turn, txn.coordinator);
                self.try_again(turn, txn);
            }
            Ok(Status::Ok) if !plan.parts.is_empty() => self.prepare_all(turn, txn, &mut plan),
            Ok(status) => self.end_without_effect(turn, txn, status, &plan.reply),
            // It decoded when it arrived.
            Err(_) => self.end_across(turn, txn, Status::Protocol, &[]),
        }
        self.txns.plan = plan;
    }

    fn ask_all(&mut self, turn: &mut Turn<'_>, txn: TxnId, wants: &[meta::Requirement]) {
        let mut by_shard: BTreeMap<ShardId, Vec<u8>> = BTreeMap::new();
        for want in wants {
            let list = by_shard.entry(want.shard()).or_default();
            want.encode(&mut Writer::new(list));
        }
        if by_shard.keys().any(|shard| !self.config.map.has(*shard)) {
            return self.end_across(turn, txn, Status::Stale, &[]);
        }
        if by_shard.keys().any(|shard| !self.is_reachable(*shard)) {
            return self.try_later(turn, txn, AWAY_MS);
        }
        let Some(running) = self.txns.running.get_mut(&txn) else { return };
        running.touched.extend(by_shard.keys());
        running.awaited.extend(by_shard.keys());
        let frees = matches!(running.op, Op::Unlink | Op::Rmdir);
        let client = running.client;
        for (shard, wants) in by_shard {
            let kind = TxnMessageKind::Look { client, frees, wants: Bytes(&wants) };
            self.write(turn, &TxnMessage { txn, shard, kind });
        }
    }

    pub(super) fn on_look_reply(
        &mut self,
        turn: &mut Turn<'_>,
        (shard, txn): (ShardId, TxnId),
        status: Status,
        found: &[u8],
    ) {
        let Some(running) = self.txns.running.get_mut(&txn) else { return };
        if running.step != Step::Looking || !running.awaited.remove(&shard) {
            return;
        }
        if status != Status::Ok {
            running.refused = Some(status);
        } else if running.view.add(found).is_err() {
            running.refused = Some(Status::Protocol);
        }
        if running.awaited.is_empty() {
            match running.refused {
                None => self.advance(turn, txn),
                Some(Status::Busy) => self.try_again(turn, txn),
                Some(status) => self.end_across(turn, txn, status, &[]),
            }
        }
    }

    /// Everything needed is locked: sends the participants their parts.
    fn prepare_all(&mut self, turn: &mut Turn<'_>, txn: TxnId, plan: &mut meta::Plan) {
        let Some(running) = self.txns.running.get_mut(&txn) else { return };
        running.step = Step::Preparing;
        self.txns.await_prepared(turn.now.mono, txn);
        let Some(running) = self.txns.running.get_mut(&txn) else { return };
        running.files = plan.files().collect();
        running.own = plan.parts.remove(&txn.coordinator).unwrap_or_default();
        running.reply.clear();
        running.reply.extend_from_slice(&plan.reply);
        running.awaited = plan.parts.keys().copied().collect();
        running.parted.clone_from(&running.awaited);
        for (shard, part) in &plan.parts {
            let kind = TxnMessageKind::Prepare { part: Bytes(part) };
            self.write(turn, &TxnMessage { txn, shard: *shard, kind });
        }
        if plan.parts.is_empty() || !self.config.rules.hold(Rule::TwoPhaseOrder) {
            self.decide(turn, txn);
        }
    }

    pub(super) fn on_prepared(
        &mut self,
        turn: &mut Turn<'_>,
        (shard, txn): (ShardId, TxnId),
        status: Status,
    ) {
        let Some(running) = self.txns.running.get_mut(&txn) else { return };
        if running.step != Step::Preparing || !running.awaited.contains(&shard) {
            return;
        }
        if status != Status::Ok {
            return self.end_across(turn, txn, status, &[]);
        }
        running.awaited.remove(&shard);
        if running.awaited.is_empty() {
            self.decide(turn, txn);
        }
    }

    /// All participants are durably prepared: records the decision, with the coordinator's own part
    /// and the reply.
    fn decide(&mut self, turn: &mut Turn<'_>, txn: TxnId) {
        self.txns.end_time_out(TimeOut::Prepare(txn));
        let Some(running) = self.txns.running.get(&txn) else { return };
        if !self.is_waited_for(running) {
            // Its client was evicted or has left meanwhile.
            return self.end_across(turn, txn, Status::Interrupted, &[]);
        }
        turn.act(Action::Point(ProtocolPoint::TxnDeciding));
        let index = self.meta_index(txn.coordinator);
        let Some(running) = self.txns.running.get_mut(&txn) else { return };
        running.step = Step::Deciding;
        let own = core::mem::take(&mut running.own);
        let others: Vec<ShardId> = running.prepared_by(txn).collect();
        let mut list = Vec::new();
        others.iter().for_each(|shard| shard.encode(&mut Writer::new(&mut list)));
        let count = u32::try_from(others.len()).unwrap_or(u32::MAX);
        let decided = Change::Txn(TxnChange::Decided { txn, shards: List::new(count, &list) });
        let mut changes = self.scratch.empty();
        let first = (count > 0).then_some(&decided);
        #[expect(clippy::expect_used, reason = "the part is of what was checked and locked")]
        let effect =
            self.metas[index].decide(&own, first, &mut changes).expect("a planned part is made");
        let (slot_id, xid, op, client) = (running.slot_id, running.xid, running.op, running.client);
        let body = running.reply.clone();
        let Effect { transno, pre_versions, orphan, .. } = effect;
        let done = Done { status: Status::Ok, transno, body };
        let (done_ref, signed) = (&done, false);
        let change_record = ChangeRecord {
            slot_id,
            xid,
            op,
            done: done_ref,
            pre_versions,
            changes: &changes,
            signed,
        };
        self.record_change(&change_record);
        self.hold(slot_id, self.dependency_on_itself(slot_id.shard));
        self.leases.note_removed(&changes);
        self.scratch.recycle(changes);
        let SlotId { shard, session, slot } = slot_id;
        let until = self.commit.open_gate(shard);
        let last_writer = LastWriter { client, session, shard, slot, xid, transno, until };
        self.record_last_writers(last_writer, op);
        let cause = Cause::Batch(until);
        self.waiters.suspend(cause, Waiter::Step(Awaited::Decided(txn)));
        let slot = self.sessions.table_or_new((shard, session)).slot(slot);
        assert!(slot.xid == xid, "a slot waits for its request");
        if let State::Running(target) = slot.state {
            slot.state = State::Deferred(target.done(turn.now.mono), done, Vec::new());
        }
        if let Some(inode) = orphan {
            self.destroy_when_durable(inode);
        }
    }

    /// Whether the slot still waits for this transaction.
    fn is_waited_for(&self, running: &Running) -> bool {
        let SlotId { shard, session, slot } = running.slot_id;
        let table = self.sessions.table((shard, session));
        table
            .and_then(|table| table.at(slot))
            .is_some_and(|slot| slot.xid == running.xid && matches!(slot.state, State::Running(_)))
    }

    /// The log has failed: undecided transactions abort. Those that may be decided keep their locks
    /// until the next start.
    pub(crate) fn fence_txns(&mut self, turn: &mut Turn<'_>) {
        let running = self.txns.running.iter();
        let deciding = |running: &Running| running.step == Step::Deciding;
        let (in_doubt, undecided): (Vec<_>, Vec<_>) =
            running.partition(|(_, running)| deciding(running));
        let in_doubt: Vec<(ShardId, TxnId)> = in_doubt
            .into_iter()
            .flat_map(|(txn, running)| running.touched.iter().map(|shard| (*shard, *txn)))
            .collect();
        let undecided: Vec<TxnId> = undecided.into_iter().map(|(txn, _)| *txn).collect();
        for txn in undecided {
            self.end_across(turn, txn, Status::ReadOnly, &[]);
        }
        for (shard, txn) in in_doubt {
            self.write(turn, &TxnMessage { txn, shard, kind: TxnMessageKind::InDoubt {} });
        }
        let looked = self.txns.parts.iter().filter(|(_, part)| part.found.is_some());
        let looked: Vec<(ShardId, TxnId)> = looked.map(|(key, _)| *key).collect();
        for (shard, txn) in looked {
            self.tell((shard, txn), turn, (Status::ReadOnly, &[]));
        }
        self.fail_locked(turn);
        self.work(turn);
    }

    /// The decision is durable; the reply leaves with the same batch.
    pub(super) fn on_decided(&mut self, turn: &mut Turn<'_>, txn: TxnId) {
        let Some(running) = self.txns.running.remove(&txn) else { return };
        turn.act(Action::Point(ProtocolPoint::TxnDecided));
        running.files.iter().for_each(|inode| self.send_changed(turn, *inode));
        if running.op == Op::Rename {
            // A participant applies its part only after the reply.
            self.announce_move(turn);
        }
        let others: BTreeSet<ShardId> = running.prepared_by(txn).collect();
        for shard in &others {
            self.write(turn, &TxnMessage { txn, shard: *shard, kind: TxnMessageKind::Commit {} });
        }
        // A participant without a part has only locked.
        for shard in running.touched.difference(&others) {
            self.write(turn, &TxnMessage { txn, shard: *shard, kind: TxnMessageKind::Abort {} });
        }
        if !others.is_empty() {
            self.txns.decided.insert(txn, others);
        }
    }

    /// A participant has durably applied its part.
    pub(super) fn on_done(&mut self, turn: &mut Turn<'_>, (shard, txn): (ShardId, TxnId)) {
        let Some(shards) = self.txns.decided.get_mut(&txn) else { return };
        shards.remove(&shard);
        if shards.is_empty() {
            self.txns.decided.remove(&txn);
            self.record_txn(txn.coordinator, &Change::Txn(TxnChange::Forgotten { txn }));
            turn.act(Action::Point(ProtocolPoint::TxnForgotten));
        }
    }

    /// The operation fails, or has nothing to do. The participants' state was durable; the
    /// coordinator's may still have to become durable.
    fn end_without_effect(
        &mut self,
        turn: &mut Turn<'_>,
        txn: TxnId,
        status: Status,
        reply: &[u8],
    ) {
        let Some(running) = self.txns.running.get(&txn) else { return };
        let (slot_id, waits) = (running.slot_id, self.is_waited_for(running));
        let dependency = self.dependency_of_failure(txn.coordinator, running.client);
        let Some(dependency) = dependency.filter(|_| waits) else {
            return self.end_across(turn, txn, status, reply);
        };
        let body = if status == Status::Ok { reply.to_vec() } else { Vec::new() };
        let done = Done { status, transno: Transno(0), body };
        let slot = self.sessions.slot_or_new(&slot_id);
        if let State::Running(target) = slot.state {
            slot.batch_no = BatchNo(0);
            slot.state = State::Deferred(target.done(turn.now.mono), done, Vec::new());
        }
        self.hold(slot_id, dependency);
        self.end_across(turn, txn, status, &[]);
    }

    /// Ends a transaction that failed or has nothing to do: all participants drop it, and the
    /// request is answered, if it was not already.
    fn end_across(&mut self, turn: &mut Turn<'_>, txn: TxnId, status: Status, reply: &[u8]) {
        let Some(running) = self.txns.running.remove(&txn) else { return };
        self.txns.end_time_out(TimeOut::Prepare(txn));
        self.give_back(turn, txn, &running);
        let body = if status == Status::Ok { reply.to_vec() } else { Vec::new() };
        let done = Done { status, transno: Transno(0), body };
        if self.is_waited_for(&running) {
            self.end_slot(turn, &running.slot_id, done);
        }
    }

    fn give_back(&mut self, turn: &mut Turn<'_>, txn: TxnId, running: &Running) {
        for shard in &running.touched {
            self.write(turn, &TxnMessage { txn, shard: *shard, kind: TxnMessageKind::Abort {} });
        }
    }

    /// A lock is held by another transaction, or a participant does not prepare: releases all locks
    /// and retries after a pause.
    pub(super) fn try_again(&mut self, turn: &mut Turn<'_>, txn: TxnId) {
        self.try_later(turn, txn, 1);
    }

    fn try_later(&mut self, turn: &mut Turn<'_>, txn: TxnId, pause_ms_min: u64) {
        let Some(mut running) = self.txns.running.remove(&txn) else { return };
        self.txns.end_time_out(TimeOut::Prepare(txn));
        self.give_back(turn, txn, &running);
        running.view = meta::View::default();
        running.touched.clear();
        running.awaited.clear();
        running.refused = None;
        running.step = Step::Pausing;
        running.try_count = running.try_count.saturating_add(1);
        let pause_ms_max = 1_u64 << running.try_count.min(PAUSE_SHIFT_MAX);
        let rolled = u64::from(self.nonces.nonce()[0]);
        let at = turn.now.mono.after_ms(pause_ms_min + rolled % pause_ms_max);
        let txn = self.next_txn(txn.coordinator);
        self.txns.running.insert(txn, running);
        self.txns.pauses.insert((at, txn));
    }

    /// This lane ends: drops undecided transactions; their clients resend the requests.
    pub(super) fn drop_undecided(&mut self, turn: &mut Turn<'_>) {
        self.txns.pauses.clear();
        let early = |step| matches!(step, Step::Looking | Step::Pausing);
        let txns = self.txns.running.iter().filter(|(_, running)| early(running.step));
        let txns: Vec<TxnId> = txns.map(|(txn, _)| *txn).collect();
        for txn in txns {
            if let Some(running) = self.txns.running.remove(&txn) {
                self.give_back(turn, txn, &running);
            }
        }
    }
}
