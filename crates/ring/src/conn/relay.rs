//! A connection whose socket one lane has, the front, and whose requests are a peer lane's, the owner.
//!
//! The front receives, cuts, checks the checksums and sends; of the ring's deadlines, those of the
//! handshake and of who reads nothing, it keeps both and the owner none. To the owner's core it is a
//! connection like any other. Both ends copy: buffers belong to lanes. Invariants: what is said arrives in order, because letters between two
//! lanes do; of one connection about [`UNDER_WAY_BYTES_MAX`] are with the owner and not yet with its
//! core, and nothing more is received while its client owes reading
//! (`conn_out_bytes_pause`), so what the owner has to answer is bounded as it is without a relay.
//!
//! ```text
//! client ─▶ front: cut, checked ─Said─▶ owner: Adopted, Frame … ─▶ core
//! client ◀─ front: outbox      ◀─Told─ owner: Send, Admit, Close ◀─ core
//! ```

use super::sealed::Sealed;
use super::{Admission, Conn, Conns, State};
use crate::mailbox::{Letter, Relayed, Word};
use crate::number::u32_of;
use crate::socket::is_from_this_host;
use crate::tools::Tools;
use interface::{
    BufId, Bulk, CloseReason, ConnId, ContentsMac, Errno, Event, NetEvent, Span, mac_of,
};
use std::collections::VecDeque;
use wire::{Header, ProtocolError};

/// From so much on that its owner's core has not got, a front cuts no more of a connection.
const UNDER_WAY_BYTES_MAX: usize = 1 << 20;
/// What a frame counts at least.
const FRAME_BYTES_MIN: usize = 4096;
/// The object's file has become shorter than what was promised of it.
const IO: Errno = Errno(5);

/// What a front says to an owner.
pub(crate) enum Said {
    /// A client said Hello.
    Hello(Greeted),
    /// A frame.
    Frame(Frame),
    /// The connection has ended.
    Ended(CloseReason),
}

/// What a front knows of a client that said Hello.
pub(crate) struct Greeted {
    /// The frame.
    hello: Box<[u8]>,
    /// Of its TLS, if it is under it.
    sealed: Option<Sealed>,
    from_this_host: bool,
}

/// What an owner tells a front.
pub(crate) enum Told {
    /// The core has had its say about the last frame before admission.
    Heard,
    /// The peer is admitted.
    Admitted(Admission),
    /// The core got frames of so many bytes, as [`Frame::weight_bytes`] has it.
    Taken(usize),
    /// A frame to be sent, with its checksums, and its bulk behind it.
    Reply(Box<[u8]>),
    /// To be closed when what was queued has left.
    Closed,
    /// To be ended at once.
    Failed,
}

/// A frame and its bulk, whose checksums were checked.
pub(crate) struct Frame {
    bytes: Box<[u8]>,
    /// Header and body; what is behind them is bulk.
    frame_bytes: usize,
    bulk_crc32c: Option<u32>,
    bulk_mac: ContentsMac,
}

impl Frame {
    const fn bulk_bytes(&self) -> usize {
        self.bytes.len() - self.frame_bytes
    }

    /// What it counts. Many small ones are work too.
    fn weight_bytes(&self) -> usize {
        self.bytes.len().max(FRAME_BYTES_MIN)
    }
}

/// A peer lane's part in a connection.
pub(super) enum Relay {
    /// We have the socket.
    Front {
        /// Who has what it says.
        lane: usize,
        /// Of it, what that lane's core has not got.
        under_way_bytes: usize,
    },
    /// A peer lane has the socket.
    Back(Box<Back>),
}

/// The owner's end.
pub(super) struct Back {
    /// Who has the socket, and what it is called there.
    pub(super) lane: usize,
    pub(super) front: ConnId,
    /// Frames that wait for a buffer.
    waiting: VecDeque<Frame>,
    /// It is under TLS.
    sealed: bool,
    /// What the core got and the front was not told of.
    untold_bytes: usize,
}

impl Conn {
    /// Whether what it says next has to wait for its owner.
    pub(super) const fn is_held(&self) -> bool {
        match self.relay {
            Some(Relay::Front { under_way_bytes, .. }) => {
                self.paused || under_way_bytes >= UNDER_WAY_BYTES_MAX
            }
            Some(Relay::Back(_)) | None => false,
        }
    }

    /// Whether its owner's core has to have its say about what it said last.
    pub(super) const fn is_unheard(&self) -> bool {
        matches!(self.relay, Some(Relay::Front { .. })) && !self.admitted
    }
}

const fn said(front: ConnId, said: Said) -> Letter {
    Letter::Relayed(Relayed { front, word: Word::Said(said) })
}

const fn told(front: ConnId, told: Told) -> Letter {
    Letter::Relayed(Relayed { front, word: Word::Told(told) })
}

impl Conns {
    // --- at the front ----------------------------------------------------------------------------

    /// The core keeps the socket and lets a peer lane have the rest.
    pub(crate) fn relay(&mut self, id: ConnId, lane: usize, hello: Box<[u8]>, tools: &mut Tools) {
        let Some(index) = self.open_index(id) else { return };
        let conn = self.conn(index);
        let silent = conn.outbox.unsent_bytes() == 0 && !conn.admitted;
        if conn.relay.is_some() || !silent {
            return self.fail(index, CloseReason::ProtocolError(ProtocolError::Sequence), tools);
        }
        conn.relay = Some(Relay::Front { lane, under_way_bytes: 0 });
        conn.announced = false;
        conn.paused = true;
        let sealed = conn.seal.as_deref().and_then(Sealed::of);
        let from_this_host = conn.socket.as_ref().is_some_and(is_from_this_host);
        tools.counters.syscall_count += 1;
        let greeted = Greeted { hello, sealed, from_this_host };
        self.handed.push((lane, said(id, Said::Hello(greeted))));
    }

    /// A whole frame lies at the front of the inbox; its bulk, if any, has come.
    pub(super) fn pass_on(
        &mut self,
        index: u32,
        frame_bytes: usize,
        bulk: Option<Bulk>,
        tools: &mut Tools,
    ) {
        let conn = self.conn(index);
        let bulk_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes as usize);
        let mut bytes = Vec::with_capacity(frame_bytes + bulk_bytes);
        bytes.extend_from_slice(conn.inbox.front(frame_bytes));
        conn.inbox.consume(frame_bytes);
        if let Some(bulk) = bulk {
            let whole = tools.pool.append(bulk, &mut bytes);
            assert!(whole, "what was received is in memory");
            tools.pool.release(bulk.buf);
        }
        let bulk_crc32c = bulk.and_then(|bulk| bulk.crc32c);
        let bulk_mac = mac_of(bulk);
        let frame = Frame { bytes: bytes.into_boxed_slice(), frame_bytes, bulk_crc32c, bulk_mac };
        conn.paused = !conn.admitted;
        let front = conn.id;
        let Some(Relay::Front { lane, under_way_bytes }) = &mut conn.relay else {
            panic!("{front:?} is received by a lane that does not have its socket")
        };
        *under_way_bytes += frame.weight_bytes();
        let lane = *lane;
        self.handed.push((lane, said(front, Said::Frame(frame))));
    }

    /// A peer lane wrote of a connection that is relayed.
    pub(crate) fn on_relayed(&mut self, from: usize, relayed: Relayed, tools: &mut Tools) {
        let Relayed { front, word } = relayed;
        match word {
            Word::Said(said) => self.on_said(from, front, said, tools),
            Word::Told(told) => self.on_told(from, front, told, tools),
        }
    }

    /// The owner has told something.
    fn on_told(&mut self, from: usize, front: ConnId, told: Told, tools: &mut Tools) {
        // It may have ended meanwhile.
        let Some(index) = self.open_index(front) else { return };
        let conn = self.conn(index);
        let Some(Relay::Front { lane, under_way_bytes }) = &mut conn.relay else { return };
        assert!(*lane == from, "a connection has one owner");
        match told {
            Told::Heard => conn.paused = false,
            Told::Admitted(admission) => {
                (conn.admitted, conn.admission) = (true, admission);
            }
            Told::Taken(taken_bytes) => *under_way_bytes -= taken_bytes,
            Told::Reply(bytes) => return self.reply(index, &bytes, tools),
            Told::Closed => return self.close(front, tools),
            Told::Failed => return self.kill(index, tools),
        }
        // What is being received is cut when it has come.
        if !conn.recv_armed {
            self.cut(index, tools);
        }
        self.touch(index);
    }

    fn reply(&mut self, index: u32, bytes: &[u8], tools: &mut Tools) {
        if tools.fault.is_some() {
            let frame = tools.arena.put(bytes);
            tools.meet_send(frame);
        }
        self.conn(index).outbox.push(bytes, None, &mut tools.pool);
        self.queued(index, tools);
    }

    /// Whether a connection is here of which a peer lane may have something to tell.
    pub(crate) fn is_relaying(&self) -> bool {
        let relays = |conn: &Conn| {
            matches!(conn.relay, Some(Relay::Front { .. })) && matches!(conn.state, State::Open)
        };
        self.slots.iter().flatten().any(relays)
    }

    // --- at the owner ----------------------------------------------------------------------------

    /// A front has said something.
    fn on_said(&mut self, from: usize, front: ConnId, said: Said, tools: &mut Tools) {
        if let Said::Hello(greeted) = said {
            return self.begin_back((from, front), &greeted, tools);
        }
        // It may have been closed meanwhile.
        let Some(index) = self.backs.get(&(from, front)).copied() else { return };
        let conn = self.conn(index);
        let Some(Relay::Back(back)) = &mut conn.relay else { return };
        match said {
            Said::Frame(frame) => {
                back.waiting.push_back(frame);
                self.take_waiting(index, tools);
            }
            Said::Ended(reason) => {
                let event = Event::Net(NetEvent::Closed { conn: conn.id, reason });
                tools.events.push(event);
                self.bury(index, tools);
            }
            Said::Hello(_) => {}
        }
    }

    fn begin_back(&mut self, at: (usize, ConnId), greeted: &Greeted, tools: &mut Tools) {
        let (lane, front) = at;
        if !self.make_space(tools) {
            self.handed.push((lane, told(front, Told::Failed)));
            return;
        }
        let index = self.add(None, State::Open);
        let back = Back {
            lane,
            front,
            waiting: VecDeque::new(),
            sealed: greeted.sealed.is_some(),
            untold_bytes: 0,
        };
        let conn = self.conn(index);
        conn.relay = Some(Relay::Back(Box::new(back)));
        conn.paused = true;
        if greeted.from_this_host {
            tools.events.push(Event::Net(NetEvent::FromThisHost { conn: conn.id }));
        }
        self.backs.insert(at, index);
        self.announce(index, greeted.sealed.as_ref(), &greeted.hello, tools);
    }

    /// PrivilegedBits the core what there are buffers for.
    pub(super) fn take_waiting(&mut self, index: u32, tools: &mut Tools) {
        let Some(conn) = self.slots[index as usize].as_mut() else { return };
        let Some(Relay::Back(back)) = &mut conn.relay else { return };
        while !conn.starved
            && let Some(frame) = back.waiting.pop_front()
        {
            let buf = match frame.bulk_bytes() {
                0 => None,
                bulk_bytes => match tools.pool.take(bulk_bytes) {
                    Some(buf) => Some(buf),
                    None => {
                        back.waiting.push_front(frame);
                        conn.starved = true;
                        self.starved.push_back(index);
                        break;
                    }
                },
            };
            back.untold_bytes += frame.weight_bytes();
            conn.paused = !conn.admitted;
            let event = frame.event(conn.id, buf, tools);
            tools.events.push(event);
        }
        let untold = back.untold_bytes;
        if untold >= UNDER_WAY_BYTES_MAX / 2 {
            back.untold_bytes = 0;
            self.tell(index, Told::Taken(untold));
        }
        self.touch(index);
    }

    /// Before admission the core has its say about one frame at a time.
    pub(super) fn tell_heard(&mut self, index: u32) {
        if std::mem::take(&mut self.conn(index).paused) {
            self.tell(index, Told::Heard);
        }
    }

    /// Sends a frame through the front.
    pub(super) fn send_back(
        &mut self,
        index: u32,
        frame: Span,
        bulk: Option<Bulk>,
        tools: &mut Tools,
    ) {
        let frame = tools.arena.get(frame);
        let bulk_bytes = bulk.map_or(0, |bulk| bulk.bulk_bytes as usize);
        let mut bytes = Vec::with_capacity(frame.len() + bulk_bytes);
        bytes.extend_from_slice(frame);
        let relay = &self.conn(index).relay;
        if matches!(relay, Some(Relay::Back(back)) if !back.sealed) {
            Header::put_sums(&mut bytes, bulk.and_then(|bulk| tools.sum_of(bulk, false)));
        }
        if bulk.is_none_or(|bulk| tools.pool.append(bulk, &mut bytes)) {
            self.tell(index, Told::Reply(bytes.into_boxed_slice()));
        } else {
            self.fail(index, CloseReason::Failed(IO), tools);
        }
    }

    /// Whether a peer lane has its socket.
    pub(super) fn is_back(&self, index: u32) -> bool {
        let conn = self.slots[index as usize].as_ref();
        conn.is_some_and(|conn| matches!(conn.relay, Some(Relay::Back(_))))
    }

    /// Tells the front something, if there is one.
    pub(super) fn tell(&mut self, index: u32, what: Told) {
        if let Some(Relay::Back(back)) = &self.conn(index).relay {
            let (lane, front) = (back.lane, back.front);
            self.handed.push((lane, told(front, what)));
        }
    }

    // --- at both ---------------------------------------------------------------------------------

    /// The connection ends at this lane, without its peer lane's asking.
    pub(super) fn part(&mut self, index: u32, reason: CloseReason) {
        let conn = self.conn(index);
        let front = conn.id;
        match conn.relay {
            Some(Relay::Front { lane, .. }) => {
                self.handed.push((lane, said(front, Said::Ended(reason))));
            }
            Some(Relay::Back(_)) => self.tell(index, Told::Failed),
            None => {}
        }
    }
}

impl Frame {
    /// The event that brings it, with its bulk in this buffer.
    fn event(&self, conn: ConnId, buf: Option<BufId>, tools: &mut Tools) -> Event {
        let (frame, bytes) = self.bytes.split_at(self.frame_bytes);
        let bulk = buf.map(|buf| {
            tools.pool.bytes_mut(buf, 0, bytes.len()).copy_from_slice(bytes);
            Bulk {
                buf,
                start: 0,
                bulk_bytes: u32_of(bytes.len()),
                crc32c: self.bulk_crc32c,
                mac: self.bulk_mac,
            }
        });
        Event::Net(NetEvent::Frame { conn, frame: tools.arena.put(frame), bulk })
    }
}
