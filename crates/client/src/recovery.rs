//! After a restart of the server: what it lost of ours is replayed, before anything else is sent.
//!
//! ```text
//! Settled ─new boot─▶ Resuming ─Resumed─▶ Replaying ─all sent─▶ Finishing ─reply─▶ Settled
//! ```
//! By shard; the replays of a shard go in the order of their transactions, without waiting for
//! each other. A connection that is lost in the middle, to whatever boot, starts it all again: the
//! server knows what it has. Invariant: an entry leaves the list only when it is known to be
//! durable, refused for good, or given up with a report.

use crate::client::Client;
use crate::link::Link;
use crate::refused::Refused;
use crate::report::Report;
use crate::send::session_index;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{Bulk, ConnId, NetAction, Span, Turn};
use wire::{
    Header, LaneId, Op, ProtocolError, ReplayDone, Reply, Request, Resume, Resumed, ShardId,
    Status, Transno, Wire, Writer, Xid, request_flag,
};

/// Stands for the exchange of a request that recovery itself has sent.
pub(crate) const RECOVERY: usize = usize::MAX;

/// Where a session stands with the boot of its server lane.
#[derive(Debug, Default)]
pub(crate) enum Recovery {
    /// Nothing is to be done.
    #[default]
    Settled,
    /// Resume is to be sent (no xid yet), or answered.
    Resuming { xid: Option<Xid> },
    /// Everything up to `sent` was sent.
    Replaying { sent: Transno },
    /// ReplayDone was sent.
    Finishing { xid: Xid },
}

/// A session's part in a recovery.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) recovery: Recovery,
    /// Replays on their way, in the order they were sent.
    in_flight: VecDeque<(Xid, Transno)>,
}

impl Part {
    fn replayed(&mut self, xid: Xid) -> Option<Transno> {
        let at = self.in_flight.iter().position(|(sent, _)| *sent == xid)?;
        self.in_flight.remove(at).map(|(_, transno)| transno)
    }
}

impl Client {
    /// The sessions of the shards of a server lane: shard and index.
    pub(crate) fn sessions_of(&self, link_index: usize) -> Vec<(ShardId, usize)> {
        let Some(map) = self.map else { return Vec::new() };
        let meta = (0..map.meta_shard_count).map(ShardId::meta);
        let data = (0..map.data_shard_count).map(ShardId::data);
        meta.chain(data)
            .filter(|shard| usize::from(map.lane(*shard).0) == link_index)
            .map(|shard| (shard, session_index(map, shard)))
            .collect()
    }

    /// Whether the server may remember this client lane at one of a lane's shards.
    pub(crate) fn is_known_at(&self, link_index: usize) -> bool {
        self.sessions_of(link_index)
            .iter()
            .any(|(_, index)| self.sessions.get(*index).is_some_and(|session| session.used))
    }

    /// A connection has been welcomed: what must be resumed on it?
    pub(crate) fn begin_recovery(&mut self, link_index: usize) {
        let Some(boot_id) = self.links.get(link_index).map(|link| link.boot_id) else { return };
        let mut recovering = false;
        for (_, index) in self.sessions_of(link_index) {
            let Some(session) = self.sessions.get_mut(index) else { continue };
            session.part = Part::default();
            if session.used && session.boot_id != boot_id {
                session.part.recovery = Recovery::Resuming { xid: None };
                recovering = true;
            }
        }
        if let Some(link) = self.links.get_mut(link_index) {
            link.recovering = recovering;
        }
    }

    /// The connection is gone: recovery begins again with the next one.
    pub(crate) fn stop_recovery(&mut self, link_index: usize) {
        for (_, index) in self.sessions_of(link_index) {
            let Some(session) = self.sessions.get_mut(index) else { continue };
            let part = core::mem::take(&mut session.part);
            match part.recovery {
                Recovery::Resuming { xid: Some(xid) } | Recovery::Finishing { xid } => {
                    session.end(xid);
                }
                Recovery::Settled
                | Recovery::Resuming { xid: None }
                | Recovery::Replaying { .. } => {}
            }
        }
        if let Some(link) = self.links.get_mut(link_index) {
            link.recovering = false;
        }
    }

    /// Sends what recovery has to send, as far as credits go.
    pub(crate) fn recover(&mut self, turn: &mut Turn<'_>, link_index: usize, conn: ConnId) {
        let mut waiting = false;
        for (shard, index) in self.sessions_of(link_index) {
            while self.links.get(link_index).is_some_and(Link::has_credit) {
                if !self.recover_session(turn, (link_index, conn), (shard, index)) {
                    break;
                }
            }
            let part = self.sessions.get(index).map(|session| &session.part.recovery);
            waiting |= matches!(part, Some(Recovery::Resuming { .. } | Recovery::Replaying { .. }));
        }
        if let Some(link) = self.links.get_mut(link_index) {
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
        let Some(link) = self.links.get_mut(link_index) else { return false };
        let boot_id = link.boot_id;
        // None of them is sent before recovery has sent everything.
        let exchanges = self.exchanges.iter();
        let reopens = exchanges.filter(|(_, exchange)| exchange.urgent && exchange.shard == shard);
        let reopen_count = u32::try_from(reopens.count()).unwrap_or(u32::MAX);
        let Some(session) = self.sessions.get_mut(index) else { return false };
        let mut small = Vec::new();
        let (op, slot, transno, kept, xid, replay) = match session.part.recovery {
            Recovery::Settled
            | Recovery::Resuming { xid: Some(_) }
            | Recovery::Finishing { .. } => return false,
            Recovery::Resuming { xid: None } => {
                let replay_count = session.replay.old_count(boot_id);
                let replay_count = u32::try_from(replay_count).unwrap_or(u32::MAX);
                let known_committed = session.known_committed;
                Resume { known_committed, replay_count }.encode(&mut Writer::new(&mut small));
                let xid = session.begin(RECOVERY);
                session.part.recovery = Recovery::Resuming { xid: Some(xid) };
                (Op::Resume, 0, Transno(0), None, xid, false)
            }
            Recovery::Replaying { sent } => match session.replay.next_after(sent, boot_id) {
                Some(entry) => {
                    small.extend_from_slice(&entry.body);
                    session.part.recovery = Recovery::Replaying { sent: entry.transno };
                    session.part.in_flight.push_back((entry.xid, entry.transno));
                    (entry.op, entry.slot, entry.transno, entry.kept, entry.xid, true)
                }
                None => {
                    ReplayDone { reopen_count }.encode(&mut Writer::new(&mut small));
                    let xid = session.begin(RECOVERY);
                    session.part.recovery = Recovery::Finishing { xid };
                    (Op::ReplayDone, 0, Transno(0), None, xid, false)
                }
            },
        };
        let acks = session.acks();
        let head = Header::Request(Request {
            lane_hint: LaneId(u16::try_from(link_index).unwrap_or(u16::MAX)),
            shard,
            slot,
            flags: if replay { request_flag::REPLAY } else { 0 },
            session: self.session,
            xid,
            ack_xid: acks.ack_xid,
            sack: acks.sack,
            conn_epoch: link.conn_epoch,
            transno,
            op_time_ns: turn.now.wall_ns,
            ..Request::of(op)
        });
        link.outstanding += 1;
        self.counters.request_count += 1;
        self.counters.replay_count += u64::from(replay);
        let sizes = kept.map(|bulk: Bulk| (bulk.bulk_bytes, bulk.crc32c));
        let frame = turn.arena.write(|out| head.encode(out, sizes, |to| to.put(&small)));
        turn.act(NetAction::Send { conn, frame, bulk: kept });
        true
    }

    /// The reply to a replay, if it is one. False: it is nobody's.
    pub(crate) fn on_replayed(
        &mut self,
        link_index: usize,
        session_index: usize,
        reply: &Reply,
    ) -> Result<bool, ProtocolError> {
        let Some(session) = self.sessions.get_mut(session_index) else { return Ok(false) };
        let Some(transno) = session.part.replayed(reply.xid) else { return Ok(false) };
        self.give_credit(link_index, reply);
        let status = reply.status;
        if matches!(status, Status::WrongLane | Status::RetryLater) {
            // No answers to a replay: the server is confused, and it is all begun again.
            return Err(ProtocolError::Sequence);
        }
        if status != Status::Ok {
            self.replay_refused(session_index, transno, status);
        }
        self.told_committed(session_index, reply.committed);
        Ok(true)
    }

    /// What was answered is gone: what it was based on is.
    fn replay_refused(&mut self, session_index: usize, transno: Transno, status: Status) {
        let session = self.sessions.get_mut(session_index);
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
        let Some(boot_id) = self.links.get(link_index).map(|link| link.boot_id) else {
            return Ok(());
        };
        let Some(session) = self.sessions.get_mut(session_index) else { return Ok(()) };
        let op = match session.part.recovery {
            Recovery::Resuming { xid: Some(xid) } if xid == reply.xid => Op::Resume,
            Recovery::Finishing { xid } if xid == reply.xid => Op::ReplayDone,
            Recovery::Settled
            | Recovery::Resuming { .. }
            | Recovery::Replaying { .. }
            | Recovery::Finishing { .. } => return Err(ProtocolError::Sequence),
        };
        if reply.op != op || reply.status != Status::Ok {
            return Err(ProtocolError::Sequence);
        }
        session.end(reply.xid);
        if op == Op::ReplayDone {
            session.part.recovery = Recovery::Settled;
            session.boot_id = boot_id;
            self.give_credit(link_index, reply);
            self.told_committed(session_index, reply.committed);
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
        let Some(session) = self.sessions.get_mut(session_index) else { return };
        let known = session.known_committed;
        if resumed.committed < known {
            let found = resumed.committed;
            self.reports.push(Report::WentBack { shard, known, found });
            self.refuse(turn, Refused::WentBack);
            return;
        }
        self.told_committed(session_index, resumed.committed);
        let Some(session) = self.sessions.get_mut(session_index) else { return };
        if resumed.recovering {
            session.part.recovery = Recovery::Replaying { sent: Transno(0) };
        } else if session.replay.old_count(boot_id) == 0 {
            session.part.recovery = Recovery::Settled;
            session.boot_id = boot_id;
        } else {
            // A recovery that we were no part of.
            self.on_evicted(turn, false);
        }
    }

    /// What a session did up to here is durable.
    pub(crate) fn told_committed(&mut self, session_index: usize, committed: Transno) {
        while let Some(session) = self.sessions.get_mut(session_index)
            && let Some(entry) = session.replay.take_committed(committed)
        {
            session.known_committed = session.known_committed.max(entry.transno);
            self.forget_entry(entry);
        }
    }
}
