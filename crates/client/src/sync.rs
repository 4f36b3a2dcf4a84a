//! Durability on demand: for a caller (fsync, unmount), and for the client itself when too much is
//! retained for replays. Also the end of all sessions (Goodbye).
//!
//! A call to several shards is a job whose requests are all out at once.

use crate::client::Client;
use crate::plan::{FollowUp, NewRequest, Plan, Statfs, Target};
use crate::{Answer, Call, CallId, Sync};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use interface::Turn;
use wire::{InodeNo, Op, ShardId, Status, Transno};

impl Client {
    /// Begins a call to several shards; false: the call is of another kind.
    pub(crate) fn start_at_several(&mut self, id: CallId, call: Call<'_>) -> bool {
        if let Call::Sync(sync) = call {
            self.start_sync(id, sync);
        } else if let Call::SyncAhead(sync) = call {
            self.start_sync_ahead(id, sync);
        } else if let Call::SyncAll = call {
            self.start_sync_all(id);
        } else if let Call::SyncShards = call {
            let syncs = self.servers.shards().map(|(shard, _)| {
                let target = Target::Shard(shard);
                // At a data shard: what is on its way to an object as well.
                if shard.is_data() { FollowUp::SyncBehind(target) } else { FollowUp::Sync(target) }
            });
            self.sync_shards(id, Ok(()), syncs.collect());
        } else if let Call::Recall = call {
            let shards = self.servers.shards().map(|(shard, _)| shard);
            let shards = shards.filter(|shard| !shard.is_data());
            let syncs = shards.map(|shard| FollowUp::SyncBehind(Target::Shard(shard)));
            self.sync_shards(id, Ok(()), syncs.collect());
        } else if let Call::Goodbye = call {
            self.start_goodbye(id);
        } else if let Call::Statfs = call {
            self.start_statfs(id);
        } else if let Call::ServerStatfs = call {
            self.start_server_statfs(id);
        } else {
            return false;
        }
        true
    }

    fn start_sync(&mut self, id: CallId, sync: Sync) {
        let mut all = Vec::from([FollowUp::Sync(Target::MetaShard(sync.inode))]);
        if sync.contents {
            all.push(FollowUp::Sync(Target::DataShard(sync.inode)));
        }
        self.begin_all(id, Plan::sync_of(sync), all);
    }

    /// The metadata shard is asked at once, and the data shard to sync the write when it is done. What
    /// is still to come counts as a request.
    fn start_sync_ahead(&mut self, id: CallId, sync: Sync) {
        let plan = Plan::Sync { outcome: Ok(()), file: Some(sync), is_ahead: true };
        let job_id = self.jobs.add(Some(id), plan);
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.pending_count += 1;
        }
        // A lane that has both makes them durable together, if it knows of the contents.
        let contents = FollowUp::SyncBehind(Target::DataShard(sync.inode));
        let names = FollowUp::Sync(Target::MetaShard(sync.inode));
        self.submit_all(job_id, plan, Vec::from([contents, names]));
    }

    /// The contents were written for which a [`Call::SyncAhead`] waits: the data shard is asked again,
    /// which had them the first time if it had received the write. Or that has failed, and so does the
    /// call.
    pub fn sync_contents(&mut self, turn: &mut Turn<'_>, id: CallId, written: Result<(), Status>) {
        self.now = turn.now.mono;
        let Some(job_id) = self.jobs.of_call(id) else { return };
        let Some(Plan::Sync { outcome, file: Some(sync), is_ahead: true }) = self.end_ahead(job_id)
        else {
            return;
        };
        if written.is_ok() {
            let plan = Plan::Sync { outcome, file: Some(sync), is_ahead: false };
            let contents = FollowUp::Sync(Target::DataShard(sync.inode));
            return self.submit_all(job_id, plan, Vec::from([contents]));
        }
        // Its caller gets one error, and losses another time.
        let outcome = written.and(outcome);
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        job.plan = Plan::Sync { outcome, file: None, is_ahead: false };
        if job.pending_count == 0 {
            self.finish(job_id, outcome.map(|()| Answer::Done));
        }
    }

    /// A sync waits for no writes any more. Returns its plan, if it did.
    pub(crate) fn end_ahead(&mut self, job_id: usize) -> Option<Plan> {
        let job = self.jobs.get_mut(job_id)?;
        let plan = job.plan;
        let Plan::Sync { is_ahead, .. } = &mut job.plan else { return None };
        if !core::mem::replace(is_ahead, false) {
            return None;
        }
        job.pending_count -= 1;
        Some(plan)
    }

    fn start_sync_all(&mut self, id: CallId) {
        let outcome = if self.handles.losses.take_unreported() { Err(Status::Io) } else { Ok(()) };
        let shards = self.servers.shards().filter(|(_, index)| {
            self.servers.session(*index).is_some_and(|session| !session.replay.is_empty())
        });
        let syncs = shards.map(|(shard, _)| FollowUp::Sync(Target::Shard(shard))).collect();
        self.sync_shards(id, outcome, syncs);
    }

    fn sync_shards(&mut self, id: CallId, outcome: Result<(), Status>, all: Vec<FollowUp>) {
        if all.is_empty() {
            return self.jobs.answer(id, outcome.map(|()| Answer::Done));
        }
        self.begin_all(id, Plan::Sync { outcome, file: None, is_ahead: false }, all);
    }

    fn start_goodbye(&mut self, id: CallId) {
        let mut known: BTreeSet<usize> = self.servers.known_lanes(None).into_iter().collect();
        let links = self.servers.links().iter().enumerate();
        known.extend(links.filter(|(_, link)| link.is_up()).map(|(link_index, _)| link_index));
        let goodbye = |link_index| FollowUp::Goodbye(Target::Link(link_index));
        let all: Vec<_> = known.into_iter().map(goodbye).collect();
        if all.is_empty() {
            return self.jobs.answer(id, Ok(Answer::Done));
        }
        self.begin_all(id, Plan::Goodbye, all);
    }

    /// Without a map the lanes are not known: the first one gets the request, then the others.
    fn start_statfs(&mut self, id: CallId) {
        let (shards, server_count) = self.servers.meta_lanes();
        let (plan, all) = if shards.is_empty() {
            (Statfs::of_first(), Vec::from([statfs(ShardId::meta(0))]))
        } else {
            (Statfs::of_all(server_count), shards.into_iter().map(statfs).collect())
        };
        self.begin_all(id, Plan::Statfs(plan), all);
    }

    /// Other servers may be away.
    fn start_server_statfs(&mut self, id: CallId) {
        let (shards, _) = self.servers.meta_lanes();
        let own: Vec<_> =
            shards.into_iter().filter(|shard| self.servers.is_at_initial(*shard)).collect();
        if own.is_empty() {
            // There is no map yet.
            return self.jobs.answer(id, Err(Status::Busy));
        }
        let all = own.into_iter().map(statfs).collect();
        self.begin_all(id, Plan::Statfs(Statfs::of_all(1)), all);
    }

    /// The first lane has answered a statfs, and the map is known.
    pub(crate) fn ask_other_lanes(&mut self, job_id: usize, plan: Statfs) {
        let (shards, server_count) = self.servers.meta_lanes();
        let others: Vec<_> = shards.into_iter().skip(1).map(statfs).collect();
        if others.is_empty() {
            return self.finish(job_id, plan.result().map(Answer::Space));
        }
        let plan = Plan::Statfs(plan.of_others(server_count.saturating_sub(1)));
        self.submit_all(job_id, plan, others);
    }

    /// A server lane is about to end this client lane's session, and may crash before its reply:
    /// changes that it then lacks are not lost.
    pub(crate) fn clear_known_committed(&mut self, link_index: usize) {
        for (_, index) in self.servers.sessions_of(link_index) {
            if let Some(session) = self.servers.session_mut(index) {
                session.known_committed = Transno(0);
            }
        }
    }

    /// A server lane has ended this client lane's session.
    pub(crate) fn on_goodbye_done(&mut self, link_index: usize) {
        self.forget_new_files();
        for (_, index) in self.servers.sessions_of(link_index) {
            let Some(session) = self.servers.session_mut(index) else { continue };
            session.reset();
            // It replied when everything was durable.
            for entry in session.replay.take_all() {
                self.forget_entry(entry);
            }
        }
    }

    /// From half of the replay space on, asks shards to make their changes durable.
    pub(crate) fn request_durability(&mut self) {
        if !self.replay_space.is_half_full() {
            return;
        }
        for (shard, session_index) in self.servers.shards() {
            let Some(session) = self.servers.session_mut(session_index) else { continue };
            if session.syncing || session.replay.is_empty() {
                continue;
            }
            session.syncing = true;
            let plan = Plan::Durable { session_index };
            let request = NewRequest::new(plan, Op::Sync, Target::Shard(shard));
            let body = self.requests.take_body();
            self.begin_job(None, request, body);
        }
    }
}

fn statfs(shard: ShardId) -> FollowUp {
    FollowUp::Statfs(wire::Statfs { inode: InodeNo::new(shard.index(), 1) })
}
