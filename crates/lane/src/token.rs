//! Redo tokens: the signed record of a change that is not durable yet. The client holds it and
//! replays it if the server loses the change (docs/protocol.md §4).
//!
//! ```text
//! token = 16 bytes MAC | record, with an empty reply
//! MAC   = first 16 bytes of HMAC-SHA256(redo key, "lanefs redo 2" | fs | contents' MAC |
//!                                     record | reply message)
//! ```
//! The record begins with its length, so no byte can be shifted between the parts. The runtime
//! computes the MAC of a request's contents under a key that clients do not have
//! ([`interface::Bulk::mac`]): so a client cannot find other contents for a token, as it could for
//! a checksum.

use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, KeyInit as _, Mac as _};
use interface::ContentsMac;
use sha2::Sha256;
use wire::FsUuid;

/// Bytes of the MAC in front of a token.
const MAC_BYTES: usize = 16;

/// The key that signs redo tokens. Never printed or sent.
#[derive(Clone, PartialEq, Eq)]
pub struct RedoKey([u8; 32]);

impl fmt::Debug for RedoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedoKey(..)")
    }
}

impl RedoKey {
    /// A key of 32 random bytes, made with the store.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The runtime's key for the MACs of contents ([`interface::Bulk::mac`]).
    #[must_use]
    pub fn contents_key(&self) -> [u8; 32] {
        self.mac(b"lanefs contents 1").finalize().into_bytes().into()
    }

    /// A MAC under this key, for one purpose.
    pub(crate) fn mac(&self, label: &[u8]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any key length fits");
        mac.update(label);
        mac
    }
}

/// Signs and verifies tokens; the key and the constant prefix are hashed beforehand.
#[derive(Clone)]
pub(crate) struct Seal(Hmac<Sha256>);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

impl Seal {
    pub(crate) fn new(key: &RedoKey, fs: FsUuid) -> Self {
        let mut mac = key.mac(b"lanefs redo 2");
        mac.update(&fs.0);
        Self(mac)
    }

    /// Makes a token of the record that `encode` appends.
    pub(crate) fn token(
        &self,
        token: &mut Vec<u8>,
        (reply, contents): (&[u8], ContentsMac),
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        token.clear();
        token.resize(MAC_BYTES, 0);
        encode(token);
        let mut mac = self.0.clone();
        mac.update(&contents);
        mac.update(&token[MAC_BYTES..]);
        mac.update(reply);
        let signed = mac.finalize().into_bytes();
        token[..MAC_BYTES].copy_from_slice(&signed[..MAC_BYTES]);
    }

    /// The record in a token that this server signed for this reply and these contents. Takes the
    /// same time for every wrong token.
    pub(crate) fn open<'a>(
        &self,
        token: &'a [u8],
        reply: &[u8],
        contents: ContentsMac,
    ) -> Option<&'a [u8]> {
        let (signed, record) = token.split_at_checked(MAC_BYTES)?;
        let mut mac = self.0.clone();
        mac.update(&contents);
        mac.update(record);
        mac.update(reply);
        mac.verify_truncated_left(signed).ok().map(|()| record)
    }
}

#[cfg(test)]
mod tests {
    use super::{RedoKey, Seal};
    use alloc::vec::Vec;
    use wire::FsUuid;

    #[test]
    fn only_signed_tokens_open() {
        let seal = Seal::new(&RedoKey::new([1; 32]), FsUuid([2; 16]));
        let mut token = Vec::new();
        seal.token(&mut token, (b"reply", [4; 16]), |out| out.extend_from_slice(b"record"));
        assert_eq!(seal.open(&token, b"reply", [4; 16]), Some(&b"record"[..]));
        assert_eq!(seal.open(&token, b"another", [4; 16]), None);
        assert_eq!(seal.open(&token[..10], b"reply", [4; 16]), None);
        assert_eq!(seal.open(&token, b"reply", [5; 16]), None, "other contents");
        for index in 0..token.len() {
            let mut changed = token.clone();
            changed[index] ^= 1;
            assert_eq!(seal.open(&changed, b"reply", [4; 16]), None, "byte {index}");
        }
        let others = [
            Seal::new(&RedoKey::new([3; 32]), FsUuid([2; 16])),
            Seal::new(&RedoKey::new([1; 32]), FsUuid([3; 16])),
        ];
        assert!(others.iter().all(|other| other.open(&token, b"reply", [4; 16]).is_none()));
    }
}
