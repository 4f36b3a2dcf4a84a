//! Attributes of an inode as they travel.

use crate::codec::{DecodeError, Fixed, Reader, Wire, Writer};
use crate::{ClearPrivileges, Contents, InodeNo, Layout, ProtocolError, Transno};

/// The kind of an inode; the numbers are Linux's `d_type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FileKind {
    /// A named pipe.
    Fifo = 1,
    /// A character device.
    CharDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    File = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket.
    Socket = 12,
}

impl FileKind {
    /// The file-type bits of `st_mode`.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::File => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The kind that the file-type bits of `st_mode` name; other bits are ignored.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::File,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Fifo, socket or device: it has a name and attributes, and no contents at the server. The
    /// kernel that opens one implements it.
    #[must_use]
    pub const fn is_special(self) -> bool {
        match self {
            Self::Fifo | Self::Socket | Self::CharDevice | Self::BlockDevice => true,
            Self::Directory | Self::File | Self::Symlink => false,
        }
    }

    /// Has a device number.
    #[must_use]
    pub const fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

impl Wire<'_> for FileKind {
    #[inline]
    fn encode(&self, to: &mut Writer<'_>) {
        (*self as u8).encode(to);
    }
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            1 => Ok(Self::Fifo),
            2 => Ok(Self::CharDevice),
            4 => Ok(Self::Directory),
            6 => Ok(Self::BlockDevice),
            8 => Ok(Self::File),
            10 => Ok(Self::Symlink),
            12 => Ok(Self::Socket),
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

/// A point in time since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds within the second, 0 ..= 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// From nanoseconds since 1970.
    #[must_use]
    pub fn from_ns(ns: u64) -> Self {
        let secs = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
        let nanos = u32::try_from(ns % 1_000_000_000).unwrap_or(0);
        Self { secs, nanos }
    }

    /// One nanosecond later.
    #[must_use]
    pub const fn next(self) -> Self {
        if self.nanos < 999_999_999 {
            return Self { nanos: self.nanos + 1, ..self };
        }
        Self { secs: self.secs.saturating_add(1), nanos: 0 }
    }
}

impl Wire<'_> for Timestamp {
    #[inline]
    fn encode(&self, to: &mut Writer<'_>) {
        self.secs.encode(to);
        self.nanos.encode(to);
    }
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let stamp = Self { secs: from.read()?, nanos: from.read()? };
        if stamp.nanos < 1_000_000_000 {
            Ok(stamp)
        } else {
            Err(DecodeError::ProtocolError(ProtocolError::Malformed))
        }
    }
}

impl<const N: usize> Fixed<N> {
    /// Adds a point in time.
    #[inline]
    pub fn put_time(&mut self, time: Timestamp) {
        self.put(time.secs.to_le_bytes());
        self.put(time.nanos.to_le_bytes());
    }
}

/// The times of an inode that a write changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Last change of the contents, as far as the metadata shard knows.
    pub mtime: Timestamp,
    /// When `mtime` was last set.
    pub mtime_set: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
}

impl Times {
    /// The times after a last write at `write_time` according to the data shard. This one rule
    /// merges what both shards know: of the write and the setting of `mtime` (`cp -p` and `tar` set
    /// it after their last write) the later one gives the mtime. A chmod in between changes
    /// nothing.
    #[must_use]
    pub fn after_write(self, write_time: Option<Timestamp>) -> Self {
        match write_time {
            Some(time) if time > self.mtime_set => {
                Self { mtime: time, mtime_set: time, ctime: self.ctime.max(time) }
            }
            Some(_) | None => self,
        }
    }
}

/// Bits of [`Attr::flags`].
pub mod attr_flag {
    /// Size, blocks and write times are at the data shards ([`crate::Glimpse`]).
    pub const SIZE_AT_DATA: u32 = 1;
    /// Only number and kind are valid: the inode belongs to another shard.
    pub const ELSEWHERE: u32 = 2;
    /// It has `security.capability`; a write clears it ([`ClearPrivileges`]).
    pub const CAPABILITY: u32 = 4;
    /// It has extended attributes, access control lists included, or may have some. Without this
    /// flag it has none: no name has a value, and the list of names is empty.
    pub const XATTRS: u32 = 8;
    /// A directory without entries: no name in it exists.
    pub const EMPTY: u32 = 16;
}

/// The privileges that running a file grants.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PrivilegedBits {
    /// It has a set-user-id or set-group-id bit.
    pub set_id: bool,
    /// It has `security.capability`.
    pub capability: bool,
}

impl PrivilegedBits {
    /// Which of these privileges a caller clears that must clear `clears`.
    #[must_use]
    pub const fn cleared_by(self, clears: ClearPrivileges) -> ClearPrivileges {
        match clears {
            ClearPrivileges::All if self.set_id => ClearPrivileges::All,
            ClearPrivileges::All | ClearPrivileges::Capability if self.capability => {
                ClearPrivileges::Capability
            }
            ClearPrivileges::All | ClearPrivileges::Capability | ClearPrivileges::Nothing => {
                ClearPrivileges::Nothing
            }
        }
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Its number.
    pub inode: InodeNo,
    /// What it is.
    pub kind: FileKind,
    /// See [`attr_flag`].
    pub flags: u32,
    /// Permission bits, 0 ..= 0o7777.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// A device's number, in Linux's 32-bit encoding (major in bits 8 to 19, minor in the rest); 0
    /// for all other kinds.
    pub rdev: u32,
    /// Size in bytes; stale while `SIZE_AT_DATA`.
    pub size_bytes: u64,
    /// Bytes allocated; stale while `SIZE_AT_DATA`.
    pub allocated_bytes: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents; while `SIZE_AT_DATA` a later write may be with the data shard.
    pub mtime: Timestamp,
    /// When `mtime` was last set by anything but a write, by the server's clock: a write later
    /// than this is later than `mtime` says ([`Times::after_write`]).
    pub mtime_set: Timestamp,
    /// Last change of the inode, by the server's clock.
    pub ctime: Timestamp,
    /// When the inode was made, by the server's clock; never changes.
    pub birth: Timestamp,
    /// Transaction of the last semantic change (docs/protocol.md §10).
    pub version: Transno,
    /// How a file's contents lie in objects; `None` for other kinds. Never changes.
    pub layout: Option<Layout>,
}

impl Attr {
    /// Encoded bytes.
    pub const WIRE_BYTES: usize = 121;

    /// Whether a file's size is at its data shard and not valid here.
    #[must_use]
    pub const fn is_size_at_data(&self) -> bool {
        matches!(self.kind, FileKind::File) && self.flags & attr_flag::SIZE_AT_DATA != 0
    }

    /// The attributes of a file whose contents are `contents`: size and space are theirs; the times
    /// follow [`Times::after_write`].
    #[must_use]
    pub fn with_contents(self, contents: Contents) -> Self {
        let Self { mtime, mtime_set, ctime, .. } = self;
        let times = Times { mtime, mtime_set, ctime }.after_write(contents.write_time);
        Self {
            flags: self.flags & !attr_flag::SIZE_AT_DATA,
            size_bytes: contents.size_bytes,
            allocated_bytes: contents.allocated_bytes,
            mtime: times.mtime,
            mtime_set: times.mtime_set,
            ctime: times.ctime,
            ..self
        }
    }

    /// Whether it certainly has no extended attributes and no access control lists.
    #[must_use]
    pub const fn has_no_xattrs(&self) -> bool {
        self.flags & (attr_flag::XATTRS | attr_flag::ELSEWHERE) == 0
    }

    /// Whether it is certainly a directory without entries.
    #[must_use]
    pub const fn is_empty_directory(&self) -> bool {
        matches!(self.kind, FileKind::Directory) && self.flags & attr_flag::EMPTY != 0
    }

    /// The privileges that running the file grants.
    #[must_use]
    pub const fn privileged_bits(&self) -> PrivilegedBits {
        let capability = self.flags & attr_flag::CAPABILITY != 0;
        PrivilegedBits { set_id: self.mode & 0o6000 != 0, capability }
    }

    /// Which privileges a write clears. A writer that keeps set-id bits clears capabilities only.
    #[must_use]
    pub const fn cleared_by_write(&self, keeps_set_id: bool) -> ClearPrivileges {
        let clears = if keeps_set_id { ClearPrivileges::Capability } else { ClearPrivileges::All };
        self.privileged_bits().cleared_by(clears)
    }

    /// The attributes that an entry implies of an inode of another shard.
    #[must_use]
    pub const fn elsewhere(inode: InodeNo, kind: FileKind) -> Self {
        const NEVER: Timestamp = Timestamp { secs: 0, nanos: 0 };
        Self {
            inode,
            kind,
            flags: attr_flag::ELSEWHERE,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes: 0,
            allocated_bytes: 0,
            atime: NEVER,
            mtime: NEVER,
            mtime_set: NEVER,
            ctime: NEVER,
            birth: NEVER,
            version: Transno(0),
            layout: None,
        }
    }
}

impl Wire<'_> for Attr {
    fn encode(&self, to: &mut Writer<'_>) {
        let mut fields = Fixed::<{ Self::WIRE_BYTES }>::new();
        fields.put(self.inode.0.to_le_bytes());
        fields.put([self.kind as u8]);
        fields.put(self.flags.to_le_bytes());
        fields.put(self.mode.to_le_bytes());
        fields.put(self.nlink.to_le_bytes());
        fields.put(self.uid.to_le_bytes());
        fields.put(self.gid.to_le_bytes());
        fields.put(self.rdev.to_le_bytes());
        fields.put(self.size_bytes.to_le_bytes());
        fields.put(self.allocated_bytes.to_le_bytes());
        fields.put_time(self.atime);
        fields.put_time(self.mtime);
        fields.put_time(self.mtime_set);
        fields.put_time(self.ctime);
        fields.put_time(self.birth);
        fields.put(self.version.0.to_le_bytes());
        fields.put(self.layout.map_or(0, Layout::to_bits).to_le_bytes());
        fields.append(to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let fields: [u8; Self::WIRE_BYTES] = from.array()?;
        let from = &mut Reader::new(&fields);
        Ok(Self {
            inode: from.read()?,
            kind: from.read()?,
            flags: from.read()?,
            mode: from.read()?,
            nlink: from.read()?,
            uid: from.read()?,
            gid: from.read()?,
            rdev: from.read()?,
            size_bytes: from.read()?,
            allocated_bytes: from.read()?,
            atime: from.read()?,
            mtime: from.read()?,
            mtime_set: from.read()?,
            ctime: from.read()?,
            birth: from.read()?,
            version: from.read()?,
            layout: Layout::from_bits(from.read()?).map_err(DecodeError::ProtocolError)?,
        })
    }
}
