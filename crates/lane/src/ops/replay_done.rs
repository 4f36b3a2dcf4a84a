//! `ReplayDone`: a client lane has sent all its replays for a shard.

use crate::Lane;
use crate::phase::Phase;
use crate::request::ReceivedRequest;
use crate::session::SlotTable;
use interface::Turn;
use wire::{HEADER_BYTES, ProtocolError, ReplayDone, Wire};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let done = ReplayDone::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
    let (conn, header) = (received.conn, received.header());
    let table = lane.sessions.table((header.shard, header.session));
    if table.is_some_and(SlotTable::is_from_earlier_boot) {
        lane.recovery.will_reopen(&header, received.open.client, done.reopen_count);
    }
    let replaying = lane.recovery.phase == Phase::Replaying;
    if replaying && lane.recovery.queues.end((header.shard, header.session), (conn, header)) {
        lane.execute_replays(turn);
    } else {
        lane.answer_done(turn, conn, &header);
    }
    Ok(())
}
