//! Connections: from accept or connect to the last byte.
//!
//! They receive, cut frames, verify checksums where there are any, send one wave a turn and close
//! in order. The meaning of a frame is the core's. Invariants: a connection has at most one receive
//! and one send (or wait for send space) in flight; its slot is reused only when none is; a
//! [`ConnId`] is never reused.
//!
//! ```text
//! Connecting ─▶ (Sealing ─▶) Open ─▶ Closing (queued bytes leave) ─▶ Dead ─▶ removed
//!                 ├──▶ HandingOver (its receive is being cancelled) ─▶ removed, to a peer lane
//!                 ├──▶ Open with a relay: a peer lane has the socket, or executes the requests
//!                 └──▶ Dead (ended, failed, protocol error: operations in flight must complete)
//! ```

mod begin;
mod connect;
mod deadline;
mod handover;
mod landing;
mod recv;
mod relay;
mod sealed;
mod sendfile;
mod sending;
mod sums;
mod unfinished;

pub(crate) use relay::{ToExecutor, ToProxy};
pub(crate) use sealed::Seals;
pub(crate) use unfinished::Admission;

use crate::driver::{Kind, Op, Token};
use crate::framing::Inbox;
use crate::io_context::IoContext;
use crate::limits::Limits;
use crate::listen::Address;
use crate::mailbox::QueuedMessage;
use crate::number::{u32_of, u64_of};
use crate::send::Outbox;
use interface::{
    BufId, Bulk, CloseReason, ConnId, Errno, Event, Mono, NetEvent, Shares, Span, Ticket,
};
use landing::Landed;
use relay::Relay;
use rustix::net::{Shutdown, shutdown};
use seal::Seal;
use sending::Sending;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use sums::Sums;
use unfinished::{Charge, Unfinished};
use wire::{Lengths, ProtocolError};

/// Bits of a [`ConnId`] that are the slot's index.
const INDEX_BITS: u32 = 20;
/// Queued replies below this wait for those to requests of the same receive.
const GATHER_BYTES_MAX: usize = 4096;
const CANCELLED: Errno = Errno(125);

enum State {
    Connecting {
        ticket: Ticket,
        /// TLS protects it once it is connected.
        sealed: bool,
    },
    /// Connected; the TLS handshake is in progress.
    Sealing {
        ticket: Ticket,
    },
    Open,
    HandingOver {
        lane: usize,
        hello: Box<[u8]>,
    },
    Closing {
        shut: bool,
        peer_ended: bool,
    },
    Dead,
}

/// A bulk that is being received; its frame waits at the front of the inbox.
struct Incoming {
    buf: BufId,
    lengths: Lengths,
    received_bytes: usize,
    charge: Option<Charge>,
    sums: Sums,
    /// Under TLS: received bytes that are not yet decrypted.
    landed: Landed,
}

struct Conn {
    id: ConnId,
    socket: Option<OwnedFd>,
    state: State,
    /// `NetEvent::Opened` was delivered to the core.
    announced: bool,
    admitted: bool,
    admission: Admission,
    /// No more frames are cut in this turn: the core must apply a frame before admission first, or
    /// the connection has brought its share of the turn.
    paused: bool,
    /// It waits for a buffer.
    starved: bool,
    touched: bool,
    recv_armed: bool,
    send_armed: bool,
    /// The send in flight is at once: its success ends no wait.
    sends_at_once: bool,
    sending: Sending,
    /// It waits for space in the socket's send buffer.
    writable_armed: bool,
    /// System calls on the socket do not block. The driver's sends and receives ignore this.
    nonblocking: bool,
    /// The last send did not fit the socket completely: the next one waits for space.
    socket_full: bool,
    connect_armed: bool,
    /// It is in `stalling`, with the acknowledged bytes at the last check.
    watched: bool,
    acked_bytes: Option<u64>,
    /// It was accepted, not connected.
    accepted: bool,
    /// Its TLS state.
    seal: Option<Box<Seal>>,
    inbox: Inbox,
    incoming: Option<Incoming>,
    /// Bytes still to be received of a bulk that is discarded.
    skip_bytes: usize,
    unfinished: Option<Unfinished>,
    /// It is in `unfinished`.
    finish_watched: bool,
    outbox: Outbox,
    address: Option<Box<Address>>,
    /// A peer lane has its socket or executes its requests.
    relay: Option<Relay>,
}

impl Conn {
    const fn is_armed(&self) -> bool {
        self.recv_armed || self.send_armed || self.writable_armed || self.connect_armed
    }

    /// Open or in its handshake: neither closing nor being handed over.
    const fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Sealing { .. })
    }

    fn raw(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

/// All connections of a lane.
pub(crate) struct Conns {
    slots: Slab<Conn>,
    serial: u64,
    live_count: usize,
    limits: Limits,
    server: Option<SocketAddr>,
    seals: Seals,
    /// Buffer id of all bulk, if received bulk is discarded; never written.
    sink: Option<BufId>,
    /// Key of the MAC of request bulk.
    contents_key: Option<[u8; 32]>,
    touched: Vec<u32>,
    starved: VecDeque<u32>,
    /// Frames that clients may still bring in this turn: all together, and each of them.
    turn_frames_left: usize,
    conn_frames_max: usize,
    /// Deadlines ascend, because each of the two kinds has one duration.
    closing: VecDeque<(Mono, ConnId)>,
    handshake: VecDeque<(Mono, ConnId)>,
    /// Connections with unacknowledged bytes, by the time of the last check.
    stalling: VecDeque<(Mono, ConnId)>,
    /// Connections that have begun a frame, likewise.
    unfinished: VecDeque<(Mono, ConnId)>,
    /// Buffer bytes of incomplete bulks by party, and whether some were released since the last
    /// turn.
    charged: Shares,
    discharged: bool,
    /// Slots of connections that this lane executes, by proxy lane and its id of the connection.
    executor_ends: HashMap<(usize, ConnId), u32>,
    /// Messages to peer lanes: connections handed over, and messages about relayed ones.
    pub(crate) to_peers: Vec<(usize, QueuedMessage)>,
}

impl Conns {
    pub(crate) fn new(
        limits: Limits,
        server: Option<SocketAddr>,
        (seals, sink): (Seals, Option<BufId>),
        contents_key: Option<[u8; 32]>,
    ) -> Self {
        Self {
            seals,
            sink,
            contents_key,
            slots: Slab::new(),
            serial: 0,
            live_count: 0,
            limits,
            server,
            touched: Vec::new(),
            starved: VecDeque::new(),
            turn_frames_left: 0,
            conn_frames_max: 0,
            closing: VecDeque::new(),
            handshake: VecDeque::new(),
            stalling: VecDeque::new(),
            unfinished: VecDeque::new(),
            charged: Shares::new(),
            discharged: false,
            executor_ends: HashMap::new(),
            to_peers: Vec::new(),
        }
    }

    // --- actions of the core --------------------------------------------------------------------

    pub(crate) fn admit(&mut self, id: ConnId, admission: Admission) {
        if let Some(index) = self.open_index(id) {
            let conn = self.conn(index);
            (conn.admitted, conn.admission) = (true, admission);
            self.touch(index);
            self.send_to_proxy(index, ToProxy::Admitted(admission));
        }
    }

    pub(crate) fn send(&mut self, id: ConnId, frame: Span, bulk: Option<Bulk>, io: &mut IoContext) {
        let Some(index) = self.open_index(id) else { return };
        if self.is_executor_end(index) {
            return self.send_via_proxy(index, frame, bulk, io);
        }
        io.check_reply_fault(frame);
        self.conn(index).push(frame, bulk, io);
        self.queued(index, io);
    }

    /// A frame was queued.
    fn queued(&mut self, index: u32, io: &mut IoContext) {
        let limit_bytes = self.limits.conn_out_bytes_max;
        let conn = self.conn(index);
        io.counters.frame_out_count += 1;
        if conn.outbox.unsent_bytes() > limit_bytes {
            self.fail(index, CloseReason::TooSlow, io);
        } else {
            self.touch(index);
        }
    }

    pub(crate) fn close(&mut self, id: ConnId, io: &mut IoContext) {
        let Some(index) = self.open_index(id) else { return };
        if self.is_executor_end(index) {
            self.send_to_proxy(index, ToProxy::Close);
            return self.remove(index, io);
        }
        self.begin_close(index, io);
    }

    /// Sends what is queued, then ends the connection.
    fn begin_close(&mut self, index: u32, io: &mut IoContext) {
        let until = io.now.mono.after_ms(self.limits.close_ms_max);
        let conn = self.conn(index);
        conn.state = State::Closing { shut: false, peer_ended: false };
        let id = conn.id;
        self.closing.push_back((until, id));
        self.touch(index);
    }

    // --- completions -----------------------------------------------------------------------------

    pub(crate) fn on_recv(&mut self, index: u32, result: Result<u32, Errno>, io: &mut IoContext) {
        let conn = self.conn(index);
        conn.recv_armed = false;
        if let Ok(received_bytes) = result {
            io.counters.in_bytes += u64::from(received_bytes);
        }
        match (&mut conn.state, result) {
            (State::Dead, _) => self.remove_if_quiet(index, io),
            (State::HandingOver { .. }, Err(CANCELLED)) => self.complete_handover(index, io),
            (State::HandingOver { .. }, Ok(1..)) => {
                self.fail(index, CloseReason::ProtocolError(ProtocolError::Sequence), io);
            }
            (State::Closing { peer_ended, .. }, Ok(received_bytes)) => {
                *peer_ended = received_bytes == 0;
                self.touch(index);
            }
            (State::Closing { .. }, Err(_)) => self.abort(index, io),
            (_, Ok(0)) => self.fail(index, CloseReason::Ended, io),
            (_, Ok(received_bytes)) => self.received(index, received_bytes as usize, io),
            (_, Err(Errno(4))) => self.touch(index),
            (_, Err(errno)) => self.fail(index, CloseReason::Failed(errno), io),
        }
    }

    // --- the end of a turn -----------------------------------------------------------------------

    /// Starts the sends and receives of all touched connections. `freed`: buffers were released.
    pub(crate) fn flush(&mut self, freed: bool, io: &mut IoContext) {
        self.begin_turn();
        self.share_turn(self.touched.len());
        let freed = std::mem::take(&mut self.discharged) || freed;
        let starved_count = if freed { self.starved.len() } else { 0 };
        for _ in 0..starved_count {
            let Some(index) = self.starved.pop_front() else { break };
            if let Some(conn) = self.slots.get_mut(index as usize) {
                conn.starved = false;
                if self.is_executor_end(index) {
                    self.deliver_waiting(index, io);
                } else {
                    self.cut(index, io);
                }
                self.touch(index);
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            let Some(conn) = self.slots.get_mut(index as usize) else { continue };
            conn.touched = false;
            if self.is_executor_end(index) {
                self.report_processed(index);
                continue;
            }
            if !self.resume(index, io) {
                self.arm_send(index, io);
            }
            self.arm_recv(index, io);
        }
        // Connections touched meanwhile (by a frame before admission) wait for the next turn.
        if self.touched.is_empty() {
            self.touched = touched;
        }
    }

    /// Whether there is work for another turn without waiting.
    pub(crate) fn is_ready(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Whether a connection waits for a buffer.
    pub(crate) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Cuts frames that had to wait for the next turn. Returns whether queued replies wait for
    /// those to the remaining frames: requests received together are answered together.
    fn resume(&mut self, index: u32, io: &mut IoContext) -> bool {
        let conn = self.conn(index);
        let open = matches!(conn.state, State::Open) && !conn.waits_for_executor();
        if !open || !std::mem::take(&mut conn.paused) {
            return false;
        }
        let waits = conn.admitted && conn.outbox.unsent_bytes() < GATHER_BYTES_MAX;
        self.cut(index, io);
        self.touch(index);
        waits
    }

    fn arm_send(&mut self, index: u32, io: &mut IoContext) {
        let Some(conn) = self.slots.get_mut(index as usize) else { return };
        let sends = conn.is_open() || matches!(conn.state, State::Closing { .. });
        let has_more = conn.outbox.has_more();
        if has_more && (conn.send_armed || conn.writable_armed) {
            conn.sending.queue(io.now.mono);
        }
        let more = has_more || !conn.is_open();
        if sends && conn.send_armed && conn.sends_at_once && more {
            // A following send or the close is done in the next turn, which does not wait.
            return self.touch(index);
        }
        if !sends || conn.send_armed || conn.writable_armed {
            return;
        }
        let ready =
            if conn.seal.is_some() { self.seal(index, io) } else { self.send_files(index, io) };
        if !ready {
            return;
        }
        let pause_bytes = self.limits.conn_out_bytes_pause;
        let conn = self.conn(index);
        // The completion must end the wait where more than memory depends on it: the close of the
        // connection, or its next receive.
        let at_once =
            !conn.socket_full && conn.is_open() && conn.outbox.unsent_bytes() < pause_bytes;
        if let Some(op) = conn.outbox.next(conn.raw(), at_once, &mut io.pool) {
            conn.send_armed = true;
            conn.sending.begin(io.now.mono);
            conn.sends_at_once = matches!(
                op,
                Op::Send { at_once: true, .. } | Op::SendGathered { at_once: true, .. }
            );
            io.counters.send_count += 1;
            // SAFETY: the outbox keeps bytes, buffers and message in place until `sent`, the
            // connection keeps socket and outbox until nothing is armed.
            unsafe { io.driver.queue(Token::new(Kind::Send, index), op) };
            // A send at once either fits or fails, so it cannot stall.
            if !conn.sends_at_once {
                self.watch(index, io.now.mono);
            }
            return;
        }
        self.time_files(index, io);
        let conn = self.conn(index);
        if let State::Closing { shut, peer_ended } = &mut conn.state {
            let ended = *peer_ended;
            if !std::mem::replace(shut, true)
                && let Some(socket) = &conn.socket
            {
                io.counters.syscall_count += 1;
                // Fails if the peer has already closed the connection.
                shutdown(socket, Shutdown::Write).ok();
            }
            if ended {
                self.abort(index, io);
            }
        }
    }

    fn arm_recv(&mut self, index: u32, io: &mut IoContext) {
        let Some(conn) = self.slots.get_mut(index as usize) else { return };
        let closing = matches!(conn.state, State::Closing { .. });
        let open = conn.is_open() && !conn.waits_for_credit();
        if conn.recv_armed || !(closing || open) {
            return;
        }
        if closing {
            // Received bytes are discarded: unread bytes would make the kernel reset the
            // connection, and the peer would lose what it was sent.
            conn.inbox.clear();
            let ended = matches!(conn.state, State::Closing { peer_ended: true, .. });
            if let Some(seal) = &mut conn.seal {
                seal.clear();
            }
            if let Some(incoming) = conn.incoming.take() {
                io.pool.release(incoming.buf);
                self.discharge(incoming.charge);
            }
            if ended {
                return;
            }
        }
        let conn = self.conn(index);
        if conn.paused {
            return self.touch(index);
        }
        if conn.starved || matches!(conn.state, State::Dead) {
            return;
        }
        if !self.receive_bulk(index, io) {
            return;
        }
        let (discard, pause_bytes) = (self.sink.is_some(), self.limits.conn_out_bytes_pause);
        let conn = self.conn(index);
        // Back-pressure: a client that does not read its replies may send no further requests. A
        // frame that has begun is still received.
        let owed = conn.outbox.unsent_bytes() >= pause_bytes;
        if conn.accepted && (owed || conn.waits_for_credit()) && conn.incoming.is_none() {
            return;
        }
        let socket = conn.raw();
        let op = match conn.incoming {
            _ if conn.seal.is_some() => conn.receive_records(discard, &mut io.pool),
            Some(Incoming { buf, lengths, received_bytes, ref sums, .. }) => {
                let mut rest_bytes = lengths.bulk_bytes as usize - received_bytes;
                if sums.is_wanted() {
                    // Summed before more displaces it from the cache.
                    rest_bytes = rest_bytes.min(recv::PIECE_BYTES_MAX);
                }
                let at = io.pool.at(buf, received_bytes, rest_bytes);
                let space_bytes = u32_of(rest_bytes);
                // The kernel (6.18) waits for too much if a receive is both `whole` and `discard`.
                Op::Recv { socket, at, space_bytes, whole: !discard, discard }
            }
            None => {
                let space = conn.inbox.space();
                let (at, space_bytes) = (space.as_mut_ptr(), u32_of(space.len()));
                Op::Recv { socket, at, space_bytes, whole: false, discard: false }
            }
        };
        conn.recv_armed = true;
        io.counters.recv_count += 1;
        // SAFETY: inbox and buffer belong to the connection and stay in place and untouched until
        // the completion, before which the slot is not removed.
        unsafe { io.driver.queue(Token::new(Kind::Recv, index), op) };
    }

    /// Whether any connection has bytes to send.
    pub(crate) fn is_sending(&self) -> bool {
        let unsent = |conn: &Conn| {
            !matches!(conn.state, State::Dead)
                && (conn.outbox.unsent_bytes() > 0 || conn.send_armed)
        };
        self.slots.iter().any(|(_, conn)| unsent(conn))
    }

    pub(crate) const fn live_count(&self) -> usize {
        self.live_count
    }

    // --- how a connection ends -------------------------------------------------------------------

    /// Ends a connection that the core did not close.
    fn fail(&mut self, index: u32, reason: CloseReason, io: &mut IoContext) {
        if matches!(reason, CloseReason::ProtocolError(_)) {
            io.counters.protocol_error_count += 1;
        }
        let conn = self.conn(index);
        if let State::Sealing { ticket } = conn.state {
            let reason = sealed::failed_of(reason);
            io.events.push(Event::Net(NetEvent::ConnectFailed { ticket, reason }));
        } else if conn.announced {
            io.events.push(Event::Net(NetEvent::Closed { conn: conn.id, reason }));
        }
        self.end_relay(index, reason);
        self.abort(index, io);
    }

    fn abort(&mut self, index: u32, io: &mut IoContext) {
        let conn = self.conn(index);
        conn.state = State::Dead;
        let socket = conn.raw();
        if conn.recv_armed {
            io.driver.cancel(Token::new(Kind::Recv, index), socket);
        }
        if conn.send_armed {
            io.driver.cancel(Token::new(Kind::Send, index), socket);
        }
        if conn.writable_armed {
            io.driver.cancel(Token::new(Kind::Writable, index), socket);
        }
        if conn.connect_armed {
            io.driver.cancel(Token::new(Kind::Connect, index), socket);
        }
        self.remove_if_quiet(index, io);
    }

    fn remove_if_quiet(&mut self, index: u32, io: &mut IoContext) {
        if !self.conn(index).is_armed() {
            self.remove(index, io);
        }
    }

    fn remove(&mut self, index: u32, io: &mut IoContext) {
        let Some(mut conn) = self.slots.try_remove(index as usize) else { return };
        assert!(!conn.is_armed(), "the kernel still works for this connection");
        if let Some(socket) = &conn.socket {
            io.driver.forget(socket.as_raw_fd());
            io.counters.syscall_count += 1; // Its close.
        }
        conn.outbox.clear(&mut io.pool);
        if let Some(Relay::Executor(back)) = &conn.relay {
            self.executor_ends.remove(&(back.lane, back.proxy_conn));
        }
        if let Some(incoming) = conn.incoming {
            io.pool.release(incoming.buf);
            self.discharge(incoming.charge);
        }
        self.live_count -= 1;
    }

    // --- slots -----------------------------------------------------------------------------------

    fn conn(&mut self, index: u32) -> &mut Conn {
        &mut self.slots[index as usize]
    }

    fn touch(&mut self, index: u32) {
        let Some(conn) = self.slots.get_mut(index as usize) else { return };
        if !conn.touched {
            conn.touched = true;
            self.touched.push(index);
        }
    }

    fn index_of(&self, id: ConnId) -> Option<u32> {
        let index = u32_of(crate::number::usize_of(id.0 & ((1 << INDEX_BITS) - 1)));
        let conn = self.slots.get(index as usize)?;
        (conn.id == id).then_some(index)
    }

    fn open_index(&self, id: ConnId) -> Option<u32> {
        let index = self.index_of(id)?;
        self.slots.get(index as usize).filter(|conn| conn.is_open()).map(|_| index)
    }
}

const _: () = assert!(u64_of(1 << INDEX_BITS) << INDEX_BITS != 0, "a serial has 44 bits");
