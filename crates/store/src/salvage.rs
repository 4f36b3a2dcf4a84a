//! Salvage: rebuilding the rows of a damaged file from its readable rows and the logs.
//!
//! The new rows are written beside the damaged ones, with all records that the logs have beyond
//! them, and replace them when complete. Invariants: after a crash at any moment, the store has the
//! damaged file or the new one under the name; the damaged one stays in `quarantine/`; an
//! unreadable row is missing, never invented, except for the rows of the store itself.

use crate::error::StoreFault;
use crate::gathered::Gathered;
use crate::layout::{QUARANTINE, ROWS, SUPERBLOCK};
use crate::lock::Lock;
use crate::logged::Logged;
use crate::logs::{Logs, boot_id_max};
use crate::rows::{RowStore, error_of};
use crate::superblock::read_superblock;
use crate::{Store, StoreError, files, owner};
use bind_lmdb::{Age, Salvaged, Table};
use disk::rows::{Key, LogRow, ObjectRow, Row, Rows as _, ShardRow, StoreRow, is_later};
use disk::{BlockSum, Fault, LOG_HEADER_BYTES, LogPosition, Promised};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use wire::{LaneId, ShardId, Wire as _};

pub use bind_lmdb::Lost as LostRows;

/// The folder of the new rows until they are complete.
const SALVAGED: &str = "salvaged";
/// Inode numbers that are skipped where the last assigned one is not known: clients and objects may
/// have some of them.
const LEFT_OUT_COUNT: u64 = 1 << 20;

/// The damage of a store's rows, and what can be read of them.
#[derive(Debug)]
pub struct DamagedRows {
    /// The file.
    pub path: PathBuf,
    /// The damage.
    pub damage: Fault,
    /// The logs have everything since the store's creation: the next start rebuilds the rows, and
    /// nothing is lost.
    pub is_in_logs: bool,
    /// Readable rows of the newest state.
    pub row_count: u64,
    /// The number of rows according to the file, if known.
    pub recorded_row_count: Option<u64>,
    /// Readable rows that may be of an older state.
    pub undated_count: u64,
    /// Ranges of keys that cannot be read.
    pub lost: Vec<LostRows>,
    /// All readable rows may be of the state before the newest.
    pub is_previous_state: bool,
    /// Changes in the logs that do not fit the readable rows; counted when the logs are applied.
    pub left_out_count: u64,
    /// A message about missing parts of the logs.
    pub log_gap: Option<String>,
}

/// A step of [`Store::salvage_rows`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SalvageStep {
    /// The new rows are complete, under another name.
    Written,
    /// The damaged file has a second name.
    Quarantined,
    /// The new rows have its name.
    Replaced,
}

/// The damage of the rows of a store that no process has open; `None` if they are intact. Changes
/// nothing.
///
/// # Errors
/// [`StoreError`] when there is no store, a process has it open, or the file cannot be read at all.
pub fn damaged_rows(path: &Path) -> Result<Option<DamagedRows>, StoreError> {
    if !path.join(SUPERBLOCK).exists() {
        return Err(StoreError::new(path, StoreFault::NoStore));
    }
    owner::check(path)?;
    let _lock = Lock::take(path)?;
    let superblock = read_superblock(path)?;
    examine(&Logs { path, fs: superblock.fs, boot_id_end: u64::MAX })
}

fn examine(logs: &Logs<'_>) -> Result<Option<DamagedRows>, StoreError> {
    let path = logs.path.join(ROWS).join(bind_lmdb::FILE);
    let is_in_logs = logs.first()?.is_some();
    let mut damaged = DamagedRows {
        path,
        damage: Fault::new("the file is missing", 0),
        is_in_logs,
        row_count: 0,
        recorded_row_count: None,
        undated_count: 0,
        lost: Vec::new(),
        is_previous_state: false,
        left_out_count: 0,
        log_gap: None,
    };
    if !damaged.path.is_file() {
        return Ok(Some(damaged));
    }
    let io = |error| error_of("read", &damaged.path, error);
    let file = File::open(&damaged.path).map_err(io)?;
    let Some(damage) = bind_lmdb::damage(&file).map_err(io)? else { return Ok(None) };
    if is_in_logs {
        return Ok(Some(DamagedRows { damage: crate::rows::damaged(&damage), ..damaged }));
    }
    let mut undated_count = 0;
    let mut visit = |_: &[u8], _: &[u8], age: Age| {
        undated_count += u64::from(age == Age::Unknown);
        Ok(())
    };
    let Salvaged { row_count, recorded_row_count, lost, is_previous_state } =
        bind_lmdb::salvage(&file, &mut visit).map_err(io)?;
    damaged.damage = crate::rows::damaged(&damage);
    damaged.row_count = row_count - undated_count;
    Ok(Some(DamagedRows { recorded_row_count, undated_count, lost, is_previous_state, ..damaged }))
}

impl DamagedRows {
    /// Whether no row at all can be read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.row_count == 0 && self.undated_count == 0
    }
}

impl Store {
    /// Rebuilds the rows if their file is damaged; `None`: it is intact. [`Store::open_rows`]
    /// rebuilds rows that are completely in the logs. `observe` is called after every step; its
    /// error ends the salvage there.
    ///
    /// # Errors
    /// [`StoreError`] when no row can be read, a log is damaged or on an error of the medium. The
    /// damaged file stays in place unless the last step was reached.
    pub fn salvage_rows(
        &self,
        observe: &mut dyn FnMut(SalvageStep) -> io::Result<()>,
    ) -> Result<Option<DamagedRows>, StoreError> {
        let Some(mut damaged) = examine(&self.logs())? else { return Ok(None) };
        if damaged.is_in_logs {
            return Ok(Some(damaged));
        }
        if damaged.is_empty() {
            let fault = StoreFault::RowsUnreadable { fault: damaged.damage };
            return Err(StoreError::new(&damaged.path, fault));
        }
        let path = damaged.path.clone();
        let io = |error| error_of("salvage", &path, error);
        let folder = self.path.join(ROWS).join(SALVAGED);
        remove_folder(&folder)?;
        files::make_folder(&folder)?;
        self.write_anew(&folder, &mut damaged)?;
        observe(SalvageStep::Written).map_err(io)?;
        let quarantine = self.path.join(QUARANTINE);
        files::make_folder(&quarantine)?;
        let aside = quarantine.join(format!("rows-{}.mdb", self.boot_id));
        fs::hard_link(&path, &aside).map_err(io)?;
        files::sync_folder(&quarantine)?;
        files::sync_folder(&self.path)?;
        observe(SalvageStep::Quarantined).map_err(io)?;
        fs::rename(folder.join(bind_lmdb::FILE), &path).map_err(io)?;
        files::sync_folder(&self.path.join(ROWS))?;
        observe(SalvageStep::Replaced).map_err(io)?;
        remove_folder(&folder)?;
        Ok(Some(damaged))
    }

    /// Writes complete rows into a folder: the readable rows, and the logs applied to them.
    fn write_anew(&self, folder: &Path, damaged: &mut DamagedRows) -> Result<(), StoreError> {
        let path = damaged.path.clone();
        let io = |error| error_of("salvage", &path, error);
        Table::create(folder, std::iter::empty()).map_err(io)?;
        let table = Table::open(folder, RowStore::ROWS_BYTES_MAX).map_err(io)?;
        let row_store = RowStore { table, path: path.clone() };
        let mut writing = Writing {
            row_store: &row_store,
            rows: Gathered::default(),
            shards: BTreeMap::new(),
            is_previous_state: damaged.is_previous_state,
        };
        let file = File::open(&path).map_err(io)?;
        bind_lmdb::salvage(&file, &mut |key, value, age| writing.row(key, value, age))
            .map_err(io)?;
        let shards = writing.end().map_err(io)?;
        self.redo_applicable(&row_store, damaged)?;
        self.write_store_rows(&row_store, &shards)?;
        Ok(())
    }

    /// Applies the logs to incomplete rows.
    fn redo_applicable(
        &self,
        row_store: &RowStore,
        damaged: &mut DamagedRows,
    ) -> Result<(), StoreError> {
        let io = |error| error_of("write", &row_store.path, error);
        let required = row_store.required_logs()?;
        // Where the rows about the logs are missing or old, the existing logs are accepted.
        let is_vague =
            damaged.is_previous_state || damaged.undated_count > 0 || required.boot_id() == 0;
        match self.logs().check(&required, |_| Ok(())) {
            Err(error) if is_vague && error.is_about_missing_logs() => {
                let is_known = required.boot_id() > 0;
                damaged.log_gap = is_known.then(|| error.to_string());
            }
            checked => checked?,
        }
        let mut logged = Logged::default();
        let mut gathering = row_store.gather(Gathered::default()).map_err(io)?;
        let (mut left_out_count, mut failed) = (0, None);
        let replayed = self.replay(required.first_boot_id(), |record| {
            logged.visit(record, |shard| gathering.shard(shard))?;
            left_out_count += gathering.apply_partially(record)?;
            if gathering.is_full() {
                match gathering.write(row_store).and_then(|rows| row_store.gather(rows)) {
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
        replayed?;
        // Where records are missing, they are earlier ones: what later ones have is as it must be.
        self.put_logged(&logged.contents)?;
        for (lane, row) in required.over() {
            gathering.put(Key::log(lane).bytes(), &row.to_bytes());
        }
        gathering.write(row_store).map_err(io)?;
        damaged.left_out_count = left_out_count;
        Ok(())
    }

    /// Writes the rows of the store itself, where they are lost, and records that no log is
    /// required any more.
    fn write_store_rows(
        &self,
        row_store: &RowStore,
        shards: &BTreeMap<ShardId, ShardRow>,
    ) -> Result<(), StoreError> {
        let logged = boot_id_max(&self.path)?;
        let mut rows = Vec::new();
        let store_row = row_store.store_row().ok().filter(|row| row.fs == self.superblock.fs);
        // What was promised is not known any more. Some boot has made logs.
        let unknown = StoreRow {
            fs: self.superblock.fs,
            boot_id: 0,
            first_boot_id: self.boot_id,
            promised: Some(Promised::UNKNOWN),
        };
        let store_row = store_row.unwrap_or(unknown);
        let boot_id = store_row.boot_id.max(logged);
        rows.push((Key::store(), StoreRow { boot_id, ..store_row }.to_bytes()));
        if logged > row_store.required_logs()?.boot_id() {
            let offset = u64::try_from(LOG_HEADER_BYTES).unwrap_or(u64::MAX);
            let row = LogRow {
                boot_id: logged,
                lane_count: 1,
                segment_no_last: 1,
                place: LogPosition { segment_no: 1, offset },
                batch_no: 0,
                is_applied: true,
            };
            rows.push((Key::log(LaneId(0)), row.to_bytes()));
        }
        let gathering = row_store.gather(Gathered::default());
        let gathering = gathering.map_err(|error| error_of("read", &row_store.path, error))?;
        for (shard, seen) in shards {
            // It includes what the logs have changed.
            let row = gathering.shard(*shard).map_err(StoreError::damage)?;
            let is_above = seen.next_count == 0 || row.next_count > seen.next_count;
            if is_above && row.transno >= seen.transno {
                continue;
            }
            let next_count = match seen.next_count {
                0 => 0,
                count => count.saturating_add(LEFT_OUT_COUNT),
            };
            let row = ShardRow {
                transno: row.transno.max(seen.transno),
                next_count: row.next_count.max(next_count),
                ..row
            };
            rows.push((Key::shard(*shard), row.to_bytes()));
        }
        drop(gathering);
        row_store.put(&rows)
    }
}

/// Rows being written into a new table.
struct Writing<'c> {
    row_store: &'c RowStore,
    rows: Gathered,
    /// What other rows show of each shard: its highest transaction and the highest inode number.
    shards: BTreeMap<ShardId, ShardRow>,
    is_previous_state: bool,
}

impl Writing<'_> {
    fn row(&mut self, key: &[u8], value: &[u8], age: Age) -> io::Result<()> {
        let decoded = Row::decode(key, value).ok();
        if let Some(row) = &decoded {
            self.learn(row);
        }
        if age == Age::Unknown && !self.is_new(key, value)? {
            return Ok(());
        }
        // Old checksums would report contents that were written since as damaged.
        if self.is_previous_state || age == Age::Unknown {
            match decoded {
                Some(Row::Sums { .. }) => return Ok(()),
                Some(Row::Object { row, .. }) => {
                    let row = ObjectRow { first_sum: BlockSum::NONE, ..row };
                    return self.put(key, &row.to_bytes());
                }
                Some(_) | None => {}
            }
        }
        self.put(key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.rows.set(key, Some(value));
        if self.rows.is_full() {
            self.row_store.write(&mut self.rows)?;
        }
        Ok(())
    }

    /// Whether no later value of the key was read before.
    fn is_new(&self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        if let Some(known) = self.rows.get(key) {
            return Ok(known.is_none_or(|known| is_later(key, value, known)));
        }
        let snapshot = self.row_store.table.snapshot()?;
        let known = snapshot.get(key)?;
        Ok(known.is_none_or(|known| is_later(key, value, known)))
    }

    fn learn(&mut self, row: &Row<'_>) {
        let (shard, transno, count) = match *row {
            Row::Inode(row) => (row.inode.shard(), row.version.max(row.touched), row.inode.count()),
            Row::Slot { shard, row, .. } => (shard, row.transno, 0),
            Row::Prepared { shard, transno, .. } | Row::Recovered { shard, transno } => {
                (shard, transno, 0)
            }
            Row::Target { .. }
            | Row::Xattr { .. }
            | Row::Dirent { .. }
            | Row::Listing { .. }
            | Row::Orphan { .. }
            | Row::Session { .. }
            | Row::Shard { .. }
            | Row::Object { .. }
            | Row::Sums { .. }
            | Row::Stripe { .. }
            | Row::Evicted { .. }
            | Row::EvictedLast { .. }
            | Row::VbrFailed { .. }
            | Row::Store(_)
            | Row::Log { .. }
            | Row::Decided { .. }
            | Row::Export(_) => return,
        };
        let seen = self.shards.entry(shard).or_default();
        seen.transno = seen.transno.max(transno);
        seen.next_count = seen.next_count.max(count);
    }

    /// Writes the remaining rows; returns each shard's highest transaction and inode number.
    fn end(mut self) -> io::Result<BTreeMap<ShardId, ShardRow>> {
        self.row_store.write(&mut self.rows)?;
        Ok(self.shards)
    }
}

/// Removes the new rows of an interrupted salvage.
pub(crate) fn remove_unfinished(path: &Path) -> Result<(), StoreError> {
    remove_folder(&path.join(ROWS).join(SALVAGED))
}

fn remove_folder(folder: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", folder, error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
