//! The log of this lane (group commit): records gather in the open batch; one batch at a time is
//! made durable, and then all that depends on it proceeds.
//!
//! ```text
//! open batch ─ settle, nothing in flight ─▶ LogAppend ─ Logged ─▶ replies, orphans, removals, fences
//!     ▲ later requests                                    └ Err ─▶ fenced: acknowledges no more
//! ```
//! A batch without dependents gathers a little longer (`Limits::log_ms`): a flush costs more
//! processor time than the changes of one caller.

use crate::Lane;
use crate::commit_dependency::{CommitDependency, PendingBatch};
use crate::last_writer::LastWriters;
use crate::outbox::{RequestHeader, Response, SlotReply};
use crate::session::{Done, State};
use crate::txns::Awaited;
use alloc::format;
use alloc::vec::Vec;
use disk::{Batch, Change, Origin, PreVersions, Record, ShardPosition};
use hashbrown::HashMap;
use interface::{
    Action, Bulk, ConnId, Errno, LogLevel, LogSpace, Mono, NO_MAC, Seed, StoreAction, Ticket, Turn,
};
use meta::EndedWait;
use wire::{InodeNo, Op, SessionId, ShardId, Status, Term, Transno, Wire, Writer, Xid};

/// Names a slot. A deferred reply of a slot is stored in the slot itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotId {
    pub(crate) shard: ShardId,
    pub(crate) session: SessionId,
    pub(crate) slot: u16,
}

/// A deferred reply without a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DeferredReply {
    pub(crate) conn: ConnId,
    pub(crate) header: RequestHeader,
    pub(crate) status: Status,
    pub(crate) body: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
}

/// What depends on the durability of one batch.
#[derive(Debug)]
pub(crate) struct BatchDependents {
    pub(crate) slot_id: Vec<SlotId>,
    pub(crate) response: Vec<DeferredReply>,
    /// Inodes to destroy.
    pub(crate) orphans: Vec<InodeNo>,
    /// Inodes whose objects are removed.
    pub(crate) removed: Vec<InodeNo>,
    /// Objects that accept no change until their new size is durably recorded.
    pub(crate) fences: Vec<InodeNo>,
    /// The last-writer records of the batch's changes.
    pub(crate) last_writers: LastWriters,
    /// Replays recorded in it.
    pub(crate) replays: Vec<(ShardId, SessionId, Transno)>,
    /// Shards with a record in it.
    shards: Vec<ShardId>,
    /// Steps of cross-shard transactions.
    pub(crate) awaited: Vec<Awaited>,
    /// Ended waits for file locks, whose Grants leave then.
    pub(crate) woken: Vec<EndedWait>,
}

impl BatchDependents {
    const fn new(seed: Seed) -> Self {
        Self {
            slot_id: Vec::new(),
            response: Vec::new(),
            orphans: Vec::new(),
            removed: Vec::new(),
            fences: Vec::new(),
            last_writers: LastWriters::new(seed),
            replays: Vec::new(),
            shards: Vec::new(),
            awaited: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// Whether no reply, transaction or lock wait depends on the batch.
    fn is_idle(&self) -> bool {
        let unanswered = !self.slot_id.is_empty() || !self.response.is_empty();
        !unanswered && self.awaited.is_empty() && self.woken.is_empty()
    }
}

/// The positions of a shard in the log.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ShardLog {
    /// Number of its last record.
    pub(crate) lsn: u64,
    /// The term in which it goes on.
    pub(crate) term: Term,
    /// The highest transaction recorded, in sealed batches, and in durable batches.
    pub(crate) pushed: Transno,
    sealed: Transno,
    pub(crate) durable: Transno,
    /// The batch of its last record.
    batch_no: u64,
}

/// The log.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) batch: Batch,
    /// The batch that was sealed last; the open one has the next number.
    batch_no: u64,
    /// When the open batch was first found not to be empty.
    open_since: Option<Mono>,
    /// Bytes of the batch in flight, 0 when there is none.
    in_flight_bytes: u64,
    pub(crate) open: BatchDependents,
    pub(crate) in_flight: BatchDependents,
    space: LogSpace,
    shards: HashMap<ShardId, ShardLog, Seed>,
    seed: Seed,
}

impl Commit {
    /// `shards`: each shard's last log sequence number with the term of this start, and its highest
    /// transaction number, which earlier boots may have assigned.
    pub(crate) fn new(
        seed: Seed,
        shards: impl Iterator<Item = (ShardId, ShardPosition, Transno)>,
    ) -> Self {
        let mut by_shard = HashMap::with_hasher(seed);
        by_shard.extend(shards.map(|(shard, ShardPosition { lsn, term }, transno)| {
            let (pushed, sealed, durable) = (transno, transno, transno);
            (shard, ShardLog { lsn, term, pushed, sealed, durable, batch_no: 0 })
        }));
        Self {
            batch: Batch::new(),
            batch_no: 0,
            open_since: None,
            in_flight_bytes: 0,
            open: BatchDependents::new(seed),
            in_flight: BatchDependents::new(seed),
            // Until the runtime reports the space, only a failed append shows a full log.
            space: LogSpace { space_bytes: u64::MAX, awaits_checkpoint: false },
            shards: by_shard,
            seed,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight_bytes == 0 && self.batch.is_empty()
    }

    pub(crate) const fn is_in_flight(&self) -> bool {
        self.in_flight_bytes > 0
    }

    pub(crate) const fn set_space(&mut self, space: LogSpace) {
        self.space = space;
    }

    /// Whether a checkpoint would free log space.
    pub(crate) const fn awaits_checkpoint(&self) -> bool {
        self.space.awaits_checkpoint
    }

    /// The log space left behind the batch in flight and the open one.
    pub(crate) fn space_bytes(&self) -> u64 {
        let open_bytes = u64::try_from(self.batch.bytes_count()).unwrap_or(u64::MAX);
        self.space.space_bytes.saturating_sub(self.in_flight_bytes).saturating_sub(open_bytes)
    }

    /// The number of the open batch.
    pub(crate) const fn open_no(&self) -> u64 {
        self.batch_no + 1
    }

    /// Which pending batch this number is; `None` if it is durable.
    pub(crate) const fn until(&self, batch_no: u64) -> Option<PendingBatch> {
        if batch_no > self.batch_no {
            Some(PendingBatch::Open)
        } else if batch_no == self.batch_no && self.is_in_flight() {
            Some(PendingBatch::InFlight)
        } else {
            None
        }
    }

    /// The batch with the last record of a shard, if that is not durable.
    pub(crate) fn until_shard(&self, shard: ShardId) -> Option<PendingBatch> {
        self.shards.get(&shard).and_then(|log| self.until(log.batch_no))
    }

    /// The last batch with anything in it, if that is not durable.
    pub(crate) fn until_all(&self) -> Option<PendingBatch> {
        if !self.batch.is_empty() {
            Some(PendingBatch::Open)
        } else if self.is_in_flight() {
            Some(PendingBatch::InFlight)
        } else {
            None
        }
    }

    pub(crate) const fn dependents(&mut self, until: PendingBatch) -> &mut BatchDependents {
        match until {
            PendingBatch::InFlight => &mut self.in_flight,
            PendingBatch::Open => &mut self.open,
        }
    }

    pub(crate) fn shard(&self, shard: ShardId) -> ShardLog {
        self.shards.get(&shard).copied().unwrap_or_default()
    }

    /// Appends a transaction to the open batch; returns its position in the shard's log.
    pub(crate) fn push(
        &mut self,
        (shard, transno): (ShardId, Transno),
        pre_versions: PreVersions,
        origin: Origin<'_>,
        changes: &[u8],
    ) -> ShardPosition {
        let open_no = self.open_no();
        let log = self.shards.entry(shard).or_default();
        log.lsn += 1;
        log.pushed = log.pushed.max(transno);
        if log.batch_no != open_no {
            log.batch_no = open_no;
            self.open.shards.push(shard);
        }
        let (lsn, term) = (log.lsn, log.term);
        self.batch.push(&Record { shard, lsn, term, transno, pre_versions, origin, changes });
        ShardPosition { lsn, term }
    }

    /// Closes the open batch.
    fn seal(&mut self) {
        self.open_since = None;
        self.batch_no += 1;
        self.in_flight_bytes = u64::try_from(self.batch.bytes_count()).unwrap_or(u64::MAX);
        core::mem::swap(&mut self.open, &mut self.in_flight);
        for shard in &self.in_flight.shards {
            if let Some(log) = self.shards.get_mut(shard) {
                log.sealed = log.pushed;
            }
        }
    }

    /// The log has failed: no batch becomes durable any more. Returns the dependents of both
    /// batches. The last-writer records stay: strict readers must not see changes that may be lost.
    fn fail(&mut self) -> [BatchDependents; 2] {
        self.in_flight_bytes = 0;
        self.open_since = None;
        self.batch = Batch::new();
        let seed = self.seed;
        [&mut self.in_flight, &mut self.open].map(|dependents| {
            let last_writers =
                core::mem::replace(&mut dependents.last_writers, LastWriters::new(seed));
            core::mem::replace(
                dependents,
                BatchDependents { last_writers, ..BatchDependents::new(seed) },
            )
        })
    }

    /// The batch in flight is durable. Returns its dependents.
    fn complete(&mut self) -> BatchDependents {
        self.in_flight_bytes = 0;
        let mut dependents =
            core::mem::replace(&mut self.in_flight, BatchDependents::new(self.seed));
        for shard in &dependents.shards {
            if let Some(log) = self.shards.get_mut(shard) {
                log.durable = log.sealed;
            }
        }
        dependents.last_writers.clear();
        dependents
    }
}

/// The record of a client's change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeRecord<'a> {
    pub(crate) slot_id: SlotId,
    pub(crate) xid: Xid,
    pub(crate) op: Op,
    pub(crate) done: &'a Done,
    pub(crate) pre_versions: PreVersions,
    pub(crate) changes: &'a [u8],
    /// Its reply may leave before the record is durable, so a redo token is needed.
    pub(crate) signed: bool,
}

impl Lane {
    /// Records a request's change; a session's first record at a shard also names the session. The
    /// caller sets the slot's state. If the change is to be signed, the token is left in the
    /// scratch vector.
    pub(crate) fn record_change(&mut self, change_record: &ChangeRecord<'_>) {
        let ChangeRecord { slot_id, xid, op, done, pre_versions, changes, signed } = *change_record;
        let SlotId { shard, session, slot } = slot_id;
        let table = self.slots.entry((shard, session)).or_default();
        let row = self.sessions.get(&session).map(|session| session.row);
        let opened = row.filter(|_| table.recorded_in.is_none());
        let open_no = self.commit.open_no();
        table.recorded_in.get_or_insert(open_no);
        table.transno_last = table.transno_last.max(done.transno);
        // A write is answered before it is recorded, so its slot may hold a later request.
        if !shard.is_data() {
            table.slot(slot).batch_no = open_no;
        }
        self.stats.change_count += 1;
        let (status, reply) = (done.status, done.body.as_slice());
        let origin = Origin::Session { session, slot, xid, op, status, reply, opened };
        let transno = done.transno;
        let ShardPosition { lsn, term } =
            self.commit.push((shard, transno), pre_versions, origin, changes);
        self.token.clear();
        if signed {
            assert!(opened.is_none(), "a session is durable before its first redo token");
            let reply_none = &[];
            let origin =
                Origin::Session { session, slot, xid, op, status, reply: reply_none, opened };
            let record = Record { shard, lsn, term, transno, pre_versions, origin, changes };
            let signed = (reply, NO_MAC);
            self.seal.token(&mut self.token, signed, |out| record.encode(out));
        }
    }

    /// Records a change of the server's own.
    pub(crate) fn record_own(&mut self, shard: ShardId, transno: Transno, changes: &[u8]) {
        self.commit.push((shard, transno), PreVersions::new(), Origin::Internal, changes);
    }

    /// Records one change of the server's own. Without a transaction number of its own it takes
    /// that of the last recorded transaction.
    pub(crate) fn record_note(&mut self, shard: ShardId, transno: Transno, change: &Change<'_>) {
        let transno = if transno.0 > 0 { transno } else { self.commit.shard(shard).pushed };
        let mut changes = core::mem::take(&mut self.changes);
        changes.clear();
        change.encode(&mut Writer::new(&mut changes));
        self.record_own(shard, transno, &changes);
        self.changes = changes;
        self.fence(change);
    }

    /// An object whose size changed accepts no further change until the record is durable.
    pub(crate) fn fence(&mut self, change: &Change<'_>) {
        if let Change::Contents(change) = change
            && change.fences()
        {
            self.commit.open.fences.push(change.inode());
        }
    }

    /// Defers the reply in a slot.
    pub(crate) fn hold(&mut self, slot_id: SlotId, dependency: CommitDependency) {
        self.count_deferred(dependency.reason);
        self.commit.dependents(dependency.until).slot_id.push(slot_id);
    }

    /// Defers a reply without a slot.
    pub(crate) fn hold_reply(&mut self, response: DeferredReply, dependency: CommitDependency) {
        self.count_deferred(dependency.reason);
        self.commit.dependents(dependency.until).response.push(response);
    }

    /// Appends the open batch to the log, unless another is in flight.
    pub(crate) fn append(&mut self, turn: &mut Turn<'_>) {
        if self.fenced {
            return self.fail_all(turn);
        }
        if self.commit.batch.is_empty() {
            return;
        }
        self.commit.open_since.get_or_insert(turn.now.mono);
        if self.commit.is_in_flight() {
            return;
        }
        let gathers = self.append_at().is_some_and(|at| turn.now.mono < at);
        if gathers && !self.is_append_wanted() {
            return;
        }
        let commit = &mut self.commit;
        commit.seal();
        let (boot_id, batch_no) = (self.config.boot_id, commit.batch_no);
        let sealed = turn.arena.write(|out| commit.batch.seal(boot_id, batch_no, out));
        let ticket = Ticket(crate::lane::LOG_TICKET | batch_no);
        turn.act(StoreAction::LogAppend { ticket, batch: sealed });
    }

    /// When the open batch is appended even without dependents.
    pub(crate) fn append_at(&self) -> Option<Mono> {
        let since = self.commit.open_since.filter(|_| !self.commit.is_in_flight())?;
        Some(since.after_ms(self.config.limits.log_ms))
    }

    /// Whether the open batch has dependents, or has gathered enough.
    fn is_append_wanted(&self) -> bool {
        const GATHERED_BYTES_MAX: usize = 256 * 1024;
        let open = &self.commit.open;
        let waited_for = !open.is_idle() || !open.fences.is_empty() || !open.replays.is_empty();
        let waiting = waited_for || self.urgent_count > 0;
        let ending = self.stopping || !self.recovery.is_over();
        // Half of what may be removed at a time, with what waits at other lanes.
        let removed_count = open.removed.len() * usize::from(self.config.lane_count());
        let removing = removed_count * 2 >= self.config.limits.destroy_count_max;
        waiting || ending || removing || self.commit.batch.bytes_count() >= GATHERED_BYTES_MAX
    }

    /// The append has ended: the batch is durable, or the log has failed.
    pub(crate) fn on_logged(&mut self, turn: &mut Turn<'_>, result: Result<LogSpace, Errno>) {
        if self.fenced {
            // A failed object fenced the lane while this batch was in flight: its dependents have
            // failed already.
            return;
        }
        assert!(self.commit.is_in_flight(), "what is durable was on its way");
        match result {
            Ok(space) => self.commit.set_space(space),
            Err(errno) => {
                return self.fence_lane(turn, "the log cannot be written", errno);
            }
        }
        self.stats.batch_count += 1;
        let mut dependents = self.commit.complete();
        self.release(turn, &dependents.slot_id);
        dependents.slot_id.clear();
        self.release_replies(turn, &mut dependents.response);
        for woken in dependents.woken.drain(..) {
            self.send_grant(turn, woken);
        }
        for shard in dependents.shards.drain(..).filter(|shard| shard.is_data()) {
            self.release_shard(turn, shard);
        }
        for (shard, session, transno) in dependents.replays.drain(..) {
            if let Some(table) = self.slots.get_mut(&(shard, session)) {
                table.committed = table.committed.max(transno);
            }
        }
        self.destroys.queue.extend(dependents.orphans.drain(..));
        for inode in dependents.removed.drain(..) {
            self.tell_removed(turn, inode);
        }
        for inode in dependents.fences.drain(..) {
            self.data.on_logged(turn, inode);
        }
        let mut awaited = core::mem::take(&mut dependents.awaited);
        self.commit.in_flight = dependents; // Retains its memory.
        for step in awaited.drain(..) {
            self.on_awaited(turn, step);
        }
        self.work(turn);
        self.on_outcomes(turn);
    }

    /// Fences the lane after a failure of the log or an object: it changes nothing more, deferred
    /// replies fail, and reads go on. Acknowledged changes are safe.
    pub(crate) fn fence_lane(&mut self, turn: &mut Turn<'_>, what: &str, errno: Errno) {
        self.fenced = true;
        let line = format!(
            "{what} ({}, errno {}). This lane changes nothing more; what it \
             acknowledged is safe, and reading goes on. Mend the disk under the store and start \
             the server again.",
            errno.status().text(),
            errno.0
        );
        self.log(turn, LogLevel::Alarm, &line);
        self.data.fence(turn);
        self.fence_txns(turn);
        self.on_outcomes(turn);
        self.fail_all(turn);
    }

    /// Fails all deferred replies, at the end of every turn behind a fence.
    fn fail_all(&mut self, turn: &mut Turn<'_>) {
        loop {
            let all_dependents = self.commit.fail();
            if all_dependents.iter().all(BatchDependents::is_idle) && self.waiters.is_empty() {
                return;
            }
            for dependents in all_dependents {
                for slot_id in dependents.slot_id {
                    self.fail_slot(turn, &slot_id);
                }
                for response in dependents.response {
                    self.fail_reply(turn, response);
                }
                for woken in dependents.woken {
                    self.send_grant(turn, woken);
                }
                for step in dependents.awaited {
                    self.fail_awaited(turn, step);
                }
            }
            self.fail_waiters(turn);
            self.work(turn);
        }
    }

    /// Fails a deferred reply without a slot.
    pub(crate) fn fail_reply(&mut self, turn: &mut Turn<'_>, response: DeferredReply) {
        let DeferredReply { conn, header, bulk, .. } = response;
        self.stats.reply_gating.released_count += 1;
        self.send(turn, conn, &header, &Response::plain(Status::Io, &[]));
        if let Some(bulk) = bulk {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// Fails the deferred reply in a slot.
    pub(crate) fn fail_slot(&mut self, turn: &mut Turn<'_>, slot_id: &SlotId) {
        self.stats.reply_gating.released_count += 1;
        let Some(table) = self.slots.get_mut(&(slot_id.shard, slot_id.session)) else { return };
        let slot = table.slot(slot_id.slot);
        let (State::Deferred(target, ..) | State::Running(target)) = slot.state else { return };
        let done = Done { status: Status::Io, transno: Transno(0), body: Vec::new() };
        slot.state = State::Done(done.clone());
        slot.batch_no = 0;
        let request = (slot.xid, slot.op);
        let slot_reply = SlotReply { target, done: &done, flags: 0, token: &[] };
        self.answer_slot(turn, slot_id, request, &slot_reply);
    }
}
