//! Outgoing connections, until they are connected or have failed.
//!
//! Invariant: each request has one result, and the address does not move while the kernel reads it.

use super::{Conns, State};
use crate::driver::{Kind, Op, Token};
use crate::io_context::IoContext;
use crate::listen::Address;
use crate::number::errno_of;
use crate::socket::tune_before_connect;
use interface::{CloseReason, Errno, Event, NetEvent, Ticket};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use wire::ServerAddress;

impl Conns {
    /// Whether the ring connects to servers, and in plain text so far.
    pub(crate) const fn connects_in_plain_text(&self) -> bool {
        self.server.is_some() && self.seals.connects_in_plain_text()
    }

    /// Opens a connection for the core.
    pub(crate) fn connect(&mut self, ticket: Ticket, to: ServerAddress, io: &mut IoContext) {
        let opened = self.open_socket(to);
        let (socket, address, sealed) = match opened {
            Ok(opened) => opened,
            Err(errno) => {
                let reason = CloseReason::Failed(errno);
                io.events.push(Event::Net(NetEvent::ConnectFailed { ticket, reason }));
                return;
            }
        };
        io.counters.syscall_count += 2; // It was made, and its delay is set.
        let index = self.add(Some(socket), State::Connecting { ticket, sealed });
        let conn = self.conn(index);
        let address = conn.address.insert(Box::new(address));
        let (at, address_bytes) = address.raw();
        conn.connect_armed = true;
        let op = Op::Connect { socket: conn.raw(), address: at, address_bytes };
        // SAFETY: the address is boxed in the connection, which outlives the operation.
        unsafe { io.driver.queue(Token::new(Kind::Connect, index), op) };
    }

    /// A socket for a connection to a server, the address, and whether TLS is to protect it.
    fn open_socket(&mut self, to: ServerAddress) -> Result<(OwnedFd, Address, bool), Errno> {
        let server = match to {
            ServerAddress::Initial => self.server.ok_or(Errno(107))?,
            ServerAddress::At(address) => address,
        };
        if self.is_full() {
            return Err(Errno(24));
        }
        let sealed = self.seals.prepare_for(server.ip())?;
        let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None);
        let socket = socket.map_err(errno_of)?;
        tune_before_connect(&socket, server.ip());
        Ok((socket, Address::new(server), sealed))
    }

    pub(crate) fn on_connect(
        &mut self,
        index: u32,
        result: Result<u32, Errno>,
        io: &mut IoContext,
    ) {
        let conn = self.conn(index);
        conn.connect_armed = false;
        let State::Connecting { ticket, sealed } = conn.state else {
            self.remove_if_quiet(index, io);
            return;
        };
        if result.is_ok() && sealed {
            return self.begin_sealing(index, ticket, io);
        }
        let conn = self.conn(index);
        match result {
            Ok(_) => {
                conn.state = State::Open;
                conn.announced = true;
                conn.address = None;
                io.events.push(Event::Net(NetEvent::Connected { ticket, conn: conn.id }));
                self.touch(index);
            }
            Err(errno) => {
                let reason = CloseReason::Failed(errno);
                io.events.push(Event::Net(NetEvent::ConnectFailed { ticket, reason }));
                self.remove(index, io);
            }
        }
    }
}
