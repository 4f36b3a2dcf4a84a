//! The valid secrets: one, or two during a rotation.

use crate::Secret;

/// The valid secrets of one credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Secrets {
    /// The secret that is handed out to clients.
    pub current: Secret,
    /// The one before, until it is retired.
    pub earlier: Option<Secret>,
}

impl Secrets {
    /// The secrets, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &Secret> {
        core::iter::once(&self.current).chain(&self.earlier)
    }

    /// Whether a secret is valid.
    #[must_use]
    pub fn holds(&self, secret: &Secret) -> bool {
        self.iter().any(|valid| valid == secret)
    }
}

impl From<Secret> for Secrets {
    fn from(current: Secret) -> Self {
        Self { current, earlier: None }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{KeyId, Wire as _};

    #[test]
    fn a_key_id_identifies_one_of_two_secrets() {
        let (current, earlier) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let secrets = Secrets { current, earlier: Some(earlier) };
        let nonce = [3; 32];
        let held = |of: Secrets, key_id| of.iter().copied().find(|s| s.key_id(&nonce) == key_id);
        assert_eq!(held(secrets, current.key_id(&nonce)), Some(current));
        assert_eq!(held(secrets, earlier.key_id(&nonce)), Some(earlier));
        assert_eq!(held(secrets, Secret::new([4; 32]).key_id(&nonce)), None);
        assert_eq!(held(secrets, current.key_id(&[5; 32])), None, "of another Hello");
        assert_eq!(held(Secrets::from(current), earlier.key_id(&nonce)), None);
    }

    #[test]
    fn a_key_id_is_of_one_nonce_and_one_credential() {
        // Fixed bytes: client and server must compute the same.
        let secret = Secret::new([9; 32]);
        assert_eq!(secret.key_id(&[4; 32]), KeyId(0xc437_2a24_d74d_79a4));
        assert_ne!(secret.key_id(&[4; 32]), secret.key_id(&[5; 32]));
        assert_ne!(secret.key_id(&[4; 32]), Secret::of_one_export([9; 32]).key_id(&[4; 32]));
        assert_eq!(KeyId::decode_all(&KeyId(7).to_bytes()).unwrap(), KeyId(7));
    }

    #[test]
    fn two_secrets_derive_two_export_secrets() {
        let (current, earlier) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let of_export = |secret: &Secret| secret.of_export(b"a", 1);
        let both = Secrets { current: of_export(&current), earlier: Some(of_export(&earlier)) };
        assert_eq!(
            both.iter().copied().collect::<alloc::vec::Vec<_>>(),
            [current.of_export(b"a", 1), earlier.of_export(b"a", 1)]
        );
        assert!(both.holds(&of_export(&earlier)) && !both.holds(&earlier));
    }
}
