//! What a lane does as time passes, and when it has to.

use crate::Lane;
use interface::{Mono, Turn};

impl Lane {
    /// Acts on all deadlines that have passed.
    pub(crate) fn on_time(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        self.end_handshakes(turn);
        while let Some(client) = self.sessions.clients_mut().next_expired(now) {
            self.report_if_retired(turn, client);
            self.on_client_expired(turn, client);
        }
        while let Some(client) = self.sessions.clients_mut().next_locks_expired(now) {
            self.expire_locks(turn, client);
        }
        self.expire_leases(turn);
        self.retry_removals(turn);
        self.send_notifications(turn);
        self.end_path_lookups(turn);
        self.repeat_searches(turn);
        if self.non_resident.tries_again(now) {
            self.execute_replays(turn);
            self.containment.due = true;
        }
    }

    /// Ends the grace period for reopening handles: from here on an unknown handle does not exist.
    pub(crate) fn end_grace(&mut self) {
        for index in 0..self.metas.len() {
            self.metas[index].end_grace();
            let orphans: alloc::vec::Vec<_> = self.metas[index].orphans().collect();
            for inode in orphans {
                self.destroy_when_durable(inode);
            }
        }
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self, now: Mono) -> Option<Mono> {
        let recovery = self.recovery.deadline(&self.config.limits);
        let handshake = self.connections.first_deadline().map(|(deadline, _)| deadline);
        let clients = self.sessions.clients().deadline();
        let due = [
            self.sessions.notifications_due(),
            self.txns.deadline(),
            self.data.deadline(),
            self.append_at(),
        ];
        let retries = due.into_iter().chain([
            self.removals_retry_at(),
            self.non_resident.again_at,
            self.freeze.until,
            self.paths.until(),
            self.searches.deadline(),
            self.peers.deadline(now),
            self.leases.deadline(),
        ]);
        let retry = retries.flatten().min();
        [recovery, handshake, clients, retry].into_iter().flatten().min()
    }
}
