//! Changes of contents that are under way although their callers were answered, since their programs
//! were killed or interrupted (docs/protocol.md R13.48). Until they are over, the file is not closed and
//! no lock on it is released, by whatever lane of the client.
//!
//! ```text
//! lane of the call ── Abandoned ─▶ all, before the answer    ── Abandoned (over) ─▶ all
//! lane of the close, keeper of the locks: hold back ───────────▶ send
//! ```

use crate::client::Client;
use crate::locks::LockKey;
use crate::plan::Plan;
use crate::requests::{Exchange, Place};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use interface::MountMessage;
use wire::{InodeNo, Op, Rule};

/// What is under way of all lanes, and what waits for it.
#[derive(Default, Debug)]
pub(crate) struct Abandoned {
    /// The number of calls, by file.
    counts: BTreeMap<InodeNo, u64>,
    /// Closes that are held back, in order.
    closes: Vec<(InodeNo, usize)>,
}

impl Abandoned {
    /// Whether a change of the file is under way.
    pub(crate) fn has(&self, inode: InodeNo) -> bool {
        !self.counts.is_empty() && self.counts.contains_key(&inode)
    }

    /// A close does not wait any more.
    pub(crate) fn end_wait(&mut self, exchange_id: usize) {
        self.closes.retain(|(_, id)| *id != exchange_id);
    }

    fn add(&mut self, inode: InodeNo) {
        *self.counts.entry(inode).or_insert(0) += 1;
    }

    /// One is over. Returns whether it was the last one of the file.
    fn end(&mut self, inode: InodeNo) -> bool {
        let Some(count) = self.counts.get_mut(&inode) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.counts.remove(&inode);
        }
        is_last
    }
}

impl Client {
    /// A call's caller is answered. What is left of it may change a file.
    pub(crate) fn note_abandoned(&mut self, job_id: usize) {
        if !self.config.rules.hold(Rule::AbandonedEnded) {
            return;
        }
        let Some(job) = self.jobs.get(job_id).filter(|job| job.abandoned.is_none()) else { return };
        // The first request of these opens the file.
        let goes_on = matches!(job.plan, Plan::Resize(_));
        let mut requests = self.requests.of_job(job_id).map(|(_, request)| request);
        let found = requests.find(|request| goes_on || request.changes_contents());
        let Some(inode) = found.map(Exchange::inode) else { return };
        if let Some(job) = self.jobs.get_mut(job_id) {
            job.abandoned = Some(inode);
        }
        self.abandoned.add(inode);
        self.peer_lanes.broadcast(MountMessage::Abandoned { inode, is_over: false });
    }

    /// It is over, executed or not.
    pub(crate) fn end_abandoned(&mut self, inode: InodeNo) {
        self.peer_lanes.broadcast(MountMessage::Abandoned { inode, is_over: true });
        self.on_abandoned(inode, true);
    }

    /// The same at any lane of the client.
    pub(crate) fn on_abandoned(&mut self, inode: InodeNo, is_over: bool) {
        if !is_over {
            return self.abandoned.add(inode);
        }
        if !self.abandoned.end(inode) {
            return;
        }
        let closes = self.abandoned.closes.extract_if(.., |(held, _)| *held == inode);
        let closes: Vec<usize> = closes.map(|(_, exchange_id)| exchange_id).collect();
        closes.into_iter().for_each(|exchange_id| self.route(exchange_id));
        let keys: Vec<LockKey> = self.locks.keys_of(inode).collect();
        keys.into_iter().for_each(|key| self.pump_lock(key));
    }

    /// Whether this request is the close of a file that is held back.
    pub(crate) fn holds_back(&mut self, exchange_id: usize) -> bool {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return false };
        let inode = exchange.inode();
        let is_fresh = exchange.op == Op::Close && exchange.xid.is_none();
        if !is_fresh || !self.abandoned.has(inode) {
            return false;
        }
        // Others close what they have opened themselves.
        let job = self.jobs.get(exchange.job_id);
        if !job.is_some_and(|job| matches!(job.plan, Plan::Close(_))) {
            return false;
        }
        exchange.place = Place::CloseWait;
        self.abandoned.closes.push((inode, exchange_id));
        true
    }
}

impl Exchange {
    /// Whether it changes a file's contents.
    const fn changes_contents(&self) -> bool {
        matches!(self.op, Op::Write | Op::WriteList | Op::Truncate | Op::Allocate)
    }
}
