//! The sessions of a lane, their slots at its shards, and the clients that they belong to.

use crate::config::Limits;
use crate::request_header::SlotId;
use crate::session::{Key, Session, Slot, SlotTable};
use alloc::vec::Vec;
use clients::Clients;
use disk::SessionRow;
use hashbrown::HashMap;
use interface::{ConnId, Mono, Seed};
use notifications::Notifications;
use wire::{ClientUuid, SessionId, ShardId};

mod clients;
mod notifications;

/// All sessions of a lane.
#[derive(Debug)]
pub(crate) struct Sessions {
    sessions: HashMap<SessionId, Session, Seed>,
    /// The number of connections admitted so far.
    admitted_count: u64,
    tables: HashMap<Key, SlotTable, Seed>,
    clients: Clients,
    notifications: Notifications,
}

impl Sessions {
    /// The sessions of earlier boots, with their slots.
    pub(crate) fn new(
        seed: Seed,
        known: Vec<(SessionId, Session)>,
        recorded: Vec<(Key, SlotTable)>,
    ) -> Self {
        let admitted_count = known.iter().map(|(_, session)| session.opened_no).max().unwrap_or(0);
        let mut clients = Clients::new();
        for (id, session) in &known {
            clients.add_session(session.row.client, *id);
        }
        let mut sessions = HashMap::with_hasher(seed);
        sessions.extend(known);
        let mut tables = HashMap::with_hasher(seed);
        tables.extend(recorded);
        let notifications = Notifications::default();
        Self { sessions, admitted_count, tables, clients, notifications }
    }

    /// A session.
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// The client of a session.
    pub(crate) fn client_of(&self, id: SessionId) -> Option<ClientUuid> {
        self.get(id).map(|session| session.row.client)
    }

    /// The connection of a session, if it has one.
    pub(crate) fn conn_of(&self, id: SessionId) -> Option<ConnId> {
        self.get(id)?.conn
    }

    /// Whether a session exists.
    pub(crate) fn has(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    /// The number of sessions.
    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// All sessions, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// The sessions that the log knows, each at each of its shards, in no order.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (ShardId, SessionId, &SessionRow)> {
        let recorded = self.tables.iter().filter(|(_, table)| table.recorded_in.is_some());
        recorded.filter_map(|((shard, id), _)| Some((*shard, *id, &self.get(*id)?.row)))
    }

    /// Opens a session over a new connection, or resumes it. Returns whether it had sent a request
    /// in this boot before.
    pub(crate) fn open(&mut self, id: SessionId, session: Session) -> bool {
        self.admitted_count += 1;
        let request_seen = self.get(id).is_some_and(|session| session.request_seen);
        let client = session.row.client;
        self.sessions
            .insert(id, Session { request_seen, opened_no: self.admitted_count, ..session });
        self.clients.on_connected(client);
        self.clients.add_session(client, id);
        request_seen
    }

    /// A session has sent a request.
    pub(crate) fn on_request(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.request_seen = true;
        }
    }

    /// A connection of a session of a client has ended.
    pub(crate) fn on_disconnected(
        &mut self,
        (id, client): (SessionId, ClientUuid),
        conn: ConnId,
        now: Mono,
        limits: &Limits,
    ) {
        if let Some(session) = self.sessions.get_mut(&id)
            && session.conn == Some(conn)
        {
            session.conn = None;
            session.left_at = now;
        }
        self.clients.on_disconnected(client, now, limits);
    }

    /// Removes a client's session, whose slots are removed separately. Returns whether it was the
    /// client's last.
    pub(crate) fn remove(&mut self, client: ClientUuid, id: SessionId) -> bool {
        self.sessions.remove(&id);
        self.clients.drop_session(client, id)
    }

    /// The sessions of a client.
    pub(crate) fn of_client(&self, client: ClientUuid) -> &[SessionId] {
        self.clients.sessions_of(client)
    }

    /// The clients' connections and deadlines.
    pub(crate) const fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The same, to act on deadlines.
    pub(crate) const fn clients_mut(&mut self) -> &mut Clients {
        &mut self.clients
    }

    /// A session's slots at a shard.
    pub(crate) fn table(&self, key: Key) -> Option<&SlotTable> {
        self.tables.get(&key)
    }

    /// The same, to be changed.
    pub(crate) fn table_mut(&mut self, key: Key) -> Option<&mut SlotTable> {
        self.tables.get_mut(&key)
    }

    /// The same; made if the session has none there.
    pub(crate) fn table_or_new(&mut self, key: Key) -> &mut SlotTable {
        self.tables.entry(key).or_default()
    }

    /// A slot, if its session has any at the shard.
    pub(crate) fn slot(&mut self, slot_id: &SlotId) -> Option<&mut Slot> {
        let table = self.tables.get_mut(&(slot_id.shard, slot_id.session))?;
        Some(table.slot(slot_id.slot))
    }

    /// A slot; made if its session has none at the shard.
    pub(crate) fn slot_or_new(&mut self, slot_id: &SlotId) -> &mut Slot {
        self.table_or_new((slot_id.shard, slot_id.session)).slot(slot_id.slot)
    }

    /// All slots, in no order.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&Key, &SlotTable)> {
        self.tables.iter()
    }

    /// Removes a session's slots at a shard.
    pub(crate) fn remove_table(&mut self, key: Key) -> Option<SlotTable> {
        self.tables.remove(&key)
    }

    /// Removes the slots of sessions at all shards.
    pub(crate) fn remove_tables(&mut self, ids: &[SessionId]) {
        self.tables.retain(|(_, id), _| !ids.contains(id));
    }
}
