//! Clients and their expiry: a client without any connection for a while loses its locks, then its
//! open files.

use crate::config::Limits;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use interface::Mono;
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
    locks_expired: BTreeSet<ClientUuid>,
}

impl Clients {
    pub(super) const fn new() -> Self {
        Self {
            conn_counts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            client_deadlines: BTreeSet::new(),
            lock_deadlines: BTreeSet::new(),
            locks_expired: BTreeSet::new(),
        }
    }

    /// The known sessions of a client.
    pub(super) fn sessions_of(&self, client: ClientUuid) -> &[SessionId] {
        self.sessions.get(&client).map_or(&[], Vec::as_slice)
    }

    /// Whether it has a connection to this lane.
    pub(crate) fn is_connected(&self, client: ClientUuid) -> bool {
        self.conn_counts.contains_key(&client)
    }

    /// Adds a session.
    pub(super) fn add_session(&mut self, client: ClientUuid, session: SessionId) {
        let sessions = self.sessions.entry(client).or_default();
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }

    /// Removes a session. Returns whether it was the client's last.
    pub(super) fn drop_session(&mut self, client: ClientUuid, session: SessionId) -> bool {
        let Some(sessions) = self.sessions.get_mut(&client) else { return true };
        sessions.retain(|known| *known != session);
        let last = sessions.is_empty();
        if last {
            self.sessions.remove(&client);
        }
        last
    }

    /// A connection of a client was opened.
    pub(super) fn on_connected(&mut self, client: ClientUuid) {
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
    pub(super) fn on_disconnected(&mut self, client: ClientUuid, now: Mono, limits: &Limits) {
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

    /// Takes the next client that has expired.
    pub(crate) fn next_expired(&mut self, now: Mono) -> Option<ClientUuid> {
        let (until, client) = self.client_deadlines.first().copied()?;
        if until > now {
            return None;
        }
        self.client_deadlines.pop_first();
        self.locks_expired.remove(&client);
        Some(client)
    }

    /// Takes the next client whose locks no longer block others.
    pub(crate) fn next_locks_expired(&mut self, now: Mono) -> Option<ClientUuid> {
        let (until, client) = self.lock_deadlines.first().copied()?;
        if until > now {
            return None;
        }
        self.lock_deadlines.pop_first();
        self.locks_expired.insert(client);
        Some(client)
    }

    /// Those whose locks no longer block others.
    pub(crate) const fn locks_expired(&self) -> &BTreeSet<ClientUuid> {
        &self.locks_expired
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        let firsts = [self.client_deadlines.first(), self.lock_deadlines.first()];
        firsts.into_iter().flatten().map(|(until, _)| *until).min()
    }
}
