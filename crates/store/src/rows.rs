//! The row store: rows ([`disk::rows`]) in an LMDB table, and the application of records to them.
//!
//! Records are gathered over a snapshot, so that a row that changes a thousand times is written
//! once; then all rows, with the position of each shard's log, become durable in one transaction.
//! Invariant: after a crash at any moment, the table has a state between two records of each shard,
//! and names that state.

use crate::gathered::Gathered;
use crate::layout::ROWS;
use crate::logged::Logged;
use crate::required_logs::RequiredLogs;
use crate::{Store, StoreError, StoreFault, boot, files, reserve};
use bind_lmdb::{Damage, Snapshot, Table};
use disk::rows::{
    Key, LogRow, Range, Row, Rows, ShardRow, StoreRow, apply, apply_partially, begin,
};
use disk::{Fault, Promised, Record, Superblock};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use wire::{LaneId, ShardId, Wire};

/// The files in the folder of the rows.
pub(crate) const FILES: [&str; 2] = [bind_lmdb::FILE, bind_lmdb::LOCK_FILE];

/// An open row store; clones share it.
#[derive(Clone, Debug)]
pub struct RowStore {
    pub(crate) table: Table,
    /// The table's file.
    pub(crate) path: PathBuf,
}

/// The first rows of a table.
pub(crate) type FirstRows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Makes the rows of a new store: its root directory, and the store's own rows.
pub(crate) fn create(
    path: &Path,
    superblock: &Superblock,
    mut rows: FirstRows,
) -> Result<(), StoreError> {
    let folder = path.join(ROWS);
    for name in FILES.iter().filter(|name| folder.join(name).exists()) {
        files::remove(&folder.join(name))?;
    }
    let file = folder.join(bind_lmdb::FILE);
    begin(superblock.creation, &mut rows)
        .map_err(|fault| StoreError::new(&file, StoreFault::Damage(fault)))?;
    let made = rows.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice())));
    Table::create(&folder, made).map_err(|error| StoreError::io("make the rows", &file, error))?;
    files::sync_folder(&folder)
}

impl Store {
    /// Opens the rows, after the lock was taken and before any log of this boot is made. They take
    /// at most `rows_bytes_max` bytes, of which only address space is reserved. The whole file is
    /// read once. If it is damaged or missing, and the logs still have everything since the store's
    /// creation, the rows are rebuilt.
    ///
    /// # Errors
    /// [`StoreError`] when they are missing or damaged, cannot be read, or are older than the logs.
    pub fn open_rows(&mut self, rows_bytes_max: usize) -> Result<RowStore, StoreError> {
        let path = self.path.join(ROWS).join(bind_lmdb::FILE);
        let table = match open_table(&path, rows_bytes_max) {
            Err(error) if matches!(error.fault(), StoreFault::Damage(_) | StoreFault::Missing) => {
                let Some(line) = self.rebuild_rows(&error)? else { return Err(error) };
                self.repairs.push(line);
                open_table(&path, rows_bytes_max)?
            }
            opened => opened?,
        };
        table.guard().map_err(|error| error_of("guard", &path, error))?;
        let row_store = RowStore { table, path };
        let row = row_store.store_row()?;
        if row.fs != self.superblock.fs {
            return Err(row_store.damage(Fault::new("the rows of another store", 0)));
        }
        let log_boot_id = crate::logs::boot_id_max(&self.path)?;
        if log_boot_id > row.boot_id {
            return Err(row_store.rolled_back(row.boot_id, log_boot_id, "boot"));
        }
        if self.boot_id <= row.boot_id {
            // The counter is an older copy, or was lost.
            self.boot_id = row.boot_id + 1;
            boot::set(&self.path, self.boot_id)?;
            let line = boot::repaired(&self.path);
            if !self.repairs.contains(&line) {
                self.repairs.push(line);
            }
        }
        row_store.put(&[(Key::store(), StoreRow { boot_id: self.boot_id, ..row }.to_bytes())])?;
        Ok(row_store)
    }

    /// Applies the records of earlier boots that the rows lack. Before anything is written, all
    /// logs are read and compared with the required ones; before rows are written, objects get the
    /// bytes that only the logs have.
    ///
    /// # Errors
    /// [`StoreError`] when a log is damaged, missing or cut short, when records between rows and
    /// log are missing, or on an error of the medium.
    pub fn redo(&self, row_store: &RowStore) -> Result<crate::Replayed, StoreError> {
        let required = row_store.required_logs()?;
        let io = |error| error_of("write", &row_store.path, error);
        let mut gathering = row_store.gather(Gathered::default()).map_err(io)?;
        let mut logged = Logged::default();
        self.logs()
            .check(&required, |record| logged.visit(record, |shard| gathering.shard(shard)))?;
        self.put_logged(&logged.end())?;
        let (mut rolled_back, mut failed, mut new_count) = (None, None, 0);
        let replayed = self.replay(required.first_boot_id(), |record| {
            let row = gathering.shard(record.shard)?;
            if record.lsn > row.lsn + 1 {
                rolled_back = Some((row.lsn, record.lsn));
            }
            new_count += u64::from(gathering.apply(record)?);
            if gathering.is_full() {
                let fresh = gathering.write(row_store).and_then(|rows| row_store.gather(rows));
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
        if let Some((rows_lsn, log_lsn)) = rolled_back {
            return Err(row_store.rolled_back(rows_lsn, log_lsn, "record"));
        }
        let replayed = replayed?;
        // From here on none of these logs is required.
        for (lane, row) in required.over() {
            gathering.put(Key::log(lane).bytes(), &row.to_bytes());
        }
        gathering.write(row_store).map_err(io)?;
        Ok(crate::Replayed { new_count, ..replayed })
    }
}

impl RowStore {
    /// A size limit that is never reached.
    pub const ROWS_BYTES_MAX: usize = 1 << 42;

    /// Visits every row in a range, in the order of keys.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium or an invalid row, or when `visit` rejects one.
    pub fn read(
        &self,
        range: &Range,
        mut visit: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), StoreError> {
        let io = |error| error_of("read", &self.path, error);
        let snapshot = self.table.snapshot().map_err(io)?;
        for row in snapshot.range(range.from.bytes(), range.until.bytes()).map_err(io)? {
            let (key, value) = row.map_err(io)?;
            let visited = Row::decode(key, value).and_then(|row| visit(&row));
            visited.map_err(|fault| self.damage(fault))?;
        }
        Ok(())
    }

    /// Begins to gather records, in reused memory.
    pub(crate) fn gather(&self, rows: Gathered) -> io::Result<Gathering<'_>> {
        assert!(rows.is_empty(), "rows gathered before were written");
        let snapshot = SnapshotRef::Owned(self.table.snapshot()?);
        Ok(Gathering { snapshot, rows, shards: BTreeMap::new(), path: &self.path })
    }

    /// The required logs of the last boot that made some.
    ///
    /// # Errors
    /// [`StoreError`] as of [`Self::read`].
    pub fn required_logs(&self) -> Result<RequiredLogs, StoreError> {
        let io = |error| error_of("read", &self.path, error);
        required_logs(&self.table.snapshot().map_err(io)?, &self.path)
    }

    /// What was promised since the last completed recovery; `None` before the first start.
    ///
    /// # Errors
    /// [`StoreError`] as of [`Self::read`].
    pub fn promised_before(&self) -> Result<Option<Promised>, StoreError> {
        Ok(self.store_row()?.promised)
    }

    /// Records it, durably.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read or written.
    pub fn set_promised(&self, promised: Promised) -> Result<(), StoreError> {
        let row = StoreRow { promised: Some(promised), ..self.store_row()? };
        self.put(&[(Key::store(), row.to_bytes())])
    }

    /// The row of the whole store.
    pub(crate) fn store_row(&self) -> Result<StoreRow, StoreError> {
        let mut found = None;
        let key = Key::store();
        let gathering = self.gather(Gathered::default());
        let gathering = gathering.map_err(|error| error_of("read", &self.path, error))?;
        if let Some(value) = gathering.get(key.bytes()).map_err(StoreError::damage)?
            && let Ok(Row::Store(row)) = Row::decode(key.bytes(), &value)
        {
            found = Some(row);
        }
        found.ok_or_else(|| self.damage(Fault::new("rows that do not say whose they are", 0)))
    }

    /// Writes rows (`None` deletes one), all of them or none, durably.
    ///
    /// # Errors
    /// [`StoreError`] when the medium is full or fails; nothing was changed then.
    pub fn put_all(&self, rows: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<(), StoreError> {
        let mut gathered = Gathered::default();
        for (key, value) in rows {
            gathered.set(key, value.as_deref());
        }
        self.write(&mut gathered).map_err(|error| error_of("write", &self.path, error))
    }

    /// Writes a few rows, durably.
    pub(crate) fn put(&self, rows: &[(Key, Vec<u8>)]) -> Result<(), StoreError> {
        let mut gathered = Gathered::default();
        for (key, value) in rows {
            gathered.set(key.bytes(), Some(value));
        }
        self.write(&mut gathered).map_err(|error| error_of("write", &self.path, error))
    }

    /// Writes the gathered rows, durably; uses the reserve's space if there is no other.
    pub(crate) fn write(&self, rows: &mut Gathered) -> io::Result<()> {
        rows.sort();
        match self.table.write(rows.iter()) {
            Err(error) if is_full(&error) && self.store_path().is_some_and(reserve::free) => {
                self.table.write(rows.iter())?;
            }
            written => written?,
        }
        rows.clear();
        Ok(())
    }

    fn store_path(&self) -> Option<&Path> {
        self.path.parent()?.parent()
    }

    /// The path of the table's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error of a read of the table.
    pub(crate) fn error_of_read(&self, error: io::Error) -> StoreError {
        error_of("read", &self.path, error)
    }

    fn damage(&self, fault: Fault) -> StoreError {
        StoreError::damage(fault.in_file(&self.path.display().to_string(), 0))
    }

    fn rolled_back(&self, rows: u64, log: u64, what: &'static str) -> StoreError {
        StoreError::new(&self.path, StoreFault::RolledBack { rows, log, what })
    }
}

/// Records gathered over a snapshot of the rows, not written yet.
pub(crate) struct Gathering<'t> {
    snapshot: SnapshotRef<'t>,
    rows: Gathered,
    shards: BTreeMap<ShardId, ShardRow>,
    /// The table's file.
    path: &'t Path,
}

/// The snapshot under the gathered rows.
enum SnapshotRef<'t> {
    Owned(Snapshot<'t>),
    Borrowed(&'t Snapshot<'static>),
}

impl SnapshotRef<'_> {
    fn get(&self, key: &[u8]) -> io::Result<Option<&[u8]>> {
        match self {
            Self::Owned(snapshot) => snapshot.get(key),
            Self::Borrowed(snapshot) => snapshot.get(key),
        }
    }
}

impl<'t> Gathering<'t> {
    /// Begins over a borrowed snapshot of the table in this file.
    pub(crate) fn over(snapshot: &'t Snapshot<'static>, path: &'t Path) -> Self {
        let rows = Gathered::default();
        Self { snapshot: SnapshotRef::Borrowed(snapshot), rows, shards: BTreeMap::new(), path }
    }
}

impl Gathering<'_> {
    /// The gathered rows, as an overlay of the snapshot; `None`: deleted.
    pub(crate) fn into_rows(mut self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        for (shard, row) in &std::mem::take(&mut self.shards) {
            self.put(Key::shard(*shard).bytes(), &row.to_bytes());
        }
        let owned =
            |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
        self.rows.iter().map(owned).collect()
    }

    /// Applies a record, unless it is in the rows already; returns whether it was new.
    pub(crate) fn apply(&mut self, record: &Record<'_>) -> Result<bool, Fault> {
        let mut row = self.shard(record.shard)?;
        let applied = apply(record, &mut row, self)?;
        if applied {
            self.shards.insert(record.shard, row);
        }
        Ok(applied)
    }

    /// Applies the applicable changes of a record to incomplete rows; returns how many do not fit.
    pub(crate) fn apply_partially(&mut self, record: &Record<'_>) -> Result<u64, Fault> {
        let mut row = self.shard(record.shard)?;
        let left_out_count = apply_partially(record, &mut row, self)?;
        self.shards.insert(record.shard, row);
        Ok(left_out_count)
    }

    /// How far a shard's log is applied.
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

    /// Whether it should be written before more is gathered.
    pub(crate) const fn is_full(&self) -> bool {
        self.rows.is_full()
    }

    /// Writes all rows at once, durably. Returns the memory, for reuse.
    pub(crate) fn write(&mut self, row_store: &RowStore) -> io::Result<Gathered> {
        for (shard, row) in &std::mem::take(&mut self.shards) {
            self.put(Key::shard(*shard).bytes(), &row.to_bytes());
        }
        let mut rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(rows);
        }
        row_store.write(&mut rows)?;
        Ok(rows)
    }
}

/// The required logs, according to a snapshot of this file.
pub(crate) fn required_logs(
    snapshot: &Snapshot<'_>,
    path: &Path,
) -> Result<RequiredLogs, StoreError> {
    let io = |error| error_of("read", path, error);
    let range = Range::logs();
    let mut rows: BTreeMap<LaneId, LogRow> = BTreeMap::new();
    for row in snapshot.range(range.from.bytes(), range.until.bytes()).map_err(io)? {
        let (key, value) = row.map_err(io)?;
        let row = Row::decode(key, value);
        let row = row.map_err(|fault| StoreError::new(path, StoreFault::Damage(fault)))?;
        if let Row::Log { lane, row } = row {
            rows.insert(lane, row);
        }
    }
    Ok(RequiredLogs::new(path.to_owned(), rows))
}

/// Whether the disk is full. Space does not help a table that has its greatest size.
fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
}

fn open_table(path: &Path, rows_bytes_max: usize) -> Result<Table, StoreError> {
    if !path.is_file() {
        return Err(StoreError::new(path, StoreFault::Missing));
    }
    let folder = path.parent().unwrap_or(path);
    Table::open(folder, rows_bytes_max).map_err(|error| error_of("open", path, error))
}

/// The `StoreError` for an error of the table.
pub(crate) fn error_of(what: &'static str, path: &Path, error: io::Error) -> StoreError {
    match Damage::of(&error) {
        Some(damage) => StoreError::new(path, StoreFault::Damage(damaged(damage))),
        None => StoreError::io(what, path, error),
    }
}

pub(crate) fn damaged(damage: &Damage) -> Fault {
    let what = damage.table.map_or(damage.what, disk::rows::row_damage);
    Fault::new(what, damage.offset).numbers(damage.expected, damage.found)
}

fn fault_of(path: &Path, error: &io::Error) -> Fault {
    let path = path.display().to_string();
    if let Some(damage) = Damage::of(error) {
        return damaged(damage).on(&path);
    }
    let errno = u64::from(error.raw_os_error().unwrap_or(0).unsigned_abs());
    Fault::new("the rows cannot be read", 0).numbers(0_u64, errno).on(&path)
}

impl Rows for Gathering<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Fault> {
        if let Some(value) = self.rows.get(key) {
            return Ok(value.map(Cow::Borrowed));
        }
        let value = self.snapshot.get(key).map_err(|error| fault_of(self.path, &error))?;
        Ok(value.map(Cow::Borrowed))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.rows.set(key, Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.rows.set(key, None);
    }

    fn delete_range(&mut self, range: &Range) -> Result<(), Fault> {
        let Self { snapshot, rows, path, .. } = self;
        let fault = |error: io::Error| fault_of(path, &error);
        let (from, until) = (range.from.bytes(), range.until.bytes());
        match snapshot {
            SnapshotRef::Owned(snapshot) => {
                for row in snapshot.range(from, until).map_err(fault)? {
                    rows.set(row.map_err(fault)?.0, None);
                }
            }
            SnapshotRef::Borrowed(snapshot) => {
                for row in snapshot.range(from, until).map_err(fault)? {
                    rows.set(row.map_err(fault)?.0, None);
                }
            }
        }
        rows.delete_range(range);
        Ok(())
    }
}
