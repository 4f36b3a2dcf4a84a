//! A server that a test scripts: it completes handshakes by itself, and queues requests until the
//! test answers them.

use crate::{Incoming, LaneState};
use interface::{Action, Bulk, CloseReason, ConnId, Errno, Mono, NetAction, NetEvent, Now, Span};
use std::collections::VecDeque;
use std::net::SocketAddr;
use wire::{
    Challenge, Channel, ClientUuid, FrameKind, FsUuid, Header, Hello, InodeNo, LaneAcks, LaneId,
    Map, Op, PLAIN, Proof, Proven, RecallAck, Received, Refusal, RefusalReason, Reply, Request,
    Resume, Resumed, Secret, ServerAddress, ServerId, SessionId, ShardCounts, ShardId, Term,
    Welcome, Wire,
};

pub const SESSION: SessionId = SessionId(0x5e55_1011);
pub const SECRET: [u8; 32] = [7; 32];
const NONCE: [u8; 32] = [5; 32];

/// A second server beside the one of the shape.
pub const SECOND: ServerId = ServerId(2);
pub const SECOND_SESSION: SessionId = SessionId(0x5e55_2022);

/// Where the second server listens.
pub fn second_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], 7))
}

/// A request as the server received it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub conn: ConnId,
    pub head: Request,
    pub body: Vec<u8>,
    pub bulk: Option<Bulk>,
}

/// The server's behaviour.
#[derive(Clone, Debug)]
pub struct Shape {
    pub secret: [u8; 32],
    pub fs: FsUuid,
    pub boot_id: u64,
    pub map: Map,
    pub slot_count: u16,
    pub credits: u16,
    pub flags: u32,
    pub refuse: Option<RefusalReason>,
    pub listening: bool,
    /// Why a connection fails while the server does not listen.
    pub connect_error: CloseReason,
    /// The channel as the client sees it, and as the server sees it.
    pub channels: (Channel, Channel),
}

impl Shape {
    /// The server starts with this many lanes.
    pub fn set_lane_count(&mut self, lane_count: u16) {
        let term = Term::of_boot(self.boot_id);
        self.map = Map::single_server(lane_count, self.map.shard_counts(), term);
    }

    /// The server starts again.
    pub fn start_again(&mut self) {
        self.boot_id += 1;
        self.set_lane_count(self.map.first_server().lane_count);
    }
}

/// One end of a connection, as its server knows it.
#[derive(Clone, Debug)]
struct ServerConn {
    conn: ConnId,
    server: ServerId,
    hello: Vec<u8>,
    lane: LaneId,
}

/// The server, and the runtime's state of the lane that is its client.
#[derive(Debug)]
pub struct ScriptedServer {
    pub state: LaneState,
    pub now_ms: u64,
    pub shape: Shape,
    pub requests: VecDeque<ReceivedRequest>,
    pub hellos: Vec<(LaneId, u32)>,
    /// The client uuid of each Hello.
    pub uuids: Vec<ClientUuid>,
    /// The uuids of client and predecessor in the last Hello.
    pub last_hello: Option<(ClientUuid, ClientUuid)>,
    pub closed: Vec<ConnId>,
    /// Where each connection was made to.
    pub addresses: Vec<ServerAddress>,
    /// Addresses at which nobody listens, and those from which no answer comes.
    pub refusing: Vec<ServerAddress>,
    pub silent: Vec<ServerAddress>,
    /// The server answers Resume and ReplayDone by itself: it has exactly the changes that it
    /// reported durable.
    pub answers_recovery: bool,
    /// Goodbyes are answered automatically.
    pub answers_goodbye: bool,
    pub goodbye_count: u32,
    /// The acknowledgements: the recalls, and up to which number everything was dropped.
    pub acknowledged: Vec<(Vec<u64>, u64)>,
    /// What was said of replies that other lanes have received.
    pub told: Vec<(ShardId, Vec<LaneAcks>)>,
    /// The boot of the second server, if there is one.
    pub second_boot_id: Option<u64>,
    conns: Vec<ServerConn>,
    conn_last: u64,
}

impl ScriptedServer {
    pub fn new(lane_count: u16) -> Self {
        let counts = ShardCounts { meta: 8, data: 8 };
        Self {
            state: LaneState::default(),
            now_ms: 1_000,
            shape: Shape {
                secret: SECRET,
                fs: FsUuid([9; 16]),
                boot_id: 1,
                map: Map::single_server(lane_count, counts, Term(1)),
                slot_count: 4,
                credits: 64,
                flags: 0,
                refuse: None,
                listening: true,
                connect_error: CloseReason::Failed(Errno(111)),
                channels: (PLAIN, PLAIN),
            },
            requests: VecDeque::new(),
            hellos: Vec::new(),
            uuids: Vec::new(),
            last_hello: None,
            closed: Vec::new(),
            addresses: Vec::new(),
            refusing: Vec::new(),
            silent: Vec::new(),
            answers_recovery: true,
            answers_goodbye: false,
            goodbye_count: 0,
            acknowledged: Vec::new(),
            told: Vec::new(),
            second_boot_id: None,
            conns: Vec::new(),
            conn_last: 0,
        }
    }

    pub const fn now(&self) -> Now {
        let mono = Mono(self.now_ms * 1_000_000);
        Now { mono, wall_ns: 1_700_000_000_000_000_000 + mono.0 }
    }

    /// Starts the second server again, under this map.
    pub fn start_second_again(&mut self, map: Map) {
        self.second_boot_id = self.second_boot_id.map(|boot_id| boot_id + 1);
        self.shape.map = map;
        self.close_those(|known| known.server == SECOND);
    }

    /// Closes all connections.
    pub fn close_all(&mut self) {
        self.close_those(|_| true);
        self.requests.clear();
    }

    /// Closes a connection.
    pub fn close(&mut self, conn: ConnId) {
        self.close_those(|known| known.conn == conn);
    }

    fn close_those(&mut self, closes: impl Fn(&ServerConn) -> bool) {
        for ServerConn { conn, .. } in self.conns.extract_if(.., |known| closes(known)) {
            self.state.deliver(NetEvent::Closed { conn, reason: CloseReason::Ended });
            self.requests.retain(|request| request.conn != conn);
        }
    }

    /// The server of a connection.
    pub fn server_of(&self, conn: ConnId) -> ServerId {
        let known = self.conns.iter().find(|known| known.conn == conn);
        known.map_or(ServerId::FIRST, |known| known.server)
    }

    /// The server lane of a connection.
    pub fn lane_of(&self, conn: ConnId) -> Option<LaneId> {
        self.conns.iter().find(|known| known.conn == conn).map(|known| known.lane)
    }

    fn boot_id_of(&self, conn: ConnId) -> u64 {
        let second = self.second_boot_id.filter(|_| self.server_of(conn) == SECOND);
        second.unwrap_or(self.shape.boot_id)
    }

    fn session_of(&self, conn: ConnId) -> SessionId {
        if self.server_of(conn) == SECOND { SECOND_SESSION } else { SESSION }
    }

    /// Takes the oldest request.
    pub fn take(&mut self) -> ReceivedRequest {
        self.requests.pop_front().expect("a request was sent")
    }

    /// A reply to a request.
    pub fn reply_to(&self, request: &ReceivedRequest) -> Reply {
        Reply {
            lane_hint: request.head.lane_hint,
            shard: request.head.shard,
            slot: request.head.slot,
            session: self.session_of(request.conn),
            xid: request.head.xid,
            credits: self.shape.credits,
            boot_id: self.boot_id_of(request.conn),
            ..Reply::of(request.head.op)
        }
    }

    /// A reply leaves for the client.
    pub fn put_reply(&mut self, conn: ConnId, reply: Reply, body: &[u8], bulk: Option<Bulk>) {
        let mut frame = Vec::new();
        let sizes = bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        Header::Reply(reply).encode(&mut frame, sizes, |to| to.put(body));
        self.put_frame(conn, frame, bulk);
    }

    /// A frame leaves for the client.
    pub fn put_frame(&mut self, conn: ConnId, frame: Vec<u8>, bulk: Option<Bulk>) {
        let event = NetEvent::Frame { conn, frame: Span::default(), bulk };
        self.state.deliver(Incoming::new(event, frame));
    }

    fn put_handshake<'a>(&mut self, conn: ConnId, kind: FrameKind, message: &impl Wire<'a>) {
        let mut frame = Vec::new();
        Header::Handshake(kind).encode(&mut frame, None, |to| to.write(message));
        self.put_frame(conn, frame, None);
    }

    /// Performs an action on connections; returns any other.
    pub fn perform(&mut self, action: Action) -> Option<Action> {
        match action {
            Action::Net(NetAction::Connect { ticket, address }) => {
                self.addresses.push(address);
                if self.silent.contains(&address) {
                    return None;
                }
                if !self.shape.listening || self.refusing.contains(&address) {
                    let reason = self.shape.connect_error;
                    self.state.deliver(NetEvent::ConnectFailed { ticket, reason });
                    return None;
                }
                self.conn_last += 1;
                let conn = ConnId(self.conn_last);
                let is_second = address == ServerAddress::At(second_address());
                let is_second = is_second && self.second_boot_id.is_some();
                let server = if is_second { SECOND } else { ServerId::FIRST };
                self.conns.push(ServerConn { conn, server, hello: Vec::new(), lane: LaneId(0) });
                let channel = self.shape.channels.0;
                if channel != PLAIN {
                    self.state.deliver(NetEvent::Sealed { conn, channel, holder: None });
                }
                self.state.deliver(NetEvent::Connected { ticket, conn });
            }
            Action::Net(NetAction::Send { conn, frame, bulk }) => {
                let frame = self.state.arena.get(frame).to_vec();
                self.receive(conn, &frame, bulk);
            }
            Action::Net(NetAction::Close { conn }) => {
                self.closed.push(conn);
                self.conns.retain(|known| known.conn != conn);
                self.requests.retain(|request| request.conn != conn);
            }
            Action::Net(NetAction::Admit { .. }) => {}
            Action::WakeAt { at } => self.state.wake_at = Some(at),
            other => return Some(other),
        }
        None
    }

    fn receive(&mut self, conn: ConnId, frame: &[u8], bulk: Option<Bulk>) {
        let (head, body) = Header::decode(frame).expect("a client sends valid frames");
        let channel = self.shape.channels.1;
        let secret = Secret::new(self.shape.secret);
        match head {
            Header::Handshake(FrameKind::Hello) => {
                let hello = Hello::decode_all(body).unwrap();
                let lane = LaneId(hello.server_lane.0 % self.shape.map.first_server().lane_count);
                self.hellos.push((hello.server_lane, hello.conn_epoch));
                self.uuids.push(hello.client);
                self.last_hello = Some((hello.client, hello.predecessor));
                let known = self.conns.iter_mut().find(|known| known.conn == conn).unwrap();
                (known.hello, known.lane) = (body.to_vec(), lane);
                let proven = Proven { hello: body, nonce: &NONCE, channel: &channel };
                let proof = secret.server_proof(proven);
                let challenge = Challenge { fs: self.shape.fs, nonce: NONCE, proof };
                self.put_handshake(conn, FrameKind::Challenge, &challenge);
            }
            Header::Handshake(FrameKind::Proof) => {
                let ServerConn { hello, lane, server, .. } =
                    self.conns.iter().find(|known| known.conn == conn).unwrap().clone();
                let proof = Proof::decode_all(body).unwrap().proof;
                let proven = Proven { hello: &hello, nonce: &NONCE, channel: &channel };
                assert!(secret.client_proven(proven, &proof), "the client proves itself");
                if let Some(reason) = self.shape.refuse {
                    return self.put_handshake(conn, FrameKind::Refusal, &Refusal { reason });
                }
                let welcome = Welcome {
                    session: self.session_of(conn),
                    boot_id: self.boot_id_of(conn),
                    map: self.shape.map.clone(),
                    server,
                    lane,
                    slot_count: self.shape.slot_count,
                    credits: self.shape.credits,
                    flags: self.shape.flags,
                    recovery_ms: 0,
                    root: InodeNo::ROOT,
                };
                self.put_handshake(conn, FrameKind::Welcome, &welcome);
            }
            Header::RecallAck => {
                let ack = RecallAck::decode_all(body).unwrap();
                let numbers = ack.recall_nos.iter().map(|number| number.0).collect();
                self.acknowledged.push((numbers, ack.dropped_until.0));
            }
            Header::Received => {
                let received = Received::decode_all(body).unwrap();
                self.told.push((received.shard, received.lanes.iter().collect()));
            }
            Header::Request(head) => {
                let request = ReceivedRequest { conn, head, body: body.to_vec(), bulk };
                let Some(answer) = self.own_answer(&request) else {
                    return self.requests.push_back(request);
                };
                self.put_reply(conn, self.reply_to(&request), &answer, None);
            }
            other => panic!("a client does not send {other:?}"),
        }
    }

    /// The answer to a request that the test does not see.
    fn own_answer(&mut self, request: &ReceivedRequest) -> Option<Vec<u8>> {
        match request.head.op {
            Op::Resume if self.answers_recovery => {
                let committed = Resume::decode_all(&request.body).unwrap().known_committed;
                Some(Resumed { committed, recovering: true }.to_bytes())
            }
            Op::ReplayDone if self.answers_recovery => Some(Vec::new()),
            Op::Goodbye if self.answers_goodbye => {
                self.goodbye_count += 1;
                Some(Vec::new())
            }
            _ => None,
        }
    }
}
