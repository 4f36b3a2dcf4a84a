//! The log of this lane (group commit): records gather in the open batch; one batch at a time is
//! made durable, and then all that depends on it proceeds.
//!
//! ```text
//! open batch ─ settle, nothing in flight ─▶ LogAppend ─ Logged ─▶ flushed ─▶ safe: replies, orphans,
//!     ▲ later requests                                    │                  removals, fences
//!                                                         └ Err ─▶ fenced: acknowledges no more
//! ```
//! Batches are numbered. A batch is safe for a shard when every member that the shard requires has
//! acknowledged it ([`Acknowledgements`]); what depends on the shard's records in it proceeds then,
//! in the order of the batches.
//! A batch without dependents gathers a little longer (`Limits::log_ms`): a flush costs more
//! processor time than the changes of one caller.

use crate::Lane;
use crate::acknowledgements::{Acknowledgements, Acknowledger, BatchNo, Gate, Scope};
use crate::commit_dependency::CommitDependency;
use crate::dependents::{BatchDependents, Dependents};
use crate::last_writer::{DirWriters, LastWriter, LastWriters};
use crate::request_header::SlotId;
use crate::response::{DeferredReply, Response, SlotReply};
use crate::session::{Done, State};
use crate::token::Seal;
use crate::waiters::{Cause, Waiter};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use disk::{Batch, Change, Origin, PreVersions, Record, ShardPosition};
use hashbrown::HashMap;
use interface::{Action, Errno, LogLevel, LogSpace, Mono, NO_MAC, Seed, StoreAction, Ticket, Turn};
use meta::{DependencyKey, KeyAccess};
use wire::counters::Histogram;
use wire::{InodeNo, Op, ShardId, Status, Term, Transno, Wire, Writer, Xid};

/// The positions of a shard in the log.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ShardLog {
    /// Number of its last record.
    pub(crate) lsn: u64,
    /// The term in which it goes on.
    pub(crate) term: Term,
    /// The highest transaction recorded, and in batches that are safe for the shard.
    pub(crate) pushed: Transno,
    pub(crate) durable: Transno,
    /// The batch of its last record.
    batch_no: BatchNo,
}

/// The log.
#[derive(Debug)]
pub(crate) struct Commit {
    batch: Batch,
    /// The batch that was sealed last; the open one has the next number.
    sealed_no: BatchNo,
    /// When the open batch was first found not to be empty.
    open_since: Option<Mono>,
    /// Bytes of the batch in flight, 0 when there is none.
    in_flight_bytes: u64,
    /// When it was handed over.
    in_flight_since: Mono,
    /// How long the last batch was in flight that has ended.
    flush_last_us: u64,
    /// How long batches were in flight.
    flush_times: Histogram,
    acknowledgements: Acknowledgements,
    last_writers: LastWriters,
    dependents: Dependents,
    /// More is safe than has been released.
    release_due: bool,
    space: LogSpace,
    shards: HashMap<ShardId, ShardLog, Seed>,
    /// Signs redo tokens.
    tokens: Seal,
    /// The log has failed: the lane changes nothing any more.
    has_failed: bool,
}

impl Commit {
    /// Who changed a key last, in a batch that is not safe.
    pub(crate) fn last_writer(&self, key: DependencyKey) -> Option<&LastWriter> {
        self.last_writers.last(key, &self.acknowledgements)
    }

    /// Who changed a directory's entries, the latest first, in batches that are not safe.
    pub(crate) fn dir_writers(&self, dir: InodeNo) -> impl Iterator<Item = DirWriters> {
        self.last_writers.dir_writers(dir, &self.acknowledgements)
    }

    /// A change in the open batch uses a key.
    pub(crate) fn on_written(&mut self, used: &KeyAccess, last_writer: LastWriter) {
        self.last_writers.insert(used, last_writer);
    }

    /// `shards`: each shard's last log sequence number with the term of this start, and its highest
    /// transaction number, which earlier boots may have assigned.
    pub(crate) fn new(
        seed: Seed,
        tokens: Seal,
        shards: impl Iterator<Item = (ShardId, ShardPosition, Transno)>,
    ) -> Self {
        let mut by_shard = HashMap::with_hasher(seed);
        by_shard.extend(shards.map(|(shard, ShardPosition { lsn, term }, transno)| {
            let (pushed, durable) = (transno, transno);
            (shard, ShardLog { lsn, term, pushed, durable, batch_no: BatchNo(0) })
        }));
        Self {
            batch: Batch::new(),
            sealed_no: BatchNo(0),
            open_since: None,
            in_flight_bytes: 0,
            in_flight_since: Mono::default(),
            flush_last_us: 0,
            flush_times: Histogram::default(),
            acknowledgements: Acknowledgements::new(),
            last_writers: LastWriters::new(seed),
            dependents: Dependents::default(),
            release_due: false,
            // Until the runtime reports the space, only a failed append shows a full log.
            space: LogSpace { space_bytes: u64::MAX, awaits_checkpoint: false },
            shards: by_shard,
            tokens,
            has_failed: false,
        }
    }

    /// What signs redo tokens and opens signed ones.
    pub(crate) const fn tokens(&self) -> &Seal {
        &self.tokens
    }

    /// Whether the log has failed: the lane changes nothing any more.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether everything recorded is safe.
    pub(crate) fn is_idle(&self) -> bool {
        self.last_unsafe().is_none()
    }

    /// How long batches were in flight, by the lane's turns.
    pub(crate) const fn flush_times(&self) -> &Histogram {
        &self.flush_times
    }

    pub(crate) const fn is_in_flight(&self) -> bool {
        self.in_flight_bytes > 0
    }

    /// How long the batch in flight takes so far.
    pub(crate) fn flush_age_us(&self, now: Mono) -> u64 {
        if self.is_in_flight() { now.since_ns(self.in_flight_since) / 1000 } else { 0 }
    }

    /// How long the last batch was in flight, or is so far.
    pub(crate) fn flush_us(&self, now: Mono) -> u64 {
        if self.is_in_flight() { self.flush_age_us(now) } else { self.flush_last_us }
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
        let promised_bytes = self.in_flight_bytes.saturating_add(self.open_bytes());
        self.space.space_bytes.saturating_sub(promised_bytes)
    }

    /// The bytes of the open batch.
    pub(crate) fn open_bytes(&self) -> u64 {
        u64::try_from(self.batch.bytes_count()).unwrap_or(u64::MAX)
    }

    /// The open batch.
    pub(crate) const fn open_no(&self) -> BatchNo {
        self.sealed_no.next()
    }

    /// The records of a shard up to those in the open batch.
    pub(crate) const fn open_gate(&self, shard: ShardId) -> Gate {
        Gate::of(shard, self.open_no())
    }

    pub(crate) fn is_safe(&self, gate: Gate) -> bool {
        self.acknowledgements.is_safe(gate)
    }

    /// The last record of a shard, if that is not safe.
    pub(crate) fn last_unsafe_of(&self, shard: ShardId) -> Option<Gate> {
        let gate = Gate::of(shard, self.shards.get(&shard)?.batch_no);
        (!self.is_safe(gate)).then_some(gate)
    }

    /// The last record of any shard, if not all are safe.
    pub(crate) fn last_unsafe(&self) -> Option<Gate> {
        let last_no = if self.batch.is_empty() { self.sealed_no } else { self.open_no() };
        let gate = Gate::of_all(last_no);
        (!self.is_safe(gate)).then_some(gate)
    }

    /// What depends on something that is not safe.
    pub(crate) fn dependents(&mut self, gate: Gate) -> &mut BatchDependents {
        assert!(!self.is_safe(gate), "nothing waits for what is safe");
        self.dependents.of(gate)
    }

    /// What depends on the records of a shard in the open batch.
    pub(crate) fn open(&mut self, shard: ShardId) -> &mut BatchDependents {
        self.dependents(self.open_gate(shard))
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
        let (lsn, term) = (log.lsn, log.term);
        if core::mem::replace(&mut log.batch_no, open_no) != open_no {
            self.open(shard);
        }
        self.batch.push(&Record { shard, lsn, term, transno, pre_versions, origin, changes });
        ShardPosition { lsn, term }
    }

    /// Closes the open batch. Returns its number.
    fn seal(&mut self, now: Mono) -> BatchNo {
        let open_no = self.open_no();
        for (scope, open) in self.dependents.of_last(open_no) {
            if let Scope::Shard(shard) = scope {
                open.transno_last = self.shards.get(&shard).map_or(Transno(0), |log| log.pushed);
            }
        }
        self.open_since = None;
        self.in_flight_since = now;
        self.in_flight_bytes = u64::try_from(self.batch.bytes_count()).unwrap_or(u64::MAX);
        self.sealed_no = open_no;
        self.last_writers.on_sealed(self.acknowledgements.safe(Scope::Lane));
        self.sealed_no
    }

    /// The log has failed: no further batch becomes safe. The last-writer records stay: strict
    /// readers must not see changes that may be lost.
    fn fail(&mut self) {
        self.in_flight_bytes = 0;
        self.open_since = None;
        self.batch = Batch::new();
        self.dependents.clear();
    }

    /// The batch in flight is flushed.
    fn on_flushed(&mut self) {
        self.in_flight_bytes = 0;
        self.flush_times.record(self.flush_last_us);
        self.acknowledge(Acknowledger::LOCAL_FLUSH, self.sealed_no);
    }

    /// A member has acknowledged all batches up to this one.
    pub(crate) fn acknowledge(&mut self, by: Acknowledger, up_to: BatchNo) {
        if !self.acknowledgements.acknowledge(by, up_to) {
            return;
        }
        let Self { acknowledgements, dependents, shards, last_writers, .. } = self;
        for (shard, last) in dependents.durable(|scope| acknowledgements.safe(scope)) {
            if let Some(log) = shards.get_mut(&shard) {
                log.durable = log.durable.max(last);
            }
        }
        last_writers.on_safe(acknowledgements.safe(Scope::Lane));
        self.release_due = true;
    }

    /// A shard requires a further member, which has acknowledged everything sealed so far.
    #[cfg(test)]
    pub(crate) fn require(&mut self, shard: ShardId, member: Acknowledger) {
        self.acknowledgements.require(shard, member, self.sealed_no);
    }

    /// The last sealed batch.
    #[cfg(test)]
    pub(crate) const fn sealed_no(&self) -> BatchNo {
        self.sealed_no
    }

    /// Whether more is safe than has been released.
    pub(crate) const fn has_safe(&self) -> bool {
        self.release_due
    }

    /// Takes the dependents of what is safe.
    fn take_safe(&mut self) -> Vec<(Gate, BatchDependents)> {
        self.release_due = false;
        let Self { acknowledgements, dependents, .. } = self;
        dependents.take_safe(|scope| acknowledgements.safe(scope))
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
    /// caller sets the slot's state. Returns the redo token, empty unless the change is to be
    /// signed.
    pub(crate) fn record_change(&mut self, change_record: &ChangeRecord<'_>) -> Vec<u8> {
        let ChangeRecord { slot_id, xid, op, done, pre_versions, changes, signed } = *change_record;
        let SlotId { shard, session, slot } = slot_id;
        let row = self.sessions.get(session).map(|session| session.row);
        let table = self.sessions.table_or_new((shard, session));
        let open_no = self.commit.open_no();
        let is_first = table.on_record(open_no, done.transno);
        let opened = row.filter(|_| is_first);
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
        if !signed {
            return Vec::new();
        }
        assert!(opened.is_none(), "a session is durable before its first redo token");
        let reply_none = &[];
        let origin = Origin::Session { session, slot, xid, op, status, reply: reply_none, opened };
        let record = Record { shard, lsn, term, transno, pre_versions, origin, changes };
        let signed = (reply, NO_MAC);
        let mut token = self.scratch.empty();
        self.commit.tokens().token(&mut token, signed, |out| record.encode(out));
        token
    }

    /// Records a change of the server's own.
    pub(crate) fn record_own(&mut self, shard: ShardId, transno: Transno, changes: &[u8]) {
        self.commit.push((shard, transno), PreVersions::new(), Origin::Internal, changes);
    }

    /// Records one change of the server's own. Without a transaction number of its own it takes
    /// that of the last recorded transaction.
    pub(crate) fn record_own_change(
        &mut self,
        shard: ShardId,
        transno: Transno,
        change: &Change<'_>,
    ) {
        let transno = if transno.0 > 0 { transno } else { self.commit.shard(shard).pushed };
        let mut changes = self.scratch.empty();
        change.encode(&mut Writer::new(&mut changes));
        self.record_own(shard, transno, &changes);
        self.scratch.recycle(changes);
        self.fence(shard, change);
    }

    /// An object whose size changed accepts no further change until the record is durable.
    pub(crate) fn fence(&mut self, shard: ShardId, change: &Change<'_>) {
        if let Change::Contents(change) = change
            && change.fences()
        {
            self.commit.open(shard).fences.push(change.inode());
        }
    }

    /// Defers the reply in a slot.
    pub(crate) fn hold(&mut self, slot_id: SlotId, dependency: CommitDependency) {
        self.count_deferred(dependency.reason);
        self.waiters.suspend(Cause::Batch(dependency.until), Waiter::Slot(slot_id));
    }

    /// Defers a reply without a slot.
    pub(crate) fn hold_reply(&mut self, response: DeferredReply, dependency: CommitDependency) {
        self.count_deferred(dependency.reason);
        self.waiters.suspend(Cause::Batch(dependency.until), Waiter::Reply(response));
    }

    /// Appends the open batch to the log, unless another is in flight.
    pub(crate) fn append(&mut self, turn: &mut Turn<'_>) {
        if self.commit.has_failed() {
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
        let BatchNo(batch_no) = commit.seal(turn.now.mono);
        let boot_id = self.config.boot_id;
        let sealed = turn.arena.write(|out| commit.batch.seal(boot_id, batch_no, out));
        let ticket = Ticket(crate::ticket::LOG_TICKET | batch_no);
        turn.act(StoreAction::LogAppend { ticket, batch: sealed });
    }

    /// When the open batch is appended even without dependents.
    pub(crate) fn append_at(&self) -> Option<Mono> {
        let since = self.commit.open_since.filter(|_| !self.commit.is_in_flight())?;
        Some(since.after_ms(self.config.limits.log_ms))
    }

    /// Whether the open batch has dependents, or has gathered enough.
    fn is_append_wanted(&mut self) -> bool {
        const GATHERED_BYTES_MAX: usize = 256 * 1024;
        let open_no = self.commit.open_no();
        let (mut has_dependents, mut removed_count) = (false, 0);
        for (_, open) in self.commit.dependents.of_last(open_no) {
            has_dependents |= !open.fences.is_empty() || !open.replays.is_empty();
            removed_count += open.removed.len();
        }
        // Half of what may be removed at a time, with what waits at other lanes.
        let removed_count = removed_count * usize::from(self.config.lane_count());
        let waited_for = self.waiters.gates().any(|gate| gate.batch_no == open_no);
        let is_recorded = |shard, transno| self.commit.shard(shard).pushed >= transno;
        // One flush for the names and the contents of an fsync, and no other one beside the
        // object's.
        let waiting = has_dependents
            || ((waited_for || self.waiters.is_urgent())
                && !self.waiters.await_contents_too(open_no, is_recorded));
        let ending = self.is_stopping() || !self.recovery.is_over();
        let removing = removed_count * 2 >= self.config.limits.destroy_count_max;
        waiting || ending || removing || self.commit.batch.bytes_count() >= GATHERED_BYTES_MAX
    }

    /// The append has ended: the batch is durable, or the log has failed.
    pub(crate) fn on_logged(&mut self, turn: &mut Turn<'_>, result: Result<LogSpace, Errno>) {
        if self.commit.has_failed() {
            // A failed object fenced the lane while this batch was in flight: its dependents have
            // failed already.
            return;
        }
        assert!(self.commit.is_in_flight(), "what is durable was on its way");
        self.commit.flush_last_us = self.commit.flush_age_us(turn.now.mono);
        match result {
            Ok(space) => self.commit.set_space(space),
            Err(errno) => {
                return self.fence_lane(turn, "the log cannot be written", errno);
            }
        }
        self.stats.batch_count += 1;
        self.commit.on_flushed();
        self.release_safe(turn);
    }

    /// Releases what depends on safe batches, in the order of the batches.
    pub(crate) fn release_safe(&mut self, turn: &mut Turn<'_>) {
        let order = |gate: Gate| (gate.batch_no, gate.scope);
        let dependents = self.commit.take_safe().into_iter();
        let mut safe: BTreeMap<_, _> =
            dependents.map(|(gate, dependents)| (order(gate), dependents)).collect();
        for gate in self.waiters.gates().filter(|gate| self.commit.is_safe(*gate)) {
            safe.entry(order(gate)).or_default();
        }
        for ((batch_no, scope), dependents) in safe {
            self.release_gate(turn, Gate { scope, batch_no }, dependents);
        }
        self.work(turn);
        self.on_outcomes(turn);
    }

    fn release_gate(&mut self, turn: &mut Turn<'_>, gate: Gate, dependents: BatchDependents) {
        let waiters = self.waiters.release(&Cause::Batch(gate));
        // Steps may use what the batch made durable; replies may leave before.
        let (steps, replies): (Vec<Waiter>, Vec<Waiter>) =
            waiters.into_iter().partition(|waiter| matches!(waiter, Waiter::Step(_)));
        replies.into_iter().for_each(|waiter| self.on_safe(turn, waiter));
        if let Scope::Shard(shard) = gate.scope {
            if shard.is_data() {
                self.release_shard(turn, shard);
            }
            for (session, transno) in dependents.replays {
                if let Some(table) = self.sessions.table_mut((shard, session)) {
                    table.committed = table.committed.max(transno);
                }
            }
        }
        self.destroys.queue.extend(dependents.orphans);
        dependents.removed.into_iter().for_each(|inode| self.tell_removed(turn, inode));
        dependents.fences.into_iter().for_each(|inode| self.data.on_logged(turn, inode));
        steps.into_iter().for_each(|step| self.on_safe(turn, step));
    }

    /// Fences the lane after a failure of the log or an object: it changes nothing more, deferred
    /// replies fail, and reads go on. Acknowledged changes are safe.
    pub(crate) fn fence_lane(&mut self, turn: &mut Turn<'_>, what: &str, errno: Errno) {
        self.commit.has_failed = true;
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
            self.commit.fail();
            if !self.fail_unsafe(turn) {
                return;
            }
            self.work(turn);
        }
    }

    /// What a waiter waited for is safe.
    pub(crate) fn on_safe(&mut self, turn: &mut Turn<'_>, waiter: Waiter) {
        match waiter {
            Waiter::Slot(slot_id) => self.release(turn, &slot_id),
            Waiter::Reply(reply) => self.release_reply(turn, reply),
            Waiter::Size(sizing, contents) => self.send_size(turn, sizing, Some(contents)),
            Waiter::Part(work, contents) => self.tell_part(turn, work, Some(contents)),
            Waiter::Step(step) => self.on_awaited(turn, step),
            Waiter::Grant(ended) => self.send_grant(turn, ended),
            Waiter::Suspended(suspended) => self.waiters.resume_soon(*suspended),
            // These wait for other causes.
            Waiter::Received(_) => {}
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
        let Some(slot) = self.sessions.slot(slot_id) else { return };
        let (State::Deferred(target, ..) | State::Running(target)) = slot.state else { return };
        let done = Done { status: Status::Io, transno: Transno(0), body: Vec::new() };
        slot.state = State::Done(done.clone());
        slot.lease = None;
        slot.batch_no = BatchNo(0);
        let request = (slot.xid, slot.op);
        let slot_reply = SlotReply { target, done: &done, flags: 0, lease: None, token: &[] };
        self.answer_slot(turn, slot_id, request, &slot_reply);
    }
}
