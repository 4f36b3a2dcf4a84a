//! Nonces of handshakes.

use sha2::{Digest as _, Sha256};
use wire::{Nonce, Secret};

/// A generator of unpredictable nonces, from a secret seed.
#[derive(Debug)]
pub(crate) struct NonceSource {
    seed: [u8; 32],
    nonce_count: u64,
    /// Stands for key ids of no valid secret: so exports that do not exist look like others.
    decoy: Secret,
}

impl NonceSource {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let decoy = Sha256::new().chain_update(b"lanefs decoy 1").chain_update(seed).finalize();
        Self { seed, nonce_count: 0, decoy: Secret::new(decoy.into()) }
    }

    pub(crate) fn nonce(&mut self) -> Nonce {
        self.nonce_count += 1;
        let mut digest = Sha256::new();
        digest.update(b"lanefs nonce 1");
        digest.update(self.seed);
        digest.update(self.nonce_count.to_le_bytes());
        digest.finalize().into()
    }

    /// Derives key ids of no valid secret.
    pub(crate) const fn decoy(&self) -> &Secret {
        &self.decoy
    }
}
