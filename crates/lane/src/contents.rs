//! What comes back from the data shards, and of the space under the store.

use crate::Lane;
use crate::commit::{Held, HeldSaid};
use crate::config::Share;
use crate::gate::Reason;
use crate::outbox::{Said, Telling};
use crate::session::{Done, State};
use crate::unstable::{Waiter, Written};
use crate::waiting::Waiting;
use alloc::vec::Vec;
use data::{Answer, Outcome, SumRecording, Token};
use interface::{Action, Errno, Turn};
use wire::{Entry, Op, Status, Transno, Wire, Writer};

impl Lane {
    /// Takes in everything the data shards have to say.
    pub(crate) fn on_outcomes(&mut self, turn: &mut Turn<'_>) {
        while let Some(outcome) = self.data.outcome() {
            match outcome {
                Outcome::Answered { token, result, shown } => {
                    self.on_answered(turn, token, (result, shown));
                }
                Outcome::Accessed { inode, write_time_ns } => {
                    self.on_accessed(turn, inode, write_time_ns);
                }
                Outcome::Sized { token, shard, until, contents } => {
                    self.on_sized(turn, token, (shard, until, contents));
                }
                Outcome::Written { token, shard, transno, change, answer, depends } => {
                    let written = Written { token, shard, transno, change, answer, depends };
                    self.on_written(turn, &written);
                }
                Outcome::Changed { token, shard, transno, change, answer, sums } => {
                    self.on_changed((token, shard, transno), (&change, answer), sums);
                }
                Outcome::Damaged { object, object_offset, damage, is_new } => {
                    self.stats.damage_count += 1;
                    if is_new {
                        self.on_damaged(turn, object, (object_offset, damage));
                    }
                }
                Outcome::Failed { status } => {
                    if !self.fenced {
                        let errno = Errno(status.number());
                        self.fence_lane(turn, "contents cannot be made durable", errno);
                    }
                }
                Outcome::Record { shard, transno, change } => {
                    self.record_note(shard, transno, &change);
                }
                Outcome::Removed { inode, result } => self.on_removed(turn, inode, result),
            }
        }
    }

    /// Records what the data shards want to be noted before anything else happens.
    pub(crate) fn record_noted(&mut self) {
        while let Some(outcome) = self.data.outcome() {
            let Outcome::Record { shard, transno, change } = outcome else {
                panic!("nothing was asked for: {outcome:?}")
            };
            self.record_note(shard, transno, &change);
        }
    }

    /// Whether blocks get the checksums that they wait for.
    pub(crate) fn sum_recording(&self) -> SumRecording {
        match (self.stopping, self.space_for_own()) {
            (false, true) => SumRecording::Quiet,
            (false, false) => SumRecording::Later,
            (true, true) => SumRecording::All,
            (true, false) => SumRecording::GiveUp,
        }
    }

    /// Nothing was changed: answered at once.
    fn on_answered(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        (result, shown): (Result<Answer, Status>, Transno),
    ) {
        if self.on_replay_failed(turn, token) {
            return;
        }
        if let Some(sizing) = self.sizing.remove(&token.0) {
            return self.tell_size(turn, sizing, None);
        }
        let buf = result.ok().and_then(|answer| answer.buf());
        if let Some(Waiting { conn, asked, .. }) = self.pending.remove(token.0) {
            if let Ok(answer) = result
                && self.shows(asked.shard, shown)
                && asked.slot == 0
            {
                let (status, bulk) = (Status::Ok, answer.bulk());
                let mut body = Vec::new();
                answer.encode(&mut body);
                let said = HeldSaid { conn, asked, status, body, bulk };
                let until = (asked.shard, shown);
                return self.wait_for(until, Waiter::Said(said), Reason::Strict);
            }
            let mut body = core::mem::take(&mut self.reply);
            body.clear();
            let (status, bulk) = match result {
                Ok(answer) => {
                    answer.encode(&mut body);
                    (Status::Ok, answer.bulk())
                }
                Err(status) => (status, None),
            };
            if asked.slot == 0 {
                let said = Said { bulk, ..Said::plain(status, &body) };
                self.send(turn, conn, &asked, &said);
            } else {
                let held = Held { shard: asked.shard, session: asked.session, slot: asked.slot };
                let done = Done { status, transno: Transno(0), body: body.clone() };
                self.end_slot(turn, &held, done);
            }
            self.reply = body;
        }
        if let Some(buf) = buf {
            turn.act(Action::Release { buf });
        }
    }

    /// Completes the attributes that a metadata shard is about to answer with, if the contents are
    /// this lane's as well: saves the client a glimpse. Under `--share strict` it asks by itself,
    /// because a glimpse waits for what it shows.
    pub(crate) fn complete(&mut self, op: Op) {
        // What sets attributes tells the space as it was lately: those who want to know it ask.
        let exact = matches!(op, Op::Lookup | Op::Getattr);
        if !(exact || op == Op::Setattr) || self.config.limits.share == Share::Strict {
            return;
        }
        let Ok(Entry { attr }) = Entry::decode_all(&self.reply) else { return };
        if !attr.is_size_at_data() || self.data_lane(attr.inode) != self.config.lane {
            return;
        }
        if let Some(contents) = self.data.known(attr.inode, exact) {
            self.reply.clear();
            let attr = attr.with_contents(contents);
            Entry { attr }.encode(&mut Writer::new(&mut self.reply));
        }
    }

    /// A running request ended without a change.
    pub(crate) fn end_slot(&mut self, turn: &mut Turn<'_>, held: &Held, done: Done) {
        let Some(table) = self.slots.get_mut(&(held.shard, held.session)) else { return };
        let slot = table.slot(held.slot);
        let State::Running(target) = slot.state else { return };
        let request = (slot.xid, slot.op);
        let telling = Telling { target, done: &done, flags: 0, token: &[] };
        self.answer_slot(turn, held, request, &telling);
        if let Some(table) = self.slots.get_mut(&(held.shard, held.session)) {
            table.slot(held.slot).state = State::Done(done);
        }
    }
}
