//! The names of a request: its slot, the fields that its reply repeats, its times, and where its
//! reply goes.

use interface::{ConnId, Mono};
use wire::{Op, Request, SessionId, ShardId, Xid};

/// Names a slot. A deferred reply of a slot is stored in the slot itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SlotId {
    pub(crate) shard: ShardId,
    pub(crate) session: SessionId,
    pub(crate) slot: u16,
}

/// The fields of a request that its reply repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestHeader {
    pub(crate) op: Op,
    pub(crate) shard: ShardId,
    pub(crate) slot: u16,
    pub(crate) session: SessionId,
    pub(crate) xid: Xid,
    pub(crate) trace_id: u64,
    pub(crate) times: Times,
}

/// The number of a trace ([`crate::traces`]); 0: none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct TraceNo(u16);

impl TraceNo {
    /// No trace.
    pub(crate) const NONE: Self = Self(0);

    /// Of the trace at an index.
    pub(crate) fn at(index: usize) -> Self {
        Self(u16::try_from(index + 1).unwrap_or(0))
    }

    /// The index of its trace.
    pub(crate) fn index(self) -> Option<usize> {
        Some(usize::from(self.0.checked_sub(1)?))
    }
}

/// The place of a connection's tally ([`crate::counters::Tallies`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TallyNo(u16);

impl TallyNo {
    /// Of the place at an index; `None`: there are no numbers for so many.
    pub(crate) fn at(index: usize) -> Option<Self> {
        u16::try_from(index).ok().map(Self)
    }

    /// The index of its place.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The turns of a request. 0 stands for the turn in which its reply leaves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Times {
    /// It arrived.
    pub(crate) arrived: Mono,
    /// Its execution began, for the last time if it was begun again.
    pub(crate) executed: Mono,
    /// Its outcome was known, and its reply deferred.
    pub(crate) done: Mono,
    /// The number of its trace.
    pub(crate) trace: TraceNo,
    /// Where it is counted for the connection over which it arrived.
    pub(crate) tally: TallyNo,
    /// Its bytes, bulk included.
    pub(crate) in_bytes: u32,
}

impl Times {
    /// It is executed now, and has arrived in this turn unless it did before.
    pub(crate) fn of(earlier: Option<Self>, now: Mono) -> Self {
        let earlier = earlier.unwrap_or(Self { arrived: now, ..Self::default() });
        Self { executed: now, done: Mono(0), ..earlier }
    }

    /// Its outcome is known in this turn.
    pub(crate) const fn done(self, now: Mono) -> Self {
        Self { done: now, ..self }
    }

    /// Whether it is answered in the turn in which it arrived.
    pub(crate) fn is_instant(&self, now: Mono) -> bool {
        self.arrived == now
    }

    /// From its arrival to its reply.
    pub(crate) fn total_us(&self, now: Mono) -> u64 {
        now.since_ns(or(self.arrived, now)) / 1000
    }

    /// From its arrival to its execution, from there to its outcome, and from there to its reply.
    pub(crate) fn phases_us(&self, now: Mono) -> [u64; 3] {
        let done = or(self.done, now);
        let executed = or(self.executed, done);
        let arrived = or(self.arrived, executed);
        [executed.since_ns(arrived), done.since_ns(executed), now.since_ns(done)]
            .map(|ns| ns / 1000)
    }
}

/// Where a reply goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) conn: ConnId,
    pub(crate) trace_id: u64,
    pub(crate) times: Times,
}

impl Target {
    /// The outcome is known in this turn, and the reply deferred.
    pub(crate) const fn done(self, now: Mono) -> Self {
        Self { times: self.times.done(now), ..self }
    }
}

fn or(at: Mono, otherwise: Mono) -> Mono {
    if at == Mono(0) { otherwise } else { at }
}

impl From<&Request> for RequestHeader {
    fn from(request: &Request) -> Self {
        Self {
            op: request.op,
            shard: request.shard,
            slot: request.slot,
            session: request.session,
            xid: request.xid,
            trace_id: request.trace_id,
            times: Times::default(),
        }
    }
}
