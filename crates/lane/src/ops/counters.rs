//! `Counters`: all counters of this lane, with those that the runtime reports first.

use crate::Lane;
use crate::ops::no_body;
use crate::request::ReceivedRequest;
use data::Token;
use interface::{Action, Ticket, Turn};
use wire::ProtocolError;

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    no_body(turn, received)?;
    if !lane.permit_administration(turn, received) {
        return Ok(());
    }
    let Token(number) = lane.wait(received, None);
    turn.act(Action::Usage { ticket: Ticket(crate::ticket::USAGE_TICKET | number) });
    Ok(())
}
