//! One message under a key of its own: encrypted and authenticated, together with a context that both
//! ends know.
//!
//! Invariant: a key seals one message, so the nonce is always the first.

use crypto::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Bytes of a key.
pub const MESSAGE_KEY_BYTES: usize = 32;

fn keyed(key: &[u8; MESSAGE_KEY_BYTES]) -> Option<(LessSafeKey, Nonce)> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).ok()?;
    Some((LessSafeKey::new(key), Nonce::assume_unique_for_key([0; NONCE_LEN])))
}

/// The sealed message. The key must have sealed no other one.
///
/// # Panics
/// If the message is longer than the cipher allows, 256 GiB.
#[must_use]
pub fn seal_message(key: &[u8; MESSAGE_KEY_BYTES], context: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    let sealed = keyed(key).and_then(|(key, nonce)| {
        key.seal_in_place_append_tag(nonce, Aad::from(context), &mut bytes).ok()
    });
    assert!(sealed.is_some(), "a message of {} bytes can be sealed", plain.len());
    bytes
}

/// The message of sealed bytes; `None` if another key or context sealed them, or if they were changed.
#[must_use]
pub fn open_message(
    key: &[u8; MESSAGE_KEY_BYTES],
    context: &[u8],
    mut sealed: Vec<u8>,
) -> Option<Vec<u8>> {
    let (key, nonce) = keyed(key)?;
    let plain_bytes = key.open_in_place(nonce, Aad::from(context), &mut sealed).ok()?.len();
    sealed.truncate(plain_bytes);
    Some(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_message_opens_with_its_key_and_context_alone() {
        let sealed = seal_message(&[7; 32], b"context", b"message");
        assert_eq!(open_message(&[7; 32], b"context", sealed.clone()), Some(b"message".to_vec()));
        assert_eq!(open_message(&[8; 32], b"context", sealed.clone()), None);
        assert_eq!(open_message(&[7; 32], b"other", sealed.clone()), None);
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert_eq!(open_message(&[7; 32], b"context", changed), None, "byte {index}");
        }
        assert_eq!(open_message(&[7; 32], b"context", Vec::new()), None);
        assert!(!sealed.windows(7).any(|bytes| bytes == b"message"));
    }
}
