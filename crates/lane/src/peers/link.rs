//! The connections to the lanes of other servers: one for each pair of lanes, dialled by the one
//! with the higher server and lane, used both ways (docs/protocol.md §12.4).
//!
//! ```text
//! dials:   Down ─ Connect ─▶ Connecting ─ PeerHello ─▶ Proving ─ PeerChallenge, PeerProof ─▶ Up
//! accepts: PeerHello ─ PeerChallenge ─▶ accepting ─ PeerProof ─▶ Up
//! any of these ─ lost, broken or silent ─▶ Down; the one that dials tries again after a pause
//! ```
//! Invariants: nothing of a peer is applied before it has proven the file system's key; a
//! connection is between one start of each server; a start that is known to have ended is refused.

use crate::Lane;
use crate::limits::Limit;
use crate::ticket::TICKET_TAG;
use crate::token::FsKey;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use hmac::{Hmac, Mac as _};
use interface::{ConnId, LogLevel, Mono, NetAction, Party, Span, Ticket, Turn};
use sha2::Sha256;
use wire::{
    Channel, FrameKind, HEADER_BYTES, Header, LaneId, Map, Nonce, PLAIN, PeerChallenge, PeerHello,
    PeerLane, PeerProof, ProtocolError, Rule, ServerAddress, ServerId, Wire,
};

/// Tickets of connection attempts.
const PEER_TICKET: u64 = 7 << 56;
const _: () = assert!(PEER_TICKET & !TICKET_TAG == 0);
/// The pause between two attempts to connect, doubled each time up to the last.
const PAUSE_MS_MIN: u64 = 20;
const PAUSE_MS_MAX: u64 = 1000;
/// The lane that does not dial waits for the other one.
const NEVER: Mono = Mono(u64::MAX);
/// Most connections that have not proven the key.
const ACCEPTING_COUNT_MAX: usize = 256;

/// The way to a lane.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Of this server: its mailbox.
    Mailbox(LaneId),
    /// Of another one: a connection.
    Conn(ConnId),
}

/// How far a connection to a lane has come.
#[derive(Debug)]
enum State {
    /// There is none. The lane that dials tries from this time on.
    Down { at: Mono },
    /// It is being connected.
    Connecting { ticket: Ticket },
    /// This lane has dialled, and waits for the other's proof.
    Proving { conn: ConnId, hello: Vec<u8>, channel: Channel, until: Mono },
    /// Both have proven the key.
    Up { conn: ConnId },
}

/// A lane of another server.
#[derive(Debug)]
struct Link {
    state: State,
    /// Attempts that have failed in a row.
    failure_count: u32,
    /// The last known start of its server.
    boot_id: u64,
    /// It has said over this connection what this lane must know of it.
    is_restated: bool,
}

/// A connection of another server's lane that has not proven the key.
#[derive(Debug)]
struct Accepting {
    hello: Vec<u8>,
    from: PeerLane,
    boot_id: u64,
    nonce: Nonce,
    channel: Channel,
    until: Mono,
}

/// This lane's connections to lanes of other servers.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: BTreeMap<PeerLane, Link>,
    /// Those in use, by connection.
    conns: BTreeMap<ConnId, PeerLane>,
    accepting: BTreeMap<ConnId, Accepting>,
    ticket_count: u64,
    /// Those that were said to be away.
    away: BTreeSet<ServerId>,
    /// Nothing is due before: a lane of many servers has hundreds of links, and does not look at all
    /// of them in each turn.
    due_at: Mono,
}

impl Links {
    pub(crate) fn new(me: PeerLane, map: &Map) -> Self {
        let mut links = Self::default();
        links.add_missing(me, map);
        links
    }

    /// Adds the lanes that a map names.
    fn add_missing(&mut self, me: PeerLane, map: &Map) {
        for row in map.servers().iter().filter(|row| row.id != me.server) {
            for lane in (0..row.lane_count).map(LaneId) {
                let link = Link {
                    state: State::Down { at: if me.server > row.id { Mono(0) } else { NEVER } },
                    failure_count: 0,
                    boot_id: 0,
                    is_restated: false,
                };
                self.links.entry(PeerLane { server: row.id, lane }).or_insert(link);
            }
        }
    }

    /// Whether there is no other server.
    pub(crate) fn is_alone(&self) -> bool {
        self.links.is_empty()
    }

    /// The lanes of other servers.
    pub(crate) fn all(&self) -> Vec<PeerLane> {
        self.links.keys().copied().collect()
    }

    /// The proven connection to a lane.
    pub(crate) fn conn_to(&self, lane: PeerLane) -> Option<ConnId> {
        match self.links.get(&lane)?.state {
            State::Up { conn } => Some(conn),
            State::Down { .. } | State::Connecting { .. } | State::Proving { .. } => None,
        }
    }

    pub(super) fn way_to(&self, lane: PeerLane) -> Option<Way> {
        self.conn_to(lane).map(Way::Conn)
    }

    /// Whether a lane has said what this lane must know of it.
    pub(crate) fn is_restated(&self, lane: PeerLane) -> bool {
        self.links.get(&lane).is_some_and(|link| link.is_restated)
    }

    /// A lane has said what this lane must know of it.
    pub(crate) fn set_restated(&mut self, lane: PeerLane) {
        if let Some(link) = self.links.get_mut(&lane) {
            link.is_restated = true;
        }
    }

    /// The next attempt, or the end of an unfinished one; possibly of one that was given up.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        Some(self.due_at).filter(|at| *at < NEVER && !self.is_alone())
    }

    /// Something is due at this time.
    fn set_due(&mut self, at: Mono) {
        self.due_at = self.due_at.min(at);
    }

    fn next_due(&self) -> Mono {
        let accepting = self.accepting.values().map(|accepting| accepting.until);
        let links = self.links.values().filter_map(|link| match link.state {
            State::Down { at } if at < NEVER => Some(at),
            State::Proving { until, .. } => Some(until),
            State::Down { .. } | State::Connecting { .. } | State::Up { .. } => None,
        });
        accepting.chain(links).min().unwrap_or(NEVER)
    }

    fn ticket_of(&self, ticket: Ticket) -> Option<PeerLane> {
        let connects =
            |link: &Link| matches!(link.state, State::Connecting { ticket: of } if of == ticket);
        self.links.iter().find(|(_, link)| connects(link)).map(|(lane, _)| *lane)
    }
}

/// A MAC of one side of the handshake.
fn mac_of(
    key: &FsKey,
    label: &[u8],
    (hello, boot_id, nonce, channel): (&[u8], u64, &Nonce, &Channel),
) -> Hmac<Sha256> {
    let mut mac = key.mac(b"lanefs peer 1");
    mac.update(label);
    // The only part whose length varies is the last.
    mac.update(&boot_id.to_le_bytes());
    mac.update(nonce);
    mac.update(channel);
    mac.update(hello);
    mac
}

const ACCEPTS: &[u8] = b"accept";
const DIALS: &[u8] = b"dials!";

impl Lane {
    /// Whether this lane dials another.
    fn dials(&self, lane: PeerLane) -> bool {
        self.me() > lane
    }

    /// Once a turn, where there are other servers: dials, and ends what takes too long.
    pub(super) fn settle_links(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let silent: Vec<ConnId> = {
            let channels = self.peers.channels.busy().filter(|(_, channel)| channel.is_silent());
            channels.filter_map(|(lane, _)| self.peers.links.conn_to(lane)).collect()
        };
        silent.into_iter().for_each(|conn| self.close(turn, conn));
        let links = &self.peers.links;
        if links.due_at > now {
            return;
        }
        let late = links.links.values().filter_map(|link| match link.state {
            State::Proving { conn, until, .. } if until <= now => Some(conn),
            State::Down { .. }
            | State::Connecting { .. }
            | State::Proving { .. }
            | State::Up { .. } => None,
        });
        let accepting = links.accepting.iter();
        let late_accepting = accepting.filter(|(_, accepting)| accepting.until <= now);
        let late: Vec<ConnId> = late.chain(late_accepting.map(|(conn, _)| *conn)).collect();
        late.into_iter().for_each(|conn| self.close(turn, conn));
        if !self.is_stopping() {
            let links = self.peers.links.links.iter();
            let due = links
                .filter(|(_, link)| matches!(link.state, State::Down { at } if at <= now))
                .map(|(lane, _)| *lane);
            let due: Vec<PeerLane> = due.filter(|lane| self.dials(*lane)).collect();
            due.into_iter().for_each(|lane| self.dial(turn, lane));
        }
        self.peers.links.due_at = self.peers.links.next_due();
    }

    fn dial(&mut self, turn: &mut Turn<'_>, lane: PeerLane) {
        let row = self.config.map.server(lane.server);
        let row = row.filter(|row| lane.lane.0 < row.lane_count);
        // A server without an address of its own is the only one.
        let address = row.map_or(ServerAddress::Initial, |row| row.address);
        let links = &mut self.peers.links;
        links.ticket_count += 1;
        let ticket = Ticket(PEER_TICKET | links.ticket_count);
        let Some(link) = links.links.get_mut(&lane) else { return };
        if address == ServerAddress::Initial {
            link.state = State::Down { at: NEVER };
            return;
        }
        link.state = State::Connecting { ticket };
        turn.act(NetAction::Connect { ticket, address });
    }

    /// A connection to a lane is established.
    pub(crate) fn on_peer_connected(&mut self, turn: &mut Turn<'_>, ticket: Ticket, conn: ConnId) {
        let (sealed, _) = self.connections.take_origin(conn);
        let Some(lane) = self.peers.links.ticket_of(ticket) else {
            turn.act(NetAction::Close { conn });
            return;
        };
        let hello = PeerHello {
            fs: self.config.fs,
            from: self.me(),
            boot_id: self.config.boot_id,
            to: lane,
            nonce: self.nonces.nonce(),
        };
        send(turn, conn, FrameKind::PeerHello, &hello);
        let channel = sealed.map_or(PLAIN, |sealed| sealed.channel);
        let until = turn.now.mono.after_ms(self.config.limits.handshake_ms_max);
        self.peers.links.conns.insert(conn, lane);
        if let Some(link) = self.peers.links.links.get_mut(&lane) {
            link.state = State::Proving { conn, hello: hello.to_bytes(), channel, until };
        }
        self.peers.links.set_due(until);
    }

    /// A connection to a lane could not be established.
    pub(crate) fn on_peer_connect_failed(&mut self, turn: &Turn<'_>, ticket: Ticket) {
        if let Some(lane) = self.peers.links.ticket_of(ticket) {
            self.peer_is_down(turn.now.mono, lane);
        }
    }

    fn peer_is_down(&mut self, now: Mono, lane: PeerLane) {
        let (rolled, dials) = (u64::from(self.nonces.nonce()[0]), self.dials(lane));
        let Some(link) = self.peers.links.links.get_mut(&lane) else { return };
        let pause_ms = (PAUSE_MS_MIN << link.failure_count.min(6)).min(PAUSE_MS_MAX);
        link.failure_count = link.failure_count.saturating_add(1);
        let at = now.after_ms(pause_ms + rolled % PAUSE_MS_MIN);
        let at = if dials { at } else { NEVER };
        link.state = State::Down { at };
        link.is_restated = false;
        self.peers.links.set_due(at);
    }

    /// A frame of a connection that no client has: a lane of another server must have sent it.
    /// Returns false if the connection belongs to none.
    pub(crate) fn on_peer_frame(&mut self, turn: &mut Turn<'_>, conn: ConnId, frame: Span) -> bool {
        if self.peers.links.is_alone() {
            return false;
        }
        let is_peers = self.peers.links.conns.contains_key(&conn)
            || self.peers.links.accepting.contains_key(&conn);
        if is_peers && let Err(flaw) = self.take_peer_frame(turn, conn, frame) {
            self.protocol_error(turn, conn, flaw);
        }
        is_peers
    }

    fn take_peer_frame(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        frame: Span,
    ) -> Result<(), ProtocolError> {
        let bytes = turn.arena.get(frame);
        let (header, _) = Header::decode(bytes)?;
        if self.peers.links.accepting.contains_key(&conn) {
            if header != Header::Handshake(FrameKind::PeerProof) {
                return Err(ProtocolError::Kind);
            }
            let proof = PeerProof::decode_all(&bytes[HEADER_BYTES..]);
            return self.on_peer_proof(turn, conn, proof.map_err(|_| ProtocolError::Malformed)?);
        }
        let Some(lane) = self.peers.links.conns.get(&conn).copied() else { return Ok(()) };
        let is_up = self.peers.links.conn_to(lane) == Some(conn);
        match header {
            Header::Handshake(FrameKind::PeerChallenge) if !is_up => {
                let challenge = PeerChallenge::decode_all(&bytes[HEADER_BYTES..]);
                let challenge = challenge.map_err(|_| ProtocolError::Malformed)?;
                self.on_peer_challenge(turn, (conn, lane), &challenge)
            }
            Header::PeerMessage if is_up || !self.config.rules.hold(Rule::OldConnectionEnded) => {
                let received = bytes[HEADER_BYTES..].to_vec();
                if let Err(reason) = self.receive(turn, lane, &received) {
                    let line = format!("a message of {lane:?} does not decode ({reason})");
                    self.log(turn, LogLevel::Alarm, &line);
                    return Err(ProtocolError::Malformed);
                }
                Ok(())
            }
            Header::Handshake(_)
            | Header::Request(_)
            | Header::Reply(_)
            | Header::CommitNotification
            | Header::Grant
            | Header::Recall
            | Header::RecallAck
            | Header::Received
            | Header::PeerMessage
            | Header::MapNote => Err(ProtocolError::Kind),
        }
    }

    /// The first frame of a connection is a lane's of another server.
    pub(crate) fn on_peer_hello(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        (frame, channel): (Span, Channel),
    ) {
        let bytes = turn.arena.get(frame);
        let hello = bytes[HEADER_BYTES..].to_vec();
        let Ok(PeerHello { fs, from, boot_id, to, .. }) = PeerHello::decode_all(&hello) else {
            return self.protocol_error(turn, conn, ProtocolError::Malformed);
        };
        let known = self.peers.links.links.get(&from);
        let fits = fs == self.config.fs && to == self.me() && from > to;
        let Some(known) = known.filter(|_| fits) else {
            return self.protocol_error(turn, conn, ProtocolError::Route);
        };
        if boot_id < known.boot_id {
            return self.close(turn, conn); // Of a start that has ended.
        }
        if self.peers.links.accepting.len() >= ACCEPTING_COUNT_MAX
            && let Some(oldest) = self.peers.links.accepting.keys().next().copied()
        {
            self.close(turn, oldest);
        }
        let nonce = self.nonces.nonce();
        let of = (&*hello, self.config.boot_id, &nonce, &channel);
        let proof = mac_of(&self.config.fs_key, ACCEPTS, of).finalize().into_bytes().into();
        let challenge = PeerChallenge { boot_id: self.config.boot_id, nonce, proof };
        send(turn, conn, FrameKind::PeerChallenge, &challenge);
        let until = turn.now.mono.after_ms(self.config.limits.handshake_ms_max);
        let accepting = Accepting { hello, from, boot_id, nonce, channel, until };
        self.peers.links.accepting.insert(conn, accepting);
        self.peers.links.set_due(until);
    }

    fn on_peer_challenge(
        &mut self,
        turn: &mut Turn<'_>,
        (conn, lane): (ConnId, PeerLane),
        challenge: &PeerChallenge,
    ) -> Result<(), ProtocolError> {
        let Some(link) = self.peers.links.links.get(&lane) else { return Ok(()) };
        let State::Proving { hello, channel, .. } = &link.state else {
            return Err(ProtocolError::Sequence);
        };
        let PeerChallenge { boot_id, nonce, proof } = challenge;
        let (key, of) = (&self.config.fs_key, (&**hello, *boot_id, nonce, channel));
        if mac_of(key, ACCEPTS, of).verify_slice(proof).is_err() {
            self.refuse_key(turn, conn);
            return Ok(());
        }
        if *boot_id < link.boot_id {
            self.close(turn, conn);
            return Ok(());
        }
        let proof = mac_of(key, DIALS, of).finalize().into_bytes().into();
        send(turn, conn, FrameKind::PeerProof, &PeerProof { proof });
        self.peer_is_up(turn, (conn, lane), *boot_id);
        Ok(())
    }

    fn on_peer_proof(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        proof: PeerProof,
    ) -> Result<(), ProtocolError> {
        let Some(accepting) = self.peers.links.accepting.remove(&conn) else { return Ok(()) };
        let Accepting { hello, from, boot_id, nonce, channel, .. } = accepting;
        let of = (&*hello, self.config.boot_id, &nonce, &channel);
        let proven = mac_of(&self.config.fs_key, DIALS, of).verify_slice(&proof.proof);
        if proven.is_err() {
            self.refuse_key(turn, conn);
            return Ok(());
        }
        let known = self.peers.links.links.get(&from).map_or(u64::MAX, |link| link.boot_id);
        if boot_id < known {
            self.close(turn, conn);
            return Ok(());
        }
        // The other side has given up the connection of before, if there is one.
        if let Some(before) = self.peers.links.conn_to(from) {
            if self.config.rules.hold(Rule::OldConnectionEnded) {
                self.close(turn, before);
            } else {
                self.channel(from).end();
                self.forget_peer(turn, from);
            }
        }
        self.peers.links.conns.insert(conn, from);
        self.peer_is_up(turn, (conn, from), boot_id);
        Ok(())
    }

    fn refuse_key(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        let line = "a server without the file system's key was refused";
        self.report_limit(turn, (Limit::Secret, Party::NONE), line);
        self.stats.protocol_error_count += 1;
        self.close(turn, conn);
    }

    fn peer_is_up(&mut self, turn: &mut Turn<'_>, (conn, lane): (ConnId, PeerLane), boot_id: u64) {
        turn.act(NetAction::admit(conn));
        if let Some(link) = self.peers.links.links.get_mut(&lane) {
            *link =
                Link { state: State::Up { conn }, failure_count: 0, boot_id, is_restated: false };
        }
        self.peers.links.due_at = self.peers.links.next_due();
        self.say_back(turn, lane.server);
        self.restate_to(turn, lane);
    }

    /// A connection has ended, that no client had.
    pub(crate) fn on_peer_lost(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        if self.peers.links.accepting.remove(&conn).is_some() {
            return;
        }
        let Some(lane) = self.peers.links.conns.remove(&conn) else { return };
        let up = self.peers.links.conn_to(lane);
        let was_up = up == Some(conn);
        if up.is_some() && !was_up {
            return; // A newer one is there.
        }
        self.peer_is_down(turn.now.mono, lane);
        if was_up {
            self.say_away(turn, lane.server);
            if self.config.rules.hold(Rule::ConnectionAnew) {
                self.channel(lane).end();
            }
            self.forget_peer(turn, lane);
        }
    }

    /// A connection to a server was lost. The first lane says it once, for all: a server that dies is
    /// lost by each. One that ends itself does not need it any more.
    fn say_away(&mut self, turn: &mut Turn<'_>, server: ServerId) {
        let says = self.me().lane == LaneId(0) && !self.is_stopping();
        if says && self.peers.links.away.insert(server) {
            let line = format!("server {server} is away; what needs it waits");
            self.log(turn, LogLevel::Warning, &line);
        }
    }

    /// A lane of a server is connected. That all are is said if the server was said to be away.
    fn say_back(&mut self, turn: &mut Turn<'_>, server: ServerId) {
        let mut links = self.peers.links.links.iter().filter(|(lane, _)| lane.server == server);
        let are_all_up = links.all(|(_, link)| matches!(link.state, State::Up { .. }));
        if are_all_up && self.peers.links.away.remove(&server) {
            self.log(turn, LogLevel::Info, &format!("server {server} is back"));
        }
    }

    /// A server has other lanes by a newer map: the shards are at other lanes of it than the present
    /// connections have been told for, and what was locked for them may be of none of its lanes.
    pub(crate) fn end_links_to(&mut self, turn: &mut Turn<'_>, server: ServerId) {
        let lanes = self.peers.links.links.keys();
        let lanes: Vec<PeerLane> = lanes.filter(|lane| lane.server == server).copied().collect();
        for lane in lanes {
            match self.peers.links.conn_to(lane) {
                Some(conn) => self.close(turn, conn),
                None => self.forget_peer(turn, lane),
            }
        }
        let lane_count = self.config.map.lane_count(server).unwrap_or(0);
        for lane in (0..lane_count).map(LaneId) {
            self.forget_txns_with(turn, PeerLane { server, lane });
        }
    }

    /// Another map names other servers, or addresses.
    pub(crate) fn renew_links(&mut self, turn: &mut Turn<'_>) {
        let me = self.me();
        self.peers.links.add_missing(me, &self.config.map);
        let map = &self.config.map;
        let is_over = |lane: &PeerLane| {
            map.lane_count(lane.server).is_none_or(|lane_count| lane.lane.0 >= lane_count)
        };
        let over: Vec<PeerLane> =
            self.peers.links.links.keys().filter(|lane| is_over(lane)).copied().collect();
        let mut told = Vec::new();
        for lane in over {
            if let Some(conn) = self.peers.links.conn_to(lane) {
                self.close(turn, conn);
            }
            self.peers.links.links.remove(&lane);
            told.append(&mut self.peers.channels.remove(lane));
        }
        for (lane, link) in &mut self.peers.links.links {
            if let State::Down { at } = &mut link.state
                && me > *lane
            {
                *at = turn.now.mono;
            }
        }
        self.peers.links.set_due(turn.now.mono);
        self.send_deferred(turn);
        self.on_told(turn, told);
    }

    /// Whether a frame begins a connection of another server's lane.
    pub(crate) fn is_peer_hello(frame: &[u8]) -> bool {
        matches!(Header::decode(frame), Ok((Header::Handshake(FrameKind::PeerHello), _)))
    }

    /// The lane of this server that a peer dials.
    pub(crate) fn dialled_lane(&self, frame: &[u8]) -> Option<LaneId> {
        let hello = PeerHello::decode_all(frame.get(HEADER_BYTES..)?).ok()?;
        let is_ours = hello.to.server == self.config.server;
        (is_ours && hello.to.lane.0 < self.config.lane_count()).then_some(hello.to.lane)
    }
}

fn send<'a>(turn: &mut Turn<'_>, conn: ConnId, kind: FrameKind, message: &impl Wire<'a>) {
    let encode =
        |out: &mut Vec<u8>| Header::Handshake(kind).encode(out, None, |to| to.write(message));
    let frame = turn.arena.write(encode);
    turn.act(NetAction::Send { conn, frame, bulk: None });
}
