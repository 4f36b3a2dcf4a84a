//! `GetLock`: the first lock that conflicts with one.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::file_locks::decoded;
use interface::Turn;
use wire::{GetLock, HEADER_BYTES, LockFound, ProtocolError, Wire};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), ProtocolError> {
    let shard = arrived.request.shard;
    let body = &turn.arena.get(arrived.frame)[HEADER_BYTES..];
    let ask: GetLock = decoded(body, shard, |ask: &GetLock| ask.inode)?;
    let found = lane.locks_of(shard).get(arrived.open.client, &ask);
    lane.answer(turn, arrived, &LockFound { found }.to_bytes());
    Ok(())
}
