//! Connections under TLS: the handshake, and records on their way in and out.
//!
//! The core sees frames as ever, and before them once the channel binding (`NetEvent::Sealed`). A
//! peer that uses plain text where TLS is required, or the reverse, gets a Refusal in plain text,
//! which is the only frame ever sent so; a client that began TLS trusts only the fact that it
//! cannot continue. Invariants: no frame is accepted or sent before the handshake is complete; a
//! record is decrypted only when the frames in earlier records were cut.

use super::{Conn, Conns, Incoming, State};
use crate::io_context::IoContext;
use crate::sealing::{ClientSeals, SealOptions, Sealing, ServerSeals};
use interface::{BadCertificate, CertificateFlaw, CloseReason, Errno, Event, NetEvent, Ticket};
use rustix::net::{getpeername, getsockname};
use seal::{Content, Fault, Flaw, HandshakeProgress, Seal, SetupError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::{
    Bytes, CertificateIdentity, Channel, FrameKind, Header, ProtocolError, Refusal, RefusalReason,
    Wire as _,
};

/// First byte of a handshake record.
const HANDSHAKE: u8 = 22;
/// First byte of a frame.
const FRAME: u8 = b'L';
const RESET: Errno = Errno(104);
const TIMED_OUT: Errno = Errno(110);

/// TLS configurations of connections.
pub(crate) struct Seals {
    sealing: Sealing,
    /// For accepted connections.
    server: Option<ServerSeals>,
    /// For outgoing connections, once one is under TLS.
    pub(super) client: Option<ClientSeals>,
}

impl Seals {
    pub(crate) fn of(options: SealOptions<'_>) -> io::Result<Self> {
        let SealOptions { sealing, accepts, server, server_seals, client_seals } = options;
        let accepts = accepts && sealing != Sealing::Nothing;
        let configured = client_seals.is_some();
        let has_server = server.is_some_and(|server| configured || sealing.takes(server));
        let server = accepts.then(|| server_seals_or_new(server_seals)).transpose();
        let client = has_server.then(|| client_seals_or_new(client_seals)).transpose();
        Ok(Self {
            sealing,
            server: server.map_err(io::Error::other)?,
            client: client.map_err(io::Error::other)?,
        })
    }

    /// Whether no outgoing connection is under TLS so far.
    pub(super) const fn connects_in_plain_text(&self) -> bool {
        self.client.is_none()
    }

    /// Makes a configuration for connections to a server, if TLS protects them; false: it does
    /// not.
    pub(super) fn prepare_for(&mut self, server: IpAddr) -> Result<bool, Errno> {
        let sealed = self.sealing.takes(server);
        if sealed && self.client.is_none() {
            let client = seal::Client::with_any_key().map_err(|_| Errno::SEAL)?;
            self.client = Some(Arc::new(move || client.clone()));
        }
        Ok(sealed)
    }

    /// The TLS state of an accepted connection; `None` if it stays in plain text.
    pub(super) fn of_accepted(&self, socket: &OwnedFd, io: &mut IoContext) -> Option<Box<Seal>> {
        let server = self.server.as_ref()?;
        io.counters.syscall_count += 1;
        // A Unix socket has no such address: it does not leave the host.
        let own = getsockname(socket).ok().and_then(|own| SocketAddr::try_from(own).ok());
        let sealed = own.map_or(self.sealing == Sealing::All, |own| self.sealing.takes(own.ip()));
        if !sealed {
            return None;
        }
        Some(Box::new(Seal::server(&server())))
    }
}

fn server_seals_or_new(seals: Option<&ServerSeals>) -> Result<ServerSeals, SetupError> {
    if let Some(seals) = seals {
        return Ok(Arc::clone(seals));
    }
    let server = seal::Server::with_new_key()?;
    Ok(Arc::new(move || server.clone()))
}

fn client_seals_or_new(seals: Option<&ClientSeals>) -> Result<ClientSeals, SetupError> {
    if let Some(seals) = seals {
        return Ok(Arc::clone(seals));
    }
    let client = seal::Client::with_any_key()?;
    Ok(Arc::new(move || client.clone()))
}

impl Conns {
    pub(super) fn set_seal(&mut self, index: u32, seal: Option<Box<Seal>>) {
        let conn = self.conn(index);
        if seal.is_some() {
            conn.outbox.begin_sealed();
        }
        conn.seal = seal;
    }

    /// An outgoing connection is established, and starts its TLS handshake.
    pub(super) fn begin_sealing(&mut self, index: u32, ticket: Ticket, io: &mut IoContext) {
        let mut handshake = Vec::new();
        let seal = self.seals.client.as_ref().map(|client| Seal::client(&client(), &mut handshake));
        let conn = self.conn(index);
        conn.state = State::Sealing { ticket };
        conn.address = None;
        let Some(Ok(seal)) = seal else {
            return self.fail(index, CloseReason::Failed(Errno::SEAL), io);
        };
        self.set_seal(index, Some(Box::new(seal)));
        self.conn(index).outbox.push_handshake(&handshake);
        self.touch(index);
        self.watch_handshake(index, io);
    }

    /// Bytes were received.
    pub(super) fn on_records(&mut self, index: u32, arrived_bytes: usize, io: &mut IoContext) {
        let conn = self.conn(index);
        conn.take_records(arrived_bytes);
        let Some(seal) = &mut conn.seal else { return };
        if !seal.is_open() {
            let mut handshake = Vec::new();
            let progress = seal.advance_handshake(&mut handshake);
            conn.outbox.push_handshake(&handshake);
            match progress {
                Ok(HandshakeProgress::NeedsMore) => return self.touch(index),
                Ok(HandshakeProgress::Open(channel)) => {
                    conn.announced = true;
                    let sealed = conn.seal.as_deref().and_then(Sealed::of);
                    let holder = sealed.and_then(|sealed| sealed.holder);
                    let holder = holder.map(|holder| io.arena.put(&holder));
                    io.events.push(Event::Net(NetEvent::Sealed { conn: conn.id, channel, holder }));
                    if conn.accepted {
                        self.report_origin(index, io);
                    }
                    let conn = self.conn(index);
                    if let State::Sealing { ticket } = conn.state {
                        conn.state = State::Open;
                        io.events.push(Event::Net(NetEvent::Connected { ticket, conn: conn.id }));
                    }
                }
                Err(fault) => return self.fail_handshake(index, fault, io),
            }
        }
        self.cut(index, io);
        self.touch(index);
    }

    fn fail_handshake(&mut self, index: u32, fault: Fault, io: &mut IoContext) {
        let conn = self.conn(index);
        let front = conn.seal.as_ref().and_then(|seal| seal.unopened().first().copied());
        let plain = fault == Fault::Foreign && front == Some(FRAME);
        if plain && conn.accepted {
            return self.send_plain_refusal(index, RefusalReason::MustSeal, io);
        }
        let reason = reason_of(fault);
        if let CloseReason::Certificate(bad) = reason {
            return self.fail_certificate(index, bad, io);
        }
        let foreign = CloseReason::Failed(Errno::MUST_NOT_SEAL);
        self.fail(index, if plain { foreign } else { reason }, io);
    }

    /// One end rejected the other's certificate: the peer gets an alert, if this end did, and the
    /// operator a log line.
    fn fail_certificate(&mut self, index: u32, bad: BadCertificate, io: &mut IoContext) {
        let conn = self.conn(index);
        if let State::Sealing { ticket } = conn.state {
            let reason = CloseReason::Certificate(bad);
            io.events.push(Event::Net(NetEvent::ConnectFailed { ticket, reason }));
        } else {
            io.counters.refused_count += 1;
            io.counters.syscall_count += 1;
            let address = conn.socket.as_ref().and_then(|socket| getpeername(socket).ok());
            let address = address.flatten().and_then(|address| SocketAddr::try_from(address).ok());
            let address = address.map_or_else(|| "of this host".to_owned(), |at| at.to_string());
            let client = io.arena.put(address.as_bytes());
            io.events.push(Event::Net(NetEvent::CertificateRefused { bad, client }));
        }
        self.begin_close(index, io);
    }

    /// The received bytes are not a frame.
    pub(super) fn fail_framing(&mut self, index: u32, reason: CloseReason, io: &mut IoContext) {
        let conn = self.conn(index);
        let stranger = conn.accepted && !conn.announced && conn.seal.is_none();
        if stranger && conn.inbox.front(1) == [HANDSHAKE] {
            self.send_plain_refusal(index, RefusalReason::MustNotSeal, io);
        } else {
            self.fail(index, reason, io);
        }
    }

    /// Sends a plain-text Refusal to a peer that uses the wrong one of TLS and plain text.
    fn send_plain_refusal(&mut self, index: u32, reason: RefusalReason, io: &mut IoContext) {
        let mut frame = Vec::new();
        let refusal = Refusal { reason };
        Header::Handshake(FrameKind::Refusal).encode(&mut frame, None, |to| to.write(&refusal));
        io.counters.refused_count += 1;
        let conn = self.conn(index);
        conn.seal = None;
        conn.outbox.end_sealed(&mut io.pool);
        conn.outbox.push_summed(&frame, (None, None), &mut io.pool);
        self.begin_close(index, io);
    }

    /// Decrypts the next record, if it is complete, and stores its plaintext. Returns whether there
    /// is more to process.
    pub(super) fn open_record(&mut self, index: u32, io: &mut IoContext) -> bool {
        match self.open_landed(index, io) {
            Ok(None) => {}
            Ok(Some(0)) => return true,
            Ok(Some(bulk_bytes)) => {
                self.on_bulk(index, bulk_bytes, io);
                return true;
            }
            Err(_) => {
                self.fail(index, CloseReason::ProtocolError(ProtocolError::Seal), io);
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
                        let to = io.pool.bytes_mut(*buf, *received_bytes, bulk.len());
                        to.copy_from_slice(bulk);
                    }
                    inbox.append(behind);
                    (bulk.len(), None)
                }
            },
            Ok(Some(Content::End)) => (0, Some(CloseReason::Ended)),
            Err(fault) => (0, Some(reason_of(fault))),
        };
        if let Some(reason) = reason {
            self.fail(index, reason, io);
            return false;
        }
        if bulk_bytes > 0 {
            self.on_bulk(index, bulk_bytes, io);
        }
        true
    }

    /// Makes records of the next bytes to send; `false`: this ended the connection.
    pub(super) fn seal(&mut self, index: u32, io: &mut IoContext) -> bool {
        let Conn { seal: Some(seal), outbox, .. } = self.conn(index) else { return true };
        let Err(errno) = outbox.seal(seal, &mut io.pool) else { return true };
        self.fail_sending(index, errno, io);
        false
    }
}

/// The TLS properties of a connection that are reported to the core.
pub(crate) struct Sealed {
    pub(super) channel: Channel,
    /// An encoded [`CertificateIdentity`], if the peer has presented a certificate.
    pub(super) holder: Option<Vec<u8>>,
}

impl Sealed {
    /// `None` before the handshake is complete.
    pub(super) fn of(seal: &Seal) -> Option<Self> {
        let holder = seal.peer().map(|peer| {
            let opens = CertificateIdentity::grant_lines(peer.uris.iter().map(String::as_str));
            CertificateIdentity { key: peer.key, grants: Bytes(&opens) }.to_bytes()
        });
        Some(Self { channel: seal.channel_binding()?, holder })
    }
}

const fn reason_of(fault: Fault) -> CloseReason {
    match fault {
        Fault::Certificate(flaw) => {
            CloseReason::Certificate(BadCertificate { ours: false, flaw: flaw_of(flaw) })
        }
        Fault::OwnCertificate(flaw) => {
            CloseReason::Certificate(BadCertificate { ours: true, flaw: flaw_of(flaw) })
        }
        Fault::Foreign | Fault::Broken => CloseReason::ProtocolError(ProtocolError::Seal),
    }
}

const fn flaw_of(flaw: Flaw) -> CertificateFlaw {
    match flaw {
        Flaw::Expired => CertificateFlaw::Expired,
        Flaw::NotYetValid => CertificateFlaw::NotYetValid,
        Flaw::OtherIssuer => CertificateFlaw::OtherIssuer,
        Flaw::OtherName => CertificateFlaw::OtherName,
        Flaw::OtherUse => CertificateFlaw::OtherUse,
        Flaw::Missing => CertificateFlaw::Missing,
        Flaw::Unfit => CertificateFlaw::Unfit,
    }
}

/// Why an outgoing connection failed.
pub(super) const fn failed_of(reason: CloseReason) -> CloseReason {
    let errno = match reason {
        CloseReason::Failed(_) | CloseReason::Certificate(_) => return reason,
        CloseReason::Ended => RESET,
        CloseReason::ProtocolError(_) => Errno::SEAL,
        CloseReason::TooSlow | CloseReason::Unfinished => TIMED_OUT,
    };
    CloseReason::Failed(errno)
}
