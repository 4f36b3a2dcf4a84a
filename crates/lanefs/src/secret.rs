//! The file system's secret on disk: found and read as the library does it, and made where there is
//! none.
//!
//! Invariant: the secret is never printed, and a file that others may read is never used.

use anyhow::{Context as _, Result, bail};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use wire::{Credential, Secret};

pub(crate) use library::secret::{path, read, text_of};

/// The store's secret in `path`, made first if there is none.
pub(crate) fn read_or_make(path: &Path) -> Result<Secret> {
    match read(path) {
        Ok(secret) if secret.credential() != Credential::Store => {
            bail!("the secret {} is that of an export, not the store's", path.display());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path).with_context(|| format!("cannot make the secret {}", path.display()))?;
            Ok(read(path)?)
        }
        read => Ok(read?),
    }
}

/// Writes a new secret beside `path` and links it there: whoever comes second finds the first's.
fn make(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut draft_name = path.as_os_str().to_owned();
    draft_name.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft_name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = write(&mut file);
    let linked = written.and_then(|()| match std::fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    std::fs::remove_file(&draft)?;
    linked?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn write(file: &mut File) -> io::Result<()> {
    // A umask may have taken more away, and nothing may be left to others.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let secret = Secret::new(library::random()?);
    file.write_all(text_of(&secret).as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
