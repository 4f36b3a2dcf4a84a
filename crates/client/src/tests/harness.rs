//! A client with a scripted server: the server completes handshakes by itself, and requests are
//! queued until the test answers them.

use super::servers::two_servers;
use crate::{Answer, Call, CallId, Client, Config, Granted, RecallId, RecalledKey};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use interface::{
    Action, BufId, Bulk, ConnId, Event, MountMessage, NO_MAC, PeerAction, PeerEvent, Span, Turn,
};
pub(super) use test_runtime::{
    ReceivedRequest, SECOND, SECOND_SESSION, SECRET, SESSION, ScriptedServer, second_address,
};
use wire::{
    ClientUuid, CommitNotification, CommitRow, Header, LaneId, Layout, LeaseGrant, List, Map, Op,
    Reply, ReplyParts, Resumed, Secret, Secrets, ShardId, Status, Transno, Wire, Writer,
};

/// An answer as the frontend got it, with the bytes of its span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CallOutcome {
    pub(super) call: CallId,
    pub(super) result: Result<Answer, Status>,
    pub(super) bytes: Vec<u8>,
}

/// A client, and its server.
pub(super) struct Harness {
    pub(super) client: Client,
    pub(super) server: ScriptedServer,
    pub(super) answered: Vec<CallOutcome>,
    pub(super) released: Vec<BufId>,
    /// Copies that the client retains, with their originals.
    pub(super) retained: BTreeMap<u32, Bulk>,
    pub(super) peer_messages: Vec<(LaneId, MountMessage)>,
    /// Peer lanes confirm every eviction at once.
    pub(super) peer_lanes_follow: bool,
    /// The contents of the secret file; `None`: it cannot be read.
    pub(super) secrets: Option<Secrets>,
    pub(super) read_count: usize,
    /// What was granted with each answer.
    pub(super) granted: Vec<Granted>,
    /// What was granted besides with the last one.
    pub(super) further: Vec<crate::GrantedAttributes>,
    pub(super) recalls: Vec<(RecallId, Vec<RecalledKey>)>,
    /// How often everything had to be dropped.
    pub(super) drop_count: usize,
}

impl Deref for Harness {
    type Target = ScriptedServer;

    fn deref(&self) -> &ScriptedServer {
        &self.server
    }
}

impl DerefMut for Harness {
    fn deref_mut(&mut self) -> &mut ScriptedServer {
        &mut self.server
    }
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
        host_name: Vec::new(),
        job: Vec::new(),
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
        let mut client = Client::new(config());
        client.layouts.learn(super::FILE, Layout::DEFAULT);
        Self {
            client,
            server: ScriptedServer::new(lane_count),
            answered: Vec::new(),
            released: Vec::new(),
            retained: BTreeMap::new(),
            peer_messages: Vec::new(),
            peer_lanes_follow: true,
            secrets: None,
            read_count: 0,
            granted: Vec::new(),
            further: Vec::new(),
            recalls: Vec::new(),
            drop_count: 0,
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
        self.server.start_second_again(map);
        self.run();
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

    /// The contents for which a sync waits are written.
    pub(super) fn sync_contents(&mut self, id: u64, written: Result<(), Status>) {
        self.turn(|client, turn| client.sync_contents(turn, CallId(id), written));
        self.run();
    }

    /// Advances the clock.
    pub(super) fn wait_ms(&mut self, ms: u64) {
        self.now_ms += ms;
        self.event(Event::Tick);
    }

    pub(super) fn event(&mut self, event: Event) {
        self.state.deliver(event);
        self.run();
    }

    /// Closes all connections.
    pub(super) fn hang_up(&mut self) {
        self.server.close_all();
        self.run();
    }

    /// Closes one connection.
    #[cfg(feature = "removable-rules")]
    pub(super) fn close(&mut self, conn: ConnId) {
        self.server.close(conn);
        self.run();
    }

    pub(super) fn reply(&self, request: &ReceivedRequest) -> Reply {
        self.reply_to(request)
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
        self.put_reply(conn, reply, body, bulk);
        self.run();
    }

    pub(super) fn frame(&mut self, conn: ConnId, frame: Vec<u8>, bulk: Option<Bulk>) {
        self.put_frame(conn, frame, bulk);
        self.run();
    }

    /// Answers with a change that is not durable: the reply has flag TOKEN.
    pub(super) fn token(&mut self, request: &ReceivedRequest, transno: u64, body: &[u8]) {
        let token = token_of(transno);
        // Whatever is granted is no part of what is replayed.
        let (lease_no, term_ms) = (wire::LeaseNo(transno), 10_000);
        let granted = wire::lease_flag::ATTRIBUTES;
        let lease = LeaseGrant { lease_no, term_ms, granted, further_count: 0 };
        let (lease, token) = (Some(lease), Some(&token[..]));
        let parts = ReplyParts { lease, token, ..ReplyParts::plain(body) };
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

    /// Takes the Resume of a shard; those of other shards are answered, and have nothing to replay.
    pub(super) fn take_resume(&mut self, shard: ShardId) -> ReceivedRequest {
        let (ours, others): (Vec<_>, Vec<_>) =
            self.requests.drain(..).partition(|request| request.head.shard == shard);
        others.iter().for_each(|other| self.resumed(other, 0, false));
        let [ours] = &ours[..] else { panic!("one Resume for {shard}") };
        ours.clone()
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
            if self.state.inbox.is_empty() {
                return;
            }
            self.turn(|_, _| {});
        }
        panic!("the client and the server never become idle");
    }

    fn turn(&mut self, also: impl FnOnce(&mut Client, &mut Turn<'_>)) {
        let mut actions = Vec::new();
        let (now, state) = (self.server.now(), &mut self.server.state);
        let events = state.events(usize::MAX);
        let mut turn = Turn { now, arena: &mut state.arena, actions: &mut actions };
        events.into_iter().for_each(|event| self.client.apply(&mut turn, event));
        also(&mut self.client, &mut turn);
        self.client.settle(&mut turn);
        while let Some((call, result, granted)) = self.client.next_granted_answer(now.mono) {
            self.granted.push(granted);
            self.further = self.client.granted_further().to_vec();
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
            if let Some(action) = self.server.perform(action) {
                self.perform(action);
            }
        }
    }

    /// The frontend acts between turns.
    pub(super) fn act(&mut self, act: impl FnOnce(&mut Client)) {
        self.turn(|client, _| act(client));
        self.run();
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Peer(PeerAction::Message { to, message }) => {
                self.peer_messages.push((to, message));
                if let MountMessage::LocksPresent { inode, present: true } = message {
                    let message = MountMessage::LocksPresentSeen { inode };
                    self.state.deliver(PeerEvent::Message { from: to, message });
                }
                if self.peer_lanes_follow && matches!(message, MountMessage::Evicted { .. }) {
                    self.state.deliver(PeerEvent::Message { from: to, message });
                }
            }
            Action::Retain { as_buf, bulk } => {
                assert!(as_buf.0 >= interface::CORE_BUF_ID_MIN);
                let before = self.retained.insert(as_buf.0, bulk);
                assert_eq!(before, None, "a buffer number is used once at a time");
            }
            Action::Zeros { as_buf, bulk_bytes } => self.state.bufs.make(as_buf, bulk_bytes),
            Action::Copy { to, at, bulk } => self.state.bufs.fill((to, at), bulk),
            Action::Release { buf } if buf.0 >= interface::CORE_BUF_ID_MIN => {
                assert!(self.retained.remove(&buf.0).is_some(), "a copy is released once");
            }
            Action::Release { buf } => self.released.push(buf),
            Action::ReadSecrets => {
                self.read_count += 1;
                self.server.state.deliver(Event::Secrets(self.secrets));
            }
            other => panic!("a client does not use {other:?}"),
        }
    }

    /// Restarts the server.
    pub(super) fn restart(&mut self) {
        self.server.shape.start_again();
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
