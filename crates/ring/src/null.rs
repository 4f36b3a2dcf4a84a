//! A file system with nothing in it: a root directory and one file, for measuring what the way
//! through the kernel costs and for testing that it works.
//!
//! It answers at once, or after one exchange over a loopback connection within its own lane, which
//! is the yardstick that a real mount is held against. It caches nothing and lets the kernel cache
//! nothing. The file's contents are one object, if the ring has a store; reads of some lengths may
//! be answered from memory, whatever their offset.

use crate::job::LEND_BYTES_MIN;
use crate::number::u32_of;
use door::{Action, Brain, Bulk, ConnId, Event, KernelSlot, Object, Span, Ticket, Turn};
use std::collections::VecDeque;
use wire::{
    FrameKind, Getattr, HEAD_BYTES, Head, InodeNo, Op, Read, Reply, Request, SessionId, Status,
    Wire, Xid,
};

const OP_LOOKUP: u32 = 1;
const OP_GETATTR: u32 = 3;
const OP_OPEN: u32 = 14;
const OP_READ: u32 = 15;
const OP_WRITE: u32 = 16;
const OP_STATFS: u32 = 17;
const OP_RELEASE: u32 = 18;
const OP_FLUSH: u32 = 25;
const OP_INIT: u32 = 26;
const OP_OPENDIR: u32 = 27;
const OP_READDIR: u32 = 28;
const OP_RELEASEDIR: u32 = 29;

const ROOT: u64 = 1;
const FILE: u64 = 2;
/// The file's name.
pub const FILE_NAME: &str = "file";
/// The file's size in bytes, whatever is written.
pub const FILE_BYTES: u64 = 4 << 20;

const HEADER_BYTES: usize = 40;

/// What is done before a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// For what a mount asks its server: one frame goes to the server, which may be the lane's own
    /// listening socket, and comes back; that of a read that is kept in memory with its bytes.
    Echo,
}

/// An answer that waits for its turn.
#[derive(Clone, Copy)]
struct Waiting {
    slot: KernelSlot,
    opcode: u32,
    node: u64,
    named: bool,
    offset: u64,
    bytes: u32,
    bulk: Option<Bulk>,
}

/// The brain of a null file system, one per lane.
pub struct NullFs {
    before: Before,
    over_uring: bool,
    contents: Option<Object>,
    /// Answers to reads, by their length.
    kept: Vec<Bulk>,
    echo: Option<ConnId>,
    frame: Vec<u8>,
    echoing: VecDeque<Waiting>,
    moving: Vec<Option<Waiting>>,
    done: bool,
}

impl NullFs {
    /// A brain. `over_uring`: the mount's transport; `contents`: where the file's bytes are.
    #[must_use]
    pub fn new(before: Before, over_uring: bool, contents: Option<Object>) -> Self {
        Self {
            before,
            over_uring,
            contents,
            kept: Vec::new(),
            echo: None,
            frame: getattr_frame(),
            echoing: VecDeque::new(),
            moving: Vec::new(),
            done: false,
        }
    }

    /// Keeps bytes in memory: a read as long as one of these bulks is answered with it.
    #[must_use]
    pub fn keeping(mut self, bulks: Vec<Bulk>) -> Self {
        self.kept = bulks;
        self
    }

    fn kept(&self, bytes: u32) -> Option<Bulk> {
        self.kept.iter().copied().find(|bulk| bulk.bulk_bytes == bytes)
    }

    fn on_kernel(&mut self, turn: &mut Turn<'_>, slot: KernelSlot, span: Span, bulk: Option<Bulk>) {
        let request = turn.arena.get(span);
        let (opcode, node) = (u32_at(request, 4), u64_at(request, 16));
        let named = request.get(HEADER_BYTES..) == Some(b"file\0");
        let (offset, bytes) =
            (u64_at(request, HEADER_BYTES + 8), u32_at(request, HEADER_BYTES + 16));
        let waiting = Waiting { slot, opcode, node, named, offset, bytes, bulk };
        match self.echo {
            Some(conn) if is_asked(opcode) => {
                let frame = if opcode == OP_READ && self.kept(bytes).is_some() {
                    turn.arena.put(&read_frame(bytes))
                } else {
                    turn.arena.put(&self.frame)
                };
                turn.act(Action::Send { conn, frame, bulk: None });
                self.echoing.push_back(waiting);
            }
            Some(_) | None => self.answer(turn, waiting),
        }
    }

    fn on_frame(&mut self, turn: &mut Turn<'_>, conn: ConnId, frame: Span, bulk: Option<Bulk>) {
        if Some(conn) == self.echo {
            let Some(waiting) = self.echoing.pop_front() else { return };
            let Some(bulk) = bulk else { return self.answer(turn, waiting) };
            reply(turn, waiting.slot, Status::Ok, &[], Some(bulk));
            turn.act(Action::Release { buf: bulk.buf });
            return;
        }
        turn.act(Action::Admit { conn });
        let asked = read_bytes(turn.arena.get(frame)).and_then(|bytes| self.kept(bytes));
        let Some(bulk) = asked else {
            turn.act(Action::Send { conn, frame, bulk: None });
            return;
        };
        // As a server does: what it would send from the page cache has no checksum.
        let crc32c = bulk.crc32c.filter(|_| bulk.bulk_bytes < u32_of(LEND_BYTES_MIN));
        let bulk = Bulk { crc32c, ..bulk };
        let frame = turn.arena.put(&answer_frame(bulk));
        turn.act(Action::Send { conn, frame, bulk: Some(bulk) });
    }

    fn answer(&mut self, turn: &mut Turn<'_>, waiting: Waiting) {
        let Waiting { slot, opcode, node, named, offset, bytes, bulk } = waiting;
        let mut body = Vec::new();
        let mut status = Status::Ok;
        match opcode {
            OP_INIT => put_init(&mut body, self.over_uring),
            OP_GETATTR => put_attr_out(&mut body, node),
            OP_LOOKUP if named && node == ROOT => put_entry_out(&mut body, FILE),
            OP_LOOKUP => status = Status::NotFound,
            // FOPEN_DIRECT_IO: every read and write comes here.
            OP_OPEN => put_numbers(&mut body, &[0, 0, 1, 0]),
            OP_OPENDIR => put_numbers(&mut body, &[0; 4]),
            OP_STATFS => put_numbers(&mut body, &[0; 20]),
            OP_READDIR | OP_FLUSH | OP_RELEASE | OP_RELEASEDIR => {}
            OP_READ if self.kept(bytes).is_some() => {
                return reply(turn, slot, status, &[], self.kept(bytes));
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
                    Some(bulk) => turn.act(Action::ObjectWrite {
                        ticket,
                        object,
                        object_offset: offset,
                        bulk,
                    }),
                    None => turn.act(Action::ObjectRead {
                        ticket,
                        object,
                        object_offset: offset,
                        read_bytes: bytes,
                    }),
                }
                return;
            }
            _ => status = Status::NotImplemented,
        }
        reply(turn, slot, status, &body, None);
    }

    fn remember(&mut self, waiting: Waiting) -> Ticket {
        let index = self.moving.iter().position(Option::is_none).unwrap_or_else(|| {
            self.moving.push(None);
            self.moving.len() - 1
        });
        self.moving[index] = Some(waiting);
        Ticket(crate::number::u64_of(index))
    }

    fn recall(&mut self, ticket: Ticket) -> Option<Waiting> {
        self.moving.get_mut(crate::number::usize_of(ticket.0))?.take()
    }
}

impl Brain for NullFs {
    fn apply(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Kernel { slot: Some(slot), request, bulk } => {
                self.on_kernel(turn, slot, request, bulk);
            }
            Event::Frame { conn, frame, bulk } => self.on_frame(turn, conn, frame, bulk),
            Event::Tick => {
                if self.before == Before::Echo && self.echo.is_none() {
                    turn.act(Action::Connect { ticket: Ticket(0) });
                }
            }
            Event::Connected { conn, .. } => {
                self.echo = Some(conn);
                turn.act(Action::Admit { conn });
            }
            Event::ObjectRead { ticket, result } => {
                let Some(waiting) = self.recall(ticket) else { return };
                let status = result.err().map_or(Status::Ok, door::Errno::status);
                let bulk = result.ok().flatten();
                reply(turn, waiting.slot, status, &[], bulk);
                if let Some(bulk) = bulk {
                    turn.act(Action::Release { buf: bulk.buf });
                }
            }
            Event::ObjectDone { ticket, result } => {
                let Some(waiting) = self.recall(ticket) else { return };
                let status = result.err().map_or(Status::Ok, door::Errno::status);
                let mut body = Vec::new();
                put_numbers(&mut body, &[waiting.bytes, 0]);
                reply(turn, waiting.slot, status, &body, None);
            }
            Event::KernelGone | Event::Stop => {
                if !std::mem::replace(&mut self.done, true) {
                    turn.act(Action::Stopped);
                }
            }
            Event::Kernel { slot: None, .. }
            | Event::Adopted { .. }
            | Event::ConnectFailed { .. }
            | Event::Closed { .. }
            | Event::Mail { .. }
            | Event::Letter { .. }
            | Event::ColdRows { .. }
            | Event::Checkpointed { .. }
            | Event::Logged { .. }
            | Event::LogRoom(_)
            | Event::ObjectSought { .. }
            | Event::ObjectStat { .. }
            | Event::StoreSpace { .. }
            | Event::Usage { .. }
            | Event::CallerGroups { .. } => {}
        }
    }

    fn settle(&mut self, _turn: &mut Turn<'_>) {}
}

fn reply(turn: &mut Turn<'_>, slot: KernelSlot, status: Status, body: &[u8], bulk: Option<Bulk>) {
    let payload = turn.arena.put(body);
    turn.act(Action::KernelReply { slot, status, payload, bulk });
}

/// Whether a mount asks its server about it, rather than answering by itself.
const fn is_asked(opcode: u32) -> bool {
    !matches!(opcode, OP_INIT | OP_FLUSH | OP_RELEASEDIR)
}

/// The frame that is echoed, as large as a real getattr's.
fn getattr_frame() -> Vec<u8> {
    frame_of(&Getattr { inode: InodeNo::ROOT }, Op::Getattr)
}

/// Asks for bytes that are kept.
fn read_frame(bytes: u32) -> Vec<u8> {
    let body = Read { inode: InodeNo::ROOT, file_offset: 0, read_bytes: bytes };
    frame_of(&body, Op::Read)
}

/// What a frame asks for, if it asks for bytes.
fn read_bytes(frame: &[u8]) -> Option<u32> {
    let (head, body) = frame.split_at_checked(HEAD_BYTES)?;
    if head[6..8] != Op::Read.number().to_le_bytes() {
        return None;
    }
    Read::decode_all(body).ok().map(|read| read.read_bytes)
}

fn frame_of(body: &impl Wire<'static>, op: Op) -> Vec<u8> {
    let (session, xid) = (SessionId(1), Xid(1));
    let request = Request { session, xid, conn_epoch: 1, ..Request::of(op) };
    let mut frame = Vec::new();
    Head::Request(request).encode(&mut frame, None, |to| body.encode(to));
    debug_assert!(frame[5] == FrameKind::Request as u8, "the kind is at 5");
    frame
}

/// The frame before bytes that were asked for.
fn answer_frame(bulk: Bulk) -> Vec<u8> {
    let (session, xid) = (SessionId(1), Xid(1));
    let reply = Reply { session, xid, credits: 1, boot_id: 1, ..Reply::of(Op::Read) };
    let mut frame = Vec::new();
    Head::Reply(reply).encode(&mut frame, Some((bulk.bulk_bytes, bulk.crc32c)), |_| {});
    frame
}

// --- the kernel's structs, as far as a null file system needs them -----------------------------

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
    const INIT_EXT: u32 = 1 << 30;
    /// Bit 41 of the flags is bit 9 of their second word.
    const OVER_IO_URING: u32 = 1 << 9;
    let max_write: u32 = 1 << 20;
    put_numbers(out, &[7, 42, max_write, MAX_PAGES | BIG_WRITES | INIT_EXT]);
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
    let file = node == FILE;
    let bytes = if file { FILE_BYTES } else { 0 };
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
