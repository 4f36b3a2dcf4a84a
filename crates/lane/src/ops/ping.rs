//! `Ping`: shows that the server lives.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::ops::no_body;
use door::Turn;
use wire::Breach;

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), Breach> {
    no_body(turn, arrived)?;
    lane.answer_committed(turn, arrived);
    Ok(())
}
