//! The connections of a lane: which frames each may send, what is outstanding on it, and how long
//! its handshake may take.

use crate::config::Limits;
use crate::counters::{Tallies, Tally};
use crate::export::Binding;
use crate::keys::KeyNo;
use crate::request_header::{RequestHeader, TallyNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use hashbrown::{HashMap, HashSet};
use interface::{ConnId, Mono, Party, Seed};
use wire::{
    CertificateIdentity, Channel, ClientUuid, Hello, Map, Nonce, ProtocolError, Request, Retry,
    Route, Secret, SessionId, Wire as _,
};

/// A connection under TLS before its Hello.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// The channel binding that both ends derive.
    pub(crate) channel: Channel,
    /// A [`wire::CertificateIdentity`], if its client has shown a certificate.
    pub(crate) holder: Option<Vec<u8>>,
}

impl Sealed {
    /// The key of the client's certificate, if that opens what its Hello asks for.
    pub(crate) fn holder_for(&self, hello: &Hello<'_>) -> Option<[u8; 32]> {
        let holder = self.holder.as_deref().map(CertificateIdentity::decode_all)?.ok()?;
        holder.grants(hello).then_some(holder.key)
    }

    /// Whether the client's certificate opens what the store's secret opens.
    pub(crate) fn grants_store(&self) -> bool {
        let holder = self.holder.as_deref().map(CertificateIdentity::decode_all);
        holder.is_some_and(|holder| holder.is_ok_and(|holder| holder.grants_store()))
    }
}

/// A connection before its proof.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// The body of its Hello.
    pub(crate) hello: Vec<u8>,
    /// The server's nonce.
    pub(crate) nonce: Nonce,
    /// The channel binding.
    pub(crate) channel: Channel,
    /// The secret that the client must prove.
    pub(crate) secret: Secret,
    /// The store's secret that it is derived from; none for a certificate.
    pub(crate) key_no: KeyNo,
    /// The key of the client's certificate, if that is its credential.
    pub(crate) holder: Option<[u8; 32]>,
    /// The client runs on this host and has a credential for the whole store.
    pub(crate) own_host: bool,
    /// The deadline of the handshake.
    pub(crate) deadline: Mono,
}

/// A connection after its proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) session: SessionId,
    pub(crate) client: ClientUuid,
    pub(crate) conn_epoch: u32,
    /// The store's secret that the proven one is derived from.
    pub(crate) key_no: KeyNo,
    /// The export that it is bound to.
    pub(crate) binding: Binding,
    /// The party that its resources are charged to.
    pub(crate) party: Party,
}

/// An open connection with what is outstanding on it.
#[derive(Debug)]
pub(crate) struct Served {
    open: Open,
    /// Requests without a reply yet.
    outstanding_count: u16,
    /// What its client says that it is used for.
    job: String,
    /// Where it is said what it has used.
    tally_no: TallyNo,
}

/// What an open connection has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used<'a> {
    pub(crate) open: &'a Open,
    pub(crate) job: &'a String,
    pub(crate) tally: &'a Tally,
}

impl Served {
    /// What it has used, and who it is.
    pub(crate) const fn used<'a>(&'a self, tally: &'a Tally) -> Used<'a> {
        Used { open: &self.open, job: &self.job, tally }
    }

    /// The place of its tally.
    pub(crate) const fn tally_no(&self) -> TallyNo {
        self.tally_no
    }

    /// The connection's session.
    pub(crate) const fn session(&self) -> SessionId {
        self.open.session
    }

    /// Takes a request: checks its head against this connection, and counts it as outstanding
    /// unless its op is mostly answered at once.
    pub(crate) fn take(
        &mut self,
        request: &Request,
        bulk_bytes: u32,
        limits: (&Limits, &Map),
    ) -> Result<Open, ProtocolError> {
        self.check(request, bulk_bytes, limits)?;
        self.outstanding_count += u16::from(!request.op.row().is_answered_at_once());
        Ok(self.open)
    }

    fn check(
        &self,
        request: &Request,
        bulk_bytes: u32,
        (limits, map): (&Limits, &Map),
    ) -> Result<(), ProtocolError> {
        let row = request.op.row();
        if bulk_bytes > row.request_bulk_bytes_max {
            return Err(ProtocolError::TooLong);
        }
        let slot_fits = match row.retry {
            Retry::Repeat => request.slot == 0,
            Retry::Once => (1..=limits.slot_count).contains(&request.slot),
        };
        let Open { session, conn_epoch, .. } = self.open;
        let mine = request.session == session && request.conn_epoch == conn_epoch;
        let in_order = mine && slot_fits && request.xid.0 != 0;
        if !in_order || self.outstanding_count >= limits.credits {
            return Err(ProtocolError::Sequence);
        }
        let shard_fits = match row.route {
            Route::Meta => !request.shard.is_data() && map.has(request.shard),
            Route::Data => request.shard.is_data() && map.has(request.shard),
            Route::Shard => map.has(request.shard),
            Route::Lane => true,
        };
        if shard_fits { Ok(()) } else { Err(ProtocolError::Route) }
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It has not sent Hello.
    New,
    /// It has sent Hello and received a Challenge.
    Handshake,
    /// It has proven the secret.
    Open,
}

/// All connections of a lane.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Connections under TLS that have not sent Hello.
    sealed: HashMap<ConnId, Sealed, Seed>,
    /// Connections of clients on this host, until their Hello.
    from_this_host: HashSet<ConnId, Seed>,
    handshakes: HashMap<ConnId, Handshake, Seed>,
    /// The handshakes, by their deadline.
    deadlines: BTreeSet<(Mono, ConnId)>,
    open: HashMap<ConnId, Served, Seed>,
    /// What the open ones have used.
    tallies: Tallies,
    /// Those with an inspection of the store, each with its unanswered request.
    inspections: BTreeMap<ConnId, Option<RequestHeader>>,
}

impl Connections {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            sealed: HashMap::with_hasher(seed),
            from_this_host: HashSet::with_hasher(seed),
            handshakes: HashMap::with_hasher(seed),
            deadlines: BTreeSet::new(),
            open: HashMap::with_hasher(seed),
            tallies: Tallies::default(),
            inspections: BTreeMap::new(),
        }
    }

    /// A new connection is under TLS.
    pub(crate) fn add_sealed(&mut self, conn: ConnId, sealed: Sealed) {
        self.sealed.insert(conn, sealed);
    }

    /// A new connection comes from this host.
    pub(crate) fn add_from_this_host(&mut self, conn: ConnId) {
        self.from_this_host.insert(conn);
    }

    /// A connection has sent Hello: takes what is known of its origin, its TLS and whether it comes
    /// from this host.
    pub(crate) fn take_origin(&mut self, conn: ConnId) -> (Option<Sealed>, bool) {
        (self.sealed.remove(&conn), self.from_this_host.remove(&conn))
    }

    /// A connection has received a Challenge.
    pub(crate) fn begin_handshake(&mut self, conn: ConnId, handshake: Handshake) {
        self.end_handshake(conn);
        self.deadlines.insert((handshake.deadline, conn));
        self.handshakes.insert(conn, handshake);
    }

    /// The handshake of a connection that has not proven the secret.
    pub(crate) fn handshake_mut(&mut self, conn: ConnId) -> Option<&mut Handshake> {
        self.handshakes.get_mut(&conn)
    }

    /// The number of connections in the handshake.
    pub(crate) fn handshake_count(&self) -> usize {
        self.deadlines.len()
    }

    /// The oldest handshake: the first that times out.
    pub(crate) fn first_deadline(&self) -> Option<(Mono, ConnId)> {
        self.deadlines.first().copied()
    }

    /// A connection has proven the secret.
    pub(crate) fn open(&mut self, conn: ConnId, open: Open, job: String) {
        self.end_handshake(conn);
        let tally_no = self.tallies.open(conn);
        self.open.insert(conn, Served { open, outstanding_count: 0, job, tally_no });
    }

    fn end_handshake(&mut self, conn: ConnId) {
        if let Some(handshake) = self.handshakes.remove(&conn) {
            self.deadlines.remove(&(handshake.deadline, conn));
        }
    }

    /// Removes a connection; returns what it was and what it has used, if it was open.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<(Served, Tally)> {
        self.sealed.remove(&conn);
        self.from_this_host.remove(&conn);
        self.end_handshake(conn);
        let served = self.open.remove(&conn)?;
        let tally = self.tallies.close(served.tally_no);
        Some((served, tally))
    }

    /// How far a connection has come.
    pub(crate) fn progress(&self, conn: ConnId) -> Progress {
        if self.open.contains_key(&conn) {
            Progress::Open
        } else if self.handshakes.contains_key(&conn) {
            Progress::Handshake
        } else {
            Progress::New
        }
    }

    /// An open connection, for a request that it sent.
    pub(crate) fn served_mut(&mut self, conn: ConnId) -> Option<&mut Served> {
        self.open.get_mut(&conn)
    }

    /// An open connection.
    pub(crate) fn get(&self, conn: ConnId) -> Option<&Open> {
        self.open.get(&conn).map(|served| &served.open)
    }

    /// The open connections, in no order.
    pub(crate) fn all_open(&self) -> impl Iterator<Item = (ConnId, &Open)> {
        self.open.iter().map(|(conn, served)| (*conn, &served.open))
    }

    /// What the open connections have used, in no order.
    pub(crate) fn used(&self) -> impl Iterator<Item = Used<'_>> + Clone {
        self.open.values().map(|served| served.used(self.tallies.of(served.tally_no)))
    }

    /// What a connection has used, if that is the place of its tally.
    #[inline]
    pub(crate) fn tally_mut(&mut self, no: TallyNo, conn: ConnId) -> Option<&mut Tally> {
        self.tallies.of_mut(no, conn)
    }

    /// The place of a connection's tally, if it is open.
    pub(crate) fn tally_no(&self, conn: ConnId) -> Option<TallyNo> {
        self.open.get(&conn).map(Served::tally_no)
    }

    /// The number of open connections.
    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// The number of connections after their Hello.
    pub(crate) fn count(&self) -> usize {
        self.open.len() + self.handshakes.len()
    }

    /// The connections after their Hello, in order.
    pub(crate) fn in_order(&self) -> Vec<ConnId> {
        let mut conns: Vec<ConnId> =
            self.open.keys().chain(self.handshakes.keys()).copied().collect();
        conns.sort_unstable();
        conns
    }

    /// Binds the connections of exports anew, each to what `now` says of its binding. Returns those
    /// whose right to write has changed, and those whose root no longer exists.
    pub(crate) fn rebind(
        &mut self,
        now: impl Fn(&Binding) -> Option<Binding>,
    ) -> (Vec<ConnId>, Vec<ConnId>) {
        let (mut changed, mut over) = (Vec::new(), Vec::new());
        for (conn, Served { open, .. }) in &mut self.open {
            if open.binding.export_no == 0 {
                continue;
            }
            match now(&open.binding) {
                Some(now) if now.root() == open.binding.root() => {
                    if now.read_only != open.binding.read_only {
                        changed.push(*conn);
                    }
                    open.binding = now;
                }
                Some(_) | None => over.push(*conn),
            }
        }
        (changed, over)
    }

    /// One more request of a connection is outstanding.
    pub(crate) fn count_outstanding(&mut self, conn: ConnId) {
        if let Some(served) = self.open.get_mut(&conn) {
            served.outstanding_count += 1;
        }
    }

    /// A request of a connection is no longer outstanding. Returns whether the connection is open.
    pub(crate) fn settled(&mut self, conn: ConnId) -> bool {
        let Some(served) = self.open.get_mut(&conn) else { return false };
        served.outstanding_count = served.outstanding_count.saturating_sub(1);
        true
    }

    /// A connection requests an inspection. Returns whether it may: it has no other such request.
    pub(crate) fn begin_inspection(&mut self, conn: ConnId, header: RequestHeader) -> bool {
        let waiting = self.inspections.entry(conn).or_default();
        let is_first = waiting.is_none();
        waiting.get_or_insert(header);
        is_first
    }

    /// Takes the request of an inspection that is answered.
    pub(crate) fn take_inspection(&mut self, conn: ConnId) -> Option<RequestHeader> {
        self.inspections.get_mut(&conn)?.take()
    }

    /// Ends the inspection of a connection. Returns whether it had one.
    pub(crate) fn end_inspection(&mut self, conn: ConnId) -> bool {
        self.inspections.remove(&conn).is_some()
    }
}
