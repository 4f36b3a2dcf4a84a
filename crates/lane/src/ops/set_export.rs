//! `SetExport`: defines or removes an export.

use crate::Lane;
use crate::commit_dependency::{CommitDependency, Reason};
use crate::request::ReceivedRequest;
use crate::response::Response;
use alloc::vec::Vec;
use interface::Turn;
use wire::{HEADER_BYTES, ProtocolError, SetExport, ShardId, Status, Wire, request_flag};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let body = turn.arena.get(received.frame)[HEADER_BYTES..].to_vec();
    let ask = SetExport::decode_all(&body).map_err(|_| ProtocolError::Malformed)?;
    let resent = received.request.flags & request_flag::RESENT != 0;
    let status = match lane.judge_export(received, &ask, resent) {
        Ok(Some(change)) => {
            lane.record_export(turn, &change);
            Status::Ok
        }
        Ok(None) => {
            lane.await_peers(turn);
            Status::Ok
        }
        Err(status) => status,
    };
    match lane.commit.last_unsafe_of(ShardId::meta(0)) {
        Some(until) if status == Status::Ok => {
            let dependency = CommitDependency { until, reason: Reason::Itself };
            lane.defer_reply(received, (status, Vec::new()), dependency);
        }
        Some(_) | None => {
            let response = Response::plain(status, &[]);
            lane.send_reply(turn, received.conn, &received.header(), &response);
        }
    }
    Ok(())
}
