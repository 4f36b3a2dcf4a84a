//! [`crate::Op::Find`]: a listing of which only what fits a predicate travels.
//!
//! A predicate means the same at both ends: of an entry whose inode lies at another shard the server
//! has the name and the kind alone, says that it is open, and the client judges it by the same code. Invariant: what
//! [`Predicate::judge`] decides, no attributes would change.

use crate::codec::{Flaw, List, Reader, Wire, Writer};
use crate::message::message;
use crate::pattern::Pattern;
use crate::{Attr, Caller, FileKind, InodeNo, Name, ProtocolError, Timestamp};

message! {
    /// [`crate::Op::Find`]. Reply: [`Found`]. Permission to read the directory is asked for as for
    /// [`crate::Readdir`].
    Find<'a> {
        /// Who asks.
        caller: Caller<'a>,
        /// The directory.
        inode: InodeNo,
        /// Entries after this cookie; 0 from the start. `.` and `..` are not among them.
        cookie: u64,
        /// Encoded reply bytes wanted at most, 512 ..= 131,072.
        listing_bytes_max: u32,
        /// With attributes.
        attrs: bool,
        /// With all directories, also those that do not fit: what is in them may.
        directories: bool,
        /// What fits.
        predicate: Predicate<'a>,
    }
}
message! {
    /// Reply of [`Find`].
    Found<'a> {
        /// Where to go on: the last entry that was looked at, whether or not it is told.
        cookie: u64,
        /// Nothing follows.
        end: bool,
        /// The caller may search the directory: look at what is in it and go down.
        search: bool,
        /// In the order of their places.
        entries: List<'a, FoundEntry<'a>>,
    }
}
message! {
    /// One entry of [`Found`].
    FoundEntry<'a> {
        /// The inode.
        inode: InodeNo,
        /// What it is.
        kind: FileKind,
        /// Its name.
        name: Name<'a>,
        /// Whether it fits.
        verdict: Verdict,
        /// Its attributes, when asked for and known here.
        attr: Option<Attr>,
    }
}

/// Whether an entry fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does not; told because it is a directory.
    No,
    /// It does.
    Yes,
    /// Its attributes decide, and these are not known here.
    Open,
}

impl Wire<'_> for Verdict {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&match self {
            Self::No => 0_u8,
            Self::Yes => 1,
            Self::Open => 2,
        });
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        match u8::decode(from)? {
            0 => Ok(Self::No),
            1 => Ok(Self::Yes),
            2 => Ok(Self::Open),
            _ => Err(Flaw::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

/// Some kinds of files.
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

    /// These, and one more.
    #[must_use]
    pub const fn with(self, kind: FileKind) -> Self {
        Self(self.0 | Self::bit(kind))
    }

    /// These and those.
    #[must_use]
    pub const fn or(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// What is among both.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether it is among them.
    #[must_use]
    pub const fn has(self, kind: FileKind) -> bool {
        self.0 & Self::bit(kind) != 0
    }
}

impl Wire<'_> for Kinds {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.0);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        let bits = u16::decode(from)?;
        if bits & !Self::ALL == 0 {
            Ok(Self(bits))
        } else {
            Err(Flaw::ProtocolError(ProtocolError::Malformed))
        }
    }
}

message! {
    /// What must hold of an entry, all of it; `None` asks nothing.
    Predicate<'a> {
        /// Its name fits.
        name: Option<Pattern<'a>>,
        /// It is of one of these kinds.
        kinds: Option<Kinds>,
        /// It has so many bytes at least.
        size_bytes_min: Option<u64>,
        /// It has so many bytes at most.
        size_bytes_max: Option<u64>,
        /// Its contents were changed after this.
        mtime_after: Option<Timestamp>,
        /// Its contents were changed before this.
        mtime_before: Option<Timestamp>,
    }
}

impl Predicate<'_> {
    /// Everything fits.
    pub const ANY: Self = Self {
        name: None,
        kinds: None,
        size_bytes_min: None,
        size_bytes_max: None,
        mtime_after: None,
        mtime_before: None,
    };

    /// What name and kind say; the steps that the name takes are counted.
    #[must_use]
    pub fn judge(&self, name: &[u8], kind: FileKind, step_count: &mut usize) -> Verdict {
        let kind_fits = self.kinds.is_none_or(|kinds| kinds.has(kind));
        if !kind_fits || self.name.is_some_and(|pattern| !pattern.fits(name, step_count)) {
            Verdict::No
        } else if self.asks_attr() {
            Verdict::Open
        } else {
            Verdict::Yes
        }
    }

    /// What is left open then: whether the attributes fit.
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
