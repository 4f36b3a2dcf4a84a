//! Inspections: the server's host reads its store and streams the output to an administrator. The
//! protocol does not interpret the output.

use crate::ProtocolError;
use crate::codec::{Bytes, DecodeError, Reader, Wire, Writer};
use crate::message::message;

/// Most bytes of output in one reply.
pub const INSPECTED_BYTES_MAX: usize = 128 * 1024;

/// The kind of an inspection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspection {
    /// Check the store.
    Check {
        /// Findings as JSON; otherwise as text lines.
        json: bool,
        /// Skip comparing contents with their checksums.
        skip_contents: bool,
    },
    /// Dump all metadata.
    Dump,
    /// Copy all metadata and contents as of one point in time.
    Backup {
        /// The longest time that clients' changes may be suspended at a time, in milliseconds.
        freeze_ms_max: u64,
    },
}

/// Body of [`crate::Op::Inspect`]. An inspection belongs to the connection on which it began and
/// ends with it; a connection has at most one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspect {
    /// Begin.
    Start(Inspection),
    /// Read the next bytes of output. The reply is sent when there are some, or at the end of the
    /// output.
    Read {
        /// Number of output bytes received before.
        stream_offset: u64,
    },
    /// The output requested a freeze of changes, which is in effect.
    Held,
}

impl Wire<'_> for Inspection {
    fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Self::Check { json, skip_contents } => {
                to.write(&0_u8);
                to.write(json);
                to.write(skip_contents);
            }
            Self::Dump => to.write(&1_u8),
            Self::Backup { freeze_ms_max } => {
                to.write(&2_u8);
                to.write(freeze_ms_max);
            }
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(from)? {
            0 => Self::Check { json: from.read()?, skip_contents: from.read()? },
            1 => Self::Dump,
            2 => Self::Backup { freeze_ms_max: from.read()? },
            _ => return Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        })
    }
}

impl Wire<'_> for Inspect {
    fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Self::Start(inspection) => {
                to.write(&0_u8);
                to.write(inspection);
            }
            Self::Read { stream_offset } => {
                to.write(&1_u8);
                to.write(stream_offset);
            }
            Self::Held => to.write(&2_u8),
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(from)? {
            0 => Self::Start(from.read()?),
            1 => Self::Read { stream_offset: from.read()? },
            2 => Self::Held,
            _ => return Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        })
    }
}

message! {
    /// Reply of [`crate::Op::Inspect`].
    Inspected<'a> {
        /// The end of the output.
        end: bool,
        /// For [`Inspect::Read`]: the next bytes, at most [`INSPECTED_BYTES_MAX`]; empty only at
        /// the end.
        bytes: Bytes<'a>,
    }
}
