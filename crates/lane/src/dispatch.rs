//! A request that came over a proven connection: checked, routed, judged, executed.

use crate::Lane;
use crate::commit::{Asking, Held, HeldSaid};
use crate::config::Share;
use crate::conn::{Conn, Open};
use crate::containment::Checked;
use crate::file_locks::is_lock;
use crate::gate::{Gate, Reason, Until};
use crate::outbox::{Asked, Said, Telling};
use crate::session::{Done, State, Target, Verdict};
use crate::shares::was_thrown_away;
use crate::sizes::Sizing;
use crate::waiting::Waiting;
use alloc::vec::Vec;
use data::Token;
use interface::{Action, Bulk, ConnId, Span, Turn, mac_of};
use wire::{
    Changes, DuringRecovery, Executor, HEADER_BYTES, Header, Op, ProtocolError, Request, Retry,
    Route, Status, Timestamp, reply_flag, request_flag,
};

/// A request with all that belongs to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    pub(crate) conn: ConnId,
    pub(crate) open: Open,
    pub(crate) request: &'a Request,
    pub(crate) frame: Span,
    pub(crate) bulk: Option<Bulk>,
    /// Why its client may not ask for this, if so.
    pub(crate) denied: Option<Status>,
}

impl Lane {
    /// A frame of a proven connection: it must be a request.
    pub(crate) fn on_request(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        frame: Span,
        bulk: Option<Bulk>,
    ) {
        let outcome = self.arrive(turn, conn, frame, bulk);
        let kept = match outcome {
            Ok(kept) => kept,
            Err(protocol_error) => {
                self.protocol_error(turn, conn, protocol_error);
                false
            }
        };
        if let Some(bulk) = bulk.filter(|_| !kept) {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// Whether somebody else owns the bulk from here on.
    fn arrive(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        frame: Span,
        bulk: Option<Bulk>,
    ) -> Result<bool, ProtocolError> {
        let request = match Header::decode(turn.arena.get(frame))?.0 {
            Header::Request(request) => request,
            Header::Handshake(_)
            | Header::Reply(_)
            | Header::CommitNotification
            | Header::Grant => {
                return Err(ProtocolError::Kind);
            }
        };
        let Some(Conn::Open(open)) = self.conns.get_mut(&conn) else { return Ok(false) };
        if !self.sessions.contains_key(&open.session) {
            return Err(ProtocolError::Sequence); // It has said goodbye.
        }
        let bulk_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes);
        open.check(&request, bulk_bytes, (&self.config.limits, &self.config.map))?;
        open.outstanding_count += u16::from(!request.op.row().is_answered_at_once());
        let arrived = Arrived { conn, open: *open, request: &request, frame, bulk, denied: None };
        let row = request.op.row();
        if row.route == Route::Lane && self.recovery.is_over() {
            return self.execute_own(turn, &arrived).map(|()| false);
        }
        if row.route != Route::Lane && self.config.map.lane(request.shard) != self.config.lane {
            let said = Said::plain(Status::WrongLane, &[]);
            if row.is_answered_at_once() {
                self.say_reply(turn, conn, &Asked::from(&request), &said);
            } else {
                self.send(turn, conn, &Asked::from(&request), &said);
            }
            return Ok(false);
        }
        if request.flags & request_flag::REPLAY != 0 {
            return self.on_replay(turn, &arrived);
        }
        if row.recovery == DuringRecovery::Registers && !self.scope.again {
            self.recovery.reopen_came(&request, turn.now.mono, &self.config.limits);
        }
        let body = &turn.arena.get(frame)[HEADER_BYTES..];
        if !self.recovery.is_over() && request.op == Op::Reopen {
            let body = body.to_vec();
            self.read_reopened(turn, request.shard, &body);
        }
        let body = &turn.arena.get(frame)[HEADER_BYTES..];
        if !self.recovery.is_over() && !self.is_recovery(&arrived, body) {
            self.await_recovery(turn, &arrived);
            return Ok(true);
        }
        if self.freeze.is_on() && row.changes_store() {
            self.await_thaw(turn, &arrived);
            return Ok(true);
        }
        let denied = match self.check_containment(turn, &arrived) {
            Checked::Passes if was_thrown_away(turn.arena.get(frame), bulk) => {
                Some(Status::ReadOnly)
            }
            Checked::Passes => None,
            Checked::Waits => {
                self.await_containment(turn, &arrived);
                return Ok(true);
            }
            Checked::Denied(status) => Some(status),
        };
        let arrived = Arrived { denied, ..arrived };
        // Whatever it asks of a shard, it says what it has received of it.
        if row.route != Route::Lane
            && let Some(table) = self.slots.get_mut(&(request.shard, request.session))
        {
            table.acknowledge(request.ack_xid, request.sack);
        }
        match (row.executor, row.retry) {
            (Executor::Lane, _) => self.execute_own(turn, &arrived).map(|()| false),
            (Executor::Metadata | Executor::Locks | Executor::Data, Retry::Repeat) => {
                self.repeat(turn, &arrived)
            }
            (Executor::Metadata | Executor::Locks | Executor::Data, Retry::Once) => {
                self.once(turn, &arrived)
            }
        }
    }

    /// Answers a request that was executed, at once.
    pub(crate) fn answer(&mut self, turn: &mut Turn<'_>, arrived: &Arrived<'_>, body: &[u8]) {
        let said = Said::plain(Status::Ok, body);
        self.say_reply(turn, arrived.conn, &Asked::from(arrived.request), &said);
    }

    /// The same without a body, with how far the session's changes are durable.
    pub(crate) fn answer_committed(&mut self, turn: &mut Turn<'_>, arrived: &Arrived<'_>) {
        let committed = self.committed(arrived.request.shard, arrived.request.session);
        let said = Said { committed, ..Said::plain(Status::Ok, &[]) };
        self.say_reply(turn, arrived.conn, &Asked::from(arrived.request), &said);
    }

    /// A request that is no recovery waits until that is over; it is outstanding meanwhile.
    fn await_recovery(&mut self, turn: &Turn<'_>, arrived: &Arrived<'_>) {
        self.count_outstanding(arrived);
        let frame = turn.arena.get(arrived.frame);
        self.defer(frame, (arrived.conn, arrived.request.op), arrived.bulk);
    }

    /// What waits is outstanding, also if it is mostly answered at once.
    pub(crate) fn count_outstanding(&mut self, arrived: &Arrived<'_>) {
        if let Some(Conn::Open(open)) = self.conns.get_mut(&arrived.conn)
            && arrived.request.op.row().is_answered_at_once()
        {
            open.outstanding_count += 1;
        }
    }

    /// A reply without a slot waits; until then its request is outstanding.
    pub(crate) fn keep_waiting(
        &mut self,
        arrived: &Arrived<'_>,
        (status, body): (Status, Vec<u8>),
        gate: Gate,
    ) {
        self.count_outstanding(arrived);
        let asked = Asked::from(arrived.request);
        self.hold_said(HeldSaid { conn: arrived.conn, asked, status, body, bulk: None }, gate);
    }

    /// Changes nothing: answered as it comes.
    fn repeat(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
    ) -> Result<bool, ProtocolError> {
        let request = arrived.request;
        if let Some(status) = arrived.denied {
            self.deny(turn, arrived, status);
            return Ok(false);
        }
        match request.op.row().executor {
            Executor::Data => return self.ask_data(turn, arrived).map(|()| true),
            Executor::Locks | Executor::Lane => {
                return self.execute_own(turn, arrived).map(|()| false);
            }
            Executor::Metadata => {}
        }
        let effect = self.execute(turn, arrived)?;
        if effect.status == Status::Busy {
            self.suspend(turn, arrived);
            self.count_suspended(arrived.conn);
            return Ok(false);
        }
        self.tell_found(turn, effect.found);
        self.tell_open_files(turn, arrived, effect.status);
        self.on_access_of(turn, arrived, effect.access);
        let body = core::mem::take(&mut self.reply);
        let strict = self.config.limits.share == Share::Strict;
        if let Some(gate) = strict.then(|| self.gate(arrived, &effect)).flatten() {
            let status = effect.status;
            self.keep_waiting(arrived, (status, body.clone()), gate);
        } else {
            let said = Said::plain(effect.status, &body);
            self.say_reply(turn, arrived.conn, &Asked::from(request), &said);
        }
        self.reply = body;
        Ok(false)
    }

    /// Executes at a metadata shard; reply body and changes lie in the scratch vectors.
    pub(crate) fn execute(
        &mut self,
        turn: &Turn<'_>,
        arrived: &Arrived<'_>,
    ) -> Result<meta::Effect, ProtocolError> {
        let request = arrived.request;
        let body = &turn.arena.get(arrived.frame)[HEADER_BYTES..];
        let ask = meta::MetaRequest {
            op: request.op,
            body,
            client: arrived.open.client,
            squash: arrived.open.binding.squash,
            export_root: arrived.open.binding.top,
            now: Timestamp::from_ns(turn.now.wall_ns),
            records_reads: self.config.limits.share == Share::Strict,
        };
        self.reply.clear();
        self.changes.clear();
        if self.has_its_handles(arrived) {
            return Ok(meta::Effect::unchanged(Status::TooManyFiles));
        }
        let index = self.meta_index(request.shard);
        if request.op == Op::Mkdir {
            let spread = self.next_place();
            self.metas[index].set_placement(spread);
        }
        let effect = self.metas[index].execute(&ask, &mut self.reply, &mut self.changes)?;
        if effect.status == Status::Ok {
            self.complete(request.op);
        }
        let stuck = effect.status == Status::Busy && self.is_stuck(request.shard);
        Ok(if stuck { meta::Effect::unchanged(Status::Io) } else { effect })
    }

    /// Takes effect once.
    fn once(&mut self, turn: &mut Turn<'_>, arrived: &Arrived<'_>) -> Result<bool, ProtocolError> {
        let request = arrived.request;
        if let Some(session) = self.sessions.get_mut(&request.session) {
            session.heard = true;
        }
        let held = Held { shard: request.shard, session: request.session, slot: request.slot };
        let target = Target { conn: arrived.conn, trace_id: request.trace_id };
        let key = (request.shard, request.session);
        let table = self.slots.entry(key).or_default();
        match table.judge(request.slot, (request.xid, request.op), target)? {
            Verdict::Drop => {
                self.settled(arrived.conn);
                return Ok(false);
            }
            Verdict::Attached => return Ok(false),
            Verdict::Seen => {
                self.seen(turn, &held, target);
                return Ok(false);
            }
            Verdict::New => {}
        }
        if let Some(status) = self.refused(turn, arrived) {
            self.end_refused(turn, arrived, status);
            return Ok(false);
        }
        if request.shard.is_data() {
            let slot = self.slots.entry(key).or_default().slot(request.slot);
            slot.xid = request.xid;
            slot.op = request.op;
            slot.state = State::Running(target);
            return self.ask_data(turn, arrived).map(|()| true);
        }
        self.run(turn, arrived).map(|()| false)
    }

    /// Executes what takes effect once, at a metadata shard.
    pub(crate) fn run(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
    ) -> Result<(), ProtocolError> {
        if is_lock(arrived.request.op) {
            return self.execute_own(turn, arrived);
        }
        let mut effect = self.execute(turn, arrived)?;
        if effect.status == Status::Busy {
            self.suspend(turn, arrived);
            return Ok(());
        }
        if effect.status == Status::CrossDevice {
            self.begin_across(turn, arrived);
            return Ok(());
        }
        self.tell_open_files(turn, arrived, effect.status);
        self.on_made(arrived.request.op);
        self.remember_opener(arrived, &mut effect);
        if let Some((inode, privileged_bits)) = effect.privileged_bits {
            self.send_privileged_bits(turn, inode, privileged_bits);
        }
        self.tell_found(turn, effect.found);
        let index = self.meta_index(arrived.request.shard);
        self.tell_changes(turn, index..index + 1);
        let gate = self.gate(arrived, &effect);
        if effect.transno.0 == 0 {
            self.done(turn, arrived, effect.status, gate);
        } else {
            self.changed(turn, arrived, &effect, gate);
        }
        if let Some(inode) = effect.orphan {
            self.destroy_when_durable(inode);
        }
        if let Some((inode, number)) = effect.settling {
            self.on_settling(turn, Sizing { inode, number });
        }
        self.on_access_of(turn, arrived, effect.access);
        Ok(())
    }

    /// Why a change is not executed, if so.
    pub(crate) fn refused(&self, turn: &Turn<'_>, arrived: &Arrived<'_>) -> Option<Status> {
        if arrived.denied.is_some() {
            arrived.denied
        } else if self.fenced {
            self.when_fenced(turn, arrived)
        } else {
            self.space_for(arrived.request.op).err()
        }
    }

    pub(crate) fn end_refused(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
        status: Status,
    ) {
        if self.comes_again(status) {
            // The slot is as it was.
            let said = Said::plain(Status::RetryLater, &[]);
            return self.send(turn, arrived.conn, &Asked::from(arrived.request), &said);
        }
        self.reply.clear();
        self.done(turn, arrived, status, None);
    }

    /// What is answered to a change when nothing can be recorded any more; `None`: it changes
    /// nothing durable.
    fn when_fenced(&self, turn: &Turn<'_>, arrived: &Arrived<'_>) -> Option<Status> {
        let body = &turn.arena.get(arrived.frame)[HEADER_BYTES..];
        let op = arrived.request.op;
        if op == Op::Close {
            return Some(Status::Ok); // Handles die with this boot anyway.
        }
        if is_lock(op) {
            return None;
        }
        let opens = op.row().changes == Changes::IfOpenedForWriting;
        let reads = opens && !crate::named_inodes::changes(op, body);
        // What was sent before may be in its object, recorded or not.
        let request = arrived.request;
        let begun = request.shard.is_data() && request.flags & request_flag::RESENT != 0;
        (!reads).then_some(if begun { Status::Io } else { Status::ReadOnly })
    }

    /// A request that was executed before. What its client does not have while it is not durable,
    /// it gets when it is.
    fn seen(&mut self, turn: &mut Turn<'_>, held: &Held, target: Target) {
        self.stats.from_slot_count += 1;
        let Some(table) = self.slots.get_mut(&(held.shard, held.session)) else { return };
        let slot = table.slot(held.slot);
        let State::Done(done) = &slot.state else { return };
        let (xid, op, done) = (slot.xid, slot.op, done.clone());
        if self.fenced && done.transno > self.commit.shard(held.shard).durable {
            // Nobody can say that it will be durable, and there is no token to bring it back.
            slot.state = State::Held(target, done, Vec::new());
            return self.fail_held(turn, held);
        }
        if held.shard.is_data() && done.transno > self.commit.shard(held.shard).durable {
            let transno = done.transno;
            slot.state = State::Held(target, done, Vec::new());
            return self.await_write(*held, transno);
        }
        if let Some(until) = self.commit.until(slot.batch_no) {
            slot.state = State::Held(target, done, Vec::new());
            return self.hold(*held, Gate { until, reason: Reason::Itself });
        }
        let flags = reply_flag::FROM_SLOT;
        let telling = Telling { target, done: &done, flags, token: &[] };
        self.answer_slot(turn, held, (xid, op), &telling);
    }

    /// Whoever opens or locks a file is waited for after a restart, even if he never changed
    /// anything: otherwise nobody would know that the file is in use.
    pub(crate) fn remember_opener(&mut self, arrived: &Arrived<'_>, effect: &mut meta::Effect) {
        let request = arrived.request;
        let opens = request.op.row().opens || is_lock(request.op);
        if !opens || effect.status != Status::Ok || effect.transno.0 > 0 {
            return;
        }
        let table = self.slots.get(&(request.shard, request.session));
        if self.fenced {
            return;
        }
        if table.is_none_or(|table| table.recorded_in.is_none()) {
            let index = self.meta_index(request.shard);
            effect.transno = self.metas[index].take_transno();
        }
    }

    /// Nothing durable was changed: remembered in memory only. A resend after a crash executes
    /// again, which is right because nothing happened.
    pub(crate) fn done(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
        status: Status,
        gate: Option<Gate>,
    ) {
        let request = arrived.request;
        let body = core::mem::take(&mut self.reply);
        let Request { shard, session, slot: number, .. } = *request;
        let slot = self.slots.entry((shard, session)).or_default().slot(number);
        slot.xid = request.xid;
        slot.op = request.op;
        slot.batch_no = 0;
        let transno = wire::Transno(0);
        let done = Done { status, transno, body: body.clone() };
        if let Some(gate) = gate {
            let target = Target { conn: arrived.conn, trace_id: request.trace_id };
            slot.state = State::Held(target, done, Vec::new());
            self.hold(Held { shard, session, slot: number }, gate);
        } else {
            slot.state = State::Done(done);
            let said = Said::plain(status, &body);
            self.send(turn, arrived.conn, &Asked::from(request), &said);
        }
        self.reply = body;
    }

    /// Something was changed: recorded, and answered at once with a token or when its gate is open.
    pub(crate) fn changed(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
        effect: &meta::Effect,
        gate: Option<Gate>,
    ) {
        let Request { shard, session, slot: number, xid, op, trace_id, .. } = *arrived.request;
        let (status, transno, pre_versions) = (effect.status, effect.transno, effect.pre_versions);
        let done = Done { status, transno, body: self.reply.clone() };
        let changes = core::mem::take(&mut self.changes);
        let held = Held { shard, session, slot: number };
        let signed = gate.is_none_or(|gate| gate.until == Until::Flying);
        let asking = Asking { held, xid, op, done: &done, pre_versions, changes: &changes, signed };
        self.record_asked(&asking);
        self.changes = changes;
        self.mark(arrived, transno);
        let target = Target { conn: arrived.conn, trace_id };
        let token = core::mem::take(&mut self.token);
        let state = if let Some(gate) = gate {
            self.hold(held, gate);
            State::Held(target, done, token.clone())
        } else {
            let telling = Telling { target, done: &done, flags: 0, token: &token };
            self.answer_slot(turn, &held, (xid, op), &telling);
            State::Done(done)
        };
        self.token = token;
        let slot = self.slots.entry((shard, session)).or_default().slot(number);
        slot.xid = xid;
        slot.op = op;
        slot.state = state;
    }

    /// Hands a request to the data shards, which own its bulk from here on.
    fn ask_data(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
    ) -> Result<(), ProtocolError> {
        let token = self.wait(arrived);
        let mut body = core::mem::take(&mut self.body);
        body.clear();
        body.extend_from_slice(&turn.arena.get(arrived.frame)[HEADER_BYTES..]);
        arrived.open.binding.touch_nothing(arrived.request.op, &mut body);
        let Request { op, shard, .. } = *arrived.request;
        let client = arrived.open.client;
        let ask = data::DataRequest { token, op, shard, body: &body, bulk: arrived.bulk, client };
        let asked = self.data.submit(turn, &ask);
        self.body = body;
        if let Err(protocol_error) = asked {
            self.pending.remove(token.0);
            self.unrun(arrived);
            self.protocol_error(turn, arrived.conn, protocol_error);
        }
        self.on_outcomes(turn);
        Ok(())
    }

    /// A request that was no request after all leaves its slot as if it had never come.
    pub(crate) fn unrun(&mut self, arrived: &Arrived<'_>) {
        let request = arrived.request;
        if request.slot > 0
            && let Some(table) = self.slots.get_mut(&(request.shard, request.session))
        {
            let slot = table.slot(request.slot);
            slot.xid = wire::Xid(slot.xid.0.saturating_sub(1));
            slot.state = State::Acknowledged;
        }
    }

    /// A request that is answered when its number comes back.
    pub(crate) fn wait(&mut self, arrived: &Arrived<'_>) -> Token {
        self.token_count += 1;
        let (conn, asked) = (arrived.conn, Asked::from(arrived.request));
        let synced = arrived.request.flags & request_flag::SYNC != 0;
        let frame_bytes = arrived.frame.bytes_count();
        let contents = mac_of(arrived.bulk);
        let waiting = Waiting { conn, asked, synced, frame_bytes, contents };
        self.pending.insert(self.token_count, waiting);
        Token(self.token_count)
    }
}
