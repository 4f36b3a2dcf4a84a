//! A malicious client. It has the secret of an export of its own, it knows the uuid and host of
//! every other client (which need not be secret), and it sees every token that the server sends to
//! others. It forges every field it can. No other client may lose anything by it, and none of its
//! requests may reach the log: the other checks, which ignore this client, find both.

use crate::due::{Due, Place};
use crate::number::{low_u16, narrow, narrow_u16, wide};
use crate::simulation::Simulation;
use interface::{CloseReason, ConnId, NetEvent};
use std::collections::BTreeMap;
use test_runtime::{Incoming, Prng};
use wire::{
    Bytes, Challenge, ClientUuid, Credential, FrameKind, Handle, HandleId, Header, Hello, InodeNo,
    LaneId, Layout, MapEpoch, Op, OpenFor, PLAIN, Proof, Proven, Purpose, Reopen, Replay,
    ReplayDone, Reply, ReplyParts, Request, Resume, SessionId, ShardId, Transno, Welcome, Wire,
    Xid, request_flag,
};

/// The export that it may mount.
pub(crate) const EXPORT: &str = "evil";
/// Its connections have numbers from here on; no other connection does.
const CONN_FIRST: u64 = 1 << 40;
/// Mean time between two forged frames.
const FORGERY_NS: u64 = 300_000;
/// Tokens and connections that it holds at most.
const STOLEN_COUNT_MAX: usize = 16;

/// A reply to another client.
#[derive(Clone, Debug)]
struct Stolen {
    reply: Reply,
    message: Vec<u8>,
    token: Vec<u8>,
}

/// A connection of the malicious client.
#[derive(Clone, Debug)]
struct MaliciousConn {
    server: usize,
    server_lane: usize,
    hello: Vec<u8>,
    conn_epoch: u32,
    session: Option<SessionId>,
}

/// The malicious client's state.
#[derive(Debug)]
pub(crate) struct MaliciousClient {
    /// Its own generator, so that runs without a malicious client draw the same numbers.
    prng: Prng,
    links: BTreeMap<ConnId, MaliciousConn>,
    conn_count: u64,
    stolen: Vec<Stolen>,
}

impl MaliciousClient {
    /// Every fourth run has one.
    pub(crate) fn of_seed(seed: u64) -> Option<Self> {
        let malicious = Self {
            prng: Prng::new(!seed),
            links: BTreeMap::new(),
            conn_count: 0,
            stolen: Vec::new(),
        };
        seed.is_multiple_of(4).then_some(malicious)
    }

    pub(crate) const fn has(conn: ConnId) -> bool {
        conn.0 >= CONN_FIRST
    }

    /// The server sends a frame to another client.
    pub(crate) fn eavesdrop(&mut self, frame: &[u8]) {
        let Ok((Header::Reply(reply), body)) = Header::decode(frame) else { return };
        let Ok(ReplyParts { message, token: Some(token), .. }) = ReplyParts::split(&reply, body)
        else {
            return;
        };
        if self.stolen.len() >= STOLEN_COUNT_MAX {
            self.stolen.remove(0);
        }
        self.stolen.push(Stolen { reply, message: message.to_vec(), token: token.to_vec() });
    }

    /// One of the servers; with one there is nothing to draw.
    fn pick_server(&mut self, count: usize) -> usize {
        if count == 1 { 0 } else { self.prng.below(count) }
    }

    /// A number: any, the highest, or one of these.
    fn number(&mut self, likely: &[u64]) -> u64 {
        match self.prng.number() % 4 {
            0 => self.prng.number(),
            1 => u64::MAX,
            _ => self.prng.pick(likely).unwrap_or(0),
        }
    }
}

impl Simulation {
    /// Schedules the next forged frame.
    pub(crate) fn schedule_malicious_frame(&mut self) {
        let Some(malicious) = &mut self.malicious else { return };
        let delay_ns = malicious.prng.span_ns(FORGERY_NS);
        self.schedule_at(self.now_ns + delay_ns, Due::MaliciousFrame);
    }

    pub(crate) fn run_malicious_client(&mut self) {
        let Some(mut malicious) = self.malicious.take() else { return };
        if self.faults_stopped {
            for (conn, link) in std::mem::take(&mut malicious.links) {
                self.close_malicious_conn(conn, &link);
            }
            self.malicious = Some(malicious);
            return;
        }
        let server = malicious.pick_server(self.servers.len());
        if self.servers[server].up {
            let conns: Vec<ConnId> = malicious.links.keys().copied().collect();
            match malicious.prng.pick(&conns) {
                Some(conn) if conns.len() >= STOLEN_COUNT_MAX || !malicious.prng.one_in(4) => {
                    self.send_forged_request(&mut malicious, conn);
                }
                _ => self.send_forged_hello(&mut malicious, server),
            }
        }
        self.malicious = Some(malicious);
        self.schedule_malicious_frame();
    }

    /// A new connection, with the Hello of another client.
    fn send_forged_hello(&mut self, malicious: &mut MaliciousClient, server: usize) {
        let victim = self.mounts.get(malicious.prng.below(self.mounts.len()));
        let victim = victim.map_or(ClientUuid::NONE, |mount| mount.uuid);
        let boot_id = self.servers[server].boot_id;
        let low = malicious.number(&[0, 1, 2]);
        let hello = Hello {
            server_lane: LaneId(low_u16(low)),
            client: victim,
            client_lane: LaneId(narrow_u16(malicious.prng.below(3))),
            conn_epoch: u32::try_from(malicious.number(&[1, 2, 3]) >> 32).unwrap_or(1).max(1),
            nonce: [1; 32],
            // In a simulation a host has the same id as its client.
            host_id: victim.0,
            host_boot_id: if malicious.prng.one_in(2) { victim.0 } else { malicious.prng.bytes() },
            boot_id_last: malicious.number(&[0, boot_id, boot_id.saturating_sub(1)]),
            predecessor: if malicious.prng.one_in(2) { victim } else { ClientUuid::NONE },
            export: Bytes(EXPORT.as_bytes()),
            credential: Credential::Export,
            purpose: if malicious.prng.one_in(8) { Purpose::Administer } else { Purpose::Use },
            key_id: self.secret.of_export(EXPORT.as_bytes(), 0).key_id(&[1; 32]),
            host_name: Bytes(b""),
            job: Bytes(b""),
        };
        malicious.conn_count += 1;
        let conn = ConnId(CONN_FIRST + malicious.conn_count);
        let server_lane = malicious.prng.below(self.servers[server].lanes.len());
        let (body, conn_epoch) = (hello.to_bytes(), hello.conn_epoch);
        let link =
            MaliciousConn { server, server_lane, hello: body.clone(), conn_epoch, session: None };
        self.send_forged_handshake(conn, &link, FrameKind::Hello, &body);
        malicious.links.insert(conn, link);
    }

    fn send_forged_handshake(
        &mut self,
        conn: ConnId,
        link: &MaliciousConn,
        kind: FrameKind,
        body: &[u8],
    ) {
        let mut frame = Vec::new();
        Header::Handshake(kind).encode(&mut frame, None, |to| to.put(body));
        let place = Place::Server(link.server, link.server_lane);
        self.deliver(place, Incoming::frame(conn, frame, None));
    }

    fn close_malicious_conn(&mut self, conn: ConnId, link: &MaliciousConn) {
        let event = NetEvent::Closed { conn, reason: CloseReason::Ended };
        self.deliver(Place::Server(link.server, link.server_lane), event);
    }

    /// The server sends a frame to the malicious client.
    pub(crate) fn deliver_to_malicious_client(&mut self, conn: ConnId, frame: &[u8]) {
        let secret = self.secret.of_export(EXPORT.as_bytes(), 0);
        let Some(mut malicious) = self.malicious.take() else { return };
        if let (Some(link), Ok((Header::Handshake(kind), body))) =
            (malicious.links.get_mut(&conn), Header::decode(frame))
        {
            match kind {
                FrameKind::Challenge => {
                    if let Ok(challenge) = Challenge::decode_all(body) {
                        let (hello, nonce) = (&link.hello[..], &challenge.nonce);
                        let proven = Proven { hello, nonce, channel: &PLAIN };
                        let proof = secret.client_proof(proven);
                        let link = link.clone();
                        self.send_forged_handshake(
                            conn,
                            &link,
                            FrameKind::Proof,
                            &Proof { proof }.to_bytes(),
                        );
                    }
                }
                FrameKind::Welcome => {
                    link.session = Welcome::decode_all(body).ok().map(|welcome| welcome.session);
                }
                _ => {}
            }
        }
        self.malicious = Some(malicious);
    }

    /// The server has closed a connection of the malicious client, or handed it over to another lane.
    pub(crate) fn move_malicious_conn(&mut self, conn: ConnId, to: Option<usize>) {
        let Some(malicious) = &mut self.malicious else { return };
        match (malicious.links.get_mut(&conn), to) {
            (Some(link), Some(to)) => link.server_lane = to,
            (_, None) => drop(malicious.links.remove(&conn)),
            (None, Some(_)) => {}
        }
    }

    /// A server crashed, and the malicious client's connections with it.
    pub(crate) fn drop_malicious_conns(&mut self, server: usize) {
        if let Some(malicious) = &mut self.malicious {
            malicious.links.retain(|_, link| link.server != server);
        }
    }

    /// A forged request on an established connection.
    fn send_forged_request(&mut self, malicious: &mut MaliciousClient, conn: ConnId) {
        const OPS: [Op; 10] = [
            Op::Resume,
            Op::Resume,
            Op::ReplayDone,
            Op::Create,
            Op::Create,
            Op::Reopen,
            Op::Close,
            Op::CancelLock,
            Op::Goodbye,
            Op::Sync,
        ];
        let Some(link) = malicious.links.get(&conn).cloned() else { return };
        let Some(own) = link.session else { return };
        if malicious.prng.one_in(16) {
            malicious.links.remove(&conn);
            return self.close_malicious_conn(conn, &link);
        }
        let stolen = malicious.stolen.get(malicious.prng.below(malicious.stolen.len())).cloned();
        let op = malicious.prng.pick(&OPS).unwrap_or(Op::Ping);
        let stolen_op = stolen.as_ref().map_or(Op::Create, |stolen| stolen.reply.op);
        // A changing request is only sent as a replay, with another client's token.
        let replays = op == Op::Create;
        let op = if replays { stolen_op } else { op };
        let session = match (&stolen, malicious.prng.number() % 4) {
            (Some(stolen), 0) => stolen.reply.session,
            _ => own,
        };
        let shard = match &stolen {
            Some(stolen) if replays || malicious.prng.one_in(2) => stolen.reply.shard,
            _ => ShardId::meta(narrow_u16(malicious.prng.below(3))),
        };
        let once = op.row().retry == wire::Retry::Once;
        let slot_count = self.plan.slot_count;
        let (xid, transno) =
            stolen.as_ref().map_or((1, 1), |stolen| (stolen.reply.xid.0, stolen.reply.transno.0));
        let slot = match &stolen {
            Some(stolen) if replays => stolen.reply.slot,
            _ if once => 1 + low_u16(malicious.prng.number()) % slot_count,
            _ => 0,
        };
        let xid_forged =
            if replays && malicious.prng.one_in(2) { xid } else { malicious.number(&[1, 2, xid]) };
        let replay_flag = if replays { request_flag::REPLAY } else { 0 };
        let resent = if malicious.prng.one_in(3) { request_flag::RESENT } else { 0 };
        let map_epoch = match malicious.prng.number() % 16 {
            0 => MapEpoch(malicious.prng.number()),
            _ => self.map().epoch(),
        };
        let request = Request {
            shard,
            slot,
            flags: replay_flag | resent,
            session,
            xid: Xid(xid_forged.max(1)),
            ack_xid: Xid(malicious.number(&[0, 1, xid])),
            sack: malicious.prng.number(),
            conn_epoch: link.conn_epoch,
            transno: Transno(if replays { malicious.number(&[transno, transno + 1]) } else { 0 }),
            map_epoch,
            layout: match malicious.prng.number() % 8 {
                0 => None,
                1 => Some(Layout { stripe_unit_bytes: 1, ..Layout::DEFAULT }),
                _ => Some(self.plan.layout()),
            },
            ..Request::of(op)
        };
        let body = match (op, stolen) {
            _ if replays => {
                let (message, token) =
                    malicious_token(&mut malicious.prng, malicious.stolen.as_slice());
                Replay { reply: Bytes(&message), token: Bytes(&token) }.to_bytes()
            }
            (Op::Resume, _) => {
                let known_committed = Transno(malicious.number(&[0, transno]));
                Resume { known_committed, replay_count: u32::MAX }.to_bytes()
            }
            (Op::ReplayDone, _) => ReplayDone { reopen_count: u32::MAX }.to_bytes(),
            (Op::Reopen, _) => {
                // Of an inode that does not exist: the malicious client may open what its export has.
                let inode = InodeNo::new(shard.index(), u64::from(u32::MAX));
                let (id, open_for) = (HandleId(malicious.prng.number()), OpenFor::ReadWrite);
                let handle = Handle { id, open_for };
                Reopen { inode, handle }.to_bytes()
            }
            _ => malicious.prng.bytes::<24>().to_vec(),
        };
        let mut frame = Vec::new();
        Header::Request(request).encode(&mut frame, None, |to| to.put(&body));
        let place = Place::Server(link.server, link.server_lane);
        self.deliver(place, Incoming::frame(conn, frame, None));
    }
}

/// Another client's token, unchanged or with a flipped bit; random bytes if there is none.
fn malicious_token(prng: &mut Prng, stolen: &[Stolen]) -> (Vec<u8>, Vec<u8>) {
    let Some(stolen) = stolen.get(prng.below(stolen.len())) else {
        return (Vec::new(), prng.bytes::<64>().to_vec());
    };
    let Stolen { message, mut token, .. } = stolen.clone();
    if prng.one_in(2) && !token.is_empty() {
        let place = narrow(prng.number() % wide(token.len()));
        token[place] ^= 1 << (prng.number() % 8);
    }
    (message, token)
}
