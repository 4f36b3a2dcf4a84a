//! `store`: the directory in which a server stores its file system. The code may block, so it runs
//! before the lanes start or on its own threads, never on a lane.
//!
//! It owns the directory's layout, its lock (one server at a time), the boot counter, the reading
//! of the logs and the rows. Appending to the logs and the objects belong to the ring. Invariant:
//! after a crash at any moment, the next open finds a complete store or recognises an unfinished
//! creation, and no acknowledged record is ever cut off a log.
//!
//! ```text
//! DIR/superblock          the identity; renamed into place last, so it marks a complete store
//!     lock                flock'ed by the server that has the store open; holds its process id
//!     boot                the number of opens, decimal, and the number's CRC-32C
//!     fs-key              the file system's key: 32 random bytes, made with it
//!     cluster             addresses of the registry, of a store that belongs to a cluster
//!     registry            the generations and servers that its server has used of that registry
//!     joining             the uuid of a store that becomes a server's, until it is one
//!     log/BOOT-LANE-NO.log   16, 4 and 8 hexadecimal digits; a lane's files of a boot from 1 on
//!     rows/               the row store: an LMDB table
//!     reserve             reserved space for a start on a full disk
//!     objects/            file contents, laid out by the ring
//!     quarantine/         files that a repair has moved away
//! ```
#![forbid(unsafe_code)]

mod applier;
mod boot;
mod cluster;
mod contents;
mod create;
mod error;
mod files;
mod fs_key;
mod gathered;
mod layout;
mod lock;
mod log_name;
mod logged;
mod logs;
mod new_logs;
mod objects;
mod owner;
mod rebuild;
mod required_logs;
mod reserve;
mod row_threads;
mod rows;
mod salvage;
mod superblock;
mod tail;
mod view;

pub use applier::Alarm;
pub use cluster::{
    Draft, cluster_access, remember_cluster, remember_registry, superblock_and_key, used_registry,
};
pub use contents::{Compared, DamagedBlock};
pub use create::{RootDir, Shape, create};
pub use error::{StoreError, StoreFault};
pub use layout::{OBJECTS, QUARANTINE};
pub use logs::Replayed;
pub use objects::{FileObjects, ObjectContents, ObjectFile, ObjectFiles, ObjectName};
pub use required_logs::RequiredLogs;
pub use row_threads::{Pace, RowThreads, RunningRowThreads};
pub use rows::RowStore;
pub use salvage::{DamagedRows, LostRows, SalvageStep, damaged_rows};
pub use view::{Reader, ScanControl, View};

use disk::Superblock;
use layout::{LOG, ROWS, SUPERBLOCK};
use lock::Lock;
use std::path::{Path, PathBuf};
use superblock::read_superblock;
use wire::FsUuid;

/// An open store. No process can open it a second time while this exists.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    superblock: Superblock,
    boot_id: u64,
    fs_key: [u8; 32],
    repairs: Vec<String>,
    _lock: Lock,
}

/// Opens an existing store, for this process alone, and increments its boot counter durably.
///
/// # Errors
/// [`StoreError`] when there is none, another server has it open, or it is unknown or damaged.
pub fn open(path: &Path) -> Result<Store, StoreError> {
    if !path.join(SUPERBLOCK).exists() {
        return Err(StoreError::new(path, StoreFault::NoStore));
    }
    owner::check(path)?;
    open_locked(path, Lock::take(path)?)
}

/// Opens a store, creating it first if `path` does not exist, is empty or holds an interrupted
/// creation.
///
/// # Errors
/// [`StoreError`] as of [`create`] and [`open`].
pub fn open_or_create(path: &Path, shape: &Shape) -> Result<Store, StoreError> {
    if path.join(SUPERBLOCK).exists() {
        return open(path);
    }
    let lock = create::begin(path)?;
    // Another process may have finished the creation before this one got the lock.
    if !path.join(SUPERBLOCK).exists() {
        create::finish(path, shape, &create::Identity::new(path)?)?;
    }
    open_locked(path, lock)
}

/// The uuid of a store's file system. The store may be in use.
///
/// # Errors
/// [`StoreError`] when there is none, or it is unknown or damaged.
pub fn identity(path: &Path) -> Result<FsUuid, StoreError> {
    Ok(read_superblock(path)?.fs)
}

fn open_locked(path: &Path, lock: Lock) -> Result<Store, StoreError> {
    let superblock = read_superblock(path)?;
    for folder in [LOG, ROWS, OBJECTS] {
        if !path.join(folder).is_dir() {
            return Err(StoreError::new(&path.join(folder), StoreFault::Missing));
        }
    }
    reserve::free_when_full(path);
    logs::remove_unfinished(path)?;
    salvage::remove_unfinished(path)?;
    let fs_key = fs_key::read(path, superblock.fs)?;
    // Above every log, and above the rows (`Store::open_rows`), whatever the counter is.
    let (counted, logged) = (boot::last(path)?, logs::boot_id_max(path)?);
    let boot_id = counted.unwrap_or(0).max(logged).saturating_add(1);
    boot::set(path, boot_id)?;
    let mut repairs = Vec::new();
    if counted.is_none_or(|counted| counted < logged) {
        repairs.push(boot::repaired(path));
    }
    Ok(Store { path: path.to_owned(), superblock, boot_id, fs_key, repairs, _lock: lock })
}

impl Store {
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

    /// The number of this boot, from 1; durable.
    #[must_use]
    pub const fn boot_id(&self) -> u64 {
        self.boot_id
    }

    /// The key of the file system. For the lanes alone.
    #[must_use]
    pub const fn fs_key(&self) -> &[u8; 32] {
        &self.fs_key
    }

    /// Messages about damage that was repaired.
    #[must_use]
    pub fn repairs(&self) -> &[String] {
        &self.repairs
    }

    /// The folder of the objects.
    #[must_use]
    pub fn objects_path(&self) -> PathBuf {
        self.path.join(OBJECTS)
    }
}

#[cfg(test)]
mod tests;
