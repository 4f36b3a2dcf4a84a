//! The body of a reply: a message, what is granted with it, and a redo token.
//!
//! ```text
//! message | further attributes, new files, named inodes, lease | token, 4 token_bytes
//!           with reply_flag::LEASES                              with reply_flag::TOKEN
//! ```

use crate::codec::{DecodeError, Wire, Writer};
use crate::{
    Attr, LeaseGrant, NamedInodes, NewFiles, ProtocolError, Reply, lease_flag, reply_flag,
};
use alloc::vec::Vec;

/// The parts of a reply's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyParts<'a> {
    /// The op's reply message, empty unless the status is Ok (or StaleMap).
    pub message: &'a [u8],
    /// What is granted.
    pub lease: Option<LeaseGrant>,
    /// Attributes of further inodes, granted as well: [`LeaseGrant::further_count`] of them.
    pub further: &'a [u8],
    /// Numbers for new files, with [`lease_flag::NEW_FILES`].
    pub new_files: Option<NewFiles>,
    /// What a removal or rename has changed, with [`lease_flag::NAMED_INODES`].
    pub named: Option<NamedInodes>,
    /// The redo token, if the change is not durable yet.
    pub token: Option<&'a [u8]>,
}

impl<'a> ReplyParts<'a> {
    /// Bytes of the length field behind a token.
    const TOKEN_LENGTH_BYTES: usize = 4;

    /// Splits the body of a reply.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] when a part does not fit, or a reply from a slot has a lease.
    pub fn split(reply: &Reply, body: &'a [u8]) -> Result<Self, ProtocolError> {
        let (rest, token) = if reply.flags & reply_flag::TOKEN == 0 {
            (body, None)
        } else {
            let (rest, token) = split_token(body)?;
            (rest, Some(token))
        };
        if reply.flags & reply_flag::LEASES == 0 {
            return Ok(Self { token, ..Self::plain(rest) });
        }
        if reply.flags & reply_flag::FROM_SLOT != 0 {
            return Err(ProtocolError::Malformed);
        }
        let (rest, lease) = split_last(rest, LeaseGrant::WIRE_BYTES)?;
        let lease: LeaseGrant = decoded(lease)?;
        let has = |flag: u8| lease.granted & flag != 0;
        let (rest, named) = split_if(has(lease_flag::NAMED_INODES), rest, NamedInodes::WIRE_BYTES)?;
        let (rest, new_files) = split_if(has(lease_flag::NEW_FILES), rest, NewFiles::WIRE_BYTES)?;
        let further_bytes = usize::from(lease.further_count) * Attr::WIRE_BYTES;
        let (message, further) = split_last(rest, further_bytes)?;
        Ok(Self { message, lease: Some(lease), further, new_files, named, token })
    }

    /// A message alone.
    #[must_use]
    pub const fn plain(message: &'a [u8]) -> Self {
        Self { message, lease: None, further: &[], new_files: None, named: None, token: None }
    }

    /// The attributes of further inodes.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] when they are invalid.
    pub fn further_attributes(&self) -> Result<Vec<Attr>, ProtocolError> {
        let attrs = self.further.chunks_exact(Attr::WIRE_BYTES).map(Attr::decode_all);
        attrs.collect::<Result<_, _>>().map_err(|_| ProtocolError::Malformed)
    }

    /// Appends the parts, for [`ReplyParts::split`].
    pub fn put(&self, to: &mut Writer<'_>) {
        to.put(self.message);
        if let Some(lease) = &self.lease {
            to.put(self.further);
            if let Some(new_files) = &self.new_files {
                to.write(new_files);
            }
            if let Some(named) = &self.named {
                to.write(named);
            }
            to.write(lease);
        }
        if let Some(token) = self.token {
            to.put(token);
            to.write(&u32::try_from(token.len()).unwrap_or(u32::MAX));
        }
    }

    /// The flags of a reply with these parts.
    #[must_use]
    pub const fn flags(&self) -> u16 {
        let lease = if self.lease.is_some() { reply_flag::LEASES } else { 0 };
        let token = if self.token.is_some() { reply_flag::TOKEN } else { 0 };
        lease | token
    }
}

/// Splits the last bytes off.
fn split_last(body: &[u8], last_bytes: usize) -> Result<(&[u8], &[u8]), ProtocolError> {
    let first_bytes = body.len().checked_sub(last_bytes).ok_or(ProtocolError::Malformed)?;
    Ok(body.split_at(first_bytes))
}

/// Splits what the last bytes say off, if it is there.
fn split_if<'a, T: Wire<'a>>(
    is_there: bool,
    body: &'a [u8],
    last_bytes: usize,
) -> Result<(&'a [u8], Option<T>), ProtocolError> {
    if !is_there {
        return Ok((body, None));
    }
    let (rest, last) = split_last(body, last_bytes)?;
    Ok((rest, Some(decoded(last)?)))
}

fn decoded<'a, T: Wire<'a>>(bytes: &'a [u8]) -> Result<T, ProtocolError> {
    T::decode_all(bytes).map_err(|error| match error {
        DecodeError::ProtocolError(protocol_error) => protocol_error,
        DecodeError::Status(_) => ProtocolError::Malformed,
    })
}

fn split_token(body: &[u8]) -> Result<(&[u8], &[u8]), ProtocolError> {
    let (rest, length) = body
        .split_last_chunk::<{ ReplyParts::TOKEN_LENGTH_BYTES }>()
        .ok_or(ProtocolError::Malformed)?;
    let token_bytes = usize::try_from(u32::from_le_bytes(*length));
    let token_bytes = token_bytes.map_err(|_| ProtocolError::Malformed)?;
    split_last(rest, token_bytes)
}
