//! The bodies of what is asked of a file's contents, as in `message`.

use crate::codec::{Flaw, Reader, Wire, Writer};
use crate::message::message;
use crate::{ClearPrivileges, Contents, InodeNo, ProtocolError};

message! {
    /// [`crate::Op::Read`]. Reply body empty, the bytes are its bulk: fewer than asked at the
    /// file's end, holes as zeros.
    Read {
        /// The file.
        inode: InodeNo,
        /// From here, 0 ..= 2^63 − 1.
        file_offset: u64,
        /// This many, at most [`crate::BULK_BYTES_MAX`].
        read_bytes: u32,
        /// It is an access, which the file's atime tells of (no O_NOATIME).
        accesses: bool,
    }
}
message! {
    /// [`crate::Op::Write`]. The bytes are its bulk. Reply: [`Written`].
    Write {
        /// The file.
        inode: InodeNo,
        /// To here; ignored when appending.
        file_offset: u64,
        /// At the end, wherever that is when it is executed (O_APPEND).
        append: bool,
        /// What the writer may not leave: when the file gives that, without his knowing, nothing is
        /// written ([`crate::Status::NeedClearPrivileges`]).
        takes: ClearPrivileges,
    }
}
message! {
    /// Reply of [`Write`].
    Written {
        /// Where the bytes went.
        file_offset: u64,
        /// How many: always all of them.
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
/// What [`Allocate`] makes of a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Allocation {
    /// It has space of its own; its bytes stay, those without bytes read as zeros.
    Reserve = 0,
    /// It has no space and reads as zeros; never moves the end of the file.
    Punch = 1,
    /// It has space of its own and reads as zeros.
    Zero = 2,
}

impl Wire<'_> for Allocation {
    fn encode(&self, to: &mut Writer<'_>) {
        (*self as u8).encode(to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        match u8::decode(from)? {
            0 => Ok(Self::Reserve),
            1 => Ok(Self::Punch),
            2 => Ok(Self::Zero),
            _ => Err(Flaw::ProtocolError(ProtocolError::Malformed)),
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
        /// What becomes of it.
        allocation: Allocation,
        /// The file does not become longer, whatever its size is. A [`Allocation::Punch`] always
        /// says so.
        keep_size: bool,
        /// As of [`Write`].
        takes: ClearPrivileges,
    }
}
message! {
    /// [`crate::Op::Seek`]. Reply: [`Sought`], or ENXIO at and behind the end of the file, and where
    /// no more bytes come.
    Seek {
        /// The file.
        inode: InodeNo,
        /// From here on, 0 ..= 2^63 − 1.
        file_offset: u64,
        /// The next hole is looked for, not the next bytes. The end of a file is a hole.
        hole: bool,
    }
}
message! {
    /// Reply of [`Seek`].
    Sought {
        /// Where: at or behind the place from which was looked.
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
    /// Reply of [`Glimpse`].
    Glimpsed {
        /// What is known there; all zero for a file never written.
        contents: Contents,
    }
}
