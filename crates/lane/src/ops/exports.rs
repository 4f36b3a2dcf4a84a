//! `Exports`: lists the exports.

use crate::Lane;
use crate::ops::no_body;
use crate::request::ReceivedRequest;
use crate::response::Response;
use alloc::vec::Vec;
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
    let mut reply = Vec::new();
    lane.exports.encode(&mut reply);
    let response = Response::plain(Status::Ok, &reply);
    lane.send_reply(turn, received.conn, &received.header(), &response);
    Ok(())
}
