//! Commit notifications: a client that holds redo tokens and sends no further request learns from a
//! Note frame when it may drop them. The timer runs only while a session is due a notification, so
//! an idle server stays idle.

use crate::Lane;
use crate::commit::SlotId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use interface::{ConnId, Mono, NetAction, Turn};
use wire::{
    CommitNotification, CommitRow, Header, List, SessionId, ShardId, Transno, Wire as _, Writer,
};

/// The sessions that are due a notification.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    /// Each has `notification_due` set in its table.
    owed: Vec<(ShardId, SessionId)>,
    pub(crate) due: Option<Mono>,
}

impl Lane {
    /// A reply told a session what is durable, and may have carried a redo token.
    pub(crate) fn track_committed_sent(
        &mut self,
        turn: &Turn<'_>,
        slot_id: &SlotId,
        (committed, token): (Transno, Option<Transno>),
    ) {
        let key = (slot_id.shard, slot_id.session);
        let Some(table) = self.sessions.table_mut(key) else { return };
        table.committed_sent = committed;
        let Some(transno) = token else { return };
        table.token_last = table.token_last.max(transno);
        if !table.notification_due {
            table.notification_due = true;
            self.notifications.owed.push(key);
            let due = turn.now.mono.after_ms(self.config.limits.notification_ms);
            self.notifications.due.get_or_insert(due);
        }
    }

    /// The replayed changes are durable: notifies their sessions.
    pub(crate) fn notify_replayed(&mut self, turn: &Turn<'_>) {
        let replayed = self.sessions.tables_mut().filter(|(_, table)| table.replayed_last.0 > 0);
        let mut owed: Vec<(ShardId, SessionId)> = Vec::new();
        for (key, table) in replayed {
            table.token_last = table.token_last.max(table.replayed_last);
            if !core::mem::replace(&mut table.notification_due, true) {
                owed.push(*key);
            }
        }
        owed.sort_unstable();
        if !owed.is_empty() {
            self.notifications.due.get_or_insert(turn.now.mono);
            self.notifications.owed.extend(owed);
        }
    }

    /// Sends the notifications that are due.
    pub(crate) fn send_notifications(&mut self, turn: &mut Turn<'_>) {
        if self.notifications.due.is_none_or(|due| due > turn.now.mono) {
            return;
        }
        if self.commit.has_failed() {
            // Recovery may have ended before its replays were durable.
            return self.notifications.due = None;
        }
        let mut rows: BTreeMap<ConnId, Vec<CommitRow>> = BTreeMap::new();
        let Self { notifications, sessions, commit, .. } = self;
        notifications.owed.retain(|(shard, session)| {
            let conn = sessions.conn_of(*session);
            let Some(table) = sessions.table_mut((*shard, *session)) else { return false };
            let committed = commit.shard(*shard).durable;
            if let Some(conn) =
                conn.filter(|_| table.committed_sent < table.token_last.min(committed))
            {
                rows.entry(conn).or_default().push(CommitRow { shard: *shard, committed });
                table.committed_sent = committed;
            }
            table.notification_due = committed < table.token_last;
            table.notification_due
        });
        let again = turn.now.mono.after_ms(self.config.limits.notification_ms);
        self.notifications.due = (!self.notifications.owed.is_empty()).then_some(again);
        for (conn, rows) in rows {
            self.send_notification(turn, conn, &rows);
        }
    }

    fn send_notification(&mut self, turn: &mut Turn<'_>, conn: ConnId, rows: &[CommitRow]) {
        self.stats.reply_gating.commit_notification_count += 1;
        let mut bytes = Vec::new();
        rows.iter().for_each(|row| row.encode(&mut Writer::new(&mut bytes)));
        let note =
            CommitNotification { rows: List::new(u32::try_from(rows.len()).unwrap_or(0), &bytes) };
        let frame = turn
            .arena
            .write(|out| Header::CommitNotification.encode(out, None, |to| note.encode(to)));
        turn.act(NetAction::Send { conn, frame, bulk: None });
    }
}
