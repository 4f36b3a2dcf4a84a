//! Message bodies of the operations on a file's contents, as in `message`.

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::message::message;
use crate::{ClearPrivileges, Contents, InodeNo, ProtocolError};

message! {
    /// [`crate::Op::Read`]. Reply body empty, the bytes are its bulk: fewer than requested at the
    /// file's end, holes as zeros.
    Read {
        /// The file.
        inode: InodeNo,
        /// From here, 0 ..= 2^63 − 1.
        file_offset: u64,
        /// This many, at most [`crate::BULK_BYTES_MAX`].
        read_bytes: u32,
        /// The read updates the file's atime (no O_NOATIME).
        accesses: bool,
    }
}
message! {
    /// [`crate::Op::Write`]. The bytes are its bulk. Reply: [`Written`].
    Write {
        /// The file.
        inode: InodeNo,
        /// File offset; ignored when appending to a file at one data shard.
        file_offset: u64,
        /// Append at the end of the file as it is at execution (O_APPEND). Of a file over several
        /// data shards: at the end that this session has reserved.
        append: bool,
        /// The privileges that this write must clear. If the file has any of them, the request
        /// fails with [`crate::Status::NeedClearPrivileges`] and nothing is written.
        clears: ClearPrivileges,
    }
}
message! {
    /// Reply of [`Write`].
    Written {
        /// The file offset of the bytes.
        file_offset: u64,
        /// Number of bytes: always all of them.
        written_bytes: u32,
    }
}
message! {
    /// [`crate::Op::Truncate`]. No reply body.
    Truncate {
        /// The file.
        inode: InodeNo,
        /// New size, 0 ..= 2^63 − 1.
        size_bytes: u64,
    }
}
/// What [`Allocate`] does to a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Allocation {
    /// Allocates space; written bytes stay, the others read as zeros.
    Reserve = 0,
    /// Deallocates the range, which reads as zeros; never changes the file size.
    Punch = 1,
    /// Allocates space and makes the range read as zeros.
    Zero = 2,
}

impl Wire<'_> for Allocation {
    fn encode(&self, to: &mut Writer<'_>) {
        (*self as u8).encode(to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Reserve),
            1 => Ok(Self::Punch),
            2 => Ok(Self::Zero),
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

message! {
    /// [`crate::Op::Allocate`]. No reply body.
    Allocate {
        /// The file.
        inode: InodeNo,
        /// From here.
        file_offset: u64,
        /// This many, at least 1; the end is at most 2^63 − 1.
        range_bytes: u64,
        /// What is done to it.
        allocation: Allocation,
        /// The file size does not change. Always set with [`Allocation::Punch`].
        keep_size: bool,
        /// As of [`Write`].
        clears: ClearPrivileges,
    }
}
message! {
    /// [`crate::Op::Seek`]. Reply: [`Sought`], or ENXIO at and behind the end of the file, and
    /// where no more data follows.
    Seek {
        /// The file.
        inode: InodeNo,
        /// From here on, 0 ..= 2^63 − 1.
        file_offset: u64,
        /// Look for the next hole instead of the next data. The end of a file counts as a hole.
        hole: bool,
    }
}
message! {
    /// Reply of [`Seek`].
    Sought {
        /// The offset found, at or behind the requested one.
        file_offset: u64,
    }
}
message! {
    /// [`crate::Op::Glimpse`]. Reply: [`Glimpsed`].
    Glimpse {
        /// The file.
        inode: InodeNo,
    }
}
message! {
    /// [`crate::Op::Reserve`]. Reply: [`Glimpsed`].
    Reserve {
        /// The file.
        inode: InodeNo,
        /// The file is to be appended to; or that has ended.
        begins: bool,
        /// For the rest of an append, or for one that was refused.
        again: bool,
    }
}
message! {
    /// [`crate::Op::Widen`].
    Widen {
        /// The file.
        inode: InodeNo,
    }
}
message! {
    /// The body of an [`crate::Op::Sync`] that takes its file for one at its home shard alone.
    SyncNarrow {
        /// The file.
        inode: InodeNo,
    }
}
message! {
    /// Reply of [`Glimpse`] and [`Reserve`].
    Glimpsed {
        /// The data shard's knowledge of the contents; all zero for a file never written.
        contents: Contents,
    }
}
