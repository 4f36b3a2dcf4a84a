//! Commit notifications: a client that holds redo tokens and sends no further request learns from a
//! CommitNotification frame when it may drop them. The timer runs only while a session is due a notification, so
//! an idle server stays idle.

use crate::Lane;
use crate::request_header::SlotId;
use alloc::vec::Vec;
use interface::{ConnId, NetAction, Turn};
use wire::{CommitNotification, CommitRow, Header, List, Transno, Wire as _, Writer};

impl Lane {
    /// A reply reported the durable transaction to a session, and may have carried a redo token.
    pub(crate) fn track_committed_sent(
        &mut self,
        turn: &Turn<'_>,
        slot_id: &SlotId,
        sent: (Transno, Option<Transno>),
    ) {
        let due = turn.now.mono.after_ms(self.config.limits.notification_ms);
        self.sessions.on_committed_sent((slot_id.shard, slot_id.session), sent, due);
    }

    /// Sends the notifications that are due.
    pub(crate) fn send_notifications(&mut self, turn: &mut Turn<'_>) {
        if self.sessions.notifications_due().is_none_or(|due| due > turn.now.mono) {
            return;
        }
        if self.commit.has_failed() {
            // Recovery may have ended before its replays were durable.
            return self.sessions.stop_notifications();
        }
        let again = turn.now.mono.after_ms(self.config.limits.notification_ms);
        let durable = |shard| self.commit.shard(shard).durable;
        for (conn, rows) in self.sessions.take_notifications(durable, again) {
            self.send_notification(turn, conn, &rows);
        }
    }

    fn send_notification(&mut self, turn: &mut Turn<'_>, conn: ConnId, rows: &[CommitRow]) {
        self.stats.reply_gating.commit_notification_count += 1;
        let mut bytes = Vec::new();
        rows.iter().for_each(|row| row.encode(&mut Writer::new(&mut bytes)));
        let notification =
            CommitNotification { rows: List::new(u32::try_from(rows.len()).unwrap_or(0), &bytes) };
        let frame = turn.arena.write(|out| {
            Header::CommitNotification.encode(out, None, |to| notification.encode(to))
        });
        turn.act(NetAction::Send { conn, frame, bulk: None });
    }
}
