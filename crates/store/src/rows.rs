//! The cold store: rows ([`disk::rows`]) in an LMDB table, and how records get into it.
//!
//! Records are gathered over a snapshot, so that a row that changes a thousand times is written
//! once; then all rows, and how far each shard's log is in them, become durable in one step.
//! Invariant: whatever moment the process dies in, the table has a state between two records of each
//! shard and says which.

use crate::gathered::Gathered;
use crate::needed::Needed;
use crate::{ROWS, Store, StoreError, StoreFault, boot, files, reserve};
use bind_lmdb::{Damage, Snapshot, Table};
use disk::rows::{
    Key, LogRow, Range, Row, Rows, ShardRow, StoreRow, apply, apply_partially, begin,
};
use disk::{Fault, Record, Share, Superblock};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use wire::{LaneId, ShardId, Wire};

/// What there may be in the folder of the rows.
pub(crate) const FILES: [&str; 2] = [bind_lmdb::FILE, bind_lmdb::LOCK_FILE];

/// An open cold store; clones are the same one.
#[derive(Clone, Debug)]
pub struct RowStore {
    pub(crate) table: Table,
    /// The table's file.
    pub(crate) path: PathBuf,
}

/// The first rows of a table.
pub(crate) type Begun = BTreeMap<Vec<u8>, Vec<u8>>;

/// Makes the rows of a new store: its root directory, and what is said of the store.
pub(crate) fn create(
    path: &Path,
    superblock: &Superblock,
    mut rows: Begun,
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
    /// Opens the rows, after the lock was had and before any log of this boot is made. They take
    /// `rows_bytes_max` bytes at most, of which only address space is taken beforehand. The whole
    /// file is read once. If it is damaged or missing, and the logs still have all since the store was
    /// made, the rows are made anew.
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
        let cold = RowStore { table, path };
        let row = cold.store_row()?;
        if row.fs != self.superblock.fs {
            return Err(cold.damage(Fault::new("the rows of another store", 0)));
        }
        let log_boot_id = crate::logs::boot_id_max(&self.path)?;
        if log_boot_id > row.boot_id {
            return Err(cold.went_back(row.boot_id, log_boot_id, "boot"));
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
        cold.put(&[(Key::store(), StoreRow { boot_id: self.boot_id, ..row }.to_bytes())])?;
        Ok(cold)
    }

    /// Applies what the logs of earlier boots have beyond the rows. Before anything is written, all
    /// logs are read and held against what must be there.
    ///
    /// # Errors
    /// [`StoreError`] when a log is damaged, missing or cut short, when one goes on behind the rows'
    /// end, or when the medium fails.
    pub fn redo(&self, cold: &RowStore) -> Result<crate::Replayed, StoreError> {
        let needed = cold.needed()?;
        self.check_logs(&needed)?;
        let io = |error| error_of("write", &cold.path, error);
        let mut gathering = cold.gather(Gathered::default()).map_err(io)?;
        let (mut went_back, mut failed, mut new_count) = (None, None, 0);
        let replayed = self.replay(needed.first_boot_id(), |record| {
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
        // From here on none of these logs is needed.
        for (lane, row) in needed.over() {
            gathering.put(Key::log(lane).bytes(), &row.to_bytes());
        }
        gathering.write(cold).map_err(io)?;
        Ok(crate::Replayed { new_count, ..replayed })
    }
}

impl RowStore {
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
        let io = |error| error_of("read", &self.path, error);
        let snapshot = self.table.snapshot().map_err(io)?;
        for row in snapshot.range(range.from.bytes(), range.until.bytes()).map_err(io)? {
            let (key, value) = row.map_err(io)?;
            let fed = Row::decode(key, value).and_then(|row| feed(&row));
            fed.map_err(|fault| self.damage(fault))?;
        }
        Ok(())
    }

    /// Begins to gather records, in memory that was used before.
    pub(crate) fn gather(&self, rows: Gathered) -> io::Result<Gathering<'_>> {
        assert!(rows.is_empty(), "what was gathered before was written");
        let snapshot = Under::Own(self.table.snapshot()?);
        Ok(Gathering { snapshot, rows, shards: BTreeMap::new(), path: &self.path })
    }

    /// What there must be of the logs of the last boot that made some.
    ///
    /// # Errors
    /// [`StoreError`] as of [`Self::read`].
    pub fn needed(&self) -> Result<Needed, StoreError> {
        let io = |error| error_of("read", &self.path, error);
        needed(&self.table.snapshot().map_err(io)?, &self.path)
    }

    /// The weakest sharing mode that was in force since a recovery was completed last.
    ///
    /// # Errors
    /// [`StoreError`] as of [`Self::read`].
    pub fn share_before(&self) -> Result<Option<Share>, StoreError> {
        Ok(self.store_row()?.share)
    }

    /// Remembers that mode, durably.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read or written.
    pub fn set_share(&self, share: Share) -> Result<(), StoreError> {
        let row = StoreRow { share: Some(share), ..self.store_row()? };
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

    /// Puts rows (`None`: takes one away), all of them or none, durably.
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

    /// Puts a few rows, durably.
    pub(crate) fn put(&self, rows: &[(Key, Vec<u8>)]) -> Result<(), StoreError> {
        let mut gathered = Gathered::default();
        for (key, value) in rows {
            gathered.set(key.bytes(), Some(value));
        }
        self.write(&mut gathered).map_err(|error| error_of("write", &self.path, error))
    }

    /// Writes what was gathered, durably; with the reserve's space if there is no other.
    pub(crate) fn write(&self, rows: &mut Gathered) -> io::Result<()> {
        rows.sort();
        match self.table.write(rows.iter()) {
            Err(error) if is_full(&error) && self.store_path().is_some_and(reserve::give) => {
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

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a read of the table met, in words for people.
    pub(crate) fn error_of_read(&self, error: io::Error) -> StoreError {
        error_of("read", &self.path, error)
    }

    fn damage(&self, fault: Fault) -> StoreError {
        StoreError::damage(fault.in_file(&self.path.display().to_string(), 0))
    }

    fn went_back(&self, rows: u64, log: u64, what: &'static str) -> StoreError {
        StoreError::new(&self.path, StoreFault::WentBack { rows, log, what })
    }
}

/// Records over a snapshot of the rows, not written yet.
pub(crate) struct Gathering<'t> {
    snapshot: Under<'t>,
    rows: Gathered,
    shards: BTreeMap<ShardId, ShardRow>,
    /// The table's file.
    path: &'t Path,
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
    /// Begins over a snapshot that stays, of the table in this file.
    pub(crate) fn over(snapshot: &'t Snapshot<'static>, path: &'t Path) -> Self {
        let rows = Gathered::default();
        Self { snapshot: Under::Lent(snapshot), rows, shards: BTreeMap::new(), path }
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

    /// Applies a record, unless the rows have it; says whether they had not.
    pub(crate) fn apply(&mut self, record: &Record<'_>) -> Result<bool, Fault> {
        let mut row = self.shard(record.shard)?;
        let applied = apply(record, &mut row, self)?;
        if applied {
            self.shards.insert(record.shard, row);
        }
        Ok(applied)
    }

    /// Applies what fits of a record to rows that are not whole; how many of its changes do not.
    pub(crate) fn apply_partially(&mut self, record: &Record<'_>) -> Result<u64, Fault> {
        let mut row = self.shard(record.shard)?;
        let left_out_count = apply_partially(record, &mut row, self)?;
        self.shards.insert(record.shard, row);
        Ok(left_out_count)
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

    /// Whether it should be written before more is gathered.
    pub(crate) const fn is_full(&self) -> bool {
        self.rows.is_full()
    }

    /// Makes everything durable at once. Returns when it is, with memory to gather in again.
    pub(crate) fn write(&mut self, cold: &RowStore) -> io::Result<Gathered> {
        for (shard, row) in &std::mem::take(&mut self.shards) {
            self.put(Key::shard(*shard).bytes(), &row.to_bytes());
        }
        let mut rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(rows);
        }
        cold.write(&mut rows)?;
        Ok(rows)
    }
}

/// What there must be of the logs, as the rows of a snapshot of this file say.
pub(crate) fn needed(snapshot: &Snapshot<'_>, path: &Path) -> Result<Needed, StoreError> {
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
    Ok(Needed::new(path.to_owned(), rows))
}

/// Whether the disk is full; a table that has reached its greatest size is not helped by space.
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

/// What an error of the table is to people.
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
