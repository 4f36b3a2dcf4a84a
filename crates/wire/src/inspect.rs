//! Inspections: the server's host reads the store where it lies and its output travels, for who
//! administers. The output is a stream of bytes that this protocol does not look into.

use crate::ProtocolError;
use crate::codec::{Bytes, Flaw, Reader, Wire, Writer};
use crate::message::message;

/// Most bytes of output in one reply.
pub const INSPECTED_BYTES_MAX: usize = 128 * 1024;

/// What is to be done with a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspection {
    /// Look for what is wrong.
    Check {
        /// Findings as JSON; otherwise as lines for people.
        json: bool,
        /// Contents are not compared with their checksums.
        skip_contents: bool,
    },
    /// All metadata.
    Dump,
    /// All metadata and contents, of one moment.
    Backup {
        /// How long changes of clients may wait at a time, in milliseconds.
        freeze_ms_max: u64,
    },
}

/// Body of [`crate::Op::Inspect`]. An inspection belongs to the connection that it was begun on and ends
/// with it; there is one a connection at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspect {
    /// Begin.
    Start(Inspection),
    /// The next bytes of output. Answered when there are some, or none come any more.
    Read {
        /// How many bytes of output were received before.
        stream_offset: u64,
    },
    /// The output asked for changes to wait, and they do.
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(match u8::decode(from)? {
            0 => Self::Check { json: from.read()?, skip_contents: from.read()? },
            1 => Self::Dump,
            2 => Self::Backup { freeze_ms_max: from.read()? },
            _ => return Err(Flaw::ProtocolError(ProtocolError::Malformed)),
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(match u8::decode(from)? {
            0 => Self::Start(from.read()?),
            1 => Self::Read { stream_offset: from.read()? },
            2 => Self::Held,
            _ => return Err(Flaw::ProtocolError(ProtocolError::Malformed)),
        })
    }
}

message! {
    /// Reply of [`crate::Op::Inspect`].
    Inspected<'a> {
        /// No output comes any more.
        end: bool,
        /// Of [`Inspect::Read`]: the next bytes, [`INSPECTED_BYTES_MAX`] at most; some, unless it is the end.
        bytes: Bytes<'a>,
    }
}
