//! Connections: connecting, the handshake, the effects of a Welcome and of a loss.
//!
//! The server proves the secret before the client does. The first connection goes to lane 0, whose
//! Welcome carries the map. After a Welcome of a new boot all handles are reopened before any other
//! request is sent.

use crate::client::Client;
use crate::link::{Link, LinkState};
use crate::refused::Refused;
use crate::report::Report;
use crate::server::Server;
use crate::servers::INITIAL;
use alloc::vec::Vec;
use interface::{CloseReason, ConnId, Errno, Mono, NetAction, Ticket, Turn};
use wire::{
    Bytes, Challenge, FrameKind, FsUuid, Header, Hello, Proof, Proven, Refusal, RefusalReason,
    Rule, Welcome, Wire, welcome_flag,
};

/// For so long a connection may be missing before another server is asked where its server is.
const ALONE_MS_MAX: u64 = 1_000;
/// The time limit of a handshake.
const HANDSHAKE_MS_MAX: u64 = 10_000;

impl Client {
    pub(crate) fn connect(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        if let Some((ticket, address)) = self.servers.begin_connect(link_index) {
            turn.act(NetAction::Connect { ticket, address });
        }
    }

    pub(crate) fn on_connected(&mut self, turn: &mut Turn<'_>, ticket: Ticket, conn: ConnId) {
        let Some(link_index) = self.servers.link_connecting(ticket) else {
            // The attempt was abandoned.
            turn.act(NetAction::Close { conn });
            return;
        };
        let channel = self.identity.take_channel(conn);
        let nonce = self.identity.nonce();
        let boot_id_last = self.boot_last_at(link_index);
        let secret = *self.identity.secrets.secret();
        let Some(link) = self.servers.link_mut(link_index) else { return };
        let hello = Hello {
            server_lane: link.lane(),
            client: self.config.client,
            client_lane: self.config.lane,
            conn_epoch: link.conn_epoch,
            nonce,
            host_id: self.config.host_id,
            host_boot_id: self.config.host_boot_id,
            boot_id_last,
            predecessor: self.config.predecessor,
            export: Bytes(&self.config.export),
            credential: secret.credential(),
            purpose: self.config.purpose,
            key_id: secret.key_id(&nonce),
            host_name: Bytes(&self.config.host_name),
            job: Bytes(&self.config.job),
        };
        link.proven = Some(secret);
        let hello = hello.to_bytes();
        send_handshake(turn, conn, FrameKind::Hello, &hello);
        let until = turn.now.mono.after_ms(HANDSHAKE_MS_MAX);
        link.state = LinkState::AwaitChallenge { conn, hello, channel, until };
    }

    /// The oldest boot that has all that some session of a lane's shards did; 0: the lane has no
    /// session of this client.
    fn boot_last_at(&self, link_index: usize) -> u64 {
        let sessions = self.servers.sessions_of(link_index).into_iter();
        let sessions = sessions.filter_map(|(_, index)| self.servers.session(index));
        let used = sessions.filter(|session| session.used);
        used.map(|session| session.boot_id).min().unwrap_or(0)
    }

    pub(crate) fn on_connect_failed(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        reason: CloseReason,
    ) {
        let Some(link_index) = self.servers.link_connecting(ticket) else { return };
        if reason == CloseReason::Failed(Errno::MUST_NOT_SEAL) {
            self.refuse(turn, Refused::MustNotSeal);
        } else {
            self.on_lost(turn, link_index, reason);
        }
    }

    pub(crate) fn on_closed(&mut self, turn: &mut Turn<'_>, conn: ConnId, reason: CloseReason) {
        if let Some(link_index) = self.servers.link_of(conn) {
            self.on_lost(turn, link_index, reason);
        }
    }

    /// A certificate problem is final if the server has never welcomed this client. Later the
    /// client waits until the certificates are renewed, as for a server that is away.
    fn on_lost(&mut self, turn: &mut Turn<'_>, link_index: usize, reason: CloseReason) {
        match Refused::of_certificates(reason) {
            Some(refused) if self.identity.fs().is_none() => return self.refuse(turn, refused),
            Some(refused) => self.report_certificate(refused),
            None => {}
        }
        self.on_link_down(turn, link_index);
    }

    /// Reports a certificate problem once.
    fn report_certificate(&mut self, refused: Refused) {
        if self.identity.refuse_certificate(refused) {
            self.reports.push(Report::NotConnected { refused });
        }
    }

    /// A connection, or an attempt at one, failed. Its requests wait for the next one.
    pub(crate) fn on_link_down(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        self.take_back(link_index);
        self.lose_leases(link_index, turn.now.mono);
        let random = self.identity.random();
        let has_state = self.handles.count() > 0 || self.locks.is_any();
        let unrouted = link_index == INITIAL && self.requests.wait_for_a_map();
        // After a restart other clients may wait for this one's replays.
        let known = self.servers.is_known_at(link_index);
        let Some(link) = self.servers.link_mut(link_index) else { return };
        link.goodbye_sent = false;
        let now = turn.now.mono;
        // With open files or locks the client reconnects without waiting for a call.
        if !link.is_wanted() && !has_state && !unrouted && !known {
            link.state = LinkState::Idle;
            return;
        }
        let pause_ms = if link.failure_count == 0 { 0 } else { link.pause_ms(random) };
        link.failure_count = link.failure_count.saturating_add(1);
        link.state = LinkState::Pausing { until: now.after_ms(pause_ms) };
        self.servers.wait_since(now);
        self.ask_another(link_index, now);
    }

    /// A server does not answer for a while, and may be elsewhere: connects to another one, which knows.
    fn ask_another(&mut self, link_index: usize, now: Mono) {
        let since = self.servers.waiting_since();
        if since.is_none_or(|since| now < since.after_ms(ALONE_MS_MAX)) {
            return;
        }
        let random = self.identity.random();
        let another = self.servers.link_to_another(link_index, random);
        if let Some(link) = another.and_then(|another| self.servers.link_mut(another))
            && link.state_is_idle()
        {
            link.state = LinkState::Pausing { until: now };
        }
    }

    /// The server of a link is at another address: an attempt to connect begins anew there.
    pub(crate) fn connect_anew(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        let Some(link) = self.servers.link_mut(link_index) else { return };
        if link.is_up() || link.state_is_idle() {
            return;
        }
        if let Some(conn) = link.conn() {
            turn.act(NetAction::Close { conn });
        }
        link.failure_count = 0;
        link.state = LinkState::Pausing { until: turn.now.mono };
    }

    /// The server broke the protocol: closes the connection; the client reconnects after a pause.
    pub(crate) fn on_protocol_error(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        self.counters.protocol_error_count += 1;
        self.drop_link(turn, link_index);
    }

    pub(crate) fn drop_link(&mut self, turn: &mut Turn<'_>, link_index: usize) {
        let conn = self.servers.link(link_index).and_then(Link::conn);
        if let Some(conn) = conn {
            turn.act(NetAction::Close { conn });
        }
        self.on_link_down(turn, link_index);
    }

    pub(crate) fn on_challenge(
        &mut self,
        turn: &mut Turn<'_>,
        link_index: usize,
        challenge: Challenge,
    ) {
        let Some(link) = self.servers.link_mut(link_index) else { return };
        let LinkState::AwaitChallenge { conn, hello, channel, until } = &link.state else {
            self.on_protocol_error(turn, link_index);
            return;
        };
        let (conn, until) = (*conn, *until);
        let proven = Proven { hello, nonce: &challenge.nonce, channel };
        let secret = link.proven.map(|held| held.on(channel));
        let secret = secret.filter(|secret| secret.server_proven(proven, &challenge.proof));
        let Some(secret) = secret else {
            self.on_wrong_secret(turn, link_index);
            return;
        };
        if self.identity.fs().is_some_and(|fs| fs != challenge.fs) {
            self.refuse(turn, Refused::OtherFileSystem);
            return;
        }
        let proof = Proof { proof: secret.client_proof(proven) };
        send_handshake(turn, conn, FrameKind::Proof, &proof.to_bytes());
        link.state = LinkState::AwaitWelcome { conn, fs: challenge.fs, until };
    }

    pub(crate) fn on_refusal(&mut self, turn: &mut Turn<'_>, link_index: usize, refusal: Refusal) {
        if refusal.reason == RefusalReason::Evicted {
            self.on_evicted(turn, false);
            return;
        }
        match Refused::of(refusal.reason, self.identity.secrets.secret().credential()) {
            Some(refused) if refused.is_of_secret() => self.on_wrong_secret(turn, link_index),
            Some(refused) => self.refuse(turn, refused),
            None => {
                if let Some(link) = self.servers.link_mut(link_index) {
                    // A pause before the next attempt.
                    link.failure_count = link.failure_count.max(1);
                    link.temporary_refusal = Some(refusal.reason);
                }
                self.drop_link(turn, link_index);
            }
        }
    }

    pub(crate) fn on_welcome(&mut self, turn: &mut Turn<'_>, link_index: usize, welcome: Welcome) {
        let Some(link) = self.servers.link_mut(link_index) else { return };
        let LinkState::AwaitWelcome { conn, fs, .. } = link.state else {
            self.on_protocol_error(turn, link_index);
            return;
        };
        let link_boot_id = link.boot_id;
        if !self.servers.may_be_of_this(&welcome.map) {
            self.refuse(turn, Refused::OtherFileSystem);
            return;
        }
        if self.identity.root().is_some_and(|root| root != welcome.root) {
            self.refuse(turn, Refused::OtherRoot);
            return;
        }
        let known_boot = self.servers.server_of(link_index).map_or(0, Server::boot_id);
        if !self.servers.identify(link_index, welcome.server) || welcome.boot_id < known_boot {
            // Another server at this address, or a late Welcome of a boot that has ended.
            self.drop_link(turn, link_index);
            return;
        }
        let new_boot = link_boot_id != welcome.boot_id;
        self.adopt(turn, link_index, fs, &welcome);
        let Some(link) = self.servers.link_mut(link_index) else { return };
        if welcome.lane != link.lane() {
            // The wanted lane no longer exists, as the new map shows.
            self.drop_link(turn, link_index);
            if !self.servers.has_lane(link_index)
                && let Some(link) = self.servers.link_mut(link_index)
            {
                link.state = LinkState::Idle;
                self.route_all();
            }
            return;
        }
        link.state = LinkState::Up { conn };
        link.boot_id = welcome.boot_id;
        link.leases.welcomed(!new_boot);
        link.credits = welcome.credits;
        (link.outstanding, link.outstanding_behind) = (0, 0);
        link.clock = None;
        link.data_shards_used = false;
        turn.act(NetAction::admit(conn));
        self.begin_recovery(link_index);
        self.counters.connect_count += 1;
        self.identity.accept_certificate();
        let mut links = self.servers.links().iter();
        if links.all(|link| link.is_up() || !link.is_wanted()) {
            self.servers.end_waiting();
        }
        if welcome.flags & welcome_flag::HANDLES_UNKNOWN != 0 {
            if !new_boot {
                self.handles.set_dropped(); // This client was away for too long.
            }
            self.reopen(|client, inode| client.is_at(inode, link_index));
            self.claim(|client, inode| client.is_at(inode, link_index));
        }
        self.relock(link_index, new_boot);
    }

    /// Applies the fields of a Welcome that concern the whole server.
    fn adopt(&mut self, turn: &mut Turn<'_>, link_index: usize, fs: FsUuid, welcome: &Welcome) {
        self.identity.welcomed(fs, welcome.root);
        let restarted = self.servers.welcomed(link_index, welcome);
        self.adopt_map(turn, &welcome.map, Some(link_index));
        let server_index = self.servers.link(link_index).map(Link::server_index);
        let Some(server_index) = server_index.filter(|_| restarted) else { return };
        // Other connections still lead to the old boot; their requests died with it.
        for other_index in 0..self.servers.links().len() {
            let old = self.servers.link(other_index).is_some_and(|link| {
                other_index != link_index
                    && link.server_index() == server_index
                    && link.is_up()
                    && link.boot_id != welcome.boot_id
            });
            if old && self.config.rules.hold(Rule::DrainPeerLanes) {
                self.drop_link(turn, other_index);
            }
        }
        self.wake_links(server_index, turn.now.mono);
        self.reopen(|client, inode| client.servers.server_of_inode(inode) == server_index);
        self.claim(|client, inode| client.servers.server_of_inode(inode) == server_index);
    }

    /// After a server's restart, connects to all of its lanes that may have a session of this
    /// client.
    pub(crate) fn wake_links(&mut self, server_index: usize, now: Mono) {
        for link_index in self.servers.known_lanes(Some(server_index)) {
            if let Some(link) = self.servers.link_mut(link_index)
                && link.state_is_idle()
            {
                link.state = LinkState::Pausing { until: now };
            }
        }
    }

    /// Stops the client: answers every call, and makes no connection until [`Self::try_again`].
    pub(crate) fn refuse(&mut self, turn: &mut Turn<'_>, refused: Refused) {
        self.identity.set_refused(Some(refused));
        self.servers.end_waiting();
        for link_index in 0..self.servers.links().len() {
            self.stop_recovery(link_index);
            self.lose_leases(link_index, turn.now.mono);
        }
        for link in self.servers.links_mut() {
            if let Some(conn) = link.conn() {
                turn.act(NetAction::Close { conn });
            }
            link.state = LinkState::Idle;
            (link.outstanding, link.outstanding_behind) = (0, 0);
        }
        self.refuse_locks(refused.status());
        self.clear_queues();
        // The handles of an unreachable file system cannot be closed. Jobs begun by closing handles
        // are refused in the next round.
        while self.jobs.count() > 0 {
            let jobs: Vec<_> = self.jobs.iter().map(|(job_id, _)| job_id).collect();
            for job_id in jobs {
                self.forget_requests(job_id);
                self.finish(job_id, Err(refused.status()));
            }
        }
        self.clear_queues();
    }
}

fn send_handshake(turn: &mut Turn<'_>, conn: ConnId, kind: FrameKind, body: &[u8]) {
    let frame =
        turn.arena.write(|out| Header::Handshake(kind).encode(out, None, |to| to.put(body)));
    turn.act(NetAction::Send { conn, frame, bulk: None });
}
