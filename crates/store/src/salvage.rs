//! Rows of a damaged file, made anew from what can be read of it and from the logs.
//!
//! The new rows are written beside the damaged ones, with everything that the logs have beyond them,
//! and take their name when they are whole. Invariants: whenever this is ended, the store has the
//! damaged file or the new one under the name; the damaged one stays in `quarantine/`; a row that
//! cannot be read is missing, never made up, but for those that say what the store itself is.

use crate::error::StoreFault;
use crate::gathered::Gathered;
use crate::lock::Lock;
use crate::logs::{Logs, boot_id_max};
use crate::rows::{RowStore, error_of};
use crate::{QUARANTINE, ROWS, SUPERBLOCK, Store, StoreError, files, owner};
use bind_lmdb::{Age, Salvaged, Table};
use disk::rows::{Key, LogRow, ObjectRow, Row, Rows as _, ShardRow, StoreRow, is_later};
use disk::{BlockSum, Fault, LOG_HEADER_BYTES, LogPosition, Share};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use wire::{LaneId, ShardId, Wire as _};

pub use bind_lmdb::Lost as LostRows;

/// Where the new rows are until they are whole, beside the damaged ones.
const SALVAGED: &str = "salvaged";
/// Inode numbers that are left out where nothing says which was given last: clients and objects may
/// have some of them.
const LEFT_OUT_COUNT: u64 = 1 << 20;

/// What is wrong with the file of a store's rows, and what can be read of it.
#[derive(Debug)]
pub struct DamagedRows {
    /// The file.
    pub path: PathBuf,
    /// Why no server uses it.
    pub damage: Fault,
    /// The logs have all since the store was made: the next start makes the rows anew, and nothing is
    /// lost.
    pub is_in_logs: bool,
    /// Rows that can be read, of the newest state.
    pub row_count: u64,
    /// Rows that there were, if that is known.
    pub said_row_count: Option<u64>,
    /// Rows that can be read and of which nothing says whether they are of the newest state.
    pub ageless_count: u64,
    /// What cannot be read.
    pub lost: Vec<LostRows>,
    /// All that can be read may be the state before the newest.
    pub is_before: bool,
    /// Changes in the logs that do not fit to what is there; counted when the logs were applied.
    pub left_out_count: u64,
    /// What is missing of the logs, in words.
    pub log_gap: Option<String>,
}

/// A step of [`Store::salvage_rows`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SalvageStep {
    /// The new rows are whole, under another name.
    Written,
    /// The damaged file has a second name.
    PutAside,
    /// The new rows have its name.
    Replaced,
}

/// What can be read of the rows of a store that nobody has open; `None` if they are sound. Changes
/// nothing.
///
/// # Errors
/// [`StoreError`] when there is no store, somebody has it open, or the file cannot be read at all.
pub fn damaged_rows(path: &Path) -> Result<Option<DamagedRows>, StoreError> {
    if !path.join(SUPERBLOCK).exists() {
        return Err(StoreError::new(path, StoreFault::NoStore));
    }
    owner::check(path)?;
    let _lock = Lock::take(path)?;
    let superblock = crate::read_superblock(path)?;
    look(&Logs { path, fs: superblock.fs, boot_id_end: u64::MAX })
}

fn look(logs: &Logs<'_>) -> Result<Option<DamagedRows>, StoreError> {
    let path = logs.path.join(ROWS).join(bind_lmdb::FILE);
    let is_in_logs = logs.first()?.is_some();
    let mut damaged = DamagedRows {
        path,
        damage: Fault::new("the file is missing", 0),
        is_in_logs,
        row_count: 0,
        said_row_count: None,
        ageless_count: 0,
        lost: Vec::new(),
        is_before: false,
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
    let mut ageless_count = 0;
    let mut feed = |_: &[u8], _: &[u8], age: Age| {
        ageless_count += u64::from(age == Age::Unknown);
        Ok(())
    };
    let Salvaged { row_count, said_row_count, lost, is_before } =
        bind_lmdb::salvage(&file, &mut feed).map_err(io)?;
    damaged.damage = crate::rows::damaged(&damage);
    damaged.row_count = row_count - ageless_count;
    Ok(Some(DamagedRows { said_row_count, ageless_count, lost, is_before, ..damaged }))
}

impl DamagedRows {
    /// Whether nothing at all can be read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.row_count == 0 && self.ageless_count == 0
    }
}

impl Store {
    /// Makes the rows anew if their file is damaged; `None`: it is sound. What the logs have as a whole
    /// is left to [`Store::open_rows`]. `observe` is called after every step; what it
    /// fails with ends it there.
    ///
    /// # Errors
    /// [`StoreError`] when nothing can be read of the file, a log is damaged or the medium fails. The
    /// damaged file is where it was, unless the last step was reached.
    pub fn salvage_rows(
        &self,
        observe: &mut dyn FnMut(SalvageStep) -> io::Result<()>,
    ) -> Result<Option<DamagedRows>, StoreError> {
        let Some(mut damaged) = look(&self.logs())? else { return Ok(None) };
        if damaged.is_in_logs {
            return Ok(Some(damaged));
        }
        if damaged.is_empty() {
            let fault = StoreFault::RowsGone { fault: damaged.damage };
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
        observe(SalvageStep::PutAside).map_err(io)?;
        fs::rename(folder.join(bind_lmdb::FILE), &path).map_err(io)?;
        files::sync_folder(&self.path.join(ROWS))?;
        observe(SalvageStep::Replaced).map_err(io)?;
        remove_folder(&folder)?;
        Ok(Some(damaged))
    }

    /// Writes rows that are whole into a folder: what can be read, and the logs applied to it.
    fn write_anew(&self, folder: &Path, damaged: &mut DamagedRows) -> Result<(), StoreError> {
        let path = damaged.path.clone();
        let io = |error| error_of("salvage", &path, error);
        Table::create(folder, std::iter::empty()).map_err(io)?;
        let table = Table::open(folder, RowStore::ROWS_BYTES_MAX).map_err(io)?;
        let cold = RowStore { table, path: path.clone() };
        let mut writing = Writing {
            cold: &cold,
            rows: Gathered::default(),
            shards: BTreeMap::new(),
            is_before: damaged.is_before,
        };
        let file = File::open(&path).map_err(io)?;
        bind_lmdb::salvage(&file, &mut |key, value, age| writing.row(key, value, age))
            .map_err(io)?;
        let shards = writing.end().map_err(io)?;
        self.redo_what_fits(&cold, damaged)?;
        self.say_what_it_is(&cold, &shards)?;
        Ok(())
    }

    /// Applies the logs to rows that are not whole.
    fn redo_what_fits(&self, cold: &RowStore, damaged: &mut DamagedRows) -> Result<(), StoreError> {
        let io = |error| error_of("write", &cold.path, error);
        let needed = cold.needed()?;
        // Where the rows say nothing of the logs, or what they said earlier, the logs are what they are.
        let is_vague = damaged.is_before || damaged.ageless_count > 0 || needed.boot_id() == 0;
        match self.check_logs(&needed) {
            Err(error) if is_vague && error.is_about_what_is_missing() => {
                let is_known = needed.boot_id() > 0;
                damaged.log_gap = is_known.then(|| error.to_string());
            }
            checked => checked?,
        }
        let mut gathering = cold.gather(Gathered::default()).map_err(io)?;
        let (mut left_out_count, mut failed) = (0, None);
        let replayed = self.replay(needed.first_boot_id(), |record| {
            left_out_count += gathering.apply_partially(record)?;
            if gathering.is_full() {
                match gathering.write(cold).and_then(|rows| cold.gather(rows)) {
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
        for (lane, row) in needed.over() {
            gathering.put(Key::log(lane).bytes(), &row.to_bytes());
        }
        gathering.write(cold).map_err(io)?;
        damaged.left_out_count = left_out_count;
        Ok(())
    }

    /// Puts the rows that say what the store is, where they are lost, and none of its logs is needed from
    /// here on.
    fn say_what_it_is(
        &self,
        cold: &RowStore,
        shards: &BTreeMap<ShardId, ShardRow>,
    ) -> Result<(), StoreError> {
        let logged = boot_id_max(&self.path)?;
        let mut rows = Vec::new();
        let store_row = cold.store_row().ok().filter(|row| row.fs == self.superblock.fs);
        // Nobody knows the mode any more: the weakest is assumed. Some boot has made logs.
        let unknown = StoreRow {
            fs: self.superblock.fs,
            boot_id: 0,
            first_boot_id: self.boot_id,
            share: Some(Share::Off),
        };
        let store_row = store_row.unwrap_or(unknown);
        let boot_id = store_row.boot_id.max(logged);
        rows.push((Key::store(), StoreRow { boot_id, ..store_row }.to_bytes()));
        if logged > cold.needed()?.boot_id() {
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
        let gathering = cold.gather(Gathered::default());
        let gathering = gathering.map_err(|error| error_of("read", &cold.path, error))?;
        for (shard, seen) in shards {
            // What the logs have made of it stands in it.
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
        cold.put(&rows)
    }
}

/// Rows on their way into a new table.
struct Writing<'c> {
    cold: &'c RowStore,
    rows: Gathered,
    /// What other rows tell of each shard: its highest transaction and the highest inode number.
    shards: BTreeMap<ShardId, ShardRow>,
    is_before: bool,
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
        // Checksums of an earlier state would accuse contents that were written since.
        if self.is_before || age == Age::Unknown {
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
            self.cold.write(&mut self.rows)?;
        }
        Ok(())
    }

    /// Whether no later value of the key was read before.
    fn is_new(&self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        if let Some(known) = self.rows.get(key) {
            return Ok(known.is_none_or(|known| is_later(key, value, known)));
        }
        let snapshot = self.cold.table.snapshot()?;
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

    /// Writes what is left; what was seen of each shard.
    fn end(mut self) -> io::Result<BTreeMap<ShardId, ShardRow>> {
        self.cold.write(&mut self.rows)?;
        Ok(self.shards)
    }
}

/// Removes new rows that a salvage was killed over.
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
