//! The cold store: rows ([`disk::rows`]) in an LMDB table, and how records get into it.
//!
//! Records are gathered over a snapshot, so that a row that changes a thousand times is written
//! once; then all rows, and how far each shard's log is in them, become durable in one step.
//! Invariant: whatever moment the process dies in, the table has a state between two records of each
//! shard and says which.

use crate::gathered::Gathered;
use crate::{ROWS, Store, StoreError, StoreFault, reserve};
use bind_lmdb::{Snapshot, Table};
use disk::rows::{Key, Range, Row, Rows, ShardRow, StoreRow, apply, begin};
use disk::{Fault, Record};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use wire::{ShardId, Wire};

/// Rows gathered before they are written, in bytes.
const GATHERED_BYTES_MAX: usize = 16 << 20;

/// An open cold store; clones are the same one.
#[derive(Clone, Debug)]
pub struct ColdStore {
    pub(crate) table: Table,
    pub(crate) path: PathBuf,
}

impl Store {
    /// Opens the rows, after the lock was had and before any log of this boot is made. They take
    /// `rows_bytes_max` bytes at most, of which only address space is taken beforehand.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read, or are older than the logs.
    pub fn open_rows(&self, rows_bytes_max: usize) -> Result<ColdStore, StoreError> {
        let path = self.path.join(ROWS);
        if !path.is_dir() {
            return Err(StoreError::new(&path, StoreFault::Missing));
        }
        let io = |error| StoreError::io("open the rows in", &path, error);
        let table = Table::open(&path, rows_bytes_max).map_err(io)?;
        let cold = ColdStore { table, path: path.clone() };
        let mut gathering = cold.gather(Gathered::default()).map_err(io)?;
        let known = gathering.store_row().map_err(|fault| cold.damage(fault))?;
        let (rows_boot_id, log_boot_id) = (known.boot_id, crate::logs::boot_id_max(&self.path)?);
        if log_boot_id > rows_boot_id {
            return Err(cold.went_back(rows_boot_id, log_boot_id, "boot"));
        }
        begin(self.superblock.made, &mut gathering).map_err(|fault| cold.damage(fault))?;
        gathering.put(Key::store().bytes(), &self.boot_id.to_bytes());
        gathering.write(&cold).map_err(io)?;
        drop(gathering);
        Ok(cold)
    }

    /// Applies what the logs of earlier boots have beyond the rows.
    ///
    /// # Errors
    /// [`StoreError`] when a log is damaged or goes on behind the rows' end, or when the medium fails.
    pub fn redo(&self, cold: &ColdStore) -> Result<crate::Replayed, StoreError> {
        let io = |error| StoreError::io("write the rows in", &cold.path, error);
        let mut gathering = cold.gather(Gathered::default()).map_err(io)?;
        let (mut went_back, mut failed, mut new_count) = (None, None, 0);
        let replayed = self.replay(|record| {
            let row = gathering.shard(record.shard)?;
            if record.lsn > row.lsn + 1 {
                went_back = Some((row.lsn, record.lsn));
            }
            new_count += u64::from(gathering.apply(record)?);
            if gathering.is_full() {
                let fresh = gathering.write(cold).and_then(|rows| cold.gather(rows));
                match fresh {
                    Ok(fresh) => gathering = fresh,
                    Err(error) => {
                        failed = Some(error);
                        return Err(Fault::new("the rows cannot be written", 0));
                    }
                }
            }
            Ok(())
        });
        if let Some(error) = failed {
            return Err(io(error));
        }
        if let Some((rows_lsn, log_lsn)) = went_back {
            return Err(cold.went_back(rows_lsn, log_lsn, "record"));
        }
        let replayed = replayed?;
        gathering.write(cold).map_err(io)?;
        Ok(crate::Replayed { new_count, ..replayed })
    }
}

impl ColdStore {
    /// Bytes of rows that are never reached.
    pub const ROWS_BYTES_MAX: usize = 1 << 42;

    /// Tells of every row in a range, in the order of keys.
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails or has what is no row, or `feed` finds fault with one.
    pub fn read(
        &self,
        range: &Range,
        mut feed: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), StoreError> {
        let io = |error| StoreError::io("read the rows in", &self.path, error);
        let snapshot = self.table.snapshot().map_err(io)?;
        for row in snapshot.range(range.from.bytes(), range.until.bytes()).map_err(io)? {
            let (key, value) = row.map_err(io)?;
            let fed = Row::decode(key, value).and_then(|row| feed(&row));
            fed.map_err(|fault| self.damage(fault))?;
        }
        Ok(())
    }

    /// Puts rows (`None`: takes one away), all of them or none, durably.
    ///
    /// # Errors
    /// [`StoreError`] when the medium is full or fails; nothing was changed then.
    pub fn write(&self, rows: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<(), StoreError> {
        let rows = rows.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        let written = self.table.write(rows);
        written.map_err(|error| StoreError::io("write the rows in", &self.path, error))
    }

    /// Begins to gather records, in memory that was used before.
    pub(crate) fn gather(&self, rows: Gathered) -> io::Result<Gathering<'_>> {
        assert!(rows.is_empty(), "what was gathered before was written");
        let snapshot = Under::Own(self.table.snapshot()?);
        Ok(Gathering { snapshot, rows, shards: BTreeMap::new() })
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn damage(&self, fault: Fault) -> StoreError {
        StoreError::new(&self.path, StoreFault::Damage(fault))
    }

    pub(crate) fn went_back(&self, rows: u64, log: u64, what: &'static str) -> StoreError {
        StoreError::new(&self.path, StoreFault::WentBack { rows, log, what })
    }
}

/// Records over a snapshot of the rows, not written yet.
pub(crate) struct Gathering<'t> {
    snapshot: Under<'t>,
    rows: Gathered,
    shards: BTreeMap<ShardId, ShardRow>,
}

/// What lies under what is gathered.
enum Under<'t> {
    Own(Snapshot<'t>),
    Lent(&'t Snapshot<'static>),
}

impl Under<'_> {
    fn get(&self, key: &[u8]) -> io::Result<Option<&[u8]>> {
        match self {
            Self::Own(snapshot) => snapshot.get(key),
            Self::Lent(snapshot) => snapshot.get(key),
        }
    }
}

impl<'t> Gathering<'t> {
    /// Begins over a snapshot that stays.
    pub(crate) fn over(snapshot: &'t Snapshot<'static>) -> Self {
        let rows = Gathered::default();
        Self { snapshot: Under::Lent(snapshot), rows, shards: BTreeMap::new() }
    }
}

impl Gathering<'_> {
    /// Applies a record, unless the rows have it; says whether they had not.
    pub(crate) fn apply(&mut self, record: &Record<'_>) -> Result<bool, Fault> {
        let mut row = self.shard(record.shard)?;
        let applied = apply(record, &mut row, self)?;
        if applied {
            self.shards.insert(record.shard, row);
        }
        Ok(applied)
    }

    /// How far a shard is.
    pub(crate) fn shard(&self, shard: ShardId) -> Result<ShardRow, Fault> {
        match self.shards.get(&shard) {
            Some(row) => Ok(*row),
            None => {
                let value = Rows::get(self, Key::shard(shard).bytes())?;
                let row = value.map(|value| ShardRow::decode_all(&value));
                row.transpose()
                    .map_err(|_| Fault::new("a row that does not decode", 0))
                    .map(Option::unwrap_or_default)
            }
        }
    }

    pub(crate) fn store_row(&self) -> Result<StoreRow, Fault> {
        let key = Key::store();
        let value = Rows::get(self, key.bytes())?;
        let row = value.as_deref().map(|value| Row::decode(key.bytes(), value)).transpose()?;
        match row {
            Some(Row::Store(row)) => Ok(row),
            Some(_) | None => Ok(StoreRow { boot_id: 0 }),
        }
    }

    /// Whether it should be written before more is gathered.
    pub(crate) const fn is_full(&self) -> bool {
        self.rows.bytes_count() >= GATHERED_BYTES_MAX
    }

    /// Makes everything durable at once. Returns when it is, with memory to gather in again.
    pub(crate) fn write(&mut self, cold: &ColdStore) -> io::Result<Gathered> {
        for (shard, row) in &std::mem::take(&mut self.shards) {
            self.put(Key::shard(*shard).bytes(), &row.to_bytes());
        }
        let mut rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(rows);
        }
        rows.sort();
        match cold.table.write(rows.iter()) {
            Err(error) if is_full(&error) && cold.path.parent().is_some_and(reserve::give) => {
                cold.table.write(rows.iter())?;
            }
            written => written?,
        }
        rows.clear();
        Ok(rows)
    }
}

impl Gathering<'_> {
    /// What was gathered, as rows that lie over the snapshot; `None`: taken away.
    pub(crate) fn into_rows(mut self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        for (shard, row) in &std::mem::take(&mut self.shards) {
            self.put(Key::shard(*shard).bytes(), &row.to_bytes());
        }
        let owned =
            |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
        self.rows.iter().map(owned).collect()
    }
}

/// Whether the disk is full; a table that has reached its greatest size is not helped by space.
fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
}

fn fault_of(error: &io::Error) -> Fault {
    let errno = u64::from(error.raw_os_error().unwrap_or(0).unsigned_abs());
    Fault::new("the rows cannot be read", 0).numbers(0_u64, errno)
}

impl Rows for Gathering<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Fault> {
        if let Some(value) = self.rows.get(key) {
            return Ok(value.map(Cow::Borrowed));
        }
        let value = self.snapshot.get(key).map_err(|error| fault_of(&error))?;
        Ok(value.map(Cow::Borrowed))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.rows.set(key, Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.rows.set(key, None);
    }

    fn delete_range(&mut self, range: &Range) -> Result<(), Fault> {
        let fault = |error: io::Error| fault_of(&error);
        let Self { snapshot, rows, .. } = self;
        let (from, until) = (range.from.bytes(), range.until.bytes());
        match snapshot {
            Under::Own(snapshot) => {
                for row in snapshot.range(from, until).map_err(fault)? {
                    rows.set(row.map_err(fault)?.0, None);
                }
            }
            Under::Lent(snapshot) => {
                for row in snapshot.range(from, until).map_err(fault)? {
                    rows.set(row.map_err(fault)?.0, None);
                }
            }
        }
        rows.delete_range(range);
        Ok(())
    }
}
