//! `seal`: TLS 1.3 around a connection, without sockets: bytes that were received go in, plaintext comes
//! out, and plaintext becomes records.
//!
//! `rustls` makes the handshake and the keys; the records behind it are made here ([`record`]), because
//! that takes one copy less, and none where the plaintext can be written into its record. No certificate is
//! needed: a server shows a key that it made at its start, and the proof of the shared secret, which is
//! its user's matter, is bound to the handshake by [`ChannelBinding`]. With [`Certificates`] each end shows one and
//! checks the other's. Invariants: nothing is sent or believed
//! in plain text; an error ends the connection; whoever holds a [`Seal`] may send it to another thread.
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
mod handshake;
mod inbox;
mod record;
#[cfg(test)]
mod tests;

pub use certificate_flaw::Flaw;
pub use certificates::{
    CHAIN_BYTES_MAX, CHAIN_COUNT_MAX, Certificates, Peer, Pem, PemPart, certificate_der, key_der,
};
pub use channel_binding::ChannelBinding;
pub use config::{Client, Server, SetupError};
pub use record::{RECORD_BYTES_MAX, RECORD_OVERHEAD_BYTES};

use handshake::Handshake;
use inbox::Inbox;
use record::Keys;

/// Why a connection cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// What came is no TLS at all; [`Seal::unopened`] has it.
    Foreign,
    /// The peer's certificate is not good.
    Certificate(Flaw),
    /// Ours is not, says the peer.
    OwnCertificate(Flaw),
    /// A record or message that does not fit.
    Broken,
}

/// What a handshake has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeProgress {
    /// More has to come.
    NeedsMore,
    /// It is over: what the connection is called at both ends and nowhere else.
    Open(ChannelBinding),
}

/// A record's contents.
#[derive(Debug)]
pub enum Content<'a> {
    /// Plaintext, up to [`RECORD_BYTES_MAX`].
    Bytes(&'a [u8]),
    /// The peer says nothing more.
    End,
    /// Nothing for the user.
    Nothing,
}

/// What a handshake leaves.
struct Established {
    keys: Keys,
    channel: ChannelBinding,
    peer: Option<Peer>,
    /// The peer may not have judged our certificate yet.
    certified: bool,
}

enum Phase {
    Handshake(Box<Handshake>),
    Open(Box<Established>),
    /// An error ended it.
    Broken,
}

/// One end of a sealed connection, and what was received of it and not opened yet.
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

    /// A client's end, which says `out` first.
    ///
    /// # Errors
    /// [`Fault::Broken`] if there are no random numbers.
    pub fn client(client: &Client, out: &mut Vec<u8>) -> Result<Self, Fault> {
        let mut seal = Self::new(Handshake::client(client)?);
        seal.advance_handshake(out)?;
        Ok(seal)
    }

    fn new(handshake: Handshake) -> Self {
        Self { inbox: Inbox::default(), phase: Phase::Handshake(Box::new(handshake)) }
    }

    /// Whether the handshake is over.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(..))
    }

    /// What the connection is called, once the handshake is over.
    #[must_use]
    pub const fn channel_binding(&self) -> Option<ChannelBinding> {
        match &self.phase {
            Phase::Open(made) => Some(made.channel),
            Phase::Handshake(_) | Phase::Broken => None,
        }
    }

    /// Server: who has shown a certificate, once the handshake is over.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        match &self.phase {
            Phase::Open(made) => made.peer.as_ref(),
            Phase::Handshake(_) | Phase::Broken => None,
        }
    }

    /// Where received bytes go; it stays where it is until [`Self::received`]. About `wanted_bytes` of
    /// plaintext are expected.
    pub fn recv_space(&mut self, wanted_bytes: usize) -> &mut [u8] {
        self.inbox.recv_space(wanted_bytes)
    }

    /// So many bytes were written at the front of [`Self::recv_space`].
    pub fn received(&mut self, received_bytes: usize) {
        self.inbox.received(received_bytes);
    }

    /// Acceptable bytes that were received elsewhere.
    pub fn push_received(&mut self, bytes: &[u8]) {
        self.inbox.append(bytes);
    }

    /// What was received and not opened.
    #[must_use]
    pub fn unopened(&self) -> &[u8] {
        self.inbox.bytes()
    }

    /// Goes on with the handshake as far as what was received allows; what is to be sent is appended to
    /// `out`, also where a certificate ends it: the peer shall push_received why.
    ///
    /// # Errors
    /// Why it ends.
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

    /// Opens the next record, in place; `None` when it is not whole yet.
    ///
    /// # Errors
    /// When it is not the peer's, not the next one, or no record.
    pub fn open(&mut self) -> Result<Option<Content<'_>>, Fault> {
        let Phase::Open(made) = &mut self.phase else { return Err(Fault::Broken) };
        match self.inbox.record()? {
            Some(record) => made.keys.open(record, made.certified).map(Some),
            None => Ok(None),
        }
    }

    /// Opens a record that was received elsewhere: it begins at `start` of `bytes`, and what is in it goes to
    /// their front, over whatever is there. Returns the record's length as well; `None` when it is not whole
    /// yet. Nothing may wait here to be opened.
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

    /// Whether nothing that was received is still to be opened.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Forgets what was received; nothing is opened any more.
    pub fn clear(&mut self) {
        self.inbox.clear();
    }

    /// Makes a record of `plain_bytes` at the front of `out`: `fill` writes the plaintext. Returns the
    /// record's length, [`RECORD_OVERHEAD_BYTES`] more than the plaintext's.
    ///
    /// # Errors
    /// What `fill` says; the record does not exist then.
    ///
    /// # Panics
    /// If the handshake is not over, or `out` is too short.
    pub fn seal<E>(
        &mut self,
        out: &mut [u8],
        plain_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        self.keys().seal(out, plain_bytes, fill)
    }

    /// Puts a record that changes our keys at the front of `out`, if those that we have were used for so
    /// much that they must be; its length, at most [`KEY_UPDATE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`Fault::Broken`] if there are none.
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

/// Longest record that changes keys.
pub const KEY_UPDATE_BYTES_MAX: usize = 5 + RECORD_OVERHEAD_BYTES;
