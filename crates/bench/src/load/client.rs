//! One client of a load: its connection, its handshake, its places for operations under way.

use anyhow::{Context as _, Result};
use interface::{ConnId, Mono, NetAction, Span, Turn};
use std::collections::VecDeque;
use wire::{
    Bytes, Challenge, Channel, ClientUuid, FrameKind, Header, Hello, LaneId, Map, Op, Proof,
    Proven, Refusal, RefusalReason, Request, Secret, SessionId, Welcome, Wire as _,
};

/// How clients authenticate.
#[derive(Clone, Debug)]
pub(crate) enum Handshake {
    /// Not at all: the other end is a benchmark's own server.
    None,
    /// With a Ping: that server is a lane, which accepts bulk only after a first small frame.
    Ping,
    /// With a proof of the secret, as any client.
    Full { secret: Secret, export: String, map: Map },
}

impl Handshake {
    /// The server's shape, where it has one.
    pub(crate) const fn map(&self) -> Option<&Map> {
        match self {
            Self::None | Self::Ping => None,
            Self::Full { map, .. } => Some(map),
        }
    }
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum State {
    Connecting,
    AwaitChallenge { hello: Vec<u8>, channel: Channel },
    AwaitWelcome,
    Up { session: SessionId },
}

/// The result of a frame of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    More,
    Up,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) state: State,
    pub(crate) conn: ConnId,
    pub(crate) server_lane: LaneId,
    /// It only requests counters.
    pub(crate) counts: bool,
    /// It has got a reply in this run.
    pub(crate) answered: bool,
    /// Operations begun so far; also the last xid.
    pub(crate) asked_count: u64,
    /// When the operation in each place began.
    pub(crate) began: Vec<Mono>,
    /// Places without an operation.
    pub(crate) free: Vec<u16>,
    /// Places in the order of their requests, for servers whose replies do not name the place.
    pub(crate) order: VecDeque<u16>,
}

impl Client {
    pub(crate) fn new(depth: u32, server_lane: LaneId, counts: bool) -> Self {
        let depth = u16::try_from(depth).unwrap_or(u16::MAX);
        Self {
            state: State::Connecting,
            conn: ConnId(0),
            server_lane,
            counts,
            answered: false,
            asked_count: 0,
            began: vec![Mono(0); usize::from(depth)],
            free: (0..depth).collect(),
            order: VecDeque::new(),
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        u32::try_from(self.began.len()).unwrap_or(u32::MAX)
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.began.len()
    }

    /// The place of the oldest operation under way.
    pub(crate) fn oldest(&mut self) -> u16 {
        let Some(place) = self.order.pop_front() else { panic!("a reply without a request") };
        place
    }

    pub(crate) const fn session(&self) -> SessionId {
        match self.state {
            State::Up { session } => session,
            State::Connecting | State::AwaitChallenge { .. } | State::AwaitWelcome => SessionId(0),
        }
    }

    /// Begins the handshake on the new connection.
    pub(crate) fn send_hello(
        &mut self,
        turn: &mut Turn<'_>,
        (conn, channel): (ConnId, Channel),
        handshake: &Handshake,
    ) -> Result<()> {
        self.conn = conn;
        let Handshake::Full { export, secret, .. } = handshake else {
            turn.act(NetAction::admit(conn));
            self.state = State::Up { session: SessionId(1) };
            if matches!(handshake, Handshake::Ping) {
                let ping = Header::Request(Request::of(Op::Ping));
                let frame = turn.arena.write(|out| ping.encode(out, None, |_| {}));
                turn.act(NetAction::Send { conn, frame, bulk: None });
                self.state = State::AwaitWelcome;
            }
            return Ok(());
        };
        let client = library::random().context("no random bytes for a client's name")?;
        let nonce = library::random().context("no random bytes for a nonce")?;
        let hello = Hello {
            server_lane: self.server_lane,
            client: ClientUuid(client),
            client_lane: LaneId(0),
            conn_epoch: 1,
            nonce,
            host_id: [0; 16],
            host_boot_id: [0; 16],
            predecessor: ClientUuid::NONE,
            boot_id_last: 0,
            export: Bytes(export.as_bytes()),
            credential: secret.credential(),
            purpose: wire::Purpose::Use,
            key_id: secret.key_id(&nonce),
            host_name: Bytes(b""),
            job: Bytes(b""),
        };
        let hello = hello.to_bytes();
        say(turn, conn, FrameKind::Hello, &hello);
        self.state = State::AwaitChallenge { hello, channel };
        Ok(())
    }

    /// Continues the handshake with a frame of the server.
    pub(crate) fn on_handshake(
        &mut self,
        turn: &mut Turn<'_>,
        frame: Span,
        handshake: &Handshake,
    ) -> Result<Heard, String> {
        let nonsense = || "the handshake of the server makes no sense".to_owned();
        let secret = match handshake {
            Handshake::Full { secret, .. } => secret,
            Handshake::Ping => {
                self.state = State::Up { session: SessionId(1) };
                return Ok(Heard::Up);
            }
            Handshake::None => return Err(nonsense()),
        };
        let decoded =
            Header::decode(turn.arena.get(frame)).map_err(|protocol_error| protocol_error.text());
        let (head, body) = decoded?;
        match (head, &self.state) {
            (Header::Handshake(FrameKind::Challenge), State::AwaitChallenge { hello, channel }) => {
                let challenge = Challenge::decode_all(body).map_err(|_| nonsense())?;
                let proven = Proven { hello, nonce: &challenge.nonce, channel };
                if !secret.server_proven(proven, &challenge.proof) {
                    return Err("the server does not know the secret".to_owned());
                }
                let proof = Proof { proof: secret.client_proof(proven) };
                say(turn, self.conn, FrameKind::Proof, &proof.to_bytes());
                self.state = State::AwaitWelcome;
                Ok(Heard::More)
            }
            (Header::Handshake(FrameKind::Welcome), State::AwaitWelcome) => {
                let welcome = Welcome::decode_all(body).map_err(|_| nonsense())?;
                turn.act(NetAction::admit(self.conn));
                self.state = State::Up { session: welcome.session };
                Ok(Heard::Up)
            }
            (Header::Handshake(FrameKind::Refusal), _) => {
                let refusal = Refusal::decode_all(body).map_err(|_| nonsense())?;
                Err(refused(refusal.reason).to_owned())
            }
            _ => Err(nonsense()),
        }
    }
}

const fn refused(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::WrongSecret => "the server refused the secret",
        RefusalReason::NoSuchExport => "the server has no such export",
        RefusalReason::OldEpoch => "the server knows a later connection of this client",
        RefusalReason::Busy => "the server has too many connections",
        RefusalReason::Stopping => "the server is stopping",
        RefusalReason::Evicted => "the server has evicted this client",
        RefusalReason::MustSeal => "the server speaks TLS only: --seal",
        RefusalReason::MustNotSeal => "the server speaks plain text: --plain",
        RefusalReason::NotCertified => "the server wants a certificate for that",
    }
}

fn say(turn: &mut Turn<'_>, conn: ConnId, kind: FrameKind, body: &[u8]) {
    let frame =
        turn.arena.write(|out| Header::Handshake(kind).encode(out, None, |to| to.put(body)));
    turn.act(NetAction::Send { conn, frame, bulk: None });
}
