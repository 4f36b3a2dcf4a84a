//! Actions in flight for objects: how each kind begins and what its end means.

use crate::blocks::Blocks;
use crate::fan_out::StepResult;
use crate::in_flight::InFlight;
use crate::object::{Effect, LoggedState, NOTHING};
use crate::ranges::must_wait;
use crate::request::{QueuedOp, Truncating, bulk_bytes, one_sum, release, write_change};
use crate::stripes::Front;
use crate::unstable::ByteAccess;
use crate::{Answer, Damage, LostWrite, Outcome, Shards, Token};
use core::ops::Range;
use disk::{Change, ContentsChange};
use interface::{Action, Bulk, Errno, ObjectEvent, ObjectStat, Ticket, Turn};
use wire::{ClientUuid, InodeNo, Status, Transno, Written};

impl Shards {
    /// Begins all queued operations of an object that may begin.
    pub(crate) fn advance(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        loop {
            let Some(object) = self.objects.get_mut(&inode) else { return };
            if object.must_stat() {
                object.stat_running = true;
                let ticket = self.ticket(InFlight::Stat { inode });
                return self.stat_objects(turn, inode, ticket);
            }
            if self.awaits_cut(inode) || self.widens(inode) {
                return;
            }
            match self.add_stripes(turn, inode) {
                Front::MayBegin => {}
                Front::Waits => return,
                Front::Refused => continue,
            }
            self.open_front(turn, inode);
            let Some(object) = self.objects.get_mut(&inode) else { return };
            if must_wait(object) {
                return;
            }
            let was_absent = object.absent;
            let Some(pending) = object.next() else { return };
            if was_absent && !object.absent {
                // From here on the disk has it, and there is something to record when it goes.
                let write_time_ns = object.write_time_ns;
                self.logged.insert(inode, LoggedState { size_bytes: None, write_time_ns });
                if self.may_log_first(inode, &pending, turn.now.mono)
                    && let QueuedOp::Write { token, bulk: Some(bulk), client, .. }
                    | QueuedOp::Append { token, bulk: Some(bulk), client, .. } = pending
                {
                    self.answer_log_first(turn, inode, (token, client), bulk);
                    continue;
                }
            }
            self.begin(turn, inode, pending);
        }
    }

    pub(crate) fn begin(&mut self, turn: &mut Turn<'_>, inode: InodeNo, pending: QueuedOp) {
        match pending {
            QueuedOp::Read { .. } | QueuedOp::ReadList(_) => {
                self.begin_reading(turn, inode, pending);
            }
            QueuedOp::WriteList(writing) => self.begin_write_list(turn, inode, writing),
            QueuedOp::Glimpse(glimpsing) => self.begin_glimpse(turn, inode, glimpsing),
            QueuedOp::Write { token, object_offset, bulk, client } => {
                self.begin_write(turn, inode, (token, client), (object_offset, false, bulk));
            }
            QueuedOp::Append { token, bulk, client, at } => {
                let object = self.objects.get(&inode);
                let size_bytes = object.map_or(0, |object| object.size_bytes());
                let offset = object.map_or(0, |object| object.append_offset(at));
                let (layout, part) = (self.layout(inode), self.part(inode));
                if at.is_some_and(|at| layout.part_end(part, at) != size_bytes) {
                    release(turn, bulk);
                    return self.answer(token, Err(Status::Stale));
                }
                self.begin_write(turn, inode, (token, client), (offset, true, bulk));
            }
            QueuedOp::Truncate(truncating) => self.begin_truncate(turn, inode, &truncating),
            QueuedOp::Allocate(allocating) => self.begin_allocate(turn, inode, &allocating),
            QueuedOp::Seek(seeking) => self.begin_seek(turn, inode, &seeking),
            QueuedOp::Replay { lost, place_no } => self.begin_replay(turn, lost, place_no),
            QueuedOp::Widen { token, .. } => self.answer(token, Ok(Answer::Empty)),
            QueuedOp::Remove => {
                let Some(object) = self.objects.get_mut(&inode) else { return };
                if object.absent {
                    return self.on_removed(turn, inode, Ok(()));
                }
                object.exclusive = true;
                let ticket = self.ticket(InFlight::Remove { inode });
                self.remove_objects(turn, inode, ticket);
            }
        }
    }

    fn begin_write(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (token, client): (Token, ClientUuid),
        (object_offset, exclusive, bulk): (u64, bool, Option<Bulk>),
    ) {
        let written_bytes = bulk_bytes(bulk);
        let end = object_offset.saturating_add(u64::from(written_bytes));
        let written = Answer::Written(Written { file_offset: object_offset, written_bytes });
        let fits = end <= self.layout(inode).file_bytes_max();
        let Some(bulk) = bulk.filter(|_| written_bytes > 0 && fits) else {
            release(turn, bulk);
            return self.answer(token, if fits { Ok(written) } else { Err(Status::TooLarge) });
        };
        self.begin_places(turn, inode, &[(object_offset, end)]);
        let block_bytes = self.asked_block_bytes(object_offset..end);
        let Some(object) = self.objects.get_mut(&inode) else { return release(turn, Some(bulk)) };
        if exclusive {
            object.exclusive = true;
        } else {
            object.running_count += 1;
            object.writing_count += 1;
        }
        let change = write_change(inode, object_offset, Some(bulk), 0);
        let (transno, place_no, change_no) = (Transno(0), 0, 0);
        let answer = written;
        let effect = Effect { token, change, answer, client, transno, place_no, change_no };
        let ticket = self.ticket(InFlight::Write { inode, effect, end, exclusive });
        self.write_objects(turn, (inode, ticket), (object_offset, bulk), block_bytes);
        turn.act(Action::Release { buf: bulk.buf });
    }

    /// The block size by which the write is to be summed; 0: the range lies in one block, and its
    /// sum is known.
    fn asked_block_bytes(&self, bytes: Range<u64>) -> u32 {
        let block_bytes = self.block_bytes();
        let one = bytes.start / block_bytes == bytes.end.saturating_sub(1) / block_bytes;
        if one { 0 } else { self.shape.block_bytes }
    }

    /// Replays a lost write at its old offset, alone, because later ones may overlap it.
    fn begin_replay(&mut self, turn: &mut Turn<'_>, lost: LostWrite, place_no: u64) {
        let LostWrite { token, transno, change, bulk, client } = lost;
        let inode = change.inode();
        let (answer, change_no) = (Answer::Empty, 0);
        let effect = Effect { token, change, answer, client, transno, place_no, change_no };
        let object_offset = match &effect.change {
            ContentsChange::Write { object_offset, .. } => *object_offset,
            ContentsChange::WriteList { .. } => return self.write_list(turn, inode, effect, bulk),
            ContentsChange::Truncate { .. }
            | ContentsChange::Allocate { .. }
            | ContentsChange::ObjectRemoved { .. }
            | ContentsChange::Sums { .. }
            | ContentsChange::SumsRemoved { .. }
            | ContentsChange::Stripe { .. }
            | ContentsChange::Logged { .. } => panic!("{:?} is no write", effect.change),
        };
        let end = effect.end();
        self.begin_places(turn, inode, &[(object_offset, end)]);
        let Some(object) = self.objects.get_mut(&inode) else { return release(turn, Some(bulk)) };
        object.exclusive = true;
        let ticket = self.ticket(InFlight::Write { inode, effect, end, exclusive: true });
        self.write_objects(turn, (inode, ticket), (object_offset, bulk), 0);
        turn.act(Action::Release { buf: bulk.buf });
    }

    fn begin_truncate(&mut self, turn: &mut Turn<'_>, inode: InodeNo, truncating: &Truncating) {
        let Truncating { token, client, size_bytes, kept_bytes, .. } = *truncating;
        self.cut(turn, inode, &(size_bytes..u64::MAX));
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.exclusive = true;
        object.fence_count += 1;
        let write_time_ns = 0;
        let change = ContentsChange::Truncate { inode, size_bytes, write_time_ns };
        let (answer, transno, place_no, change_no) = (Answer::Empty, Transno(0), 0, 0);
        let effect = Effect { token, change, answer, client, transno, place_no, change_no };
        let ticket = self.ticket(InFlight::Reshape { inode, effect, size_bytes });
        self.truncate_objects(turn, (inode, ticket), (size_bytes, kept_bytes), false);
    }

    /// Begins a sync of a written object, unless one is in flight.
    pub(crate) fn sync(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        if object.sync_running || object.written.is_empty() {
            return;
        }
        object.sync_running = true;
        object.blocks.unsynced = false;
        (object.unsynced_bytes, object.urgent) = (0, false);
        core::mem::swap(&mut object.written, &mut object.syncing);
        let ticket = self.ticket(InFlight::Sync { inode });
        self.sync_objects(turn, inode, ticket);
    }

    /// The outcome of an action.
    pub fn on_object(&mut self, turn: &mut Turn<'_>, event: ObjectEvent) {
        match event {
            ObjectEvent::Read { ticket, result } => self.on_read(turn, ticket, result),
            ObjectEvent::Stat { ticket, result } => self.on_stat(turn, ticket, result),
            ObjectEvent::Sought { ticket, result } => self.on_sought(turn, ticket, result),
            ObjectEvent::Written { ticket, result } => {
                self.on_object_written(turn, ticket, result);
            }
            ObjectEvent::Sums { ticket, result, from_disk } => {
                self.on_sums(turn, ticket, (result, from_disk));
            }
            ObjectEvent::Loaded { ticket, result } => self.on_loaded(turn, ticket, result),
            ObjectEvent::Uncached { ticket } => self.on_uncached(turn, ticket),
            ObjectEvent::Done { ticket, result } => self.on_done(turn, ticket, result),
        }
    }

    /// The outcome of a read.
    pub(crate) fn on_read(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Option<Bulk>, Errno>,
    ) {
        if let Ok(bulk) = result {
            self.read_bytes += u64::from(bulk_bytes(bulk));
        }
        match self.in_flight.remove(&ticket.0) {
            Some(
                InFlight::Read { inode, cached, .. } | InFlight::ReadList { inode, cached, .. },
            ) if self.is_outdated(inode, cached.as_ref()) => {
                release(turn, result.ok().flatten());
                self.read_again(turn, inode, cached);
            }
            Some(InFlight::Read { inode, token, shown, object_offset, read_bytes, .. }) => {
                let result = result.map(Answer::Bytes).map_err(Errno::status);
                let result = match result {
                    Ok(Answer::Bytes(bulk)) if bulk_bytes(bulk) < read_bytes => {
                        release(turn, bulk);
                        let at = object_offset.saturating_add(u64::from(bulk_bytes(bulk)));
                        self.damaged(turn, inode, (at, Damage::Missing));
                        Err(Status::Io)
                    }
                    other => other,
                };
                self.outcomes.push_back(Outcome::Answered { token, result, shown });
                self.ran(turn, inode);
            }
            Some(InFlight::ReadList { inode, token, shown, size_bytes, list_bytes, .. }) => {
                self.on_list_read(turn, result, (token, shown), (size_bytes, list_bytes));
                self.ran(turn, inode);
            }
            Some(
                InFlight::Stat { .. }
                | InFlight::Glimpse { .. }
                | InFlight::Write { .. }
                | InFlight::WritePiece { .. }
                | InFlight::LogFirst { .. }
                | InFlight::Reshape { .. }
                | InFlight::Seek { .. }
                | InFlight::Trim { .. }
                | InFlight::TrimSync { .. }
                | InFlight::Sync { .. }
                | InFlight::Remove { .. }
                | InFlight::Step { .. }
                | InFlight::Load { .. }
                | InFlight::Verify(_)
                | InFlight::Close(_),
            )
            | None => release(turn, result.ok().flatten()),
        }
    }

    /// The outcome of a query of an object's size.
    pub(crate) fn on_stat(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<Option<ObjectStat>, Errno>,
    ) {
        match self.in_flight.remove(&ticket.0) {
            Some(InFlight::Stat { inode }) => self.on_stat_ended(turn, inode, result),
            Some(InFlight::Glimpse { inode, glimpsing, change_no }) => {
                self.on_glimpsed(inode, glimpsing, (change_no, result));
                self.ran(turn, inode);
            }
            Some(InFlight::Step { fan_out_no }) => {
                self.on_step(turn, fan_out_no, (ticket, StepResult::Stat(result)));
            }
            Some(
                InFlight::Read { .. }
                | InFlight::ReadList { .. }
                | InFlight::Write { .. }
                | InFlight::WritePiece { .. }
                | InFlight::LogFirst { .. }
                | InFlight::Seek { .. }
                | InFlight::Reshape { .. }
                | InFlight::Trim { .. }
                | InFlight::TrimSync { .. }
                | InFlight::Sync { .. }
                | InFlight::Remove { .. }
                | InFlight::Load { .. }
                | InFlight::Verify(_)
                | InFlight::Close(_),
            )
            | None => {}
        }
    }

    /// The outcome of every other action.
    pub(crate) fn on_done(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<(), Errno>,
    ) {
        let ended = result;
        let result = result.map_err(Errno::status);
        match self.in_flight.remove(&ticket.0) {
            Some(InFlight::Step { fan_out_no }) => {
                self.on_step(turn, fan_out_no, (ticket, StepResult::Done(ended)));
            }
            Some(InFlight::Write { inode, effect, end, exclusive }) => {
                let sum = one_sum(&effect.change);
                let done = (result.map(|()| end), Some(&[sum][..]));
                self.on_write_ended(turn, (inode, exclusive), effect, done);
            }
            Some(InFlight::WritePiece { list_no }) => self.on_piece_written(turn, list_no, result),
            Some(InFlight::LogFirst { inode }) => self.on_log_first_ended(turn, inode, result),
            Some(InFlight::Reshape { inode, effect, size_bytes }) => {
                self.on_reshaped(turn, inode, effect, result.map(|()| size_bytes));
                self.ran_alone(turn, inode);
            }
            Some(InFlight::Trim { inode, stat }) if result.is_ok() && !self.is_striped(inode) => {
                let ticket = self.ticket(InFlight::TrimSync { inode, stat });
                self.sync_objects(turn, inode, ticket);
            }
            Some(InFlight::Trim { inode, stat }) => self.on_trimmed(turn, inode, stat, result),
            Some(InFlight::TrimSync { inode, stat }) => {
                if let Err(status) = result {
                    // Bytes may be lost with it whose records say that the log has them.
                    self.outcomes.push_back(Outcome::Failed { status });
                }
                self.on_trimmed(turn, inode, stat, result);
            }
            Some(InFlight::Sync { inode }) => self.on_synced(turn, inode, result),
            Some(InFlight::Remove { inode }) => self.on_removed(turn, inode, result),
            Some(
                InFlight::Read { .. }
                | InFlight::ReadList { .. }
                | InFlight::Seek { .. }
                | InFlight::Stat { .. }
                | InFlight::Glimpse { .. }
                | InFlight::Load { .. }
                | InFlight::Verify(_)
                | InFlight::Close(_),
            )
            | None => {}
        }
    }

    /// The query of the size ended. Bytes beyond the known size are cut, and a shorter size is
    /// recorded, before any other operation on the object. The cut is durable first: a change that
    /// goes through the log syncs no object, and after a crash what was cut would fill its holes.
    fn on_stat_ended(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        result: Result<Option<ObjectStat>, Errno>,
    ) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        let looked = match result {
            Ok(found) => found,
            Err(errno) => {
                object.stat_running = false;
                return self.fail_waiting(turn, inode, errno.status());
            }
        };
        let mut found = looked.unwrap_or(NOTHING);
        let known = self.known_bytes(inode);
        if let Some(size_bytes) = known.filter(|known| found.size_bytes > *known) {
            let stat = ObjectStat { size_bytes, ..found };
            if self.fenced {
                // Excess bytes are ignored, and the next start cuts them.
                return self.on_trimmed(turn, inode, stat, Ok(()));
            }
            let ticket = self.ticket(InFlight::Trim { inode, stat });
            return self.truncate_objects(turn, (inode, ticket), (size_bytes, size_bytes), true);
        }
        if let Some(size_bytes) = self.shortened(turn, inode, (known, looked)) {
            // It keeps its required size; the missing bytes cannot be read.
            found.size_bytes = size_bytes;
        }
        let shorter = known.is_some_and(|known| found.size_bytes < known);
        if shorter && !self.fenced && self.is_striped(inode) {
            // The object that the file now ends with may not be durable, and those that were behind
            // it may be removed durably.
            let ticket = self.ticket(InFlight::Trim { inode, stat: found });
            let size_bytes = found.size_bytes;
            return self.truncate_objects(turn, (inode, ticket), (size_bytes, size_bytes), true);
        }
        let Some(object) = self.objects.get_mut(&inode) else { return };
        (object.stat_running, object.doubtful) = (false, false);
        object.stat = Some(found);
        object.allocated_change_no = object.change_no;
        self.awaiting_sums.extend((!object.blocks.open.is_empty()).then_some(inode));
        let write_time_ns = object.write_time_ns;
        self.logged.insert(inode, LoggedState { size_bytes: None, write_time_ns });
        if shorter && !self.fenced {
            self.record_size(inode, found.size_bytes);
        }
        self.advance(turn, inode);
    }

    fn on_trimmed(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        stat: ObjectStat,
        result: Result<(), Status>,
    ) {
        let shorter = self.known_bytes(inode).is_some_and(|known| stat.size_bytes < known);
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.stat_running = false;
        if let Err(status) = result {
            return self.fail_waiting(turn, inode, status);
        }
        object.doubtful = false;
        object.stat = Some(stat);
        self.awaiting_sums.extend((!object.blocks.open.is_empty()).then_some(inode));
        object.change_no += 1; // The allocated bytes are those from before the cut.
        let write_time_ns = object.write_time_ns;
        self.logged.insert(inode, LoggedState { size_bytes: None, write_time_ns });
        if shorter && !self.fenced {
            self.record_size(inode, stat.size_bytes);
        }
        self.advance(turn, inode);
    }

    /// The size that a file had when its objects were last queried, else the recorded one.
    fn known_bytes(&self, inode: InodeNo) -> Option<u64> {
        let found = self.objects.get(&inode).and_then(|object| object.stat);
        let logged = || self.logged.get(&inode).map_or(Some(0), |logged| logged.size_bytes);
        found.map_or_else(logged, |stat| Some(stat.size_bytes))
    }

    /// Everything written before the sync began is durable, or nothing is certain: writes during a
    /// failed sync may be lost with it.
    fn on_synced(&mut self, turn: &mut Turn<'_>, inode: InodeNo, result: Result<(), Status>) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.sync_running = false;
        let mut ended = core::mem::take(&mut object.syncing);
        if let Err(status) = result {
            // Some of it may be acknowledged, and nothing behind it can be recorded any more.
            object.doubt();
            self.outcomes.push_back(Outcome::Failed { status });
        }
        for effect in ended.drain(..).filter(|_| result.is_ok()) {
            self.changed(inode, effect, None);
        }
        self.record_next(self.shard(inode));
        if let Some(object) = self.objects.get_mut(&inode) {
            object.syncing = ended; // Keeps its memory.
        }
        self.waits_for_sync(inode);
        self.advance(turn, inode);
    }

    fn on_removed(&mut self, turn: &mut Turn<'_>, inode: InodeNo, result: Result<(), Status>) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.exclusive = false;
        object.stat = None;
        if result.is_ok() {
            object.write_time_ns = 0;
            object.blocks = Blocks::new();
            object.stripe_bytes.clear();
            object.unsynced_stripes.clear();
            self.sums.remove(&inode);
            self.stripes.remove(&inode);
        }
        if result.is_ok() && self.logged.remove(&inode).is_some() {
            self.log_change(inode, Change::Contents(ContentsChange::ObjectRemoved { inode }));
        }
        let outcome = Outcome::Removed { inode, result };
        if result.is_ok() {
            // Behind the records of what was written to it, which may wait for other objects.
            let shard = self.shard(inode);
            self.order(shard).push(Some(outcome));
            self.record_next(shard);
        } else {
            self.outcomes.push_back(outcome);
        }
        if self.objects.get(&inode).is_some_and(|object| object.queue.is_empty()) {
            self.objects.remove(&inode);
        } else {
            self.advance(turn, inode);
        }
    }

    pub(crate) fn changed(
        &mut self,
        inode: InodeNo,
        effect: Effect,
        logged: Option<ContentsChange>,
    ) {
        let shard = self.shard(inode);
        let Effect { token, change, answer, transno, place_no, change_no, .. } = effect;
        let (change, sums) = (Change::Contents(change), None);
        let outcome = Outcome::Changed { token, shard, transno, change, answer, sums, logged };
        self.order(shard).ready(place_no, (outcome, change_no));
    }

    /// Records the size found in an object's file; before a replay that waits for it. Until the
    /// record is durable it is an unstable change without a client.
    fn record_size(&mut self, inode: InodeNo, size_bytes: u64) {
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.fence_count += 1;
        let replays = matches!(object.queue.front(), Some(QueuedOp::Replay { .. }));
        let write_time_ns = object.write_time_ns;
        let change =
            Change::Contents(ContentsChange::Truncate { inode, size_bytes, write_time_ns });
        let shard = self.shard(inode);
        if replays {
            let transno = self.next_transno(shard);
            self.outcomes.push_back(Outcome::Record { shard, transno, change });
        } else {
            self.log_change(inode, change);
        }
        let transno = self.transno_last(shard);
        let (client, from, until) = (ClientUuid::default(), size_bytes, u64::MAX);
        let touch = ByteAccess { client, from, until, extends: true, at_end: true };
        if let Some(object) = self.objects.get_mut(&inode) {
            object.unstable.add(&touch, transno);
        }
    }

    fn log_change(&mut self, inode: InodeNo, change: Change<'static>) {
        self.record_for_lane(self.shard(inode), change);
    }

    pub(crate) fn answer(&mut self, token: Token, result: Result<Answer, Status>) {
        let shown = Transno(0);
        self.outcomes.push_back(Outcome::Answered { token, result, shown });
    }

    /// A shared operation ended.
    pub(crate) fn ran(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        if let Some(object) = self.objects.get_mut(&inode) {
            assert!(object.running_count > 0, "an operation ends once");
            object.running_count -= 1;
        }
        self.advance(turn, inode);
    }

    /// An exclusive operation ended.
    pub(crate) fn ran_alone(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        if let Some(object) = self.objects.get_mut(&inode) {
            assert!(object.exclusive, "an operation ends once");
            object.exclusive = false;
        }
        self.advance(turn, inode);
    }
}
