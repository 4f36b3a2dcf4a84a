//! The unit of fetching and eviction, and its rows.

use alloc::boxed::Box;
use disk::rows::Range;
use wire::{InodeNo, Name, ShardId};

/// Most entries of a directory that are fetched, or shown with their attributes, at once.
pub(crate) const LISTED_COUNT_MAX: u16 = 128;
/// More than the parts of any inode.
const PART_COUNT_MAX: u32 = 1 << 16;

/// The unit of fetching and eviction.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// An inode other than a directory.
    Inode(InodeNo),
    /// A directory's entry of this name.
    Entry(InodeNo, Box<[u8]>),
    /// The next entries of a directory behind a cookie. They are retained while pinned
    /// ([`crate::Shard::pin`]) and cover the cookies between them; each entry is also a unit of its own.
    Listing(InodeNo, u64),
}

impl Unit {
    pub(crate) fn entry(dir: InodeNo, name: &[u8]) -> Self {
        Self::Entry(dir, name.into())
    }

    /// Its rows; at most [`Unit::row_count_max`] of them.
    #[must_use]
    pub fn range(&self) -> Range {
        match self {
            Self::Inode(inode) => Range::inode(*inode),
            #[expect(clippy::expect_used, reason = "it was made from one")]
            Self::Entry(dir, name) => Range::dirent(*dir, Name::new(name).expect("a name")),
            Self::Listing(dir, cookie) => Range::listing(*dir, *cookie),
        }
    }

    /// Number of rows to read.
    #[must_use]
    pub fn row_count_max(&self) -> u32 {
        match self {
            Self::Inode(_) => PART_COUNT_MAX,
            Self::Entry(..) => 1,
            Self::Listing(..) => u32::from(LISTED_COUNT_MAX),
        }
    }

    /// Its shard.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.number().shard()
    }

    pub(super) const fn number(&self) -> InodeNo {
        let (Self::Inode(inode) | Self::Entry(inode, _) | Self::Listing(inode, _)) = self;
        *inode
    }
}
