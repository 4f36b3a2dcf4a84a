//! `Ping`: shows that the server is alive.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::ops::no_body;
use interface::Turn;
use wire::ProtocolError;

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), ProtocolError> {
    no_body(turn, arrived)?;
    lane.answer_committed(turn, arrived);
    Ok(())
}
