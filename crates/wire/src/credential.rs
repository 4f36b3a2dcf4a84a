//! Which kind of secret a client proves, and which of the valid ones.

use crate::ProtocolError;
use crate::codec::{DecodeError, Reader, Wire, Writer};

/// The credential that a client proves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Credential {
    /// The store's secret: grants every export, and administration.
    #[default]
    Store = 0,
    /// The secret of one export ([`crate::Secret::of_export`]).
    Export = 1,
    /// A certificate, which the client has shown on the connection ([`crate::Secret::of_channel`]).
    Certificate = 2,
}

/// Which of the valid secrets a client holds ([`crate::Secret::key_id`]). One number, so that comparing
/// takes constant time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyId(pub u64);

impl Wire<'_> for KeyId {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.0);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(from.read()?))
    }
}

impl Wire<'_> for Credential {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&(*self as u8));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Store),
            1 => Ok(Self::Export),
            2 => Ok(Self::Certificate),
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}
