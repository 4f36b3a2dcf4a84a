//! A disk that lies: it reported a batch durable and lost it in a crash. A client that had received
//! the acknowledgement must notice: it raises an alarm, sends nothing more, and gets no successful
//! reply of that shard before.

use crate::due::{ClientLaneId, Verdict};
use crate::simulation::Simulation;
use std::collections::{BTreeMap, BTreeSet};
use wire::{
    CommitNotification, Header, Op, Reply, Route, SessionId, ShardId, Status, Transno, Wire, Xid,
};
use wire::{reply_flag, request_flag};

/// The lost changes, and which client lanes had their acknowledgements.
#[derive(Default, Debug)]
pub(crate) struct LyingDisk {
    /// Changes that were durable and are lost, with their sessions.
    lost: BTreeMap<(ShardId, Transno), SessionId>,
    /// The boot that lost the last of them.
    lost_in: u64,
    /// When the last of them were lost.
    lost_ns: u64,
    client_lanes: BTreeMap<SessionId, ClientLaneId>,
    /// What a session has received, and up to which transaction it was reported durable.
    received: BTreeMap<(SessionId, ShardId), BTreeSet<Transno>>,
    committed: BTreeMap<(SessionId, ShardId), Transno>,
    replays: BTreeSet<(SessionId, ShardId, Xid)>,
    /// Client lanes that have raised an alarm.
    alarmed: BTreeSet<ClientLaneId>,
    /// Those of them that must send nothing more.
    stopped: BTreeSet<ClientLaneId>,
}

impl LyingDisk {
    /// Whether a durable change was lost.
    pub(crate) fn is_any(&self) -> bool {
        self.lost_in > 0
    }

    /// Whether the effect of a call of a client may be lost: it began before a loss, or its client
    /// stopped, and may replay nothing.
    pub(crate) fn may_have_lost(&self, client: usize, began_ns: u64) -> bool {
        self.is_any()
            && (began_ns <= self.lost_ns || self.stopped.iter().any(|(of, _)| *of == client))
    }

    pub(crate) fn on_lost(&mut self, (boot_id, now_ns): (u64, u64), batch: &[u8]) {
        self.lost_in = boot_id;
        self.lost_ns = now_ns;
        for record in test_runtime::records(batch) {
            if let disk::Origin::Session { session, .. } = record.origin {
                self.lost.insert((record.shard, record.transno), session);
            }
        }
    }

    /// A lost change is durable again: its client replayed it.
    pub(crate) fn on_durable(&mut self, batch: &[u8]) {
        for record in test_runtime::records(batch) {
            self.lost.remove(&(record.shard, record.transno));
        }
    }

    /// A client lane sends a frame.
    pub(crate) fn on_request(&mut self, client_lane: ClientLaneId, frame: &[u8]) -> Verdict {
        if self.stopped.contains(&client_lane) {
            return Err(format!("client {client_lane:?} sends after its store went back"));
        }
        let Ok((Header::Request(request), _)) = Header::decode(frame) else { return Ok(()) };
        self.client_lanes.insert(request.session, client_lane);
        if request.flags & request_flag::REPLAY != 0 {
            self.replays.insert((request.session, request.shard, request.xid));
        }
        Ok(())
    }

    /// A client lane receives a frame.
    pub(crate) fn on_frame(&mut self, client_lane: ClientLaneId, frame: &[u8]) -> Verdict {
        match Header::decode(frame) {
            Ok((Header::Reply(reply), _)) if reply.op.row().route != Route::Lane => {
                self.on_reply(client_lane, &reply)
            }
            Ok((Header::CommitNotification, body)) => {
                let Ok(notification) = CommitNotification::decode_all(body) else { return Ok(()) };
                let ours = self.client_lanes.iter().filter(|(_, known)| **known == client_lane);
                let sessions: Vec<SessionId> = ours.map(|(session, _)| *session).collect();
                for row in notification.rows.iter() {
                    for session in &sessions {
                        self.record_committed((*session, row.shard), row.committed);
                    }
                }
                Ok(())
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn on_reply(&mut self, client_lane: ClientLaneId, reply: &Reply) -> Verdict {
        let Reply { session, shard, xid, transno, committed, flags, status, op, .. } = *reply;
        let after = reply.boot_id > self.lost_in && op != Op::Resume && status == Status::Ok;
        if after
            && !self.alarmed.contains(&client_lane)
            && let Some(lost) = self.lost_to((session, shard))
        {
            let what = "was reported durable and is lost; the reply does not report the loss";
            return Err(format!("client {client_lane:?}: {shard} T {lost} {what} to {op:?}"));
        }
        if status != Status::Ok
            && let Some(all) = self.received.get_mut(&(session, shard))
        {
            // The replay was refused: its client has lost the change, and reports it.
            all.remove(&transno);
        }
        let replay = self.replays.contains(&(session, shard, xid));
        if transno.0 > 0 && status == Status::Ok && !replay {
            self.received.entry((session, shard)).or_default().insert(transno);
            if flags & reply_flag::TOKEN == 0 {
                self.record_committed((session, shard), transno);
            }
        }
        self.record_committed((session, shard), committed);
        Ok(())
    }

    /// What a session has received up to here was reported durable.
    fn record_committed(&mut self, at: (SessionId, ShardId), committed: Transno) {
        let own = self.received.get(&at).and_then(|all| all.range(..=committed).next_back());
        if let Some(own) = own {
            let committed = self.committed.entry(at).or_default();
            *committed = (*committed).max(*own);
        }
    }

    /// A change that was reported durable to a session and is lost.
    fn lost_to(&self, (session, shard): (SessionId, ShardId)) -> Option<Transno> {
        let committed = self.committed.get(&(session, shard))?;
        let received = self.received.get(&(session, shard))?;
        let lost = self.lost.range((shard, Transno(0))..=(shard, *committed));
        let lost = lost.map(|((_, transno), _)| *transno);
        lost.into_iter().find(|transno| received.contains(transno))
    }

    pub(crate) fn alarm(&mut self, client_lane: ClientLaneId) {
        self.alarmed.insert(client_lane);
    }

    pub(crate) fn stop(&mut self, client_lane: ClientLaneId) {
        self.stopped.insert(client_lane);
    }

    /// Whether an alarm about a shard is right.
    pub(crate) fn is_lost(&self, client_lane: ClientLaneId, shard: ShardId) -> bool {
        let lost = self.lost.iter().filter(|((at, _), _)| *at == shard);
        lost.into_iter().any(|(_, session)| self.client_lanes.get(session) == Some(&client_lane))
    }
}

impl Simulation {
    /// Every living client lane that lost an acknowledged change has raised an alarm.
    pub(crate) fn is_alarmed(&self) -> bool {
        self.unalarmed().is_none()
    }

    /// A living client lane that lost an acknowledged change without raising an alarm.
    pub(crate) fn unalarmed(&self) -> Option<ClientLaneId> {
        let affected = |at: &&(SessionId, ShardId)| self.lying_disk.lost_to(**at).is_some();
        let sessions =
            self.lying_disk.committed.keys().filter(affected).map(|(session, _)| session);
        let mut lanes = sessions.filter_map(|session| self.lying_disk.client_lanes.get(session));
        // A client that was absent for too long, or that was evicted at a peer lane, starts anew.
        let silent = |client_lane: &&ClientLaneId| {
            let mount = &self.mounts[client_lane.0];
            let anew = mount.was_late || mount.evicted_ns.is_some();
            mount.alive && !anew && !self.lying_disk.alarmed.contains(*client_lane)
        };
        lanes.find(silent).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::LyingDisk;

    #[test]
    fn what_began_before_a_loss_may_be_lost() {
        let mut disk = LyingDisk::default();
        assert!(!disk.may_have_lost(0, 0));
        disk.on_lost((1, 10), &[]);
        assert!(disk.may_have_lost(0, 9));
        assert!(!disk.may_have_lost(0, 11));
        disk.on_lost((2, 20), &[]);
        assert!(disk.may_have_lost(0, 11));
    }

    #[test]
    fn what_a_stopped_client_did_may_be_lost() {
        let mut disk = LyingDisk::default();
        disk.on_lost((1, 10), &[]);
        disk.stop((0, 2));
        assert!(disk.may_have_lost(0, 11));
        assert!(!disk.may_have_lost(1, 11));
    }
}
