//! Mutual authentication: HMAC-SHA256 over both nonces, the whole Hello and the channel, in both
//! directions.
//!
//! ```text
//! client -> Hello { client_nonce, ..., key id }
//! server -> Challenge { server_nonce,
//!                       HMAC(secret, "lanefs server 1" | hello | server_nonce | channel) }
//! client -> Proof { HMAC(secret, "lanefs client 1" | hello | server_nonce | channel) }
//! key id: the first 8 bytes of HMAC(secret, "lanefs key id 1" | client_nonce | credential)
//! ```
//! Neither side's proof can be reused by the other: the label names the direction and each side's
//! own nonce is covered. The key id tells the server which of the valid secrets the client holds;
//! it differs on each connection, so it identifies no client. The channel binds the proof to a TLS
//! connection: a proof given to a man in the middle is invalid on any other connection. A proof
//! shows knowledge of the secret; it does not encrypt.

use crate::{Credential, KeyId};
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// 32 random bytes, used once.
pub type Nonce = [u8; 32];

/// The channel binding of a TLS connection, known to its two ends only (RFC 9266, `tls-exporter`).
pub type Channel = [u8; 32];

/// The channel of every connection in plain text.
pub const PLAIN: Channel = [0; 32];

/// The input of a proof.
#[derive(Clone, Copy, Debug)]
pub struct Proven<'a> {
    /// The body of the Hello.
    pub hello: &'a [u8],
    /// The server's nonce.
    pub nonce: &'a Nonce,
    /// The channel of the connection.
    pub channel: &'a Channel,
}

impl Proven<'_> {
    const fn parts(&self) -> [&[u8]; 3] {
        [self.hello, self.nonce, self.channel]
    }
}

/// The file system's shared secret, or one derived from it. Never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    bytes: [u8; 32],
    credential: Credential,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A secret of 32 random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self { bytes, credential: Credential::Store }
    }

    /// The secret of an export, from the bytes of [`Self::of_export`].
    #[must_use]
    pub const fn of_one_export(bytes: [u8; 32]) -> Self {
        Self { bytes, credential: Credential::Export }
    }

    /// The stand-in for a secret of a client with a certificate; [`Self::on`] makes a secret of it.
    #[must_use]
    pub const fn certified() -> Self {
        Self { bytes: [0; 32], credential: Credential::Certificate }
    }

    /// The secret of a connection on which both sides have shown certificates. A man in the middle
    /// has another channel.
    #[must_use]
    pub fn of_channel(channel: &Channel) -> Self {
        let mac = Self::new(*channel).mac(b"lanefs certificate 1", &[]);
        let bytes = mac.finalize().into_bytes().into();
        Self { bytes, credential: Credential::Certificate }
    }

    /// The secret to prove on this connection; for a certificate the one of the channel.
    #[must_use]
    pub fn on(&self, channel: &Channel) -> Self {
        match self.credential {
            Credential::Store | Credential::Export => *self,
            Credential::Certificate => Self::of_channel(channel),
        }
    }

    /// The kind of this credential.
    #[must_use]
    pub const fn credential(&self) -> Credential {
        self.credential
    }

    /// The id by which a server recognizes the client's secret, for the nonce of the client's
    /// Hello.
    #[must_use]
    pub fn key_id(&self, nonce: &Nonce) -> KeyId {
        let credential = [self.credential as u8];
        let made = self.mac(b"lanefs key id 1", &[nonce, &credential]).finalize().into_bytes();
        let mut first = [0; 8];
        first.copy_from_slice(&made[..8]);
        KeyId(u64::from_le_bytes(first))
    }

    /// The server's proof.
    #[must_use]
    pub fn server_proof(&self, of: Proven<'_>) -> [u8; 32] {
        self.mac(b"lanefs server 1", &of.parts()).finalize().into_bytes().into()
    }

    /// The client's proof.
    #[must_use]
    pub fn client_proof(&self, of: Proven<'_>) -> [u8; 32] {
        self.mac(b"lanefs client 1", &of.parts()).finalize().into_bytes().into()
    }

    /// Whether `proof` is the client's; in constant time.
    #[must_use]
    pub fn client_proven(&self, of: Proven<'_>, proof: &[u8; 32]) -> bool {
        self.mac(b"lanefs client 1", &of.parts()).verify_slice(proof).is_ok()
    }

    /// Whether `proof` is the server's.
    #[must_use]
    pub fn server_proven(&self, of: Proven<'_>, proof: &[u8; 32]) -> bool {
        self.mac(b"lanefs server 1", &of.parts()).verify_slice(proof).is_ok()
    }

    /// 32 pseudo-random bytes for each number, unpredictable if this seed is secret.
    #[must_use]
    pub fn draw(&self, number: u64) -> [u8; 32] {
        self.mac(b"lanefs draw 1", &[&number.to_le_bytes()]).finalize().into_bytes().into()
    }

    /// The secret of one export, for clients that may mount only that: derived from the store's
    /// secret, which this is, and the definition's id.
    #[must_use]
    pub fn of_export(&self, name: &[u8], id: u64) -> Self {
        let mac = self.mac(b"lanefs export 1", &[name, &id.to_le_bytes()]);
        Self::of_one_export(mac.finalize().into_bytes().into())
    }

    /// The file format: hexadecimal.
    #[must_use]
    pub fn to_hex(&self) -> alloc::string::String {
        hex::encode(self.bytes)
    }

    fn mac(&self, label: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
        // HMAC takes keys of any length, so this cannot fail.
        #[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.bytes).expect("any key length fits");
        mac.update(label);
        for part in parts {
            let part_bytes = u64::try_from(part.len()).unwrap_or(u64::MAX);
            mac.update(&part_bytes.to_le_bytes());
            mac.update(part);
        }
        mac
    }
}
