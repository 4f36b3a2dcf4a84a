//! Names of directory entries, checked once.

use crate::codec::{Bytes, DecodeError, Reader, Wire, Writer};
use crate::{ProtocolError, Status};

/// Longest name of a directory entry, as on Linux.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link, as on Linux.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Longest name of an extended attribute, as on Linux.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute, as on Linux.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;

/// A name that may stand in a directory: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`Status::NameTooLong`] beyond 255 bytes, [`Status::NotFound`] when empty,
    /// [`Status::Invalid`] when it holds `/` or NUL or is `.` or `..`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Status> {
        if bytes.is_empty() {
            return Err(Status::NotFound);
        }
        if bytes.len() > NAME_BYTES_MAX {
            return Err(Status::NameTooLong);
        }
        let forbidden = bytes == b"." || bytes == b"..";
        if forbidden || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Status::Invalid);
        }
        Ok(Self(bytes))
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Wire<'a> for Name<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        let bytes_count = u16::try_from(self.0.len()).unwrap_or(u16::MAX);
        bytes_count.encode(to);
        to.put(self.0);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes_count = u16::decode(from)?;
        let bytes = from.take(usize::from(bytes_count))?;
        Self::new(bytes).map_err(DecodeError::Status)
    }
}

/// A list of group ids, or unknown (see [`Status::NeedGroups`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Groups<'a> {
    /// The client did not look them up.
    Unknown,
    /// The ids, each 4 bytes little-endian.
    Known(&'a [u8]),
}

impl Groups<'_> {
    /// Linux's NGROUPS_MAX.
    pub const COUNT_MAX: usize = 65_536;

    /// Whether `gid` is among them; `None` while unknown.
    #[must_use]
    pub fn contains(&self, gid: u32) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::Known(ids) => Some(ids.chunks_exact(4).any(|id| *id == gid.to_le_bytes())),
        }
    }
}

impl<'a> Wire<'a> for Groups<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Self::Unknown => 0_u8.encode(to),
            Self::Known(ids) => {
                1_u8.encode(to);
                Bytes(ids).encode(to);
            }
        }
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Unknown),
            1 => {
                let ids = Bytes::decode(from)?.0;
                let whole = ids.len() % 4 == 0 && ids.len() / 4 <= Self::COUNT_MAX;
                if whole {
                    Ok(Self::Known(ids))
                } else {
                    Err(DecodeError::ProtocolError(ProtocolError::Malformed))
                }
            }
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

/// The caller: the ids of the process behind a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller<'a> {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Groups<'a>,
}

impl<'a> Wire<'a> for Caller<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        self.uid.encode(to);
        self.gid.encode(to);
        self.groups.encode(to);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { uid: from.read()?, gid: from.read()?, groups: from.read()? })
    }
}
