//! A store as it is, without changing it: its rows with what the logs have beyond them.
//!
//! It owns the reading; what rows should say is others'. Records that are not in the rows yet lie in memory
//! over a snapshot of the rows, so it takes as much memory as the logs have news, at most their length.
//! Invariant: it stays what it was when it was made, and changes no file of the store.

use crate::lock::Lock;
use crate::logs::{self, Logs, Torn};
use crate::rows::Gathering;
use crate::{ColdStore, OBJECTS, ROWS, SUPERBLOCK, Store, StoreError, StoreFault, owner};
use bind_lmdb::{Snapshot, Table};
use disk::Superblock;
use disk::rows::{Key, Range, begin};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// LMDB's file in the folder of the rows.
const TABLE_FILE: &str = "data.mdb";

/// Rows that lie over others; `None`: taken away.
type Above = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A store's rows at one moment.
pub struct View {
    path: PathBuf,
    superblock: Superblock,
    snapshot: Option<Snapshot<'static>>,
    above: Above,
    fault: Option<StoreError>,
    _lock: Option<Lock>,
}

impl View {
    /// Of a store that nobody has open; nobody can open it while this lives.
    ///
    /// # Errors
    /// [`StoreError`] when there is no store, somebody has it open, or its superblock or rows cannot be
    /// read at all. Damage in the logs is no error: [`View::fault`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.join(SUPERBLOCK).exists() {
            return Err(StoreError::new(path, StoreFault::NoStore));
        }
        owner::check(path)?;
        let lock = Lock::take(path)?;
        let superblock = crate::read_superblock(path)?;
        let rows = path.join(ROWS);
        let mut view = Self {
            path: path.to_owned(),
            superblock,
            snapshot: None,
            above: Above::new(),
            fault: None,
            _lock: Some(lock),
        };
        // LMDB makes what is not there.
        if rows.join(TABLE_FILE).exists() {
            let table = Table::open_reading(&rows, ColdStore::ROWS_BYTES_MAX)
                .map_err(|error| StoreError::io("open the rows in", &rows, error))?;
            view.redo(&table)?;
        } else if logs::boot_id_max(path)? == 0 {
            view.begin()?;
        } else {
            return Err(StoreError::new(&rows.join(TABLE_FILE), StoreFault::Missing));
        }
        Ok(view)
    }

    /// Of a store that a server has open, as it is at this moment. If the server lets no changes in meanwhile
    /// (`Op::Freeze`) and all are durable, it is the state of that moment, whatever changes
    /// later; otherwise what one shard says may be newer than what another one says.
    ///
    /// # Errors
    /// As of [`View::open`].
    pub fn open_served(path: &Path) -> Result<Self, StoreError> {
        // Log files go when their records are in the rows, which may be between the looks at both.
        const LOOK_COUNT: usize = 20;
        if !path.join(SUPERBLOCK).exists() {
            return Err(StoreError::new(path, StoreFault::NoStore));
        }
        let superblock = crate::read_superblock(path)?;
        let mut view = Self {
            path: path.to_owned(),
            superblock,
            snapshot: None,
            above: Above::new(),
            fault: None,
            _lock: None,
        };
        let rows = path.join(ROWS);
        let table = Table::open_reading(&rows, ColdStore::ROWS_BYTES_MAX)
            .map_err(|error| StoreError::io("open the rows in", &rows, error))?;
        for _ in 0..LOOK_COUNT {
            view.redo(&table)?;
            if view.fault.is_none() {
                break;
            }
        }
        Ok(view)
    }

    /// Lays what the logs have beyond the rows over them.
    fn redo(&mut self, table: &Table) -> Result<(), StoreError> {
        let rows = self.path.join(ROWS);
        let io = |error| StoreError::io("read the rows in", &rows, error);
        let cold = ColdStore { table: table.clone(), path: rows.clone() };
        let snapshot = table.lasting_snapshot().map_err(io)?;
        let damage = |fault| StoreError::new(&rows, StoreFault::Damage(fault));
        let mut gathering = Gathering::over(&snapshot);
        let rows_boot_id = gathering.store_row().map_err(damage)?.boot_id;
        let log_boot_id = logs::boot_id_max(&self.path)?;
        begin(self.superblock.made, &mut gathering).map_err(damage)?;
        let logs = Logs { path: &self.path, fs: self.superblock.fs, torn: Torn::Leave };
        let replayed = logs.replay(u64::MAX, |record| gathering.apply(record).map(drop));
        self.fault = match replayed {
            _ if log_boot_id > rows_boot_id => {
                Some(cold.went_back(rows_boot_id, log_boot_id, "boot"))
            }
            replayed => replayed.err(),
        };
        self.above = gathering.into_rows();
        self.snapshot = Some(snapshot);
        Ok(())
    }

    /// A store that was never opened has the root directory alone.
    fn begin(&mut self) -> Result<(), StoreError> {
        let mut rows = BTreeMap::<Vec<u8>, Vec<u8>>::new();
        let begun = begin(self.superblock.made, &mut rows);
        begun.map_err(|fault| StoreError::new(&self.path, StoreFault::Damage(fault)))?;
        self.above = rows.into_iter().map(|(key, value)| (key, Some(value))).collect();
        Ok(())
    }

    /// Where the store lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the store is.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The folder of the objects.
    #[must_use]
    pub fn objects_path(&self) -> PathBuf {
        self.path.join(OBJECTS)
    }

    /// Why the logs could not be read to their end; the rows are as they were before that.
    #[must_use]
    pub const fn fault(&self) -> Option<&StoreError> {
        self.fault.as_ref()
    }

    /// Reads its rows.
    #[must_use]
    pub const fn reader(&self) -> Reader<'_> {
        Reader { view: self }
    }

    fn io(&self, error: std::io::Error) -> StoreError {
        StoreError::io("read the rows in", &self.path, error)
    }
}

impl Store {
    /// The rows of this store as they are now. The caller sees to it that nothing lies behind them in a log.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub fn view(&self, cold: &ColdStore) -> Result<View, StoreError> {
        let io = |error| StoreError::io("read the rows in", &cold.path, error);
        Ok(View {
            path: self.path.clone(),
            superblock: self.superblock,
            snapshot: Some(cold.table.lasting_snapshot().map_err(io)?),
            above: Above::new(),
            fault: None,
            _lock: None,
        })
    }
}

/// Rows of a [`View`].
#[derive(Clone, Copy)]
pub struct Reader<'v> {
    view: &'v View,
}

impl<'v> Reader<'v> {
    /// The value of a key.
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails.
    pub fn get(&self, key: &Key) -> Result<Option<&'v [u8]>, StoreError> {
        self.get_bytes(key.bytes())
    }

    /// The value of a key, as the medium has both.
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails.
    pub fn get_bytes(&self, key: &[u8]) -> Result<Option<&'v [u8]>, StoreError> {
        if let Some(value) = self.view.above.get(key) {
            return Ok(value.as_deref());
        }
        let Some(snapshot) = &self.view.snapshot else { return Ok(None) };
        snapshot.get(key).map_err(|error| self.view.io(error))
    }

    /// Tells of every row in a range, in the order of keys, until there are no more or `feed` says so.
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails, and what `feed` fails with.
    pub fn scan(
        &self,
        range: &Range,
        mut feed: impl FnMut(&[u8], &[u8]) -> Result<Going, StoreError>,
    ) -> Result<(), StoreError> {
        let (from, until) = (range.from.bytes(), range.until.bytes());
        let bounds = (Bound::Included(from), Bound::Excluded(until));
        let above = self.view.above.range::<[u8], _>(bounds);
        let mut above = above.map(|(key, value)| (key.as_slice(), value.as_deref())).peekable();
        if let Some(snapshot) = &self.view.snapshot {
            for row in snapshot.range(from, until).map_err(|error| self.view.io(error))? {
                let (key, value) = row.map_err(|error| self.view.io(error))?;
                if let Going::Stop = feed_before(&mut above, key, &mut feed)? {
                    return Ok(());
                }
                let covered = above.next_if(|(over, _)| *over == key);
                let value = covered.map_or(Some(value), |(_, over)| over);
                if let Some(value) = value
                    && let Going::Stop = feed(key, value)?
                {
                    return Ok(());
                }
            }
        }
        for (key, value) in above {
            if let Some(value) = value
                && let Going::Stop = feed(key, value)?
            {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Whether a scan goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Going {
    /// To the next row.
    On,
    /// No further.
    Stop,
}

/// Feeds the rows above that come before a key.
fn feed_before<'a>(
    above: &mut Peekable<impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>>,
    key: &[u8],
    feed: &mut impl FnMut(&[u8], &[u8]) -> Result<Going, StoreError>,
) -> Result<Going, StoreError> {
    while let Some((over, value)) = above.next_if(|(over, _)| *over < key) {
        if let Some(value) = value
            && let Going::Stop = feed(over, value)?
        {
            return Ok(Going::Stop);
        }
    }
    Ok(Going::On)
}
