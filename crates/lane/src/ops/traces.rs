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
    if !lane.permit_administration(turn, received) {
        return Ok(());
    }
    let body = lane.request_traces(turn.now.mono).encode();
    let response = Response::plain(Status::Ok, &body);
    lane.send_reply(turn, received.conn, &received.header(), &response);
    Ok(())
}
