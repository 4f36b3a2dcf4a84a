//! The TLS handshake, made by `rustls`: records in, records out.
//!
//! `rustls` gets one record at a time, so that application data directly behind the peer's last
//! message is not opened here. Invariant: memory used for an unauthenticated peer is bounded.

use crate::certificate_flaw::fault_of;
use crate::certificates::{CHAIN_BYTES_MAX, Peer};
use crate::channel_binding::{ChannelBinding, Exporter};
use crate::config::{Client, Server};
use crate::fault::{Fault, Flaw};
use crate::inbox::Inbox;
use crate::record::{Keys, Update};
use rustls::Error;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use std::sync::Arc;

/// Longest handshake flight: a certificate chain and everything else.
const FLIGHT_BYTES_MAX: usize = CHAIN_BYTES_MAX + 8 * 1024;

/// Alerts of a server that has no configuration for a client.
const HANDSHAKE_FAILURE: u8 = 40;
const CERTIFICATE_REQUIRED: u8 = 116;

enum Tls {
    /// A server that has not received the first record.
    BeforeHello(Server),
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

pub(crate) struct Handshake {
    tls: Tls,
    exporter: Arc<Exporter>,
    /// Bytes of the inbox that `rustls` was given and has not consumed.
    passed_bytes: usize,
    /// This end presents a certificate.
    certified: bool,
}

/// The result of a completed handshake.
pub(crate) struct Established {
    pub(crate) keys: Keys,
    pub(crate) channel: ChannelBinding,
    pub(crate) peer: Option<Peer>,
    /// The peer may not have verified our certificate yet.
    pub(crate) certified: bool,
}

/// What `rustls` needs next.
enum Next {
    /// Call it again.
    Go,
    /// More bytes from the peer.
    Blocked,
    Over,
    Failed(Error),
    /// A message that has no place in a handshake.
    Broken,
}

impl Handshake {
    pub(crate) fn server(server: &Server) -> Self {
        Self {
            tls: Tls::BeforeHello(server.clone()),
            exporter: Arc::default(),
            passed_bytes: 0,
            certified: server.certified.is_some(),
        }
    }

    pub(crate) fn client(client: &Client) -> Result<Self, Fault> {
        let exporter = Arc::new(Exporter::default());
        let mut config = (*client.config).clone();
        config.key_log = exporter.clone();
        let tls = UnbufferedClientConnection::new(Arc::new(config), client.name.clone());
        let tls = Tls::Client(tls.map_err(|_| Fault::Broken)?);
        Ok(Self { tls, exporter, passed_bytes: 0, certified: client.certified })
    }

    /// Processes what was received; returns whether the handshake is complete.
    pub(crate) fn advance(&mut self, inbox: &mut Inbox, out: &mut Vec<u8>) -> Result<bool, Fault> {
        loop {
            if let Tls::BeforeHello(server) = &self.tls {
                let Some(end) = inbox.record_end(0)? else { return Ok(false) };
                self.tls = begin(server, (inbox.passed(end), &self.exporter), out)?;
            }
            let shown = inbox.passed(self.passed_bytes);
            let stepped = match &mut self.tls {
                Tls::BeforeHello(_) => return Err(Fault::Broken),
                Tls::Client(tls) => step(tls.process_tls_records(shown), out),
                Tls::Server(tls) => step(tls.process_tls_records(shown), out),
            };
            let (done_bytes, next) = stepped;
            inbox.consume(done_bytes);
            self.passed_bytes -= done_bytes;
            match next {
                Next::Go => {}
                Next::Over => return Ok(true),
                Next::Broken => return Err(Fault::Broken),
                Next::Failed(error) => {
                    let fault = fault_of(&error, self.certified);
                    if matches!(fault, Fault::Certificate(_)) {
                        self.encode_alert(inbox, out);
                    }
                    return Err(fault);
                }
                Next::Blocked => match inbox.record_end(self.passed_bytes)? {
                    Some(end) if end > FLIGHT_BYTES_MAX => return Err(Fault::Broken),
                    Some(end) => self.passed_bytes = end,
                    None => return Ok(false),
                },
            }
        }
    }

    /// Encodes the alert that `rustls` has for the peer. Called once: the alert comes first, and
    /// `rustls` must not look at anything behind the failed record.
    fn encode_alert(&mut self, inbox: &mut Inbox, out: &mut Vec<u8>) {
        let shown = inbox.passed(self.passed_bytes);
        match &mut self.tls {
            Tls::BeforeHello(_) => {}
            Tls::Client(tls) => drop(step(tls.process_tls_records(shown), out)),
            Tls::Server(tls) => drop(step(tls.process_tls_records(shown), out)),
        }
    }

    /// The result of a completed handshake.
    pub(crate) fn finish(self) -> Result<Established, Fault> {
        if self.passed_bytes > 0 {
            return Err(Fault::Broken);
        }
        let channel = self.exporter.channel_binding()?;
        let mut peer = None;
        let (secrets, update) = match self.tls {
            Tls::BeforeHello(_) => return Err(Fault::Broken),
            Tls::Client(tls) => {
                let kernel_state = tls.dangerous_into_kernel_connection();
                let (secrets, kernel_state) = kernel_state.map_err(|_| Fault::Broken)?;
                (secrets, Update::Client(kernel_state))
            }
            Tls::Server(tls) => {
                // There is no certificate unless one was requested, and then it was verified.
                if let Some(shown) = tls.peer_certificates().and_then(<[_]>::first) {
                    peer = Some(Peer::of(shown).ok_or(Fault::Certificate(Flaw::Unfit))?);
                }
                let kernel_state = tls.dangerous_into_kernel_connection();
                let (secrets, kernel_state) = kernel_state.map_err(|_| Fault::Broken)?;
                (secrets, Update::Server(kernel_state))
            }
        };
        let keys = Keys::new(secrets, update)?;
        Ok(Established { keys, channel, peer, certified: self.certified })
    }
}

/// Starts the handshake with a client by its first record, with the configuration of its kind;
/// writes an alert if there is none for it.
fn begin(
    server: &Server,
    (record, exporter): (&[u8], &Arc<Exporter>),
    out: &mut Vec<u8>,
) -> Result<Tls, Fault> {
    let config = server.config_for(record).inspect_err(|fault| {
        let why = match fault {
            Fault::Certificate(_) => CERTIFICATE_REQUIRED,
            Fault::OwnCertificate(_) | Fault::Foreign | Fault::Broken => HANDSHAKE_FAILURE,
        };
        // A two-byte record: a fatal alert.
        out.extend_from_slice(&[21, 3, 3, 0, 2, 2, why]);
    })?;
    let mut config = (*config).clone();
    config.key_log = exporter.clone();
    let tls = UnbufferedServerConnection::new(Arc::new(config));
    tls.map(Tls::Server).map_err(|_| Fault::Broken)
}

/// The next step of `rustls`, and how many of the given bytes it consumed.
fn step<D>(status: UnbufferedStatus<'_, '_, D>, out: &mut Vec<u8>) -> (usize, Next) {
    let UnbufferedStatus { discard, state } = status;
    let next = match state {
        Err(error) => Next::Failed(error),
        Ok(ConnectionState::EncodeTlsData(mut message)) => encode(&mut message, out),
        Ok(ConnectionState::TransmitTlsData(sent)) => {
            sent.done();
            Next::Go
        }
        Ok(ConnectionState::BlockedHandshake) => Next::Blocked,
        Ok(ConnectionState::WriteTraffic(_)) => Next::Over,
        // Closed, or early data; also any state that a later version of `rustls` adds.
        Ok(
            ConnectionState::ReadTraffic(_)
            | ConnectionState::ReadEarlyData(_)
            | ConnectionState::PeerClosed
            | ConnectionState::Closed
            | _,
        ) => Next::Broken,
    };
    (discard, next)
}

fn encode<D>(message: &mut EncodeTlsData<'_, D>, out: &mut Vec<u8>) -> Next {
    let start = out.len();
    match message.encode(&mut []) {
        Ok(_) => return Next::Go,
        Err(EncodeError::InsufficientSize(size)) => out.resize(start + size.required_size, 0),
        Err(EncodeError::AlreadyEncoded) => return Next::Broken,
    }
    message.encode(&mut out[start..]).map_or(Next::Broken, |_| Next::Go)
}
