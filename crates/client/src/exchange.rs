//! One request from its making to its reply: what must be kept to send it again.

use crate::plan::Plan;
use crate::plan::begin::Target;
use crate::{Answer, CallId};
use alloc::vec::Vec;
use interface::Bulk;
use wire::{Op, Retry, ShardId, Status, Xid};

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Waits for the server's map.
    Unrouted,
    /// In a queue of its link, new or to be sent again.
    Queued,
    /// Waits for a slot of its session.
    SlotWait,
    /// Waits until less is to be remembered for replays.
    SpaceWait,
    /// Told to come later.
    Later,
    /// On its link's connection; a reply is due.
    Sent,
}

#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) job_id: usize,
    pub(crate) op: Op,
    pub(crate) target: Target,
    pub(crate) body: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
    /// The bytes of a write whose caller is gone, our own: for a replay, not to be sent again.
    pub(crate) kept: Option<Bulk>,
    /// The caller wants the change durable before the answer.
    pub(crate) sync: bool,
    pub(crate) urgent: bool,
    pub(crate) place: Place,
    /// Where it goes; meaningless while `Unrouted`.
    pub(crate) shard: ShardId,
    pub(crate) session_index: usize,
    pub(crate) link_index: usize,
    /// Given at the first sending, with the slot (0 for ops that change nothing).
    pub(crate) xid: Option<Xid>,
    pub(crate) slot: u16,
    /// It was sent more than once under its xid.
    pub(crate) resent: bool,
    /// What it will cost to remember its reply, from the first sending on.
    pub(crate) promised_bytes: usize,
    pub(crate) wrong_lane_count: u8,
    /// Counts all requests, in the order they were made.
    pub(crate) born: u64,
}

impl Exchange {
    /// Whether it may be forgotten although it was sent.
    pub(crate) fn repeats(&self) -> bool {
        self.op.row().retry == Retry::Repeat
    }
}

/// A call under way, or work of our own that nobody waits for.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) call: Option<CallId>,
    pub(crate) plan: Plan,
    /// The request it waits for.
    pub(crate) exchange_id: usize,
    /// A request before that one was answered, and may have changed something.
    pub(crate) has_begun: bool,
    /// The body of its first request, while another shard is asked for the rest.
    pub(crate) first: Option<First>,
}

/// A request that may have to be made once more.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) op: Op,
    pub(crate) target: Target,
    pub(crate) body: Vec<u8>,
    pub(crate) again_count: u8,
}

/// A call's outcome on its way to the face.
pub(crate) type Outcome = (CallId, Result<Answer, Status>);
