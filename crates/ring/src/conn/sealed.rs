//! Connections under TLS: the handshake, and records on their way in and out.
//!
//! What a brain sees are frames as ever, and before them, once, what the connection is called at both ends
//! (`Event::Sealed`). Whoever speaks in plain text where TLS is spoken, or the other way round, is told so in a
//! plain Refusal, which is the only thing that is ever said so; a client that began TLS believes nothing of
//! it but that it cannot go on. Invariants: no frame is taken and none sent before the handshake is over; a
//! record is opened only when what was in those before has been cut.

use super::{Conn, Conns, Incoming, State};
use crate::config::{Config, Sealing};
use crate::tools::Tools;
use door::{CloseReason, Errno, Event, Ticket};
use rustix::net::getsockname;
use seal::{Content, Fault, Seal, Shaken};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use wire::{Breach, FrameKind, Head, Refusal, RefusalReason};

/// What a record of a handshake begins with.
const HANDSHAKE: u8 = 22;
/// What a frame begins with.
const FRAME: u8 = b'L';
const RESET: Errno = Errno(104);
const TIMED_OUT: Errno = Errno(110);

/// What connections are put under TLS with.
pub(crate) struct Seals {
    sealing: Sealing,
    /// For those that are accepted.
    server: Option<seal::Server>,
    /// For those that are asked for, if they are.
    pub(super) client: Option<seal::Client>,
}

impl Seals {
    pub(crate) fn of(config: &Config) -> io::Result<Self> {
        let sealing = config.sealing;
        let accepts = config.listener.is_some() && sealing != Sealing::Nothing;
        let asks = config.server.is_some_and(|server| sealing.takes(server.ip()));
        let server = accepts.then(seal::Server::of_new_key).transpose();
        let client = asks.then(seal::Client::of_any_key).transpose();
        Ok(Self {
            sealing,
            server: server.map_err(io::Error::other)?,
            client: client.map_err(io::Error::other)?,
        })
    }

    /// For a connection that was accepted; none if it stays in plain text.
    pub(super) fn of_accepted(&self, socket: &OwnedFd, tools: &mut Tools) -> Option<Box<Seal>> {
        let server = self.server.as_ref()?;
        tools.counters.syscall_count += 1;
        // A Unix socket has no such address: it does not leave the host.
        let own = getsockname(socket).ok().and_then(|own| SocketAddr::try_from(own).ok());
        let sealed = own.map_or(self.sealing == Sealing::All, |own| self.sealing.takes(own.ip()));
        if !sealed {
            return None;
        }
        let seal = Seal::server(server);
        let Ok(seal) = seal else { panic!("what a server seals with was made at its start") };
        Some(Box::new(seal))
    }
}

impl Conns {
    pub(super) fn put_under(&mut self, index: u32, seal: Option<Box<Seal>>) {
        let conn = self.conn(index);
        if seal.is_some() {
            conn.outbox.begin_sealed();
        }
        conn.seal = seal;
    }

    /// A connection that was asked for is there, and is to be under TLS.
    pub(super) fn begin_sealing(&mut self, index: u32, ticket: Ticket, tools: &mut Tools) {
        let mut said = Vec::new();
        let seal = self.seals.client.as_ref().map(|client| Seal::client(client, &mut said));
        let conn = self.conn(index);
        conn.state = State::Sealing { ticket };
        conn.address = None;
        let Some(Ok(seal)) = seal else {
            return self.fail(index, CloseReason::Failed(Errno::SEAL), tools);
        };
        self.put_under(index, Some(Box::new(seal)));
        self.conn(index).outbox.push_said(&said);
        self.touch(index);
        self.greet_until(index, tools);
    }

    /// Bytes were received.
    pub(super) fn records_arrived(&mut self, index: u32, arrived_bytes: usize, tools: &mut Tools) {
        let conn = self.conn(index);
        conn.take_records(arrived_bytes);
        let Some(seal) = &mut conn.seal else { return };
        if !seal.is_open() {
            let mut said = Vec::new();
            let shaken = seal.shake(&mut said);
            conn.outbox.push_said(&said);
            match shaken {
                Ok(Shaken::More) => return self.touch(index),
                Ok(Shaken::Open(channel)) => {
                    conn.announced = true;
                    tools.events.push(Event::Sealed { conn: conn.id, channel });
                    if let State::Sealing { ticket } = conn.state {
                        conn.state = State::Open;
                        tools.events.push(Event::Connected { ticket, conn: conn.id });
                    }
                }
                Err(fault) => return self.fail_shaking(index, fault, tools),
            }
        }
        self.cut(index, tools);
        self.touch(index);
    }

    fn fail_shaking(&mut self, index: u32, fault: Fault, tools: &mut Tools) {
        let conn = self.conn(index);
        let front = conn.seal.as_ref().and_then(|seal| seal.front().first().copied());
        let plain = fault == Fault::Foreign && front == Some(FRAME);
        if plain && conn.accepted {
            return self.refuse_plainly(index, RefusalReason::MustSeal, tools);
        }
        let reason = match fault {
            Fault::Certificate => CloseReason::Failed(Errno::CERTIFICATE),
            Fault::Foreign if plain => CloseReason::Failed(Errno::MUST_NOT_SEAL),
            Fault::Foreign | Fault::Broken => CloseReason::Breach(Breach::Seal),
        };
        self.fail(index, reason, tools);
    }

    /// What came is no frame.
    pub(super) fn fail_cutting(&mut self, index: u32, reason: CloseReason, tools: &mut Tools) {
        let conn = self.conn(index);
        let stranger = conn.accepted && !conn.announced && conn.seal.is_none();
        if stranger && conn.inbox.front(1) == [HANDSHAKE] {
            self.refuse_plainly(index, RefusalReason::MustNotSeal, tools);
        } else {
            self.fail(index, reason, tools);
        }
    }

    /// Says to a stranger, in plain text, that he speaks another language.
    fn refuse_plainly(&mut self, index: u32, reason: RefusalReason, tools: &mut Tools) {
        let mut frame = Vec::new();
        let refusal = Refusal { reason };
        Head::Greeting(FrameKind::Refusal).encode(&mut frame, None, |to| to.write(&refusal));
        tools.counters.refused_count += 1;
        let conn = self.conn(index);
        conn.seal = None;
        conn.outbox.end_sealed(&mut tools.pool);
        conn.outbox.push_summed(&frame, (None, None), &mut tools.pool);
        self.begin_close(index, tools);
    }

    /// Opens the next record, if it is whole, and puts what is in it where it belongs. Whether there is
    /// something to go on with.
    pub(super) fn open_record(&mut self, index: u32, tools: &mut Tools) -> bool {
        match self.open_landed(index, tools) {
            Ok(None) => {}
            Ok(Some(0)) => return true,
            Ok(Some(bulk_bytes)) => {
                self.bulk_arrived(index, bulk_bytes, tools);
                return true;
            }
            Err(_) => {
                self.fail(index, CloseReason::Breach(Breach::Seal), tools);
                return false;
            }
        }
        let discards = self.sink.is_some();
        let Conn { seal: Some(seal), inbox, incoming, .. } = self.conn(index) else { return false };
        let (bulk_bytes, reason) = match seal.open() {
            Ok(None) => return false,
            Ok(Some(Content::Nothing)) => (0, None),
            Ok(Some(Content::Bytes(bytes))) => match incoming {
                None => {
                    inbox.append(bytes);
                    (0, None)
                }
                Some(Incoming { buf, lengths, received_bytes, .. }) => {
                    let rest_bytes = lengths.bulk_bytes as usize - *received_bytes;
                    let (bulk, behind) = bytes.split_at(rest_bytes.min(bytes.len()));
                    if !discards {
                        let to = tools.pool.bytes_mut(*buf, *received_bytes, bulk.len());
                        to.copy_from_slice(bulk);
                    }
                    inbox.append(behind);
                    (bulk.len(), None)
                }
            },
            Ok(Some(Content::End)) => (0, Some(CloseReason::Ended)),
            Err(_) => (0, Some(CloseReason::Breach(Breach::Seal))),
        };
        if let Some(reason) = reason {
            self.fail(index, reason, tools);
            return false;
        }
        if bulk_bytes > 0 {
            self.bulk_arrived(index, bulk_bytes, tools);
        }
        true
    }

    /// Makes records of what is to be sent next; `false`: the connection has ended of it.
    pub(super) fn seal(&mut self, index: u32, tools: &mut Tools) -> bool {
        let Conn { seal: Some(seal), outbox, .. } = self.conn(index) else { return true };
        let Err(errno) = outbox.seal(seal, &mut tools.pool) else { return true };
        self.fail_sending(index, errno, tools);
        false
    }
}

/// Why a connection is not there.
pub(super) const fn errno_of(reason: CloseReason) -> Errno {
    match reason {
        CloseReason::Failed(errno) => errno,
        CloseReason::Ended => RESET,
        CloseReason::Breach(_) => Errno::SEAL,
        CloseReason::TooSlow | CloseReason::Unfinished => TIMED_OUT,
    }
}
