//! A read-only view of a store: its rows, with the records that the logs have beyond them.
//!
//! It owns the reading; other crates check the rows. Records that are not in the rows yet are an
//! overlay in memory over a snapshot of the rows: at most the length of the logs. Invariant: a view
//! is constant, and changes nothing in the store.

use crate::layout::{OBJECTS, ROWS, SUPERBLOCK};
use crate::lock::Lock;
use crate::logged::{Logged, name_of, put};
use crate::logs::Logs;
use crate::rows::{Gathering, error_of, required_logs};
use crate::superblock::read_superblock;
use crate::{
    ObjectFiles, ObjectName, RowStore, Store, StoreError, StoreFault, boot, fs_key, owner,
};
use bind_lmdb::{Snapshot, Table};
use disk::rows::{Key, Range};
use disk::{LoggedContents, Member, Superblock};
use std::collections::BTreeMap;
use std::fs::File;
use std::iter::Peekable;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::InodeNo;

/// Rows over a snapshot; `None`: deleted.
type Overlay = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A store's rows at one moment.
pub struct View {
    path: PathBuf,
    superblock: Superblock,
    snapshot: Snapshot<'static>,
    overlay: Overlay,
    /// Bytes of objects that only the logs may have; none of a store that a server has open, whose
    /// objects have them in the page cache.
    logged: Arc<LoggedContents>,
    fault: Option<StoreError>,
    /// Of a store that a server has open: its boot.
    boot_id: Option<u64>,
    /// Views of the stores of other servers of its cluster.
    others: Vec<View>,
    _lock: Option<Lock>,
}

/// Names in the store of a server in a cluster lead to what other stores have.
fn refuse_member(path: &Path) -> Result<(), StoreError> {
    match read_superblock(path).ok().and_then(|superblock| superblock.member) {
        Some(Member { server, .. }) => {
            Err(StoreError::new(path, StoreFault::OfCluster { server: server.0 }))
        }
        None => Ok(()),
    }
}

impl View {
    /// The view of a store that no process has open; none can open it while this exists.
    ///
    /// # Errors
    /// [`StoreError`] when there is no store, a process has it open, or its superblock or rows
    /// cannot be read. Damage in the logs is no error: [`View::fault`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.join(SUPERBLOCK).exists() {
            return Err(StoreError::new(path, StoreFault::NoStore));
        }
        owner::check(path)?;
        refuse_member(path)?;
        Self::open_any(path)
    }

    /// The same of the store of a server in a cluster.
    ///
    /// # Errors
    /// As of [`View::open`], and when it is no such store.
    pub fn open_member(path: &Path) -> Result<Self, StoreError> {
        if !path.join(SUPERBLOCK).exists() {
            return Err(StoreError::new(path, StoreFault::NoStore));
        }
        owner::check(path)?;
        assert!(
            read_superblock(path)?.member.is_some(),
            "the caller has seen that this is the store of a server"
        );
        Self::open_any(path)
    }

    /// With the stores of other servers: what it reads is what all have.
    #[must_use]
    pub fn with_others(self, others: Vec<Self>) -> Self {
        Self { others, ..self }
    }

    /// It, and the views of other servers' stores.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        core::iter::once(self).chain(&self.others)
    }

    fn open_any(path: &Path) -> Result<Self, StoreError> {
        let lock = Lock::take(path)?;
        let file = path.join(ROWS).join(bind_lmdb::FILE);
        if !file.is_file() {
            return Err(StoreError::new(&file, StoreFault::Missing));
        }
        let checked_file = File::open(&file).and_then(|file| bind_lmdb::check(&file));
        checked_file.map_err(|error| error_of("read", &file, error))?;
        let mut view = Self::of_snapshot(path)?;
        view._lock = Some(lock);
        view.redo(true)?;
        Ok(view)
    }

    /// The view of a store that a server has open, at this moment. If the server's changes are
    /// frozen (`Op::Freeze`) and durable, all shards are of one moment, whatever changes later;
    /// otherwise one shard may be newer than another.
    ///
    /// # Errors
    /// As of [`View::open`].
    pub fn open_served(path: &Path) -> Result<Self, StoreError> {
        // The server removes log files when their records are in the rows, perhaps between both
        // reads.
        const LOOK_COUNT: u32 = 20;
        if !path.join(SUPERBLOCK).exists() {
            return Err(StoreError::new(path, StoreFault::NoStore));
        }
        refuse_member(path)?;
        let boot_id = boot::last(path)?;
        let mut look_count = 0;
        loop {
            let mut view = Self::of_snapshot(path)?;
            view.redo(false)?;
            look_count += 1;
            if view.fault.is_none() || look_count >= LOOK_COUNT {
                view.boot_id = boot_id;
                return Ok(view);
            }
        }
    }

    /// The number of the last start of a server; `None` without a valid counter.
    ///
    /// # Errors
    /// [`StoreError`] when the boot counter cannot be read.
    pub fn last_boot_id(&self) -> Result<Option<u64>, StoreError> {
        boot::last(&self.path)
    }

    /// Whether the store is still open in the same boot. A later server may have overwritten rows
    /// of this view, because it does not know the readers of an earlier one.
    ///
    /// # Errors
    /// [`StoreError`] when the boot counter cannot be read.
    pub fn is_of_same_boot(&self) -> Result<bool, StoreError> {
        Ok(self.boot_id.is_none() || boot::last(&self.path)? == self.boot_id)
    }

    fn of_snapshot(path: &Path) -> Result<Self, StoreError> {
        let superblock = read_superblock(path)?;
        let folder = path.join(ROWS);
        let io = |error| error_of("open", &folder, error);
        let table = Table::open_reading(&folder, RowStore::ROWS_BYTES_MAX).map_err(io)?;
        Ok(Self {
            path: path.to_owned(),
            superblock,
            snapshot: table.lasting_snapshot().map_err(io)?,
            overlay: Overlay::new(),
            logged: Arc::default(),
            fault: None,
            boot_id: None,
            others: Vec::new(),
            _lock: None,
        })
    }

    /// Applies the logs to the overlay; `whole`: compares them first with the required ones.
    fn redo(&mut self, whole: bool) -> Result<(), StoreError> {
        let file = self.path.join(ROWS).join(bind_lmdb::FILE);
        let required = required_logs(&self.snapshot, &file)?;
        let logs = Logs { path: &self.path, fs: self.superblock.fs, boot_id_end: u64::MAX };
        let mut gathering = Gathering::over(&self.snapshot, &file);
        let mut logged = Logged::default();
        let visit =
            |record: &disk::Record<'_>| logged.visit(record, |shard| gathering.shard(shard));
        let checked = if whole { logs.check(&required, visit) } else { Ok(()) };
        self.logged = Arc::new(logged.end());
        // A server that has removed a file since the snapshot was taken leaves a gap.
        let mut gap = None;
        let read = |record: &disk::Record<'_>| {
            let rows = gathering.shard(record.shard)?.lsn;
            if record.lsn > rows + 1 {
                let (log, what) = (record.lsn, "record");
                gap.get_or_insert(StoreFault::RolledBack { rows, log, what });
            }
            gathering.apply(record).map(drop)
        };
        let replayed = checked.and_then(|()| logs.replay(required.first_boot_id(), read));
        let gap = gap.map(|fault| StoreError::new(&file, fault));
        self.fault = replayed.err().or(gap);
        self.overlay = gathering.into_rows();
        Ok(())
    }

    /// The store's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The superblock.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The folder of the objects.
    #[must_use]
    pub fn objects_path(&self) -> PathBuf {
        self.path.join(OBJECTS)
    }

    /// The files of its objects, with the bytes that only the logs have.
    #[must_use]
    pub fn object_files(&self) -> ObjectFiles {
        ObjectFiles::with_logged(self.objects_path(), Arc::clone(&self.logged))
    }

    /// Writes the bytes that only the logs have to copies of the wanted objects in a folder.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn put_logged(
        &self,
        copies: &Path,
        wanted: impl Fn(ObjectName) -> bool,
    ) -> Result<(), StoreError> {
        let mut wanted = self.logged.objects().filter(|object| wanted(name_of(*object)));
        wanted.try_for_each(|object| {
            put(&copies.join(name_of(object).path()), self.logged.ranges(object.0, object.1))
        })
    }

    /// Checks the parts of the store that a server needs and this view does not.
    ///
    /// # Errors
    /// [`StoreError`] when one is missing or damaged.
    pub fn check_parts(&self) -> Result<(), StoreError> {
        fs_key::read(&self.path, self.superblock.fs).map(drop)
    }

    /// Why the logs could not be read to their end; the rows are as before that.
    #[must_use]
    pub const fn fault(&self) -> Option<&StoreError> {
        self.fault.as_ref()
    }

    /// A reader of its rows.
    #[must_use]
    pub const fn reader(&self) -> Reader<'_> {
        Reader { view: self }
    }

    fn io(&self, error: std::io::Error) -> StoreError {
        error_of("read", &self.path.join(ROWS).join(bind_lmdb::FILE), error)
    }
}

impl Store {
    /// The rows of this store as they are now. The caller ensures that no log has records beyond
    /// them.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub fn view(&self, row_store: &RowStore) -> Result<View, StoreError> {
        let io = |error| error_of("read", &row_store.path, error);
        Ok(View {
            path: self.path.clone(),
            superblock: self.superblock,
            snapshot: row_store.table.lasting_snapshot().map_err(io)?,
            overlay: Overlay::new(),
            logged: Arc::default(),
            fault: None,
            boot_id: None,
            others: Vec::new(),
            _lock: None,
        })
    }
}

/// Reads the rows of a [`View`].
#[derive(Clone, Copy)]
pub struct Reader<'v> {
    view: &'v View,
}

impl<'v> Reader<'v> {
    /// The value of a key.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn get(&self, key: &Key) -> Result<Option<&'v [u8]>, StoreError> {
        self.get_bytes(key.bytes())
    }

    /// The value of an encoded key.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium.
    pub fn get_bytes(&self, key: &[u8]) -> Result<Option<&'v [u8]>, StoreError> {
        for part in self.view.parts().filter(|part| !part.is_unused(key)) {
            let value = match part.overlay.get(key) {
                Some(value) => value.as_deref(),
                None => part.snapshot.get(key).map_err(|error| part.io(error))?,
            };
            if value.is_some() {
                return Ok(value);
            }
        }
        Ok(None)
    }

    /// Visits every row in a range, in the order of keys, until there are no more or `visit` stops. Of the
    /// stores of several servers, those of one come after those of another.
    ///
    /// # Errors
    /// [`StoreError`] on an error of the medium, and any error of `visit`.
    pub fn scan(
        &self,
        range: &Range,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ScanControl, StoreError>,
    ) -> Result<(), StoreError> {
        for part in self.view.parts() {
            if let ScanControl::Stop = part.scan(range, &mut visit)? {
                break;
            }
        }
        Ok(())
    }
}

impl View {
    /// Whether no server reads this row. Every store is made with a root directory; of a cluster's the first
    /// one's is used.
    fn is_unused(&self, key: &[u8]) -> bool {
        let has_root = self.superblock.member.is_none_or(|member| member.first_meta == 0);
        let is_of_root = || {
            let root = InodeNo::ROOT;
            key == Key::inode(root).bytes() || key == Key::shard(root.shard()).bytes()
        };
        !has_root && is_of_root()
    }

    /// The rows of this store alone.
    fn scan(
        &self,
        range: &Range,
        visit: &mut impl FnMut(&[u8], &[u8]) -> Result<ScanControl, StoreError>,
    ) -> Result<ScanControl, StoreError> {
        let visit = &mut |key: &[u8], value: &[u8]| match self.is_unused(key) {
            true => Ok(ScanControl::Continue),
            false => visit(key, value),
        };
        let (from, until) = (range.from.bytes(), range.until.bytes());
        let bounds = (Bound::Included(from), Bound::Excluded(until));
        let overlay = self.overlay.range::<[u8], _>(bounds);
        let mut overlay = overlay.map(|(key, value)| (key.as_slice(), value.as_deref())).peekable();
        let rows = self.snapshot.range(from, until);
        for row in rows.map_err(|error| self.io(error))? {
            let (key, value) = row.map_err(|error| self.io(error))?;
            if let ScanControl::Stop = visit_before(&mut overlay, key, visit)? {
                return Ok(ScanControl::Stop);
            }
            let covered = overlay.next_if(|(over, _)| *over == key);
            let value = covered.map_or(Some(value), |(_, over)| over);
            if let Some(value) = value
                && let ScanControl::Stop = visit(key, value)?
            {
                return Ok(ScanControl::Stop);
            }
        }
        for (key, value) in overlay {
            if let Some(value) = value
                && let ScanControl::Stop = visit(key, value)?
            {
                return Ok(ScanControl::Stop);
            }
        }
        Ok(ScanControl::Continue)
    }
}

/// Whether a scan continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanControl {
    /// With the next row.
    Continue,
    /// Ends the scan.
    Stop,
}

/// Visits the rows of the overlay before a key.
fn visit_before<'a>(
    overlay: &mut Peekable<impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>>,
    key: &[u8],
    visit: &mut impl FnMut(&[u8], &[u8]) -> Result<ScanControl, StoreError>,
) -> Result<ScanControl, StoreError> {
    while let Some((over, value)) = overlay.next_if(|(over, _)| *over < key) {
        if let Some(value) = value
            && let ScanControl::Stop = visit(over, value)?
        {
            return Ok(ScanControl::Stop);
        }
    }
    Ok(ScanControl::Continue)
}
