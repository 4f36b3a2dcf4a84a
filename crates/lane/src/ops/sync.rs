//! `Sync`: answered when everything that a shard has executed or received is durable.

use crate::Lane;
use crate::commit_dependency::{CommitDependency, Reason};
use crate::ops::no_body;
use crate::request::ReceivedRequest;
use crate::request_header::RequestHeader;
use crate::response::{DeferredReply, Response};
use crate::waiters::Waiter;
use alloc::vec::Vec;
use interface::Turn;
use wire::{ProtocolError, Status};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    no_body(turn, received)?;
    let shard = received.request.shard;
    if lane.commit.has_failed() {
        let response = Response::plain(Status::Io, &[]);
        lane.send_reply(turn, received.conn, &received.header(), &response);
    } else if shard.is_data() {
        sync_data(lane, turn, received);
    } else if let Some(until) = lane.commit.last_unsafe_of(shard) {
        let dependency = CommitDependency { until, reason: Reason::Itself };
        lane.defer_reply(received, (Status::Ok, Vec::new()), dependency);
    } else {
        lane.answer_committed(turn, received);
    }
    Ok(())
}

fn sync_data(lane: &mut Lane, turn: &mut Turn<'_>, received: &ReceivedRequest<'_>) {
    let shard = received.request.shard;
    let until = lane.data.transno_last(shard);
    if until <= lane.commit.shard(shard).durable {
        return lane.answer_committed(turn, received);
    }
    lane.count_outstanding(received);
    let times = received.times.done(turn.now.mono);
    let (conn, header) = (received.conn, RequestHeader { times, ..received.header() });
    let (status, body, bulk) = (Status::Ok, Vec::new(), None);
    let response = DeferredReply { conn, header, status, body, bulk };
    lane.wait_for((shard, until), Waiter::Reply(response), Reason::Itself);
}
