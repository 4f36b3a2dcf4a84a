//! Clients and their expiry: a client without any connection for a while loses its locks, then its
//! open files.

use crate::Lane;
use crate::config::Limits;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use interface::{Mono, Turn};
use wire::{ClientUuid, SessionId};

/// The connections, sessions and deadlines of all clients.
#[derive(Debug)]
pub(crate) struct Clients {
    conn_counts: BTreeMap<ClientUuid, u32>,
    /// The known sessions, with or without a connection.
    sessions: BTreeMap<ClientUuid, Vec<SessionId>>,
    /// Clients without a connection, by the time at which they expire.
    client_deadlines: BTreeSet<(Mono, ClientUuid)>,
    /// The same clients, by the time at which their locks no longer block others.
    lock_deadlines: BTreeSet<(Mono, ClientUuid)>,
    /// Clients for which that time has passed.
    pub(crate) locks_expired: BTreeSet<ClientUuid>,
}

impl Clients {
    pub(crate) const fn new() -> Self {
        Self {
            conn_counts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            client_deadlines: BTreeSet::new(),
            lock_deadlines: BTreeSet::new(),
            locks_expired: BTreeSet::new(),
        }
    }

    /// The known sessions of a client.
    pub(crate) fn sessions_of(&self, client: ClientUuid) -> &[SessionId] {
        self.sessions.get(&client).map_or(&[], Vec::as_slice)
    }

    /// Whether it has a connection to this lane.
    pub(crate) fn is_connected(&self, client: ClientUuid) -> bool {
        self.conn_counts.contains_key(&client)
    }

    /// Adds a session.
    pub(crate) fn add_session(&mut self, client: ClientUuid, session: SessionId) {
        let sessions = self.sessions.entry(client).or_default();
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }

    /// Removes a session. Returns whether it was the client's last.
    pub(crate) fn drop_session(&mut self, client: ClientUuid, session: SessionId) -> bool {
        let Some(sessions) = self.sessions.get_mut(&client) else { return true };
        sessions.retain(|known| *known != session);
        let last = sessions.is_empty();
        if last {
            self.sessions.remove(&client);
        }
        last
    }

    /// A connection of a client was opened.
    pub(crate) fn on_connected(&mut self, client: ClientUuid) {
        let conn_count = self.conn_counts.entry(client).or_default();
        *conn_count += 1;
        if *conn_count == 1 {
            // Rare, and the sets hold only clients that left within a minute.
            self.client_deadlines.retain(|(_, client_deadlines)| *client_deadlines != client);
            self.lock_deadlines.retain(|(_, client_deadlines)| *client_deadlines != client);
            self.locks_expired.remove(&client);
        }
    }

    /// A connection of a client was closed.
    pub(crate) fn on_disconnected(&mut self, client: ClientUuid, now: Mono, limits: &Limits) {
        let Some(conn_count) = self.conn_counts.get_mut(&client) else { return };
        *conn_count -= 1;
        if *conn_count == 0 {
            self.conn_counts.remove(&client);
            self.client_deadlines.insert((now.after_ms(limits.client_absent_ms), client));
            self.lock_deadlines.insert((now.after_ms(limits.lock_absent_ms), client));
        }
    }

    /// From now on the locks of a client without a connection no longer block others.
    pub(crate) fn expire_locks_now(&mut self, client: ClientUuid) {
        self.lock_deadlines.retain(|(_, client_deadlines)| *client_deadlines != client);
        if self.client_deadlines.iter().any(|(_, client_deadlines)| *client_deadlines == client) {
            self.locks_expired.insert(client);
        }
    }

    fn next_expired(&mut self, now: Mono) -> Option<ClientUuid> {
        let (until, client) = self.client_deadlines.first().copied()?;
        if until > now {
            return None;
        }
        self.client_deadlines.pop_first();
        self.locks_expired.remove(&client);
        Some(client)
    }

    fn next_locks_expired(&mut self, now: Mono) -> Option<ClientUuid> {
        let (until, client) = self.lock_deadlines.first().copied()?;
        if until > now {
            return None;
        }
        self.lock_deadlines.pop_first();
        self.locks_expired.insert(client);
        Some(client)
    }
}

impl Lane {
    /// Acts on all deadlines that have passed.
    pub(crate) fn on_time(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        self.end_handshakes(turn);
        while let Some(client) = self.clients.next_expired(now) {
            self.report_if_retired(turn, client);
            self.on_client_expired(turn, client);
        }
        while let Some(client) = self.clients.next_locks_expired(now) {
            self.expire_locks(turn, client);
        }
        self.retry_removals(turn);
        self.send_notifications(turn);
        self.end_path_lookups(turn);
        if self.non_resident.tries_again(now) {
            self.execute_replays(turn);
            self.containment.due = true;
        }
    }

    /// Ends the grace period for reopening handles: from here on an unknown handle does not exist.
    pub(crate) fn end_grace(&mut self) {
        for index in 0..self.metas.len() {
            self.metas[index].end_grace();
            let orphans: Vec<_> = self.metas[index].orphans().collect();
            for inode in orphans {
                self.destroy_when_durable(inode);
            }
        }
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self, now: Mono) -> Option<Mono> {
        let recovery = self.recovery.deadline(&self.config.limits);
        let handshake = self.connections.first_deadline().map(|(deadline, _)| deadline);
        let client_deadlines = self.clients.client_deadlines.first().map(|(until, _)| *until);
        let lock_deadlines = self.clients.lock_deadlines.first().map(|(until, _)| *until);
        let due =
            [self.notifications.due, self.txns.deadline(), self.data.deadline(), self.append_at()];
        let retries = due.into_iter().chain([
            self.removals_retry_at(),
            self.non_resident.again_at,
            self.freeze.until,
            self.paths.until(),
            self.peers.deadline(now),
        ]);
        let retry = retries.flatten().min();
        [recovery, handshake, client_deadlines, lock_deadlines, retry].into_iter().flatten().min()
    }
}
