//! Inspections of the store: asked for by who administers, done by a process beside this one, of which a
//! lane passes on what is asked and what comes of it.
//!
//! Invariants: a connection has one request about its inspection under way at most, and an
//! inspection ends with its connection.

use crate::Lane;
use crate::outbox::{RequestHeader, Response};
use alloc::collections::BTreeMap;
use interface::{ConnId, Span, StoreAction, Turn};
use wire::Status;

/// Connections that have asked for an inspection, each with its request that is not answered yet.
#[derive(Default, Debug)]
pub(crate) struct Inspecting {
    pub(crate) conns: BTreeMap<ConnId, Option<RequestHeader>>,
}

impl Lane {
    /// What came of it.
    pub(crate) fn on_inspected(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        (status, reply): (Status, Span),
    ) {
        let waiting = self.inspecting.conns.get_mut(&conn);
        let Some(header) = waiting.and_then(Option::take) else { return };
        let reply = turn.arena.get(reply).to_vec();
        self.send(turn, conn, &header, &Response::plain(status, &reply));
    }

    /// A connection is gone, and its inspection with it.
    pub(crate) fn end_inspection_of(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        if self.inspecting.conns.remove(&conn).is_some() {
            turn.act(StoreAction::InspectEnd { conn });
        }
    }
}
