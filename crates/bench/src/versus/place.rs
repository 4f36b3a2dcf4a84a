//! A directory under test, with a folder of the benchmark's own in it.
//!
//! Invariant: all that a run makes in the directory lies in that folder, which [`Place::remove`] or
//! the drop removes.

use super::setup::{Setup, once_in};
use anyhow::{Context as _, Result, ensure};
use rustix::fs::syncfs;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// What is written here is dropped from the kernel's caches.
pub(super) const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// A name that the user gives to a directory, and where it is.
pub type Named = (String, PathBuf);

/// Every fresh folder has a name of its own.
static FRESH_COUNT: AtomicU64 = AtomicU64::new(0);

/// A directory under test.
pub(super) struct Place<'a> {
    pub(super) name: String,
    pub(super) setup: &'a Setup,
    folder: TempDir,
    /// The same folder through the second mount.
    peer: Option<PathBuf>,
}

impl<'a> Place<'a> {
    /// Makes the folder, and tries whether files can be made, read and removed in it.
    ///
    /// # Errors
    /// When they cannot, or the peer does not show them.
    pub(super) fn new(setup: &'a Setup, (name, dir): &Named, peer: Option<&Path>) -> Result<Self> {
        let unusable = || format!("cannot use {name}={}", dir.display());
        let folder = tempfile::Builder::new().prefix("lanefs-versus-").tempdir_in(dir);
        let folder = folder.context("cannot make a folder in it").with_context(unusable)?;
        try_out(folder.path()).with_context(unusable)?;
        let peer = peer.map(|root| {
            let peer = root.join(folder.path().file_name().unwrap_or_default());
            let shown = peer.is_dir();
            ensure!(
                shown,
                "the peer {name}={} does not show what is made in {}: is it the same directory of \
                 the same file system?",
                root.display(),
                dir.display()
            );
            Ok(peer)
        });
        Ok(Self { name: name.clone(), setup, folder, peer: peer.transpose()? })
    }

    /// Its folder.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) const fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Runs `work` in a new folder and removes that, also after a failure.
    pub(super) fn fresh<T>(&self, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let dir = self.path().join(fresh_name());
        fs::create_dir(&dir).context("cannot make a folder")?;
        let done = work(&dir);
        let removed = fs::remove_dir_all(&dir).context("cannot remove what the row has made");
        let done = done?;
        removed?;
        Ok(done)
    }

    /// As [`Self::fresh`], with the folder as both mounts have it.
    pub(super) fn fresh_shared<T>(&self, work: impl FnOnce([&Path; 2]) -> Result<T>) -> Result<T> {
        let peer = self.peer.as_deref().context("no --peer is given for it")?;
        self.fresh(|dir| {
            let name = dir.file_name().context("a folder without a name")?;
            work([dir, &peer.join(name)])
        })
    }

    /// A folder of this name, filled by `make` the first time and kept.
    pub(super) fn once(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        once_in(self.path(), name, make)
    }

    /// Makes the next accesses as cold as this user can; says how.
    pub(super) fn cool(&self) -> Result<&'static str> {
        syncfs(File::open(self.path())?).context("cannot sync")?;
        if !self.setup.drop_caches {
            return Ok("caches not dropped");
        }
        fs::write(DROP_CACHES, "3").context("cannot drop caches")?;
        Ok("caches dropped")
    }

    /// Removes the folder.
    ///
    /// # Errors
    /// When something in it cannot be removed.
    pub(super) fn remove(self) -> Result<()> {
        let path = self.path().to_owned();
        match self.folder.close() {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn fresh_name() -> String {
    format!("fresh-{}", FRESH_COUNT.fetch_add(1, Ordering::Relaxed))
}

fn try_out(folder: &Path) -> Result<()> {
    let file = folder.join("trial");
    fs::write(&file, "trial").context("cannot write a file in it")?;
    let read = fs::read(&file).context("cannot read a file in it")?;
    ensure!(read == b"trial", "a file in it does not have what was written");
    fs::remove_file(&file).context("cannot remove a file in it")
}
