//! The repair of each finding.
//!
//! Invariant: repairs of counts follow repairs of names, because names determine counts.

use disk::rows::DirentRow;
use store::ObjectName;
use wire::{FileKind, InodeNo, Layout, ShardId, Transno};

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) dir: InodeNo,
    pub(crate) name: Vec<u8>,
}

/// One thing to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mend {
    /// Nothing, or nothing that a program should do.
    Leave,
    /// Take a row out.
    DropRow(Vec<u8>),
    /// Make the root directory.
    MakeRoot,
    /// Take a name away, and its place in listings.
    DropName(Place),
    /// An entry is of this kind.
    SetKind(Place, FileKind),
    /// An entry stands at its place.
    List(Place, DirentRow),
    /// An entry has a name.
    Name(Place, DirentRow),
    /// Take a place in listings away.
    Unlist { dir: InodeNo, cookie: u64 },
    /// Take these names of a directory away and give it one in `/lost+found`.
    Adopt { inode: InodeNo, from: Vec<Place> },
    /// The directory's next entry gets this place.
    RaiseCookie { dir: InodeNo, next_cookie: u64 },
    /// An inode has this many links.
    SetLinks { inode: InodeNo, nlink: u32 },
    /// A directory has this many entries.
    SetEntries { dir: InodeNo, entry_count: u64 },
    /// An inode lies in this directory.
    SetParent { inode: InodeNo, parent: InodeNo },
    /// The next start removes this inode.
    MarkOrphan(InodeNo),
    /// No start removes this inode.
    UnmarkOrphan(InodeNo),
    /// A shard's numbers.
    SetShard { shard: ShardId, next_count: u64, inode_count: u64, transno: Transno },
    /// A file's contents lie in objects in this way.
    SetLayout(InodeNo, Layout),
    /// The data shard knows the size.
    MeasureSize(InodeNo),
    /// Move an object's file aside.
    Quarantine(ObjectName),
    /// The records know that there is this object of a file.
    RecordStripe(ObjectName),
}

impl Mend {
    /// Whether it changes what others count.
    pub(crate) const fn is_structural(&self) -> bool {
        match self {
            Self::DropRow(_)
            | Self::MakeRoot
            | Self::DropName(_)
            | Self::SetKind(..)
            | Self::List(..)
            | Self::Name(..)
            | Self::Unlist { .. }
            | Self::Adopt { .. } => true,
            Self::Leave
            | Self::RaiseCookie { .. }
            | Self::SetLinks { .. }
            | Self::SetEntries { .. }
            | Self::SetParent { .. }
            | Self::MarkOrphan(_)
            | Self::UnmarkOrphan(_)
            | Self::SetShard { .. }
            | Self::SetLayout(..)
            | Self::MeasureSize(_)
            | Self::Quarantine(_)
            | Self::RecordStripe(_) => false,
        }
    }
}
