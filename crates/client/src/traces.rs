//! What a call waits for and has waited for, so that a frontend can say where its time went.
//!
//! ```text
//! made ─ waits for a connection, a credit ... ─ sent ─ waits for the reply ─ answered
//!        a step                                        a step
//! ```
//! A step that took less than [`STEP_NS_MIN`] is not kept, but for the reply of a sample. Times are those
//! of turns, so no clock is read. Invariant: what is kept is bounded.

use crate::CallId;
use crate::client::Client;
use crate::requests::{Exchange, Place};
use crate::wait_cause::WaitCause;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use interface::Mono;
use wire::SessionId;
use wire::Xid;
use wire::traces::{self, StepCause, is_sample};

/// The shortest step that is kept.
const STEP_NS_MIN: u64 = 1_000_000;
/// The most steps.
const STEP_COUNT_MAX: usize = 1024;
/// Waits of a call for the same are one, if not more is between them.
const GAP_NS_MAX: u64 = 10_000_000;

/// A wait of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The call.
    pub call: CallId,
    /// What it waited for.
    pub cause: StepCause,
    /// When that began.
    pub begun: Mono,
    /// When it ended, if it has.
    pub ended: Option<Mono>,
    /// The exchange with a server.
    pub exchange: traces::Exchange,
}

/// The latest steps that have ended.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    ended: VecDeque<Step>,
    /// A call with an exchange that was a sample.
    sampled: Option<CallId>,
}

impl Steps {
    fn keep(&mut self, step: Step) {
        if let (Some(last), Some(ended)) = (self.ended.back_mut(), step.ended)
            && (last.call, last.cause) == (step.call, step.cause)
            && step.cause != StepCause::Reply
            && last.ended.is_some_and(|at| step.begun.since_ns(at) <= GAP_NS_MAX)
        {
            last.ended = Some(ended);
            return;
        }
        if self.ended.len() >= STEP_COUNT_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(step);
    }
}

impl Client {
    /// The trace id of a request: of this client lane's start, and in the order in which requests are
    /// made. So servers keep one of many as a sample ([`is_sample`]).
    pub(crate) fn trace_id(&self, sequence_no: u64) -> u64 {
        u64::from(self.trace_tag) << 32 | sequence_no & u64::from(u32::MAX)
    }

    /// A request begins to wait, after an earlier wait perhaps.
    pub(crate) fn begin_wait(&mut self, exchange_id: usize, cause: WaitCause) {
        self.counts.count_wait(cause);
        self.end_wait(exchange_id);
        if let Some(exchange) = self.requests.get_mut(exchange_id) {
            exchange.wait = Some((cause, self.now));
        }
    }

    /// A request does not wait any more.
    pub(crate) fn end_wait(&mut self, exchange_id: usize) {
        let Some(exchange) = self.requests.get_mut(exchange_id) else { return };
        let Some((cause, begun)) = exchange.wait.take() else { return };
        if self.now.since_ns(begun) < STEP_NS_MIN {
            return;
        }
        if let Some(step) = self.step_of(exchange_id, (cause.shown(), begun)) {
            self.steps.keep(Step { ended: Some(self.now), ..step });
        }
    }

    /// A request was answered.
    pub(crate) fn end_exchange(&mut self, exchange_id: usize) {
        let Some(exchange) = self.requests.get(exchange_id) else { return };
        let (sent_at, is_sample) =
            (exchange.sent_at, is_sample(self.trace_id(exchange.sequence_no)));
        if !is_sample && self.now.since_ns(sent_at) < STEP_NS_MIN {
            return;
        }
        let Some(step) = self.step_of(exchange_id, (StepCause::Reply, sent_at)) else { return };
        if is_sample {
            self.steps.sampled = Some(step.call);
        }
        self.steps.keep(Step { ended: Some(self.now), ..step });
    }

    /// A request is given up, with whatever it waits for.
    pub(crate) fn end_steps(&mut self, exchange_id: usize) {
        self.end_wait(exchange_id);
        let place = self.requests.get(exchange_id).map(|exchange| exchange.place);
        if place == Some(Place::Sent) {
            self.end_exchange(exchange_id);
        }
    }

    /// `None`: no call waits for it.
    fn step_of(&self, exchange_id: usize, (cause, begun): (StepCause, Mono)) -> Option<Step> {
        let exchange = self.requests.get(exchange_id)?;
        let call = self.jobs.get(exchange.job_id)?.call?;
        Some(Step { call, cause, begun, ended: None, exchange: self.shown(exchange) })
    }

    fn shown(&self, exchange: &Exchange) -> traces::Exchange {
        let Exchange { op, link_index, xid, sequence_no, place, .. } = *exchange;
        // Before it is routed it has no destination.
        let link_index = (place != Place::Unrouted).then_some(link_index);
        let lane = link_index.and_then(|index| Some(self.servers.link(index)?.lane().0));
        let session = link_index.and_then(|index| Some(self.servers.server_of(index)?.session()));
        traces::Exchange {
            op: Some(op),
            lane: lane.unwrap_or(0),
            session: session.unwrap_or(SessionId(0)),
            xid: xid.unwrap_or(Xid(0)),
            trace_id: self.trace_id(sequence_no),
        }
    }

    /// Whether this call, which has just been answered, is to be kept as a sample.
    pub fn take_sampled(&mut self, call: CallId) -> bool {
        self.steps.sampled == Some(call) && self.steps.sampled.take().is_some()
    }

    /// The steps of a call that began at `since`, in the order in which they ended; then what it waits
    /// for now.
    pub fn steps_of(&self, call: CallId, since: Mono) -> Vec<Step> {
        let ended = self.steps.ended.iter();
        let ended = ended.filter(|step| step.call == call && step.begun >= since).copied();
        let job = self.jobs.of_call(call);
        let exchanges = job.into_iter().flat_map(|job_id| self.requests.of_job(job_id));
        let now = exchanges.filter_map(|(exchange_id, exchange)| {
            let wait = match self.wait_cause(exchange_id) {
                Some(cause) => {
                    let begun = exchange.wait.map_or(self.now, |(_, begun)| begun);
                    (cause.shown(), begun)
                }
                None if exchange.place == Place::Sent => (StepCause::Reply, exchange.sent_at),
                None => return None,
            };
            self.step_of(exchange_id, wait)
        });
        ended.chain(now).collect()
    }
}
