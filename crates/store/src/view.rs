//! A store as it is, without changing it: its rows with what the logs have beyond them.
//!
//! It owns the reading; what rows should say is others'. Records that are not in the rows yet lie in memory
//! over a snapshot of the rows, so it takes as much memory as the logs have news, at most their length.
//! Invariant: it stays what it was when it was made, and changes nothing that the store says.

use crate::lock::Lock;
use crate::logs::Logs;
use crate::rows::{Gathering, error_of, needed};
use crate::{
    OBJECTS, ROWS, RowStore, SUPERBLOCK, Store, StoreError, StoreFault, boot, keep, owner,
};
use bind_lmdb::{Snapshot, Table};
use disk::Superblock;
use disk::rows::{Key, Range};
use std::collections::BTreeMap;
use std::fs::File;
use std::iter::Peekable;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Rows that lie over others; `None`: taken away.
type Above = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A store's rows at one moment.
pub struct View {
    path: PathBuf,
    superblock: Superblock,
    snapshot: Snapshot<'static>,
    above: Above,
    fault: Option<StoreError>,
    /// Of a store that is served: its boot.
    boot_id: Option<u64>,
    _lock: Option<Lock>,
}

impl View {
    /// Of a store that nobody has open; nobody can open it while this lives.
    ///
    /// # Errors
    /// [`StoreError`] when there is no store, somebody has it open, or its superblock or rows cannot be
    /// read. Damage in the logs is no error: [`View::fault`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.join(SUPERBLOCK).exists() {
            return Err(StoreError::new(path, StoreFault::NoStore));
        }
        owner::check(path)?;
        let lock = Lock::take(path)?;
        let file = path.join(ROWS).join(bind_lmdb::FILE);
        if !file.is_file() {
            return Err(StoreError::new(&file, StoreFault::Missing));
        }
        let looked = File::open(&file).and_then(|file| bind_lmdb::check(&file));
        looked.map_err(|error| error_of("read", &file, error))?;
        let mut view = Self::of_snapshot(path)?;
        view._lock = Some(lock);
        view.redo(true)?;
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
        let boot_id = boot::last(path)?;
        let mut view = Self::of_snapshot(path)?;
        for _ in 0..LOOK_COUNT {
            view.redo(false)?;
            if view.fault.is_none() {
                break;
            }
            view = Self::of_snapshot(path)?;
        }
        view.boot_id = boot_id;
        Ok(view)
    }

    /// Whether the server that had the store open is the one that has it open now. Another one may have
    /// overwritten rows of this view, because it does not know who reads.
    ///
    /// # Errors
    /// [`StoreError`] when the boot counter cannot be read.
    pub fn is_of_same_boot(&self) -> Result<bool, StoreError> {
        Ok(self.boot_id.is_none() || boot::last(&self.path)? == self.boot_id)
    }

    fn of_snapshot(path: &Path) -> Result<Self, StoreError> {
        let superblock = crate::read_superblock(path)?;
        let folder = path.join(ROWS);
        let io = |error| error_of("open", &folder, error);
        let table = Table::open_reading(&folder, RowStore::ROWS_BYTES_MAX).map_err(io)?;
        Ok(Self {
            path: path.to_owned(),
            superblock,
            snapshot: table.lasting_snapshot().map_err(io)?,
            above: Above::new(),
            fault: None,
            boot_id: None,
            _lock: None,
        })
    }

    /// Lays what the logs have beyond the rows over them; `whole`: holds them first against what must be there.
    fn redo(&mut self, whole: bool) -> Result<(), StoreError> {
        let file = self.path.join(ROWS).join(bind_lmdb::FILE);
        let needed = needed(&self.snapshot, &file)?;
        let logs = Logs { path: &self.path, fs: self.superblock.fs, boot_id_end: u64::MAX };
        let mut gathering = Gathering::over(&self.snapshot, &file);
        let checked = if whole { logs.check(&needed) } else { Ok(()) };
        let read = |record: &disk::Record<'_>| gathering.apply(record).map(drop);
        let replayed = checked.and_then(|()| logs.replay(needed.first_boot_id(), read));
        self.fault = replayed.err();
        self.above = gathering.into_rows();
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

    /// Reads the parts of the store that a server needs besides, and that this view does not.
    ///
    /// # Errors
    /// [`StoreError`] when one is missing or damaged.
    pub fn check_parts(&self) -> Result<(), StoreError> {
        keep::redo_key(&self.path, self.superblock.fs).map(drop)
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
        error_of("read", &self.path.join(ROWS).join(bind_lmdb::FILE), error)
    }
}

impl Store {
    /// The rows of this store as they are now. The caller sees to it that nothing lies behind them in a log.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub fn view(&self, cold: &RowStore) -> Result<View, StoreError> {
        let io = |error| error_of("read", &cold.path, error);
        Ok(View {
            path: self.path.clone(),
            superblock: self.superblock,
            snapshot: cold.table.lasting_snapshot().map_err(io)?,
            above: Above::new(),
            fault: None,
            boot_id: None,
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
        self.view.snapshot.get(key).map_err(|error| self.view.io(error))
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
        let rows = self.view.snapshot.range(from, until);
        for row in rows.map_err(|error| self.view.io(error))? {
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
