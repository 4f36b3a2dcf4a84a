//! Requests under way, each from its making to its reply, with all that a resend needs.
//!
//! Invariant: a request is in exactly one place: here while it waits for the map or for a time, in
//! a queue of its link or session, in the queue for replay space, or on a connection.

use crate::plan::Target;
use crate::session::SlotClass;
use crate::wait_cause::WaitCause;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::{Bulk, Mono};
use slab::Slab;
use wire::{InodeNo, Layout, MapEpoch, Op, Retry, ShardId, Xid, request_flag};

/// Where a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// For the server's map.
    Unrouted,
    /// For its file's layout.
    LayoutWait,
    /// For an earlier append of this client lane to the file.
    AppendWait,
    /// For abandoned changes of the file that it closes.
    CloseWait,
    /// In a queue of its link, new or for a resend.
    Queued,
    /// For a slot of its session.
    SlotWait,
    /// For replay space.
    SpaceWait,
    /// For the time after a `RetryLater`.
    Later,
    /// For the reply, on its link's connection.
    Sent,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) job_id: usize,
    /// Which of its job's requests it is.
    pub(crate) part: u16,
    pub(crate) op: Op,
    pub(crate) target: Target,
    pub(crate) body: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
    /// The client's copy of an abandoned write's bytes: for a replay, not for a resend.
    pub(crate) retained: Option<Bulk>,
    /// The change must be durable before the reply.
    pub(crate) sync: bool,
    /// Further flags of the request. Leases are requested only by a client that caches.
    pub(crate) flags: u16,
    pub(crate) urgent: bool,
    /// Other requests wait for it: it waits neither for replay space nor for the other slots.
    pub(crate) is_awaited: bool,
    /// How often it was answered `RetryLater`.
    pub(crate) later_count: u8,
    pub(crate) place: Place,
    /// What it has been waiting for before it is sent, since when.
    pub(crate) wait: Option<(WaitCause, Mono)>,
    /// Its file's layout, if it is about contents and the layout is known.
    pub(crate) layout: Option<Layout>,
    /// It is not split any more: see [`crate::spread`].
    pub(crate) is_split: bool,
    /// The destination; meaningless while `Unrouted`, in `LayoutWait` or `CloseWait`.
    pub(crate) shard: ShardId,
    pub(crate) session_index: usize,
    pub(crate) link_index: usize,
    /// Assigned at the first sending, with the slot (0 for ops that change nothing).
    pub(crate) xid: Option<Xid>,
    pub(crate) slot: u16,
    /// When it was first sent under its xid.
    pub(crate) sent_at: Mono,
    /// It was sent more than once under its xid.
    pub(crate) resent: bool,
    /// Replay space reserved for its reply, from the first sending on.
    pub(crate) promised_bytes: usize,
    pub(crate) wrong_lane_count: u8,
    /// The map lacked its shard, and the servers were asked for a newer one.
    pub(crate) map_asked: bool,
    /// The epoch of the map by which it was last sent.
    pub(crate) map_epoch: MapEpoch,
    /// The order in which requests were made.
    pub(crate) sequence_no: u64,
}

impl Exchange {
    /// A request that is not routed, without body and bulk.
    pub(crate) const fn new(job_id: usize, op: Op, target: Target) -> Self {
        Self {
            job_id,
            part: 0,
            op,
            target,
            body: Vec::new(),
            bulk: None,
            retained: None,
            sync: false,
            flags: 0,
            urgent: false,
            is_awaited: false,
            later_count: 0,
            place: Place::Unrouted,
            wait: None,
            layout: None,
            is_split: false,
            shard: ShardId(0),
            session_index: 0,
            link_index: 0,
            xid: None,
            slot: 0,
            sent_at: Mono(0),
            resent: false,
            promised_bytes: 0,
            wrong_lane_count: 0,
            map_asked: false,
            map_epoch: MapEpoch(0),
            sequence_no: 0,
        }
    }

    /// Whether it may be dropped although it was sent.
    pub(crate) fn repeats(&self) -> bool {
        self.op.row().retry == Retry::Repeat
    }

    /// Which slots it may take.
    pub(crate) fn slot_class(&self) -> SlotClass {
        if self.urgent || self.is_awaited {
            SlotClass::Awaited
        } else if self.is_behind() {
            SlotClass::Behind
        } else {
            SlotClass::Other
        }
    }

    /// Whether it is a change whose caller has its answer.
    pub(crate) fn is_behind(&self) -> bool {
        let is_change = matches!(self.op, Op::Write | Op::Setattr | Op::Create | Op::Unlink);
        // A change behind may wait for a Widen.
        self.op == Op::Widen || is_change && self.flags & request_flag::BEHIND != 0
    }

    /// The inode that it is about, for reports.
    pub(crate) const fn inode(&self) -> InodeNo {
        match self.target {
            Target::Inode(inode)
            | Target::Contents(inode, _)
            | Target::MetaShard(inode)
            | Target::DataShard(inode) => inode,
            Target::Shard(_) | Target::Lane(_) | Target::Link(_) => InodeNo(0),
        }
    }
}

/// All requests of a client lane.
#[derive(Debug)]
pub(crate) struct Requests {
    slab: Slab<Exchange>,
    unrouted: VecDeque<usize>,
    later: Vec<(Mono, usize)>,
    sequence_last: u64,
    spare_bodies: Vec<Vec<u8>>,
}

impl Requests {
    pub(crate) const fn new() -> Self {
        Self {
            slab: Slab::new(),
            unrouted: VecDeque::new(),
            later: Vec::new(),
            sequence_last: 0,
            spare_bodies: Vec::new(),
        }
    }

    /// Adds a request and numbers it.
    pub(crate) fn add(&mut self, exchange: Exchange) -> usize {
        self.sequence_last += 1;
        self.slab.insert(Exchange { sequence_no: self.sequence_last, ..exchange })
    }

    pub(crate) fn get(&self, exchange_id: usize) -> Option<&Exchange> {
        self.slab.get(exchange_id)
    }

    pub(crate) fn get_mut(&mut self, exchange_id: usize) -> Option<&mut Exchange> {
        self.slab.get_mut(exchange_id)
    }

    pub(crate) fn remove(&mut self, exchange_id: usize) -> Option<Exchange> {
        self.slab.try_remove(exchange_id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Exchange)> {
        self.slab.iter()
    }

    /// The requests of a job.
    pub(crate) fn of_job(&self, job_id: usize) -> impl Iterator<Item = (usize, &Exchange)> {
        self.slab.iter().filter(move |(_, exchange)| exchange.job_id == job_id)
    }

    /// An empty body, perhaps with capacity.
    pub(crate) fn take_body(&mut self) -> Vec<u8> {
        self.spare_bodies.pop().unwrap_or_default()
    }

    /// Retains a body's capacity for another request.
    pub(crate) fn spare(&mut self, mut body: Vec<u8>) {
        const SPARE_COUNT_MAX: usize = 256;
        const SPARE_BYTES_MAX: usize = 4096;
        if self.spare_bodies.len() < SPARE_COUNT_MAX && body.capacity() <= SPARE_BYTES_MAX {
            body.clear();
            self.spare_bodies.push(body);
        }
    }

    /// The request waits for the map.
    pub(crate) fn wait_for_map(&mut self, exchange_id: usize) {
        self.unrouted.push_back(exchange_id);
    }

    /// The requests that wait for the map, which do not wait any more.
    pub(crate) fn take_waiting_for_map(&mut self) -> VecDeque<usize> {
        core::mem::take(&mut self.unrouted)
    }

    /// Whether requests wait for the map.
    pub(crate) fn wait_for_a_map(&self) -> bool {
        !self.unrouted.is_empty()
    }

    /// The map is known: no request waits for it any more.
    pub(crate) fn end_waits_for_map(&mut self) {
        self.unrouted.clear();
    }

    /// The request waits until `at`.
    pub(crate) fn wait_until(&mut self, at: Mono, exchange_id: usize) {
        if let Some(exchange) = self.slab.get_mut(exchange_id) {
            exchange.place = Place::Later;
            self.later.push((at, exchange_id));
        }
    }

    /// Takes a request whose time has come.
    pub(crate) fn take_due(&mut self, now: Mono) -> Option<usize> {
        let index = self.later.iter().position(|(at, _)| *at <= now)?;
        Some(self.later.swap_remove(index).1)
    }

    /// When the next one's time comes.
    pub(crate) fn next_due(&self) -> Option<Mono> {
        self.later.iter().map(|(at, _)| *at).min()
    }

    /// Ends a request's wait for the map or for a time.
    pub(crate) fn end_wait(&mut self, exchange_id: usize) {
        self.unrouted.retain(|id| *id != exchange_id);
        self.later.retain(|(_, id)| *id != exchange_id);
    }
}
