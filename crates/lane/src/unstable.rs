//! Unstable writes: answered before they are durable; and the replies that depend on them
//! (docs/protocol.md §13).
//!
//! ```text
//! Written ─ no dependency ─▶ reply with a token         Changed ─▶ record, in the shard's order
//!         └ else ─▶ deferred until that transaction         └ durable ─▶ deferred replies
//! ```

use crate::Lane;
use crate::acknowledgements::Gate;
use crate::commit::ChangeRecord;
use crate::commit_dependency::Reason;
use crate::config::Share;
use crate::request::Replay;
use crate::request_header::{RequestHeader, SlotId};
use crate::response::{Response, SlotReply};
use crate::session::{Done, Key, State};
use crate::spread::NOTHING;
use crate::waiters::{Cause, Waiter, Waiting};
use alloc::vec::Vec;
use data::{Answer, Dependencies, LostWrite, Token};
use disk::{Change, ContentsChange, Origin, PreVersions, Record};
use interface::{Action, ProtocolPoint, Turn};
use wire::{Op, Rule, ShardId, Status, Transno, Wire, Writer};

/// A write that has reached its object.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) token: Token,
    pub(crate) shard: ShardId,
    pub(crate) transno: Transno,
    pub(crate) change: Change<'static>,
    pub(crate) answer: Answer,
    pub(crate) depends: Dependencies,
}

/// What a record of a change of contents has.
pub(crate) struct Recording<'a> {
    pub(crate) change: &'a Change<'a>,
    pub(crate) sums: Option<ContentsChange>,
    /// The bytes that the object's file may lack.
    pub(crate) logged: Option<ContentsChange>,
}

impl Lane {
    /// A session is about to change contents at a shard that does not know it: records it at all
    /// data shards of this lane, with one flush. Its next first writes wait for no record then.
    pub(crate) fn record_at_data_shards(&mut self, turn: &mut Turn<'_>, key: Key) {
        if self.sessions.table(key).is_some_and(|table| table.recorded_in.is_some()) {
            return;
        }
        let shards: Vec<ShardId> = self.data.shards().collect();
        for shard in shards {
            // Behind a write that is not recorded the record would wait for that write's bytes.
            if self.data.is_recorded(shard) {
                self.record_session((shard, key.1));
            }
        }
        self.on_outcomes(turn);
    }

    /// A write has reached its object: replies, or defers the reply.
    pub(crate) fn on_written(&mut self, turn: &mut Turn<'_>, written: &Written) {
        if let Some(replay) = self.waiters.answers.replay(written.token) {
            let (conn, header, transno) = (replay.conn, replay.header, replay.transno);
            self.stats.recovery.replayed_count += 1;
            let committed = self.committed(header.shard, header.session);
            let response = Response { committed, transno, ..Response::plain(Status::Ok, &[]) };
            self.send(turn, conn, &header, &response);
            return turn.act(Action::Point(ProtocolPoint::Replayed));
        }
        let done = (written.shard, written.transno, NOTHING);
        if self.on_part_done(turn, written.token, done) {
            return;
        }
        self.end_whole(turn, written.token);
        let Some(waiting) = self.waiters.answers.request(written.token).copied() else { return };
        let header = waiting.header;
        let Written { shard, transno, .. } = *written;
        let slot_id = SlotId { shard, session: header.session, slot: header.slot };
        if self.commit.has_failed() {
            return self.fail_slot(turn, &slot_id);
        }
        let mut body = Vec::new();
        written.answer.encode(&mut body);
        let done = Done { status: Status::Ok, transno, body };
        let token = self.sign_write(written, &waiting, &done);
        let dependency = self.dependency_of_write(written, &waiting);
        let Some(table) = self.sessions.table_mut((shard, header.session)) else { return };
        let slot = table.slot(header.slot);
        let State::Running(target) = slot.state else { return };
        assert!(slot.xid == header.xid, "a slot waits for its request");
        if let Some((until, reason)) = dependency {
            let token = if until < transno { token } else { Vec::new() };
            slot.state = State::Deferred(target.done(turn.now.mono), done, token);
            self.wait_for((shard, until), Waiter::Slot(slot_id), reason);
        } else {
            let slot_reply =
                SlotReply { target, done: &done, flags: 0, lease: None, token: &token };
            self.answer_slot(turn, &slot_id, (header.xid, header.op), &slot_reply);
            if let Some(table) = self.sessions.table_mut((shard, header.session)) {
                table.slot(header.slot).state = State::Done(done);
            }
            self.scratch.recycle(token);
        }
    }

    /// The transaction of its shard that a write's reply depends on.
    fn dependency_of_write(
        &self,
        written: &Written,
        waiting: &Waiting,
    ) -> Option<(Transno, Reason)> {
        let Written { shard, transno, depends, .. } = *written;
        let session = waiting.header.session;
        let table = self.sessions.table((shard, session));
        let known = table.and_then(|table| table.recorded_in);
        let known = known.is_some_and(|batch_no| self.commit.is_safe(Gate::of(shard, batch_no)));
        let fences = matches!(written.change, Change::Contents(ref change) if change.fences());
        if fences || waiting.synced || self.config.limits.sync || !known {
            return Some((transno, Reason::Itself));
        }
        let durable = self.commit.shard(shard).durable;
        if depends.foreign > durable {
            return Some((depends.foreign, Reason::Foreign));
        }
        let client = self.sessions.client_of(session)?;
        let own = depends.own > durable && !waiting.behind;
        let own = own && self.config.rules.hold(Rule::OwnUnacked);
        let received = !own || self.has_received_up_to(client, shard, depends.own);
        (!received).then_some((depends.own, Reason::OwnUnacked))
    }

    /// The redo token of a write. The record's position in the log is not known yet.
    fn sign_write(&mut self, written: &Written, waiting: &Waiting, done: &Done) -> Vec<u8> {
        let mut changes = self.scratch.empty();
        written.change.encode(&mut Writer::new(&mut changes));
        let RequestHeader { session, slot, xid, op, .. } = waiting.header;
        let (status, reply, opened) = (Status::Ok, &[][..], None);
        let origin = Origin::Session { session, slot, xid, op, status, reply, opened };
        let (shard, transno, pre_versions) = (written.shard, written.transno, PreVersions::new());
        let (lsn, term) = (0, self.commit.shard(shard).term);
        let record = Record { shard, lsn, term, transno, pre_versions, origin, changes: &changes };
        let signed = (&done.body[..], waiting.contents);
        let mut token = self.scratch.empty();
        self.commit.tokens().token(&mut token, signed, |out| record.encode(out));
        self.scratch.recycle(changes);
        token
    }

    /// The contents of a change and of all before it are durable, or will be with its record:
    /// records the change.
    pub(crate) fn on_changed(
        &mut self,
        (token, shard, transno): (Token, ShardId, Transno),
        answer: Answer,
        recording: Recording<'_>,
    ) {
        if let Some(replay) = self.waiters.answers.take_replay(token) {
            return self.record_lost(&replay);
        }
        if self.record_cut(token, (shard, transno), recording.change) {
            return;
        }
        let Some(Waiting { header, .. }) = self.waiters.answers.take_request(token) else { return };
        if self.commit.has_failed() {
            return;
        }
        let Recording { change, sums, logged } = recording;
        let mut changes = self.scratch.empty();
        let mut to = Writer::new(&mut changes);
        logged.into_iter().for_each(|logged| Change::Contents(logged).encode(&mut to));
        change.encode(&mut to);
        sums.into_iter().for_each(|sums| Change::Contents(sums).encode(&mut to));
        if self.sessions.has(header.session) {
            let slot_id = SlotId { shard, session: header.session, slot: header.slot };
            let mut body = Vec::new();
            answer.encode(&mut body);
            let done = Done { status: Status::Ok, transno, body };
            let (xid, op, pre_versions) = (header.xid, header.op, PreVersions::new());
            let (done, changes, signed) = (&done, &changes[..], false);
            let change_record =
                ChangeRecord { slot_id, xid, op, done, pre_versions, changes, signed };
            self.record_change(&change_record);
        } else {
            self.record_own(shard, transno, &changes); // It left meanwhile.
        }
        self.scratch.recycle(changes);
        self.fence(shard, change);
    }

    /// Adds a waiter for a transaction, and makes the shard's writes durable soon.
    pub(crate) fn wait_for(&mut self, until: (ShardId, Transno), waiter: Waiter, reason: Reason) {
        self.count_deferred(reason);
        self.waiters.suspend(Cause::Write(until.0, until.1), waiter);
        self.data.request_sync(Some(until.0));
    }

    /// A data shard's log has advanced: releases what depended on it.
    pub(crate) fn release_shard(&mut self, turn: &mut Turn<'_>, shard: ShardId) {
        let durable = self.commit.shard(shard).durable;
        self.data.on_durable(shard, durable);
        let released = Cause::Write(shard, Transno(0))..=Cause::Write(shard, durable);
        while let Some(waiters) = self.waiters.release_first(released.clone()) {
            waiters.into_iter().for_each(|waiter| self.on_safe(turn, waiter));
        }
    }

    /// Whether a read shows a change that may be lost.
    pub(crate) fn shows(&self, shard: ShardId, shown: Transno) -> bool {
        let strict = self.config.limits.share == Share::Strict;
        strict && shown > self.commit.shard(shard).durable
    }

    /// Replays a lost write into its object.
    pub(crate) fn replay_data(&mut self, turn: &mut Turn<'_>, replay: Replay) {
        let found = self.lost_write(&replay);
        let client = self.sessions.client_of(replay.header.session);
        let (Some(change), Some(bulk), Some(client)) = (found, replay.bulk, client) else {
            self.reject_replay(&replay);
            self.answer_replay(turn, &replay, Status::Overflow);
            return self.release_bulk(turn, &replay);
        };
        let transno = replay.transno;
        let table = self.sessions.table_or_new((replay.header.shard, replay.header.session));
        table.on_replay(transno);
        let token = self.waiters.answers.await_replay(replay);
        self.data.replay(turn, LostWrite { token, transno, change, bulk, client });
        self.on_outcomes(turn);
    }

    /// The write in a replay, if its bytes are those that were signed.
    fn lost_write(&self, replay: &Replay) -> Option<ContentsChange> {
        let message = wire::Replay::decode_all(&replay.body).ok()?;
        let redo =
            self.commit.tokens().open(message.token.0, message.reply.0, replay.contents())?;
        let (record, _) = Record::decode(redo).ok()?;
        let bulk = replay.bulk?;
        let change = disk::Changes::new(record.changes).next()?.ok()?;
        let Change::Contents(change) = change else { return None };
        let (op, write_bytes, crc32c) = match &change {
            ContentsChange::Write { write_bytes, crc32c, .. } => (Op::Write, *write_bytes, *crc32c),
            ContentsChange::WriteList { pieces, crc32c, .. } => {
                (Op::WriteList, pieces.total_bytes(), *crc32c)
            }
            ContentsChange::Truncate { .. }
            | ContentsChange::Allocate { .. }
            | ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Sums { .. }
            | ContentsChange::SumsRemoved { .. }
            | ContentsChange::Stripe { .. }
            | ContentsChange::Logged { .. } => return None,
        };
        let same = write_bytes == bulk.bulk_bytes && bulk.crc32c == Some(crc32c);
        (same && replay.header.op == op).then(|| self.inject_fault(change))
    }

    /// The replayed part of a lost write: all of it, unless a test disables that rule.
    fn inject_fault(&self, mut change: ContentsChange) -> ContentsChange {
        if let ContentsChange::WriteList { pieces, .. } = &mut change
            && !self.config.rules.hold(Rule::ListsWhole)
            && let Ok(first) = wire::Pieces::new(pieces.iter().take(1).collect())
        {
            *pieces = first;
        }
        change
    }

    /// A replayed write is durable in its object.
    fn record_lost(&mut self, replay: &Replay) {
        // It decoded and opened before.
        let Ok(message) = wire::Replay::decode_all(&replay.body) else { return };
        let (reply, contents) = (message.reply.0, replay.contents());
        let Some(redo) = self.commit.tokens().open(message.token.0, reply, contents) else {
            return;
        };
        let Ok((record, _)) = Record::decode(redo) else { return };
        if self.sessions.has(replay.header.session) {
            self.record_replayed(&record, message.reply.0);
        } else {
            self.record_own(record.shard, record.transno, record.changes);
        }
    }

    /// A replay could not be written, and the lane is fenced. Its client retains it, because it gets
    /// no acknowledgement of durability, and replays it at the next boot.
    pub(crate) fn on_replay_failed(&mut self, turn: &mut Turn<'_>, token: Token) -> bool {
        let Some(replay) = self.waiters.answers.take_replay(token) else { return false };
        assert!(self.commit.has_failed(), "what was acknowledged is never given up");
        self.answer_replay(turn, &replay, Status::Ok);
        true
    }

    /// Defers the reply to a resent write until the write is durable.
    pub(crate) fn await_write(&mut self, slot_id: SlotId, transno: Transno) {
        self.wait_for((slot_id.shard, transno), Waiter::Slot(slot_id), Reason::Itself);
    }
}
