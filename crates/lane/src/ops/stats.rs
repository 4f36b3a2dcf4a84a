//! `Stats`: the counters of this lane, with those of the runtime, which are asked for first.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::ops::no_body;
use data::Token;
use door::{Action, Ticket, Turn};
use wire::Breach;

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), Breach> {
    no_body(turn, arrived)?;
    let Token(number) = lane.wait(arrived);
    turn.act(Action::Usage { ticket: Ticket(crate::lane::USAGE_TICKET | number) });
    Ok(())
}
