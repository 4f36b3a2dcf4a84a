//! `GetLock`: the first lock that conflicts with one.

use crate::Lane;
use crate::file_locks::decoded;
use crate::request::ReceivedRequest;
use interface::Turn;
use wire::{GetLock, HEADER_BYTES, LockFound, ProtocolError, Wire};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let shard = received.request.shard;
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let ask: GetLock = decoded(body, shard, |ask: &GetLock| ask.inode)?;
    let found = lane.locks_of(shard).get(received.open.client, &ask);
    lane.answer(turn, received, &LockFound { found }.to_bytes());
    Ok(())
}
