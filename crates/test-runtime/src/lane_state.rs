//! The runtime's state of one lane, of a server or a client: delivered events, buffers, the wakeup.

use interface::{
    Arena, BufId, Bulk, CORE_BUF_ID_MIN, ConnId, Errno, Event, KernelEvent, Mono, NO_MAC, NetEvent,
    ObjectEvent, PeerEvent, Seed, Span, StoreEvent, Ticket,
};
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;

/// A delivered event. The bytes that it names go to the arena and the buffers of the turn that
/// applies it.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub event: Event,
    bytes: Vec<u8>,
    bulk: Option<Vec<u8>>,
}

impl<E: Into<Event>> From<E> for Incoming {
    fn from(event: E) -> Self {
        Self::new(event, Vec::new())
    }
}

impl Incoming {
    /// An event with the bytes of its span.
    pub fn new(event: impl Into<Event>, bytes: Vec<u8>) -> Self {
        Self { event: event.into(), bytes, bulk: None }
    }

    pub fn frame(conn: ConnId, frame: Vec<u8>, bulk: Option<Vec<u8>>) -> Self {
        let event = NetEvent::Frame { conn, frame: Span::default(), bulk: None };
        Self { bulk, ..Self::new(event, frame) }
    }

    pub(crate) fn read(ticket: Ticket, result: Result<Vec<u8>, Errno>) -> Self {
        let read = Self::from(ObjectEvent::Read {
            ticket,
            result: result.as_ref().map(|_| None).map_err(|errno| *errno),
        });
        Self { bulk: result.ok().filter(|bytes| !bytes.is_empty()), ..read }
    }

    /// The event, with its bytes in place.
    pub fn enter(mut self, arena: &mut Arena, bufs: &mut Bufs) -> Event {
        if let Some(span) = span_of(&mut self.event) {
            *span = arena.put(&self.bytes);
        }
        if let Some(bytes) = self.bulk
            && let Some(bulk) = bulk_of(&mut self.event)
        {
            *bulk = Some(bufs.put(bytes));
        }
        self.event
    }
}

const fn span_of(event: &mut Event) -> Option<&mut Span> {
    match event {
        Event::Net(
            NetEvent::Frame { frame: span, .. }
            | NetEvent::HandedOver { hello: span, .. }
            | NetEvent::Sealed { holder: Some(span), .. },
        )
        | Event::Peer(PeerEvent::Received { body: span, .. })
        | Event::Store(
            StoreEvent::Rows { result: Ok(span), .. } | StoreEvent::Inspected { reply: span, .. },
        )
        | Event::Object(
            ObjectEvent::Sums { result: Ok(span), .. }
            | ObjectEvent::Loaded { result: Ok(span), .. }
            | ObjectEvent::Written { result: Ok(span), .. },
        )
        | Event::Kernel(
            KernelEvent::Request { request: span, .. }
            | KernelEvent::CallerGroups { groups: Some(span), .. },
        )
        | Event::Asked { question: span, .. }
        | Event::Map(span) => Some(span),
        _ => None,
    }
}

const fn bulk_of(event: &mut Event) -> Option<&mut Option<Bulk>> {
    match event {
        Event::Net(NetEvent::Frame { bulk, .. })
        | Event::Object(ObjectEvent::Read { result: Ok(bulk), .. }) => Some(bulk),
        _ => None,
    }
}

/// The buffers of a lane. A wrong use panics.
#[derive(Default, Debug)]
pub struct Bufs {
    live: BTreeMap<u32, Vec<u8>>,
    count: u32,
}

impl Bufs {
    pub fn put(&mut self, bytes: Vec<u8>) -> Bulk {
        self.count += 1;
        // Stands for the MAC: different for different bytes.
        let mut mac = NO_MAC;
        mac[..8].copy_from_slice(&Seed(0).hash_one(&bytes[..]).to_le_bytes());
        let crc32c = Some(wire::crc32c(&bytes));
        let (buf, bulk_bytes) = (BufId(self.count), bytes.len() as u32);
        self.live.insert(self.count, bytes);
        Bulk { buf, start: 0, bulk_bytes, crc32c, mac }
    }

    /// The bytes of a bulk.
    pub fn get(&self, bulk: Bulk) -> Vec<u8> {
        let bytes = self.live.get(&bulk.buf.0).expect("a buffer is not used after its release");
        bytes[bulk.start as usize..][..bulk.bulk_bytes as usize].to_vec()
    }

    /// Copies bytes into a buffer whose number the lane chose.
    pub fn retain(&mut self, as_buf: BufId, bulk: Bulk) {
        assert!(as_buf.0 >= CORE_BUF_ID_MIN, "{as_buf:?} is not the lane's");
        let before = self.live.insert(as_buf.0, self.get(bulk));
        assert_eq!(before, None, "a buffer number is used once at a time");
    }

    /// A buffer of zeros whose number the lane chose.
    pub fn make(&mut self, as_buf: BufId, bulk_bytes: u32) {
        assert!(as_buf.0 >= CORE_BUF_ID_MIN, "{as_buf:?} is not the lane's");
        let before = self.live.insert(as_buf.0, vec![0; bulk_bytes as usize]);
        assert_eq!(before, None, "a buffer number is used once at a time");
    }

    /// Copies bytes into a buffer that the lane has made.
    pub fn fill(&mut self, (to, at): (BufId, u32), bulk: Bulk) {
        let bytes = self.get(bulk);
        let to = self.live.get_mut(&to.0).expect("a buffer is not used after its release");
        to[at as usize..][..bytes.len()].copy_from_slice(&bytes);
    }

    pub fn release(&mut self, buf: BufId) {
        assert!(self.live.remove(&buf.0).is_some(), "a buffer is released once");
    }

    /// The buffers that the lane has not released.
    pub fn count(&self) -> usize {
        self.live.len()
    }
}

/// The state of a lane.
#[derive(Default, Debug)]
pub struct LaneState {
    pub arena: Arena,
    pub inbox: VecDeque<Incoming>,
    pub bufs: Bufs,
    pub wake_at: Option<Mono>,
    /// A turn is scheduled.
    pub turn_is_due: bool,
    /// The lane takes no turn before.
    pub paused_until_ns: u64,
    pub stopped: bool,
}

impl LaneState {
    pub fn deliver(&mut self, incoming: impl Into<Incoming>) {
        self.inbox.push_back(incoming.into());
    }

    /// Begins a turn with the first `count` delivered events.
    pub fn events(&mut self, count: usize) -> Vec<Event> {
        let Self { arena, inbox, bufs, .. } = self;
        arena.reset();
        let events = inbox.drain(..count.min(inbox.len()));
        events.map(|incoming| incoming.enter(arena, bufs)).collect()
    }
}
