//! Continuing under a new uuid after the server evicted this client, or admits it again after it
//! refused its secret.
//!
//! Answered changes that are not known to be durable are given up and reported; requests in flight
//! fail once with EIO; requests never sent and open files continue under the new uuid. Peer lanes
//! derive the same uuid when the eviction is announced to them.

use crate::client::Client;
use crate::link::LinkState;
use crate::replay::Entry;
use crate::report::Report;
use interface::{Action, BufId, Bulk, CORE_BUF_ID_MIN, Turn};
use wire::{ClientUuid, PLAIN, Proven, Status};

/// The numbers of this client's own buffers.
#[derive(Debug, Default)]
pub(crate) struct RetainedBufs {
    free: alloc::vec::Vec<u32>,
    count: u32,
    /// To be released at the end of the turn.
    released: alloc::vec::Vec<BufId>,
}

impl RetainedBufs {
    /// Copies bulk into a buffer of this client.
    pub(crate) fn keep(&mut self, turn: &mut Turn<'_>, bulk: Bulk) -> Bulk {
        let number = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            CORE_BUF_ID_MIN + (self.count - 1)
        });
        let as_buf = BufId(number);
        turn.act(Action::Retain { as_buf, bulk });
        Bulk { buf: as_buf, start: 0, ..bulk }
    }

    /// Releases a copy.
    pub(crate) fn release(&mut self, bulk: Bulk) {
        assert!(bulk.buf.0 >= CORE_BUF_ID_MIN, "a frontend's buffer is not ours to release");
        self.released.push(bulk.buf);
    }

    /// Releases the buffers that are no longer used.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>) {
        for buf in self.released.drain(..) {
            turn.act(Action::Release { buf });
            self.free.push(buf.0);
        }
    }
}

impl Client {
    /// Frees what an entry of the replay list held.
    pub(crate) fn forget_entry(&mut self, entry: Entry) {
        self.replay_bytes -= entry.bytes();
        if let Some(retained) = entry.retained {
            self.retained.release(retained);
        }
        self.spare(entry.body);
    }

    /// The server has ended this client's sessions, as it said to this lane or to a peer lane.
    pub(crate) fn on_evicted(&mut self, turn: &mut Turn<'_>, by_peer_lane: bool) {
        let mut lost_count = 0;
        let mut inodes = alloc::collections::BTreeSet::new();
        for session_index in 0..self.sessions.len() {
            let Some(session) = self.sessions.get_mut(session_index) else { continue };
            for entry in session.replay.take_all() {
                lost_count += 1;
                inodes.insert(entry.inode);
                self.lose(&entry);
                self.forget_entry(entry);
            }
        }
        self.lose_locks();
        self.counters.evicted_count += 1;
        self.announce_eviction();
        self.counters.lost_count += lost_count;
        let inodes = inodes.into_iter().collect();
        if lost_count > 0 || !by_peer_lane {
            self.reports.push(Report::Evicted { lost_count, inodes });
        }
        self.config.client = self.successor();
        for link_index in 0..self.links.len() {
            if !matches!(self.links.get(link_index), Some(link) if link.state_is_idle()) {
                self.leave_link(turn, link_index);
            }
        }
        self.fail_sent();
        for session in &mut self.sessions {
            session.used = false;
            session.boot_id = 0;
            session.known_committed = wire::Transno(0);
        }
        let has_state = self.handles.count() > 0 || self.locks.is_any();
        let wanted = has_state || !self.unrouted.is_empty();
        for link in &mut self.links {
            if !wanted && !link.is_wanted() && matches!(link.state, LinkState::Pausing { .. }) {
                link.state = LinkState::Idle;
            }
        }
    }

    /// Closes a connection; the client reconnects after a pause.
    fn leave_link(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        if let Some(link) = self.links.get_mut(link_index) {
            link.failure_count = link.failure_count.max(1);
        }
        self.drop_link(turn, link_index);
    }

    /// Calls with a request that was sent fail, once: it may have been executed, or lost. Jobs of
    /// the client itself are dropped; reopens and locks begin again under the new uuid.
    fn fail_sent(&mut self) {
        let jobs: alloc::vec::Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, job)| {
                let exchange = self.exchanges.get(job.exchange_id);
                exchange.is_some_and(|exchange| {
                    job.call.is_none() || job.has_begun || exchange.xid.is_some()
                })
            })
            .map(|(job_id, job)| (job_id, job.exchange_id))
            .collect();
        for (job_id, exchange_id) in jobs {
            self.forget_exchange(exchange_id);
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
