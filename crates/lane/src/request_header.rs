//! The names of a request: its slot, and the fields that its reply repeats.

use wire::{Op, Request, SessionId, ShardId, Xid};

/// Names a slot. A deferred reply of a slot is stored in the slot itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
        }
    }
}
