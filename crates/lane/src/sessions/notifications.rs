//! Which sessions are due a commit notification.

use super::Sessions;
use crate::session::Key;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use interface::{ConnId, Mono};
use wire::{CommitRow, ShardId, Transno};

/// The sessions that are due a notification.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// The table of each says that it is due one.
    owed: Vec<Key>,
    due: Option<Mono>,
}

impl Sessions {
    /// When notifications are due.
    pub(crate) const fn notifications_due(&self) -> Option<Mono> {
        self.notifications.due
    }

    /// Sends no notifications until a session is due one anew.
    pub(crate) const fn stop_notifications(&mut self) {
        self.notifications.due = None;
    }

    /// A reply reported the durable transaction to a session, and may have carried the redo token of a
    /// transaction: then the session is due a notification.
    pub(crate) fn on_committed_sent(
        &mut self,
        key: Key,
        (committed, token): (Transno, Option<Transno>),
        due: Mono,
    ) {
        let Some(table) = self.tables.get_mut(&key) else { return };
        if table.on_committed_sent(committed, token) {
            self.notifications.owed.push(key);
            self.notifications.due.get_or_insert(due);
        }
    }

    /// The replayed changes are durable: their sessions are due a notification.
    pub(crate) fn on_replays_durable(&mut self, now: Mono) {
        let replayed = self
            .tables
            .iter_mut()
            .filter_map(|(key, table)| table.on_replays_durable().then_some(*key));
        let mut owed: Vec<Key> = replayed.collect();
        owed.sort_unstable();
        if !owed.is_empty() {
            self.notifications.due.get_or_insert(now);
            self.notifications.owed.extend(owed);
        }
    }

    /// Takes the rows of the notifications that are due, by connection. A session with a token
    /// whose transaction is not yet durable is due another one, again at that time.
    pub(crate) fn take_notifications(
        &mut self,
        durable: impl Fn(ShardId) -> Transno,
        again: Mono,
    ) -> BTreeMap<ConnId, Vec<CommitRow>> {
        let mut rows: BTreeMap<ConnId, Vec<CommitRow>> = BTreeMap::new();
        let Self { notifications, sessions, tables, .. } = self;
        notifications.owed.retain(|key| {
            let (shard, session) = *key;
            let Some(table) = tables.get_mut(key) else { return false };
            let committed = durable(shard);
            let conn = sessions.get(&session).and_then(|session| session.conn);
            let is_news = table.notify(committed, conn.is_some());
            if let Some(conn) = conn.filter(|_| is_news) {
                rows.entry(conn).or_default().push(CommitRow { shard, committed });
            }
            table.is_notification_due()
        });
        notifications.due = (!notifications.owed.is_empty()).then_some(again);
        rows
    }
}
