//! The file system's secret on disk: found and read as the library does it, made where there is none, changed
//! by `lanefs secret`, and read again by a running server.
//!
//! Invariant: the secret is never printed, and a file that others may read is never used.

mod change;
mod kept;

pub(crate) use change::run;
pub(crate) use kept::{Kept, Poke};

use crate::log;
use anyhow::{Context as _, Result, bail};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use wire::{Credential, Secret, Secrets};

pub(crate) use library::secret::{path, read, read_all, text_of};

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

/// What is in a file that was read before; the server refused what was in it then.
pub(crate) fn read_again(path: &Path) -> Option<Secrets> {
    let read = read_all(path);
    read.map_err(|error| log::complain(&error.to_string())).ok()
}

/// The directory of a file.
fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// A name beside `path` for what is about to become it.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    PathBuf::from(name)
}

/// Writes a new secret beside `path` and links it there: whoever comes second finds the first's.
fn make(path: &Path) -> Result<()> {
    let folder = folder_of(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let draft = draft_of(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let random = library::random();
    let written = random.and_then(|random| write(&mut file, &text_of(&Secret::new(random))));
    let linked = written.and_then(|()| match std::fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    std::fs::remove_file(&draft)?;
    linked?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn write(file: &mut File, text: &str) -> io::Result<()> {
    // A umask may have taken more away, and nothing may be left to others.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
