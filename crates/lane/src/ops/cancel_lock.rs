//! `CancelLock`: cancels a wait for a lock.

use crate::Lane;
use crate::file_locks::decoded;
use crate::request::ReceivedRequest;
use interface::Turn;
use wire::{CancelLock, HEADER_BYTES, LockCancelled, ProtocolError, Wire};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let shard = received.request.shard;
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let CancelLock { inode, wait_id } = decoded(body, shard, |ask: &CancelLock| ask.inode)?;
    let waited = lane.locks_of(shard).cancel(received.open.client, inode, wait_id);
    lane.answer(turn, received, &LockCancelled { waited }.to_bytes());
    Ok(())
}
