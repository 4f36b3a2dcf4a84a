//! The channel binding of a TLS connection: RFC 9266's `tls-exporter`.
//!
//! It is derived from the whole handshake and its keys, so a man in the middle who terminates TLS
//! on both sides has two connections with two different bindings. `rustls` reveals an unbuffered
//! connection's exporter secret only to its key log, so it is taken from there; the derivation is
//! RFC 8446, section 7.5.

use crate::Fault;
use crypto::hkdf::{HKDF_SHA256, Prk};
use rustls::KeyLog;
use std::sync::OnceLock;

/// 32 bytes that only the two ends of a connection know.
pub type ChannelBinding = [u8; 32];

const LABEL: &[u8] = b"EXPORTER-ChannelBinding-Binding";
/// SHA-256 of the empty string: the hash of an empty context.
const NOTHING: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// A key log that records one connection's exporter secret and nothing else.
#[derive(Default)]
pub(crate) struct Exporter(OnceLock<ChannelBinding>);

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exporter(..)")
    }
}

impl KeyLog for Exporter {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if self.will_log(label)
            && let Some(channel) = channel_of(secret)
        {
            self.0.get_or_init(|| channel);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

impl Exporter {
    /// The binding; known once the handshake is complete.
    pub(crate) fn channel_binding(&self) -> Result<ChannelBinding, Fault> {
        self.0.get().copied().ok_or(Fault::Broken)
    }
}

fn channel_of(secret: &[u8]) -> Option<ChannelBinding> {
    expand_label(&expand_label(secret, LABEL)?, b"exporter")
}

/// HKDF-Expand-Label (RFC 8446, section 7.1) of 32 bytes, with the hash of an empty context.
fn expand_label(secret: &[u8], label: &[u8]) -> Option<[u8; 32]> {
    const PREFIX: &[u8] = b"tls13 ";
    let label_bytes = u8::try_from(PREFIX.len() + label.len()).ok()?;
    let info: [&[u8]; 6] = [&[0, 32], &[label_bytes], PREFIX, label, &[32], &NOTHING];
    let mut out = [0; 32];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    prk.expand(&info, HKDF_SHA256).ok()?.fill(&mut out).ok()?;
    Some(out)
}
