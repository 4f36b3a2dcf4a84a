//! How a connection begins: accepted, or handed over by a peer lane.

use super::sealed::Sealed;
use super::sending::Sending;
use super::{Admission, Conn, Conns, INDEX_BITS, State};
use crate::framing::Inbox;
use crate::io_context::IoContext;
use crate::number::u32_of;
use crate::send::Outbox;
use crate::socket::{is_from_this_host, tune_socket};
use interface::{ConnId, Event, NetEvent};
use seal::Seal;
use std::os::fd::OwnedFd;

impl Conns {
    /// The listening socket returned a connection.
    pub(crate) fn accepted(&mut self, socket: OwnedFd, io: &mut IoContext) {
        io.counters.syscall_count += 1; // Its delay is set, or it is closed.
        if !self.evict_for_new(io) {
            return;
        }
        tune_socket(&socket);
        let seal = self.seals.of_accepted(&socket, io);
        let index = self.add(Some(socket), State::Open);
        self.set_seal(index, seal);
        self.touch(index);
        self.watch_handshake(index, io);
    }

    /// A peer lane handed a connection over.
    pub(crate) fn adopt(
        &mut self,
        (socket, seal): (OwnedFd, Option<Box<Seal>>),
        hello: &[u8],
        io: &mut IoContext,
    ) {
        io.counters.syscall_count += 1; // As above.
        if !self.evict_for_new(io) {
            return;
        }
        let index = self.add(Some(socket), State::Open);
        let progress = seal.as_deref().and_then(Sealed::of);
        self.set_seal(index, seal);
        self.report_origin(index, io);
        self.announce(index, progress.as_ref(), hello, io);
        self.watch_handshake(index, io);
    }

    /// Tells the core that the client is on this host.
    pub(super) fn report_origin(&mut self, index: u32, io: &mut IoContext) {
        io.counters.syscall_count += 1;
        let conn = self.conn(index);
        if conn.socket.as_ref().is_some_and(is_from_this_host) {
            io.events.push(Event::Net(NetEvent::FromThisHost { conn: conn.id }));
        }
    }

    /// Reports a connection to the core whose Hello a peer lane has read.
    pub(super) fn announce(
        &mut self,
        index: u32,
        sealed: Option<&Sealed>,
        hello: &[u8],
        io: &mut IoContext,
    ) {
        let conn = self.conn(index);
        conn.announced = true;
        if let Some(Sealed { channel, holder }) = sealed {
            let holder = holder.as_ref().map(|holder| io.arena.put(holder));
            io.events.push(Event::Net(NetEvent::Sealed {
                conn: conn.id,
                channel: *channel,
                holder,
            }));
        }
        let event = Event::Net(NetEvent::HandedOver { conn: conn.id, hello: io.arena.put(hello) });
        io.events.push(event);
        self.touch(index);
    }

    pub(super) fn add(&mut self, socket: Option<OwnedFd>, state: State) -> u32 {
        let accepted = matches!(state, State::Open);
        let slot = self.slots.vacant_entry();
        let index = u32_of(slot.key());
        self.serial += 1;
        self.live_count += 1;
        slot.insert(Conn {
            id: ConnId((self.serial << INDEX_BITS) | u64::from(index)),
            socket,
            state,
            announced: false,
            admitted: false,
            admission: Admission::NONE,
            paused: false,
            starved: false,
            touched: false,
            recv_armed: false,
            send_armed: false,
            sends_at_once: false,
            sending: Sending::default(),
            writable_armed: false,
            nonblocking: false,
            socket_full: false,
            connect_armed: false,
            watched: false,
            acked_bytes: None,
            accepted,
            seal: None,
            inbox: Inbox::default(),
            incoming: None,
            skip_bytes: 0,
            unfinished: None,
            finish_watched: false,
            outbox: Outbox::default(),
            address: None,
            relay: None,
        });
        index
    }

    pub(super) fn is_full(&self) -> bool {
        self.live_count >= self.limits.conn_count_max.min(1 << INDEX_BITS)
    }
}
