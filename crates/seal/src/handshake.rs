//! The handshake, which `rustls` makes: records in, records out.
//!
//! It is shown one record after the other, so that what a client says right behind its last message is not
//! opened here. Invariant: what it keeps of a stranger's is bounded.

use crate::Fault;
use crate::channel::{Channel, Exporter};
use crate::config::{Client, Server};
use crate::inbox::Inbox;
use crate::record::{Keys, Update};
use rustls::Error;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use std::sync::Arc;

/// Longest flight of a handshake.
const FLIGHT_BYTES_MAX: usize = 64 * 1024;

enum Tls {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

pub(crate) struct Handshake {
    tls: Tls,
    exporter: Arc<Exporter>,
    /// What `rustls` was shown of the inbox and has not done with.
    shown_bytes: usize,
}

/// What it says next.
enum Next {
    /// Again.
    Go,
    /// It needs more.
    Blocked,
    Over,
}

impl Handshake {
    pub(crate) fn server(server: &Server) -> Result<Self, Fault> {
        let exporter = Arc::new(Exporter::default());
        let mut config = (*server.config).clone();
        config.key_log = exporter.clone();
        let tls =
            UnbufferedServerConnection::new(Arc::new(config)).map_err(|error| fault_of(&error))?;
        Ok(Self { tls: Tls::Server(tls), exporter, shown_bytes: 0 })
    }

    pub(crate) fn client(client: &Client) -> Result<Self, Fault> {
        let exporter = Arc::new(Exporter::default());
        let mut config = (*client.config).clone();
        config.key_log = exporter.clone();
        let tls = UnbufferedClientConnection::new(Arc::new(config), client.name.clone());
        let tls = tls.map_err(|error| fault_of(&error))?;
        Ok(Self { tls: Tls::Client(tls), exporter, shown_bytes: 0 })
    }

    /// Takes what was received; whether it is over.
    pub(crate) fn go_on(&mut self, inbox: &mut Inbox, out: &mut Vec<u8>) -> Result<bool, Fault> {
        loop {
            let shown = inbox.shown(self.shown_bytes);
            let (done_bytes, next) = match &mut self.tls {
                Tls::Client(tls) => step(tls.process_tls_records(shown), out)?,
                Tls::Server(tls) => step(tls.process_tls_records(shown), out)?,
            };
            inbox.consume(done_bytes);
            self.shown_bytes -= done_bytes;
            match next {
                Next::Go => {}
                Next::Over => return Ok(true),
                Next::Blocked => match inbox.record_end(self.shown_bytes)? {
                    Some(end) if end > FLIGHT_BYTES_MAX => return Err(Fault::Broken),
                    Some(end) => self.shown_bytes = end,
                    None => return Ok(false),
                },
            }
        }
    }

    /// The keys for what comes behind.
    pub(crate) fn finish(self) -> Result<(Keys, Channel), Fault> {
        if self.shown_bytes > 0 {
            return Err(Fault::Broken);
        }
        let channel = self.exporter.channel()?;
        let broken = |error: Error| fault_of(&error);
        let (secrets, update) = match self.tls {
            Tls::Client(tls) => {
                let (secrets, kept) = tls.dangerous_into_kernel_connection().map_err(broken)?;
                (secrets, Update::Client(kept))
            }
            Tls::Server(tls) => {
                let (secrets, kept) = tls.dangerous_into_kernel_connection().map_err(broken)?;
                (secrets, Update::Server(kept))
            }
        };
        Ok((Keys::new(secrets, update)?, channel))
    }
}

fn step<D>(status: UnbufferedStatus<'_, '_, D>, out: &mut Vec<u8>) -> Result<(usize, Next), Fault> {
    let UnbufferedStatus { discard, state } = status;
    let next = match state.map_err(|error| fault_of(&error))? {
        ConnectionState::EncodeTlsData(mut message) => {
            encode(&mut message, out)?;
            Next::Go
        }
        ConnectionState::TransmitTlsData(said) => {
            said.done();
            Next::Go
        }
        ConnectionState::BlockedHandshake => Next::Blocked,
        ConnectionState::WriteTraffic(_) => Next::Over,
        // Ended, or data before its time; whatever a later version of `rustls` has besides.
        ConnectionState::ReadTraffic(_)
        | ConnectionState::ReadEarlyData(_)
        | ConnectionState::PeerClosed
        | ConnectionState::Closed
        | _ => return Err(Fault::Broken),
    };
    Ok((discard, next))
}

fn encode<D>(message: &mut EncodeTlsData<'_, D>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let start = out.len();
    match message.encode(&mut []) {
        Ok(_) => return Ok(()),
        Err(EncodeError::InsufficientSize(size)) => out.resize(start + size.required_size, 0),
        Err(EncodeError::AlreadyEncoded) => return Err(Fault::Broken),
    }
    message.encode(&mut out[start..]).map(drop).map_err(|_| Fault::Broken)
}

fn fault_of(error: &Error) -> Fault {
    #[expect(clippy::wildcard_enum_match_arm, reason = "one fault of many is told apart")]
    match error {
        Error::InvalidCertificate(_) => Fault::Certificate,
        _ => Fault::Broken,
    }
}
