//! Durability on demand: for a caller (fsync, unmount), and for the client itself when too much is
//! retained for replays. Also the end of all sessions (Goodbye).
//!
//! A call to several shards is a job without a request, a `Gather`, and a job for each part.

use crate::client::Client;
use crate::plan::Plan;
use crate::plan::begin::{NewRequest, Target};
use crate::{Answer, Call, CallId, Sync};
use alloc::vec::Vec;
use wire::{LaneId, Op, ShardId, Status, Transno};

impl Client {
    /// Begins a call to several shards; false: the call is of another kind.
    pub(crate) fn start_gathering(&mut self, id: CallId, call: Call<'_>) -> bool {
        if let Call::Sync(sync) = call {
            self.start_sync(id, sync);
        } else if let Call::SyncAll = call {
            self.start_sync_all(id);
        } else if let Call::SyncShards = call {
            let shards = self.shards().into_iter();
            let targets = shards.map(|(shard, _)| Target::Shard(shard)).collect();
            self.gather((id, None), Ok(()), targets, Op::Sync);
        } else if let Call::Goodbye = call {
            self.start_goodbye(id);
        } else {
            return false;
        }
        true
    }

    fn start_sync(&mut self, id: CallId, sync: Sync) {
        let mut targets = Vec::from([Target::MetaShard(sync.inode)]);
        if sync.contents {
            targets.push(Target::DataShard(sync.inode));
        }
        self.gather((id, Some(sync)), Ok(()), targets, Op::Sync);
    }

    fn start_sync_all(&mut self, id: CallId) {
        let outcome =
            if core::mem::take(&mut self.loss_unreported) { Err(Status::Io) } else { Ok(()) };
        let shards = self.shards();
        let shards = shards.into_iter().filter(|(_, index)| {
            self.sessions.get(*index).is_some_and(|session| !session.replay.is_empty())
        });
        let targets = shards.map(|(shard, _)| Target::Shard(shard)).collect();
        self.gather((id, None), outcome, targets, Op::Sync);
    }

    fn start_goodbye(&mut self, id: CallId) {
        let mut targets = Vec::new();
        for (link_index, link) in self.links.iter().enumerate() {
            if link.is_up() || self.is_known_at(link_index) {
                targets.push(Target::Lane(LaneId(u16::try_from(link_index).unwrap_or(u16::MAX))));
            }
        }
        self.gather((id, None), Ok(()), targets, Op::Goodbye);
    }

    /// Sends a request to all of `targets`; the call is answered when all have replied.
    fn gather(
        &mut self,
        (id, sync): (CallId, Option<Sync>),
        outcome: Result<(), Status>,
        targets: Vec<Target>,
        op: Op,
    ) {
        if targets.is_empty() {
            self.answers.push_back((id, outcome.map(|()| Answer::Done)));
            return;
        }
        let plan = Plan::Gather { pending_count: targets.len(), outcome, sync };
        let whole = self.begin_gather(id, plan);
        for target in targets {
            let plan = match target {
                Target::Lane(lane) => Plan::Goodbye { whole, link_index: usize::from(lane.0) },
                Target::Inode(_)
                | Target::MetaShard(_)
                | Target::DataShard(_)
                | Target::Shard(_) => Plan::Part { whole },
            };
            self.begin_own(NewRequest { plan, op, target, bulk: None, sync: false });
        }
    }

    /// A part of a `Gather` has ended.
    pub(crate) fn part_done(&mut self, whole: usize, result: Result<(), Status>) {
        let Some(job) = self.jobs.get_mut(whole) else { return };
        let Plan::Gather { pending_count, outcome, sync } = &mut job.plan else { return };
        *pending_count -= 1;
        *outcome = outcome.and(result);
        if *pending_count > 0 {
            return;
        }
        match *sync {
            Some(sync) => self.look_for_losses(whole, sync),
            None => {
                let outcome = outcome.map(|()| Answer::Done);
                self.finish(whole, outcome);
            }
        }
    }

    /// A server lane is about to end this client lane's session, and may crash before its reply:
    /// changes that it then lacks are not lost.
    pub(crate) fn clear_known_committed(&mut self, link_index: usize) {
        for (_, index) in self.sessions_of(link_index) {
            if let Some(session) = self.sessions.get_mut(index) {
                session.known_committed = Transno(0);
            }
        }
    }

    /// A server lane has ended this client lane's session.
    pub(crate) fn on_goodbye_done(&mut self, link_index: usize) {
        for (_, index) in self.sessions_of(link_index) {
            let Some(session) = self.sessions.get_mut(index) else { continue };
            session.used = false;
            session.boot_id = 0;
            session.known_committed = Transno(0);
            // It replied when everything was durable.
            for entry in session.replay.take_all() {
                self.forget_entry(entry);
            }
        }
    }

    /// From half of the replay space on, asks shards to make their changes durable.
    pub(crate) fn request_durability(&mut self) {
        if self.replay_bytes < self.config.replay_bytes_max / 2 {
            return;
        }
        for (shard, session_index) in self.shards() {
            let Some(session) = self.sessions.get_mut(session_index) else { continue };
            if session.syncing || session.replay.is_empty() {
                continue;
            }
            session.syncing = true;
            let plan = Plan::Durable { session_index };
            let target = Target::Shard(shard);
            self.begin_own(NewRequest { plan, op: Op::Sync, target, bulk: None, sync: false });
        }
    }

    /// All shards with the indices of their sessions.
    fn shards(&self) -> Vec<(ShardId, usize)> {
        (0..self.links.len()).flat_map(|link_index| self.sessions_of(link_index)).collect()
    }
}
