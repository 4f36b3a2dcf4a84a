//! One mount lane with a server that greets by itself; its requests pile up until answered.

use crate::abi::Opcode;
use crate::{Config, MountLane};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use client::Client;
use interface::{
    Action, Arena, BufId, Bulk, CloseReason, ConnId, Core, Errno, Event, KernelAction, KernelEvent,
    KernelSlot, LaneMessage, LogLevel, Mono, NetAction, NetEvent, Now, PeerAction, PeerEvent,
    Process, Ticket, Turn,
};
use wire::{
    Challenge, ClientUuid, FrameKind, FsUuid, Head, Hello, InodeNo, LaneId, Map, Op, PLAIN, Proven,
    Reply, Request, Secret, SessionId, Status, Transno, Welcome, Wire, Writer,
};

const SESSION: SessionId = SessionId(77);

/// A request as the server got it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) conn: ConnId,
    pub(super) head: Request,
    pub(super) body: Vec<u8>,
    pub(super) bulk: Option<Bulk>,
}

/// An answer as the kernel got it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Replied {
    pub(super) slot: KernelSlot,
    pub(super) status: Status,
    pub(super) payload: Vec<u8>,
    pub(super) bulk: Option<Bulk>,
}

enum Happening {
    Frame(ConnId, Vec<u8>, Option<Bulk>),
    Kernel(Option<KernelSlot>, Vec<u8>, Option<Bulk>),
    Groups(Ticket, Option<Vec<u8>>),
    Event(Event),
}

pub(super) struct Rig {
    pub(super) lane: MountLane,
    pub(super) listening: bool,
    pub(super) asked: VecDeque<Asked>,
    pub(super) replied: Vec<Replied>,
    pub(super) released: Vec<BufId>,
    pub(super) mails: Vec<(LaneId, LaneMessage)>,
    pub(super) groups_wanted: Vec<(Ticket, Process)>,
    /// Whose signals were asked for.
    pub(super) looked_at: Vec<u32>,
    /// What is answered to that.
    pub(super) caller_ends: bool,
    pub(super) said: Vec<(LogLevel, Vec<u8>)>,
    /// Peer lanes answer at once whether a handle's holder was told of a loss.
    pub(super) peer_lanes_know: bool,
    pub(super) stopped_count: u32,
    /// Goodbyes are answered by themselves.
    pub(super) goodbye_count: u32,
    pub(super) now_ms: u64,
    map: Map,
    conn_last: u64,
    conns: Vec<ConnId>,
    happenings: VecDeque<Happening>,
}

/// A request of the kernel's.
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

fn reply(asked: &Asked) -> Reply {
    Reply {
        lane_hint: asked.head.lane_hint,
        shard: asked.head.shard,
        slot: asked.head.slot,
        session: SESSION,
        xid: asked.head.xid,
        credits: 64,
        boot_id: 1,
        ..Reply::of(asked.head.op)
    }
}

/// Numbers of four bytes, one after the other.
pub(super) fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Numbers of eight bytes, one after the other.
pub(super) fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

impl Rig {
    pub(super) fn new() -> Self {
        let client = client::Config {
            client: ClientUuid([1; 16]),
            lane: LaneId(0),
            lane_count: 3,
            secrets: Secret::new([7; 32]).into(),
            export: Vec::new(),
            purpose: wire::Purpose::Use,
            root: None,
            host_id: [2; 16],
            host_boot_id: [3; 16],
            predecessor: ClientUuid::NONE,
            seed: [4; 32],
            calls_max: 1_000,
            handles_max: 1_000,
            replay_bytes_max: client::REPLAY_BYTES_MAX,
            rules: wire::Rules::default(),
        };
        let config = Config { over_io_uring: false, lock_wait_count_max: usize::MAX };
        Self {
            lane: MountLane::new(config, Client::new(client)),
            listening: true,
            asked: VecDeque::new(),
            replied: Vec::new(),
            released: Vec::new(),
            mails: Vec::new(),
            groups_wanted: Vec::new(),
            looked_at: Vec::new(),
            caller_ends: true,
            said: Vec::new(),
            peer_lanes_know: false,
            stopped_count: 0,
            goodbye_count: 0,
            now_ms: 1_000,
            map: Map { lane_count: 1, meta_shard_count: 8, data_shard_count: 8 },
            conn_last: 0,
            conns: Vec::new(),
            happenings: VecDeque::new(),
        }
    }

    /// The kernel asks; the slot is the unique number.
    pub(super) fn ask(&mut self, opcode: Opcode, unique: u64, node: InodeNo, args: &[u8]) {
        let bytes = request(opcode as u32, unique, node, args);
        self.ask_bytes(Some(unique as u32), bytes, None);
    }

    pub(super) fn ask_bytes(&mut self, slot: Option<u32>, bytes: Vec<u8>, bulk: Option<Bulk>) {
        let slot = slot.map(KernelSlot);
        self.happenings.push_back(Happening::Kernel(slot, bytes, bulk));
        self.run();
    }

    pub(super) fn event(&mut self, event: Event) {
        self.happenings.push_back(Happening::Event(event));
        self.run();
    }

    pub(super) fn wait_ms(&mut self, ms: u64) {
        self.now_ms += ms;
        self.event(Event::Tick);
    }

    pub(super) fn groups(&mut self, groups: Option<&[u32]>) {
        let (ticket, _) = self.groups_wanted.remove(0);
        let bytes = groups.map(|groups| groups.iter().flat_map(|gid| gid.to_le_bytes()).collect());
        self.happenings.push_back(Happening::Groups(ticket, bytes));
        self.run();
    }

    pub(super) fn hang_up(&mut self) {
        for conn in core::mem::take(&mut self.conns) {
            let event = Event::Net(NetEvent::Closed { conn, reason: CloseReason::Ended });
            self.happenings.push_back(Happening::Event(event));
        }
        self.asked.clear();
        self.run();
    }

    /// The oldest request to the server.
    pub(super) fn take(&mut self) -> Asked {
        self.asked.pop_front().expect("the server was asked")
    }

    pub(super) fn answer(&mut self, asked: &Asked, body: &[u8]) {
        self.send(asked, Status::Ok, body, None);
    }

    pub(super) fn fail(&mut self, asked: &Asked, status: Status) {
        self.send(asked, status, &[], None);
    }

    pub(super) fn send(&mut self, asked: &Asked, status: Status, body: &[u8], bulk: Option<Bulk>) {
        self.frame(asked, Reply { status, ..reply(asked) }, body, bulk);
        self.run();
    }

    /// Answers with a change that is not durable.
    pub(super) fn token(&mut self, asked: &Asked, transno: u64, body: &[u8]) {
        let flags = wire::reply_flag::TOKEN;
        let reply = Reply { flags, transno: Transno(transno), ..reply(asked) };
        let mut tokened = body.to_vec();
        Head::put_token(&mut Writer::new(&mut tokened), b"token");
        self.frame(asked, reply, &tokened, None);
        self.run();
    }

    fn frame(&mut self, asked: &Asked, reply: Reply, body: &[u8], bulk: Option<Bulk>) {
        let mut frame = Vec::new();
        let sizes = bulk.map(|bulk| (bulk.bulk_bytes, bulk.crc32c));
        Head::Reply(reply).encode(&mut frame, sizes, |to| to.put(body));
        self.happenings.push_back(Happening::Frame(asked.conn, frame, bulk));
    }

    /// The one answer the kernel got.
    pub(super) fn reply(&mut self) -> Replied {
        assert_eq!(self.replied.len(), 1, "one answer was expected: {:?}", self.replied);
        self.replied.remove(0)
    }

    /// The one answer's errno.
    pub(super) fn status(&mut self) -> Status {
        let reply = self.reply();
        assert!(reply.payload.is_empty(), "an error has no payload");
        reply.status
    }

    pub(super) fn run(&mut self) {
        for _ in 0..1_000 {
            if self.happenings.is_empty() {
                return;
            }
            self.turn();
        }
        panic!("the lane and the server never come to rest");
    }

    fn turn(&mut self) {
        let mut arena = Arena::new();
        let mut actions = Vec::new();
        let now = Now { mono: Mono(self.now_ms * 1_000_000), wall_ns: self.now_ms };
        let mut turn = Turn { now, arena: &mut arena, actions: &mut actions };
        for happening in core::mem::take(&mut self.happenings) {
            let event = match happening {
                Happening::Event(event) => event,
                Happening::Frame(conn, frame, bulk) => {
                    Event::Net(NetEvent::Frame { conn, frame: turn.arena.put(&frame), bulk })
                }
                Happening::Kernel(slot, bytes, bulk) => Event::Kernel(KernelEvent::Request {
                    slot,
                    request: turn.arena.put(&bytes),
                    bulk,
                }),
                Happening::Groups(ticket, groups) => {
                    let groups = groups.map(|groups| turn.arena.put(&groups));
                    Event::Kernel(KernelEvent::CallerGroups { ticket, groups })
                }
            };
            self.lane.apply(&mut turn, event);
        }
        self.lane.settle(&mut turn);
        for action in actions {
            self.perform(&arena, action);
        }
    }

    fn perform(&mut self, arena: &Arena, action: Action) {
        match action {
            Action::Net(NetAction::Connect { ticket }) => {
                self.conn_last += 1;
                let conn = ConnId(self.conn_last);
                let event = if self.listening {
                    self.conns.push(conn);
                    Event::Net(NetEvent::Connected { ticket, conn })
                } else {
                    Event::Net(NetEvent::ConnectFailed {
                        ticket,
                        reason: CloseReason::Failed(Errno(111)),
                    })
                };
                self.happenings.push_back(Happening::Event(event));
            }
            Action::Net(NetAction::Send { conn, frame, bulk }) => {
                self.receive(conn, arena.get(frame), bulk)
            }
            Action::Net(NetAction::Close { conn }) => self.conns.retain(|known| *known != conn),
            Action::Peer(PeerAction::Message { to, message }) => {
                self.answer_mail(to, message);
                self.mails.push((to, message));
            }
            Action::Retain { .. } => {}
            Action::Release { buf } if buf.0 >= interface::CORE_BUF_ID_MIN => {}
            Action::Release { buf } => self.released.push(buf),
            Action::Kernel(KernelAction::Reply { slot, status, payload, bulk }) => {
                let payload = arena.get(payload).to_vec();
                self.replied.push(Replied { slot, status, payload, bulk });
            }
            Action::Kernel(KernelAction::CallerGroups { ticket, process: who }) => {
                self.groups_wanted.push((ticket, who))
            }
            Action::Kernel(KernelAction::CallerSignals { ticket, pid }) => {
                self.looked_at.push(pid);
                let event =
                    Event::Kernel(KernelEvent::CallerSignals { ticket, ends: self.caller_ends });
                self.happenings.push_back(Happening::Event(event));
            }
            Action::Log { level, line } => self.said.push((level, arena.get(line).to_vec())),
            Action::Stopped => self.stopped_count += 1,
            Action::WakeAt { .. } | Action::Net(NetAction::Admit { .. }) => {}
            other => panic!("a mount has no use for {other:?}"),
        }
    }

    /// Peer lanes that keep locks grant everything, and hear of everything.
    fn answer_mail(&mut self, from: LaneId, message: LaneMessage) {
        let answer = match message {
            LaneMessage::Lock { job, .. } => LaneMessage::LockDone { job, result: Ok(()) },
            LaneMessage::LocksPresent { inode, present: true } => {
                LaneMessage::LocksPresentSeen { inode }
            }
            LaneMessage::QueryLoss { job, .. } if self.peer_lanes_know => {
                LaneMessage::LossReply { job, lost: false }
            }
            _ => return,
        };
        self.happenings
            .push_back(Happening::Event(Event::Peer(PeerEvent::Message { from, message: answer })));
    }

    /// The server says what became of a wait.
    pub(super) fn grant(&mut self, asked: &Asked, grant: wire::Grant) {
        let mut frame = Vec::new();
        Head::Grant.encode(&mut frame, None, |to| to.write(&grant));
        self.happenings.push_back(Happening::Frame(asked.conn, frame, None));
        self.run();
    }

    fn receive(&mut self, conn: ConnId, frame: &[u8], bulk: Option<Bulk>) {
        let (head, body) = Head::decode(frame).expect("a client sends valid frames");
        match head {
            Head::Handshake(FrameKind::Hello) => {
                Hello::decode_all(body).unwrap();
                let nonce = [5; 32];
                let proven = Proven { hello: body, nonce: &nonce, channel: &PLAIN };
                let proof = Secret::new([7; 32]).server_proof(proven);
                let challenge = Challenge { fs: FsUuid([9; 16]), nonce, proof };
                self.greet(conn, FrameKind::Challenge, &challenge.to_bytes());
            }
            Head::Handshake(FrameKind::Proof) => {
                let welcome = Welcome {
                    session: SESSION,
                    boot_id: 1,
                    map: self.map,
                    lane: LaneId(0),
                    slot_count: 64,
                    credits: 64,
                    flags: 0,
                    recovery_ms: 0,
                    root: InodeNo::ROOT,
                };
                self.greet(conn, FrameKind::Welcome, &welcome.to_bytes());
            }
            Head::Request(head) if head.op == Op::Goodbye => {
                self.goodbye_count += 1;
                let asked = Asked { conn, head, body: Vec::new(), bulk: None };
                self.frame(&asked, reply(&asked), &[], None);
            }
            Head::Request(head) => {
                self.asked.push_back(Asked { conn, head, body: body.to_vec(), bulk });
            }
            other => panic!("a client does not send {other:?}"),
        }
    }

    fn greet(&mut self, conn: ConnId, kind: FrameKind, body: &[u8]) {
        let mut frame = Vec::new();
        Head::Handshake(kind).encode(&mut frame, None, |to| to.put(body));
        self.happenings.push_back(Happening::Frame(conn, frame, None));
    }
}
