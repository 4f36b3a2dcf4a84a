//! Going on under a new uuid: the server has evicted this client, or went on without it, or admits it again after
//! it refused its secret.
//!
//! What was answered and is not known to be durable is given up, with a report; what is on its way
//! fails once with EIO; what was never sent, and open files, go on under the new uuid. Peer lane
//! lanes come to the same uuid when they hear of it.

use crate::client::Client;
use crate::link::LinkState;
use crate::replay::Entry;
use crate::report::Report;
use interface::{Action, BufId, Bulk, CORE_BUF_ID_MIN, Turn};
use wire::{ClientUuid, PLAIN, Proven, Status};

/// The numbers of buffers that are ours.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    free: alloc::vec::Vec<u32>,
    count: u32,
    /// To be given back at the end of the turn.
    released: alloc::vec::Vec<BufId>,
}

impl Kept {
    /// Copies bulk into a buffer of ours.
    pub(crate) fn keep(&mut self, turn: &mut Turn<'_>, bulk: Bulk) -> Bulk {
        let number = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            CORE_BUF_ID_MIN + (self.count - 1)
        });
        let as_buf = BufId(number);
        turn.act(Action::Retain { as_buf, bulk });
        Bulk { buf: as_buf, start: 0, ..bulk }
    }

    /// A copy is needed no more.
    pub(crate) fn release(&mut self, bulk: Bulk) {
        assert!(bulk.buf.0 >= CORE_BUF_ID_MIN, "a face's buffer is not ours to release");
        self.released.push(bulk.buf);
    }

    /// PrivilegedBits back what was released.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>) {
        for buf in self.released.drain(..) {
            turn.act(Action::Release { buf });
            self.free.push(buf.0);
        }
    }
}

impl Client {
    /// An entry has left the replay list.
    pub(crate) fn forget_entry(&mut self, entry: Entry) {
        self.replay_bytes -= entry.bytes();
        if let Some(kept) = entry.kept {
            self.kept.release(kept);
        }
        self.spare(entry.body);
    }

    /// The server knows this client no more, as this lane was told by the server, or by a peer lane.
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
        self.tell_eviction();
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
        let kept = self.handles.count() > 0 || self.locks.is_any();
        let wanted = kept || !self.unrouted.is_empty();
        for link in &mut self.links {
            if !wanted && !link.is_wanted() && matches!(link.state, LinkState::Pausing { .. }) {
                link.state = LinkState::Idle;
            }
        }
    }

    /// Closes a connection; it is made again after a pause.
    fn leave_link(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        if let Some(link) = self.links.get_mut(link_index) {
            link.failure_count = link.failure_count.max(1);
        }
        self.drop_link(turn, link_index);
    }

    /// Calls of which something was sent and may have been done or is lost fail, once; our own work is dropped, and what
    /// files need is begun again under the new uuid.
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

    /// The uuid after this one: every lane of the client finds the same, by the secret that all of them began
    /// with.
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
