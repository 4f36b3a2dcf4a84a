//! The keys of rows, and ranges of them.

use crate::TxnId;
use wire::{ClientUuid, InodeNo, LaneId, SessionId, ShardId, XATTR_NAME_BYTES_MAX};

/// First bytes of keys. The numbers are fixed; new tables come behind.
pub(super) mod table {
    pub(crate) const INODE: u8 = 1;
    pub(crate) const DIRENT: u8 = 2;
    pub(crate) const LISTING: u8 = 3;
    pub(crate) const ORPHAN: u8 = 4;
    pub(crate) const SESSION: u8 = 5;
    pub(crate) const SLOT: u8 = 6;
    pub(crate) const SHARD: u8 = 7;
    pub(crate) const OBJECT: u8 = 8;
    pub(crate) const EVICTED: u8 = 9;
    pub(crate) const VBR_FAILED: u8 = 10;
    pub(crate) const STORE: u8 = 11;
    pub(crate) const PREPARED: u8 = 12;
    pub(crate) const DECIDED: u8 = 13;
    pub(crate) const EXPORT: u8 = 14;
    pub(crate) const RECOVERED: u8 = 15;
    pub(crate) const LOG: u8 = 16;
    pub(crate) const SUMS: u8 = 17;
    pub(crate) const STRIPE: u8 = 18;
    pub(crate) const BEHIND: u8 = 19;
}

/// The display name of a table, by the first byte of its keys.
#[must_use]
pub const fn table_name(table: u8) -> &'static str {
    match table {
        table::INODE => "inodes",
        table::DIRENT => "names",
        table::LISTING => "places in listings",
        table::ORPHAN => "inodes without a name",
        table::SESSION => "sessions",
        table::SLOT => "replies of sessions",
        table::SHARD => "shards",
        table::OBJECT => "objects",
        table::EVICTED => "evicted clients",
        table::VBR_FAILED => "clients whose replay did not fit",
        table::STORE => "the store's own row",
        table::PREPARED => "prepared changes over several shards",
        table::DECIDED => "decided changes over several shards",
        table::EXPORT => "exports",
        table::RECOVERED => "ends of recoveries",
        table::LOG => "what there must be of logs",
        table::SUMS => "checksums of contents",
        table::STRIPE => "stripes of contents",
        _ => "rows of no table",
    }
}

/// Parts of an inode.
pub(super) mod part {
    pub(crate) const ROW: u8 = 0;
    pub(crate) const TARGET: u8 = 1;
    pub(crate) const XATTR: u8 = 2;
}

/// A key; built without allocating.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; Self::BYTES_MAX],
    key_bytes: usize,
}

impl Key {
    /// Longest key; a name or the name of an attribute is the longest part.
    pub const BYTES_MAX: usize = 1 + 8 + 1 + XATTR_NAME_BYTES_MAX;

    /// A key of consecutive parts; constructed in place, because it is large.
    #[inline]
    fn of(table: u8, parts: &[&[u8]]) -> Self {
        let mut key = Self { bytes: [0; Self::BYTES_MAX], key_bytes: 1 };
        key.bytes[0] = table;
        for part in parts {
            let end = key.key_bytes + part.len();
            key.bytes[key.key_bytes..end].copy_from_slice(part);
            key.key_bytes = end;
        }
        key
    }

    const fn new(table: u8) -> Self {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[0] = table;
        Self { bytes, key_bytes: 1 }
    }

    #[inline]
    fn numbered(table: u8, number: u64) -> Self {
        Self::of(table, &[&number.to_be_bytes()])
    }

    /// The encoded key.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.key_bytes]
    }

    /// An inode's row.
    #[must_use]
    pub fn inode(inode: InodeNo) -> Self {
        Self::of(table::INODE, &[&inode.0.to_be_bytes(), &[part::ROW]])
    }

    /// A symbolic link's target.
    #[must_use]
    pub fn target(inode: InodeNo) -> Self {
        Self::of(table::INODE, &[&inode.0.to_be_bytes(), &[part::TARGET]])
    }

    /// An extended attribute. `None` for a name beyond its limit, which has no row.
    #[must_use]
    pub fn xattr(inode: InodeNo, name: &[u8]) -> Option<Self> {
        let fits = name.len() <= XATTR_NAME_BYTES_MAX;
        fits.then(|| Self::of(table::INODE, &[&inode.0.to_be_bytes(), &[part::XATTR], name]))
    }

    /// An entry by name.
    #[must_use]
    pub fn dirent(dir: InodeNo, name: wire::Name<'_>) -> Self {
        Self::of(table::DIRENT, &[&dir.0.to_be_bytes(), name.bytes()])
    }

    /// An entry by its cookie.
    #[must_use]
    pub fn listing(dir: InodeNo, cookie: u64) -> Self {
        Self::of(table::LISTING, &[&dir.0.to_be_bytes(), &cookie.to_be_bytes()])
    }

    /// An orphan.
    #[must_use]
    pub fn orphan(inode: InodeNo) -> Self {
        Self::numbered(table::ORPHAN, inode.0)
    }

    /// A session at a shard.
    #[must_use]
    pub fn session(shard: ShardId, session: SessionId) -> Self {
        Self::of(table::SESSION, &[&shard.0.to_be_bytes(), &session.0.to_be_bytes()])
    }

    /// A slot of a session at a shard.
    #[must_use]
    pub fn slot(shard: ShardId, session: SessionId, slot: u16) -> Self {
        Self::of(
            table::SLOT,
            &[&shard.0.to_be_bytes(), &session.0.to_be_bytes(), &slot.to_be_bytes()],
        )
    }

    /// A shard's own row.
    #[must_use]
    pub fn shard(shard: ShardId) -> Self {
        Self::of(table::SHARD, &[&shard.0.to_be_bytes()])
    }

    /// A data shard's object.
    #[must_use]
    pub fn object(shard: ShardId, inode: InodeNo) -> Self {
        Self::of(table::OBJECT, &[&shard.0.to_be_bytes(), &inode.0.to_be_bytes()])
    }

    /// The checksums of a group of a data shard's object's blocks.
    #[must_use]
    pub fn sums(shard: ShardId, inode: InodeNo, group: u64) -> Self {
        let (shard, inode) = (shard.0.to_be_bytes(), inode.0.to_be_bytes());
        Self::of(table::SUMS, &[&shard, &inode, &group.to_be_bytes()])
    }

    /// A stripe of a data shard's file, behind its first one.
    #[must_use]
    pub fn stripe(shard: ShardId, inode: InodeNo, stripe_index: u32) -> Self {
        let (shard, inode) = (shard.0.to_be_bytes(), inode.0.to_be_bytes());
        Self::of(table::STRIPE, &[&shard, &inode, &stripe_index.to_be_bytes()])
    }

    /// An evicted client.
    #[must_use]
    pub fn evicted(client: ClientUuid) -> Self {
        Self::of(table::EVICTED, &[&client.0])
    }

    /// The last boot of evicted clients that are not remembered individually.
    #[must_use]
    pub const fn evicted_last() -> Self {
        Self::new(table::EVICTED)
    }

    /// The last transaction of a shard up to which lost changes have been replayed.
    #[must_use]
    pub fn recovered(shard: ShardId) -> Self {
        Self::of(table::RECOVERED, &[&shard.0.to_be_bytes()])
    }

    /// A client whose replay failed a version check.
    #[must_use]
    pub fn vbr_failed(client: ClientUuid) -> Self {
        Self::of(table::VBR_FAILED, &[&client.0])
    }

    /// The store's own row.
    #[must_use]
    pub const fn store() -> Self {
        Self::new(table::STORE)
    }

    /// The required extent of a lane's log.
    #[must_use]
    pub fn log(lane: LaneId) -> Self {
        Self::of(table::LOG, &[&lane.0.to_be_bytes()])
    }

    /// A prepared part of a transaction.
    #[must_use]
    pub fn prepared(shard: ShardId, txn: TxnId) -> Self {
        let (coordinator, number) = (txn.coordinator.0.to_be_bytes(), txn.number.to_be_bytes());
        Self::of(table::PREPARED, &[&shard.0.to_be_bytes(), &coordinator, &number])
    }

    /// An export. `None` for a name beyond its limit, which has no row.
    #[must_use]
    pub fn export(name: &[u8]) -> Option<Self> {
        (name.len() <= wire::EXPORT_NAME_BYTES_MAX).then(|| Self::of(table::EXPORT, &[name]))
    }

    /// A committed transaction over several shards.
    #[must_use]
    pub fn decided(txn: TxnId) -> Self {
        Self::of(table::DECIDED, &[&txn.coordinator.0.to_be_bytes(), &txn.number.to_be_bytes()])
    }
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", self.bytes())
    }
}

/// A half-open range of keys.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first.
    pub from: Key,
    /// The end, exclusive.
    pub until: Key,
}

impl Range {
    /// Whether the range contains a key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.bytes() <= key && key < self.until.bytes()
    }

    fn numbered(table: u8, number: u64) -> Self {
        let until = match number.checked_add(1) {
            Some(next) => Key::numbered(table, next),
            None => Key::new(table + 1),
        };
        Self { from: Key::numbered(table, number), until }
    }

    /// An inode with all its parts.
    #[must_use]
    pub fn inode(inode: InodeNo) -> Self {
        Self::numbered(table::INODE, inode.0)
    }

    /// All inodes with all their parts.
    #[must_use]
    pub const fn inodes() -> Self {
        Self { from: Key::new(table::INODE), until: Key::new(table::DIRENT) }
    }

    /// One entry by its name.
    #[must_use]
    pub fn dirent(dir: InodeNo, name: wire::Name<'_>) -> Self {
        let from = Key::dirent(dir, name);
        // No key lies between a key and that key followed by a zero.
        let until = Key::of(table::DIRENT, &[&dir.0.to_be_bytes(), name.bytes(), &[0]]);
        Self { from, until }
    }

    /// A directory's entries by name.
    #[must_use]
    pub fn dirents(dir: InodeNo) -> Self {
        Self::numbered(table::DIRENT, dir.0)
    }

    /// A directory's entries behind a cookie, ordered by cookie.
    #[must_use]
    pub fn listing(dir: InodeNo, cookie: u64) -> Self {
        let Self { until, .. } = Self::numbered(table::LISTING, dir.0);
        let from = cookie.checked_add(1).map_or(until, |next| Key::listing(dir, next));
        Self { from, until }
    }

    /// A session's slots at a shard.
    #[must_use]
    pub fn slots(shard: ShardId, session: SessionId) -> Self {
        Self { from: Key::slot(shard, session, 0), until: Key::slot(shard, session, u16::MAX) }
    }

    /// All entries by name, directory by directory.
    #[must_use]
    pub const fn all_dirents() -> Self {
        Self { from: Key::new(table::DIRENT), until: Key::new(table::LISTING) }
    }

    /// All entries by cookie, directory by directory.
    #[must_use]
    pub const fn all_listings() -> Self {
        Self { from: Key::new(table::LISTING), until: Key::new(table::ORPHAN) }
    }

    /// The required extents of the logs.
    #[must_use]
    pub const fn logs() -> Self {
        Self { from: Key::new(table::LOG), until: Key::new(table::LOG + 1) }
    }

    /// The checksums of an object's blocks, from a group on up to another, exclusive.
    #[must_use]
    pub fn sums(shard: ShardId, inode: InodeNo, groups: core::ops::Range<u64>) -> Self {
        let from = Key::sums(shard, inode, groups.start);
        Self { from, until: Key::sums(shard, inode, groups.end) }
    }

    /// The stripes of a file behind its first one, at a data shard.
    #[must_use]
    pub fn stripes(shard: ShardId, inode: InodeNo) -> Self {
        let from = Key::stripe(shard, inode, 0);
        let (shard, inode) = (shard.0.to_be_bytes(), inode.0.to_be_bytes());
        // No key lies between that of the last stripe and this one.
        let last = u32::MAX.to_be_bytes();
        Self { from, until: Key::of(table::STRIPE, &[&shard, &inode, &last, &[0]]) }
    }

    /// The rows that a start needs: all but inodes and entries.
    #[must_use]
    pub fn start() -> Self {
        Self { from: Key::new(table::ORPHAN), until: Key::new(table::BEHIND) }
    }

    /// The tables whose rows may lie between two keys, by the first byte of their keys.
    #[must_use]
    pub fn tables(from: Option<&[u8]>, until: Option<&[u8]>) -> core::ops::RangeInclusive<u8> {
        let first = from.and_then(|key| key.first().copied()).unwrap_or(0).max(table::INODE);
        let last = match until {
            // A key of one byte is the first of its table.
            Some([table]) => table.saturating_sub(1),
            Some([table, ..]) => *table,
            Some([]) | None => table::BEHIND - 1,
        };
        first..=last
    }

    /// All rows.
    #[must_use]
    pub fn all() -> Self {
        Self { from: Key::new(0), until: Key::new(u8::MAX) }
    }
}

// A key with a zero appended fits as well.
const _: () = assert!(wire::NAME_BYTES_MAX <= XATTR_NAME_BYTES_MAX);
