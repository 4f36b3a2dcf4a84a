//! `Relock`: sets a client's lock again during recovery; later, tells whether the client still has
//! it.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::file_locks::decoded;
use interface::Turn;
use wire::{HEADER_BYTES, ProtocolError, Relock, Status};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), ProtocolError> {
    if lane.refuses_lock(turn, arrived) {
        return Ok(());
    }
    let shard = arrived.request.shard;
    let body = &turn.arena.get(arrived.frame)[HEADER_BYTES..];
    let relock: Relock = decoded(body, shard, |relock: &Relock| relock.inode)?;
    lane.reply.clear();
    lane.changes.clear();
    let recovering = !lane.recovery.is_over();
    let has = lane.locks_of(shard).relock(arrived.open.client, &relock, recovering);
    lane.answer_lock(turn, arrived, if has { Status::Ok } else { Status::Again });
    Ok(())
}
