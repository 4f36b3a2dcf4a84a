//! Stores of a cluster's servers: how a new one is made, how an existing one becomes one, and where the
//! cluster's registry is.
//!
//! The registry learns of a store before the store is complete, so that no other server gets its
//! number. Therefore the store's uuid is durable first, in `joining`: after a crash the registry says
//! whether that uuid is a server's, and which. Invariant: a store has one uuid for good.

use crate::create::{self, Identity};
use crate::layout::{CLUSTER, JOINING, REGISTRY, SUPERBLOCK};
use crate::lock::Lock;
use crate::superblock::read_superblock;
use crate::{Shape, Store, StoreError, StoreFault, files, fs_key, owner};
use disk::{Creation, Member, Superblock};
use std::path::{Path, PathBuf};
use wire::{FsUuid, Layout};

/// A store that is not complete: it is known by its uuid, and gets its number from the registry.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    fs: FsUuid,
    key: [u8; 32],
    uuid: [u8; 16],
    lock: Lock,
}

impl Draft {
    /// Begins a store of file system `fs`, or goes on with one that was begun, in a directory that does not
    /// exist, is empty or holds an interrupted creation.
    ///
    /// # Errors
    /// [`StoreError`] as of [`create`](crate::create).
    pub fn begin(path: &Path, fs: FsUuid, key: [u8; 32]) -> Result<Self, StoreError> {
        let lock = create::begin(path)?;
        if path.join(SUPERBLOCK).exists() {
            return Err(StoreError::new(path, StoreFault::Exists));
        }
        fs_key::make(path, fs, &key)?;
        let uuid = joining_uuid(path)?;
        Ok(Self { path: path.to_owned(), fs, key, uuid, lock })
    }

    /// The store that was begun at `path` and not finished, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] when a process has it open, or when it cannot be read.
    pub fn unfinished(path: &Path) -> Result<Option<Self>, StoreError> {
        if path.join(SUPERBLOCK).exists() || read_joining(path)?.is_none() {
            return Ok(None);
        }
        owner::check(path)?;
        let lock = Lock::take(path)?;
        let (fs, key) = fs_key::read_any(path)?;
        let uuid = joining_uuid(path)?;
        Ok(Some(Self { path: path.to_owned(), fs, key, uuid, lock }))
    }

    /// The file system.
    #[must_use]
    pub const fn fs(&self) -> FsUuid {
        self.fs
    }

    /// The store's own uuid.
    #[must_use]
    pub const fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Makes the store of a server, whose registry is reached by `access`, and opens it.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn finish(self, shape: &Shape, member: Member, access: &str) -> Result<Store, StoreError> {
        assert!(member.store == self.uuid, "the registry has this store");
        let Self { path, fs, key, uuid: _, lock } = self;
        remember_cluster(&path, access)?;
        create::finish(&path, shape, &Identity { fs, key, member: Some(member) })?;
        files::remove(&path.join(JOINING))?;
        crate::open_locked(&path, lock)
    }
}

impl Store {
    /// The uuid with which this store, which has a whole file system, becomes that of a server.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn begin_cluster(&self) -> Result<[u8; 16], StoreError> {
        joining_uuid(&self.path)
    }

    /// Records that this is the store of a server, whose registry is reached by `access`, and the layout
    /// of new files.
    ///
    /// # Errors
    /// [`StoreError`] when the file system refuses.
    pub fn become_member(
        &mut self,
        member: Member,
        (access, layout): (&str, Layout),
    ) -> Result<(), StoreError> {
        remember_cluster(&self.path, access)?;
        let creation = Creation { layout, ..self.superblock.creation };
        let superblock = Superblock { member: Some(member), creation, ..self.superblock };
        files::place(&self.path.join(SUPERBLOCK), &superblock.encode())?;
        self.superblock = superblock;
        files::remove(&self.path.join(JOINING))
    }
}

/// The superblock and the file system's key of a store. The store may be in use.
///
/// # Errors
/// [`StoreError`] when there is none, or it is unknown or damaged.
pub fn superblock_and_key(path: &Path) -> Result<(Superblock, [u8; 32]), StoreError> {
    if !path.join(SUPERBLOCK).exists() {
        return Err(StoreError::new(path, StoreFault::NoStore));
    }
    owner::check(path)?;
    let superblock = read_superblock(path)?;
    Ok((superblock, fs_key::read(path, superblock.fs)?))
}

/// How the registry of a store's cluster was reached, when the store last learnt of it; the text is
/// that of its server.
///
/// # Errors
/// [`StoreError`] when the file cannot be read.
pub fn cluster_access(path: &Path) -> Result<Option<String>, StoreError> {
    text_in(&path.join(CLUSTER))
}

/// What a store's server has used of the registry; the text is that of its server.
///
/// # Errors
/// [`StoreError`] when the file cannot be read.
pub fn used_registry(path: &Path) -> Result<Option<String>, StoreError> {
    text_in(&path.join(REGISTRY))
}

fn text_in(file: &Path) -> Result<Option<String>, StoreError> {
    if !file.exists() {
        return Ok(None);
    }
    let text = files::read(file)?;
    let text = String::from_utf8_lossy(&text);
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// Remembers how the registry of a store's cluster is reached.
///
/// # Errors
/// [`StoreError`] when the file system refuses.
pub fn remember_cluster(path: &Path, access: &str) -> Result<(), StoreError> {
    let access = access.trim();
    if cluster_access(path)?.as_deref() == Some(access) {
        return Ok(());
    }
    files::place(&path.join(CLUSTER), format!("{access}\n").as_bytes()).map(drop)
}

/// Remembers, durably, what a store's server uses of the registry from now on.
///
/// # Errors
/// [`StoreError`] when the file system refuses.
pub fn remember_registry(path: &Path, used: &str) -> Result<(), StoreError> {
    files::place(&path.join(REGISTRY), format!("{used}\n").as_bytes()).map(drop)
}

/// The uuid in `joining`; made, durably, if there is none.
fn joining_uuid(path: &Path) -> Result<[u8; 16], StoreError> {
    if let Some(uuid) = read_joining(path)? {
        return Ok(uuid);
    }
    let mut uuid = [0; 16];
    fs_key::random(path, &mut uuid)?;
    let text = format!("{}\n", FsUuid(uuid));
    files::place(&path.join(JOINING), text.as_bytes())?;
    Ok(uuid)
}

/// A file that is no uuid, as of a disk that was full, counts as none.
fn read_joining(path: &Path) -> Result<Option<[u8; 16]>, StoreError> {
    let file = path.join(JOINING);
    if !file.exists() {
        return Ok(None);
    }
    let text = files::read(&file)?;
    let text = std::str::from_utf8(&text).unwrap_or_default().trim_end();
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
    Ok(number.map(u128::to_be_bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::View;
    use std::fs;
    use wire::ServerId;

    const FS: FsUuid = FsUuid([3; 16]);
    const KEY: [u8; 32] = [5; 32];
    const URL: &str = "http://127.0.0.1:2379";

    fn member(store: [u8; 16]) -> Member {
        Member { server: ServerId(2), first_meta: 64, first_data: 80, store }
    }

    #[test]
    fn a_store_that_was_begun_is_finished_after_a_crash_under_its_uuid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        assert!(Draft::unfinished(&path).unwrap().is_none());
        let uuid = Draft::begin(&path, FS, KEY).unwrap().uuid();
        // A crash, and one in the midst of the last step.
        let draft = Draft::unfinished(&path).unwrap().unwrap();
        assert_eq!((draft.fs(), draft.uuid()), (FS, uuid));
        drop(draft);
        assert_eq!(Draft::begin(&path, FS, KEY).unwrap().uuid(), uuid);
        fs::create_dir(path.join("log")).unwrap();
        let draft = Draft::unfinished(&path).unwrap().unwrap();
        let shape = Shape { meta_shard_count: 7, ..Shape::default() };
        let store = draft.finish(&shape, member(uuid), URL).unwrap();
        assert_eq!((store.boot_id(), store.fs_key()), (1, &KEY));
        let superblock = *store.superblock();
        assert_eq!((superblock.fs, superblock.meta_shard_count), (FS, 7));
        assert_eq!(superblock.member, Some(member(uuid)));
        drop(store);
        assert!(Draft::unfinished(&path).unwrap().is_none());
        assert!(Draft::begin(&path, FS, KEY).unwrap_err().to_string().contains("already"));
        assert_eq!(superblock_and_key(&path).unwrap(), (superblock, KEY));
        assert_eq!(cluster_access(&path).unwrap().as_deref(), Some(URL));
        remember_cluster(&path, "http://other:1").unwrap();
        assert_eq!(cluster_access(&path).unwrap().as_deref(), Some("http://other:1"));
        assert_eq!(used_registry(&path).unwrap(), None);
        remember_registry(&path, "{}").unwrap();
        assert_eq!(used_registry(&path).unwrap().as_deref(), Some("{}"));
        assert_eq!(crate::open(&path).unwrap().superblock().member, Some(member(uuid)));
    }

    #[test]
    fn a_store_becomes_that_of_a_server_and_no_view_of_it_is_opened_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut store = crate::open_or_create(&path, &Shape::default()).unwrap();
        let before = *store.superblock();
        assert_eq!(before.format_version(), Superblock::FORMAT_VERSION);
        assert_eq!(cluster_access(&path).unwrap(), None);
        let uuid = store.begin_cluster().unwrap();
        assert_eq!(store.begin_cluster().unwrap(), uuid, "one uuid for good");
        drop(store);
        drop(View::open(&path).unwrap());
        store = crate::open(&path).unwrap();
        let member = Member { server: ServerId(1), first_meta: 0, first_data: 0, store: uuid };
        store.become_member(member, (URL, Layout::GROWING)).unwrap();
        let creation = Creation { layout: Layout::GROWING, ..before.creation };
        let after = Superblock { member: Some(member), creation, ..before };
        assert_eq!(*store.superblock(), after);
        assert!(View::open_served(&path).is_err());
        drop(store);
        let refused = View::open(&path).err().unwrap();
        assert!(matches!(refused.fault(), StoreFault::OfCluster { server: 1 }), "{refused}");
        let kept = crate::open(&path).unwrap();
        assert_eq!(*kept.superblock(), after);
        assert_eq!(after.format_version(), Superblock::MEMBER_FORMAT_VERSION);
    }
}
