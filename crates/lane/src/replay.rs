//! A replay: a change that the server signed and lost, and a client resends (docs/protocol.md §9). It
//! is redone by the code that redoes the log, under its old transaction number, if all versions
//! that it found then are there again.

use crate::Lane;
use crate::limits::Limit;
use crate::phase::Phase;
use crate::request::{ReceivedRequest, Replay};
use crate::request_header::RequestHeader;
use crate::response::Response;
use crate::session::{Done, SlotTable, State};
use alloc::format;
use disk::{Change, ClientChange, Origin, Record};
use interface::{Action, ContentsMac, ProtocolPoint, Turn, mac_of};
use wire::{
    ClientUuid, HEADER_BYTES, Op, ProtocolError, SessionId, ShardId, Status, Transno, Wire,
};

impl Lane {
    /// A client claims that more was durable than the log shows. That is evidence only from a
    /// session that the log knew when this boot began, and only once: any other client can claim
    /// anything.
    pub(crate) fn on_claim(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        (known, committed): (Transno, Transno),
    ) {
        let (shard, session) = (received.request.shard, received.request.session);
        let table = self.sessions.table((shard, session));
        let is_fact = table.is_some_and(SlotTable::may_claim);
        if !is_fact {
            let line = format!(
                "a client says that {shard} was durable for it up to {known}, of which nothing is \
                 known here"
            );
            return self.report_limit(turn, (Limit::Claim, received.open.party), &line);
        }
        self.stats.recovery.lost_durable_count += 1;
        let line = format!(
            "a reply said that {shard} is durable up to {known}, but here it is up to \
             {committed}: the disk under the store has lost data \
             that it had reported durable, or this is not the store it was"
        );
        self.report_limit(turn, (Limit::Lost, received.open.party), &line);
    }

    /// The highest durable transaction of a session at a shard.
    pub(crate) fn session_committed(&self, shard: ShardId, session: SessionId) -> Transno {
        let Some(table) = self.sessions.table((shard, session)) else { return Transno(0) };
        // Behind a fence, recovery has ended before its replays were durable.
        let normal = self.recovery.is_over() && !self.commit.has_failed();
        let all = normal && table.transno_last() <= self.commit.shard(shard).durable;
        if all { table.transno_last() } else { table.committed }
    }

    /// Applies a replay. Returns whether its bulk has another owner from here on.
    pub(crate) fn on_replay(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Result<bool, ProtocolError> {
        let request = received.request;
        let client = received.open.client;
        let body = turn.arena.get(received.frame)[HEADER_BYTES..].to_vec();
        let replay = wire::Replay::decode_all(&body).map_err(|_| ProtocolError::Malformed)?;
        let contents = mac_of(received.bulk);
        if self.opened(&replay, contents, request).is_none() {
            self.stats.recovery.forged_count += 1;
            self.report_limit(
                turn,
                (Limit::Replay, received.open.party),
                "a replay that was never signed here was refused",
            );
            if self.has_changed(client) {
                self.evict(turn, client);
            }
            return Err(ProtocolError::Proof);
        }
        let replay = Replay {
            conn: received.conn,
            header: RequestHeader::from(request),
            transno: request.transno,
            body,
            bulk: received.bulk,
        };
        let table = self.sessions.table((request.shard, request.session));
        let committed_before = table.map_or(Transno(0), |table| table.committed);
        // A change that is durable already needs no further check.
        let lost = self.recovery.phase == Phase::Replaying && request.transno > committed_before;
        let takes = table.is_some_and(SlotTable::is_from_earlier_boot)
            && self.recovery.takes(request.shard, request.transno);
        if lost && (!takes || received.open.binding.read_only) {
            let what = if takes {
                "a replay through an export that is only read was refused"
            } else {
                self.stats.recovery.forged_count += 1;
                "a replay of what has ended was refused"
            };
            self.report_limit(turn, (Limit::Replay, received.open.party), what);
            self.answer_replay(turn, &replay, Status::Overflow);
            return Ok(false);
        }
        if self.recovery.phase == Phase::Replaying {
            return if self.queue_replay(turn, client, replay) {
                Ok(true)
            } else {
                Err(ProtocolError::Sequence)
            };
        }
        let committed = self.session_committed(request.shard, request.session);
        let table = self.sessions.table((request.shard, request.session));
        let replayed = table.map_or(wire::Transno(0), SlotTable::replayed_last);
        let there = self.commit.has_failed() || request.transno <= committed.max(replayed);
        let status = if there { Status::Ok } else { Status::Overflow };
        self.answer_replay(turn, &replay, status);
        Ok(false)
    }

    /// Whether this lane's log has a change of this client.
    fn has_changed(&self, client: ClientUuid) -> bool {
        let sessions = self.sessions.of_client(client);
        self.sessions
            .tables()
            .any(|((_, session), table)| table.recorded_in.is_some() && sessions.contains(session))
    }

    /// The record in a replay, if this server signed it and it matches the request.
    fn opened<'a>(
        &self,
        replay: &wire::Replay<'a>,
        contents: ContentsMac,
        request: &wire::Request,
    ) -> Option<Record<'a>> {
        let redo = self.commit.tokens().open(replay.token.0, replay.reply.0, contents)?;
        let (record, rest) = Record::decode(redo).ok()?;
        let Origin::Session { session, slot, xid, op, .. } = record.origin else { return None };
        let same =
            (session, slot, xid, op) == (request.session, request.slot, request.xid, request.op);
        let place = (record.shard, record.transno) == (request.shard, request.transno);
        (same && place && rest.is_empty()).then_some(record)
    }

    /// Executes the next replay.
    pub(crate) fn execute_replay(&mut self, turn: &mut Turn<'_>, replay: Replay) {
        let (shard, session) = (replay.header.shard, replay.header.session);
        let table = self.sessions.table_or_new((shard, session));
        if replay.transno <= table.committed.max(table.replayed_last()) {
            self.stats.recovery.already_durable_count += 1;
            self.answer_replay(turn, &replay, Status::Ok);
            return self.release_bulk(turn, &replay);
        }
        self.recovery.progress(turn.now.mono);
        if shard.is_data() {
            return self.replay_data(turn, replay);
        }
        let status = match self.redo(&replay) {
            Ok(()) => {
                self.stats.recovery.replayed_count += 1;
                Status::Ok
            }
            Err(status) => {
                self.reject_replay(&replay);
                status
            }
        };
        self.answer_replay(turn, &replay, status);
        self.release_bulk(turn, &replay);
        turn.act(Action::Point(ProtocolPoint::Replayed));
    }

    /// Whether the next replay of a session does not fit, and may when the outcome of a change over
    /// several servers is known (R9.22).
    pub(crate) fn replay_waits(&self, (shard, session): (ShardId, SessionId)) -> bool {
        if shard.is_data() || !self.txns.awaits_outcome(shard) {
            return false;
        }
        let queue = self.recovery.queues.get((shard, session));
        let Some(replay) = queue.and_then(|queue| queue.replays.front()) else { return false };
        let table = self.sessions.table((shard, session));
        if table.is_some_and(|table| replay.transno <= table.committed.max(table.replayed_last())) {
            return false;
        }
        let Ok(message) = wire::Replay::decode_all(&replay.body) else { return false };
        let (reply, contents) = (message.reply.0, replay.contents());
        let redo = self.commit.tokens().open(message.token.0, reply, contents);
        let record = redo.and_then(|redo| Record::decode(redo).ok());
        record.is_some_and(|(record, _)| {
            let meta = &self.metas[self.meta_index(shard)];
            meta.fits(record.changes, &record.pre_versions) == Err(Status::Overflow)
        })
    }

    /// Redoes and records it.
    fn redo(&mut self, replay: &Replay) -> Result<(), Status> {
        // It decoded when it arrived.
        let message = wire::Replay::decode_all(&replay.body).map_err(|_| Status::Invalid)?;
        let (reply, contents) = (message.reply.0, replay.contents());
        let redo =
            self.commit.tokens().open(message.token.0, reply, contents).ok_or(Status::Invalid)?;
        let (record, _) = Record::decode(redo).map_err(|_| Status::Invalid)?;
        let index = self.meta_index(record.shard);
        self.metas[index].fits(record.changes, &record.pre_versions)?;
        let redone = self.metas[index].replay(record.transno, record.changes);
        redone.map_err(|_| Status::Overflow)?;
        self.record_replayed(&record, message.reply.0);
        Ok(())
    }

    /// Records a replay as the original change.
    pub(crate) fn record_replayed(&mut self, record: &Record<'_>, body: &[u8]) {
        let Origin::Session { session, slot: number, xid, op, status, .. } = record.origin else {
            return;
        };
        let (shard, transno) = (record.shard, record.transno);
        let row = self.sessions.get(session).map(|session| session.row);
        let open_no = self.commit.open_no();
        let table = self.sessions.table_or_new((shard, session));
        let is_first = table.on_record(open_no, transno);
        let opened = row.filter(|_| is_first);
        table.on_replay(transno);
        let slot = table.slot(number);
        if xid > slot.xid {
            slot.xid = xid;
            slot.op = op;
            slot.batch_no = open_no;
            slot.state = State::Done(Done { status, transno, body: body.to_vec() });
        }
        let origin =
            Origin::Session { session, slot: number, xid, op, status, reply: body, opened };
        self.commit.push((shard, transno), record.pre_versions, origin, record.changes);
        self.commit.open(shard).replays.push((session, transno));
    }

    /// A replay did not fit: its client has lost a change. From here on it is sent no durable
    /// transaction numbers, because these would cover the loss.
    pub(crate) fn reject_replay(&mut self, replay: &Replay) {
        self.stats.recovery.rejected_count += 1;
        let session = self.sessions.get(replay.header.session);
        let Some(client) = session.map(|session| session.row.client) else { return };
        if self.recovery.failed.insert(client) {
            self.record_of_lane(
                replay.header.shard,
                &Change::Client(ClientChange::VbrFailed { client }),
            );
        }
    }

    pub(crate) fn answer_replay(&mut self, turn: &mut Turn<'_>, replay: &Replay, status: Status) {
        let committed = self.committed(replay.header.shard, replay.header.session);
        let transno = replay.transno;
        let response = Response { committed, transno, ..Response::plain(status, &[]) };
        self.send(turn, replay.conn, &replay.header, &response);
    }

    pub(crate) fn release_bulk(&self, turn: &mut Turn<'_>, replay: &Replay) {
        if let Some(bulk) = replay.bulk {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// Whether a request may be executed during recovery.
    pub(crate) fn is_recovery(&self, received: &ReceivedRequest<'_>, body: &[u8]) -> bool {
        match received.request.op.row().recovery {
            wire::DuringRecovery::Waits => false,
            wire::DuringRecovery::Runs => true,
            wire::DuringRecovery::Registers => self.may_reopen(received, body),
        }
    }

    /// A handle is reopened when its client has replayed here, unless that would change the inode:
    /// another client's replay may still depend on it. After all replays it always may.
    fn may_reopen(&self, received: &ReceivedRequest<'_>, body: &[u8]) -> bool {
        let shard = received.request.shard;
        let replaying = self.sessions.of_client(received.open.client).iter();
        let mut queues = replaying.map(|session| self.recovery.queues.get((shard, *session)));
        let changes_nothing = matches!(received.request.op, Op::Relock | Op::Claim);
        let quiet = changes_nothing
            || wire::Reopen::decode_all(body).is_ok_and(|reopen| {
                let index = self.meta_index(shard);
                self.metas.get(index).is_some_and(|meta| meta.reopens_quietly(&reopen))
            });
        let replayed = matches!(self.recovery.phase, Phase::Reopening | Phase::Flushing);
        replayed || (quiet && queues.all(|queue| queue.is_none()))
    }
}
