//! Traces of the kernel's requests: where the time of slow ones went, and what waits now, for
//! [`wire::Question::Traces`].
//!
//! A request is followed from the turn in which a lane takes it. How long it was in the kernel's queue
//! before, the kernel does not say. Invariant: what is kept is bounded.

use crate::abi::Opcode;
use crate::args::split;
use crate::call_ids::call_id;
use crate::counts::name_of;
use crate::lane::MountLane;
use crate::pending::{Continuation, GroupsLookup, PendingRequest, Wait};
use alloc::collections::VecDeque;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use interface::Mono;
use wire::Status;
use wire::traces::{CallTrace, CallTraces, Kept, NAME_BYTES_SHOWN, Step, StepCause};

/// A request that takes as long is kept, if nothing else is chosen.
const SLOW_US: u64 = 20_000;
/// Kept: the latest slow ones, and as many samples.
const KEPT_COUNT_MAX: usize = 256;
/// What waits now, at most.
const WAITING_COUNT_MAX: usize = 256;

/// The requests that are kept, and when each arrived.
#[derive(Debug)]
pub(crate) struct Traces {
    slow: VecDeque<(Mono, CallTrace)>,
    samples: VecDeque<(Mono, CallTrace)>,
    slow_us: u64,
}

impl Default for Traces {
    fn default() -> Self {
        Self { slow: VecDeque::new(), samples: VecDeque::new(), slow_us: SLOW_US }
    }
}

impl MountLane {
    /// The same lane, which keeps requests that take as long.
    #[must_use]
    pub const fn with_slow_us(mut self, slow_us: u64) -> Self {
        self.traces.slow_us = slow_us;
        self
    }

    /// A request ends: keeps its trace if it was slow or is a sample.
    pub(crate) fn trace_end(&mut self, now: Mono, pending_id: usize, status: Status) {
        let is_sample = self.client.take_sampled(call_id(pending_id));
        let Some(pending) = self.pendings.get(pending_id) else { return };
        let since = pending.since;
        let is_slow = now.since_ns(since) / 1000 >= self.traces.slow_us;
        if !is_slow && !is_sample {
            return;
        }
        let status = if pending.is_absent { Status::NotFound } else { status };
        let kept = if is_slow { Kept::Slow } else { Kept::Sample };
        let mut trace = self.traced(now, pending_id, pending);
        // What it still waited for has been given up.
        trace.steps.iter_mut().for_each(|step| step.is_now = false);
        let trace = CallTrace { kept, status: Some(status), ..trace };
        let ring = if is_slow { &mut self.traces.slow } else { &mut self.traces.samples };
        if ring.len() >= KEPT_COUNT_MAX {
            ring.pop_front();
        }
        ring.push_back((since, trace));
    }

    /// All that is known of requests.
    pub(crate) fn call_traces(&self, now: Mono) -> CallTraces {
        let mut waiting: Vec<usize> = self.pendings.all();
        waiting.sort_by_key(|pending_id| self.pendings.get(*pending_id).map(|it| it.since));
        let waiting = waiting.into_iter().take(WAITING_COUNT_MAX).filter_map(|pending_id| {
            let pending = self.pendings.get(pending_id)?;
            let trace = self.traced(now, pending_id, pending);
            Some(CallTrace { kept: Kept::Waiting, age_us: trace.total_us, ..trace })
        });
        let Traces { slow, samples, slow_us: _ } = &self.traces;
        let kept = slow.iter().rev().chain(samples.iter().rev());
        let kept = kept.map(|(since, trace)| CallTrace {
            age_us: now.since_ns(*since) / 1000,
            ..trace.clone()
        });
        let (lane, client) = (self.client.lane().0, self.client.uuid());
        CallTraces { lane, client, calls: waiting.chain(kept).collect() }
    }

    fn traced(&self, now: Mono, pending_id: usize, pending: &PendingRequest) -> CallTrace {
        let parsed = split(&pending.request).ok();
        let opcode = parsed.as_ref().and_then(|(header, _)| Opcode::from_number(header.opcode));
        let name = parsed.as_ref().and_then(|(header, args)| args.name_of(header.opcode));
        let mut name = name.unwrap_or_default().to_vec();
        name.truncate(NAME_BYTES_SHOWN);
        CallTrace {
            op: name_of(opcode).to_string(),
            pid: pending.pid,
            inode: parsed.map(|(header, _)| header.inode).filter(|inode| inode.0 > 0),
            name,
            total_us: now.since_ns(pending.since) / 1000,
            steps: self.steps_of(now, pending_id, pending),
            ..CallTrace::default()
        }
    }

    fn steps_of(&self, now: Mono, pending_id: usize, pending: &PendingRequest) -> Vec<Step> {
        let since = pending.since;
        let step = |cause, begun: Mono, ended: Option<Mono>| Step {
            cause,
            begun_us: begun.since_ns(since) / 1000,
            took_us: ended.unwrap_or(now).since_ns(begun) / 1000,
            is_now: ended.is_none(),
            exchange: None,
        };
        let mut steps = Vec::new();
        if let Some(GroupsLookup { begun, ended }) = pending.groups_lookup {
            steps.push(step(StepCause::Groups, begun, ended));
        }
        let known = self.client.steps_of(call_id(pending_id), since);
        steps.extend(known.into_iter().map(|known| Step {
            exchange: Some(known.exchange),
            ..step(known.cause, known.begun, known.ended)
        }));
        let waits_for_lock = pending.continuation == Continuation::LockWait;
        if waits_for_lock && pending.wait == Wait::Call && steps.is_empty() {
            // The request for the lock is answered when the wait begins.
            steps.push(step(StepCause::FileLock, since, None));
        }
        steps
    }
}
