//! The participant's side: locks, prepares durably, and applies the coordinator's decision.

use super::message::{TxnMessage, TxnMessageKind};
use super::{Part, TimeOut};
use crate::Lane;
use crate::leases::makes_inode;
use crate::waiters::{Awaited, Cause, Waiter};
use alloc::vec::Vec;
use disk::{Change, TxnChange, TxnId};
use interface::{Action, ProtocolPoint, Turn};
use wire::{Bytes, ClientUuid, ShardId, Status, Wire as _, Writer};

impl Lane {
    pub(super) fn on_look(
        &mut self,
        turn: &mut Turn<'_>,
        (shard, txn): (ShardId, TxnId),
        (client, frees): (ClientUuid, bool),
        wants: &[u8],
    ) {
        if !self.is_own(shard) {
            return;
        }
        if self.recall_required(turn, (shard, client), wants) {
            return self.tell((shard, txn), turn, (Status::Busy, &[]));
        }
        let mut found = Vec::new();
        let status = self.look((shard, txn), frees, (wants, &mut found));
        if status == Status::Busy {
            self.read_missing(turn, shard);
        }
        if makes_inode(wants)
            && let Some(part) = self.txns.parts.get_mut(&(shard, txn))
        {
            part.maker = Some(client);
        }
        if status == Status::Ok
            && let Some(dependency) = self.dependency_of_look(shard)
            && let Some(part) = self.txns.parts.get_mut(&(shard, txn))
        {
            part.found = Some(found);
            let step = Waiter::Step(Awaited::Looked(shard, txn));
            return self.waiters.suspend(Cause::Batch(dependency.until), step);
        }
        self.tell((shard, txn), turn, (status, &found));
    }

    /// The state that a coordinator asked for is durable: sends it.
    pub(super) fn on_looked(&mut self, turn: &mut Turn<'_>, (shard, txn): (ShardId, TxnId)) {
        let part = self.txns.parts.get_mut(&(shard, txn));
        if let Some(found) = part.and_then(|part| part.found.take()) {
            self.tell((shard, txn), turn, (Status::Ok, &found));
        }
    }

    pub(super) fn tell(
        &mut self,
        (shard, txn): (ShardId, TxnId),
        turn: &mut Turn<'_>,
        (status, found): (Status, &[u8]),
    ) {
        let inode_count = self.metas[self.meta_index(shard)].inode_count();
        let kind = TxnMessageKind::Seen { status, found: Bytes(found), inode_count };
        self.write(turn, &TxnMessage { txn, shard, kind });
    }

    fn look(
        &mut self,
        (shard, txn): (ShardId, TxnId),
        frees: bool,
        (wants, found): (&[u8], &mut Vec<u8>),
    ) -> Status {
        if self.commit.has_failed() {
            return Status::ReadOnly;
        }
        // No new transaction while clients replay older changes.
        if self.is_stopping() || !self.recovery.is_over() {
            return Status::Busy;
        }
        // One op of each kind stands for all.
        let op = if frees { wire::Op::Unlink } else { wire::Op::Rename };
        if let Err(status) = self.space_for(op) {
            return if self.commit.awaits_checkpoint() { Status::Busy } else { status };
        }
        self.txns.parts.entry((shard, txn)).or_default();
        let index = self.meta_index(shard);
        match self.metas[index].lock_and_read(txn, wants, found) {
            Ok(Ok(())) => Status::Ok,
            Ok(Err(holder)) if self.txns.is_in_doubt(holder) => Status::Io,
            Ok(Err(_)) => Status::Busy,
            Err(_) => Status::Protocol,
        }
    }

    pub(super) fn on_prepare(
        &mut self,
        turn: &mut Turn<'_>,
        (shard, txn): (ShardId, TxnId),
        part: &[u8],
    ) {
        let Some(known) = self.txns.parts.get(&(shard, txn)) else { return };
        if known.prepared.is_some() {
            return self.await_durable(turn, Awaited::Prepared(shard, txn));
        }
        let maker = known.maker;
        if maker.is_some() && self.made_by(shard, part).is_some() {
            self.await_made(turn);
        }
        let index = self.meta_index(shard);
        let mut changes = self.scratch.empty();
        let mut prepared = Vec::new();
        let effect = self.metas[index].prepare(txn, part, &mut prepared, &mut changes);
        match effect {
            Ok(effect) => {
                self.record_own(shard, effect.transno, &changes);
                let part = Part { prepared: Some((effect.transno, prepared)), found: None, maker };
                self.txns.parts.insert((shard, txn), part);
                self.await_durable(turn, Awaited::Prepared(shard, txn));
            }
            Err(_) => {
                let kind = TxnMessageKind::Prepared { status: Status::Protocol };
                self.write(turn, &TxnMessage { txn, shard, kind });
            }
        }
        self.scratch.recycle(changes);
    }

    pub(super) fn on_prepared_durable(
        &mut self,
        turn: &mut Turn<'_>,
        (shard, txn): (ShardId, TxnId),
    ) {
        if self.txns.parts.contains_key(&(shard, txn)) {
            turn.act(Action::Point(ProtocolPoint::TxnPrepared));
            self.txns.await_outcome(turn.now.mono, (shard, txn));
            let kind = TxnMessageKind::Prepared { status: Status::Ok };
            self.write(turn, &TxnMessage { txn, shard, kind });
        }
    }

    /// The log has failed: a prepare that may not be durable is refused.
    pub(crate) fn fail_awaited(&mut self, turn: &mut Turn<'_>, awaited: Awaited) {
        if let Awaited::Prepared(shard, txn) = awaited {
            let kind = TxnMessageKind::Prepared { status: Status::ReadOnly };
            self.write(turn, &TxnMessage { txn, shard, kind });
        }
    }

    /// The transaction was decided. A part that was applied in an earlier boot is acknowledged
    /// again.
    pub(super) fn on_commit(&mut self, turn: &mut Turn<'_>, (shard, txn): (ShardId, TxnId)) {
        if !self.is_own(shard) {
            return;
        }
        self.txns.end_time_out(TimeOut::Silence(shard, txn));
        if let Some(part) = self.txns.parts.remove(&(shard, txn)) {
            if let Some((prepared_by, changed)) = part.prepared {
                let made = part.maker.zip(self.made_by(shard, &changed));
                let index = self.meta_index(shard);
                let mut changes = self.scratch.empty();
                let done = Change::Txn(TxnChange::Done { txn });
                #[expect(clippy::expect_used, reason = "what was prepared was checked and locked")]
                let effect = self.metas[index]
                    .apply_part((prepared_by, &changed), &done, &mut changes)
                    .expect("a prepared part is made");
                self.record_own(shard, effect.transno, &changes);
                self.leases.note_removed(&changes);
                self.scratch.recycle(changes);
                if let Some((client, inode)) = made {
                    self.remember_made(turn.now.mono, inode, client);
                }
                if let Some(inode) = effect.orphan {
                    self.destroy_when_durable(inode);
                }
            }
            self.release_locks(shard, txn);
        }
        self.await_durable(turn, Awaited::Done(shard, txn));
    }

    pub(super) fn on_done_durable(&mut self, turn: &mut Turn<'_>, (shard, txn): (ShardId, TxnId)) {
        turn.act(Action::Point(ProtocolPoint::TxnDone));
        let inode_count = self.metas[self.meta_index(shard)].inode_count();
        self.write(turn, &TxnMessage { txn, shard, kind: TxnMessageKind::Done { inode_count } });
    }

    /// Releases the locks of a transaction at a shard, and resumes the requests that they blocked.
    pub(super) fn release_locks(&mut self, shard: ShardId, txn: TxnId) {
        let index = self.meta_index(shard);
        self.metas[index].release(txn);
        self.containment.due = true;
        let metas = &self.metas;
        let free = self
            .txns
            .accessed
            .extract_if(.., |(inode, _)| inode.shard() == shard && !metas[index].is_locked(*inode));
        self.txns.accessed_due.extend(free);
        self.waiters.make_due(&Cause::Lock(shard, txn));
    }

    pub(super) fn on_abort(&mut self, (shard, txn): (ShardId, TxnId)) {
        self.txns.end_time_out(TimeOut::Silence(shard, txn));
        let Some(part) = self.txns.parts.remove(&(shard, txn)) else { return };
        if part.prepared.is_some() {
            self.record_txn(shard, &Change::Txn(TxnChange::Aborted { txn }));
        }
        self.release_locks(shard, txn);
    }

    /// The coordinator's log failed while it decided: the locks remain until the next start, and
    /// requests suspended by them fail.
    pub(super) fn on_in_doubt(&mut self, turn: &mut Turn<'_>, (shard, txn): (ShardId, TxnId)) {
        if !self.txns.parts.contains_key(&(shard, txn)) {
            return;
        }
        self.txns.in_doubt.insert(txn);
        self.fail_locked_by(turn, shard, txn);
    }

    /// Whether the lock that blocked the last request at a shard remains until the next start.
    pub(crate) fn is_stuck(&self, shard: ShardId) -> bool {
        let blocker = self.metas[self.meta_index(shard)].blocker();
        blocker.is_some_and(|blocker| self.commit.has_failed() || self.txns.is_in_doubt(blocker))
    }

    /// Records a step of a transaction.
    pub(super) fn record_txn(&mut self, shard: ShardId, change: &Change<'_>) {
        let index = self.meta_index(shard);
        let transno = self.metas[index].take_transno();
        let mut changes = self.scratch.empty();
        change.encode(&mut Writer::new(&mut changes));
        self.record_own(shard, transno, &changes);
        self.scratch.recycle(changes);
    }
}
