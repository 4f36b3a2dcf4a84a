//! The part of a ClientHello (RFC 8446, section 4.1.2) that says which kind of server certificate
//! the client accepts (RFC 7250): a client with a secret accepts a raw key, one with a certificate
//! accepts a certificate.

/// A handshake record, and the message in it.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The extension's number.
const SERVER_CERTIFICATE_TYPE: u16 = 20;
const X509: u8 = 0;
const RAW_KEY: u8 = 2;

/// The certificate types that a client accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acceptable {
    pub(crate) certificate: bool,
    pub(crate) raw_key: bool,
}

impl Acceptable {
    /// Parses the first record of a handshake; `None` if it is not one.
    pub(crate) fn of(record: &[u8]) -> Option<Self> {
        let mut record = Rest(record);
        let is_handshake = record.take(5)?[0] == HANDSHAKE;
        let is_hello = record.take(4)?[0] == CLIENT_HELLO;
        if !is_handshake || !is_hello {
            return None;
        }
        // Skips version and random bytes.
        record.take(2 + 32)?;
        let _session = record.sized(1)?;
        let _ciphers = record.sized(2)?;
        let _compressions = record.sized(1)?;
        let mut extensions = Rest(record.sized(2)?);
        while !extensions.0.is_empty() {
            let kind = u16::from_be_bytes(extensions.take(2)?.try_into().ok()?);
            let mut body = Rest(extensions.sized(2)?);
            if kind == SERVER_CERTIFICATE_TYPE {
                let kinds = body.sized(1)?;
                let takes = |kind| kinds.contains(&kind);
                return Some(Self { certificate: takes(X509), raw_key: takes(RAW_KEY) });
            }
        }
        Some(Self { certificate: true, raw_key: false })
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, bytes_count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes_count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes a field behind its own length, which is a number of so many bytes.
    fn sized(&mut self, length_bytes: usize) -> Option<&'a [u8]> {
        let length = self.take(length_bytes)?;
        let bytes_count = length.iter().fold(0, |count, byte| count << 8 | usize::from(*byte));
        self.take(bytes_count)
    }
}
