//! Findings of a check: each kind with its identifier, severity and remedy.
//!
//! Invariant: identifiers are stable; scripts and `docs/operations.md` name them.

use serde::Serialize;
use std::path::PathBuf;
use wire::InodeNo;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is wrong.
    Info,
    /// Something is wrong that loses no name and no contents.
    Warning,
    /// Names, attributes or contents are lost, or operations on them fail.
    Damage,
}

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The superblock, the rows or something else that every store has is missing or damaged.
    StoreDamage,
    /// A log file cannot be read to its end, or does not follow from the rows.
    LogDamage,
    /// The file of the rows is damaged, so that no server uses it.
    RowsDamage,
    /// Rows cannot be read any more.
    RowsLost,
    /// Rows may be of an earlier state than the newest.
    RowsOlder,
    /// A row does not decode.
    RowDamage,
    /// A row is of a shard that the store does not have.
    UnknownShard,
    /// There is no root directory.
    RootMissing,
    /// An entry names an inode that does not exist.
    NameWithoutInode,
    /// An entry's file type is not that of its inode.
    NameOfOtherKind,
    /// An entry is in an inode that is no directory, or does not exist.
    EntryWithoutDirectory,
    /// An entry has no row by its place in listings, or another one.
    NameWithoutListing,
    /// A row by place in listings has no row by name, or another one.
    ListingWithoutName,
    /// A directory would give the place of an entry again.
    CookieReused,
    /// A directory has several names.
    DirectoryNamedTwice,
    /// A directory lies in itself.
    DirectoryCycle,
    /// An inode has links and no name.
    InodeWithoutName,
    /// An inode has no link and is not in the table of inodes that the next start removes.
    OrphanUnmarked,
    /// An inode with links is in that table.
    OrphanNamed,
    /// An inode of that table does not exist.
    OrphanWithoutInode,
    /// An inode's link count is not the number of its names.
    LinkCount,
    /// A directory's entry count is not the number of its entries.
    EntryCount,
    /// An inode's parent is no directory that has a name of it.
    ParentWrong,
    /// A symbolic link has no target.
    SymlinkWithoutTarget,
    /// An attribute or target of an inode that does not exist.
    AttributeWithoutInode,
    /// A shard's next inode number exists already, or its number of inodes is wrong.
    ShardCounts,
    /// An object of an inode that does not exist.
    ObjectWithoutInode,
    /// A file has an object behind its first that the records do not know.
    StripeNotRecorded,
    /// An inode's layout is not the one that is recorded with its objects.
    LayoutWrong,
    /// Rows of an object that does not exist, and neither does its inode.
    ObjectRowLeft,
    /// An object of an inode whose creation is not durable.
    ObjectAhead,
    /// A file has recorded contents and no object.
    ObjectMissing,
    /// An object is shorter than recorded.
    ObjectShort,
    /// Contents are not what their checksums say.
    ContentsChanged,
    /// An inode's size is not that of its object.
    SizeWrong,
    /// A file that is no object lies among the objects.
    ObjectForeign,
    /// A record of replies of a session that does not exist.
    SlotWithoutSession,
    /// A change over several shards waits for the next start of a server.
    TxnPending,
    /// An export's directory does not exist.
    ExportWithoutDirectory,
}

/// What to do about a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// Nothing.
    Nothing(&'static str),
    /// `--repair` does this.
    Repair(&'static str),
    /// A person does this.
    Person(&'static str),
}

impl Kind {
    /// Identifier, severity and remedy.
    #[must_use]
    pub const fn row(self) -> (&'static str, Severity, Remedy) {
        use Remedy::{Nothing, Person, Repair};
        use Severity::{Damage, Info, Warning};
        const START: &str = "the next start of a server finishes it";
        match self {
            Self::StoreDamage => (
                "store-damage",
                Damage,
                Person("bring the store back from a copy or a backup; nothing else was looked at"),
            ),
            Self::LogDamage => (
                "log-damage",
                Damage,
                Person("bring the store back from a copy or a backup; the rows end before it"),
            ),
            Self::RowsDamage => (
                "rows-damage",
                Damage,
                Repair(
                    "make the rows anew of what can be read and of the logs; the damaged file goes to \
                     the store's quarantine/",
                ),
            ),
            Self::RowsLost => (
                "rows-lost",
                Damage,
                Person("--repair goes on without them; bring what is missing back from a backup"),
            ),
            Self::RowsOlder => {
                ("rows-older", Damage, Person("--repair goes on with them; compare with a backup"))
            }
            Self::RowDamage => ("row-damage", Damage, Repair("take the row out, into the report")),
            Self::UnknownShard => {
                ("unknown-shard", Damage, Repair("take the row out, into the report"))
            }
            Self::RootMissing => {
                ("root-missing", Damage, Repair("make the root directory; its entries stay"))
            }
            Self::NameWithoutInode => ("name-without-inode", Damage, Repair("remove the name")),
            Self::NameOfOtherKind => {
                ("name-of-other-kind", Damage, Repair("give the entry the inode's file type"))
            }
            Self::EntryWithoutDirectory => {
                let remedy = Repair("remove the name; what it names goes to /lost+found");
                ("entry-without-directory", Damage, remedy)
            }
            Self::NameWithoutListing => {
                ("name-without-listing", Damage, Repair("list the entry again"))
            }
            Self::ListingWithoutName => {
                let remedy = Repair("name the entry again, or take it out of listings");
                ("listing-without-name", Damage, remedy)
            }
            Self::CookieReused => ("cookie-reused", Damage, Repair("raise the next place")),
            Self::DirectoryNamedTwice => (
                "directory-named-twice",
                Damage,
                Repair("remove the name that its parent disagrees with"),
            ),
            Self::DirectoryCycle => {
                ("directory-cycle", Damage, Repair("move the directory to /lost+found"))
            }
            Self::InodeWithoutName => {
                ("inode-without-name", Damage, Repair("give it a name in /lost+found"))
            }
            Self::OrphanUnmarked => (
                "orphan-unmarked",
                Warning,
                Repair("mark it; the next start of a server removes it"),
            ),
            Self::OrphanNamed => {
                ("orphan-named", Damage, Repair("take the mark away, so that no start removes it"))
            }
            Self::OrphanWithoutInode => {
                ("orphan-without-inode", Warning, Repair("take the mark away"))
            }
            Self::LinkCount => ("link-count", Warning, Repair("set it to the number of names")),
            Self::EntryCount => ("entry-count", Warning, Repair("set it to the number of entries")),
            Self::ParentWrong => ("parent-wrong", Warning, Repair("set it to the directory")),
            Self::SymlinkWithoutTarget => {
                ("symlink-without-target", Damage, Person("remove it and make it again"))
            }
            Self::AttributeWithoutInode => {
                ("attribute-without-inode", Warning, Repair("take the row out, into the report"))
            }
            Self::ShardCounts => ("shard-counts", Warning, Repair("set the shard's counts")),
            Self::ObjectWithoutInode => {
                ("object-without-inode", Warning, Repair("move it to the store's quarantine/"))
            }
            Self::StripeNotRecorded => {
                ("stripe-not-recorded", Damage, Repair("record it: the file has its bytes again"))
            }
            Self::LayoutWrong => ("layout-wrong", Warning, Repair("set it to that of its objects")),
            Self::ObjectRowLeft => ("object-row-left", Info, Repair("take the row out")),
            Self::ObjectAhead => {
                ("object-ahead", Info, Nothing("a client may bring the inode back"))
            }
            Self::ObjectMissing => {
                ("object-missing", Damage, Person("bring the file back from a backup"))
            }
            Self::ObjectShort => {
                ("object-short", Damage, Person("bring the file back from a backup"))
            }
            Self::ContentsChanged => {
                ("contents-changed", Damage, Person("bring the file back from a backup"))
            }
            Self::SizeWrong => ("size-wrong", Warning, Repair("have the server measure it again")),
            Self::ObjectForeign => {
                ("object-foreign", Info, Nothing("look at it, and remove it if it is not yours"))
            }
            Self::SlotWithoutSession => {
                ("slot-without-session", Warning, Repair("take the row out, into the report"))
            }
            Self::TxnPending => ("txn-pending", Info, Nothing(START)),
            Self::ExportWithoutDirectory => {
                ("export-without-directory", Warning, Person("`lanefs export remove` it"))
            }
        }
    }

    /// Its identifier.
    #[must_use]
    pub const fn id(self) -> &'static str {
        self.row().0
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// How bad it is: the kind's, unless a change in the middle explains it.
    pub severity: Severity,
    /// Names of what it touches, as paths of the file system.
    pub paths: Vec<Vec<u8>>,
    /// The inode.
    pub inode: Option<InodeNo>,
    /// The file of the store, relative to it.
    pub file: Option<PathBuf>,
    /// What was expected and what is there.
    pub what: String,
}

impl Finding {
    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        let (_, severity, remedy) = self.kind.row();
        let is_explained = matches!(self.severity, Severity::Info);
        if is_explained && !matches!(severity, Severity::Info) {
            return Remedy::Nothing("a change over several shards is in the middle");
        }
        remedy
    }

    /// Whether `--repair` mends it.
    #[must_use]
    pub const fn is_mendable(&self) -> bool {
        matches!(self.remedy(), Remedy::Repair(_))
    }
}

impl Remedy {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Nothing(text) | Self::Repair(text) | Self::Person(text) => text,
        }
    }
}
