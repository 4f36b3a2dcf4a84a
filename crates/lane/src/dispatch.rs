//! A request of an authenticated connection: checked, routed, judged against its slot, executed.

use crate::Lane;
use crate::acknowledgements::{BatchNo, Gate};
use crate::commit::ChangeRecord;
use crate::commit_dependency::{CommitDependency, Reason};
use crate::config::Share;
use crate::containment::Checked;
use crate::counters::bytes_of;
use crate::file_locks::is_lock;
use crate::request::{ReceivedRequest, Sizing};
use crate::request_header::{RequestHeader, SlotId, Target, Times};
use crate::response::{DeferredReply, Response, SlotReply};
use crate::session::{Done, State, Verdict};
use crate::shares::bulk_was_discarded;
use crate::waiters::Cause;
use alloc::vec::Vec;
use interface::{Action, Bulk, ConnId, Span, Turn};
use wire::{
    Changes, DuringRecovery, Executor, HEADER_BYTES, Header, Op, ProtocolError, Request, Retry,
    Route, Status, Timestamp, reply_flag, request_flag,
};

impl Lane {
    /// A frame of an authenticated connection: it must be a request.
    /// `earlier`: its times, if it arrived before and is counted already.
    pub(crate) fn on_request(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        (frame, bulk): (Span, Option<Bulk>),
        earlier: Option<Times>,
    ) {
        let depth = self.traces.depth();
        let outcome = self.arrive(turn, conn, (frame, bulk), earlier);
        if let Some(current) = self.traces.executed(depth) {
            let client = self.connections.get(conn).map(|open| open.client);
            self.traces.end(current, turn.arena.get(frame), (client, turn.now.mono));
        }
        let retained = match outcome {
            Ok(retained) => retained,
            Err(protocol_error) => {
                self.protocol_error(turn, conn, protocol_error);
                false
            }
        };
        if let Some(bulk) = bulk.filter(|_| !retained) {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// Dispatches a request. Returns whether its bulk has another owner from here on.
    fn arrive(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        (frame, bulk): (Span, Option<Bulk>),
        earlier: Option<Times>,
    ) -> Result<bool, ProtocolError> {
        let (header, body) = Header::decode(turn.arena.get(frame))?;
        let request = match header {
            Header::Request(request) => request,
            Header::RecallAck => {
                let body = body.to_vec();
                return self.on_recall_ack(turn, conn, &body).map(|()| false);
            }
            Header::Received => return self.on_received_by_others(conn, body).map(|()| false),
            Header::Handshake(_)
            | Header::Reply(_)
            | Header::CommitNotification
            | Header::Grant
            | Header::Recall
            | Header::PeerMessage
            | Header::MapNote => return Err(ProtocolError::Kind),
        };
        let Some(served) = self.connections.served_mut(conn) else { return Ok(false) };
        if !self.sessions.has(served.session()) {
            return Err(ProtocolError::Sequence); // It has sent Goodbye.
        }
        self.leases.renew(served.session(), turn.now.mono);
        let bulk_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes);
        let open = served.take(&request, bulk_bytes, (&self.config.limits, &self.config.map))?;
        let (in_bytes, tally) = (bytes_of(frame, bulk_bytes), served.tally_no());
        let times = Times::of(earlier, turn.now.mono);
        let trace =
            self.traces.begin(request.trace_id, (times.arrived, earlier.map(|it| it.trace)));
        let times = Times { trace, tally, in_bytes, ..times };
        let denied = None;
        let received =
            ReceivedRequest { conn, open, request: &request, frame, bulk, denied, times };
        let row = request.op.row();
        // What a client registers is taken when it arrives, whatever map comes while it waits: recovery
        // counts it as there.
        let is_taken = earlier.is_some() && row.recovery == DuringRecovery::Registers;
        if let Some((status, body)) = self.check_route(&request).filter(|_| !is_taken) {
            self.refuse_route(turn, &received, &Response::plain(status, &body));
            return Ok(false);
        }
        if row.route == Route::Lane && self.recovery.is_over() {
            return self.execute_own(turn, &received).map(|()| false);
        }
        if request.flags & request_flag::REPLAY != 0 {
            return self.on_replay(turn, &received);
        }
        if row.recovery == DuringRecovery::Registers && !self.containment.again {
            self.recovery.on_reopen(&request, turn.now.mono, &self.config.limits);
        }
        let body = &turn.arena.get(frame)[HEADER_BYTES..];
        if !self.recovery.is_over() && request.op == Op::Reopen {
            let body = body.to_vec();
            self.read_reopened(turn, request.shard, &body);
        }
        let body = &turn.arena.get(frame)[HEADER_BYTES..];
        if !self.recovery.is_over() && !self.is_recovery(&received, body) {
            let cause = match row.recovery {
                DuringRecovery::Registers => Cause::Reopening,
                DuringRecovery::Waits | DuringRecovery::Runs => Cause::Recovery,
            };
            self.suspend_received(turn, &received, cause);
            return Ok(true);
        }
        if self.freeze.is_on() && row.changes_store() {
            self.suspend_received(turn, &received, Cause::Freeze);
            return Ok(true);
        }
        if self.awaits_peers(request.op, &turn.arena.get(frame)[HEADER_BYTES..]) {
            self.suspend_received(turn, &received, Cause::Containment);
            return Ok(true);
        }
        let denied = match self.check_containment(turn, &received) {
            Checked::Passes if bulk_was_discarded(turn.arena.get(frame), bulk) => {
                Some(Status::ReadOnly)
            }
            Checked::Passes => None,
            Checked::Waits => {
                self.suspend_received(turn, &received, Cause::Containment);
                return Ok(true);
            }
            Checked::Denied(status) => Some(status),
        };
        let received = ReceivedRequest { denied, ..received };
        // Every request to a shard acknowledges the replies that its client has received.
        if row.route != Route::Lane
            && let Some(table) = self.sessions.table_mut((request.shard, request.session))
        {
            table.acknowledge(request.ack_xid, request.sack);
        }
        match (row.executor, row.retry) {
            (Executor::Lane, _) => self.execute_own(turn, &received).map(|()| false),
            (Executor::Metadata | Executor::Locks | Executor::Data, Retry::Repeat) => {
                self.repeat(turn, &received)
            }
            (Executor::Metadata | Executor::Locks | Executor::Data, Retry::Once) => {
                self.once(turn, &received)
            }
        }
    }

    /// Answers a request that was executed, at once.
    pub(crate) fn answer(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        body: &[u8],
    ) {
        let response = Response::plain(Status::Ok, body);
        self.send_reply(turn, received.conn, &received.header(), &response);
    }

    /// Defers a reply without a slot; its request is outstanding meanwhile.
    pub(crate) fn defer_reply(
        &mut self,
        received: &ReceivedRequest<'_>,
        (status, body): (Status, Vec<u8>),
        dependency: CommitDependency,
    ) {
        self.count_outstanding(received);
        // It was executed in this turn.
        let times = received.times.done(received.times.executed);
        let (conn, header) = (received.conn, RequestHeader { times, ..received.header() });
        self.hold_reply(DeferredReply { conn, header, status, body, bulk: None }, dependency);
    }

    /// Executes a request that changes nothing.
    fn repeat(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Result<bool, ProtocolError> {
        let request = received.request;
        if let Some(status) = received.denied {
            self.deny(turn, received, status);
            return Ok(false);
        }
        match request.op.row().executor {
            Executor::Data if self.refuses_look(turn, received) => return Ok(false),
            Executor::Data => return self.ask_data(turn, received).map(|()| true),
            Executor::Locks | Executor::Lane => {
                return self.execute_own(turn, received).map(|()| false);
            }
            Executor::Metadata => {}
        }
        if self.waits_for_writers(turn, received) || self.waits_for_record(turn, received) {
            self.count_outstanding(received);
            return Ok(false);
        }
        let effect = self.execute(turn, received)?;
        if effect.status == Status::Busy {
            self.suspend(turn, received);
            self.count_outstanding(received);
            return Ok(false);
        }
        self.send_found(turn, effect.found);
        self.report_open_files(turn, received, effect.status);
        self.on_access_of(turn, received, effect.access);
        let strict = self.config.limits.share == Share::Strict;
        let dependency = strict.then(|| self.dependency(received, &effect)).flatten();
        let is_deferred = dependency.is_some();
        let lease = if is_deferred { None } else { self.grant(turn, received, effect.status) };
        let body = self.scratch.take_reply();
        if let Some(dependency) = dependency {
            let status = effect.status;
            self.defer_reply(received, (status, body.clone()), dependency);
        } else {
            let lease = lease.as_ref();
            let response = Response { lease, ..Response::plain(effect.status, &body) };
            self.send_reply(turn, received.conn, &received.header(), &response);
        }
        self.scratch.return_reply(body);
        Ok(false)
    }

    /// Executes at a metadata shard; reply body and changes lie in [`crate::scratch::Scratch`].
    pub(crate) fn execute(
        &mut self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Result<meta::Effect, ProtocolError> {
        let request = received.request;
        let ask = self.meta_request(turn, received);
        self.scratch.begin();
        if self.has_its_handles(received) {
            return Ok(meta::Effect::unchanged(Status::TooManyFiles));
        }
        let index = self.meta_index(request.shard);
        if request.op == Op::Mkdir {
            let spread = self.next_place();
            self.metas[index].set_placement(spread);
        }
        let (reply, changes) = self.scratch.begin();
        let changed_behind = self.leases.changed_behind();
        let ask = meta::MetaRequest { changed_behind, ..ask };
        let effect = self.metas[index].execute(&ask, reply, changes)?;
        if effect.status == Status::Ok {
            self.complete(request.op);
        }
        let stuck = effect.status == Status::Busy && self.is_stuck(request.shard);
        Ok(if stuck { meta::Effect::unchanged(Status::Io) } else { effect })
    }

    /// A request as its metadata shard sees it.
    pub(crate) fn meta_request<'t>(
        &self,
        turn: &'t Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> meta::MetaRequest<'t> {
        meta::MetaRequest {
            op: received.request.op,
            body: &turn.arena.get(received.frame)[HEADER_BYTES..],
            client: received.open.client,
            squash: received.open.binding.squash,
            export_root: received.open.binding.top,
            now: Timestamp::from_ns(turn.now.wall_ns),
            records_reads: self.config.limits.share == Share::Strict,
            changed_behind: None,
        }
    }

    /// Executes a request that must take effect exactly once.
    fn once(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Result<bool, ProtocolError> {
        let request = received.request;
        self.sessions.on_request(request.session);
        let slot_id = SlotId { shard: request.shard, session: request.session, slot: request.slot };
        let target = received.target();
        let key = (request.shard, request.session);
        let table = self.sessions.table_or_new(key);
        match table.judge(request.slot, (request.xid, request.op), target)? {
            Verdict::Drop => {
                self.connections.settled(received.conn);
                return Ok(false);
            }
            Verdict::Attached => return Ok(false),
            // The slot may be of an earlier start, whose handles and locks are lost.
            Verdict::Seen if request.op.row().recovery == DuringRecovery::Registers => {}
            Verdict::Seen => {
                self.answer_when_told(turn, received);
                self.answer_seen(turn, &slot_id, target);
                return Ok(false);
            }
            Verdict::New => {}
        }
        if self.hinders_append(turn, received) {
            return Ok(false);
        }
        if let Some(status) = self.refused(turn, received) {
            self.end_refused(turn, received, status);
            return Ok(false);
        }
        if request.shard.is_data() {
            self.record_at_data_shards(turn, key);
            let slot = self.sessions.table_or_new(key).slot(request.slot);
            slot.xid = request.xid;
            slot.op = request.op;
            slot.state = State::Running(target);
            return self.run_data(turn, received).map(|()| true);
        }
        self.run(turn, received).map(|()| false)
    }

    /// Executes what takes effect once, at a metadata shard.
    pub(crate) fn run(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Result<(), ProtocolError> {
        if is_lock(received.request.op) {
            return self.execute_own(turn, received);
        }
        if self.refuses_behind(turn, received) {
            self.end_refused(turn, received, Status::Stale);
            return Ok(());
        }
        if self.waits_for_leases(turn, received) || self.waits_for_record(turn, received) {
            return Ok(());
        }
        let mut effect = self.execute(turn, received)?;
        if effect.status == Status::Busy {
            self.suspend(turn, received);
            return Ok(());
        }
        if effect.status == Status::CrossDevice {
            self.begin_across(turn, received);
            return Ok(());
        }
        self.note_behind(turn, received);
        self.leases.note_removed(self.scratch.changes());
        self.report_open_files(turn, received, effect.status);
        self.on_made(turn, received);
        self.remember_opener(received, &mut effect);
        if let Some(changed) = effect.privileged_bits {
            self.send_privileged_bits(turn, received, changed);
        }
        self.send_found(turn, effect.found);
        let index = self.meta_index(received.request.shard);
        self.send_containment_changes(turn, index..index + 1);
        let dependency = self.dependency(received, &effect);
        if effect.transno.0 == 0 {
            self.done(turn, received, effect.status, dependency);
        } else {
            self.changed(turn, received, &effect, dependency);
        }
        if let Some(inode) = effect.orphan {
            self.destroy_when_durable(inode);
        }
        if let Some((inode, number)) = effect.settling {
            self.on_settling(turn, Sizing { inode, number });
        }
        self.on_access_of(turn, received, effect.access);
        // Others' requests may go on, and use the scratch.
        self.note_writing(turn, received, effect.status);
        Ok(())
    }

    /// Why a change is refused, if so.
    pub(crate) fn refused(
        &self,
        turn: &Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Option<Status> {
        if received.denied.is_some() {
            received.denied
        } else if self.commit.has_failed() {
            self.when_fenced(turn, received)
        } else if self.peers.is_full() {
            Some(Status::NoSpace)
        } else {
            self.space_for(received.request.op).err()
        }
    }

    pub(crate) fn end_refused(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        status: Status,
    ) {
        if self.is_retried_later(turn.now.mono, (received.request.op, status)) {
            // The slot is unchanged, so the client can resend.
            let response = Response::plain(Status::RetryLater, &[]);
            return self.send(turn, received.conn, &received.header(), &response);
        }
        self.note_behind(turn, received);
        self.scratch.begin();
        self.done(turn, received, status, None);
    }

    /// The reply to a change behind a fence; `None`: it changes nothing durable and is executed.
    fn when_fenced(&self, turn: &Turn<'_>, received: &ReceivedRequest<'_>) -> Option<Status> {
        let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
        let op = received.request.op;
        if op == Op::Close {
            return Some(Status::Ok); // Handles end with this boot anyway.
        }
        if is_lock(op) {
            return None;
        }
        let opens = op.row().changes == Changes::IfOpenedForWriting;
        let reads = opens && !crate::named_inodes::changes(op, body);
        // A resent write may be in its object, recorded or not.
        let request = received.request;
        let begun = request.shard.is_data() && request.flags & request_flag::RESENT != 0;
        (!reads).then_some(if begun { Status::Io } else { Status::ReadOnly })
    }

    /// A resent request that was executed before: replies from the slot, once its change is
    /// durable.
    fn answer_seen(&mut self, turn: &mut Turn<'_>, slot_id: &SlotId, target: Target) {
        self.stats.from_slot_count += 1;
        let Some(slot) = self.sessions.slot(slot_id) else { return };
        let State::Done(done) = &slot.state else { return };
        let (xid, op, done) = (slot.xid, slot.op, done.clone());
        let target = target.done(turn.now.mono);
        if self.commit.has_failed() && done.transno > self.commit.shard(slot_id.shard).durable {
            // It may never be durable, and there is no redo token for it.
            slot.state = State::Deferred(target, done, Vec::new());
            return self.fail_slot(turn, slot_id);
        }
        if slot_id.shard.is_data() && done.transno > self.commit.shard(slot_id.shard).durable {
            let transno = done.transno;
            slot.state = State::Deferred(target, done, Vec::new());
            return self.await_write(*slot_id, transno);
        }
        let until = Gate::of(slot_id.shard, slot.batch_no);
        if !self.commit.is_safe(until) {
            let reason = Reason::Itself;
            slot.state = State::Deferred(target, done, Vec::new());
            return self.hold(*slot_id, CommitDependency { until, reason });
        }
        let flags = reply_flag::FROM_SLOT;
        let slot_reply = SlotReply { target, done: &done, flags, lease: None, token: &[] };
        self.answer_slot(turn, slot_id, (xid, op), &slot_reply);
    }

    /// Records the session of a client that opens or locks a file, even if it never changes
    /// anything: recovery after a restart must wait for its handles.
    pub(crate) fn remember_opener(
        &mut self,
        received: &ReceivedRequest<'_>,
        effect: &mut meta::Effect,
    ) {
        let request = received.request;
        let opens = request.op.row().opens || is_lock(request.op);
        if !opens || effect.status != Status::Ok || effect.transno.0 > 0 {
            return;
        }
        let table = self.sessions.table((request.shard, request.session));
        if self.commit.has_failed() {
            return;
        }
        if table.is_none_or(|table| table.recorded_in.is_none()) {
            let index = self.meta_index(request.shard);
            effect.transno = self.metas[index].take_transno();
        }
    }

    /// Stores the outcome of a request that changed nothing durable, in memory only. A resend after
    /// a crash executes it again, which is correct.
    pub(crate) fn done(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        status: Status,
        dependency: Option<CommitDependency>,
    ) {
        let request = received.request;
        let lease = self.grant(turn, received, status);
        let body = self.scratch.take_reply();
        let Request { shard, session, slot: number, .. } = *request;
        let slot = self.sessions.table_or_new((shard, session)).slot(number);
        slot.xid = request.xid;
        slot.op = request.op;
        slot.batch_no = BatchNo(0);
        slot.lease = None;
        let transno = wire::Transno(0);
        let done = Done { status, transno, body: body.clone() };
        if let Some(dependency) = dependency {
            let target = received.target().done(turn.now.mono);
            slot.state = State::Deferred(target, done, Vec::new());
            slot.lease = lease;
            self.hold(SlotId { shard, session, slot: number }, dependency);
        } else {
            slot.state = State::Done(done);
            let lease = lease.as_ref();
            let response = Response { lease, ..Response::plain(status, &body) };
            self.send(turn, received.conn, &received.header(), &response);
        }
        self.scratch.return_reply(body);
    }

    /// Records a change, and replies at once with a redo token, or when its commit dependency is
    /// durable.
    pub(crate) fn changed(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        effect: &meta::Effect,
        dependency: Option<CommitDependency>,
    ) {
        let Request { shard, session, slot: number, xid, op, .. } = *received.request;
        let (status, transno, pre_versions) = (effect.status, effect.transno, effect.pre_versions);
        let lease = self.grant(turn, received, status);
        let is_deferred = dependency.is_some();
        let done = Done { status, transno, body: self.scratch.reply().to_vec() };
        let changes = self.scratch.take_changes();
        let slot_id = SlotId { shard, session, slot: number };
        let open_no = self.commit.open_no();
        let signed = dependency.is_none_or(|dependency| dependency.until.batch_no < open_no);
        let change_record =
            ChangeRecord { slot_id, xid, op, done: &done, pre_versions, changes: &changes, signed };
        let token = self.record_change(&change_record);
        self.scratch.return_changes(changes);
        self.record_last_writer(received, transno);
        let target = received.target();
        let state = if let Some(dependency) = dependency {
            self.hold(slot_id, dependency);
            State::Deferred(target.done(turn.now.mono), done, token.clone())
        } else {
            let lease = lease.as_ref();
            let slot_reply = SlotReply { target, done: &done, flags: 0, lease, token: &token };
            self.answer_slot(turn, &slot_id, (xid, op), &slot_reply);
            State::Done(done)
        };
        self.scratch.recycle(token);
        let slot = self.sessions.table_or_new((shard, session)).slot(number);
        slot.xid = xid;
        slot.op = op;
        slot.state = state;
        slot.lease = lease.filter(|_| is_deferred);
    }

    /// Passes a request to the data shards, which own its bulk from here on.
    pub(crate) fn ask_data(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Result<(), ProtocolError> {
        let pages = self.grant_pages(turn, received);
        let token = self.wait(received, pages);
        let mut body = self.scratch.empty();
        body.extend_from_slice(&turn.arena.get(received.frame)[HEADER_BYTES..]);
        received.open.binding.touch_nothing(received.request.op, &mut body);
        let Request { op, shard, layout, .. } = *received.request;
        let (client, bulk) = (received.open.client, received.bulk);
        let (kept, behind) = (pages.is_some(), received.request.flags & request_flag::BEHIND != 0);
        let ask = data::DataRequest {
            token,
            op,
            shard,
            layout,
            body: &body,
            bulk,
            client,
            kept,
            behind,
            is_cut: false,
        };
        if let Some(whole) = self.data.whole_file(&ask) {
            let appends = whole.appends.then_some(received.request.session);
            let request = crate::request::WholeRequest { token, op, shard, body, client, appends };
            self.begin_whole_request(turn, whole, request);
            return Ok(());
        }
        let submitted = self.data.submit(turn, &ask);
        self.scratch.recycle(body);
        if let Err(protocol_error) = submitted {
            self.waiters.answers.take_request(token);
            self.reset_slot(received);
            self.protocol_error(turn, received.conn, protocol_error);
        } else if behind && op == Op::Write {
            self.waiters.answers.begin_write_behind(token, shard);
        }
        self.on_outcomes(turn);
        Ok(())
    }
}
