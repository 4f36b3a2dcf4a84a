//! An inode on the medium.
//!
//! ```text
//! bytes field              bytes field                bytes field
//!     8 inode                  8 allocated_bytes          8 touched
//!     1 kind                   1 size_at_data             8 parent
//!     4 mode                  12 atime                    8 next_cookie
//!     4 uid                   12 mtime                    8 layout.stripe_unit_bytes
//!     4 gid                   12 mtime_set                2 layout.stripe_count
//!     4 nlink                 12 ctime                    8 entry_count
//!     8 size_bytes             8 version                  4 rdev
//!                                                         1 linkable
//!                                                        12 birth
//! ```
//! Both of a layout are 0 where there are no contents.

use crate::Creation;
use wire::{
    Attr, Contents, DecodeError, FileKind, Fixed, InodeNo, Layout, ProtocolError, Reader, Times,
    Timestamp, Transno, Wire, Writer, attr_flag,
};

/// An inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeRow {
    /// Its number.
    pub inode: InodeNo,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, 0 ..= 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links; a directory's count `.` and the `..` of its children.
    pub nlink: u32,
    /// Size in bytes; stale while `size_at_data`.
    pub size_bytes: u64,
    /// Bytes allocated; stale while `size_at_data`.
    pub allocated_bytes: u64,
    /// Opened for writing since the size was last settled: the data shards have the size.
    pub size_at_data: bool,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// When `mtime` was last set by anything but a write, by the server's clock.
    pub mtime_set: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Transaction of the last semantic change.
    pub version: Transno,
    /// A directory's: the transaction that set its mtime.
    pub touched: Transno,
    /// A directory's parent (the root's is itself). For an inode that may have several names, the
    /// directory of one of them; for one without a name, the directory of its last one; 0 when
    /// unknown.
    pub parent: InodeNo,
    /// A directory's cookie for its next new entry.
    pub next_cookie: u64,
    /// How a file's contents lie in objects; `None` for other kinds.
    pub layout: Option<Layout>,
    /// A directory's entries, without `.` and `..`.
    pub entry_count: u64,
    /// A device's number, as in [`Attr::rdev`].
    pub rdev: u32,
    /// Created without a name, and may be linked while it has none.
    pub linkable: bool,
    /// Creation time; never changes.
    pub birth: Timestamp,
}

impl InodeRow {
    /// Sets size and space, and the times as of [`Times::after_write`].
    pub(crate) fn settle(&mut self, contents: &Contents) {
        let Self { mtime, mtime_set, ctime, .. } = *self;
        let times = Times { mtime, mtime_set, ctime }.after_write(contents.write_time);
        self.size_bytes = contents.size_bytes;
        self.allocated_bytes = contents.allocated_bytes;
        self.size_at_data = false;
        (self.mtime, self.mtime_set, self.ctime) = (times.mtime, times.mtime_set, times.ctime);
    }

    /// The same with the size, space and times of the contents that a later row has, which was settled.
    #[must_use]
    pub fn with_contents_of(self, settled: &Self) -> Self {
        let Self { size_bytes, allocated_bytes, size_at_data, mtime, mtime_set, ctime, .. } =
            *settled;
        let ctime = self.ctime.max(ctime);
        Self { size_bytes, allocated_bytes, size_at_data, mtime, mtime_set, ctime, ..self }
    }

    /// Whether a name in this directory is not the one that the row records.
    #[must_use]
    pub fn is_named_elsewhere(&self, dir: InodeNo) -> bool {
        self.kind != FileKind::Directory && self.parent != dir
    }

    /// A row with one link, owned by root, without contents.
    #[must_use]
    pub const fn new(inode: InodeNo, kind: FileKind, mode: u32, now: Timestamp) -> Self {
        Self {
            inode,
            kind,
            mode,
            uid: 0,
            gid: 0,
            nlink: 1,
            size_bytes: 0,
            allocated_bytes: 0,
            size_at_data: false,
            atime: now,
            mtime: now,
            mtime_set: now,
            ctime: now,
            version: Transno(0),
            touched: Transno(0),
            parent: InodeNo(0),
            next_cookie: 1,
            layout: None,
            entry_count: 0,
            rdev: 0,
            linkable: false,
            birth: now,
        }
    }

    /// The root directory as created with its store; it is not in any log.
    #[must_use]
    pub fn root(made: Creation) -> Self {
        let made_at = Timestamp::from_ns(made.at_ns);
        Self {
            nlink: 2,
            parent: InodeNo::ROOT,
            uid: made.uid,
            gid: made.gid,
            ..Self::new(InodeNo::ROOT, FileKind::Directory, made.mode, made_at)
        }
    }

    const fn attr_flags(&self) -> u32 {
        let size = if self.size_at_data { attr_flag::SIZE_AT_DATA } else { 0 };
        let is_empty = matches!(self.kind, FileKind::Directory) && self.entry_count == 0;
        size | if is_empty { attr_flag::EMPTY } else { 0 }
    }

    /// The attributes as a message.
    #[must_use]
    pub const fn attr(&self) -> Attr {
        Attr {
            inode: self.inode,
            kind: self.kind,
            flags: self.attr_flags(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size_bytes: self.size_bytes,
            allocated_bytes: self.allocated_bytes,
            atime: self.atime,
            mtime: self.mtime,
            mtime_set: self.mtime_set,
            ctime: self.ctime,
            birth: self.birth,
            version: self.version,
            layout: self.layout,
        }
    }
}

/// Bytes of an encoded inode.
const INODE_BYTES: usize = 157;

impl Wire<'_> for InodeRow {
    fn encode(&self, to: &mut Writer<'_>) {
        let mut fields = Fixed::<INODE_BYTES>::new();
        fields.put(self.inode.0.to_le_bytes());
        fields.put([self.kind as u8]);
        fields.put(self.mode.to_le_bytes());
        fields.put(self.uid.to_le_bytes());
        fields.put(self.gid.to_le_bytes());
        fields.put(self.nlink.to_le_bytes());
        fields.put(self.size_bytes.to_le_bytes());
        fields.put(self.allocated_bytes.to_le_bytes());
        fields.put([u8::from(self.size_at_data)]);
        fields.put_time(self.atime);
        fields.put_time(self.mtime);
        fields.put_time(self.mtime_set);
        fields.put_time(self.ctime);
        fields.put(self.version.0.to_le_bytes());
        fields.put(self.touched.0.to_le_bytes());
        fields.put(self.parent.0.to_le_bytes());
        fields.put(self.next_cookie.to_le_bytes());
        fields.put(self.layout.map_or(0, |layout| layout.stripe_unit_bytes).to_le_bytes());
        fields.put(self.layout.map_or(0, |layout| layout.count_bits()).to_le_bytes());
        fields.put(self.entry_count.to_le_bytes());
        fields.put(self.rdev.to_le_bytes());
        fields.put([u8::from(self.linkable)]);
        fields.put_time(self.birth);
        fields.append(to);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let fields: [u8; INODE_BYTES] = from.array()?;
        let from = &mut Reader::new(&fields);
        Ok(Self {
            inode: from.read()?,
            kind: from.read()?,
            mode: from.read()?,
            uid: from.read()?,
            gid: from.read()?,
            nlink: from.read()?,
            size_bytes: from.read()?,
            allocated_bytes: from.read()?,
            size_at_data: from.read()?,
            atime: from.read()?,
            mtime: from.read()?,
            mtime_set: from.read()?,
            ctime: from.read()?,
            version: from.read()?,
            touched: from.read()?,
            parent: from.read()?,
            next_cookie: from.read()?,
            layout: read_layout(from)?,
            entry_count: from.read()?,
            rdev: from.read()?,
            linkable: from.read()?,
            birth: from.read()?,
        })
    }
}

fn read_layout(from: &mut Reader<'_>) -> Result<Option<Layout>, DecodeError> {
    let layout = Layout::of_count_bits(from.read()?, from.read()?);
    if layout.stripe_unit_bytes == 0 && layout.stripe_count == 0 {
        return Ok(None);
    }
    let malformed = DecodeError::ProtocolError(ProtocolError::Malformed);
    if layout.is_valid() { Ok(Some(layout)) } else { Err(malformed) }
}
