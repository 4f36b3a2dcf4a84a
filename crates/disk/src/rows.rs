//! Rows: the state that all records result in, as keys and values in one ordered key space. A
//! checkpoint of the log, exact to a record, and the store of names that are not in memory.
//!
//! It owns their layout and how a record changes them; the runtime provides the medium ([`Rows`]).
//! Invariants: rows that took every record of a shard up to an LSN equal the state that redoing
//! these records gives, and store that LSN ([`ShardRow`]); a record is applied once.
//!
//! ```text
//! key (numbers big-endian, so that their order is the keys' order)     value (little-endian)
//! 1 inode 0                        the inode                           InodeRow
//! 1 inode 1                        a symbolic link's target            its bytes
//! 1 inode 2 name                   an extended attribute               its bytes
//! 2 dir name                       an entry, by its name               cookie, inode, kind, version
//! 3 dir cookie                     the same, by its cookie             inode, kind, version, name
//! 4 inode                          an inode without a name             nothing
//! 5 shard session                  a session's identity                SessionRow, away
//! 6 shard session slot             its last request and reply          SlotRow
//! 7 shard                          how far its log was applied         ShardRow
//! 8 shard inode                    a data shard's object               ObjectRow
//! 9 client                         evicted                             the boot that did it
//! 9                                evicted, but not remembered         the last boot that did it
//! 10 client                        a replay failed a version check     nothing
//! 11                               of the whole store                  StoreRow
//! 12 shard coordinator number      a part that was prepared            transno, the part
//! 13 coordinator number            a decision that is not forgotten    shards with a part
//! 14 name                          an export                           Export
//! 15 shard                         no replays up to this any more      transno
//! 16 lane                          the required extent of its log      LogRow
//! 17 shard inode group             checksums of an object's blocks     BlockSums
//! 18 shard inode stripe            a stripe object may exist           nothing
//! ```
//! All parts of an inode, and all entries of a directory, are adjacent.

mod apply;
mod blocks;
mod key;
mod order;
mod row;

pub use apply::{apply, apply_partially, begin};
pub use key::{Key, Range, table_name};
pub use order::is_later;
pub use row::{DirentRow, LogRow, ObjectRow, Row, ShardRow, SlotRow, StoreRow};

use crate::Fault;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Bound;

/// The message for a row whose checksum does not match, by the first byte of its key.
#[must_use]
pub const fn row_damage(table: u8) -> &'static str {
    match table {
        key::table::INODE => "the checksum of an inode's row does not fit",
        key::table::DIRENT => "the checksum of an entry's row does not fit",
        key::table::LISTING => "the checksum of a row of a listing does not fit",
        key::table::SESSION | key::table::SLOT => "the checksum of a session's row does not fit",
        key::table::OBJECT => "the checksum of an object's row does not fit",
        key::table::STORE => "the checksum of the store's own row does not fit",
        key::table::LOG => "the checksum of a log's row does not fit",
        _ => "the checksum of a row does not fit",
    }
}

/// A store of rows.
pub trait Rows {
    /// The value of a key, if there is one.
    ///
    /// # Errors
    /// [`Fault`] when the medium fails.
    fn get(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Fault>;

    /// Sets a key's value, replacing an existing one.
    fn put(&mut self, key: &[u8], value: &[u8]);

    /// Removes a key, if present.
    fn delete(&mut self, key: &[u8]);

    /// Removes all keys of a range.
    ///
    /// # Errors
    /// [`Fault`] when the medium fails.
    fn delete_range(&mut self, range: &Range) -> Result<(), Fault>;
}

/// Rows in memory: for tests and simulated servers.
impl Rows for alloc::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    fn get(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Fault> {
        Ok(self.get(key).map(|value| Cow::Borrowed(value.as_slice())))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.insert(key.into(), value.into());
    }

    fn delete(&mut self, key: &[u8]) {
        self.remove(key);
    }

    fn delete_range(&mut self, range: &Range) -> Result<(), Fault> {
        let bounds = (Bound::Included(range.from.bytes()), Bound::Excluded(range.until.bytes()));
        let keys: Vec<_> = self.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove(&key);
        }
        Ok(())
    }
}
