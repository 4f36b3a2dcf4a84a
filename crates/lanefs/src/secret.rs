//! The file system's secret on disk: found and read as the library does it, made where there is none, changed
//! by `lanefs secret`, and read again by a running server.
//!
//! Invariant: the secret is never printed, and a file that others may read is never used.

mod change;
mod watched;

pub(crate) use change::run;
pub(crate) use watched::{ReloadTrigger, WatchedSecrets};

use crate::atomic_file::AtomicFile;
use crate::log;
use anyhow::{Context as _, Result, bail};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use wire::{Credential, Secret, Secrets};

pub(crate) use library::secret::{path, path_or_new, read, read_all, text_of};

/// Nobody but its owner reads it.
const MODE: u32 = 0o600;

/// The store's secrets in `path`, one made first if there is none.
pub(crate) fn read_or_make(path: &Path) -> Result<Secrets> {
    match read_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path).with_context(|| format!("cannot make the secret {}", path.display()))?;
            of_store(path, read_all(path)?)
        }
        read => of_store(path, read?),
    }
}

/// What was read in `path`, if it is the store's.
fn of_store(path: &Path, secrets: Secrets) -> Result<Secrets> {
    if secrets.current.credential() != Credential::Store {
        bail!("the secret {} is that of an export, not the store's", path.display());
    }
    Ok(secrets)
}

/// Reads a secret file again after the server has refused its earlier content.
pub(crate) fn read_again(path: &Path) -> Option<Secrets> {
    let read = read_all(path);
    read.map_err(|error| log::report(&error.to_string())).ok()
}

/// The directory of a file.
fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Makes a secret in `path`.
fn make(path: &Path) -> Result<()> {
    write_new(path, &Secret::new(library::random()?))
}

/// Writes a secret beside `path` and links it there. The second of two processes uses the first one's.
pub(crate) fn write_new(path: &Path, secret: &Secret) -> Result<()> {
    let folder = folder_of(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut draft = AtomicFile::beside(path, MODE)?;
    draft.write(&text_of(secret))?;
    match draft.link(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        linked => linked?,
    }
    File::open(folder)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests;
