//! Connections of this lane: which frames each may send, and how it ends.

use crate::Lane;
use crate::config::Limits;
use crate::dispatch::ReceivedRequest;
use crate::export::Binding;
use crate::keys::KeyNo;
use crate::limits::Limit;
use alloc::format;
use alloc::vec::Vec;
use interface::{Action, ConnId, LogLevel, Mono, NetAction, Party, Turn};
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

/// A connection.
#[derive(Debug)]
pub(crate) enum Conn {
    /// It has sent Hello and received a Challenge.
    Handshake(Handshake),
    /// It has proven the secret.
    Open(Open),
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
    /// Requests without a reply yet.
    pub(crate) outstanding_count: u16,
}

impl Open {
    /// Checks a request's head against this connection.
    pub(crate) fn check(
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
        let mine = request.session == self.session && request.conn_epoch == self.conn_epoch;
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

impl Lane {
    /// A peer broke the protocol: counts and logs it, and closes the connection.
    pub(crate) fn protocol_error(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        protocol_error: ProtocolError,
    ) {
        self.stats.protocol_error_count += 1;
        let line = format!("a connection was closed: {}", protocol_error.text());
        let party = self.party_at(conn);
        self.report_limit(turn, (Limit::ProtocolError, party), &line);
        self.close(turn, conn);
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        turn.act(NetAction::Close { conn });
        self.forget(turn, conn);
    }

    /// Removes a connection that has ended.
    pub(crate) fn forget(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        if !self.recovery.is_over() {
            self.drop_replays_of(turn, conn);
        }
        self.cancel_received(turn, conn);
        self.end_inspection_of(turn, conn);
        self.sealed.remove(&conn);
        self.from_this_host.remove(&conn);
        match self.conns.remove(&conn) {
            Some(Conn::Handshake(handshake)) => {
                self.handshakes.remove(&(handshake.deadline, conn));
            }
            Some(Conn::Open(open)) => {
                if let Some(session) = self.sessions.get_mut(&open.session)
                    && session.conn == Some(conn)
                {
                    session.conn = None;
                    session.left_at = turn.now.mono;
                }
                self.clients.on_disconnected(open.client, turn.now.mono, &self.config.limits);
            }
            None => {}
        }
    }

    /// Counts a request that waits as outstanding, also one of an op that is mostly answered at
    /// once.
    pub(crate) fn count_outstanding(&mut self, received: &ReceivedRequest<'_>) {
        if let Some(Conn::Open(open)) = self.conns.get_mut(&received.conn)
            && received.request.op.row().is_answered_at_once()
        {
            open.outstanding_count += 1;
        }
    }

    /// A request of this connection is no longer outstanding. Returns whether the connection is
    /// open.
    pub(crate) fn settled(&mut self, conn: ConnId) -> bool {
        match self.conns.get_mut(&conn) {
            Some(Conn::Open(open)) => {
                open.outstanding_count = open.outstanding_count.saturating_sub(1);
                true
            }
            Some(Conn::Handshake(_)) | None => false,
        }
    }

    /// Writes a line to the operator's log.
    pub(crate) fn log(&self, turn: &mut Turn<'_>, level: LogLevel, line: &str) {
        let line = turn.arena.put(format!("lane {}: {line}", self.config.lane).as_bytes());
        turn.act(Action::Log { level, line });
    }
}
