//! What a lane counts of requests: per operation, client, export and job; and its snapshot for
//! [`wire::Op::Counters`].
//!
//! A request is counted where its reply leaves ([`Lane::count_reply`]), so every answered request is
//! counted once, with its bytes, whatever it waited for. Its times are those of turns: what is
//! executed and answered within the turn in which it arrived took 0. So no clock is read for a
//! request, and nothing looked up: it carries the place of its connection's tally ([`Tallies`]).

mod accounts;
mod delays;
mod snapshot;
mod tallies;

#[cfg(test)]
pub(crate) use accounts::CLIENT_COUNT_MAX;
pub(crate) use accounts::{Accounts, Name};
pub(crate) use tallies::Tallies;
pub(crate) use wire::counters::Tally;

use crate::Lane;
use crate::request_header::RequestHeader;
use alloc::boxed::Box;
use interface::{ConnId, Mono, Span};
use wire::Op;
use wire::Status;
use wire::counters::{Histogram, OP_COUNT, StatusClass};

/// The times of requests that were no success within a turn, by phase.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Phases {
    queue: Histogram,
    execution: Histogram,
    commit: Histogram,
}

/// The requests of an operation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct OpCounts {
    /// Of all, but it does not count the instant ones.
    tally: Tally,
    /// Successes within a turn. They are in no histogram: each of their phases took 0.
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

impl OpCounts {
    /// Of all.
    const fn tally(&self) -> Tally {
        let request_count = self.tally.request_count + self.instant_count;
        Tally { request_count, ..self.tally }
    }
}

impl RequestCounts {
    #[inline]
    fn of_mut(&mut self, op: Op) -> &mut OpCounts {
        &mut self.0[usize::from(op.number())]
    }
}

/// The bytes of a frame with its bulk.
pub(crate) fn bytes_of(frame: Span, bulk_bytes: u32) -> u32 {
    u32::try_from(frame.bytes_count()).unwrap_or(u32::MAX).saturating_add(bulk_bytes)
}

impl Lane {
    /// A reply leaves.
    #[inline]
    pub(crate) fn count_reply(
        &mut self,
        now: Mono,
        conn: ConnId,
        header: &RequestHeader,
        (status, out_bytes): (Status, u32),
    ) {
        self.stats.request_count += 1;
        if !self.config.limits.observes {
            return;
        }
        if status == Status::Ok
            && header.times.is_instant(now)
            && let Some(tally) = self.connections.tally_mut(header.times.tally, conn)
        {
            let (in_bytes, out_bytes) = (u64::from(header.times.in_bytes), u64::from(out_bytes));
            tally.request_count += 1;
            tally.in_bytes += in_bytes;
            tally.out_bytes += out_bytes;
            let counts = self.request_counts.of_mut(header.op);
            counts.instant_count += 1;
            counts.tally.in_bytes += in_bytes;
            counts.tally.out_bytes += out_bytes;
        } else {
            self.count_other((now, conn), header, (status, out_bytes.into()));
        }
        if !self.traces.on_reply(header.times.trace, status) {
            self.end_trace(header, (status, now));
        }
    }

    /// Counts a reply that is no success within a turn.
    #[inline(never)]
    fn count_other(
        &mut self,
        (now, conn): (Mono, ConnId),
        header: &RequestHeader,
        (status, out_bytes): (Status, u64),
    ) {
        let class = StatusClass::of(status);
        let times = &header.times;
        let time_us = times.total_us(now);
        let counts = self.request_counts.of_mut(header.op);
        counts.tally.in_bytes += u64::from(times.in_bytes);
        counts.tally.count(class, out_bytes, time_us);
        let phases = counts.phases.get_or_insert_default();
        let [queue_us, execution_us, commit_us] = times.phases_us(now);
        phases.queue.record(queue_us);
        phases.execution.record(execution_us);
        phases.commit.record(commit_us);
        // What carries no times has no place of a tally either.
        let no = self.connections.tally_no(conn).unwrap_or(times.tally);
        let tally = match self.connections.tally_mut(no, conn) {
            Some(tally) => tally,
            None => self.accounts.ended(),
        };
        tally.in_bytes += u64::from(times.in_bytes);
        tally.count(class, out_bytes, time_us);
    }
}
