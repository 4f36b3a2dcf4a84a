//! `Claim`: a client has changes under way in a directory that it has made before the restart.

use crate::Lane;
use crate::file_locks::decoded;
use crate::request::ReceivedRequest;
use crate::response::Response;
use interface::Turn;
use wire::{Claim, HEADER_BYTES, ProtocolError, Status};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let claim = decoded(body, received.request.shard, |claim: &Claim| claim.inode)?;
    let claims = received.denied.is_none() && lane.claim_directory(turn, received, claim);
    let status = if claims { Status::Ok } else { received.denied.unwrap_or(Status::Stale) };
    let response = Response::plain(status, &[]);
    lane.send_reply(turn, received.conn, &received.header(), &response);
    Ok(())
}
