//! A file system without contents: a root directory and one file, to measure and test the kernel's
//! part of a request.
//!
//! It answers at once, or after exchanges over a loopback connection, which is the limit of a real
//! mount: one exchange for each request that a mount sends its server, or as many as a [`Cost`]
//! says. Neither it nor the kernel caches anything. All files share one object, if the ring has a
//! store; reads of some lengths may be answered from memory, whatever their offset. Created files
//! have a name, but no size.

use interface::{
    Action, Bulk, ConnId, Core, Event, KernelAction, KernelEvent, KernelSlot, NetAction, NetEvent,
    Object, ObjectAction, ObjectEvent, Span, Ticket, Turn,
};
use std::collections::{HashMap, VecDeque};
use wire::{
    FrameKind, Getattr, HEADER_BYTES, Header, InodeNo, Op, Read, Reply, Request, ServerAddress,
    SessionId, Status, Wire, Write, Xid,
};

const OP_LOOKUP: u32 = 1;
const OP_FORGET: u32 = 2;
const OP_GETATTR: u32 = 3;
const OP_SETATTR: u32 = 4;
const OP_UNLINK: u32 = 10;
const OP_OPEN: u32 = 14;
const OP_READ: u32 = 15;
const OP_WRITE: u32 = 16;
const OP_STATFS: u32 = 17;
const OP_RELEASE: u32 = 18;
const OP_FSYNC: u32 = 20;
const OP_GETXATTR: u32 = 22;
const OP_FLUSH: u32 = 25;
const OP_INIT: u32 = 26;
const OP_OPENDIR: u32 = 27;
const OP_READDIR: u32 = 28;
const OP_RELEASEDIR: u32 = 29;
const OP_CREATE: u32 = 35;
const OP_BATCH_FORGET: u32 = 42;

const FILE: u64 = 2;
/// The file's name.
pub const FILE_NAME: &str = "file";
/// The file's size in bytes, whatever is written.
pub const FILE_BYTES: u64 = 4 << 20;

const FUSE_HEADER_BYTES: usize = 40;
/// `fuse_create_in` without the name.
const CREATE_BYTES: usize = 16;

/// The cost of a request before its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// For a request that a mount sends its server: a frame goes to the server, which may be the
    /// lane's own listening socket, and back; that of a read in memory with its bytes.
    Echo,
}

/// Exchanges of a kernel request: so many at once, and when all of them are complete, so many more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// The opcode of the request.
    pub opcode: u32,
    /// Before the answer.
    pub before: [u8; 2],
    /// After the answer.
    pub behind: [u8; 2],
}

/// An answer that waits for exchanges.
#[derive(Clone, Copy)]
struct Waiting {
    slot: KernelSlot,
    opcode: u32,
    node: u64,
    /// The node of the name in the request.
    found: Option<u64>,
    offset: u64,
    bytes: u32,
    bulk: Option<Bulk>,
}

/// A request with exchanges under way or to come.
#[derive(Clone, Copy)]
struct Running {
    /// `None`: it is answered.
    waiting: Option<Waiting>,
    /// Exchanges of the present batch that are not complete.
    left_count: u8,
    /// Later batches: two before the answer, two after it. 0: none.
    waves: [u8; 4],
    wave_index: usize,
}

/// Batches before the answer.
const BEFORE_COUNT: usize = 2;
/// Stands for the first exchange of a connection: a server closes a connection without any frame.
const HANDSHAKE: usize = usize::MAX;

/// The state machine of a null file system, one per lane.
pub struct NullFs {
    before: Before,
    over_uring: bool,
    contents: Option<Object>,
    /// Answers to reads, by their length.
    read_bulks: Vec<Bulk>,
    costs: Vec<Cost>,
    /// Files that were made, by name.
    made: HashMap<Vec<u8>, u64>,
    made_count: u64,
    echo: Option<ConnId>,
    frame: Vec<u8>,
    running: Vec<Option<Running>>,
    /// The requests of the exchanges under way, in their order.
    echoing: VecDeque<usize>,
    moving: Vec<Option<Waiting>>,
    done: bool,
}

impl NullFs {
    /// A lane core. `over_uring`: the mount's transport; `contents`: the source of the file's
    /// bytes.
    #[must_use]
    pub fn new(before: Before, over_uring: bool, contents: Option<Object>) -> Self {
        Self {
            before,
            over_uring,
            contents,
            read_bulks: Vec::new(),
            costs: Vec::new(),
            made: HashMap::new(),
            made_count: 0,
            echo: None,
            frame: getattr_frame(),
            running: Vec::new(),
            echoing: VecDeque::new(),
            moving: Vec::new(),
            done: false,
        }
    }

    /// Retains bytes in memory: a read as long as one of these bulks is answered with it.
    #[must_use]
    pub fn keeping(mut self, bulks: Vec<Bulk>) -> Self {
        self.read_bulks = bulks;
        self
    }

    /// Sets the cost of these requests, if there are exchanges at all.
    #[must_use]
    pub fn costing(mut self, costs: Vec<Cost>) -> Self {
        self.costs = costs;
        self
    }

    fn read_bulk(&self, bytes: u32) -> Option<Bulk> {
        self.read_bulks.iter().copied().find(|bulk| bulk.bulk_bytes == bytes)
    }

    fn on_kernel(&mut self, turn: &mut Turn<'_>, slot: KernelSlot, span: Span, bulk: Option<Bulk>) {
        let request = turn.arena.get(span);
        let (opcode, node) = (u32_at(request, 4), u64_at(request, 16));
        let (offset, bytes) =
            (u64_at(request, FUSE_HEADER_BYTES + 8), u32_at(request, FUSE_HEADER_BYTES + 16));
        let name_at = FUSE_HEADER_BYTES + if opcode == OP_CREATE { CREATE_BYTES } else { 0 };
        let found = match opcode {
            OP_LOOKUP => self.find(name_of(request, name_at)),
            OP_CREATE => Some(self.make(name_of(request, name_at))),
            OP_UNLINK => self.made.remove(name_of(request, name_at)),
            _ => None,
        };
        let waiting = Waiting { slot, opcode, node, found, offset, bytes, bulk };
        let Some(cost) = self.echo.and_then(|_| self.cost(opcode)) else {
            return self.answer(turn, waiting);
        };
        let ([first, second], [third, fourth]) = (cost.before, cost.behind);
        let waves = [first, second, third, fourth];
        let running = Running { waiting: Some(waiting), left_count: 0, waves, wave_index: 0 };
        let index = self.running.iter().position(Option::is_none).unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        });
        self.running[index] = Some(running);
        self.go_on(turn, index);
    }

    fn find(&self, name: &[u8]) -> Option<u64> {
        if name == FILE_NAME.as_bytes() { Some(FILE) } else { self.made.get(name).copied() }
    }

    fn make(&mut self, name: &[u8]) -> u64 {
        self.made_count += 1;
        *self.made.entry(name.to_vec()).or_insert(FILE + self.made_count)
    }

    /// `None`: it is answered at once.
    fn cost(&self, opcode: u32) -> Option<Cost> {
        let cost = self.costs.iter().copied().find(|cost| cost.opcode == opcode);
        let usual = Cost { opcode, before: [1, 0], behind: [0, 0] };
        cost.or_else(|| costs_an_exchange(opcode).then_some(usual))
    }

    /// Begins the next batch of a request, or answers it, or completes it.
    fn go_on(&mut self, turn: &mut Turn<'_>, index: usize) {
        while let Some(running) = self.running[index].as_mut() {
            if running.left_count > 0 {
                return;
            }
            if running.wave_index == BEFORE_COUNT
                && let Some(waiting) = running.waiting.take()
            {
                self.answer(turn, waiting);
                continue;
            }
            let Some(wave) = running.waves.get(running.wave_index).copied() else {
                self.running[index] = None;
                return;
            };
            running.wave_index += 1;
            running.left_count = wave;
            let waiting = running.waiting.filter(|_| running.wave_index == 1);
            for _ in 0..wave {
                self.echoing.push_back(index);
                self.exchange(turn, waiting);
            }
        }
    }

    /// Sends a frame to the server; for a read or write as large as a mount's.
    fn exchange(&self, turn: &mut Turn<'_>, waiting: Option<Waiting>) {
        let Some(conn) = self.echo else { return };
        let bulk = waiting.and_then(|waiting| waiting.bulk);
        let read_bytes = waiting.filter(|waiting| waiting.opcode == OP_READ).map(|it| it.bytes);
        let read_bytes = read_bytes.filter(|bytes| self.read_bulk(*bytes).is_some());
        let frame = match (bulk, read_bytes) {
            (Some(bulk), _) => turn.arena.put(&write_frame(bulk)),
            (None, Some(bytes)) => turn.arena.put(&read_frame(bytes)),
            (None, None) => turn.arena.put(&self.frame),
        };
        turn.act(NetAction::Send { conn, frame, bulk });
    }

    fn on_frame(&mut self, turn: &mut Turn<'_>, conn: ConnId, frame: Span, bulk: Option<Bulk>) {
        if Some(conn) == self.echo {
            return self.on_echo(turn, bulk);
        }
        turn.act(NetAction::admit(conn));
        if let Some(bulk) = bulk {
            turn.act(Action::Release { buf: bulk.buf });
            let frame = turn.arena.put(&self.frame);
            return turn.act(NetAction::Send { conn, frame, bulk: None });
        }
        let asked = read_bytes(turn.arena.get(frame)).and_then(|bytes| self.read_bulk(bytes));
        let Some(bulk) = asked else {
            turn.act(NetAction::Send { conn, frame, bulk: None });
            return;
        };
        let frame = turn.arena.put(&answer_frame(bulk));
        turn.act(NetAction::Send { conn, frame, bulk: Some(bulk) });
    }

    /// An exchange is complete; that of a read brings its bytes.
    fn on_echo(&mut self, turn: &mut Turn<'_>, bulk: Option<Bulk>) {
        let Some(index) = self.echoing.pop_front() else { return };
        let Some(Some(running)) = self.running.get_mut(index) else { return };
        running.left_count -= 1;
        if let Some(bulk) = bulk {
            if let Some(waiting) = running.waiting.take() {
                reply(turn, waiting.slot, Status::Ok, &[], Some(bulk));
            }
            turn.act(Action::Release { buf: bulk.buf });
        }
        self.go_on(turn, index);
    }

    fn answer(&mut self, turn: &mut Turn<'_>, waiting: Waiting) {
        let Waiting { slot, opcode, node, found, offset, bytes, bulk } = waiting;
        let mut body = Vec::new();
        let mut status = Status::Ok;
        match opcode {
            OP_INIT => put_init(&mut body, self.over_uring),
            // The kernel expects no answer.
            OP_FORGET | OP_BATCH_FORGET => return,
            OP_GETATTR | OP_SETATTR => put_attr_out(&mut body, node),
            OP_LOOKUP | OP_CREATE => match found {
                Some(found) => put_entry_out(&mut body, found),
                None => status = Status::NotFound,
            },
            OP_UNLINK if found.is_none() => status = Status::NotFound,
            // FOPEN_DIRECT_IO: every read and write comes here.
            OP_OPEN => put_numbers(&mut body, &[0, 0, 1, 0]),
            OP_OPENDIR => put_numbers(&mut body, &[0; 4]),
            OP_STATFS => put_numbers(&mut body, &[0; 20]),
            OP_READDIR | OP_FLUSH | OP_RELEASE | OP_RELEASEDIR | OP_UNLINK | OP_FSYNC => {}
            OP_GETXATTR => status = Status::NoData,
            OP_READ if self.read_bulk(bytes).is_some() => {
                return reply(turn, slot, status, &[], self.read_bulk(bytes));
            }
            OP_READ | OP_WRITE => {
                let Some(object) = self.contents else {
                    if opcode == OP_WRITE {
                        put_numbers(&mut body, &[bytes, 0]);
                    }
                    return reply(turn, slot, status, &body, None);
                };
                let ticket = self.remember(waiting);
                match bulk {
                    Some(bulk) => turn.act(ObjectAction::Write {
                        ticket,
                        object,
                        object_offset: offset,
                        bulk,
                        block_bytes: 0,
                    }),
                    None => turn.act(ObjectAction::Read {
                        ticket,
                        object,
                        object_offset: offset,
                        read_bytes: bytes,
                        only_cached: false,
                    }),
                }
                return;
            }
            _ => status = Status::NotImplemented,
        }
        if opcode == OP_CREATE {
            // FOPEN_DIRECT_IO, as of OPEN.
            put_numbers(&mut body, &[0, 0, 1, 0]);
        }
        reply(turn, slot, status, &body, None);
    }

    fn remember(&mut self, waiting: Waiting) -> Ticket {
        let index = self.moving.iter().position(Option::is_none).unwrap_or_else(|| {
            self.moving.push(None);
            self.moving.len() - 1
        });
        self.moving[index] = Some(waiting);
        Ticket(u64::try_from(index).unwrap_or(u64::MAX))
    }

    fn recall(&mut self, ticket: Ticket) -> Option<Waiting> {
        self.moving.get_mut(usize::try_from(ticket.0).ok()?)?.take()
    }
}

impl Core for NullFs {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Kernel(KernelEvent::Request { slot: Some(slot), request, bulk }) => {
                self.on_kernel(turn, slot, request, bulk);
            }
            Event::Net(NetEvent::Frame { conn, frame, bulk }) => {
                self.on_frame(turn, conn, frame, bulk)
            }
            Event::Tick => {
                if self.before == Before::Echo && self.echo.is_none() {
                    turn.act(NetAction::Connect {
                        ticket: Ticket(0),
                        address: ServerAddress::Initial,
                    });
                }
            }
            Event::Net(NetEvent::Connected { conn, .. }) => {
                self.echo = Some(conn);
                turn.act(NetAction::admit(conn));
                self.echoing.push_back(HANDSHAKE);
                self.exchange(turn, None);
            }
            Event::Object(ObjectEvent::Read { ticket, result }) => {
                let Some(waiting) = self.recall(ticket) else { return };
                let status = result.err().map_or(Status::Ok, interface::Errno::status);
                let bulk = result.ok().flatten();
                reply(turn, waiting.slot, status, &[], bulk);
                if let Some(bulk) = bulk {
                    turn.act(Action::Release { buf: bulk.buf });
                }
            }
            Event::Object(ObjectEvent::Done { ticket, result }) => {
                let Some(waiting) = self.recall(ticket) else { return };
                let status = result.err().map_or(Status::Ok, interface::Errno::status);
                let mut body = Vec::new();
                put_numbers(&mut body, &[waiting.bytes, 0]);
                reply(turn, waiting.slot, status, &body, None);
            }
            Event::Kernel(KernelEvent::Unmounted) | Event::Stop => {
                if !std::mem::replace(&mut self.done, true) {
                    turn.act(Action::Stopped);
                }
            }
            Event::Kernel(KernelEvent::Request { slot: None, .. })
            | Event::Object(
                ObjectEvent::Uncached { .. }
                | ObjectEvent::Sums { .. }
                | ObjectEvent::Loaded { .. }
                | ObjectEvent::Written { .. }
                | ObjectEvent::Sought { .. }
                | ObjectEvent::Stat { .. },
            )
            | Event::Net(
                NetEvent::HandedOver { .. }
                | NetEvent::Sealed { .. }
                | NetEvent::FromThisHost { .. }
                | NetEvent::SentLate { .. }
                | NetEvent::CertificateRefused { .. }
                | NetEvent::ConnectFailed { .. }
                | NetEvent::Closed { .. },
            )
            | Event::Peer(_)
            | Event::Store(_)
            | Event::LaneTime(_)
            | Event::Usage { .. }
            | Event::Asked { .. }
            | Event::Map(_)
            | Event::Secrets(_)
            | Event::Kernel(
                KernelEvent::CallerGroups { .. }
                | KernelEvent::CallerSignals { .. }
                | KernelEvent::Notified { .. },
            ) => {}
        }
    }

    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

fn reply(turn: &mut Turn<'_>, slot: KernelSlot, status: Status, body: &[u8], bulk: Option<Bulk>) {
    let payload = turn.arena.put(body);
    turn.act(KernelAction::Reply { slot, status, payload, bulk });
}

/// Whether a mount sends it to its server instead of answering it.
const fn costs_an_exchange(opcode: u32) -> bool {
    !matches!(opcode, OP_INIT | OP_FLUSH | OP_RELEASEDIR | OP_FORGET | OP_BATCH_FORGET)
}

/// The frame that is echoed, as large as a real getattr's.
fn getattr_frame() -> Vec<u8> {
    frame_of(&Getattr { inode: InodeNo::ROOT }, Op::Getattr)
}

/// A frame that reads retained bytes.
fn read_frame(bytes: u32) -> Vec<u8> {
    let body = Read { inode: InodeNo::ROOT, file_offset: 0, read_bytes: bytes, accesses: true };
    frame_of(&body, Op::Read)
}

/// Brings bytes.
fn write_frame(bulk: Bulk) -> Vec<u8> {
    let body = Write {
        inode: InodeNo::ROOT,
        file_offset: 0,
        append: false,
        clears: wire::ClearPrivileges::Nothing,
    };
    let mut frame = Vec::new();
    let sizes = Some((bulk.bulk_bytes, bulk.crc32c));
    Header::Request(request_head(Op::Write)).encode(&mut frame, sizes, |to| body.encode(to));
    frame
}

/// The length of a read frame's read.
fn read_bytes(frame: &[u8]) -> Option<u32> {
    let (head, body) = frame.split_at_checked(HEADER_BYTES)?;
    if head[6..8] != Op::Read.number().to_le_bytes() {
        return None;
    }
    Read::decode_all(body).ok().map(|read| read.read_bytes)
}

fn frame_of(body: &impl Wire<'static>, op: Op) -> Vec<u8> {
    let mut frame = Vec::new();
    Header::Request(request_head(op)).encode(&mut frame, None, |to| body.encode(to));
    debug_assert!(frame[5] == FrameKind::Request as u8, "the kind is at 5");
    frame
}

const fn request_head(op: Op) -> Request {
    let (session, xid) = (SessionId(1), Xid(1));
    Request { session, xid, conn_epoch: 1, ..Request::of(op) }
}

/// The frame before the bytes of a read.
fn answer_frame(bulk: Bulk) -> Vec<u8> {
    let (session, xid) = (SessionId(1), Xid(1));
    let reply = Reply { session, xid, credits: 1, boot_id: 1, ..Reply::of(Op::Read) };
    let mut frame = Vec::new();
    Header::Reply(reply).encode(&mut frame, Some((bulk.bulk_bytes, bulk.crc32c)), |_| {});
    frame
}

/// The name at that offset, up to its 0.
fn name_of(request: &[u8], at: usize) -> &[u8] {
    let name = request.get(at..).unwrap_or(&[]);
    name.split(|byte| *byte == 0).next().unwrap_or(&[])
}

// ---- the kernel's structs, as far as a null file system needs them ----

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |number: &[u8; 4]| u32::from_ne_bytes(*number))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |number: &[u8; 8]| u64::from_ne_bytes(*number))
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_ne_bytes()));
}

/// `struct fuse_init_out`.
fn put_init(out: &mut Vec<u8>, over_uring: bool) {
    const MAX_PAGES: u32 = 1 << 22;
    const BIG_WRITES: u32 = 1 << 5;
    /// As for a mount: the kernel makes no request before a change of the owner.
    const HANDLE_KILLPRIV_V2: u32 = 1 << 28;
    const INIT_EXT: u32 = 1 << 30;
    /// Bit 41 of the flags is bit 9 of their second word.
    const OVER_IO_URING: u32 = 1 << 9;
    let max_write: u32 = 1 << 20;
    put_numbers(out, &[7, 42, max_write, MAX_PAGES | BIG_WRITES | HANDLE_KILLPRIV_V2 | INIT_EXT]);
    out.extend_from_slice(&64_u16.to_ne_bytes());
    out.extend_from_slice(&48_u16.to_ne_bytes());
    put_numbers(out, &[max_write, 1]);
    out.extend_from_slice(&256_u16.to_ne_bytes());
    out.extend_from_slice(&0_u16.to_ne_bytes());
    put_numbers(out, &[if over_uring { OVER_IO_URING } else { 0 }]);
    out.resize(64, 0);
}

/// `struct fuse_attr`.
fn put_attr(out: &mut Vec<u8>, node: u64) {
    let file = node >= FILE;
    let bytes = if node == FILE { FILE_BYTES } else { 0 };
    for number in [node, bytes, bytes / 512, 0, 0, 0] {
        out.extend_from_slice(&number.to_ne_bytes());
    }
    let mode = if file { 0o100_666 } else { 0o040_755 };
    put_numbers(out, &[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]);
}

/// `struct fuse_attr_out`.
fn put_attr_out(out: &mut Vec<u8>, node: u64) {
    put_numbers(out, &[0; 4]);
    put_attr(out, node);
}

/// `struct fuse_entry_out`.
fn put_entry_out(out: &mut Vec<u8>, node: u64) {
    for number in [node, 1, 0, 0, 0] {
        out.extend_from_slice(&number.to_ne_bytes());
    }
    put_attr(out, node);
}
