//! The end of a write, truncation or allocation: the change gets its number and its position among
//! the records, and its blocks get checksums or wait for them.

use crate::fan_out::StepResult;
use crate::in_flight::InFlight;
use crate::object::Effect;
use crate::ranges::{changed_places, written_places};
use crate::request::QueuedOp;
use crate::sums::decoded;
use crate::unstable::ByteAccess;
use crate::{Answer, Outcome, Shards};
use alloc::vec::Vec;
use disk::{Change, ContentsChange};
use interface::{Errno, Span, Ticket, Turn};
use wire::{InodeNo, Status, Transno};

impl Shards {
    /// The outcome of a write with its sums by block.
    pub(crate) fn on_object_written(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Span, Errno>,
    ) {
        let sums = result.map(|span| decoded(turn.arena.get(span)));
        let (inode, effect, end, exclusive) = match self.in_flight.remove(&ticket.0) {
            Some(InFlight::Write { inode, effect, end, exclusive }) => {
                (inode, effect, end, exclusive)
            }
            Some(InFlight::Step { fan_out_no }) => {
                let result = StepResult::Sums(sums, false);
                return self.on_step(turn, fan_out_no, (ticket, result));
            }
            _ => return,
        };
        let sums = sums.map_err(Errno::status);
        let pieces = sums.map(|sums| sums.iter().map(|sum| sum.crc32c).collect::<Vec<u32>>());
        let done = (pieces.as_ref().map(|_| end).map_err(|status| *status), pieces.as_deref().ok());
        self.on_write_ended(turn, (inode, exclusive), effect, done);
    }

    pub(crate) fn on_write_ended(
        &mut self,
        turn: &mut Turn<'_>,
        (inode, exclusive): (InodeNo, bool),
        effect: Effect,
        done: (Result<u64, Status>, Option<&[u32]>),
    ) {
        self.on_written(turn, inode, effect, done);
        if exclusive {
            self.ran_alone(turn, inode);
        } else {
            if let Some(object) = self.objects.get_mut(&inode) {
                object.writing_count -= 1;
            }
            self.ran(turn, inode);
        }
    }

    pub(crate) fn on_written(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        mut effect: Effect,
        (result, pieces): (Result<u64, Status>, Option<&[u32]>),
    ) {
        let is_replay = effect.transno > Transno(0);
        let fenced = self.fenced && !is_replay;
        // A replay is recorded as its original.
        let pieces = pieces.filter(|_| result.is_ok() && !fenced && !is_replay);
        let places = written_places(&effect.change);
        let Some(object) = self.objects.get_mut(&inode) else { return };
        match result.and_then(|end| if fenced { Err(Status::Io) } else { Ok(end) }) {
            Ok(end) => {
                let size_bytes = object.size_bytes();
                let time_ns = effect.time_ns(object.next_time_ns(turn.now.wall_ns));
                object.changed(|size| size.max(end), time_ns);
                effect.change_no = object.change_no;
                self.end_places(turn, inode, &places, pieces);
                if let Answer::Written(written) = effect.answer {
                    self.written_bytes += u64::from(written.written_bytes);
                }
                self.put_in_order(turn, inode, effect, (end, end > size_bytes));
            }
            Err(status) => {
                object.doubt();
                self.end_places(turn, inode, &places, None);
                if effect.transno > Transno(0) {
                    return self.fail_replay(turn, inode, (effect.token, status));
                }
                self.answer(effect.token, Err(status));
            }
        }
    }

    pub(crate) fn on_reshaped(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        mut effect: Effect,
        result: Result<u64, Status>,
    ) {
        let fenced = self.fenced;
        let Some(object) = self.objects.get_mut(&inode) else { return };
        match result.and_then(|size| if fenced { Err(Status::Io) } else { Ok(size) }) {
            Ok(size_bytes) => {
                let time_ns = effect.time_ns(object.next_time_ns(turn.now.wall_ns));
                let longer = size_bytes > object.size_bytes();
                object.changed(|_| size_bytes, time_ns);
                let until = match effect.change {
                    ContentsChange::Allocate { object_offset, range_bytes, .. } => {
                        object_offset.saturating_add(range_bytes)
                    }
                    ContentsChange::Truncate { .. }
                    | ContentsChange::Write { .. }
                    | ContentsChange::WriteList { .. }
                    | ContentsChange::ObjectRemoved { .. }
                    | ContentsChange::Sums { .. }
                    | ContentsChange::SumsRemoved { .. }
                    | ContentsChange::Stripe { .. }
                    | ContentsChange::Logged { .. } => u64::MAX,
                };
                self.put_in_order(turn, inode, effect, (until, longer));
            }
            Err(status) => {
                object.doubt();
                object.fence_count = object.fence_count.saturating_sub(1);
                self.answer(effect.token, Err(status));
            }
        }
    }

    /// A change is in the object: assigns its number and its position among the records.
    fn put_in_order(
        &mut self,
        turn: &Turn<'_>,
        inode: InodeNo,
        mut effect: Effect,
        (until, extends): (u64, bool),
    ) {
        let shard = self.shard(inode);
        // A replay has both.
        if effect.transno == Transno(0) {
            effect.transno = self.next_transno(shard);
            effect.place_no = self.order(shard).push(None);
        }
        let durable = self.durable(shard);
        let Some(object) = self.objects.get_mut(&inode) else { return };
        let (from, at_end) = match effect.change {
            ContentsChange::Truncate { size_bytes, .. } => (size_bytes, true),
            ContentsChange::Write { object_offset, .. } => (object_offset, object.exclusive),
            // Each range has its own.
            ContentsChange::WriteList { .. } => (0, false),
            ContentsChange::Allocate { object_offset, .. } => (object_offset, false),
            ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Sums { .. }
            | ContentsChange::SumsRemoved { .. }
            | ContentsChange::Stripe { .. }
            | ContentsChange::Logged { .. } => (0, true),
        };
        let extends = extends || at_end;
        let touch = ByteAccess { client: effect.client, from, until, extends, at_end };
        object.unstable.settle(durable);
        let places = changed_places(&effect.change);
        let (depends, touched_bytes) = if places.is_empty() {
            let depends = object.unstable.depends(&touch);
            object.unstable.add(&touch, effect.transno);
            (depends, until.saturating_sub(from))
        } else {
            let depends = object.unstable.depends_of(effect.client, &places);
            (depends, object.unstable.add_places(&touch, &places, effect.transno))
        };
        if object.written.is_empty() {
            object.unsynced_since = turn.now.mono;
            self.dirty.push(inode);
        }
        object.unsynced_bytes = object.unsynced_bytes.saturating_add(touched_bytes);
        // It blocks the object until it is recorded.
        object.urgent |= effect.change.fences();
        object.urgent |= matches!(object.queue.front(), Some(QueuedOp::Remove));
        let Effect { token, transno, change, answer, .. } = effect.clone();
        object.written.push(effect);
        self.waits_for_sync(inode);
        self.outcomes.push_back(Outcome::Written {
            token,
            shard,
            transno,
            change: Change::Contents(change),
            answer,
            depends,
        });
    }
}
