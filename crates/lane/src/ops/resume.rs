//! `Resume`: after a restart a client reports what it knows to be durable of its session at a
//! shard.

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::response::Response;
use interface::Turn;
use wire::{HEADER_BYTES, ProtocolError, Resume, Resumed, Status, Wire, Writer};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let resume = Resume::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
    let (shard, session) = (received.request.shard, received.request.session);
    let committed = lane.session_committed(shard, session);
    if resume.known_committed > committed {
        lane.on_claim(turn, received, (resume.known_committed, committed));
    }
    if let Some(table) = lane.sessions.table_mut((shard, session)) {
        table.on_resume();
    }
    // Until recovery ends, replays that may not be durable yet are accepted again. Behind a failed
    // log they never become durable, but are not lost: the client retains them for the next boot.
    let retained = lane.commit.has_failed() && resume.replay_count > 0;
    let recovering = !lane.recovery.is_over() || retained;
    let mut reply = lane.scratch.empty();
    Resumed { committed, recovering }.encode(&mut Writer::new(&mut reply));
    let response = Response { committed, ..Response::plain(Status::Ok, &reply) };
    lane.send_reply(turn, received.conn, &received.header(), &response);
    lane.scratch.recycle(reply);
    Ok(())
}
