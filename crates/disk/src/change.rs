//! `Change`: the effect of an operation, physical enough to be redone without looking at anything.
//!
//! A record's changes stand one after the other, each a tag byte and its fields (little-endian,
//! byte strings with a 32-bit length, names with a 16-bit one, in the order of the enum below):
//!
//! ```text
//! tag 1 Inode   2 Touch    3 Dirent  4 DirentRemoved  5 Symlink  6 Xattr  7 XattrRemoved
//!     8 InodeRemoved
//!     9 Write  10 Truncate 11 ObjectRemoved
//!    12 DirAttrs 13 SessionRemoved 14 SessionAway 15 Evicted 16 VbrFailed  18 Accessed
//!    19 Settled 27 Recovered 28 SessionOpened
//!    36 Allocate 37 WriteList 38 Sums 39 SumsRemoved 40 Stripe
//!    20 Prepared 21 Decided 22 Done 23 Aborted 24 Forgotten
//!    25 Export 26 ExportRemoved
//! ```
//! Changes of one directory by different clients commute, in whatever order they are replayed:
//! `Touch` adds to counts and `DirAttrs` leaves the counts alone; of two times of last change the
//! one of the later transaction wins. Because of the additions a record must be redone exactly
//! once: the replayer tracks the last LSN of every shard and skips earlier records.

mod client;
mod contents;
mod export;
mod txn;

pub use client::ClientChange;
pub use contents::ContentsChange;
pub use export::ExportChange;
pub use txn::TxnChange;

use crate::{Fault, InodeRow, to_u64};
use wire::{
    Bytes, Contents, DecodeError, FileKind, InodeNo, Name, ProtocolError, Reader, Timestamp,
    Transno, Wire, Writer,
};

/// One effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// Sets an inode's row.
    Inode {
        /// The row.
        row: InodeRow,
    },
    /// A directory's entries changed.
    Touch {
        /// The directory.
        inode: InodeNo,
        /// Its new times.
        mtime: Timestamp,
        /// See `mtime`.
        ctime: Timestamp,
        /// Added to its links.
        nlink_delta: i32,
        /// Added to its entries.
        entry_delta: i32,
    },
    /// Sets a directory's entry, replacing an existing one.
    Dirent {
        /// The directory.
        dir: InodeNo,
        /// The name.
        name: Name<'a>,
        /// Its cookie.
        cookie: u64,
        /// The inode.
        inode: InodeNo,
        /// The inode's kind.
        kind: FileKind,
        /// Transaction of the entry's last change.
        version: Transno,
    },
    /// Removes a directory's entry.
    DirentRemoved {
        /// The directory.
        dir: InodeNo,
        /// The name.
        name: Name<'a>,
    },
    /// Sets a symbolic link's target.
    Symlink {
        /// The link.
        inode: InodeNo,
        /// Its target.
        target: Bytes<'a>,
    },
    /// Sets an extended attribute.
    Xattr {
        /// Of which inode.
        inode: InodeNo,
        /// Its name with prefix.
        name: Bytes<'a>,
        /// Its value.
        value: Bytes<'a>,
    },
    /// Removes an extended attribute.
    XattrRemoved {
        /// Of which inode.
        inode: InodeNo,
        /// Its name with prefix.
        name: Bytes<'a>,
    },
    /// Removes an inode with its target and attributes.
    InodeRemoved {
        /// Which.
        inode: InodeNo,
    },
    /// Sets the attributes of an existing directory; its links, entries and cookies stay.
    DirAttrs {
        /// The directory.
        inode: InodeNo,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Last access.
        atime: Timestamp,
        /// Time of last change and when it was set, if it was set.
        mtime: Option<(Timestamp, Timestamp)>,
        /// Last change of the inode; the later one stays.
        ctime: Timestamp,
        /// The parent.
        parent: InodeNo,
        /// Transaction of this change.
        version: Transno,
    },
    /// An inode was read. Recorded by the server itself: neither replayed nor versioned.
    Accessed {
        /// Which.
        inode: InodeNo,
        /// When.
        atime: Timestamp,
    },
    /// A data shard's size, space and mtime of a file without writers are durable and move to the
    /// metadata shard. Recorded by the server itself: neither replayed nor versioned.
    Settled {
        /// Which.
        inode: InodeNo,
        /// The data shard's state of the file.
        contents: Contents,
    },
    /// At a data shard: a change of a file's contents.
    Contents(ContentsChange),
    /// A change of the lane's clients.
    Client(ClientChange),
    /// A step of a transaction over several shards.
    Txn(TxnChange<'a>),
    /// A change of the exports.
    Export(ExportChange<'a>),
}

impl<'a> Wire<'a> for Change<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.tag());
        match self {
            Self::Inode { row } => to.write(row),
            Self::Touch { inode, mtime, ctime, nlink_delta, entry_delta } => {
                to.write(inode);
                to.write(mtime);
                to.write(ctime);
                to.put(&nlink_delta.to_le_bytes());
                to.put(&entry_delta.to_le_bytes());
            }
            Self::Dirent { dir, name, cookie, inode, kind, version } => {
                to.write(dir);
                to.write(name);
                to.write(cookie);
                to.write(inode);
                to.write(kind);
                to.write(version);
            }
            Self::DirentRemoved { dir, name } => {
                to.write(dir);
                to.write(name);
            }
            Self::Symlink { inode, target } => {
                to.write(inode);
                to.write(target);
            }
            Self::Xattr { inode, name, value } => {
                to.write(inode);
                to.write(name);
                to.write(value);
            }
            Self::XattrRemoved { inode, name } => {
                to.write(inode);
                to.write(name);
            }
            Self::InodeRemoved { inode } => to.write(inode),
            Self::DirAttrs { inode, mode, uid, gid, atime, mtime, ctime, parent, version } => {
                to.write(inode);
                to.write(mode);
                to.write(uid);
                to.write(gid);
                to.write(atime);
                to.write(&mtime.map(|(mtime, _)| mtime));
                to.write(&mtime.map(|(_, set)| set));
                to.write(ctime);
                to.write(parent);
                to.write(version);
            }
            Self::Accessed { inode, atime } => {
                to.write(inode);
                to.write(atime);
            }
            Self::Settled { inode, contents } => {
                to.write(inode);
                to.write(contents);
            }
            Self::Contents(change) => change.encode_fields(to),
            Self::Client(change) => change.encode_fields(to),
            Self::Txn(change) => change.encode_fields(to),
            Self::Export(change) => change.encode_fields(to),
        }
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let tag = u8::decode(from)?;
        Ok(match tag {
            1 => Self::Inode { row: from.read()? },
            2 => Self::Touch {
                inode: from.read()?,
                mtime: from.read()?,
                ctime: from.read()?,
                nlink_delta: i32::from_le_bytes(from.array()?),
                entry_delta: i32::from_le_bytes(from.array()?),
            },
            3 => Self::Dirent {
                dir: from.read()?,
                name: from.read()?,
                cookie: from.read()?,
                inode: from.read()?,
                kind: from.read()?,
                version: from.read()?,
            },
            4 => Self::DirentRemoved { dir: from.read()?, name: from.read()? },
            5 => Self::Symlink { inode: from.read()?, target: from.read()? },
            6 => Self::Xattr { inode: from.read()?, name: from.read()?, value: from.read()? },
            7 => Self::XattrRemoved { inode: from.read()?, name: from.read()? },
            8 => Self::InodeRemoved { inode: from.read()? },
            12 => Self::DirAttrs {
                inode: from.read()?,
                mode: from.read()?,
                uid: from.read()?,
                gid: from.read()?,
                atime: from.read()?,
                mtime: set_time(from)?,
                ctime: from.read()?,
                parent: from.read()?,
                version: from.read()?,
            },
            18 => Self::Accessed { inode: from.read()?, atime: from.read()? },
            19 => Self::Settled { inode: from.read()?, contents: from.read()? },
            _ => Self::decode_of_others(tag, from)?,
        })
    }
}

impl<'a> Change<'a> {
    fn decode_of_others(tag: u8, from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if let Some(change) = ContentsChange::decode_fields(tag, from)? {
            return Ok(Self::Contents(change));
        }
        if let Some(change) = ClientChange::decode_fields(tag, from)? {
            return Ok(Self::Client(change));
        }
        if let Some(change) = ExportChange::decode_fields(tag, from)? {
            return Ok(Self::Export(change));
        }
        let change = TxnChange::decode_fields(tag, from)?;
        change.map(Self::Txn).ok_or(DecodeError::ProtocolError(ProtocolError::Malformed))
    }

    const fn tag(&self) -> u8 {
        match self {
            Self::Inode { .. } => 1,
            Self::Touch { .. } => 2,
            Self::Dirent { .. } => 3,
            Self::DirentRemoved { .. } => 4,
            Self::Symlink { .. } => 5,
            Self::Xattr { .. } => 6,
            Self::XattrRemoved { .. } => 7,
            Self::InodeRemoved { .. } => 8,
            Self::DirAttrs { .. } => 12,
            Self::Accessed { .. } => 18,
            Self::Settled { .. } => 19,
            Self::Contents(change) => change.tag(),
            Self::Client(change) => change.tag(),
            Self::Txn(change) => change.tag(),
            Self::Export(change) => change.tag(),
        }
    }
}

/// An mtime with the time of its setting: both or neither.
fn set_time(from: &mut Reader<'_>) -> Result<Option<(Timestamp, Timestamp)>, DecodeError> {
    match (from.read()?, from.read()?) {
        (Some(mtime), Some(set)) => Ok(Some((mtime, set))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => {
            Err(DecodeError::ProtocolError(ProtocolError::Malformed))
        }
    }
}

/// Iterates over the changes of a record; ends after a fault.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    rest: Reader<'a>,
    changes_bytes: usize,
}

impl<'a> Changes<'a> {
    /// Iterates over [`crate::Record::changes`].
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: Reader::new(bytes), changes_bytes: bytes.len() }
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.left() == 0 {
            return None;
        }
        let offset = to_u64(self.changes_bytes - self.rest.left());
        let change = self.rest.read();
        Some(change.map_err(|_| {
            self.rest = Reader::new(&[]);
            Fault::new("a change that does not decode", offset)
        }))
    }
}
