//! The stream of frames from the process that reads a server's store to the client: text,
//! progress, and a backup.
//!
//! ```text
//! frame: kind u8, payload_bytes u32, payload      (little-endian; docs/formats.md has the payloads)
//! ```
//! Invariant: a stream is whole when its last frame is [`Frame::End`]; whatever ends without it was cut.

mod folder;
mod source;

#[cfg(test)]
mod tests;

pub use folder::Folder;
pub use source::Source;
pub(crate) use source::is_unreadable;

use store::ObjectName;
use thiserror::Error;
use wire::InodeNo;

/// Bytes of a frame before its payload.
const HEADER_BYTES: usize = 5;
/// Most bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024 + 64;
/// Most bytes of contents, text or metadata in a frame.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;

/// A frame of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// Output for stdout.
    Output(&'a [u8]),
    /// A line for people, for stderr.
    Line(&'a str),
    /// A pass over the store begins.
    Pass(&'a str),
    /// The number of objects checked since the last such frame.
    Looked(u64),
    /// Asks the client to freeze changes; the stream continues when it has confirmed that.
    Freeze,
    /// Ends the freeze.
    Thaw,
    /// A round over all objects begins.
    Round,
    /// This round has seen an object that has not changed since it was sent.
    Same(ObjectName),
    /// This round has seen an object, and sends it.
    Object(ObjectHead),
    /// Bytes of that object.
    Data {
        /// Where in the object.
        object_offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The object was sent.
    Whole,
    /// The object was removed meanwhile.
    Removed,
    /// This round has seen an object that cannot be read.
    Unread(ObjectName),
    /// The next bytes of a backup's metadata.
    Metadata(&'a [u8]),
    /// Nothing comes any more.
    End {
        /// The exit code of the command.
        code: u8,
        /// What to say, if anything.
        line: &'a str,
    },
}

/// An object that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectHead {
    /// Which.
    pub name: ObjectName,
    /// Seconds of the time of its last change.
    pub mtime_secs: i64,
    /// Nanoseconds of that.
    pub mtime_nanos: u32,
    /// Its length. Where no bytes are sent is a hole.
    pub object_bytes: u64,
}

/// Why a stream cannot be read.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the server sent what this lanefs does not understand: use the same version")]
pub struct Malformed;

impl<'a> Frame<'a> {
    /// Appends the frame.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let kind = match self {
            Self::Output(_) => 1,
            Self::Line(_) => 2,
            Self::Pass(_) => 3,
            Self::Looked(_) => 4,
            Self::Freeze => 5,
            Self::Thaw => 6,
            Self::Round => 7,
            Self::Same(_) => 8,
            Self::Object(_) => 9,
            Self::Data { .. } => 11,
            Self::Whole => 12,
            Self::Removed => 13,
            Self::Metadata(_) => 14,
            Self::End { .. } => 15,
            Self::Unread(_) => 16,
        };
        to.push(kind);
        let length_at = to.len();
        to.extend_from_slice(&[0; 4]);
        self.encode_payload(to);
        let payload_bytes = to.len() - length_at - 4;
        assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "who sends a frame keeps its limit");
        let length = u32::try_from(payload_bytes).unwrap_or(u32::MAX).to_le_bytes();
        to[length_at..length_at + 4].copy_from_slice(&length);
    }

    fn encode_payload(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Output(bytes) | Self::Metadata(bytes) => to.extend_from_slice(bytes),
            Self::Line(text) | Self::Pass(text) => to.extend_from_slice(cut(text).as_bytes()),
            Self::Looked(count) => to.extend_from_slice(&count.to_le_bytes()),
            Self::Freeze | Self::Thaw | Self::Round | Self::Whole | Self::Removed => {}
            Self::Same(name) | Self::Unread(name) => put_name(name, to),
            Self::Object(ObjectHead { name, mtime_secs, mtime_nanos, object_bytes }) => {
                put_name(name, to);
                to.extend_from_slice(&mtime_secs.to_le_bytes());
                to.extend_from_slice(&mtime_nanos.to_le_bytes());
                to.extend_from_slice(&object_bytes.to_le_bytes());
            }
            Self::Data { object_offset, bytes } => {
                to.extend_from_slice(&object_offset.to_le_bytes());
                to.extend_from_slice(bytes);
            }
            Self::End { code, line } => {
                to.push(code);
                to.extend_from_slice(cut(line).as_bytes());
            }
        }
    }

    /// The first frame of what was received, and its length; `None` while it is not all there.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [kind, length @ ..] = *head;
        let payload_bytes =
            usize::try_from(u32::from_le_bytes(length)).unwrap_or(PAYLOAD_BYTES_MAX + 1);
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(Malformed);
        }
        let Some(payload) = rest.get(..payload_bytes) else { return Ok(None) };
        let frame = Self::decode_payload(kind, payload).ok_or(Malformed)?;
        Ok(Some((frame, HEADER_BYTES + payload_bytes)))
    }

    fn decode_payload(kind: u8, payload: &'a [u8]) -> Option<Self> {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let mut from = Payload(payload);
        let frame = match kind {
            1 => Self::Output(from.rest()),
            2 => Self::Line(text(from.rest())?),
            3 => Self::Pass(text(from.rest())?),
            4 => Self::Looked(from.u64()?),
            5 => Self::Freeze,
            6 => Self::Thaw,
            7 => Self::Round,
            8 => Self::Same(from.name()?),
            9 => {
                let name = from.name()?;
                let mtime_secs = i64::from_le_bytes(from.take()?);
                let mtime_nanos = u32::from_le_bytes(from.take()?);
                let object_bytes = from.u64()?;
                Self::Object(ObjectHead { name, mtime_secs, mtime_nanos, object_bytes })
            }
            11 => Self::Data { object_offset: from.u64()?, bytes: from.rest() },
            12 => Self::Whole,
            13 => Self::Removed,
            14 => Self::Metadata(from.rest()),
            15 => Self::End { code: u8::from_le_bytes(from.take()?), line: text(from.rest())? },
            16 => Self::Unread(from.name()?),
            _ => return None,
        };
        from.0.is_empty().then_some(frame)
    }
}

/// As much of a text as fits a frame.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(PIECE_BYTES_MAX)]
}

fn put_name(name: ObjectName, to: &mut Vec<u8>) {
    to.extend_from_slice(&name.shard_index.to_le_bytes());
    to.extend_from_slice(&name.inode.0.to_le_bytes());
    to.extend_from_slice(&name.stripe_index.to_le_bytes());
}

/// What is left of a payload.
struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Option<ObjectName> {
        Some(ObjectName {
            shard_index: u16::from_le_bytes(self.take()?),
            inode: InodeNo(self.u64()?),
            stripe_index: u32::from_le_bytes(self.take()?),
        })
    }
}
