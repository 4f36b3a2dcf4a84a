//! `Inspect`: checks, dumps or copies the store, in another process on the server's host.

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::response::Response;
use interface::{StoreAction, Turn};
use wire::{HEADER_BYTES, Inspect, ProtocolError, Status, Wire};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let ask = Inspect::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
    let (conn, header) = (received.conn, received.header());
    if !received.open.binding.administers {
        lane.send(turn, conn, &header, &Response::plain(Status::NotPermitted, &[]));
        return Ok(());
    }
    if !lane.connections.begin_inspection(conn, header) {
        lane.send(turn, conn, &header, &Response::plain(Status::Invalid, &[]));
        return Ok(());
    }
    turn.act(StoreAction::Inspect { conn, ask });
    Ok(())
}
