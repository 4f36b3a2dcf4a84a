//! What a lane counts of requests: per operation, client, export and job; and its snapshot for
//! [`wire::Op::Counters`].
//!
//! A request is counted where its reply leaves ([`Lane::count_reply`]), so every answered request is
//! counted once, whatever it waited for. Its times are those of turns: what is executed and answered
//! within the turn in which it arrived took 0. So no clock is read for a request.

mod accounts;
mod delays;
mod snapshot;

#[cfg(test)]
pub(crate) use accounts::CLIENT_COUNT_MAX;
pub(crate) use accounts::{Accounts, Name};
pub(crate) use wire::counters::Tally;

use crate::Lane;
use crate::request_header::{RequestHeader, Times};
use alloc::boxed::Box;
use interface::{ConnId, Mono, Span};
use wire::Op;
use wire::Status;
use wire::counters::{Histogram, OP_COUNT, StatusClass};

/// The times of requests that took longer than a turn, by phase.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Phases {
    queue: Histogram,
    execution: Histogram,
    commit: Histogram,
}

/// The requests of an operation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct OpCounts {
    tally: Tally,
    /// Requests that are in no histogram: each of their phases took 0.
    instant_count: u64,
    phases: Option<Box<Phases>>,
}

/// The requests of a lane by operation.
#[derive(Debug)]
pub(crate) struct RequestCounts([OpCounts; OP_COUNT]);

impl Default for RequestCounts {
    fn default() -> Self {
        Self(core::array::from_fn(|_| OpCounts::default()))
    }
}

impl RequestCounts {
    /// A request arrives.
    pub(crate) const fn count_arrival(&mut self, op: Op, in_bytes: u64) {
        self.0[op.number() as usize].tally.in_bytes += in_bytes;
    }

    fn count(
        &mut self,
        op: Op,
        class: Option<StatusClass>,
        out_bytes: u64,
        (times, now): (&Times, Mono),
    ) -> u64 {
        let counts = &mut self.0[usize::from(op.number())];
        let time_us = times.total_us(now);
        counts.tally.count(class, out_bytes, time_us);
        if time_us == 0 {
            counts.instant_count += 1;
            return 0;
        }
        let phases = counts.phases.get_or_insert_default();
        let [queue_us, execution_us, commit_us] = times.phases_us(now);
        phases.queue.record(queue_us);
        phases.execution.record(execution_us);
        phases.commit.record(commit_us);
        time_us
    }
}

/// The bytes of a frame with its bulk.
pub(crate) fn bytes_of(frame: Span, bulk_bytes: u32) -> u64 {
    u64::try_from(frame.bytes_count()).unwrap_or(u64::MAX) + u64::from(bulk_bytes)
}

impl Lane {
    /// A reply leaves.
    pub(crate) fn count_reply(
        &mut self,
        now: Mono,
        conn: ConnId,
        header: &RequestHeader,
        (status, out_bytes): (Status, u64),
    ) {
        self.stats.request_count += 1;
        if !self.config.limits.observes {
            return;
        }
        let class = StatusClass::of(status);
        let times = (&header.times, now);
        let time_us = self.request_counts.count(header.op, class, out_bytes, times);
        let tally = match self.connections.served_mut(conn) {
            Some(served) => &mut served.tally,
            None => self.accounts.ended(),
        };
        tally.count(class, out_bytes, time_us);
        let Self { sessions, commit, traces, .. } = self;
        let flush_us = || commit.flush_us(now);
        traces.on_reply(header, (status, now), flush_us, |session| sessions.client_of(session));
    }
}
