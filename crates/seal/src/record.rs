//! Records of application data (RFC 8446, section 5), encrypted and decrypted with the handshake's
//! keys.
//!
//! ```text
//! 1 type 23 | 2 version 0303 | 2 length | plaintext | 1 type of contents | 16 tag
//! ```
//! Invariants: a nonce is used once, because it is the record number of its key; a key is replaced
//! long before it has encrypted as much as its cipher allows.

use crate::fault::{Fault, Flaw};
use crypto::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{AlertDescription, ConnectionTrafficSecrets, Error, ExtractedSecrets};

/// Most plaintext bytes of a record.
pub const RECORD_BYTES_MAX: usize = 1 << 14;
/// Bytes of a record's header.
pub(crate) const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
/// Bytes that a record has beyond its plaintext.
pub const RECORD_OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// The content of a record.
#[derive(Debug)]
pub enum Content<'a> {
    /// Plaintext, up to [`RECORD_BYTES_MAX`].
    Bytes(&'a [u8]),
    /// The peer has closed its sending direction.
    End,
    /// Nothing for the user of this crate.
    Nothing,
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// KeyUpdate, one byte long; that byte says whether the peer shall update its key too.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
const CLOSE_NOTIFY: u8 = 0;

/// Bytes that one key may encrypt, each record counted with [`RECORD_COST_BYTES`] more: an eighth
/// of the limit of RFC 8446, section 5.5, for AES-GCM.
const KEY_BYTES_MAX: u64 = 1 << 35;
const RECORD_COST_BYTES: u64 = 64;

/// A key and the number of its next record.
struct Key {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    record_count: u64,
}

impl Key {
    fn new((record_count, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Fault> {
        let (algorithm, key, iv): (&Algorithm, _, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            // Never offered.
            ConnectionTrafficSecrets::Aes256Gcm { .. } | _ => return Err(Fault::Broken),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| Fault::Broken)?;
        let iv = <[u8; NONCE_LEN]>::try_from(iv.as_ref()).map_err(|_| Fault::Broken)?;
        Ok(Self { key: LessSafeKey::new(key), iv, record_count })
    }

    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.record_count.to_be_bytes())
        {
            *byte ^= number;
        }
        self.record_count += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Derives the keys that replace those in use.
pub(crate) enum Update {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Update {
    fn sent(&mut self) -> Result<Key, Fault> {
        Self::key(match self {
            Self::Client(kernel_state) => kernel_state.update_tx_secret(),
            Self::Server(kernel_state) => kernel_state.update_tx_secret(),
        })
    }

    fn received(&mut self) -> Result<Key, Fault> {
        Self::key(match self {
            Self::Client(kernel_state) => kernel_state.update_rx_secret(),
            Self::Server(kernel_state) => kernel_state.update_rx_secret(),
        })
    }

    fn key(made: Result<(u64, ConnectionTrafficSecrets), Error>) -> Result<Key, Fault> {
        Key::new(made.map_err(|_| Fault::Broken)?)
    }
}

/// The keys of both directions.
pub(crate) struct Keys {
    ours: Key,
    theirs: Key,
    update: Update,
    /// Bytes that the sending key may still encrypt.
    left_bytes: u64,
    /// The peer request for a new sending key.
    update_requested: bool,
}

impl Keys {
    pub(crate) fn new(secrets: ExtractedSecrets, update: Update) -> Result<Self, Fault> {
        let (ours, theirs) = (Key::new(secrets.tx)?, Key::new(secrets.rx)?);
        Ok(Self { ours, theirs, update, left_bytes: KEY_BYTES_MAX, update_requested: false })
    }

    pub(crate) fn seal<E>(
        &mut self,
        out: &mut [u8],
        plain_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        assert!(plain_bytes <= RECORD_BYTES_MAX, "a record of {plain_bytes} bytes");
        fill(&mut out[HEADER_BYTES..HEADER_BYTES + plain_bytes])?;
        Ok(self.close(out, plain_bytes, DATA))
    }

    /// Encrypts plaintext that already lies in its place in the record.
    fn close(&mut self, out: &mut [u8], plain_bytes: usize, kind: u8) -> usize {
        let record = &mut out[..plain_bytes + RECORD_OVERHEAD_BYTES];
        let payload_bytes = plain_bytes + 1 + TAG_BYTES;
        let Ok(length) = u16::try_from(payload_bytes) else { panic!("a record is short") };
        let [high, low] = length.to_be_bytes();
        let head = [DATA, 3, 3, high, low];
        record[..HEADER_BYTES].copy_from_slice(&head);
        let (inner, tag_space) = record[HEADER_BYTES..].split_at_mut(plain_bytes + 1);
        inner[plain_bytes] = kind;
        let nonce = self.ours.next_nonce();
        let sealed = self.ours.key.seal_in_place_separate_tag(nonce, Aad::from(head), inner);
        let Ok(tag) = sealed else { panic!("a record is short enough for its cipher") };
        tag_space.copy_from_slice(tag.as_ref());
        let cost_bytes = u64::try_from(record.len()).unwrap_or(u64::MAX) + RECORD_COST_BYTES;
        self.left_bytes = self.left_bytes.saturating_sub(cost_bytes);
        record.len()
    }

    pub(crate) fn update_key(&mut self, out: &mut [u8]) -> Result<usize, Fault> {
        if self.left_bytes > 0 && !self.update_requested {
            return Ok(0);
        }
        let message = [KEY_UPDATE.as_slice(), &[0]].concat();
        out[HEADER_BYTES..HEADER_BYTES + message.len()].copy_from_slice(&message);
        let record_bytes = self.close(out, message.len(), HANDSHAKE);
        self.ours = self.update.sent()?;
        self.left_bytes = KEY_BYTES_MAX;
        self.update_requested = false;
        Ok(record_bytes)
    }

    /// Decrypts a record. `certified`: an alert may be about our certificate.
    pub(crate) fn open<'a>(
        &mut self,
        record: &'a mut [u8],
        certified: bool,
    ) -> Result<Content<'a>, Fault> {
        let Some((head, payload)) = record.split_first_chunk_mut::<HEADER_BYTES>() else {
            return Err(Fault::Broken);
        };
        if head[..3] != [DATA, 3, 3] {
            return Err(Fault::Broken);
        }
        let nonce = self.theirs.next_nonce();
        let opened = self.theirs.key.open_in_place(nonce, Aad::from(*head), payload);
        self.content(opened.map_err(|_| Fault::Broken)?, certified)
    }

    /// Decrypts the record that begins at `start` of `bytes`; its plaintext is written to their
    /// front.
    pub(crate) fn open_to<'a>(
        &mut self,
        bytes: &'a mut [u8],
        start: usize,
        certified: bool,
    ) -> Result<Content<'a>, Fault> {
        let Some(head) = bytes[start..].first_chunk::<HEADER_BYTES>().copied() else {
            return Err(Fault::Broken);
        };
        if head[..3] != [DATA, 3, 3] {
            return Err(Fault::Broken);
        }
        let nonce = self.theirs.next_nonce();
        let from = start + HEADER_BYTES..;
        let opened = self.theirs.key.open_within(nonce, Aad::from(head), bytes, from);
        self.content(opened.map_err(|_| Fault::Broken)?, certified)
    }

    /// The content of a decrypted record.
    fn content<'a>(&mut self, inner: &'a [u8], certified: bool) -> Result<Content<'a>, Fault> {
        // Zeros behind the content type are padding.
        let kind_index = inner.iter().rposition(|byte| *byte != 0).ok_or(Fault::Broken)?;
        let (plain, kind) = (&inner[..kind_index], inner[kind_index]);
        match kind {
            DATA if plain.len() <= RECORD_BYTES_MAX => Ok(Content::Bytes(plain)),
            ALERT if plain.get(1) == Some(&CLOSE_NOTIFY) => Ok(Content::End),
            ALERT if certified => {
                let alert = plain.get(1).copied().map(AlertDescription::from);
                let flaw = alert.and_then(Flaw::of_alert);
                Err(flaw.map_or(Fault::Broken, Fault::OwnCertificate))
            }
            HANDSHAKE => {
                let request = plain.strip_prefix(&KEY_UPDATE);
                let Some(request @ ([0] | [1])) = request else { return Err(Fault::Broken) };
                self.update_requested |= *request == [1];
                self.theirs = self.update.received()?;
                Ok(Content::Nothing)
            }
            _ => Err(Fault::Broken),
        }
    }

    /// Uses up the sending key.
    #[cfg(test)]
    pub(crate) const fn wear(&mut self) {
        self.left_bytes = 0;
    }
}
