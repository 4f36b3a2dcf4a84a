//! Inspections of the store, requested by administrators and executed by another process; the lane
//! passes requests and replies on.
//!
//! Invariants: a connection has at most one outstanding inspection request, and an inspection ends
//! with its connection.

use crate::Lane;
use crate::response::Response;
use interface::{ConnId, Span, StoreAction, Turn};
use wire::Status;

impl Lane {
    /// The outcome of an inspection request.
    pub(crate) fn on_inspected(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        (status, reply): (Status, Span),
    ) {
        let Some(header) = self.connections.take_inspection(conn) else { return };
        let reply = turn.arena.get(reply).to_vec();
        self.send(turn, conn, &header, &Response::plain(status, &reply));
    }

    /// Ends the inspection of a connection that has ended.
    pub(crate) fn end_inspection_of(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        if self.connections.end_inspection(conn) {
            turn.act(StoreAction::InspectEnd { conn });
        }
    }
}
