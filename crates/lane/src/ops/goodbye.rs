//! `Goodbye`: a client lane leaves in order, and the next recovery does not wait for it.

use crate::Lane;
use crate::commit_dependency::{CommitDependency, Reason};
use crate::ops::no_body;
use crate::request::ReceivedRequest;
use alloc::vec::Vec;
use interface::Turn;
use wire::{ProtocolError, Status};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    no_body(turn, received)?;
    let (session, client) = (received.request.session, received.open.client);
    let records = !lane.commit.has_failed();
    if lane.drop_session(client, session, false) {
        lane.drop_handles(turn, client);
    }
    lane.drop_leases_of(turn, session);
    lane.on_outcomes(turn);
    match lane.commit.last_unsafe() {
        Some(until) if records => {
            let dependency = CommitDependency { until, reason: Reason::Itself };
            lane.defer_reply(received, (Status::Ok, Vec::new()), dependency);
        }
        Some(_) | None => lane.answer(turn, received, &[]),
    }
    Ok(())
}
