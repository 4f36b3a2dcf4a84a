//! `Relock`: sets a client's lock again during recovery; later, reports whether the client still has
//! it.

use crate::Lane;
use crate::file_locks::decoded;
use crate::request::ReceivedRequest;
use interface::Turn;
use wire::{HEADER_BYTES, ProtocolError, Relock, Status};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    if lane.refuses_lock(turn, received) {
        return Ok(());
    }
    let shard = received.request.shard;
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let relock: Relock = decoded(body, shard, |relock: &Relock| relock.inode)?;
    lane.scratch.begin();
    let recovering = !lane.recovery.is_over();
    let has = lane.locks_of(shard).relock(received.open.client, &relock, recovering);
    lane.answer_lock(turn, received, if has { Status::Ok } else { Status::Again });
    Ok(())
}
