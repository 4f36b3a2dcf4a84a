//! A disk that lies: it called a batch durable and lost it in a crash. Whoever had been told so must
//! notice: his next word to the shard is an alarm and his last one, and nothing of what is left
//! there is served to him as if nothing had happened.

use crate::world::{Verdict, World};
use std::collections::{BTreeMap, BTreeSet};
use wire::{
    CommitNotification, Header, Op, Reply, Route, SessionId, ShardId, Status, Transno, Wire, Xid,
};
use wire::{reply_flag, request_flag};

/// A client lane.
pub(crate) type Seat = (usize, usize);

/// What was lost, and who knows better.
#[derive(Default, Debug)]
pub(crate) struct Lies {
    /// Changes that were durable and are not, with their sessions.
    lost: BTreeMap<(ShardId, Transno), SessionId>,
    /// The boot that lost the last of them.
    lost_in: u64,
    seats: BTreeMap<SessionId, Seat>,
    /// What a session has received, and up to where it was told that it is durable.
    received: BTreeMap<(SessionId, ShardId), BTreeSet<Transno>>,
    told: BTreeMap<(SessionId, ShardId), Transno>,
    replays: BTreeSet<(SessionId, ShardId, Xid)>,
    /// Client lanes that have said that something they had is gone.
    alarmed: BTreeSet<Seat>,
    /// Of them, those that send nothing more.
    stopped: BTreeSet<Seat>,
}

impl Lies {
    /// Something that was durable is lost.
    pub(crate) fn is_any(&self) -> bool {
        self.lost_in > 0
    }

    pub(crate) fn lose(&mut self, boot_id: u64, batch: &[u8]) {
        self.lost_in = boot_id;
        for record in crate::tap::records(batch) {
            if let disk::Origin::Session { session, .. } = record.origin {
                self.lost.insert((record.shard, record.transno), session);
            }
        }
    }

    /// It is there again: its client brought it back.
    pub(crate) fn keep(&mut self, batch: &[u8]) {
        for record in crate::tap::records(batch) {
            self.lost.remove(&(record.shard, record.transno));
        }
    }

    /// A client lane sends a frame.
    pub(crate) fn on_request(&mut self, seat: Seat, frame: &[u8]) -> Verdict {
        if self.stopped.contains(&seat) {
            return Err(format!("client {seat:?} sends, and its store went back"));
        }
        let Ok((Header::Request(request), _)) = Header::decode(frame) else { return Ok(()) };
        self.seats.insert(request.session, seat);
        if request.flags & request_flag::REPLAY != 0 {
            self.replays.insert((request.session, request.shard, request.xid));
        }
        Ok(())
    }

    /// A client lane takes a frame in.
    pub(crate) fn on_frame(&mut self, seat: Seat, frame: &[u8]) -> Verdict {
        match Header::decode(frame) {
            Ok((Header::Reply(reply), _)) if reply.op.row().route != Route::Lane => {
                self.on_reply(seat, &reply)
            }
            Ok((Header::CommitNotification, body)) => {
                let Ok(note) = CommitNotification::decode_all(body) else { return Ok(()) };
                let ours = self.seats.iter().filter(|(_, known)| **known == seat);
                let sessions: Vec<SessionId> = ours.map(|(session, _)| *session).collect();
                for row in note.rows.iter() {
                    for session in &sessions {
                        self.told_up_to((*session, row.shard), row.committed);
                    }
                }
                Ok(())
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn on_reply(&mut self, seat: Seat, reply: &Reply) -> Verdict {
        let Reply { session, shard, xid, transno, committed, flags, status, op, .. } = *reply;
        let after = reply.boot_id > self.lost_in && op != Op::Resume && status == Status::Ok;
        if after
            && !self.alarmed.contains(&seat)
            && let Some(lost) = self.lost_to((session, shard))
        {
            let what = "was told that it is durable; it is lost, and nobody says so";
            return Err(format!("client {seat:?}: {shard} T {lost} {what} to {op:?}"));
        }
        let replay = self.replays.contains(&(session, shard, xid));
        if transno.0 > 0 && status == Status::Ok && !replay {
            self.received.entry((session, shard)).or_default().insert(transno);
            if flags & reply_flag::TOKEN == 0 {
                self.told_up_to((session, shard), transno);
            }
        }
        self.told_up_to((session, shard), committed);
        Ok(())
    }

    /// Of what a session has, all up to here was called durable.
    fn told_up_to(&mut self, at: (SessionId, ShardId), committed: Transno) {
        let own = self.received.get(&at).and_then(|all| all.range(..=committed).next_back());
        if let Some(own) = own {
            let told = self.told.entry(at).or_default();
            *told = (*told).max(*own);
        }
    }

    /// Something that a session was told is durable, and is lost.
    fn lost_to(&self, (session, shard): (SessionId, ShardId)) -> Option<Transno> {
        let told = self.told.get(&(session, shard))?;
        let received = self.received.get(&(session, shard))?;
        let lost = self.lost.range((shard, Transno(0))..=(shard, *told));
        let lost = lost.map(|((_, transno), _)| *transno);
        lost.into_iter().find(|transno| received.contains(transno))
    }

    pub(crate) fn alarm(&mut self, seat: Seat) {
        self.alarmed.insert(seat);
    }

    pub(crate) fn stop(&mut self, seat: Seat) {
        self.stopped.insert(seat);
    }

    /// Whether an alarm about a shard is right.
    pub(crate) fn is_lost(&self, seat: Seat, shard: ShardId) -> bool {
        let lost = self.lost.iter().filter(|((at, _), _)| *at == shard);
        lost.into_iter().any(|(_, session)| self.seats.get(session) == Some(&seat))
    }
}

impl World {
    /// Everybody who lives and was told what is not true has said so.
    pub(crate) fn is_alarmed(&self) -> bool {
        self.unalarmed().is_none()
    }

    /// Who was told what is not true, and is silent.
    pub(crate) fn unalarmed(&self) -> Option<Seat> {
        let betrayed = |at: &&(SessionId, ShardId)| self.lies.lost_to(**at).is_some();
        let sessions = self.lies.told.keys().filter(betrayed).map(|(session, _)| session);
        let mut seats = sessions.filter_map(|session| self.lies.seats.get(session));
        // Who was away for too long, or whose peer lane was told that it is evicted, starts anew.
        let silent = |seat: &&Seat| {
            let mount = &self.mounts[seat.0];
            let anew = mount.was_late || mount.evicted_ns.is_some();
            mount.alive && !anew && !self.lies.alarmed.contains(*seat)
        };
        seats.find(silent).copied()
    }
}
