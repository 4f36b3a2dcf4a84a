//! Continuing under a new uuid after the server evicted this client, or admits it again after it
//! refused its secret.
//!
//! Answered changes that are not known to be durable are dropped and reported; requests in flight
//! fail once with EIO; requests never sent and open files continue under the new uuid. Peer lanes
//! derive the same uuid when the eviction is announced to them.

use crate::client::Client;
use crate::link::LinkState;
use crate::replay::Entry;
use crate::report::Report;
use alloc::vec::Vec;
use interface::Turn;
use wire::{ClientUuid, PLAIN, Proven, Status};

impl Client {
    /// Frees what an entry of the replay list held.
    pub(crate) fn forget_entry(&mut self, entry: Entry) {
        let body = self.replay_space.remove(entry);
        self.requests.spare(body);
    }

    /// The server has ended this client's sessions, as it said to this lane or to a peer lane.
    pub(crate) fn on_evicted(&mut self, turn: &mut Turn<'_>, by_peer_lane: bool) {
        let mut lost_count = 0;
        let mut inodes = alloc::collections::BTreeSet::new();
        for session_index in 0..self.servers.sessions().len() {
            let Some(session) = self.servers.session_mut(session_index) else { continue };
            for entry in session.replay.take_all() {
                lost_count += 1;
                inodes.insert(entry.inode);
                self.lose(&entry);
                self.forget_entry(entry);
            }
        }
        self.forget_new_files();
        self.lose_locks();
        self.forget_all_kept();
        self.handles.set_dropped();
        self.counters.evicted_count += 1;
        self.announce_eviction();
        self.counters.lost_count += lost_count;
        let inodes = inodes.into_iter().collect();
        if lost_count > 0 || !by_peer_lane {
            self.reports.push(Report::Evicted { lost_count, inodes });
        }
        self.config.client = self.successor();
        for link_index in 0..self.servers.links().len() {
            if !matches!(self.servers.link(link_index), Some(link) if link.state_is_idle()) {
                self.leave_link(turn, link_index);
            }
        }
        self.fail_sent();
        for session in self.servers.sessions_mut() {
            session.reset();
        }
        let has_state = self.handles.count() > 0 || self.locks.is_any();
        let wanted = has_state || self.requests.wait_for_a_map();
        for link in self.servers.links_mut() {
            if !wanted && !link.is_wanted() && matches!(link.state, LinkState::Pausing { .. }) {
                link.state = LinkState::Idle;
            }
        }
    }

    /// Closes a connection; the client reconnects after a pause.
    fn leave_link(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        if let Some(link) = self.servers.link_mut(link_index) {
            link.failure_count = link.failure_count.max(1);
        }
        self.drop_link(turn, link_index);
    }

    /// Calls with a request that was sent fail, once: it may have been executed, or lost. Jobs of
    /// the client itself are dropped; reopens and locks begin again under the new uuid.
    fn fail_sent(&mut self) {
        let jobs = self.jobs.iter().filter(|(job_id, job)| {
            let mut requests = self.requests.of_job(*job_id).peekable();
            let has_requests = requests.peek().is_some();
            let sent = job.call.is_none() || job.has_begun;
            has_requests && (sent || requests.any(|(_, request)| request.xid.is_some()))
        });
        let jobs: Vec<usize> = jobs.map(|(job_id, _)| job_id).collect();
        for job_id in jobs {
            self.forget_requests(job_id);
            self.finish(job_id, Err(Status::Io));
        }
    }

    /// The next uuid. Every lane of the client derives the same one from the secret that all of
    /// them started with.
    fn successor(&self) -> ClientUuid {
        let of = Proven { hello: &self.config.client.0, nonce: &[0xe; 32], channel: &PLAIN };
        let mac = self.config.secrets.current.client_proof(of);
        let mut uuid = [0; 16];
        for (to, from) in uuid.iter_mut().zip(mac) {
            *to = from;
        }
        ClientUuid(uuid)
    }
}
