//! [`crate::Op::Find`]: a directory listing filtered by a predicate at the server.
//!
//! Server and client evaluate a predicate with the same code. If an entry's inode lies at another
//! shard, the server has only name and kind and may answer [`Verdict::Undecided`]; the client
//! decides. Invariant: attributes never change a decision of [`Predicate::evaluate`].

use crate::codec::{DecodeError, List, Reader, Wire, Writer};
use crate::message::message;
use crate::pattern::Pattern;
use crate::{Attr, Caller, FileKind, InodeNo, Name, ProtocolError, Timestamp};

message! {
    /// [`crate::Op::Find`]. Reply: [`Found`]. The permission to read the directory is checked as
    /// for [`crate::Readdir`].
    Find<'a> {
        /// The caller.
        caller: Caller<'a>,
        /// The directory.
        inode: InodeNo,
        /// Entries after this cookie; 0 from the start. `.` and `..` are not among them.
        cookie: u64,
        /// Encoded reply bytes wanted at most, 512 ..= 131,072.
        listing_bytes_max: u32,
        /// With attributes.
        attrs: bool,
        /// Include all directories, matching or not: a search descends into them.
        directories: bool,
        /// The filter.
        predicate: Predicate<'a>,
    }
}
message! {
    /// Reply of [`Find`].
    Found<'a> {
        /// The cookie of the last entry evaluated, included or not; the next request continues
        /// there.
        cookie: u64,
        /// No more entries.
        end: bool,
        /// The caller may search the directory: read attributes of its entries and descend.
        search: bool,
        /// Ordered by cookie.
        entries: List<'a, FoundEntry<'a>>,
    }
}
message! {
    /// One entry of [`Found`].
    FoundEntry<'a> {
        /// The inode.
        inode: InodeNo,
        /// Its kind.
        kind: FileKind,
        /// Its name.
        name: Name<'a>,
        /// The result of the predicate.
        verdict: Verdict,
        /// Its attributes, if requested and known at this shard.
        attr: Option<Attr>,
    }
}

/// The result of a predicate for an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No match; included because it is a directory.
    No,
    /// Match.
    Yes,
    /// The attributes decide, and this shard does not have them.
    Undecided,
}

impl Wire<'_> for Verdict {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&match self {
            Self::No => 0_u8,
            Self::Yes => 1,
            Self::Undecided => 2,
        });
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::No),
            1 => Ok(Self::Yes),
            2 => Ok(Self::Undecided),
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

/// A set of file kinds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kinds(u16);

impl Kinds {
    const ALL: u16 = Self::bit(FileKind::Fifo)
        | Self::bit(FileKind::CharDevice)
        | Self::bit(FileKind::Directory)
        | Self::bit(FileKind::BlockDevice)
        | Self::bit(FileKind::File)
        | Self::bit(FileKind::Symlink)
        | Self::bit(FileKind::Socket);

    const fn bit(kind: FileKind) -> u16 {
        1 << kind as u16
    }

    /// The set with one more kind.
    #[must_use]
    pub const fn with(self, kind: FileKind) -> Self {
        Self(self.0 | Self::bit(kind))
    }

    /// The union.
    #[must_use]
    pub const fn or(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// The intersection.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether the set contains a kind.
    #[must_use]
    pub const fn has(self, kind: FileKind) -> bool {
        self.0 & Self::bit(kind) != 0
    }
}

impl Wire<'_> for Kinds {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.0);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bits = u16::decode(from)?;
        if bits & !Self::ALL == 0 {
            Ok(Self(bits))
        } else {
            Err(DecodeError::ProtocolError(ProtocolError::Malformed))
        }
    }
}

message! {
    /// A conjunction of conditions on an entry; `None` is no condition.
    Predicate<'a> {
        /// Its name matches.
        name: Option<Pattern<'a>>,
        /// It is of one of these kinds.
        kinds: Option<Kinds>,
        /// Its minimum size.
        size_bytes_min: Option<u64>,
        /// Its maximum size.
        size_bytes_max: Option<u64>,
        /// Its mtime is later than this.
        mtime_after: Option<Timestamp>,
        /// Its mtime is earlier than this.
        mtime_before: Option<Timestamp>,
    }
}

impl Predicate<'_> {
    /// Matches everything.
    pub const ANY: Self = Self {
        name: None,
        kinds: None,
        size_bytes_min: None,
        size_bytes_max: None,
        mtime_after: None,
        mtime_before: None,
    };

    /// The result by name and kind alone; the steps of the name match are counted.
    #[must_use]
    pub fn evaluate(&self, name: &[u8], kind: FileKind, step_count: &mut usize) -> Verdict {
        let kind_fits = self.kinds.is_none_or(|kinds| kinds.has(kind));
        if !kind_fits || self.name.is_some_and(|pattern| !pattern.fits(name, step_count)) {
            Verdict::No
        } else if self.asks_attr() {
            Verdict::Undecided
        } else {
            Verdict::Yes
        }
    }

    /// Whether the attributes match, for an undecided entry.
    #[must_use]
    pub fn fits_attr(&self, attr: &Attr) -> bool {
        self.size_bytes_min.is_none_or(|min| attr.size_bytes >= min)
            && self.size_bytes_max.is_none_or(|max| attr.size_bytes <= max)
            && self.mtime_after.is_none_or(|after| attr.mtime > after)
            && self.mtime_before.is_none_or(|before| attr.mtime < before)
    }

    const fn asks_attr(&self) -> bool {
        self.size_bytes_min.is_some()
            || self.size_bytes_max.is_some()
            || self.mtime_after.is_some()
            || self.mtime_before.is_some()
    }
}
