//! One mount lane with a scripted server; its requests are queued until answered.

use crate::abi::Opcode;
use crate::{Config, MountLane};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use client::{Cache, Client};
use core::ops::{Deref, DerefMut};
use interface::{
    Action, BufId, Bulk, Core, Errno, Event, KernelAction, KernelEvent, KernelNotify, KernelSlot,
    LogLevel, MountMessage, Now, PeerAction, PeerEvent, Process, Span, Ticket, Turn,
};
pub(super) use test_runtime::ReceivedRequest;
use test_runtime::{Incoming, ScriptedServer};
use wire::{ClientUuid, Header, InodeNo, LaneId, Reply, Secret, Status, Transno, Wire, Writer};

/// A reply as the kernel got it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KernelReply {
    pub(super) slot: KernelSlot,
    pub(super) status: Status,
    pub(super) payload: Vec<u8>,
    pub(super) bulk: Option<Bulk>,
}

/// What the kernel was made to drop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Dropped {
    Attributes(u64),
    AllNames,
    ExpiredName(u64, Vec<u8>),
    Name(u64, Vec<u8>),
    Contents(u64),
}

pub(super) struct Harness {
    pub(super) lane: MountLane,
    server: ScriptedServer,
    pub(super) replies: Vec<KernelReply>,
    pub(super) released: Vec<BufId>,
    pub(super) peer_messages: Vec<(LaneId, MountMessage)>,
    pub(super) group_lookups: Vec<(Ticket, Process)>,
    /// The processes whose signals were requested.
    pub(super) signals_requested: Vec<u32>,
    /// The answer to that.
    pub(super) caller_ends: bool,
    pub(super) logged: Vec<(LogLevel, Vec<u8>)>,
    /// Peer lanes answer at once whether a loss was reported to a handle's holder.
    pub(super) peer_lanes_answer: bool,
    pub(super) stopped_count: u32,
    /// Notifies, without outcomes.
    pub(super) notifies: VecDeque<(Ticket, Dropped)>,
    /// How many replies the kernel had before each.
    pub(super) replies_before: Vec<usize>,
    /// Attributes of further inodes that the next reply with leases has.
    pub(super) further: Vec<wire::Attr>,
    /// Numbers that the next reply with leases gives.
    pub(super) new_files: Option<wire::NewFiles>,
    /// Bytes that the next reply with leases has.
    pub(super) bulk: Option<Bulk>,
    /// Answers to questions.
    pub(super) answers: Vec<Vec<u8>>,
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

/// A kernel request.
pub(super) fn request(opcode: u32, unique: u64, node: InodeNo, args: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((40 + args.len() as u32).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(node.0.to_ne_bytes());
    bytes.extend(1001_u32.to_ne_bytes());
    bytes.extend(1002_u32.to_ne_bytes());
    bytes.extend(4242_u32.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(args);
    bytes
}

/// The client of a lane.
pub(super) fn client_of_lane(lane: u16) -> Client {
    Client::new(client::Config {
        client: ClientUuid([1; 16]),
        lane: LaneId(lane),
        lane_count: 3,
        secrets: Secret::new([7; 32]).into(),
        export: Vec::new(),
        purpose: wire::Purpose::Use,
        root: None,
        host_id: [2; 16],
        host_boot_id: [3; 16],
        host_name: Vec::new(),
        job: Vec::new(),
        predecessor: ClientUuid::NONE,
        seed: [4; 32],
        calls_max: 1_000,
        handles_max: 1_000,
        replay_bytes_max: client::REPLAY_BYTES_MAX,
        rules: wire::Rules::default(),
    })
}

/// Encodes numbers of four bytes.
pub(super) fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Encodes numbers of eight bytes.
pub(super) fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

impl Harness {
    pub(super) fn new() -> Self {
        Self::with(false)
    }

    /// A mount that caches, with a kernel that can forget all names.
    pub(super) fn with_leases() -> Self {
        let mut harness = Self::with(true);
        harness.lane.leases.forgets_names = true;
        harness
    }

    /// The same, with a cache of its lanes.
    pub(super) fn with_cache(cache: &Arc<Cache>) -> Self {
        let mut harness = Self::with_leases();
        harness.lane.cache = Some(Arc::clone(cache));
        harness
    }

    /// The same, which changes files and names behind.
    /// Other lanes have nothing under way when it ends.
    pub(super) fn writes_behind(self, table: Arc<crate::Behind>) -> Self {
        (1..3).for_each(|lane| table.note_idle(LaneId(lane)));
        Self { lane: self.lane.with_write_behind(table), ..self }
    }

    fn with(leases: bool) -> Self {
        let client = client_of_lane(0);
        let lock_wait_count_max = usize::MAX;
        let config = Config {
            over_io_uring: false,
            lock_wait_count_max,
            leases,
            forgets_names: true,
            soft_ms: None,
        };
        let mut server = ScriptedServer::new(1);
        server.shape.slot_count = 64;
        (server.answers_goodbye, server.answers_recovery) = (true, false);
        Self {
            lane: MountLane::new(config, client),
            server,
            replies: Vec::new(),
            released: Vec::new(),
            peer_messages: Vec::new(),
            group_lookups: Vec::new(),
            signals_requested: Vec::new(),
            caller_ends: true,
            logged: Vec::new(),
            peer_lanes_answer: false,
            stopped_count: 0,
            notifies: VecDeque::new(),
            replies_before: Vec::new(),
            further: Vec::new(),
            new_files: None,
            bulk: None,
            answers: Vec::new(),
        }
    }

    /// A mount that knows the layouts of these files, because it has opened them.
    pub(super) fn with_open(inodes: &[InodeNo]) -> Self {
        let mut harness = Self::new();
        for inode in inodes {
            harness.kernel_request(Opcode::Open, 1, *inode, &u32s(&[0, 0]));
            let open = harness.take();
            let attr = super::attr(*inode, wire::FileKind::File);
            harness.answer(&open, &wire::Entry { attr }.to_bytes());
            assert_eq!(harness.reply().status, Status::Ok);
        }
        harness
    }

    /// Sends a kernel request; the slot is the unique number.
    pub(super) fn kernel_request(
        &mut self,
        opcode: Opcode,
        unique: u64,
        node: InodeNo,
        args: &[u8],
    ) {
        let bytes = request(opcode as u32, unique, node, args);
        self.kernel_bytes(Some(unique as u32), bytes, None);
    }

    pub(super) fn kernel_bytes(&mut self, slot: Option<u32>, bytes: Vec<u8>, bulk: Option<Bulk>) {
        let slot = slot.map(KernelSlot);
        let request = Span::default();
        let event = KernelEvent::Request { slot, request, bulk };
        self.state.deliver(Incoming::new(event, bytes));
        self.run();
    }

    pub(super) fn event(&mut self, event: Event) {
        self.state.deliver(event);
        self.run();
    }

    pub(super) fn wait_ms(&mut self, ms: u64) {
        self.now_ms += ms;
        self.event(Event::Tick);
    }

    pub(super) fn groups(&mut self, groups: Option<&[u32]>) {
        let (ticket, _) = self.group_lookups.remove(0);
        let bytes = groups.into_iter().flatten().flat_map(|gid| gid.to_le_bytes()).collect();
        let groups = groups.map(|_| Span::default());
        self.state.deliver(Incoming::new(KernelEvent::CallerGroups { ticket, groups }, bytes));
        self.run();
    }

    pub(super) fn hang_up(&mut self) {
        self.server.close_all();
        self.run();
    }

    pub(super) fn answer(&mut self, received: &ReceivedRequest, body: &[u8]) {
        self.send(received, Status::Ok, body, None);
    }

    pub(super) fn fail(&mut self, received: &ReceivedRequest, status: Status) {
        self.send(received, status, &[], None);
    }

    pub(super) fn send(
        &mut self,
        received: &ReceivedRequest,
        status: Status,
        body: &[u8],
        bulk: Option<Bulk>,
    ) {
        let reply = Reply { status, ..self.reply_to(received) };
        self.put_reply(received.conn, reply, body, bulk);
        self.run();
    }

    /// Answers and grants leases for ten seconds.
    pub(super) fn grant_leases(
        &mut self,
        received: &ReceivedRequest,
        result: Result<&[u8], Status>,
        (lease_no, granted): (u64, u8),
    ) {
        self.granting_frame(received, result, (lease_no, granted));
        self.run();
    }

    pub(super) fn granting_frame(
        &mut self,
        received: &ReceivedRequest,
        result: Result<&[u8], Status>,
        (lease_no, granted): (u64, u8),
    ) {
        let (lease_no, term_ms) = (wire::LeaseNo(lease_no), 10_000);
        let further: Vec<u8> = self.further.drain(..).flat_map(|attr| attr.to_bytes()).collect();
        let further_count = u8::try_from(further.len() / wire::Attr::WIRE_BYTES).unwrap();
        let lease = Some(wire::LeaseGrant { lease_no, term_ms, granted, further_count });
        let message = result.unwrap_or_default();
        let new_files = self.new_files.take();
        let parts = wire::ReplyParts {
            lease,
            further: &further,
            new_files,
            ..wire::ReplyParts::plain(message)
        };
        let mut body = Vec::new();
        parts.put(&mut Writer::new(&mut body));
        let status = result.err().unwrap_or(Status::Ok);
        let reply = Reply { status, flags: parts.flags(), ..self.reply_to(received) };
        let bulk = self.bulk.take();
        self.put_reply(received.conn, reply, &body, bulk);
    }

    /// The server recalls leases granted so far.
    pub(super) fn recall(
        &mut self,
        received: &ReceivedRequest,
        recall_no: u64,
        keys: &[wire::LeaseKey<'_>],
    ) {
        let count = u32::try_from(keys.len()).unwrap();
        let keys: Vec<u8> = keys.iter().flat_map(|key| key.to_bytes()).collect();
        let keys = wire::List::new(count, &keys);
        let (recall_no, lease_no_max) = (wire::RecallNo(recall_no), wire::LeaseNo(100));
        let recall = wire::Recall { recall_no, lease_no_max, keys };
        let mut frame = Vec::new();
        Header::Recall.encode(&mut frame, None, |to| to.write(&recall));
        self.put_frame(received.conn, frame, None);
        self.run();
    }

    /// Takes what the kernel was made to drop.
    pub(super) fn dropped(&self) -> Vec<Dropped> {
        self.notifies.iter().map(|(_, dropped)| dropped.clone()).collect()
    }

    /// The oldest notify has this outcome.
    pub(super) fn notified(&mut self, result: Result<(), Errno>) {
        let (ticket, _) = self.notifies.pop_front().expect("a notify was begun");
        self.event(Event::Kernel(KernelEvent::Notified { ticket, result }));
    }

    /// All notifies have ended.
    pub(super) fn all_notified(&mut self) {
        while !self.notifies.is_empty() {
            self.notified(Ok(()));
        }
    }

    /// Answers with a change that is not durable.
    pub(super) fn token(&mut self, received: &ReceivedRequest, transno: u64, body: &[u8]) {
        let flags = wire::reply_flag::TOKEN;
        let reply = Reply { flags, transno: Transno(transno), ..self.reply_to(received) };
        let token = Some(&b"token"[..]);
        let parts = wire::ReplyParts { token, ..wire::ReplyParts::plain(body) };
        let mut tokened = Vec::new();
        parts.put(&mut Writer::new(&mut tokened));
        self.put_reply(received.conn, reply, &tokened, None);
        self.run();
    }

    /// Takes the only reply to the kernel.
    pub(super) fn reply(&mut self) -> KernelReply {
        assert_eq!(self.replies.len(), 1, "one answer was expected: {:?}", self.replies);
        self.replies.remove(0)
    }

    /// Takes the only reply's errno.
    pub(super) fn status(&mut self) -> Status {
        let reply = self.reply();
        assert!(reply.payload.is_empty(), "an error has no payload");
        reply.status
    }

    pub(super) fn run(&mut self) {
        for _ in 0..1_000 {
            if self.state.inbox.is_empty() {
                return;
            }
            self.turn();
        }
        panic!("the lane and the server never become idle");
    }

    fn turn(&mut self) {
        let mut actions = Vec::new();
        let now = Now { wall_ns: self.now_ms, ..self.now() };
        let state = &mut self.server.state;
        let events = state.events(usize::MAX);
        let mut turn = Turn { now, arena: &mut state.arena, actions: &mut actions };
        events.into_iter().for_each(|event| self.lane.apply(&mut turn, event));
        self.lane.settle(&mut turn);
        for action in actions {
            if let Some(action) = self.server.perform(action) {
                self.perform(action);
            }
        }
    }

    fn perform(&mut self, action: Action) {
        let arena = &self.server.state.arena;
        match action {
            Action::Peer(PeerAction::Message { to, message }) => {
                self.answer_peer_message(to, message);
                self.peer_messages.push((to, message));
            }
            Action::Retain { .. } | Action::Zeros { .. } | Action::Copy { .. } => {}
            Action::Release { buf } if buf.0 >= interface::CORE_BUF_ID_MIN => {}
            Action::Release { buf } => self.released.push(buf),
            Action::Kernel(KernelAction::Reply { slot, status, payload, bulk }) => {
                let payload = arena.get(payload).to_vec();
                self.replies.push(KernelReply { slot, status, payload, bulk });
            }
            Action::Kernel(KernelAction::CallerGroups { ticket, process: who }) => {
                self.group_lookups.push((ticket, who))
            }
            Action::Kernel(KernelAction::CallerSignals { ticket, pid }) => {
                self.signals_requested.push(pid);
                let event = KernelEvent::CallerSignals { ticket, ends: self.caller_ends };
                self.server.state.deliver(event);
            }
            Action::Kernel(KernelAction::Notify { ticket, notify }) => {
                let dropped = match notify {
                    KernelNotify::Attributes { node } => Dropped::Attributes(node),
                    KernelNotify::AllNames => Dropped::AllNames,
                    KernelNotify::Name { parent, name, of_directory: _ } => {
                        Dropped::Name(parent, arena.get(name).to_vec())
                    }
                    KernelNotify::ExpiredName { parent, name } => {
                        Dropped::ExpiredName(parent, arena.get(name).to_vec())
                    }
                    KernelNotify::Contents { node } => Dropped::Contents(node),
                };
                self.replies_before.push(self.replies.len());
                self.notifies.push_back((ticket, dropped));
            }
            Action::Log { level, line } => self.logged.push((level, arena.get(line).to_vec())),
            Action::Usage { ticket } => {
                let usage = interface::Usage::default();
                self.server.state.deliver(Event::Usage { ticket, usage });
            }
            Action::Answer { answer, .. } => self.answers.push(arena.get(answer).to_vec()),
            Action::Stopped => self.stopped_count += 1,
            other => panic!("a mount does not use {other:?}"),
        }
    }

    /// Peer lanes that keep locks grant everything, and confirm all messages.
    fn answer_peer_message(&mut self, from: LaneId, message: MountMessage) {
        let answer = match message {
            MountMessage::Lock { job, .. } => MountMessage::LockDone { job, result: Ok(()) },
            MountMessage::LocksPresent { inode, present: true } => {
                MountMessage::LocksPresentSeen { inode }
            }
            MountMessage::QueryLoss { job, .. } if self.peer_lanes_answer => {
                MountMessage::LossReply { job, lost: false }
            }
            _ => return,
        };
        self.state.deliver(PeerEvent::Message { from, message: answer });
    }

    /// The server announces the end of a wait.
    pub(super) fn grant(&mut self, received: &ReceivedRequest, grant: wire::Grant) {
        let mut frame = Vec::new();
        Header::Grant.encode(&mut frame, None, |to| to.write(&grant));
        self.put_frame(received.conn, frame, None);
        self.run();
    }
}
