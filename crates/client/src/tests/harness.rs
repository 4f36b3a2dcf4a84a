//! A client with a scripted server: the server completes handshakes by itself, and requests are
//! queued until the test answers them.

use super::servers::two_servers;
use crate::{Answer, Call, CallId, Client, Config, Granted, RecallId, RecalledKey};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;
use interface::{
    Action, Arena, BufId, Bulk, CloseReason, ConnId, Errno, Event, Mono, MountMessage, NO_MAC,
    NetAction, NetEvent, Now, PeerAction, PeerEvent, Span, Turn,
};
use wire::{
    Challenge, Channel, ClientUuid, CommitNotification, CommitRow, FrameKind, FsUuid, Header,
    Hello, LaneId, Layout, LeaseGrant, List, Map, Op, PLAIN, Proven, RefusalReason, Reply,
    ReplyParts, Request, Resumed, Secret, Secrets, ServerAddress, ServerId, SessionId, ShardCounts,
    ShardId, Status, Term, Transno, Welcome, Wire, Writer,
};

pub(super) const SECRET: [u8; 32] = [7; 32];
pub(super) const SESSION: SessionId = SessionId(0x5e55_1011);

/// A request as the server received it.
#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub(super) conn: ConnId,
    pub(super) head: Request,
    pub(super) body: Vec<u8>,
    pub(super) bulk: Option<Bulk>,
}

/// An answer as the frontend got it, with the bytes of its span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CallOutcome {
    pub(super) call: CallId,
    pub(super) result: Result<Answer, Status>,
    pub(super) bytes: Vec<u8>,
}

/// The server's behaviour.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) secret: [u8; 32],
    pub(super) fs: FsUuid,
    pub(super) boot_id: u64,
    pub(super) map: Map,
    pub(super) slot_count: u16,
    pub(super) credits: u16,
    pub(super) flags: u32,
    pub(super) refuse: Option<RefusalReason>,
    pub(super) listening: bool,
    /// Why a connection fails while the server does not listen.
    pub(super) connect_error: CloseReason,
    /// The channel as the client sees it, and as the server sees it.
    pub(super) channels: (Channel, Channel),
}

impl Shape {
    /// The server starts with this many lanes.
    pub(super) fn set_lane_count(&mut self, lane_count: u16) {
        let term = Term::of_boot(self.boot_id);
        self.map = Map::single_server(lane_count, self.map.shard_counts(), term);
    }

    /// The server starts again.
    fn start_again(&mut self) {
        self.boot_id += 1;
        self.set_lane_count(self.map.first_server().lane_count);
    }
}

/// A second server beside the one of the shape.
pub(super) const SECOND: ServerId = ServerId(2);
pub(super) const SECOND_SESSION: SessionId = SessionId(0x5e55_2022);

/// Where the second server listens.
pub(super) fn second_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], 7))
}

/// One end of a connection, as its server knows it.
#[derive(Clone, Debug)]
struct ServerConn {
    conn: ConnId,
    server: ServerId,
    hello: Vec<u8>,
    lane: LaneId,
}

/// An input for the next turn; frames and bulk have bytes of their own.
enum Input {
    Frame(ConnId, Vec<u8>, Option<Bulk>),
    Event(Event),
}

pub(super) struct Harness {
    pub(super) client: Client,
    pub(super) shape: Shape,
    pub(super) requests: VecDeque<ReceivedRequest>,
    pub(super) answered: Vec<CallOutcome>,
    pub(super) hellos: Vec<(LaneId, u32)>,
    /// The client uuid of each Hello.
    pub(super) uuids: Vec<ClientUuid>,
    /// The uuids of client and predecessor in the last Hello.
    pub(super) last_hello: Option<(ClientUuid, ClientUuid)>,
    pub(super) closed: Vec<ConnId>,
    pub(super) released: Vec<BufId>,
    /// Copies that the client retains, with their originals.
    pub(super) retained: BTreeMap<u32, Bulk>,
    pub(super) peer_messages: Vec<(LaneId, MountMessage)>,
    /// Peer lanes confirm every eviction at once.
    pub(super) peer_lanes_follow: bool,
    /// The contents of the secret file; `None`: it cannot be read.
    pub(super) secrets: Option<Secrets>,
    pub(super) read_count: usize,
    pub(super) wake_at: Option<Mono>,
    pub(super) now_ms: u64,
    /// The server answers Resume and ReplayDone by itself: it has exactly the changes that it
    /// reported durable.
    pub(super) answers_recovery: bool,
    /// The boot of the second server, if there is one.
    pub(super) second_boot_id: Option<u64>,
    /// Where each connection was made to.
    pub(super) addresses: Vec<ServerAddress>,
    /// What was granted with each answer.
    pub(super) granted: Vec<Granted>,
    pub(super) recalls: Vec<(RecallId, Vec<RecalledKey>)>,
    /// How often everything had to be dropped.
    pub(super) drop_count: usize,
    /// The acknowledgements: the recalls, and up to which number everything was dropped.
    pub(super) acknowledged: Vec<(Vec<u64>, u64)>,
    conns: Vec<ServerConn>,
    conn_last: u64,
    inputs: VecDeque<Input>,
}

pub(super) fn config() -> Config {
    Config {
        client: ClientUuid([1; 16]),
        lane: LaneId(3),
        lane_count: 4,
        secrets: Secret::new(SECRET).into(),
        export: Vec::new(),
        purpose: wire::Purpose::Use,
        root: None,
        host_id: [2; 16],
        host_boot_id: [3; 16],
        predecessor: ClientUuid::NONE,
        seed: [4; 32],
        calls_max: 100,
        handles_max: 100,
        replay_bytes_max: crate::REPLAY_BYTES_MAX,
        rules: wire::Rules::default(),
    }
}

impl Harness {
    pub(super) fn new(lane_count: u16) -> Self {
        let map = Map::single_server(lane_count, ShardCounts { meta: 8, data: 8 }, Term(1));
        let mut client = Client::new(config());
        client.layouts.learn(super::FILE, Layout::DEFAULT);
        Self {
            client,
            shape: Shape {
                secret: SECRET,
                fs: FsUuid([9; 16]),
                boot_id: 1,
                map,
                slot_count: 4,
                credits: 64,
                flags: 0,
                refuse: None,
                listening: true,
                connect_error: CloseReason::Failed(Errno(111)),
                channels: (PLAIN, PLAIN),
            },
            requests: VecDeque::new(),
            answered: Vec::new(),
            hellos: Vec::new(),
            uuids: Vec::new(),
            last_hello: None,
            closed: Vec::new(),
            released: Vec::new(),
            retained: BTreeMap::new(),
            peer_messages: Vec::new(),
            peer_lanes_follow: true,
            secrets: None,
            read_count: 0,
            wake_at: None,
            now_ms: 1_000,
            answers_recovery: true,
            second_boot_id: None,
            addresses: Vec::new(),
            granted: Vec::new(),
            recalls: Vec::new(),
            drop_count: 0,
            acknowledged: Vec::new(),
            conns: Vec::new(),
            conn_last: 0,
            inputs: VecDeque::new(),
        }
    }

    /// A harness with two servers, of two lanes each.
    pub(super) fn with_two_servers() -> Self {
        let mut harness = Self::new(2);
        harness.shape.map = two_servers(1, (1, 1));
        harness.second_boot_id = Some(1);
        harness
    }

    /// Starts the second server again, under this map.
    pub(super) fn restart_second(&mut self, map: Map) {
        self.second_boot_id = self.second_boot_id.map(|boot_id| boot_id + 1);
        self.shape.map = map;
        for closed in self.conns.iter().filter(|known| known.server == SECOND) {
            let (conn, reason) = (closed.conn, CloseReason::Ended);
            self.inputs.push_back(Input::Event(Event::Net(NetEvent::Closed { conn, reason })));
            self.requests.retain(|request| request.conn != conn);
        }
        self.conns.retain(|known| known.server != SECOND);
        self.run();
    }

    /// The server of a connection.
    pub(super) fn server_of(&self, conn: ConnId) -> ServerId {
        let known = self.conns.iter().find(|known| known.conn == conn);
        known.map_or(ServerId::FIRST, |known| known.server)
    }

    fn boot_id_of(&self, conn: ConnId) -> u64 {
        let second = self.second_boot_id.filter(|_| self.server_of(conn) == SECOND);
        second.unwrap_or(self.shape.boot_id)
    }

    fn session_of(&self, conn: ConnId) -> SessionId {
        if self.server_of(conn) == SECOND { SECOND_SESSION } else { SESSION }
    }

    /// Refuses a request for its map.
    pub(super) fn refuse_map(&mut self, request: &ReceivedRequest, map: &Map) {
        let reply = Reply { status: Status::StaleMap, ..self.reply(request) };
        self.send(request.conn, reply, &map.to_bytes(), None);
    }

    /// Makes a call and runs turns until there is no input left.
    pub(super) fn call(&mut self, id: u64, call: Call<'_>) {
        self.turn(|client, turn| client.call(turn, CallId(id), call));
        self.run();
    }

    pub(super) fn interrupt(&mut self, id: u64) -> bool {
        let mut known = false;
        self.turn(|client, turn| known = client.interrupt(turn, CallId(id)));
        self.run();
        known
    }

    /// Advances the clock.
    pub(super) fn wait_ms(&mut self, ms: u64) {
        self.now_ms += ms;
        self.inputs.push_back(Input::Event(Event::Tick));
        self.run();
    }

    pub(super) fn event(&mut self, event: Event) {
        self.inputs.push_back(Input::Event(event));
        self.run();
    }

    /// Closes all connections.
    pub(super) fn hang_up(&mut self) {
        for ServerConn { conn, .. } in core::mem::take(&mut self.conns) {
            let event = Event::Net(NetEvent::Closed { conn, reason: CloseReason::Ended });
            self.inputs.push_back(Input::Event(event));
        }
        self.requests.clear();
        self.run();
    }

    /// Closes one connection.
    #[cfg(feature = "removable-rules")]
    pub(super) fn close(&mut self, conn: ConnId) {
        self.conns.retain(|known| known.conn != conn);
        self.requests.retain(|request| request.conn != conn);
        self.event(Event::Net(NetEvent::Closed { conn, reason: CloseReason::Ended }));
    }

    /// Takes the oldest request.
    pub(super) fn take(&mut self) -> ReceivedRequest {
        self.requests.pop_front().expect("a request was sent")
    }

    pub(super) fn reply(&self, request: &ReceivedRequest) -> Reply {
        Reply {
            op: request.head.op,
            lane_hint: request.head.lane_hint,
            shard: request.head.shard,
            slot: request.head.slot,
            flags: 0,
            session: self.session_of(request.conn),
            xid: request.head.xid,
            transno: Transno(0),
            committed: Transno(0),
            status: Status::Ok,
            credits: self.shape.credits,
            retry_after_ms: 0,
            boot_id: self.boot_id_of(request.conn),
            trace_id: 0,
            op_time_ns: 0,
        }
    }

    pub(super) fn answer(&mut self, request: &ReceivedRequest, body: &[u8]) {
        let reply = self.reply(request);
        self.send(request.conn, reply, body, None);
    }

    pub(super) fn fail(&mut self, request: &ReceivedRequest, status: Status) {
        let reply = Reply { status, ..self.reply(request) };
        self.send(request.conn, reply, &[], None);
    }

    pub(super) fn send(&mut self, conn: ConnId, reply: Reply, body: &[u8], bulk: Option<Bulk>) {
        let mut frame = Vec::new();
        let sizes = bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        Header::Reply(reply).encode(&mut frame, sizes, |to| to.put(body));
        self.frame(conn, frame, bulk);
    }

    pub(super) fn frame(&mut self, conn: ConnId, frame: Vec<u8>, bulk: Option<Bulk>) {
        self.inputs.push_back(Input::Frame(conn, frame, bulk));
        self.run();
    }

    /// Answers with a change that is not durable: the reply has flag TOKEN.
    pub(super) fn token(&mut self, request: &ReceivedRequest, transno: u64, body: &[u8]) {
        let token = token_of(transno);
        // Whatever is granted is no part of what is replayed.
        let (lease_no, term_ms) = (wire::LeaseNo(transno), 10_000);
        let lease = LeaseGrant { lease_no, term_ms, granted: wire::lease_flag::ATTRIBUTES };
        let parts = ReplyParts { message: body, lease: Some(lease), token: Some(&token) };
        let (transno, flags) = (Transno(transno), parts.flags());
        let reply = Reply { transno, flags, ..self.reply(request) };
        let mut tokened = Vec::new();
        parts.put(&mut Writer::new(&mut tokened));
        self.send(request.conn, reply, &tokened, None);
    }

    /// Answers with a change that is durable.
    pub(super) fn durable(&mut self, request: &ReceivedRequest, transno: u64, body: &[u8]) {
        let reply = Reply { transno: Transno(transno), ..self.reply(request) };
        self.send(request.conn, reply, body, None);
    }

    /// Sends a commit notification on the connection of `request`.
    pub(super) fn notify_commit(&mut self, request: &ReceivedRequest, rows: &[(ShardId, u64)]) {
        self.send_commit_notification(request.conn, rows);
    }

    pub(super) fn send_commit_notification(&mut self, conn: ConnId, rows: &[(ShardId, u64)]) {
        let mut encoded = Vec::new();
        for (shard, committed) in rows {
            let row = CommitRow { shard: *shard, committed: Transno(*committed) };
            row.encode(&mut Writer::new(&mut encoded));
        }
        let rows = List::new(u32::try_from(rows.len()).unwrap(), &encoded);
        let mut frame = Vec::new();
        let notification = CommitNotification { rows }.to_bytes();
        Header::CommitNotification.encode(&mut frame, None, |to| to.put(&notification));
        self.frame(conn, frame, None);
    }

    /// Answers a Resume.
    pub(super) fn resumed(&mut self, request: &ReceivedRequest, committed: u64, recovering: bool) {
        assert_eq!(request.head.op, Op::Resume);
        let resumed = Resumed { committed: Transno(committed), recovering };
        self.answer(request, &resumed.to_bytes());
    }

    /// Takes the answers since the last call.
    pub(super) fn answers(&mut self) -> Vec<CallOutcome> {
        core::mem::take(&mut self.answered)
    }

    /// Takes the only answer.
    pub(super) fn outcome(&mut self) -> Result<Answer, Status> {
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "one answer was expected: {answers:?}");
        answers.remove(0).result
    }

    pub(super) fn run(&mut self) {
        for _ in 0..1_000 {
            if self.inputs.is_empty() {
                return;
            }
            self.turn(|_, _| {});
        }
        panic!("the client and the server never become idle");
    }

    fn turn(&mut self, also: impl FnOnce(&mut Client, &mut Turn<'_>)) {
        let mut arena = Arena::new();
        let mut actions = Vec::new();
        let mono = Mono(self.now_ms * 1_000_000);
        let now = Now { mono, wall_ns: 1_700_000_000_000_000_000 + mono.0 };
        let mut turn = Turn { now, arena: &mut arena, actions: &mut actions };
        for input in core::mem::take(&mut self.inputs) {
            let event = match input {
                Input::Event(event) => event,
                Input::Frame(conn, frame, bulk) => {
                    Event::Net(NetEvent::Frame { conn, frame: turn.arena.put(&frame), bulk })
                }
            };
            self.client.apply(&mut turn, event);
        }
        also(&mut self.client, &mut turn);
        self.client.settle(&mut turn);
        while let Some((call, result, granted)) = self.client.next_granted_answer(now.mono) {
            self.granted.push(granted);
            let span = match result {
                Ok(Answer::Target(span) | Answer::Listing(span) | Answer::Value(span)) => span,
                _ => Span::default(),
            };
            let bytes = turn.arena.get(span).to_vec();
            self.answered.push(CallOutcome { call, result, bytes });
        }
        self.drop_count += usize::from(self.client.take_drop());
        self.recalls.extend(core::iter::from_fn(|| self.client.next_recall()));
        for action in actions {
            self.perform(&arena, action);
        }
    }

    /// The frontend acts between turns.
    pub(super) fn act(&mut self, act: impl FnOnce(&mut Client)) {
        self.turn(|client, _| act(client));
        self.run();
    }

    fn perform(&mut self, arena: &Arena, action: Action) {
        match action {
            Action::Net(NetAction::Connect { ticket, address }) => {
                self.addresses.push(address);
                let event = if self.shape.listening {
                    self.conn_last += 1;
                    let conn = ConnId(self.conn_last);
                    let has_second = self.second_boot_id.is_some();
                    if has_second && address == ServerAddress::At(second_address()) {
                        let (server, hello, lane) = (SECOND, Vec::new(), LaneId(0));
                        self.conns.push(ServerConn { conn, server, hello, lane });
                    }
                    let channel = self.shape.channels.0;
                    if channel != PLAIN {
                        let sealed = Event::Net(NetEvent::Sealed { conn, channel, holder: None });
                        self.inputs.push_back(Input::Event(sealed));
                    }
                    Event::Net(NetEvent::Connected { ticket, conn })
                } else {
                    Event::Net(NetEvent::ConnectFailed { ticket, reason: self.shape.connect_error })
                };
                self.inputs.push_back(Input::Event(event));
            }
            Action::Net(NetAction::Send { conn, frame, bulk }) => {
                self.receive(conn, arena.get(frame), bulk)
            }
            Action::Net(NetAction::Close { conn }) => {
                self.closed.push(conn);
                self.conns.retain(|known| known.conn != conn);
                self.requests.retain(|request| request.conn != conn);
            }
            Action::Peer(PeerAction::Message { to, message }) => {
                self.peer_messages.push((to, message));
                if let MountMessage::LocksPresent { inode, present: true } = message {
                    let message = MountMessage::LocksPresentSeen { inode };
                    self.inputs.push_back(Input::Event(Event::Peer(PeerEvent::Message {
                        from: to,
                        message,
                    })));
                }
                if self.peer_lanes_follow && matches!(message, MountMessage::Evicted { .. }) {
                    self.inputs.push_back(Input::Event(Event::Peer(PeerEvent::Message {
                        from: to,
                        message,
                    })));
                }
            }
            Action::Retain { as_buf, bulk } => {
                assert!(as_buf.0 >= interface::CORE_BUF_ID_MIN);
                let before = self.retained.insert(as_buf.0, bulk);
                assert_eq!(before, None, "a buffer number is used once at a time");
            }
            Action::Release { buf } if buf.0 >= interface::CORE_BUF_ID_MIN => {
                assert!(self.retained.remove(&buf.0).is_some(), "a copy is released once");
            }
            Action::Release { buf } => self.released.push(buf),
            Action::ReadSecrets => {
                self.read_count += 1;
                self.inputs.push_back(Input::Event(Event::Secrets(self.secrets)));
            }
            Action::WakeAt { at } => self.wake_at = Some(at),
            Action::Net(NetAction::Admit { .. }) => {}
            other => panic!("a client does not use {other:?}"),
        }
    }

    fn receive(&mut self, conn: ConnId, frame: &[u8], bulk: Option<Bulk>) {
        let (head, body) = Header::decode(frame).expect("a client sends valid frames");
        match head {
            Header::Handshake(FrameKind::Hello) => {
                let hello = Hello::decode_all(body).unwrap();
                let lane = LaneId(hello.server_lane.0 % self.shape.map.first_server().lane_count);
                self.hellos.push((hello.server_lane, hello.conn_epoch));
                self.uuids.push(hello.client);
                self.last_hello = Some((hello.client, hello.predecessor));
                let server = self.server_of(conn);
                self.conns.retain(|known| known.conn != conn);
                self.conns.push(ServerConn { conn, server, hello: body.to_vec(), lane });
                let nonce = [5; 32];
                let proven = Proven { hello: body, nonce: &nonce, channel: &self.shape.channels.1 };
                let proof = Secret::new(self.shape.secret).server_proof(proven);
                let challenge = Challenge { fs: self.shape.fs, nonce, proof };
                self.send_handshake(conn, FrameKind::Challenge, &challenge.to_bytes());
            }
            Header::Handshake(FrameKind::Proof) => {
                let ServerConn { hello, lane, server, .. } =
                    self.conns.iter().find(|known| known.conn == conn).unwrap().clone();
                let proof = wire::Proof::decode_all(body).unwrap().proof;
                let secret = Secret::new(self.shape.secret);
                let channel = &self.shape.channels.1;
                let proven = Proven { hello: &hello, nonce: &[5; 32], channel };
                assert!(secret.client_proven(proven, &proof), "the client proves itself");
                if let Some(reason) = self.shape.refuse {
                    let refusal = wire::Refusal { reason };
                    self.send_handshake(conn, FrameKind::Refusal, &refusal.to_bytes());
                    return;
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
                    root: wire::InodeNo::ROOT,
                };
                self.send_handshake(conn, FrameKind::Welcome, &welcome.to_bytes());
            }
            Header::RecallAck => {
                let ack = wire::RecallAck::decode_all(body).unwrap();
                let numbers = ack.recall_nos.iter().map(|number| number.0).collect();
                self.acknowledged.push((numbers, ack.dropped_until.0));
            }
            Header::Request(head) if self.answers_recovery && head.op == Op::Resume => {
                let known = wire::Resume::decode_all(body).unwrap().known_committed;
                let resumed = Resumed { committed: known, recovering: true };
                self.reply_at_once(conn, head, &resumed.to_bytes());
            }
            Header::Request(head) if self.answers_recovery && head.op == Op::ReplayDone => {
                self.reply_at_once(conn, head, &[]);
            }
            Header::Request(head) => {
                self.requests.push_back(ReceivedRequest { conn, head, body: body.to_vec(), bulk });
            }
            other => panic!("a client does not send {other:?}"),
        }
    }

    fn reply_at_once(&mut self, conn: ConnId, head: Request, body: &[u8]) {
        let reply = self.reply(&ReceivedRequest { conn, head, body: Vec::new(), bulk: None });
        let mut frame = Vec::new();
        Header::Reply(reply).encode(&mut frame, None, |to| to.put(body));
        self.inputs.push_back(Input::Frame(conn, frame, None));
    }

    fn send_handshake(&mut self, conn: ConnId, kind: FrameKind, body: &[u8]) {
        let mut frame = Vec::new();
        Header::Handshake(kind).encode(&mut frame, None, |to| to.put(body));
        self.inputs.push_back(Input::Frame(conn, frame, None));
    }

    /// The server lane of a connection.
    pub(super) fn lane_of(&self, conn: ConnId) -> Option<LaneId> {
        self.conns.iter().find(|known| known.conn == conn).map(|known| known.lane)
    }

    /// Restarts the server.
    pub(super) fn restart(&mut self) {
        self.shape.start_again();
        self.hang_up();
    }
}

/// The token of a transaction.
pub(super) fn token_of(transno: u64) -> [u8; 12] {
    let mut token = *b"token       ";
    token[4..].copy_from_slice(&transno.to_le_bytes());
    token
}

pub(super) fn bulk(buf: u32, bulk_bytes: u32) -> Bulk {
    Bulk { buf: BufId(buf), start: 0, bulk_bytes, crc32c: Some(0), mac: NO_MAC }
}
