//! `Traces`: where the time of recent requests to this lane went, and what waits in it now.

use crate::Lane;
use crate::ops::no_body;
use crate::request::ReceivedRequest;
use crate::response::Response;
use interface::Turn;
use wire::{ProtocolError, Status};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    no_body(turn, received)?;
    let response = if received.open.binding.administers {
        Ok(lane.request_traces(turn.now.mono).encode())
    } else {
        // They name other clients.
        Err(Status::NotPermitted)
    };
    let status = response.as_ref().err().copied().unwrap_or(Status::Ok);
    let body = response.unwrap_or_default();
    let response = Response::plain(status, &body);
    lane.send_reply(turn, received.conn, &received.header(), &response);
    Ok(())
}
