//! The simulated runtime's state of one lane, of a server or a client: delivered events, buffers,
//! the wakeup.

use crate::number::{narrow, narrow_u32};
use interface::{
    Arena, BufId, Bulk, CORE_BUF_ID_MIN, ConnId, Errno, Event, NO_MAC, NetEvent, ObjectEvent,
    PeerEvent, Seed, StoreEvent, Ticket,
};
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;
use wire::LaneId;

/// A delivered event. Frames and messages become an `Event` when the turn begins, because their
/// bytes go to the turn's arena.
#[derive(Clone, Debug)]
pub(crate) enum Incoming {
    Frame { conn: ConnId, frame: Vec<u8>, bulk: Option<Vec<u8>> },
    HandedOver { conn: ConnId, hello: Vec<u8> },
    Read { ticket: Ticket, result: Result<Vec<u8>, Errno> },
    Message { from: LaneId, body: Vec<u8> },
    Rows { ticket: Ticket, result: Result<Vec<u8>, Errno> },
    Sums { ticket: Ticket, result: Result<Vec<u8>, Errno>, from_disk: bool },
    Written { ticket: Ticket, result: Result<Vec<u8>, Errno> },
    Plain(Event),
}

/// A stand-in for the MAC of a bulk: different for different bytes, which suffices here.
fn mac_of(bytes: &[u8]) -> interface::ContentsMac {
    let mut mac = NO_MAC;
    mac[..8].copy_from_slice(&Seed(0).hash_one(bytes).to_le_bytes());
    mac
}

/// The buffers of a lane.
#[derive(Default, Debug)]
pub(crate) struct Bufs {
    live: BTreeMap<u32, Vec<u8>>,
    count: u32,
}

impl Bufs {
    pub(crate) fn put(&mut self, bytes: Vec<u8>) -> Bulk {
        self.count += 1;
        let bulk = Bulk {
            buf: BufId(self.count),
            start: 0,
            bulk_bytes: narrow_u32(bytes.len()),
            crc32c: Some(wire::crc32c(&bytes)),
            mac: mac_of(&bytes),
        };
        self.live.insert(self.count, bytes);
        bulk
    }

    /// The bytes of a bulk; `None` if the lane has released the buffer.
    pub(crate) fn get(&self, bulk: Bulk) -> Option<Vec<u8>> {
        let bytes = self.live.get(&bulk.buf.0)?;
        let start = narrow(u64::from(bulk.start));
        bytes.get(start..start + narrow(u64::from(bulk.bulk_bytes))).map(<[u8]>::to_vec)
    }

    /// Copies bytes into a buffer whose number the lane chose; false if that is not possible.
    pub(crate) fn retain(&mut self, as_buf: BufId, bulk: Bulk) -> bool {
        let Some(bytes) = self.get(bulk) else { return false };
        as_buf.0 >= CORE_BUF_ID_MIN && self.live.insert(as_buf.0, bytes).is_none()
    }

    /// False if there is no such buffer.
    pub(crate) fn release(&mut self, buf: BufId) -> bool {
        self.live.remove(&buf.0).is_some()
    }
}

/// The state of a lane.
#[derive(Default, Debug)]
pub(crate) struct LaneState {
    pub(crate) arena: Arena,
    pub(crate) inbox: VecDeque<Incoming>,
    pub(crate) bufs: Bufs,
    pub(crate) wake_at_ns: Option<u64>,
    /// A turn is scheduled.
    pub(crate) turn_is_due: bool,
    /// The lane takes no turn before.
    pub(crate) paused_until_ns: u64,
    pub(crate) stopped: bool,
}

impl LaneState {
    /// Takes the first `count` delivered events for a turn.
    pub(crate) fn events(&mut self, count: usize) -> Vec<Event> {
        self.arena.reset();
        let count = count.min(self.inbox.len());
        let mut events = Vec::with_capacity(count);
        for incoming in self.inbox.drain(..count) {
            events.push(match incoming {
                Incoming::Plain(event) => event,
                Incoming::HandedOver { conn, hello } => {
                    Event::Net(NetEvent::HandedOver { conn, hello: self.arena.put(&hello) })
                }
                Incoming::Frame { conn, frame, bulk } => {
                    let bulk = bulk.map(|bulk| self.bufs.put(bulk));
                    Event::Net(NetEvent::Frame { conn, frame: self.arena.put(&frame), bulk })
                }
                Incoming::Message { from, body } => {
                    Event::Peer(PeerEvent::Received { from, body: self.arena.put(&body) })
                }
                Incoming::Rows { ticket, result } => {
                    let result = result.map(|rows| self.arena.put(&rows));
                    Event::Store(StoreEvent::Rows { ticket, result })
                }
                Incoming::Sums { ticket, result, from_disk } => {
                    let result = result.map(|sums| self.arena.put(&sums));
                    Event::Object(ObjectEvent::Sums { ticket, result, from_disk })
                }
                Incoming::Written { ticket, result } => {
                    let result = result.map(|sums| self.arena.put(&sums));
                    Event::Object(ObjectEvent::Written { ticket, result })
                }
                Incoming::Read { ticket, result } => {
                    let result =
                        result.map(|bytes| (!bytes.is_empty()).then(|| self.bufs.put(bytes)));
                    Event::Object(ObjectEvent::Read { ticket, result })
                }
            });
        }
        events
    }
}
