//! `SetExport`: an export is defined, or taken away.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::gate::{Gate, Reason};
use crate::outbox::{Asked, Said};
use alloc::vec::Vec;
use interface::Turn;
use wire::{HEADER_BYTES, ProtocolError, SetExport, ShardId, Status, Wire, request_flag};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), ProtocolError> {
    let body = turn.arena.get(arrived.frame)[HEADER_BYTES..].to_vec();
    let ask = SetExport::decode_all(&body).map_err(|_| ProtocolError::Malformed)?;
    let resent = arrived.request.flags & request_flag::RESENT != 0;
    let status = match lane.judge_export(arrived, &ask, resent) {
        Ok(Some(change)) => {
            lane.record_export(turn, &change);
            Status::Ok
        }
        Ok(None) => Status::Ok,
        Err(status) => status,
    };
    match lane.commit.until_shard(ShardId::meta(0)) {
        Some(until) if status == Status::Ok => {
            let gate = Gate { until, reason: Reason::Itself };
            lane.keep_waiting(arrived, (status, Vec::new()), gate);
        }
        Some(_) | None => {
            let said = Said::plain(status, &[]);
            lane.say_reply(turn, arrived.conn, &Asked::from(arrived.request), &said);
        }
    }
    Ok(())
}
