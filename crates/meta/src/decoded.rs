//! Decoding the body of a request.

use wire::{DecodeError, ProtocolError, Status, Wire};

/// Decodes a request's body, or returns its refusal.
pub(crate) fn decoded<'a, T: Wire<'a>>(body: &'a [u8]) -> Result<T, Result<Status, ProtocolError>> {
    T::decode_all(body).map_err(|error| match error {
        DecodeError::ProtocolError(protocol_error) => Err(protocol_error),
        DecodeError::Status(status) => Ok(status),
    })
}
