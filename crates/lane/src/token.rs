//! Redo tokens: the signed record of a change that is not durable yet. The client holds it and
//! replays it if the server loses the change (docs/protocol.md §4).
//!
//! ```text
//! token       = 4 key_no | 16 bytes MAC | record, with an empty reply
//! MAC         = first 16 bytes of HMAC-SHA256(redo key, "lanefs redo 3" | fs | contents' MAC |
//!                                           record | reply message)
//! redo key n  = HMAC-SHA256(the file system's key, "lanefs redo key 1" | n)
//! ```
//! A key's number is the term in which it signs. So any server of the file system has the key of
//! any token, and a new term signs with a new one. Tokens of all earlier terms verify: a client may
//! not hear for any number of starts that its change is durable.
//!
//! The record begins with its length, so no byte can be shifted between the parts. The runtime
//! computes the MAC of a request's contents under a key that clients do not have
//! ([`interface::Bulk::mac`]): so a client cannot find other contents for a token, as it could for
//! a checksum.

use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, KeyInit as _, Mac as _};
use interface::ContentsMac;
use sha2::Sha256;
use wire::{FsUuid, Term};

const KEY_NO_BYTES: usize = 4;
const MAC_BYTES: usize = 16;
/// Bytes of a token in front of the record.
const FRONT_BYTES: usize = KEY_NO_BYTES + MAC_BYTES;

/// An HMAC under a key, for one purpose.
pub(crate) fn mac_of(key: &[u8; 32], label: &[u8]) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key length fits");
    mac.update(label);
    mac
}

/// The key of a file system, the same at each of its servers and starts. Never printed or sent.
#[derive(Clone, PartialEq, Eq)]
pub struct FsKey([u8; 32]);

impl fmt::Debug for FsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FsKey(..)")
    }
}

impl FsKey {
    /// A key of 32 random bytes, made with the file system.
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
        mac_of(&self.0, label)
    }

    /// The key that signs tokens in a term.
    fn redo_key(&self, key_no: Term) -> [u8; 32] {
        let mut mac = self.mac(b"lanefs redo key 1");
        mac.update(&key_no.0.to_le_bytes());
        mac.finalize().into_bytes().into()
    }
}

/// Signs the tokens of a term, and verifies those of it and of earlier ones. The term's key and the
/// constant prefix are hashed beforehand.
#[derive(Clone)]
pub(crate) struct Seal {
    key: FsKey,
    fs: FsUuid,
    term: Term,
    mac: Hmac<Sha256>,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").field("term", &self.term).finish_non_exhaustive()
    }
}

impl Seal {
    pub(crate) fn new(key: FsKey, fs: FsUuid, term: Term) -> Self {
        let mac = prefix(&key, fs, term);
        Self { key, fs, term, mac }
    }

    /// Makes a token of the record that `encode` appends.
    pub(crate) fn token(
        &self,
        token: &mut Vec<u8>,
        (reply, contents): (&[u8], ContentsMac),
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        token.clear();
        token.extend_from_slice(&self.term.0.to_le_bytes());
        token.resize(FRONT_BYTES, 0);
        encode(token);
        let signed = signed(self.mac.clone(), contents, &token[FRONT_BYTES..], reply);
        let signed = signed.finalize().into_bytes();
        token[KEY_NO_BYTES..FRONT_BYTES].copy_from_slice(&signed[..MAC_BYTES]);
    }

    /// The record in a token that a server of this file system signed, in this term or earlier, for
    /// this reply and these contents. Takes the same time for every wrong token of a term.
    pub(crate) fn open<'a>(
        &self,
        token: &'a [u8],
        reply: &[u8],
        contents: ContentsMac,
    ) -> Option<&'a [u8]> {
        let (key_no, token) = token.split_first_chunk::<KEY_NO_BYTES>()?;
        let (signature, record) = token.split_at_checked(MAC_BYTES)?;
        let key_no = Term(u32::from_le_bytes(*key_no));
        let mac = match key_no {
            no if no > self.term || no == Term(0) => return None,
            no if no == self.term => self.mac.clone(),
            no => prefix(&self.key, self.fs, no),
        };
        let verified = signed(mac, contents, record, reply).verify_truncated_left(signature);
        verified.ok().map(|()| record)
    }
}

/// What all tokens of a term begin with.
fn prefix(key: &FsKey, fs: FsUuid, key_no: Term) -> Hmac<Sha256> {
    let mut mac = mac_of(&key.redo_key(key_no), b"lanefs redo 3");
    mac.update(&fs.0);
    mac
}

fn signed(
    mut mac: Hmac<Sha256>,
    contents: ContentsMac,
    record: &[u8],
    reply: &[u8],
) -> Hmac<Sha256> {
    mac.update(&contents);
    mac.update(record);
    mac.update(reply);
    mac
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{FsKey, Seal};
    use alloc::vec::Vec;
    use wire::{FsUuid, Term};

    const FS: FsUuid = FsUuid([2; 16]);

    fn seal(term: u32) -> Seal {
        Seal::new(FsKey::new([1; 32]), FS, Term(term))
    }

    fn token(seal: &Seal) -> Vec<u8> {
        let mut token = Vec::new();
        seal.token(&mut token, (b"reply", [4; 16]), |out| out.extend_from_slice(b"record"));
        token
    }

    #[test]
    fn only_signed_tokens_open() {
        let seal = seal(7);
        let token = token(&seal);
        assert_eq!(seal.open(&token, b"reply", [4; 16]), Some(&b"record"[..]));
        assert_eq!(seal.open(&token, b"another", [4; 16]), None);
        assert_eq!(seal.open(&token, b"reply", [5; 16]), None, "other contents");
        for bytes_count in 0..token.len() {
            assert_eq!(seal.open(&token[..bytes_count], b"reply", [4; 16]), None);
        }
        for index in 0..token.len() {
            let mut changed = token.clone();
            changed[index] ^= 1;
            assert_eq!(seal.open(&changed, b"reply", [4; 16]), None, "byte {index}");
        }
        let others = [
            Seal::new(FsKey::new([3; 32]), FS, Term(7)),
            Seal::new(FsKey::new([1; 32]), FsUuid([3; 16]), Term(7)),
        ];
        assert!(others.iter().all(|other| other.open(&token, b"reply", [4; 16]).is_none()));
    }

    #[test]
    fn a_token_names_the_key_of_its_term_and_opens_in_each_later_one() {
        let token = token(&seal(7));
        assert_eq!(token[..4], [7, 0, 0, 0]);
        for later in [7, 8, 9, 1000, u32::MAX] {
            assert_eq!(seal(later).open(&token, b"reply", [4; 16]), Some(&b"record"[..]));
        }
        for earlier in [1, 6] {
            assert_eq!(seal(earlier).open(&token, b"reply", [4; 16]), None, "term {earlier}");
        }
        for other in [0_u32, 6, 8] {
            let mut renamed = token.clone();
            renamed[..4].copy_from_slice(&other.to_le_bytes());
            assert_eq!(seal(9).open(&renamed, b"reply", [4; 16]), None, "key {other}");
        }
    }

    #[test]
    fn each_term_signs_with_its_own_key() {
        let macs: Vec<Vec<u8>> = [1, 2].map(|term| token(&seal(term))[4..20].to_vec()).into();
        assert_ne!(macs[0], macs[1]);
    }

    #[test]
    fn random_tokens_do_not_open() {
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
            assert_eq!(seal(u32::MAX).open(&bytes, b"", [0; 16]), None);
        }
    }
}
