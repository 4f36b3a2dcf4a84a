//! How a connection of this lane ends.

use crate::Lane;
use crate::limits::Limit;
use crate::request::ReceivedRequest;
use alloc::format;
use interface::{Action, ConnId, LogLevel, NetAction, Turn};
use wire::ProtocolError;

impl Lane {
    /// A peer broke the protocol: counts and logs it, and closes the connection.
    pub(crate) fn protocol_error(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        protocol_error: ProtocolError,
    ) {
        self.stats.protocol_error_count += 1;
        let line = format!("a connection was closed: {}", protocol_error.text());
        let party = self.party_at(conn);
        self.report_limit(turn, (Limit::ProtocolError, party), &line);
        self.close(turn, conn);
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        turn.act(NetAction::Close { conn });
        self.forget(turn, conn);
    }

    /// Removes a connection that has ended.
    pub(crate) fn forget(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        if !self.recovery.is_over() {
            self.drop_replays_of(turn, conn);
        }
        self.cancel_received(turn, conn);
        self.end_inspection_of(turn, conn);
        let Some((served, tally)) = self.connections.remove(conn) else {
            return self.on_peer_lost(turn, conn);
        };
        let used = served.used(&tally);
        self.accounts.close(used);
        let open = *used.open;
        let (now, limits) = (turn.now.mono, &self.config.limits);
        self.sessions.on_disconnected((open.session, open.client), conn, now, limits);
        self.on_lease_holder_gone(turn, open.session);
    }

    /// Counts a request that waits as outstanding, also one of an op that is mostly answered at
    /// once.
    pub(crate) fn count_outstanding(&mut self, received: &ReceivedRequest<'_>) {
        if received.request.op.row().is_answered_at_once() {
            self.connections.count_outstanding(received.conn);
        }
    }

    /// Writes a line to the operator's log.
    pub(crate) fn log(&self, turn: &mut Turn<'_>, level: LogLevel, line: &str) {
        let line = turn.arena.put(format!("lane {}: {line}", self.config.lane).as_bytes());
        turn.act(Action::Log { level, line });
    }
}
