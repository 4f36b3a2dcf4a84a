//! `Exports`: what can be mounted.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::ops::no_body;
use crate::outbox::{Asked, Said};
use alloc::vec::Vec;
use interface::Turn;
use wire::{ProtocolError, Status};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    arrived: &Arrived<'_>,
) -> Result<(), ProtocolError> {
    no_body(turn, arrived)?;
    let mut reply = Vec::new();
    let administers = arrived.open.binding.administers;
    let status = if administers { Status::Ok } else { Status::NotPermitted };
    if administers {
        lane.exports.encode(&mut reply);
    }
    let said = Said::plain(status, &reply);
    lane.say_reply(turn, arrived.conn, &Asked::from(arrived.request), &said);
    Ok(())
}
