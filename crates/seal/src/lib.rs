//! `seal`: TLS 1.3 for a connection, without sockets: received bytes go in, plaintext comes out,
//! and plaintext becomes records.
//!
//! `rustls` does the handshake and derives the keys; records are encrypted and decrypted here
//! ([`record`]), which saves one copy, and every copy where the plaintext can be written directly
//! into its record. Certificates are optional: a server presents a key that it generated at its
//! start, and the user of this crate binds its proof of the shared secret to the handshake by
//! [`ChannelBinding`]. With [`Certificates`] each end presents one and verifies the other's.
//! Invariants: nothing is sent or accepted in plain text; an error ends the connection; a [`Seal`]
//! may move to another thread.
//!
//! ```text
//! Handshake ─▶ Open (keys for each direction, replaced before they are worn)
//! ```
#![forbid(unsafe_code)]

mod certificate_flaw;
mod certificates;
mod channel_binding;
mod client_hello;
mod client_verifier;
mod config;
mod fault;
mod handshake;
mod inbox;
mod message;
mod record;
#[cfg(test)]
mod tests;

pub use certificates::{
    CHAIN_BYTES_MAX, CHAIN_COUNT_MAX, Certificates, Peer, Pem, PemPart, certificate_der, key_der,
};
pub use channel_binding::ChannelBinding;
pub use config::{Client, Server};
pub use fault::{Fault, Flaw, SetupError};
pub use message::{MESSAGE_KEY_BYTES, open_message, seal_message};
pub use record::{Content, RECORD_BYTES_MAX, RECORD_OVERHEAD_BYTES};

use handshake::{Established, Handshake};
use inbox::Inbox;
use record::Keys;

/// Progress of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeProgress {
    /// More bytes must be received.
    NeedsMore,
    /// Complete, with the connection's channel binding.
    Open(ChannelBinding),
}

enum Phase {
    Handshake(Box<Handshake>),
    Open(Box<Established>),
    /// An error ended the connection.
    Broken,
}

/// One end of a TLS connection, and its received bytes that are not yet decrypted.
pub struct Seal {
    inbox: Inbox,
    phase: Phase,
}

impl Seal {
    /// A server's end.
    #[must_use]
    pub fn server(server: &Server) -> Self {
        Self::new(Handshake::server(server))
    }

    /// A client's end; its first message is written to `out`.
    ///
    /// # Errors
    /// [`Fault::Broken`] if the system provides no random numbers.
    pub fn client(client: &Client, out: &mut Vec<u8>) -> Result<Self, Fault> {
        let mut seal = Self::new(Handshake::client(client)?);
        seal.advance_handshake(out)?;
        Ok(seal)
    }

    fn new(handshake: Handshake) -> Self {
        Self { inbox: Inbox::default(), phase: Phase::Handshake(Box::new(handshake)) }
    }

    /// Whether the handshake is complete.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(..))
    }

    /// The connection's channel binding, once the handshake is complete.
    #[must_use]
    pub const fn channel_binding(&self) -> Option<ChannelBinding> {
        match &self.phase {
            Phase::Open(made) => Some(made.channel),
            Phase::Handshake(_) | Phase::Broken => None,
        }
    }

    /// Server: the client's certificate identity, once the handshake is complete.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        match &self.phase {
            Phase::Open(made) => made.peer.as_ref(),
            Phase::Handshake(_) | Phase::Broken => None,
        }
    }

    /// Where received bytes go; the memory does not move until [`Self::received`]. About
    /// `wanted_bytes` of plaintext are expected.
    pub fn recv_space(&mut self, wanted_bytes: usize) -> &mut [u8] {
        self.inbox.recv_space(wanted_bytes)
    }

    /// So many bytes were written at the front of [`Self::recv_space`].
    pub fn received(&mut self, received_bytes: usize) {
        self.inbox.received(received_bytes);
    }

    /// Appends bytes that were received elsewhere.
    pub fn push_received(&mut self, bytes: &[u8]) {
        self.inbox.append(bytes);
    }

    /// Received bytes that are not yet decrypted.
    #[must_use]
    pub fn unopened(&self) -> &[u8] {
        self.inbox.bytes()
    }

    /// Continues the handshake as far as the received bytes allow. Bytes to send are appended to
    /// `out`, also when a certificate ends the handshake: the peer gets an alert.
    ///
    /// # Errors
    /// Why the handshake failed.
    pub fn advance_handshake(&mut self, out: &mut Vec<u8>) -> Result<HandshakeProgress, Fault> {
        let Phase::Handshake(handshake) = &mut self.phase else { return Err(Fault::Broken) };
        if !handshake.advance(&mut self.inbox, out)? {
            return Ok(HandshakeProgress::NeedsMore);
        }
        let Phase::Handshake(handshake) = std::mem::replace(&mut self.phase, Phase::Broken) else {
            return Err(Fault::Broken);
        };
        let made = handshake.finish()?;
        let channel = made.channel;
        self.phase = Phase::Open(Box::new(made));
        Ok(HandshakeProgress::Open(channel))
    }

    /// Decrypts the next record in place; `None` while it is incomplete.
    ///
    /// # Errors
    /// When the record is not the peer's, not the next one, or not a record.
    pub fn open(&mut self) -> Result<Option<Content<'_>>, Fault> {
        let Phase::Open(made) = &mut self.phase else { return Err(Fault::Broken) };
        match self.inbox.record()? {
            Some(record) => made.keys.open(record, made.certified).map(Some),
            None => Ok(None),
        }
    }

    /// Decrypts a record that was received elsewhere: it begins at `start` of `bytes`, and its
    /// plaintext is written to their front. Also returns the record's length; `None` while it is
    /// incomplete. The inbox must be empty.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_to<'a>(
        &mut self,
        bytes: &'a mut [u8],
        start: usize,
    ) -> Result<Option<(usize, Content<'a>)>, Fault> {
        assert!(self.inbox.is_empty(), "records are opened in their order");
        let Phase::Open(made) = &mut self.phase else { return Err(Fault::Broken) };
        let Some(record_bytes) = inbox::record_bytes(&bytes[start..])? else { return Ok(None) };
        let Some(bytes) = bytes.get_mut(..start + record_bytes) else { return Ok(None) };
        let content = made.keys.open_to(bytes, start, made.certified)?;
        Ok(Some((record_bytes, content)))
    }

    /// Whether every received byte was decrypted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Discards received bytes; nothing more is decrypted.
    pub fn clear(&mut self) {
        self.inbox.clear();
    }

    /// Makes a record of `plain_bytes` at the front of `out`; `fill` writes the plaintext. Returns
    /// the record's length, [`RECORD_OVERHEAD_BYTES`] more than the plaintext's.
    ///
    /// # Errors
    /// The error of `fill`; then there is no record.
    ///
    /// # Panics
    /// If the handshake is not complete, or `out` is too short.
    pub fn seal<E>(
        &mut self,
        out: &mut [u8],
        plain_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        self.keys().seal(out, plain_bytes, fill)
    }

    /// Writes a KeyUpdate record to the front of `out` if the sending key is near its limit or the
    /// peer asked for an update. Returns the record's length, at most [`KEY_UPDATE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`Fault::Broken`] if no further keys can be derived.
    pub fn update_key(&mut self, out: &mut [u8]) -> Result<usize, Fault> {
        self.keys().update_key(out)
    }

    fn keys(&mut self) -> &mut Keys {
        let Phase::Open(made) = &mut self.phase else {
            panic!("nothing is sealed before keys exist")
        };
        &mut made.keys
    }
}

/// Longest KeyUpdate record.
pub const KEY_UPDATE_BYTES_MAX: usize = 5 + RECORD_OVERHEAD_BYTES;
