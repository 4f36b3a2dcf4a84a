//! Fair shares of connections, sessions and handles between parties: while there is space every
//! request is granted, and then the largest holder yields to parties that hold less.
//!
//! A connection can be closed at any time; its client reconnects or is refused. A session is
//! removed only while it has no connection and owes no reply exactly once; to have space all the
//! same, a quarter of all sessions is reserved for parties other than the largest holder.

use crate::Lane;
use crate::export::Binding;
use crate::limits::Limit;
use crate::request::ReceivedRequest;
use crate::session::Session;
use alloc::format;
use alloc::vec::Vec;
use disk::{Change, ClientChange};
use interface::{Action, Bulk, ConnId, Mono, NetAction, Party, Shares, Turn};
use wire::{ClientUuid, Credential, Lengths, SessionId, Status};

/// A session without a connection for this long, in milliseconds, is removed in favour of its own
/// party, even if its last replies were not acknowledged.
const ABANDONED_MS: u64 = 3_600_000;

/// The party of a connection with this credential; `holder`: the key of its certificate, if it has
/// one.
pub(crate) const fn party_of(
    (credential, holder): (Credential, Option<&[u8; 32]>),
    binding: &Binding,
) -> Party {
    match (credential, holder) {
        (_, Some(key)) => Party::of_certificate(key),
        (Credential::Export, None) => Party::of_export(binding.export_no),
        (Credential::Store, None) if binding.administers => Party::ADMINISTERS,
        (Credential::Store, None) => Party::STORE,
        // Such a Hello is refused without a certificate.
        (Credential::Certificate, None) => Party::NONE,
    }
}

impl Lane {
    /// The party of a connection; none before its proof.
    pub(crate) fn party_at(&self, conn: ConnId) -> Party {
        self.connections.get(conn).map_or(Party::NONE, |open| open.party)
    }

    /// Makes space for one more connection of an authenticated party.
    pub(crate) fn make_conn_space(&mut self, turn: &mut Turn<'_>, party: Party) -> bool {
        let count_max = self.config.limits.conn_count_max;
        if self.connections.open_count() < count_max {
            return true;
        }
        let mut shares = Shares::new();
        self.connections.all_open().for_each(|(_, open)| shares.add(open.party, 1));
        let Some(largest_holder) = shares.yielding_party(party, 1) else {
            let line = format!("a client was refused: there are {count_max} connections already");
            self.report_limit(turn, (Limit::Connections, party), &line);
            return false;
        };
        let held = self.connections.all_open().filter(|(_, open)| open.party == largest_holder);
        let Some(newest) = held.map(|(conn, _)| conn).max() else { return false };
        let line = format!(
            "there are {count_max} connections already: the newest one of the party with the most \
             was closed"
        );
        self.report_limit(turn, (Limit::Connections, largest_holder), &line);
        self.close(turn, newest);
        true
    }

    /// Makes space for one more session of a party.
    pub(crate) fn make_session_space(&mut self, turn: &mut Turn<'_>, party: Party) -> bool {
        let count_max = self.config.limits.session_count_max;
        if self.sessions.count() < count_max - count_max / 4 {
            return true; // No party can exceed its share.
        }
        let mut shares = Shares::new();
        self.sessions.all().for_each(|(_, session)| shares.add(session.party, 1));
        let total_max = u64::try_from(count_max).unwrap_or(u64::MAX);
        let fits = shares.fits(party, 1, total_max);
        if fits && self.sessions.count() < count_max {
            return true;
        }
        let largest_holder = shares.yielding_party(party, 1).filter(|_| fits);
        let Some(oldest) = self.forgettable(turn.now.mono, (party, largest_holder)) else {
            let line = format!(
                "a client was refused: of {count_max} sessions those with its credential have \
                 {} and need all of them",
                shares.of(party)
            );
            self.report_limit(turn, (Limit::Sessions, party), &line);
            return false;
        };
        if let Some(client) = self.sessions.client_of(oldest) {
            self.drop_session(client, oldest, true);
        }
        true
    }

    /// Of the sessions of two parties the least recently used one that can be removed.
    fn forgettable(&self, now: Mono, of: (Party, Option<Party>)) -> Option<SessionId> {
        let (own, largest_holder) = of;
        let may_go = |id: SessionId, session: &Session| {
            let mine = session.party == own;
            let may_yield = mine || Some(session.party) == largest_holder;
            let abandoned = mine && session.left_at.after_ms(ABANDONED_MS) <= now;
            may_yield && session.conn.is_none() && self.owes_nothing(id, session, abandoned)
        };
        let idle = self.sessions.all().filter(|(id, session)| may_go(*id, session));
        idle.min_by_key(|(id, session)| (session.opened_no, *id)).map(|(id, _)| id)
    }

    /// Whether a session owes no reply exactly once; of an abandoned one, whether no request is
    /// running.
    fn owes_nothing(&self, id: SessionId, session: &Session, abandoned: bool) -> bool {
        if self.recovery.waits_for(session.row.client) {
            return false;
        }
        let mut tables =
            self.shards().into_iter().filter_map(|shard| self.sessions.table((shard, id)));
        tables.all(|table| if abandoned { !table.is_busy() } else { !table.owes_answer() })
    }

    /// Removes a client's session; durably, where it is durably known, and with `if_space` only
    /// where the log has space for that. Returns whether it was the client's last one.
    pub(crate) fn drop_session(
        &mut self,
        client: ClientUuid,
        session: SessionId,
        if_space: bool,
    ) -> bool {
        for shard in self.shards() {
            let table = self.sessions.remove_table((shard, session));
            let known = table.is_some_and(|table| table.recorded_in.is_some());
            if known && !self.commit.has_failed() && (!if_space || self.space_for_own()) {
                self.record_of_lane(
                    shard,
                    &Change::Client(ClientChange::SessionRemoved { session }),
                );
            }
        }
        let is_last = self.sessions.remove(client, session);
        self.leases.forget_session(session);
        if is_last {
            self.leases.forget_numbers(client);
        }
        is_last
    }

    /// Whether a request would give its party more handles at a metadata shard than its share.
    pub(crate) fn has_its_handles(&self, received: &ReceivedRequest<'_>) -> bool {
        let opens = received.request.op.row().opens;
        let meta = opens.then(|| &self.metas[self.meta_index(received.request.shard)]);
        let Some(crowd) = meta.and_then(meta::Shard::crowded_handle_counts) else { return false };
        let mut shares = Shares::new();
        for (client, count) in crowd {
            shares.add(self.party_of_client(client), u64::try_from(count).unwrap_or(u64::MAX));
        }
        let total_max = u64::try_from(self.config.limits.handle_count_max).unwrap_or(u64::MAX);
        !shares.fits(received.open.party, 1, total_max)
    }

    /// Logs that an open was refused because too many files are open.
    pub(crate) fn report_open_files(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        status: Status,
    ) {
        if status == Status::TooManyFiles {
            let count_max = self.config.limits.handle_count_max;
            let line = format!(
                "an open was refused (ENFILE): a metadata shard has at most {count_max} open \
                 files, a client a quarter of them, those who hold one credential three quarters"
            );
            self.report_limit(turn, (Limit::OpenFiles, received.open.party), &line);
        }
    }

    fn party_of_client(&self, client: ClientUuid) -> Party {
        let session = self.sessions.of_client(client).first();
        let session = session.and_then(|id| self.sessions.get(*id));
        session.map_or(Party::NONE, |session| session.party)
    }

    /// The Admit action of a connection. Until recovery is over, bulk is received on read-only
    /// connections too: without it the MAC of a replay's contents would not match, and an honest
    /// client would be taken for a forger. Such a replay is refused, but its client is not evicted.
    /// So it is while an export that is read-only executes what its clients had answered early.
    pub(crate) fn admission(
        &self,
        (conn, now): (ConnId, Mono),
        binding: &Binding,
        party: Party,
    ) -> Action {
        let writes = !binding.read_only
            || !self.recovery.is_over()
            || self.exports.executes_behind(binding.export_no, now);
        Action::Net(NetAction::Admit { conn, writes, party })
    }

    /// Recovery is over: read-only connections bring no replays any more, so their bulk is
    /// discarded.
    pub(crate) fn end_writing(&self, turn: &mut Turn<'_>) {
        let readers = self.connections.all_open().filter(|(_, open)| open.binding.read_only);
        self.readmit(turn, readers.map(|(conn, _)| conn).collect());
    }

    /// Admits connections again, because their rights have changed.
    pub(crate) fn readmit(&self, turn: &mut Turn<'_>, mut conns: Vec<ConnId>) {
        conns.sort_unstable();
        for conn in conns {
            if let Some(open) = self.connections.get(conn) {
                turn.act(self.admission((conn, turn.now.mono), &open.binding, open.party));
            }
        }
    }
}

/// Whether the runtime has discarded a request's bulk, because its connection was read-only when it
/// arrived. The request is refused even if the connection may write since.
pub(crate) fn bulk_was_discarded(frame: &[u8], bulk: Option<Bulk>) -> bool {
    let head = frame.first_chunk().map(Lengths::peek);
    bulk.is_none() && head.is_some_and(|head| head.is_ok_and(|lengths| lengths.bulk_bytes > 0))
}
