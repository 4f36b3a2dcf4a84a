//! `bind-lmdb`: LMDB, through `heed`, as one ordered table of bytes.
//!
//! It owns the unsafe steps, mapping the file and writing through a cursor, and says LMDB's errors as [`io::Error`]s. It
//! leaves what keys and values mean to others. Invariants: a write is there as a whole, durably, when
//! it returns, or not at all; a snapshot stays what it was when it was taken.

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithoutTls};
use std::io;
use std::ops::Bound;
use std::path::Path;

type Rows = Database<Bytes, Bytes>;

/// Snapshots at a time.
const SNAPSHOT_COUNT_MAX: u32 = 64;

/// An open table; clones are the same one.
#[derive(Clone, Debug)]
pub struct Table {
    env: Env<WithoutTls>,
    rows: Rows,
}

impl Table {
    /// Opens the table in a folder that exists, making it if it is empty. The file grows as rows
    /// come, to `bytes_max` at most; only address space is taken for that beforehand.
    ///
    /// # Errors
    /// When the file cannot be mapped or is no such table.
    pub fn open(folder: &Path, bytes_max: usize) -> io::Result<Self> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(bytes_max).max_readers(SNAPSHOT_COUNT_MAX);
        // SAFETY: the file is in a store that this process has locked for itself, so nobody else
        // changes it, and heed keeps this process from mapping it twice.
        let env = unsafe { options.open(folder) }.map_err(error_of)?;
        // Of processes that were killed while they had a snapshot.
        env.clear_stale_readers().map_err(error_of)?;
        let mut txn = env.write_txn().map_err(error_of)?;
        let rows = env.create_database(&mut txn, None).map_err(error_of)?;
        txn.commit().map_err(error_of)?;
        Ok(Self { env, rows })
    }

    /// Opens a table that another process may have open and may write to. Nothing is changed, and the
    /// table cannot be written to through this.
    ///
    /// # Errors
    /// When there is no such table.
    pub fn open_reading(folder: &Path, bytes_max: usize) -> io::Result<Self> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(bytes_max).max_readers(SNAPSHOT_COUNT_MAX);
        // SAFETY: READ_ONLY takes no guarantee away, unlike the flags that let LMDB write without order.
        unsafe { options.flags(EnvFlags::READ_ONLY) };
        // SAFETY: who writes to the file does so through LMDB, which keeps readers of other processes
        // apart from writers by the lock file beside it.
        let env = unsafe { options.open(folder) }.map_err(error_of)?;
        env.clear_stale_readers().map_err(error_of)?;
        let txn = env.read_txn().map_err(error_of)?;
        let rows = env.open_database(&txn, None).map_err(error_of)?;
        txn.commit().map_err(error_of)?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no table");
        Ok(Self { env, rows: rows.ok_or_else(missing)? })
    }

    /// All rows as they are now, also when the table is closed.
    ///
    /// # Errors
    /// When there are too many snapshots.
    pub fn lasting_snapshot(&self) -> io::Result<Snapshot<'static>> {
        let txn = self.env.clone().static_read_txn().map_err(error_of)?;
        Ok(Snapshot { txn, rows: self.rows })
    }

    /// All rows as they are now.
    ///
    /// # Errors
    /// When there are too many snapshots.
    pub fn snapshot(&self) -> io::Result<Snapshot<'_>> {
        let txn = self.env.read_txn().map_err(error_of)?;
        Ok(Snapshot { txn, rows: self.rows })
    }

    /// Puts rows (`None`: takes one away), all of them or none; durable when it returns. Quickest in
    /// the order of their keys.
    ///
    /// # Errors
    /// When the medium is full or fails; nothing was changed then.
    pub fn write<'a>(
        &self,
        rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone,
    ) -> io::Result<()> {
        let mut txn = self.env.write_txn().map_err(error_of)?;
        for (key, _) in rows.clone().filter(|(_, value)| value.is_none()) {
            self.rows.delete(&mut txn, key).map_err(error_of)?;
        }
        // One cursor for all: from one key to the next it seldom has far to go.
        let mut cursor = self.rows.iter_mut(&mut txn).map_err(error_of)?;
        for (key, value) in rows {
            let Some(value) = value else { continue };
            // SAFETY: keys and values are the caller's; nothing that was read through this
            // transaction is borrowed.
            let put =
                unsafe { cursor.put_current_with_options::<Bytes>(PutFlags::empty(), key, value) };
            put.map_err(error_of)?;
        }
        drop(cursor);
        txn.commit().map_err(error_of)
    }

    /// Bytes of the file that are in use or were.
    ///
    /// # Errors
    /// When the file cannot be asked.
    pub fn file_bytes(&self) -> io::Result<u64> {
        self.env.real_disk_size().map_err(error_of)
    }
}

/// Rows as they were at one moment. Space that is freed meanwhile is not used again until it goes.
pub struct Snapshot<'t> {
    txn: RoTxn<'t, WithoutTls>,
    rows: Rows,
}

impl Snapshot<'_> {
    /// The value of a key.
    ///
    /// # Errors
    /// When the medium fails.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<&[u8]>> {
        self.rows.get(&self.txn, key).map_err(error_of)
    }

    /// The rows from a key on, up to another, which is not among them.
    ///
    /// # Errors
    /// When the medium fails.
    pub fn range<'s>(
        &'s self,
        from: &[u8],
        until: &[u8],
    ) -> io::Result<impl Iterator<Item = io::Result<(&'s [u8], &'s [u8])>> + use<'s>> {
        let bounds = (Bound::Included(from), Bound::Excluded(until));
        let rows = self.rows.range(&self.txn, &bounds).map_err(error_of)?;
        Ok(rows.map(|row| row.map_err(error_of)))
    }
}

fn error_of(error: heed::Error) -> io::Error {
    match error {
        heed::Error::Io(error) => error,
        heed::Error::Mdb(heed::MdbError::MapFull) => {
            io::Error::new(io::ErrorKind::StorageFull, "the table has reached its greatest size")
        }
        error @ (heed::Error::Mdb(_)
        | heed::Error::Encoding(_)
        | heed::Error::Decoding(_)
        | heed::Error::EnvAlreadyOpened) => io::Error::other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BYTES_MAX: usize = 1 << 30;

    fn all(table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        let snapshot = table.snapshot().unwrap();
        let rows = snapshot.range(&[0], &[255]).unwrap();
        rows.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
    }

    #[test]
    fn rows_stay_in_order_and_a_snapshot_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::open(folder.path(), BYTES_MAX).unwrap();
        let rows = [(&[2][..], Some(&b"two"[..])), (&[1], Some(b"one")), (&[3], Some(b""))];
        table.write(rows.into_iter()).unwrap();
        let before = table.snapshot().unwrap();
        table.write([(&[2][..], None), (&[9], None)].into_iter()).unwrap();
        assert_eq!(before.get(&[2]).unwrap(), Some(&b"two"[..]));
        assert_eq!(all(&table), [(vec![1], b"one".to_vec()), (vec![3], Vec::new())]);
        drop(before);
        drop(table);
        let again = Table::open(folder.path(), BYTES_MAX).unwrap();
        assert_eq!(all(&again).len(), 2);
    }

    #[test]
    fn a_full_table_takes_nothing_of_a_write() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::open(folder.path(), 1 << 16).unwrap();
        table.write([(&[1][..], Some(&b"one"[..]))].into_iter()).unwrap();
        let big = vec![7; 1 << 16];
        let rows = [(&[2][..], Some(&b"two"[..])), (&[3], Some(&big))];
        let error = table.write(rows.into_iter()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(all(&table), [(vec![1], b"one".to_vec())]);
    }
}
