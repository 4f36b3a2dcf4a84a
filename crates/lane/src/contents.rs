//! Outcomes of the data shards, and which of them may have contents of a file.

use crate::Lane;
use crate::commit_dependency::Reason;
use crate::config::Share;
use crate::leases::PagesGrant;
use crate::request::ReceivedRequest;
use crate::request_header::{RequestHeader, SlotId};
use crate::response::{DeferredReply, Response, SlotReply};
use crate::session::{Done, State};
use crate::spread::merged;
use crate::unstable::{Recording, Written};
use crate::waiters::{Waiter, Waiting};
use alloc::vec::Vec;
use data::{Answer, Outcome, SumRecording, Token};
use interface::{Action, Errno, Turn, mac_of};
use wire::{Entry, InodeNo, Layout, Op, ShardId, Status, Transno, Wire, Writer, request_flag};

impl Lane {
    /// Applies all outcomes of the data shards.
    pub(crate) fn on_outcomes(&mut self, turn: &mut Turn<'_>) {
        while let Some(outcome) = self.data.outcome() {
            match outcome {
                Outcome::Answered { token, result, shown } => {
                    self.on_answered(turn, token, (result, shown));
                    self.end_write_behind(turn, token);
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
                    self.end_write_behind(turn, token);
                }
                Outcome::Changed { token, shard, transno, change, answer, sums, logged } => {
                    let with = Recording { change: &change, sums, logged };
                    self.on_changed((token, shard, transno), answer, with);
                }
                Outcome::Damaged { object, file_offset, damage, is_new } => {
                    self.stats.damage_count += 1;
                    if is_new {
                        self.on_damaged(turn, object, (file_offset, damage));
                    }
                }
                Outcome::Failed { status } => {
                    if !self.commit.has_failed() {
                        let errno = Errno(status.number());
                        self.fence_lane(turn, "contents cannot be made durable", errno);
                    }
                }
                Outcome::Record { shard, transno, change } => {
                    self.record_own_change(shard, transno, &change);
                }
                Outcome::Removed { inode, result } => self.on_removed(turn, inode, result),
            }
        }
    }

    /// Records the data shards' own changes before the lane's first turn.
    pub(crate) fn record_own_outcomes(&mut self) {
        while let Some(outcome) = self.data.outcome() {
            let Outcome::Record { shard, transno, change } = outcome else {
                panic!("unexpected outcome: {outcome:?}")
            };
            self.record_own_change(shard, transno, &change);
        }
    }

    /// Whether overwritten blocks get their checksums now.
    pub(crate) fn sum_recording(&self) -> SumRecording {
        match (self.is_stopping(), self.space_for_own()) {
            (false, true) => SumRecording::Quiet,
            (false, false) => SumRecording::Later,
            (true, true) => SumRecording::All,
            (true, false) => SumRecording::GiveUp,
        }
    }

    /// The outcome of a request that changed nothing: answered at once.
    pub(crate) fn on_answered(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        (result, shown): (Result<Answer, Status>, Transno),
    ) {
        if self.on_replay_failed(turn, token) || self.on_part_looked(turn, token, result) {
            return;
        }
        let others = self.end_whole(turn, token);
        let result = match (result, others) {
            (Ok(Answer::Glimpsed(contents)), Some(others)) => {
                Ok(Answer::Glimpsed(merged(others, contents)))
            }
            (result, _) => result,
        };
        if let Some(sizing) = self.waiters.answers.take_size(token) {
            return self.send_size(turn, sizing, None);
        }
        let buf = result.ok().and_then(|answer| answer.buf());
        if let Some(waiting) = self.waiters.answers.take_request(token) {
            let Waiting { conn, header, pages, .. } = waiting;
            self.end_read_of_pages(pages);
            let is_lasting = shown <= self.commit.shard(header.shard).durable;
            let must_last = header.op == Op::Reserve && !is_lasting;
            if must_last && self.commit.has_failed() {
                return self.send(turn, conn, &header, &Response::plain(Status::Io, &[]));
            }
            if let Ok(answer) = result
                && (must_last || self.shows(header.shard, shown))
                && header.slot == 0
            {
                let (status, bulk) = (Status::Ok, answer.bulk());
                let mut body = Vec::new();
                answer.encode(&mut body);
                let header = RequestHeader { times: header.times.done(turn.now.mono), ..header };
                let response = DeferredReply { conn, header, status, body, bulk };
                let until = (header.shard, shown);
                return self.wait_for(until, Waiter::Reply(response), Reason::Strict);
            }
            let mut body = self.scratch.empty();
            let (status, bulk) = match result {
                Ok(answer) => {
                    answer.encode(&mut body);
                    (Status::Ok, answer.bulk())
                }
                Err(status) => (status, None),
            };
            if header.slot == 0 {
                let lease = pages.filter(|_| status == Status::Ok);
                let lease = lease.and_then(|pages| self.reply_pages(pages));
                let lease = lease.as_ref();
                let response = Response { bulk, lease, ..Response::plain(status, &body) };
                self.send(turn, conn, &header, &response);
            } else {
                let slot_id =
                    SlotId { shard: header.shard, session: header.session, slot: header.slot };
                let done = Done { status, transno: Transno(0), body: body.clone() };
                self.end_slot(turn, &slot_id, done);
            }
            self.scratch.recycle(body);
        }
        if let Some(buf) = buf {
            turn.act(Action::Release { buf });
        }
    }

    /// Completes the attributes in a metadata shard's reply with the size and times of the
    /// contents, if this lane has them: saves the client a query. Not under `--share strict`: there
    /// the query waits for what it shows.
    pub(crate) fn complete(&mut self, op: Op) {
        // The reply to Setattr has the allocated space as it was lately; others have it exactly.
        let exact = matches!(op, Op::Lookup | Op::Getattr | Op::Open);
        if !(exact || op == Op::Setattr) || self.config.limits.share == Share::Strict {
            return;
        }
        let Ok(Entry { attr }) = Entry::decode_all(self.scratch.reply()) else { return };
        let is_spread = attr.layout.is_some_and(|layout| layout.is_spread())
            || self.data.wide_layout(attr.inode).is_some();
        if !attr.is_size_at_data() || is_spread || !self.is_own(self.data_shard(attr.inode)) {
            return;
        }
        if let Some(contents) = self.data.known(attr.inode, exact) {
            let attr = attr.with_contents(contents);
            Entry { attr }.encode(&mut Writer::new(self.scratch.new_reply()));
        }
    }

    /// Whether a metadata shard's reply has attributes that [`Self::complete`] has completed with the
    /// space that the contents took before the last change of them.
    pub(crate) fn shows_late_space(&self, shard: ShardId) -> bool {
        let Ok(Entry { attr }) = Entry::decode_all(self.scratch.reply()) else { return false };
        let at_shard = self.metas[self.meta_index(shard)].attributes(attr.inode);
        at_shard.is_some_and(|at_shard| at_shard.is_size_at_data())
            && !attr.is_size_at_data()
            && self.data.known(attr.inode, true).is_none()
    }

    /// A running request ended without a change: stores its outcome in the slot and replies.
    pub(crate) fn end_slot(&mut self, turn: &mut Turn<'_>, slot_id: &SlotId, done: Done) {
        let Some(slot) = self.sessions.slot(slot_id) else { return };
        let State::Running(target) = slot.state else { return };
        let request = (slot.xid, slot.op);
        let slot_reply = SlotReply { target, done: &done, flags: 0, lease: None, token: &[] };
        self.answer_slot(turn, slot_id, request, &slot_reply);
        if let Some(slot) = self.sessions.slot(slot_id) {
            slot.state = State::Done(done);
        }
    }

    /// Registers a request that is answered when its token comes back.
    pub(crate) fn wait(
        &mut self,
        received: &ReceivedRequest<'_>,
        pages: Option<PagesGrant>,
    ) -> Token {
        let (conn, header) = (received.conn, received.header());
        let has = |flag| received.request.flags & flag != 0;
        let synced = has(request_flag::SYNC);
        let behind = has(request_flag::BEHIND) && received.request.op == Op::Write;
        let frame_bytes = received.frame.bytes_count();
        let contents = mac_of(received.bulk);
        let waiting = Waiting { conn, header, synced, behind, frame_bytes, contents, pages };
        self.waiters.answers.await_request(waiting)
    }

    /// Resets the slot of a request that was not executed after all.
    pub(crate) fn reset_slot(&mut self, received: &ReceivedRequest<'_>) {
        let request = received.request;
        if request.slot > 0
            && let Some(table) = self.sessions.table_mut((request.shard, request.session))
        {
            let slot = table.slot(request.slot);
            slot.xid = wire::Xid(slot.xid.0.saturating_sub(1));
            slot.state = State::Acknowledged;
        }
    }

    /// The data shards that may have contents of a file; the home shard first. Those of a file whose
    /// row is not in memory are all that it could have.
    pub(crate) fn contents_shards(&self, inode: InodeNo) -> Vec<ShardId> {
        let map = &self.config.map;
        let count_max = map.part_count_max(Some(inode));
        let count = if count_max == 1 || !self.is_own(inode.shard()) {
            count_max
        } else {
            let known = self.metas[self.meta_index(inode.shard())].layout(inode);
            let count = |layout: Option<Layout>| layout.map_or(1, |layout| layout.stripe_count);
            known.map_or(count_max, count).clamp(1, count_max)
        };
        (0..u32::from(count)).map(|part| map.data_shard(inode, part)).collect()
    }

    /// This lane's data shard of a file's contents, if it may have some.
    pub(crate) fn part_shard(&self, inode: InodeNo) -> Option<ShardId> {
        let map = &self.config.map;
        let shard = map.data_shard(inode, map.part_of(inode, self.config.server));
        self.is_own(shard).then_some(shard)
    }
}
