//! `Sync`: answered when everything that a shard has executed or been given is durable.

use crate::Lane;
use crate::commit::HeldSaid;
use crate::dispatch::Arrived;
use crate::gate::{Gate, Reason};
use crate::ops::no_body;
use crate::outbox::{Asked, Said};
use crate::unstable::Waiter;
use alloc::vec::Vec;
use interface::Turn;
use wire::{ProtocolError, Status};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), ProtocolError> {
    no_body(turn, arrived)?;
    let shard = arrived.request.shard;
    if lane.fenced {
        let said = Said::plain(Status::Io, &[]);
        lane.say_reply(turn, arrived.conn, &Asked::from(arrived.request), &said);
    } else if shard.is_data() {
        sync_data(lane, turn, arrived);
    } else if let Some(until) = lane.commit.until_shard(shard) {
        let gate = Gate { until, reason: Reason::Itself };
        lane.keep_waiting(arrived, (Status::Ok, Vec::new()), gate);
    } else {
        lane.answer_committed(turn, arrived);
    }
    Ok(())
}

fn sync_data(lane: &mut Lane, turn: &mut Turn<'_>, arrived: &Arrived<'_>) {
    let shard = arrived.request.shard;
    let until = lane.data.transno_last(shard);
    if until <= lane.commit.shard(shard).durable {
        return lane.answer_committed(turn, arrived);
    }
    lane.count_suspended(arrived.conn);
    let (conn, asked) = (arrived.conn, Asked::from(arrived.request));
    let (status, body, bulk) = (Status::Ok, Vec::new(), None);
    let said = HeldSaid { conn, asked, status, body, bulk };
    lane.wait_for((shard, until), Waiter::Said(said), Reason::Itself);
}
