//! `Freeze`: begins, prolongs or ends a freeze.

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::response::Response;
use interface::Turn;
use wire::{FREEZE_MS_MAX, Freeze, Frozen, HEADER_BYTES, ProtocolError, Status, Wire};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let Freeze { lease_ms } = Freeze::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
    let header = received.header();
    if !received.open.binding.administers || lease_ms > FREEZE_MS_MAX {
        let allowed = received.open.binding.administers;
        let status = if allowed { Status::Invalid } else { Status::NotPermitted };
        lane.send_reply(turn, received.conn, &header, &Response::plain(status, &[]));
        return Ok(());
    }
    let held_on = lane.freeze.is_on();
    if lease_ms == 0 {
        lane.thaw(turn);
    } else {
        lane.freeze.begin(turn.now.mono, lease_ms);
    }
    let change_count = u64::try_from(lane.change_count()).unwrap_or(u64::MAX);
    let frozen = Frozen { held_on, change_count }.to_bytes();
    lane.send_reply(turn, received.conn, &header, &Response::plain(Status::Ok, &frozen));
    Ok(())
}
