//! `ReplayDone`: a client lane has replayed everything that it holds for a shard.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::outbox::Asked;
use crate::recovery::Phase;
use crate::session::SlotTable;
use interface::Turn;
use wire::{HEADER_BYTES, ProtocolError, ReplayDone, Wire};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), ProtocolError> {
    let body = &turn.arena.get(arrived.frame)[HEADER_BYTES..];
    let done = ReplayDone::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
    let (conn, asked) = (arrived.conn, Asked::from(arrived.request));
    let table = lane.slots.get(&(asked.shard, asked.session));
    if table.is_some_and(SlotTable::is_of_before) {
        lane.recovery.will_reopen(&asked, arrived.open.client, done.reopen_count);
    }
    let replaying = lane.recovery.phase == Phase::Replaying;
    if replaying && lane.recovery.queues.end((asked.shard, asked.session), (conn, asked)) {
        lane.execute_replays(turn);
    } else {
        lane.answer_done(turn, conn, &asked);
    }
    Ok(())
}
