//! Notes: a client that keeps redo tokens and asks for nothing more hears by itself when it may drop
//! them. The timer exists only while somebody is owed one, so that an idle server stays idle.

use crate::Lane;
use crate::commit::Held;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use interface::{ConnId, Mono, NetAction, Turn};
use wire::{
    CommitNotification, CommitRow, Header, List, SessionId, ShardId, Transno, Wire as _, Writer,
};

/// Who is owed a note.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Each has `noted` set in its table.
    owed: Vec<(ShardId, SessionId)>,
    pub(crate) due: Option<Mono>,
}

impl Lane {
    /// A session was told what is durable, and perhaps given a token.
    pub(crate) fn told(
        &mut self,
        turn: &Turn<'_>,
        held: &Held,
        (committed, token): (Transno, Option<Transno>),
    ) {
        let key = (held.shard, held.session);
        let Some(table) = self.slots.get_mut(&key) else { return };
        table.told = committed;
        let Some(transno) = token else { return };
        table.token_last = table.token_last.max(transno);
        if !table.noted {
            table.noted = true;
            self.notes.owed.push(key);
            let due = turn.now.mono.after_ms(self.config.limits.note_ms);
            self.notes.due.get_or_insert(due);
        }
    }

    /// What was replayed is durable: whoever replayed shall hear of it.
    pub(crate) fn note_replayed(&mut self, turn: &Turn<'_>) {
        let replayed = self.slots.iter_mut().filter(|(_, table)| table.replayed_last.0 > 0);
        let mut owed: Vec<(ShardId, SessionId)> = Vec::new();
        for (key, table) in replayed {
            table.token_last = table.token_last.max(table.replayed_last);
            if !core::mem::replace(&mut table.noted, true) {
                owed.push(*key);
            }
        }
        owed.sort_unstable();
        if !owed.is_empty() {
            self.notes.due.get_or_insert(turn.now.mono);
            self.notes.owed.extend(owed);
        }
    }

    /// Sends the notes whose time has come.
    pub(crate) fn send_notes(&mut self, turn: &mut Turn<'_>) {
        if self.notes.due.is_none_or(|due| due > turn.now.mono) {
            return;
        }
        if self.fenced {
            // Recovery may have ended without its replays' being durable.
            return self.notes.due = None;
        }
        let mut rows: BTreeMap<ConnId, Vec<CommitRow>> = BTreeMap::new();
        let Self { notes, slots, sessions, commit, .. } = self;
        notes.owed.retain(|(shard, session)| {
            let Some(table) = slots.get_mut(&(*shard, *session)) else { return false };
            let committed = commit.shard(*shard).durable;
            let conn = sessions.get(session).and_then(|session| session.conn);
            if let Some(conn) = conn.filter(|_| table.told < table.token_last.min(committed)) {
                rows.entry(conn).or_default().push(CommitRow { shard: *shard, committed });
                table.told = committed;
            }
            table.noted = committed < table.token_last;
            table.noted
        });
        let again = turn.now.mono.after_ms(self.config.limits.note_ms);
        self.notes.due = (!self.notes.owed.is_empty()).then_some(again);
        for (conn, rows) in rows {
            self.send_note(turn, conn, &rows);
        }
    }

    fn send_note(&mut self, turn: &mut Turn<'_>, conn: ConnId, rows: &[CommitRow]) {
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
