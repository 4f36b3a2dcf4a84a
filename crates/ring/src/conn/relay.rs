//! A relayed connection: its proxy lane has the socket, and its executing lane executes its
//! requests.
//!
//! The proxy lane receives, cuts frames, verifies checksums and sends. The deadlines of the
//! handshake and of stalled readers are also the proxy lane's. For the executing lane's core it is
//! a connection like any other. Both lanes copy, because buffers belong to lanes. Invariants:
//! messages about a connection arrive in order, because messages between two lanes do; about
//! [`UNACKED_BYTES_MAX`] of a connection are on their way to the executing lane's core, and nothing
//! more is received while its client does not read (`conn_out_bytes_pause`), so the executing
//! lane's queued replies are bounded as without a relay.
//!
//! ```text
//! client ─▶ proxy lane: frames, verified ─ToExecutor─▶ executing lane: HandedOver, Frame … ─▶ core
//! client ◀─ proxy lane: outbox           ◀──ToProxy─── executing lane: Send, Admit, Close ◀─ core
//! ```

use super::sealed::Sealed;
use super::{Admission, Conn, Conns, State};
use crate::io_context::IoContext;
use crate::mailbox::{QueuedMessage, Relayed, RelayedMessage};
use crate::number::u32_of;
use crate::socket::is_from_this_host;
use interface::{
    BufId, Bulk, CloseReason, ConnId, ContentsMac, Errno, Event, NetEvent, Span, mac_of,
};
use std::collections::VecDeque;
use wire::{Header, ProtocolError};

/// From so many bytes on that the executing core has not applied, the proxy lane cuts no more
/// frames.
const UNACKED_BYTES_MAX: usize = 1 << 20;
/// Minimum that a frame counts.
const FRAME_BYTES_MIN: usize = 4096;
/// The object's file has become shorter than the reply's bulk.
const IO: Errno = Errno(5);

/// A message from the proxy lane to the executing lane.
pub(crate) enum ToExecutor {
    /// A client sent Hello.
    Hello(RelayedHello),
    /// A frame.
    Frame(Frame),
    /// The connection has ended.
    Ended(CloseReason),
}

/// The proxy lane's state about a client that sent Hello.
pub(crate) struct RelayedHello {
    /// The Hello frame.
    hello: Box<[u8]>,
    /// Its TLS state, if it is under TLS.
    sealed: Option<Sealed>,
    from_this_host: bool,
}

/// A message from the executing lane to the proxy lane.
pub(crate) enum ToProxy {
    /// The core has processed the last frame before admission.
    Processed,
    /// The core has admitted the peer.
    Admitted(Admission),
    /// The core has received frames of so many bytes, in [`Frame::weight_bytes`].
    Credit(usize),
    /// A frame to be sent, with its checksums, and its bulk behind it.
    Reply(Box<[u8]>),
    /// Close the connection after sending what is queued.
    Close,
    /// Close the connection at once.
    Abort,
}

/// A frame and its bulk, with verified checksums.
pub(crate) struct Frame {
    bytes: Box<[u8]>,
    /// Bytes of header and body; the rest is bulk.
    frame_bytes: usize,
    bulk_crc32c: Option<u32>,
    bulk_mac: ContentsMac,
}

impl Frame {
    const fn bulk_bytes(&self) -> usize {
        self.bytes.len() - self.frame_bytes
    }

    /// The bytes that it counts. A small frame counts more than its length, because it is work too.
    fn weight_bytes(&self) -> usize {
        self.bytes.len().max(FRAME_BYTES_MIN)
    }
}

/// This lane's part in a relayed connection.
pub(super) enum Relay {
    /// This lane has the socket.
    Proxy {
        /// The executing lane.
        lane: usize,
        /// Bytes that the executing core has not received.
        unacked_bytes: usize,
    },
    /// A peer lane has the socket.
    Executor(Box<ExecutorEnd>),
}

/// The executing lane's end.
pub(super) struct ExecutorEnd {
    /// The proxy lane, and its id of the connection.
    pub(super) lane: usize,
    pub(super) proxy_conn: ConnId,
    /// Frames that wait for a buffer.
    waiting: VecDeque<Frame>,
    /// The connection is under TLS.
    sealed: bool,
    /// Bytes that the core received and that were not yet credited to the proxy lane.
    uncredited_bytes: usize,
}

impl Conn {
    /// Whether its next frame must wait for the executing lane.
    pub(super) const fn waits_for_credit(&self) -> bool {
        match self.relay {
            Some(Relay::Proxy { unacked_bytes, .. }) => {
                self.paused || unacked_bytes >= UNACKED_BYTES_MAX
            }
            Some(Relay::Executor(_)) | None => false,
        }
    }

    /// Whether the executing lane's core must process its last frame first.
    pub(super) const fn waits_for_executor(&self) -> bool {
        matches!(self.relay, Some(Relay::Proxy { .. })) && !self.admitted
    }
}

const fn to_executor(proxy_conn: ConnId, message: ToExecutor) -> QueuedMessage {
    QueuedMessage::Relayed(Relayed { proxy_conn, message: RelayedMessage::ToExecutor(message) })
}

const fn to_proxy(proxy_conn: ConnId, message: ToProxy) -> QueuedMessage {
    QueuedMessage::Relayed(Relayed { proxy_conn, message: RelayedMessage::ToProxy(message) })
}

impl Conns {
    // --- at the proxy lane -----------------------------------------------------------------------

    /// The core keeps the socket and lets a peer lane execute the requests.
    pub(crate) fn relay(&mut self, id: ConnId, lane: usize, hello: Box<[u8]>, io: &mut IoContext) {
        let Some(index) = self.open_index(id) else { return };
        let conn = self.conn(index);
        let is_fresh = conn.outbox.unsent_bytes() == 0 && !conn.admitted;
        if conn.relay.is_some() || !is_fresh {
            return self.fail(index, CloseReason::ProtocolError(ProtocolError::Sequence), io);
        }
        conn.relay = Some(Relay::Proxy { lane, unacked_bytes: 0 });
        conn.announced = false;
        conn.paused = true;
        let sealed = conn.seal.as_deref().and_then(Sealed::of);
        let from_this_host = conn.socket.as_ref().is_some_and(is_from_this_host);
        io.counters.syscall_count += 1;
        let relayed_hello = RelayedHello { hello, sealed, from_this_host };
        self.to_peers.push((lane, to_executor(id, ToExecutor::Hello(relayed_hello))));
    }

    /// A complete frame is at the front of the inbox; its bulk, if any, was received.
    pub(super) fn forward_frame(
        &mut self,
        index: u32,
        frame_bytes: usize,
        bulk: Option<Bulk>,
        io: &mut IoContext,
    ) {
        let conn = self.conn(index);
        let bulk_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes as usize);
        let mut bytes = Vec::with_capacity(frame_bytes + bulk_bytes);
        bytes.extend_from_slice(conn.inbox.front(frame_bytes));
        conn.inbox.consume(frame_bytes);
        if let Some(bulk) = bulk {
            let whole = io.pool.append(bulk, &mut bytes);
            assert!(whole, "what was received is in memory");
            io.pool.release(bulk.buf);
        }
        let bulk_crc32c = bulk.and_then(|bulk| bulk.crc32c);
        let bulk_mac = mac_of(bulk);
        let frame = Frame { bytes: bytes.into_boxed_slice(), frame_bytes, bulk_crc32c, bulk_mac };
        conn.paused = !conn.admitted;
        let proxy_conn = conn.id;
        let Some(Relay::Proxy { lane, unacked_bytes }) = &mut conn.relay else {
            panic!("{proxy_conn:?} is received by a lane that does not have its socket")
        };
        *unacked_bytes += frame.weight_bytes();
        let lane = *lane;
        self.to_peers.push((lane, to_executor(proxy_conn, ToExecutor::Frame(frame))));
    }

    /// A peer lane sent a message about a relayed connection.
    pub(crate) fn on_relayed(&mut self, from: usize, relayed: Relayed, io: &mut IoContext) {
        let Relayed { proxy_conn, message } = relayed;
        match message {
            RelayedMessage::ToExecutor(message) => {
                self.on_to_executor(from, proxy_conn, message, io)
            }
            RelayedMessage::ToProxy(message) => self.on_to_proxy(from, proxy_conn, message, io),
        }
    }

    /// A message from the executing lane.
    fn on_to_proxy(
        &mut self,
        from: usize,
        proxy_conn: ConnId,
        message: ToProxy,
        io: &mut IoContext,
    ) {
        // The connection may have ended meanwhile.
        let Some(index) = self.open_index(proxy_conn) else { return };
        let conn = self.conn(index);
        let Some(Relay::Proxy { lane, unacked_bytes }) = &mut conn.relay else { return };
        assert!(*lane == from, "a connection has one executing lane");
        match message {
            ToProxy::Processed => conn.paused = false,
            ToProxy::Admitted(admission) => {
                (conn.admitted, conn.admission) = (true, admission);
            }
            ToProxy::Credit(taken_bytes) => *unacked_bytes -= taken_bytes,
            ToProxy::Reply(bytes) => return self.reply(index, &bytes, io),
            ToProxy::Close => return self.close(proxy_conn, io),
            ToProxy::Abort => return self.abort(index, io),
        }
        // A bulk that is being received is cut when it is complete.
        if !conn.recv_armed {
            self.cut(index, io);
        }
        self.touch(index);
    }

    fn reply(&mut self, index: u32, bytes: &[u8], io: &mut IoContext) {
        if io.fault.is_some() {
            let frame = io.arena.put(bytes);
            io.check_reply_fault(frame);
        }
        self.conn(index).outbox.push(bytes, None, &mut io.pool);
        self.queued(index, io);
    }

    /// Whether this lane proxies an open connection for a peer lane.
    pub(crate) fn has_proxied(&self) -> bool {
        let is_proxied = |conn: &Conn| {
            matches!(conn.relay, Some(Relay::Proxy { .. })) && matches!(conn.state, State::Open)
        };
        self.slots.iter().any(|(_, conn)| is_proxied(conn))
    }

    // --- at the executing lane -------------------------------------------------------------------

    /// A message from the proxy lane.
    fn on_to_executor(
        &mut self,
        from: usize,
        proxy_conn: ConnId,
        message: ToExecutor,
        io: &mut IoContext,
    ) {
        if let ToExecutor::Hello(relayed_hello) = message {
            return self.begin_executor_end((from, proxy_conn), &relayed_hello, io);
        }
        // The connection may have been closed meanwhile.
        let Some(index) = self.executor_ends.get(&(from, proxy_conn)).copied() else { return };
        let conn = self.conn(index);
        let Some(Relay::Executor(end)) = &mut conn.relay else { return };
        match message {
            ToExecutor::Frame(frame) => {
                end.waiting.push_back(frame);
                self.deliver_waiting(index, io);
            }
            ToExecutor::Ended(reason) => {
                let event = Event::Net(NetEvent::Closed { conn: conn.id, reason });
                io.events.push(event);
                self.remove(index, io);
            }
            ToExecutor::Hello(_) => {}
        }
    }

    fn begin_executor_end(
        &mut self,
        at: (usize, ConnId),
        relayed_hello: &RelayedHello,
        io: &mut IoContext,
    ) {
        let (lane, proxy_conn) = at;
        if !self.evict_for_new(io) {
            self.to_peers.push((lane, to_proxy(proxy_conn, ToProxy::Abort)));
            return;
        }
        let index = self.add(None, State::Open);
        let end = ExecutorEnd {
            lane,
            proxy_conn,
            waiting: VecDeque::new(),
            sealed: relayed_hello.sealed.is_some(),
            uncredited_bytes: 0,
        };
        let conn = self.conn(index);
        conn.relay = Some(Relay::Executor(Box::new(end)));
        conn.paused = true;
        if relayed_hello.from_this_host {
            io.events.push(Event::Net(NetEvent::FromThisHost { conn: conn.id }));
        }
        self.executor_ends.insert(at, index);
        self.announce(index, relayed_hello.sealed.as_ref(), &relayed_hello.hello, io);
    }

    /// Passes waiting frames to the core, as far as there are buffers.
    pub(super) fn deliver_waiting(&mut self, index: u32, io: &mut IoContext) {
        let Some(conn) = self.slots.get_mut(index as usize) else { return };
        let Some(Relay::Executor(end)) = &mut conn.relay else { return };
        while !conn.starved
            && let Some(frame) = end.waiting.pop_front()
        {
            let buf = match frame.bulk_bytes() {
                0 => None,
                bulk_bytes => match io.pool.take(bulk_bytes) {
                    Some(buf) => Some(buf),
                    None => {
                        end.waiting.push_front(frame);
                        conn.starved = true;
                        self.starved.push_back(index);
                        break;
                    }
                },
            };
            end.uncredited_bytes += frame.weight_bytes();
            conn.paused = !conn.admitted;
            let event = frame.event(conn.id, buf, io);
            io.events.push(event);
        }
        let credit = end.uncredited_bytes;
        if credit >= UNACKED_BYTES_MAX / 2 {
            end.uncredited_bytes = 0;
            self.send_to_proxy(index, ToProxy::Credit(credit));
        }
        self.touch(index);
    }

    /// Before admission, the core processes one frame at a time.
    pub(super) fn report_processed(&mut self, index: u32) {
        if std::mem::take(&mut self.conn(index).paused) {
            self.send_to_proxy(index, ToProxy::Processed);
        }
    }

    /// Sends a frame through the proxy lane.
    pub(super) fn send_via_proxy(
        &mut self,
        index: u32,
        frame: Span,
        bulk: Option<Bulk>,
        io: &mut IoContext,
    ) {
        let frame = io.arena.get(frame);
        let bulk_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes as usize);
        let mut bytes = Vec::with_capacity(frame.len() + bulk_bytes);
        bytes.extend_from_slice(frame);
        let relay = &self.conn(index).relay;
        if matches!(relay, Some(Relay::Executor(end)) if !end.sealed) {
            Header::put_sums(&mut bytes, bulk.and_then(|bulk| io.sum_of(bulk, false)));
        }
        if bulk.is_none_or(|bulk| io.pool.append(bulk, &mut bytes)) {
            self.send_to_proxy(index, ToProxy::Reply(bytes.into_boxed_slice()));
        } else {
            self.fail(index, CloseReason::Failed(IO), io);
        }
    }

    /// Whether a peer lane has its socket.
    pub(super) fn is_executor_end(&self, index: u32) -> bool {
        let conn = self.slots.get(index as usize);
        conn.is_some_and(|conn| matches!(conn.relay, Some(Relay::Executor(_))))
    }

    /// Sends a message to the proxy lane, if the connection has one.
    pub(super) fn send_to_proxy(&mut self, index: u32, what: ToProxy) {
        if let Some(Relay::Executor(end)) = &self.conn(index).relay {
            let (lane, proxy_conn) = (end.lane, end.proxy_conn);
            self.to_peers.push((lane, to_proxy(proxy_conn, what)));
        }
    }

    // --- at both ---------------------------------------------------------------------------------

    /// The connection ends at this lane, not by the peer lane's request.
    pub(super) fn end_relay(&mut self, index: u32, reason: CloseReason) {
        let conn = self.conn(index);
        let proxy_conn = conn.id;
        match conn.relay {
            Some(Relay::Proxy { lane, .. }) => {
                self.to_peers.push((lane, to_executor(proxy_conn, ToExecutor::Ended(reason))));
            }
            Some(Relay::Executor(_)) => self.send_to_proxy(index, ToProxy::Abort),
            None => {}
        }
    }
}

impl Frame {
    /// The event for the core, with the bulk in this buffer.
    fn event(&self, conn: ConnId, buf: Option<BufId>, io: &mut IoContext) -> Event {
        let (frame, bytes) = self.bytes.split_at(self.frame_bytes);
        let bulk = buf.map(|buf| {
            io.pool.bytes_mut(buf, 0, bytes.len()).copy_from_slice(bytes);
            Bulk {
                buf,
                start: 0,
                bulk_bytes: u32_of(bytes.len()),
                crc32c: self.bulk_crc32c,
                mac: self.bulk_mac,
            }
        });
        Event::Net(NetEvent::Frame { conn, frame: io.arena.put(frame), bulk })
    }
}
