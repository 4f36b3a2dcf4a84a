//! `Ping`: shows that the server is alive.

use crate::Lane;
use crate::ops::no_body;
use crate::request::ReceivedRequest;
use interface::Turn;
use wire::ProtocolError;

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    no_body(turn, received)?;
    lane.leases.count_ping();
    lane.answer_committed(turn, received);
    Ok(())
}
