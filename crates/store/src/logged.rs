//! Bytes of objects that only the logs have, after a crash that took the page cache: a start writes
//! them to their objects, a view of a store shows them ([`disk::LoggedContents`]).

use crate::{ObjectName, Store, StoreError, files};
use disk::rows::ShardRow;
use disk::{Fault, LoggedContents, Record};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use wire::{InodeNo, ShardId};

/// The bytes in the records that the rows lack.
#[derive(Default)]
pub(crate) struct Logged {
    pub(crate) contents: LoggedContents,
    /// The last record of each data shard: first that in the rows.
    lsns: BTreeMap<ShardId, u64>,
    /// Records are missing between rows and logs: the caller refuses them.
    has_gap: bool,
}

impl Logged {
    /// Visits the next record of the logs; `rows` is the row of its shard.
    pub(crate) fn visit(
        &mut self,
        record: &Record<'_>,
        rows: impl FnOnce(ShardId) -> Result<ShardRow, Fault>,
    ) -> Result<(), Fault> {
        let shard = record.shard;
        if !shard.is_data() {
            return Ok(());
        }
        let lsn = match self.lsns.get_mut(&shard) {
            Some(lsn) => lsn,
            None => self.lsns.entry(shard).or_insert(rows(shard)?.lsn),
        };
        if record.lsn <= *lsn {
            return Ok(());
        }
        self.has_gap |= record.lsn > *lsn + 1;
        *lsn = record.lsn;
        self.contents.visit(record)
    }

    /// What must be written to objects.
    pub(crate) fn end(self) -> LoggedContents {
        if self.has_gap { LoggedContents::default() } else { self.contents }
    }
}

/// The object that logged bytes of a file belong to.
pub(crate) const fn name_of((shard, inode): (ShardId, InodeNo)) -> ObjectName {
    ObjectName { shard_index: shard.index(), inode, stripe_index: 0 }
}

impl Store {
    /// Writes the bytes to their objects, durably. The same bytes may be written any number of
    /// times before the rows pass their records.
    pub(crate) fn put_logged(&self, logged: &LoggedContents) -> Result<(), StoreError> {
        if logged.is_empty() {
            return Ok(());
        }
        let objects = self.objects_path();
        let folder =
            File::open(&objects).map_err(|error| StoreError::io("open", &objects, error))?;
        for (shard, inode) in logged.objects() {
            let path = objects.join(name_of((shard, inode)).path());
            put(&path, logged.ranges(shard, inode))?;
        }
        sync_all(&folder).map_err(|error| StoreError::io("make durable", &objects, error))
    }
}

/// Writes bytes to an object's file, which is made if there is none.
pub(crate) fn put<'a>(
    path: &Path,
    ranges: impl Iterator<Item = (u64, &'a [u8])>,
) -> Result<(), StoreError> {
    if let Some(below) = path.parent() {
        below.parent().map_or(Ok(()), files::make_folder)?;
        files::make_folder(below)?;
    }
    let io = |error| StoreError::io("write", path, error);
    let mut open = OpenOptions::new();
    let open = open.write(true).create(true).truncate(false).mode(0o600);
    let file = open.open(path).map_err(io)?;
    for (object_offset, bytes) in ranges {
        file.write_all_at(bytes, object_offset).map_err(io)?;
    }
    Ok(())
}

/// Makes all objects durable, with their names. Of a folder that stays open, a failure of any object
/// since the last call is an error, whoever else has seen it.
pub(crate) fn sync_all(folder: &File) -> std::io::Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}
