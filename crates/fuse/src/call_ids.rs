//! The ids of calls: the numbers of pending requests.

use client::CallId;

/// Ids of the calls of a stop; ids of requests are small numbers.
pub(crate) const SYNC_CALL: CallId = CallId(u64::MAX);
pub(crate) const GOODBYE_CALL: CallId = CallId(u64::MAX - 1);

pub(crate) fn call_id(pending_id: usize) -> CallId {
    CallId(u64::try_from(pending_id).unwrap_or(u64::MAX))
}

pub(crate) fn pending_id(call: CallId) -> usize {
    usize::try_from(call.0).unwrap_or(usize::MAX)
}
