//! What comes back from the data shards, and of the space under the store.

use crate::Lane;
use crate::commit::{Held, HeldSaid};
use crate::dispatch::Waiting;
use crate::gate::Reason;
use crate::outbox::{Said, Telling};
use crate::session::{Done, State};
use crate::unstable::{Waiter, Written};
use alloc::vec::Vec;
use data::{Answer, Outcome, Token};
use door::{Action, Errno, StoreSpace, Ticket, Turn};
use wire::{Contents, ShardId, Space, Status, Transno, Wire, Writer};

/// Bytes a further file is taken to need, for telling how many still fit.
const INODE_BYTES: u64 = 4096;

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
                Outcome::Changed { token, shard, transno, change, answer } => {
                    self.on_changed((token, shard, transno), (&change, answer));
                }
                Outcome::Failed { status } => {
                    if !self.fenced {
                        let errno = Errno(status.number());
                        self.fence_lane(turn, "contents cannot be made durable", errno);
                    }
                }
                Outcome::Noted { shard, transno, change } => {
                    self.record_note(shard, transno, &change);
                }
                Outcome::Removed { inode, result } => self.on_removed(turn, inode, result),
            }
        }
    }

    /// Records what the data shards want to be noted before anything else happens.
    pub(crate) fn record_noted(&mut self) {
        while let Some(outcome) = self.data.outcome() {
            let Outcome::Noted { shard, transno, change } = outcome else {
                panic!("nothing was asked for: {outcome:?}")
            };
            self.record_note(shard, transno, &change);
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
        let buf = result.ok().and_then(|answer| answer.buf());
        if let Some(Waiting { conn, asked, .. }) = self.pending.remove(&token.0) {
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
                    let bulk = if let Answer::Bytes(bulk) = answer { bulk } else { None };
                    (Status::Ok, bulk)
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

    /// The size of a file, for somebody who will make it durable elsewhere: told when the bytes
    /// are.
    fn on_sized(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        (shard, until, contents): (ShardId, Transno, Contents),
    ) {
        let Some(Waiting { conn, asked, .. }) = self.pending.remove(&token.0) else { return };
        if self.fenced {
            return self.send(turn, conn, &asked, &Said::plain(Status::Io, &[]));
        }
        let mut body = Vec::new();
        Answer::Glimpsed(contents).encode(&mut body);
        if until <= self.commit.shard(shard).durable {
            return self.send(turn, conn, &asked, &Said::plain(Status::Ok, &body));
        }
        let said = HeldSaid { conn, asked, status: Status::Ok, body, bulk: None };
        self.wait_for((shard, until), Waiter::Said(said), Reason::Itself);
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

    /// The space under the store is known.
    pub(crate) fn on_space(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<StoreSpace, Errno>,
    ) {
        let number = ticket.0 & !crate::lane::TICKET_TAG;
        let Some(Waiting { conn, asked, .. }) = self.pending.remove(&number) else { return };
        let mut body = core::mem::take(&mut self.reply);
        body.clear();
        let status = match result {
            Ok(space) => {
                let space = Space {
                    total_bytes: space.total_bytes,
                    free_bytes: space.free_bytes,
                    available_bytes: space.available_bytes,
                    inode_count: self.inode_count(),
                    inode_free_count: space.available_bytes / INODE_BYTES,
                };
                space.encode(&mut Writer::new(&mut body));
                Status::Ok
            }
            Err(errno) => errno.status(),
        };
        self.send(turn, conn, &asked, &Said::plain(status, &body));
        self.reply = body;
    }
}
