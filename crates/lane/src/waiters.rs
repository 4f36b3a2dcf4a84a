//! Everything that waits in a lane, by its cause: suspended requests, deferred replies, steps of
//! transactions. What a cause means, and what it takes to end it, is known to the module of the
//! cause; here things wait and proceed in the order in which they came.
//!
//! ```text
//! suspend(cause, waiter) ─▶ by cause ─ release(cause) ─▶ its waiters, in their order
//!                                 └─ cancel(connection) ─▶ buffers to be released
//! await_request ─▶ token  ─▶ answers ─ the data shards or the runtime answer ─▶ the request
//! ```
//! Invariant: a waiter waits for one cause.

mod answers;
mod failed;
mod suspended;

pub(crate) use answers::{Answers, Waiting};

use crate::acknowledgements::{BatchNo, Gate};
use crate::leases::BarrierNo;
use crate::request::{PartWork, ReceivedFrame, Sizing, SuspendedRequest};
use crate::request_header::SlotId;
use crate::response::DeferredReply;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use data::Token;
use disk::TxnId;
use interface::{Bulk, ConnId, Mono, Seed};
use meta::{EndedWait, LeaseKey, Unit};
use wire::counters::Metric;
use wire::{Contents, Op, SessionId, ShardId, Transno};

/// What something waits for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Cause {
    /// Records in the lane's log to be safe. The first variant: see [`Waiters::gates`].
    Batch(Gate),
    /// This transaction of a data shard to be durable.
    Write(ShardId, Transno),
    /// This write behind to reach its object at a data shard, or to fail.
    Unwritten(ShardId, Token),
    /// What other clients had answered early to be executed.
    Barrier(BarrierNo),
    /// A cross-shard transaction to release its locks at a shard.
    Lock(ShardId, TxnId),
    /// The rows of a non-resident unit.
    Rows(ShardId, Unit),
    /// An answer about export containment, or what another server's lane has to say first.
    Containment,
    /// All replays to be executed; then clients reopen their files.
    Reopening,
    /// The end of recovery.
    Recovery,
    /// The end of a freeze.
    Freeze,
    /// The end of all recalled leases of a key, or that all lanes have been told of its file.
    Lease(LeaseKey),
}

/// What counts the waits for each cause, and what now waits for it.
const METRICS: [(Metric, Metric); 9] = [
    (Metric::WaitsBatch, Metric::WaitingBatch),
    (Metric::WaitsWrite, Metric::WaitingWrite),
    (Metric::WaitsLock, Metric::WaitingLock),
    (Metric::WaitsRows, Metric::WaitingRows),
    (Metric::WaitsContainment, Metric::WaitingContainment),
    (Metric::WaitsReopening, Metric::WaitingReopening),
    (Metric::WaitsRecovery, Metric::WaitingRecovery),
    (Metric::WaitsFreeze, Metric::WaitingFreeze),
    (Metric::WaitsLease, Metric::WaitingLease),
];

// Each match is exhaustive: a new cause has to say what becomes of its waiters.
impl Cause {
    /// Its index in [`METRICS`].
    const fn index(&self) -> usize {
        match self {
            Self::Batch(_) => 0,
            Self::Write(..) | Self::Unwritten(..) => 1,
            Self::Lock(..) => 2,
            Self::Rows(..) => 3,
            Self::Containment => 4,
            Self::Reopening => 5,
            Self::Recovery => 6,
            Self::Freeze => 7,
            Self::Lease(_) | Self::Barrier(_) => 8,
        }
    }

    /// Whether requests wait for it before they are begun: such a request ends with its connection.
    const fn precedes_execution(&self) -> bool {
        match self {
            Self::Containment | Self::Reopening | Self::Recovery | Self::Freeze => true,
            Self::Batch(_)
            | Self::Write(..)
            | Self::Unwritten(..)
            | Self::Barrier(_)
            | Self::Lock(..)
            | Self::Rows(..)
            | Self::Lease(_) => false,
        }
    }

    /// Whether only a sync of the data shards ends it.
    const fn needs_sync(&self) -> bool {
        match self {
            Self::Write(..) => true,
            Self::Unwritten(..)
            | Self::Barrier(_)
            | Self::Batch(_)
            | Self::Lease(_)
            | Self::Lock(..)
            | Self::Rows(..)
            | Self::Containment
            | Self::Reopening
            | Self::Recovery
            | Self::Freeze => false,
        }
    }

    /// Whether it never ends once the lane's log has failed.
    const fn fails_with_log(&self) -> bool {
        match self {
            Self::Batch(_) | Self::Write(..) | Self::Unwritten(..) | Self::Barrier(_) => true,
            // It ends by the term at the latest, or when those lanes are back.
            Self::Lease(_)
            | Self::Lock(..)
            | Self::Rows(..)
            | Self::Containment
            | Self::Reopening
            | Self::Recovery
            | Self::Freeze => false,
        }
    }
}

/// What waits.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// The reply in a slot.
    Slot(SlotId),
    /// A reply without one.
    Reply(DeferredReply),
    /// The durable size of a file, for its metadata shard. It is not urgent.
    Size(Sizing, Contents),
    /// What a part of a file is, for the home shard.
    Part(PartWork, Contents),
    /// A step of a cross-shard transaction.
    Step(Awaited),
    /// The Grant of an ended wait for a file lock.
    Grant(EndedWait),
    /// A request that was begun, and needs a lock, rows, the end of leases or its session's record.
    Suspended(Box<SuspendedRequest>),
    /// A request that was received, and not begun.
    Received(ReceivedFrame),
}

/// A step of a cross-shard transaction that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// A participant's found state.
    Looked(ShardId, TxnId),
    /// A participant's prepare.
    Prepared(ShardId, TxnId),
    /// The decision.
    Decided(TxnId),
    /// A part that was applied.
    Done(ShardId, TxnId),
}

/// Everything that waits in a lane.
#[derive(Debug)]
pub(crate) struct Waiters {
    by_cause: BTreeMap<Cause, Vec<Waiter>>,
    /// Waits since the start.
    wait_counts: [u64; METRICS.len()],
    /// The waiters for writes that need them to be durable soon.
    urgent_count: usize,
    /// Suspended requests whose cause has ended, to be resumed.
    due: VecDeque<SuspendedRequest>,
    /// What the data shards and the runtime will answer.
    pub(crate) answers: Answers,
    /// When the last wait for a file lock began.
    lock_wait_last_ns: u64,
}

impl Waiters {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self {
            by_cause: BTreeMap::new(),
            wait_counts: [0; METRICS.len()],
            urgent_count: 0,
            due: VecDeque::new(),
            answers: Answers::new(seed),
            lock_wait_last_ns: 0,
        }
    }

    /// The time of a wait for a file lock that begins now, later than that of all others.
    pub(crate) fn lock_wait_begins_ns(&mut self, now: Mono) -> u64 {
        self.lock_wait_last_ns = now.0.max(self.lock_wait_last_ns + 1);
        self.lock_wait_last_ns
    }

    /// Adds a waiter behind the others of its cause.
    pub(crate) fn suspend(&mut self, cause: Cause, waiter: Waiter) {
        let is_received = matches!(waiter, Waiter::Received(_));
        assert!(is_received == cause.precedes_execution(), "{cause:?} ends with the connection");
        self.urgent_count += usize::from(is_urgent(&cause, &waiter));
        self.wait_counts[cause.index()] += 1;
        self.by_cause.entry(cause).or_default().push(waiter);
    }

    /// A cause has ended: removes its waiters and returns them in the order in which they came.
    pub(crate) fn release(&mut self, cause: &Cause) -> Vec<Waiter> {
        let waiters = self.by_cause.remove(cause).unwrap_or_default();
        let urgent = waiters.iter().filter(|waiter| is_urgent(cause, waiter));
        self.urgent_count -= urgent.count();
        waiters
    }

    /// The same for the first cause within a range.
    pub(crate) fn release_first(&mut self, range: RangeInclusive<Cause>) -> Option<Vec<Waiter>> {
        let cause = self.by_cause.range(range).next()?.0.clone();
        Some(self.release(&cause))
    }

    /// A lock or rows have become available: their suspended requests are to be resumed.
    pub(crate) fn make_due(&mut self, cause: &Cause) {
        let waiters = self.release(cause);
        self.due.extend(waiters.into_iter().filter_map(|waiter| match waiter {
            Waiter::Suspended(suspended) => Some(*suspended),
            Waiter::Slot(_)
            | Waiter::Reply(_)
            | Waiter::Size(..)
            | Waiter::Part(..)
            | Waiter::Step(_)
            | Waiter::Grant(_)
            | Waiter::Received(_) => None,
        }));
    }

    /// The session of a suspended request is recorded, or will not be.
    pub(crate) fn resume_soon(&mut self, suspended: SuspendedRequest) {
        self.due.push_back(suspended);
    }

    /// The next suspended request to be resumed.
    pub(crate) fn next_due(&mut self) -> Option<SuspendedRequest> {
        self.due.pop_front()
    }

    /// A connection has ended: removes its requests that were not begun. Returns their buffers,
    /// which the caller releases. Requests that were begun go on; their replies are dropped.
    pub(crate) fn cancel(&mut self, conn: ConnId) -> Vec<Bulk> {
        let mut bulks = Vec::new();
        self.by_cause.retain(|cause, waiters| {
            if !cause.precedes_execution() {
                return true;
            }
            waiters.retain(|waiter| {
                let Waiter::Received(received) = waiter else { return true };
                if received.conn == conn {
                    bulks.extend(received.bulk);
                }
                received.conn != conn
            });
            !waiters.is_empty()
        });
        bulks
    }

    /// What has to be safe for waiters to be released.
    pub(crate) fn gates(&self) -> impl Iterator<Item = Gate> {
        self.by_cause.keys().map_while(|cause| match cause {
            Cause::Batch(gate) => Some(*gate),
            Cause::Write(..)
            | Cause::Unwritten(..)
            | Cause::Barrier(_)
            | Cause::Lock(..)
            | Cause::Rows(..)
            | Cause::Containment
            | Cause::Reopening
            | Cause::Recovery
            | Cause::Freeze
            | Cause::Lease(_) => None,
        })
    }

    /// The waits since the start and what waits now, by cause.
    pub(crate) fn counts(&self) -> Vec<(Metric, u64)> {
        let mut waiting_counts = [0_usize; METRICS.len()];
        for (cause, waiters) in &self.by_cause {
            waiting_counts[cause.index()] += waiters.len();
        }
        let waiting = waiting_counts.map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        let counts = METRICS.iter().zip(self.wait_counts.into_iter().zip(waiting));
        counts
            .flat_map(|((waits, waiting), (waits_count, waiting_count))| {
                [(*waits, waits_count), (*waiting, waiting_count)]
            })
            .collect()
    }

    /// The time since the arrival of the oldest request that waits for a change over several shards.
    pub(crate) fn lock_age_us(&self, now: Mono) -> u64 {
        let waiting_for_locks = self.all().filter_map(|(cause, waiter)| {
            let Waiter::Suspended(suspended) = waiter else { return None };
            matches!(cause, Cause::Lock(..)).then_some(suspended.times.arrived)
        });
        waiting_for_locks.min().map_or(0, |arrived| now.since_ns(arrived) / 1000)
    }

    /// Everything that waits, with its cause.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Cause, &Waiter)> {
        self.by_cause.iter().flat_map(|(cause, waiters)| waiters.iter().map(move |it| (cause, it)))
    }

    /// Whether anything waits for a cause.
    pub(crate) fn has(&self, cause: &Cause) -> bool {
        self.by_cause.contains_key(cause)
    }

    /// Buffers of requests that wait.
    #[cfg(test)]
    pub(crate) fn buffer_count(&self) -> usize {
        let has_buffer = |waiter: &&Waiter| match waiter {
            Waiter::Suspended(suspended) => suspended.bulk.is_some(),
            Waiter::Received(received) => received.bulk.is_some(),
            Waiter::Slot(_)
            | Waiter::Reply(_)
            | Waiter::Size(..)
            | Waiter::Part(..)
            | Waiter::Step(_)
            | Waiter::Grant(_) => false,
        };
        self.by_cause.values().flatten().filter(has_buffer).count()
    }

    /// Whether a waiter needs a write to be durable soon.
    pub(crate) const fn is_urgent(&self) -> bool {
        self.urgent_count > 0
    }

    /// Whether a batch is waited for by calls alone that wait for contents as well, as an fsync does
    /// of a new file, and the records of these are still to come. `is_recorded`: of a write.
    pub(crate) fn await_contents_too(
        &self,
        batch_no: BatchNo,
        is_recorded: impl Fn(ShardId, Transno) -> bool,
    ) -> bool {
        /// More callers than these share a flush anyway.
        const COUNT_MAX: usize = 8;
        let mut sessions: Vec<SessionId> = Vec::new();
        for (cause, waiters) in self.by_cause.range(Cause::Write(ShardId(0), Transno(0))..) {
            let is_recorded = match cause {
                Cause::Write(shard, until) => is_recorded(*shard, *until),
                Cause::Unwritten(..) => false,
                Cause::Batch(_)
                | Cause::Barrier(_)
                | Cause::Lock(..)
                | Cause::Rows(..)
                | Cause::Containment
                | Cause::Reopening
                | Cause::Recovery
                | Cause::Freeze
                | Cause::Lease(_) => break,
            };
            if is_recorded || sessions.len() > COUNT_MAX {
                return false;
            }
            sessions.extend(waiters.iter().filter_map(syncing_session));
        }
        let gates = self.gates().filter(|gate| gate.batch_no == batch_no);
        let mut waiters = gates.filter_map(|gate| self.by_cause.get(&Cause::Batch(gate))).flatten();
        !sessions.is_empty()
            && waiters.all(|waiter| {
                syncing_session(waiter).is_some_and(|session| sessions.contains(&session))
            })
    }

    /// Whether a request is suspended by a lock or a lease, or is to be resumed.
    pub(crate) fn has_locked(&self) -> bool {
        let is_meant = |cause: &Cause| matches!(cause, Cause::Lock(..) | Cause::Lease(_));
        !self.due.is_empty() || self.any(is_meant)
    }

    /// Whether a request is suspended until its session is recorded.
    pub(crate) fn has_unrecorded(&self) -> bool {
        let of_log = self.by_cause.iter().take_while(|(cause, _)| matches!(cause, Cause::Batch(_)));
        of_log.flat_map(|(_, all)| all).any(|waiter| matches!(waiter, Waiter::Suspended(_)))
    }

    /// Whether a request is suspended by non-resident rows.
    pub(crate) fn has_non_resident(&self) -> bool {
        self.any(|cause| matches!(cause, Cause::Rows(..)))
    }

    fn any(&self, is_meant: impl Fn(&Cause) -> bool) -> bool {
        self.by_cause.keys().any(is_meant)
    }

    /// The log has failed: removes what waited for it.
    fn take_unsafe(&mut self) -> Vec<Waiter> {
        self.urgent_count = 0;
        self.take_all(Cause::fails_with_log)
    }

    /// Removes all requests that are suspended by a lock.
    fn take_locked(&mut self) -> Vec<Waiter> {
        self.take_all(|cause| matches!(cause, Cause::Lock(..)))
    }

    fn take_all(&mut self, is_meant: impl Fn(&Cause) -> bool) -> Vec<Waiter> {
        self.by_cause.extract_if(.., |cause, _| is_meant(cause)).flat_map(|(_, all)| all).collect()
    }
}

/// The session of a Sync that waits.
fn syncing_session(waiter: &Waiter) -> Option<SessionId> {
    match waiter {
        Waiter::Reply(reply) if reply.header.op == Op::Sync => Some(reply.header.session),
        Waiter::Reply(_)
        | Waiter::Slot(_)
        | Waiter::Size(..)
        | Waiter::Part(..)
        | Waiter::Step(_)
        | Waiter::Grant(_)
        | Waiter::Suspended(_)
        | Waiter::Received(_) => None,
    }
}

/// Whether a waiter needs its cause to end soon, so that the data shards must sync.
const fn is_urgent(cause: &Cause, waiter: &Waiter) -> bool {
    cause.needs_sync() && !matches!(waiter, Waiter::Size(..))
}

#[cfg(test)]
mod tests;
