//! A store as it is, without changing it: its rows with what the logs have beyond them.
//!
//! It owns the reading; what rows should say is others'. Records that are not in the rows yet lie in memory
//! over a snapshot of the rows, so it takes as much memory as the logs have news, at most their length.
//! Invariant: no file of the store is changed while it lives, by this process or by a server.

use crate::gathered::Gathered;
use crate::lock::Lock;
use crate::logs::{self, Logs, Torn};
use crate::{ColdStore, OBJECTS, ROWS, SUPERBLOCK, Store, StoreError, StoreFault, owner};
use bind_lmdb::{Snapshot, Table};
use disk::rows::{Key, Range, begin};
use disk::Superblock;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// LMDB's file in the folder of the rows.
const TABLE_FILE: &str = "data.mdb";

/// Rows that lie over others; `None`: taken away.
type Above = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A store's rows at one moment.
#[derive(Debug)]
pub struct View {
    path: PathBuf,
    superblock: Superblock,
    table: Option<Table>,
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
            table: None,
            above: Above::new(),
            fault: None,
            _lock: Some(lock),
        };
        // LMDB makes what is not there.
        if rows.join(TABLE_FILE).exists() {
            view.redo()?;
        } else if logs::boot_id_max(path)? == 0 {
            view.begin()?;
        } else {
            return Err(StoreError::new(&rows.join(TABLE_FILE), StoreFault::Missing));
        }
        Ok(view)
    }

    /// Rows that were received, in a folder of their own, of a store of this kind.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be opened.
    pub fn of_rows(folder: &Path, superblock: Superblock) -> Result<Self, StoreError> {
        let table = Table::open(folder, ColdStore::ROWS_BYTES_MAX)
            .map_err(|error| StoreError::io("open the rows in", folder, error))?;
        Ok(Self {
            path: folder.to_owned(),
            superblock,
            table: Some(table),
            above: Above::new(),
            fault: None,
            _lock: None,
        })
    }

    /// Lays what the logs have beyond the rows over them.
    fn redo(&mut self) -> Result<(), StoreError> {
        let rows = self.path.join(ROWS);
        let io = |error| StoreError::io("read the rows in", &rows, error);
        let table = Table::open(&rows, ColdStore::ROWS_BYTES_MAX).map_err(io)?;
        let cold = ColdStore { table: table.clone(), path: rows.clone() };
        let damage = |fault| StoreError::new(&rows, StoreFault::Damage(fault));
        let mut gathering = cold.gather(Gathered::default()).map_err(io)?;
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
        self.table = Some(table);
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
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails.
    pub fn reader(&self) -> Result<Reader<'_>, StoreError> {
        let snapshot = self.table.as_ref().map(Table::snapshot).transpose();
        let snapshot = snapshot.map_err(|error| self.io(error))?;
        Ok(Reader { view: self, snapshot })
    }

    fn io(&self, error: std::io::Error) -> StoreError {
        StoreError::io("read the rows in", &self.path, error)
    }
}

impl Store {
    /// The rows of this store as they are now. The caller sees to it that nothing lies behind them in a log.
    #[must_use]
    pub fn view(&self, cold: &ColdStore) -> View {
        View {
            path: self.path.clone(),
            superblock: self.superblock,
            table: Some(cold.table.clone()),
            above: Above::new(),
            fault: None,
            _lock: None,
        }
    }
}

/// Rows of a [`View`].
pub struct Reader<'v> {
    view: &'v View,
    snapshot: Option<Snapshot<'v>>,
}

impl Reader<'_> {
    /// The value of a key.
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails.
    pub fn get(&self, key: &Key) -> Result<Option<&[u8]>, StoreError> {
        self.get_bytes(key.bytes())
    }

    /// The value of a key, as the medium has both.
    ///
    /// # Errors
    /// [`StoreError`] when the medium fails.
    pub fn get_bytes(&self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        if let Some(value) = self.view.above.get(key) {
            return Ok(value.as_deref());
        }
        let Some(snapshot) = &self.snapshot else { return Ok(None) };
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
        if let Some(snapshot) = &self.snapshot {
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
