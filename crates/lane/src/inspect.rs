//! Inspections of the store: asked for by who administers, done by a process beside this one, of which a
//! lane passes on what is asked and what comes of it.
//!
//! Invariants: a connection has one request about its inspection under way at most, and an
//! inspection ends with its connection.

use crate::Lane;
use crate::dispatch::Arrived;
use crate::outbox::{Asked, Said};
use alloc::collections::BTreeMap;
use door::{Action, ConnId, Span, Turn};
use wire::{Breach, HEAD_BYTES, Inspect, Status, Wire};

/// Connections that have asked for an inspection, each with its request that is not answered yet.
#[derive(Default, Debug)]
pub(crate) struct Inspecting {
    conns: BTreeMap<ConnId, Option<Asked>>,
}

impl Lane {
    /// Passes on what is asked.
    pub(crate) fn on_inspect(
        &mut self,
        turn: &mut Turn<'_>,
        arrived: &Arrived<'_>,
    ) -> Result<(), Breach> {
        let body = &turn.arena.get(arrived.frame)[HEAD_BYTES..];
        let ask = Inspect::decode_all(body).map_err(|_| Breach::Malformed)?;
        let (conn, asked) = (arrived.conn, Asked::from(arrived.request));
        if !arrived.open.binding.administers {
            self.send(turn, conn, &asked, &Said::plain(Status::NotPermitted, &[]));
            return Ok(());
        }
        let waiting = self.inspecting.conns.entry(conn).or_default();
        if waiting.is_some() {
            self.send(turn, conn, &asked, &Said::plain(Status::Invalid, &[]));
            return Ok(());
        }
        *waiting = Some(asked);
        turn.act(Action::Inspect { conn, ask });
        Ok(())
    }

    /// What came of it.
    pub(crate) fn on_inspected(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        (status, reply): (Status, Span),
    ) {
        let waiting = self.inspecting.conns.get_mut(&conn);
        let Some(asked) = waiting.and_then(Option::take) else { return };
        let reply = turn.arena.get(reply).to_vec();
        self.send(turn, conn, &asked, &Said::plain(status, &reply));
    }

    /// A connection is gone, and its inspection with it.
    pub(crate) fn end_inspection_of(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        if self.inspecting.conns.remove(&conn).is_some() {
            turn.act(Action::InspectEnd { conn });
        }
    }
}
