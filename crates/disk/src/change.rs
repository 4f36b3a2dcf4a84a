//! `Change`: the effect of an operation, physical enough to be redone without looking at anything.
//!
//! A record's changes stand one after the other, each a tag byte and its fields (little-endian,
//! byte strings with a 32-bit length, names with a 16-bit one, in the order of the enum below):
//!
//! ```text
//! tag 1 Inode   2 Touch    3 Dirent  4 DirentGone  5 Symlink  6 Xattr  7 XattrGone  8 InodeGone
//!     9 Write  10 Truncate 11 ObjectGone
//!    12 DirAttrs 13 SessionGone 14 SessionAway 15 Evicted 16 VbrFailed
//!    20 Prepared 21 Decided 22 Done 23 Aborted 24 Forgotten
//! ```
//! Changes of one directory by different clients commute, in whatever order they are replayed:
//! `Touch` adds to counts and `DirAttrs` leaves the counts alone; of two that bring a time of last
//! change the one of the later transaction wins. Because of the adding, a record is redone exactly
//! once: who redoes keeps the last LSN of every shard and skips what it has.

use crate::{Fault, InodeRow, TxnId, to_u64};
use wire::{
    Breach, Bytes, ClientUuid, FileKind, Flaw, InodeNo, List, Name, Reader, SessionId, ShardId,
    Timestamp, Transno, Wire, Writer,
};

/// One effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// The inode is this.
    Inode {
        /// All of it.
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
    /// A directory has this entry, whatever stood under the name before.
    Dirent {
        /// The directory.
        dir: InodeNo,
        /// The name.
        name: Name<'a>,
        /// Its place in listings.
        cookie: u64,
        /// What it names.
        inode: InodeNo,
        /// What that is.
        kind: FileKind,
        /// Transaction of the entry's last change.
        version: Transno,
    },
    /// A directory has no entry of this name.
    DirentGone {
        /// The directory.
        dir: InodeNo,
        /// The name.
        name: Name<'a>,
    },
    /// A symbolic link points here.
    Symlink {
        /// The link.
        inode: InodeNo,
        /// Its target.
        target: Bytes<'a>,
    },
    /// An extended attribute has this value.
    Xattr {
        /// Of which inode.
        inode: InodeNo,
        /// Its name with prefix.
        name: Bytes<'a>,
        /// Its value.
        value: Bytes<'a>,
    },
    /// There is no such extended attribute.
    XattrGone {
        /// Of which inode.
        inode: InodeNo,
        /// Its name with prefix.
        name: Bytes<'a>,
    },
    /// There is no such inode, nor anything that hung on it.
    InodeGone {
        /// Which.
        inode: InodeNo,
    },
    /// Data shard: these bytes are in the object. The bytes themselves were durable before the
    /// record.
    Write {
        /// The file.
        inode: InodeNo,
        /// From here.
        object_offset: u64,
        /// This many.
        write_bytes: u32,
        /// Their CRC-32C.
        crc32c: u32,
        /// When, in nanoseconds since 1970.
        write_time_ns: u64,
    },
    /// Data shard: the object has this size.
    Truncate {
        /// The file.
        inode: InodeNo,
        /// The size.
        size_bytes: u64,
        /// When the contents were last changed, in nanoseconds since 1970; 0: never.
        write_time_ns: u64,
    },
    /// Data shard: there is no such object.
    ObjectGone {
        /// The file.
        inode: InodeNo,
    },
    /// A directory that exists has these attributes; its links, entries and cookies stay.
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
    /// A session has left this shard in order: its slots are forgotten.
    SessionGone {
        /// Which.
        session: SessionId,
    },
    /// A session has been away for long and has nothing to replay here: the next recovery does not
    /// wait for it. Its slots stay; its next record names it again.
    SessionAway {
        /// Which.
        session: SessionId,
    },
    /// A client was evicted: it never comes back under this uuid (PROTOCOL.md §16).
    Evicted {
        /// Which.
        client: ClientUuid,
    },
    /// A replay of this client did not fit; it will be evicted when the recovery ends.
    VbrFailed {
        /// Which.
        client: ClientUuid,
    },
    /// A change over several shards: this shard will make its part of it if the coordinator says
    /// so, and keeps what that needs until it knows.
    Prepared {
        /// Which.
        txn: TxnId,
        /// The part: changes without versions and with cookie 0 for a new place. Both are given
        /// when it is made.
        part: Bytes<'a>,
    },
    /// Coordinator: the change over several shards happens. Its own part stands in this record.
    Decided {
        /// Which.
        txn: TxnId,
        /// The other shards that prepared.
        shards: List<'a, ShardId>,
    },
    /// The part that was prepared is made: it stands in this record.
    Done {
        /// Of which.
        txn: TxnId,
    },
    /// The part that was prepared will not be made.
    Aborted {
        /// Of which.
        txn: TxnId,
    },
    /// Coordinator: all shards have made their part, durably.
    Forgotten {
        /// Which.
        txn: TxnId,
    },
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
            Self::DirentGone { dir, name } => {
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
            Self::XattrGone { inode, name } => {
                to.write(inode);
                to.write(name);
            }
            Self::InodeGone { inode } | Self::ObjectGone { inode } => to.write(inode),
            Self::Write { inode, object_offset, write_bytes, crc32c, write_time_ns } => {
                to.write(inode);
                to.write(object_offset);
                to.write(write_bytes);
                to.write(crc32c);
                to.write(write_time_ns);
            }
            Self::Truncate { inode, size_bytes, write_time_ns } => {
                to.write(inode);
                to.write(size_bytes);
                to.write(write_time_ns);
            }
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
            Self::SessionGone { session } | Self::SessionAway { session } => to.write(session),
            Self::Evicted { client } | Self::VbrFailed { client } => to.write(client),
            Self::Prepared { txn, part } => {
                to.write(txn);
                to.write(part);
            }
            Self::Decided { txn, shards } => {
                to.write(txn);
                to.write(shards);
            }
            Self::Done { txn } | Self::Aborted { txn } | Self::Forgotten { txn } => to.write(txn),
        }
    }

    fn decode(from: &mut Reader<'a>) -> Result<Self, Flaw> {
        Ok(match u8::decode(from)? {
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
            4 => Self::DirentGone { dir: from.read()?, name: from.read()? },
            5 => Self::Symlink { inode: from.read()?, target: from.read()? },
            6 => Self::Xattr { inode: from.read()?, name: from.read()?, value: from.read()? },
            7 => Self::XattrGone { inode: from.read()?, name: from.read()? },
            8 => Self::InodeGone { inode: from.read()? },
            9 => Self::Write {
                inode: from.read()?,
                object_offset: from.read()?,
                write_bytes: from.read()?,
                crc32c: from.read()?,
                write_time_ns: from.read()?,
            },
            10 => Self::Truncate {
                inode: from.read()?,
                size_bytes: from.read()?,
                write_time_ns: from.read()?,
            },
            11 => Self::ObjectGone { inode: from.read()? },
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
            13 => Self::SessionGone { session: from.read()? },
            14 => Self::SessionAway { session: from.read()? },
            15 => Self::Evicted { client: from.read()? },
            16 => Self::VbrFailed { client: from.read()? },
            20 => Self::Prepared { txn: from.read()?, part: from.read()? },
            21 => Self::Decided { txn: from.read()?, shards: from.read()? },
            22 => Self::Done { txn: from.read()? },
            23 => Self::Aborted { txn: from.read()? },
            24 => Self::Forgotten { txn: from.read()? },
            _ => return Err(Flaw::Breach(Breach::Malformed)),
        })
    }
}

impl Change<'_> {
    const fn tag(&self) -> u8 {
        match self {
            Self::Inode { .. } => 1,
            Self::Touch { .. } => 2,
            Self::Dirent { .. } => 3,
            Self::DirentGone { .. } => 4,
            Self::Symlink { .. } => 5,
            Self::Xattr { .. } => 6,
            Self::XattrGone { .. } => 7,
            Self::InodeGone { .. } => 8,
            Self::Write { .. } => 9,
            Self::Truncate { .. } => 10,
            Self::ObjectGone { .. } => 11,
            Self::DirAttrs { .. } => 12,
            Self::SessionGone { .. } => 13,
            Self::SessionAway { .. } => 14,
            Self::Evicted { .. } => 15,
            Self::VbrFailed { .. } => 16,
            Self::Prepared { .. } => 20,
            Self::Decided { .. } => 21,
            Self::Done { .. } => 22,
            Self::Aborted { .. } => 23,
            Self::Forgotten { .. } => 24,
        }
    }

    /// Whether it has a pre-version: whether a replay of it checks what it finds (PROTOCOL.md §12).
    /// The n-th such change of a record has the n-th pre-version, 0 for what must not exist.
    #[must_use]
    pub const fn is_versioned(&self) -> bool {
        matches!(
            self,
            Self::Inode { .. }
                | Self::DirAttrs { .. }
                | Self::Dirent { .. }
                | Self::DirentGone { .. }
                | Self::InodeGone { .. }
        )
    }
}

/// A time of last change with the time of its setting: both or neither.
fn set_time(from: &mut Reader<'_>) -> Result<Option<(Timestamp, Timestamp)>, Flaw> {
    match (from.read()?, from.read()?) {
        (Some(mtime), Some(set)) => Ok(Some((mtime, set))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(Flaw::Breach(Breach::Malformed)),
    }
}

/// The changes of a record, one after the other. After a fault there are no more.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    rest: Reader<'a>,
    changes_bytes: usize,
}

impl<'a> Changes<'a> {
    /// Over [`crate::Record::changes`].
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
