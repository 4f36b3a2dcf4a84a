//! Creating a store. The superblock is put in place last, by a rename: while it is missing, the
//! directory is an unfinished creation, which starts over.

use crate::boot::{self, BOOT};
use crate::fs_key::{self, FS_KEY};
use crate::layout::{CLUSTER, JOINING, LOG, OBJECTS, ROWS, SUPERBLOCK};
use crate::lock::{LOCK, Lock};
use crate::rows;
use crate::{StoreError, StoreFault, files, owner};
use disk::rows::{Key, StoreRow};
use disk::{Creation, Member, Superblock};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::{FsUuid, Layout, Wire as _};

/// The parameters that are fixed at creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Metadata shards, 1 ..= 32,767.
    pub meta_shard_count: u16,
    /// Data shards, 1 ..= 32,767.
    pub data_shard_count: u16,
    /// The layout of new files.
    pub layout: Layout,
    /// The attributes of the root directory.
    pub root: RootDir,
}

/// Owner and mode of a root directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootDir {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits, with the sticky and set-id bits.
    pub mode: u32,
}

impl RootDir {
    /// Smaller uids belong to root and the system: Debian's FIRST_UID.
    const ORDINARY_UID_MIN: u32 = 1000;

    /// The root directory of a store that this user creates. If a system user creates it, all users
    /// may write to it, as to /tmp (docs/decisions/first-path.md).
    #[must_use]
    pub const fn made_by(uid: u32, gid: u32) -> Self {
        if uid < Self::ORDINARY_UID_MIN {
            Self { uid: 0, gid: 0, mode: 0o1777 }
        } else {
            Self { uid, gid, mode: 0o755 }
        }
    }

    /// The root directory of a store that this process creates.
    #[must_use]
    pub fn of_process() -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Self::made_by(uid.as_raw(), gid.as_raw())
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            meta_shard_count: Superblock::SHARD_COUNT,
            data_shard_count: Superblock::SHARD_COUNT,
            layout: Layout::DEFAULT,
            root: RootDir::of_process(),
        }
    }
}

/// Creates a store in a directory that does not exist, is empty, or holds an interrupted creation.
///
/// # Errors
/// [`StoreError`] when there is a store already, the directory holds other files, or the file
/// system refuses.
pub fn create(path: &Path, shape: &Shape) -> Result<(), StoreError> {
    let _lock = begin(path)?;
    if path.join(SUPERBLOCK).exists() {
        return Err(StoreError::new(path, StoreFault::Exists));
    }
    finish(path, shape, &Identity::new(path)?)
}

/// Makes and locks the directory. Changes nothing in a directory that holds other files.
pub(crate) fn begin(path: &Path) -> Result<Lock, StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| StoreError::io("make", path, error))?;
    if !path.join(SUPERBLOCK).exists() {
        if was_used(path)? {
            return Err(StoreError::new(&path.join(SUPERBLOCK), StoreFault::Missing));
        }
        if let Some(name) = foreign(path)? {
            return Err(StoreError::new(path, StoreFault::Foreign { name }));
        }
    }
    owner::check(path)?;
    Lock::take(path)
}

/// Whether a server has had this directory open, with or without a superblock. An interrupted
/// creation has no boot and no log.
fn was_used(path: &Path) -> Result<bool, StoreError> {
    if !path.join(LOCK).is_file() || !path.join(ROWS).is_dir() {
        return Ok(false);
    }
    let has_log = path.join(LOG).is_dir() && !files::names(&path.join(LOG))?.is_empty();
    Ok(has_log || boot::last(path)?.is_some_and(|boot_id| boot_id > 0))
}

/// What a creation makes before the superblock.
const OWN: [&str; 8] = [LOCK, BOOT, FS_KEY, LOG, ROWS, OBJECTS, CLUSTER, JOINING];

/// A name that no creation makes.
fn foreign(path: &Path) -> Result<Option<String>, StoreError> {
    let unfinished = [BOOT, FS_KEY, SUPERBLOCK, CLUSTER, JOINING].map(|name| format!("{name}.tmp"));
    let own = |name: &str| OWN.contains(&name);
    let names = files::names(path)?;
    if let Some(name) = names.iter().find(|name| !own(name) && !unfinished.contains(name)) {
        return Ok(Some(name.clone()));
    }
    // The lock is made first, so folders with our names and without it are not ours.
    let locked = names.iter().any(|name| name == LOCK);
    for folder in
        [LOG, ROWS, OBJECTS].into_iter().filter(|folder| names.iter().any(|name| name == folder))
    {
        let mut inside =
            if path.join(folder).is_dir() { files::names(&path.join(folder))? } else { Vec::new() };
        inside.retain(|name| folder != ROWS || !rows::FILES.contains(&name.as_str()));
        if !locked || !path.join(folder).is_dir() || !inside.is_empty() {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

/// Whose store it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// The file system.
    pub(crate) fs: FsUuid,
    /// Its key.
    pub(crate) key: [u8; 32],
    /// Its place in a cluster.
    pub(crate) member: Option<Member>,
}

impl Identity {
    /// Of a new file system, which will lie at `path`.
    pub(crate) fn new(path: &Path) -> Result<Self, StoreError> {
        let (mut fs, mut key) = ([0; 16], [0; 32]);
        fs_key::random(path, &mut fs)?;
        fs_key::random(path, &mut key)?;
        Ok(Self { fs: FsUuid(fs), key, member: None })
    }
}

/// Makes everything else, the superblock last.
pub(crate) fn finish(path: &Path, shape: &Shape, identity: &Identity) -> Result<(), StoreError> {
    files::make_folder(&path.join(LOG))?;
    files::make_folder(&path.join(ROWS))?;
    files::make_folder(&path.join(OBJECTS))?;
    boot::begin(path)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let superblock = Superblock {
        fs: identity.fs,
        meta_shard_count: shape.meta_shard_count,
        data_shard_count: shape.data_shard_count,
        creation: Creation {
            at_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            uid: shape.root.uid,
            gid: shape.root.gid,
            mode: shape.root.mode,
            layout: shape.layout,
        },
        member: identity.member,
    };
    fs_key::make(path, identity.fs, &identity.key)?;
    let row = StoreRow { fs: superblock.fs, boot_id: 0, first_boot_id: 0, promised: None };
    let first_rows = [(Key::store().bytes().to_vec(), row.to_bytes())].into();
    rows::create(path, &superblock, first_rows)?;
    files::place(&path.join(SUPERBLOCK), &superblock.encode())?;
    // The directory's own name too, as far as it was made here.
    match path.canonicalize().ok().as_deref().and_then(Path::parent) {
        Some(parent) => files::sync_folder(parent),
        None => Ok(()),
    }
}
