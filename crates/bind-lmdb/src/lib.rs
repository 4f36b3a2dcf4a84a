//! `bind-lmdb`: LMDB, through `heed`, as one ordered table of bytes.
//!
//! It owns the unsafe operations (mapping the file, writing through a cursor, handling the signals
//! of a broken mapping) and converts LMDB's errors to [`io::Error`]s. The meaning of keys and
//! values belongs to its callers. Invariants: a write is atomic, and durable when it returns; a
//! snapshot is constant; a value that is read is the one that was written to its key; a file is
//! mapped only after it was checked.

mod damage;
mod guard;
mod pages;
mod seal;

pub use damage::Damage;
pub use pages::{Age, Checked, Lost, Salvaged, Visit, check, damage, salvage};

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithoutTls};
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::Path;

type Rows = Database<Bytes, Bytes>;

/// The name of a table's file in its folder.
pub const FILE: &str = "data.mdb";
/// The name of LMDB's file with the table of readers.
pub const LOCK_FILE: &str = "lock.mdb";
/// The size limit for the first rows of a table.
const CREATED_BYTES_MAX: usize = 1 << 20;
/// The most snapshots at a time.
const SNAPSHOT_COUNT_MAX: u32 = 64;

/// An open table; clones share it.
#[derive(Clone, Debug)]
pub struct Table {
    env: Env<WithoutTls>,
    rows: Rows,
}

impl Table {
    /// Creates a table with these rows in a folder; durable except for the file's name.
    ///
    /// # Errors
    /// When there is one already, or it cannot be made.
    pub fn create<'a>(
        folder: &Path,
        rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone,
    ) -> io::Result<()> {
        if folder.join(FILE).exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Self::map(folder, CREATED_BYTES_MAX)?.write(rows)
    }

    /// Opens the table in a folder, after checking its file. The file grows to at most `bytes_max`;
    /// only address space is reserved for that.
    ///
    /// # Errors
    /// When there is no table, it is damaged (see [`Damage::of`]) or cannot be mapped.
    pub fn open(folder: &Path, bytes_max: usize) -> io::Result<Self> {
        check(&File::open(folder.join(FILE))?)?;
        Self::map(folder, bytes_max)
    }

    fn map(folder: &Path, bytes_max: usize) -> io::Result<Self> {
        // The table of readers is empty now, because the caller has the folder for itself.
        match std::fs::remove_file(folder.join(LOCK_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(bytes_max).max_readers(SNAPSHOT_COUNT_MAX);
        // SAFETY: the file is in a store that this process has locked, so no other process changes
        // it, and heed prevents a second mapping in this process.
        let env = unsafe { options.open(folder) }.map_err(error_of)?;
        let mut txn = env.write_txn().map_err(error_of)?;
        let rows = env.create_database(&mut txn, None).map_err(error_of)?;
        txn.commit().map_err(error_of)?;
        Ok(Self { env, rows })
    }

    /// Opens a table for reading, which another process may have open and write to. Changes
    /// nothing. The file is not checked: the process that opened it for writing has done that.
    ///
    /// # Errors
    /// When there is no such table.
    pub fn open_reading(folder: &Path, bytes_max: usize) -> io::Result<Self> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(bytes_max).max_readers(SNAPSHOT_COUNT_MAX);
        // SAFETY: READ_ONLY weakens no guarantee, unlike the flags for unordered writes.
        unsafe { options.flags(EnvFlags::READ_ONLY) };
        // SAFETY: other processes write to the file through LMDB, which separates readers from
        // writers by its lock file.
        let env = unsafe { options.open(folder) }.map_err(error_of)?;
        // Entries of processes that were killed with a snapshot.
        env.clear_stale_readers().map_err(error_of)?;
        let txn = env.read_txn().map_err(error_of)?;
        let rows = env.open_database(&txn, None).map_err(error_of)?;
        txn.commit().map_err(error_of)?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no table");
        Ok(Self { env, rows: rows.ok_or_else(missing)? })
    }

    /// A snapshot of all rows that remains valid after the table is closed.
    ///
    /// # Errors
    /// When there are too many snapshots.
    pub fn lasting_snapshot(&self) -> io::Result<Snapshot<'static>> {
        let txn = self.env.clone().static_read_txn().map_err(error_of)?;
        Ok(Snapshot { txn, rows: self.rows })
    }

    /// Ends the process with a message that names the file, instead of a signal, when mapped bytes
    /// do not exist any more. For one table of a process.
    ///
    /// # Errors
    /// When signal handlers cannot be set, or the table has no row yet.
    pub fn guard(&self) -> io::Result<()> {
        let txn = self.env.read_txn().map_err(error_of)?;
        let row = self.rows.get(&txn, &pages::WRITE_NO_KEY).map_err(error_of)?;
        let row = row.ok_or(io::ErrorKind::NotFound)?;
        guard::guard(&self.env.path().join(FILE), row.as_ptr())
    }

    /// A snapshot of all rows.
    ///
    /// # Errors
    /// When there are too many snapshots.
    pub fn snapshot(&self) -> io::Result<Snapshot<'_>> {
        let txn = self.env.read_txn().map_err(error_of)?;
        Ok(Snapshot { txn, rows: self.rows })
    }

    /// Writes rows (`None` deletes one), all of them or none; durable when it returns. Fastest in
    /// the order of keys. The key of one zero byte is the table's own.
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
        let mut sealed = Vec::new();
        let write_no = match self.rows.get(&txn, &pages::WRITE_NO_KEY).map_err(error_of)? {
            Some(sealed) => pages::number(seal::open(&pages::WRITE_NO_KEY, sealed)?) + 1,
            None => 1,
        };
        let value = seal::seal(&pages::WRITE_NO_KEY, &write_no.to_le_bytes(), &mut sealed);
        self.rows.put(&mut txn, &pages::WRITE_NO_KEY, value).map_err(error_of)?;
        // One cursor for all rows: consecutive keys are near each other.
        let mut cursor = self.rows.iter_mut(&mut txn).map_err(error_of)?;
        for (key, value) in rows {
            let Some(value) = value else { continue };
            let value = seal::seal(key, value, &mut sealed);
            // SAFETY: keys and values are borrowed from the caller; nothing read through this
            // transaction is borrowed.
            let put =
                unsafe { cursor.put_current_with_options::<Bytes>(PutFlags::empty(), key, value) };
            put.map_err(error_of)?;
        }
        drop(cursor);
        txn.commit().map_err(error_of)
    }

    /// The size of the file's used part.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn file_bytes(&self) -> io::Result<u64> {
        self.env.real_disk_size().map_err(error_of)
    }
}

/// Rows at one moment. LMDB does not reuse space that is freed while a snapshot exists.
pub struct Snapshot<'t> {
    txn: RoTxn<'t, WithoutTls>,
    rows: Rows,
}

impl Snapshot<'_> {
    /// The value of a key.
    ///
    /// # Errors
    /// When the medium fails, or the value differs from the one written.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<&[u8]>> {
        let sealed = self.rows.get(&self.txn, key).map_err(error_of)?;
        Ok(sealed.map(|sealed| seal::open(key, sealed)).transpose()?)
    }

    /// The rows from a key up to another, exclusive.
    ///
    /// # Errors
    /// When the medium fails; for a row that differs from the one written.
    pub fn range<'s>(
        &'s self,
        from: &[u8],
        until: &[u8],
    ) -> io::Result<impl Iterator<Item = io::Result<(&'s [u8], &'s [u8])>> + use<'s>> {
        let first =
            (from <= &pages::WRITE_NO_KEY).then_some(Bound::Excluded(&pages::WRITE_NO_KEY[..]));
        let bounds = (first.unwrap_or(Bound::Included(from)), Bound::Excluded(until));
        let rows = self.rows.range(&self.txn, &bounds).map_err(error_of)?;
        Ok(rows.map(|row| {
            let (key, sealed) = row.map_err(error_of)?;
            Ok((key, seal::open(key, sealed)?))
        }))
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

    fn new(folder: &Path, bytes_max: usize) -> Table {
        Table::create(folder, [(&[254][..], Some(&b"made"[..]))].into_iter()).unwrap();
        let table = Table::open(folder, bytes_max).unwrap();
        table.write([(&[254][..], None)].into_iter()).unwrap();
        table
    }

    fn all(table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        let snapshot = table.snapshot().unwrap();
        let rows = snapshot.range(&[0], &[255]).unwrap();
        rows.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
    }

    #[test]
    fn rows_are_ordered_and_a_snapshot_is_constant() {
        let folder = tempfile::tempdir().unwrap();
        let table = new(folder.path(), BYTES_MAX);
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
    fn a_full_table_rejects_a_write_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let table = new(folder.path(), 1 << 16);
        table.write([(&[1][..], Some(&b"one"[..]))].into_iter()).unwrap();
        let big = vec![7; 1 << 16];
        let rows = [(&[2][..], Some(&b"two"[..])), (&[3], Some(&big))];
        let error = table.write(rows.into_iter()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(all(&table), [(vec![1], b"one".to_vec())]);
    }
}
