//! Recovery after a restart of the server: lost changes are replayed before any other request.
//!
//! ```text
//! Settled ─new boot─▶ Resuming ─Resumed─▶ Replaying ─all sent─▶ Finishing ─reply─▶ Settled
//! ```
//! Each shard recovers by itself; its replays are sent in the order of their transactions, without
//! waiting for replies. If the connection is lost meanwhile, recovery begins again: the server
//! knows what it has. Invariant: an entry leaves the replay list only when it is known to be
//! durable, refused for good, or dropped with a report.

use crate::client::Client;
use crate::link::Link;
use crate::refused::Refused;
use crate::report::Report;
use crate::session::{RECOVERY, RecoveryPhase, SessionRecovery};
use alloc::vec::Vec;
use interface::{Bulk, ConnId, NetAction, Span, Turn};
use wire::{
    Header, Op, ProtocolError, ReplayDone, Reply, Request, Resume, Resumed, ShardId, Status,
    Transno, Wire, Writer, request_flag,
};

impl Client {
    /// A connection was made: begins the recovery of its sessions.
    pub(crate) fn begin_recovery(&mut self, link_index: usize) {
        let Some(boot_id) = self.servers.link(link_index).map(|link| link.boot_id) else { return };
        self.forget_told();
        let mut recovering = false;
        for (_, index) in self.servers.sessions_of(link_index) {
            let Some(session) = self.servers.session_mut(index) else { continue };
            session.recovery = SessionRecovery::default();
            if session.used && session.boot_id != boot_id {
                session.recovery.phase = RecoveryPhase::Resuming { xid: None };
                recovering = true;
            }
        }
        if let Some(link) = self.servers.link_mut(link_index) {
            link.recovering = recovering;
        }
    }

    /// The connection was lost: recovery begins again with the next one.
    pub(crate) fn stop_recovery(&mut self, link_index: usize) {
        for (_, index) in self.servers.sessions_of(link_index) {
            let Some(session) = self.servers.session_mut(index) else { continue };
            let part = core::mem::take(&mut session.recovery);
            match part.phase {
                RecoveryPhase::Resuming { xid: Some(xid) } | RecoveryPhase::Finishing { xid } => {
                    session.end(xid);
                }
                RecoveryPhase::Settled
                | RecoveryPhase::Resuming { xid: None }
                | RecoveryPhase::Replaying { .. } => {}
            }
        }
        if let Some(link) = self.servers.link_mut(link_index) {
            link.recovering = false;
        }
    }

    /// Sends recovery's requests, as far as credits allow.
    pub(crate) fn recover(&mut self, turn: &mut Turn<'_>, link_index: usize, conn: ConnId) {
        let mut waiting = false;
        for (shard, index) in self.servers.sessions_of(link_index) {
            while self.servers.link(link_index).is_some_and(Link::has_credit) {
                if !self.recover_session(turn, (link_index, conn), (shard, index)) {
                    break;
                }
            }
            let part = self.servers.session(index).map(|session| &session.recovery.phase);
            waiting |= matches!(
                part,
                Some(RecoveryPhase::Resuming { .. } | RecoveryPhase::Replaying { .. })
            );
        }
        if let Some(link) = self.servers.link_mut(link_index) {
            link.recovering = waiting;
        }
    }

    /// Sends the next frame of one session's recovery; false when there is none now.
    fn recover_session(
        &mut self,
        turn: &mut Turn<'_>,
        (link_index, conn): (usize, ConnId),
        (shard, index): (ShardId, usize),
    ) -> bool {
        // Reopens are sent only after recovery's requests.
        let exchanges = self.requests.iter();
        let reopens = exchanges.filter(|(_, exchange)| exchange.urgent && exchange.shard == shard);
        let reopen_count = u32::try_from(reopens.count()).unwrap_or(u32::MAX);
        let map_epoch = self.servers.map_epoch();
        let Some((server, link, session)) = self.servers.parts_mut(link_index, index) else {
            return false;
        };
        let boot_id = link.boot_id;
        let mut small = Vec::new();
        let (op, slot, transno, retained, xid, replay) = match session.recovery.phase {
            RecoveryPhase::Settled
            | RecoveryPhase::Resuming { xid: Some(_) }
            | RecoveryPhase::Finishing { .. } => return false,
            RecoveryPhase::Resuming { xid: None } => {
                let replay_count = session.replay.old_count(boot_id);
                let replay_count = u32::try_from(replay_count).unwrap_or(u32::MAX);
                let known_committed = session.known_committed;
                Resume { known_committed, replay_count }.encode(&mut Writer::new(&mut small));
                let xid = session.begin(RECOVERY);
                session.recovery.phase = RecoveryPhase::Resuming { xid: Some(xid) };
                (Op::Resume, 0, Transno(0), None, xid, false)
            }
            RecoveryPhase::Replaying { sent } => match session.replay.next_after(sent, boot_id) {
                Some(entry) => {
                    small.extend_from_slice(&entry.body);
                    session.recovery.phase = RecoveryPhase::Replaying { sent: entry.transno };
                    session.recovery.in_flight.push_back((entry.xid, entry.transno));
                    (entry.op, entry.slot, entry.transno, entry.retained, entry.xid, true)
                }
                None => {
                    ReplayDone { reopen_count }.encode(&mut Writer::new(&mut small));
                    let xid = session.begin(RECOVERY);
                    session.recovery.phase = RecoveryPhase::Finishing { xid };
                    (Op::ReplayDone, 0, Transno(0), None, xid, false)
                }
            },
        };
        let acks = session.acks();
        let head = Header::Request(Request {
            lane_hint: link.lane(),
            shard,
            slot,
            flags: if replay { request_flag::REPLAY } else { 0 },
            session: server.session(),
            xid,
            ack_xid: acks.ack_xid,
            sack: acks.sack,
            conn_epoch: link.conn_epoch,
            transno,
            map_epoch,
            ..Request::of(op)
        });
        link.outstanding += 1;
        self.counters.request_count += 1;
        self.counters.replay_count += u64::from(replay);
        let sizes = retained.map(|bulk: Bulk| (bulk.bulk_bytes, bulk.crc32c));
        let frame = turn.arena.write(|out| head.encode(out, sizes, |to| to.put(&small)));
        turn.act(NetAction::Send { conn, frame, bulk: retained });
        true
    }

    /// Applies the reply to a replay. False: it is not one.
    pub(crate) fn on_replayed(
        &mut self,
        link_index: usize,
        session_index: usize,
        reply: &Reply,
    ) -> Result<bool, ProtocolError> {
        let Some(session) = self.servers.session_mut(session_index) else { return Ok(false) };
        let Some(transno) = session.recovery.replayed(reply.xid) else { return Ok(false) };
        self.give_credit(link_index, reply);
        let status = reply.status;
        if matches!(status, Status::WrongLane | Status::RetryLater | Status::StaleMap) {
            // These are no valid replies to a replay: the connection's Welcome had the map.
            return Err(ProtocolError::Sequence);
        }
        if status != Status::Ok {
            self.replay_refused(session_index, transno, status);
        }
        self.on_committed(session_index, reply.committed);
        Ok(true)
    }

    /// The server refuses a replay: the change depended on another lost change.
    fn replay_refused(&mut self, session_index: usize, transno: Transno, status: Status) {
        let session = self.servers.session_mut(session_index);
        let Some(entry) = session.and_then(|session| session.replay.take(transno)) else { return };
        let (op, inode) = (entry.op, entry.inode);
        self.counters.lost_count += 1;
        self.lose(&entry);
        self.forget_entry(entry);
        self.reports.push(Report::ReplayRefused { op, inode, status });
    }

    /// The reply to a Resume or ReplayDone.
    pub(crate) fn on_recovery_reply(
        &mut self,
        turn: &mut Turn<'_>,
        (link_index, session_index): (usize, usize),
        reply: &Reply,
        body: Span,
    ) -> Result<(), ProtocolError> {
        let Some(boot_id) = self.servers.link(link_index).map(|link| link.boot_id) else {
            return Ok(());
        };
        let Some(session) = self.servers.session_mut(session_index) else { return Ok(()) };
        let op = match session.recovery.phase {
            RecoveryPhase::Resuming { xid: Some(xid) } if xid == reply.xid => Op::Resume,
            RecoveryPhase::Finishing { xid } if xid == reply.xid => Op::ReplayDone,
            RecoveryPhase::Settled
            | RecoveryPhase::Resuming { .. }
            | RecoveryPhase::Replaying { .. }
            | RecoveryPhase::Finishing { .. } => return Err(ProtocolError::Sequence),
        };
        if reply.op != op || reply.status != Status::Ok {
            return Err(ProtocolError::Sequence);
        }
        session.end(reply.xid);
        if op == Op::ReplayDone {
            session.recovery.phase = RecoveryPhase::Settled;
            session.boot_id = boot_id;
            self.give_credit(link_index, reply);
            self.on_committed(session_index, reply.committed);
            return Ok(());
        }
        let resumed =
            Resumed::decode_all(turn.arena.get(body)).map_err(|_| ProtocolError::Malformed)?;
        self.give_credit(link_index, reply);
        self.on_resumed(turn, session_index, (boot_id, reply.shard), resumed);
        Ok(())
    }

    fn on_resumed(
        &mut self,
        turn: &mut Turn<'_>,
        session_index: usize,
        (boot_id, shard): (u64, ShardId),
        resumed: Resumed,
    ) {
        let Some(session) = self.servers.session_mut(session_index) else { return };
        let known = session.known_committed;
        if resumed.committed < known {
            let found = resumed.committed;
            self.reports.push(Report::RolledBack { shard, known, found });
            self.refuse(turn, Refused::RolledBack);
            return;
        }
        self.on_committed(session_index, resumed.committed);
        let Some(session) = self.servers.session_mut(session_index) else { return };
        if resumed.recovering {
            session.recovery.phase = RecoveryPhase::Replaying { sent: Transno(0) };
        } else if session.replay.old_count(boot_id) == 0 {
            session.recovery.phase = RecoveryPhase::Settled;
            session.boot_id = boot_id;
        } else {
            // The recovery ended without this client.
            self.on_evicted(turn, false);
        }
    }

    /// Forgets a session's changes up to `committed`: they are durable.
    pub(crate) fn on_committed(&mut self, session_index: usize, committed: Transno) {
        while let Some(session) = self.servers.session_mut(session_index)
            && let Some(entry) = session.replay.take_committed(committed)
        {
            session.known_committed = session.known_committed.max(entry.transno);
            self.forget_entry(entry);
        }
    }
}
