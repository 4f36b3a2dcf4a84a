//! One request from its making to its reply, with all that a resend needs.

use crate::plan::Plan;
use crate::plan::begin::Target;
use crate::{Answer, CallId};
use alloc::vec::Vec;
use interface::Bulk;
use wire::{Op, Retry, ShardId, Status, Xid};

/// Where a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// For the server's map.
    Unrouted,
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

#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) job_id: usize,
    pub(crate) op: Op,
    pub(crate) target: Target,
    pub(crate) body: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
    /// The client's copy of an abandoned write's bytes: for a replay, not for a resend.
    pub(crate) retained: Option<Bulk>,
    /// The change must be durable before the reply.
    pub(crate) sync: bool,
    pub(crate) urgent: bool,
    pub(crate) place: Place,
    /// The destination; meaningless while `Unrouted`.
    pub(crate) shard: ShardId,
    pub(crate) session_index: usize,
    pub(crate) link_index: usize,
    /// Assigned at the first sending, with the slot (0 for ops that change nothing).
    pub(crate) xid: Option<Xid>,
    pub(crate) slot: u16,
    /// It was sent more than once under its xid.
    pub(crate) resent: bool,
    /// Replay space reserved for its reply, from the first sending on.
    pub(crate) promised_bytes: usize,
    pub(crate) wrong_lane_count: u8,
    /// The order in which requests were made.
    pub(crate) sequence_no: u64,
}

impl Exchange {
    /// Whether it may be dropped although it was sent.
    pub(crate) fn repeats(&self) -> bool {
        self.op.row().retry == Retry::Repeat
    }
}

/// A call under way, or a job of the client itself without a caller.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) call: Option<CallId>,
    pub(crate) plan: Plan,
    /// Its current request.
    pub(crate) exchange_id: usize,
    /// An earlier request of the job was answered, and may have changed something.
    pub(crate) has_begun: bool,
    /// Its first request, while another shard is asked for attributes.
    pub(crate) first: Option<First>,
}

/// A job's first request, for a retry.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) op: Op,
    pub(crate) target: Target,
    pub(crate) body: Vec<u8>,
    pub(crate) again_count: u8,
}

/// A call's result, on its way to the frontend.
pub(crate) type Outcome = (CallId, Result<Answer, Status>);
