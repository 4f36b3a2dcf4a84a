//! Files of keys, secrets and certificates: made with their mode whatever the umask, synced, and replaced as a
//! whole.
//!
//! Invariant: a file that could not be finished is removed.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A temporary file that will be renamed to its target. Removed when dropped.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    path: PathBuf,
    file: File,
    mode: u32,
    is_there: bool,
}

impl AtomicFile {
    /// An empty one for `target`.
    pub(crate) fn beside(target: &Path, mode: u32) -> io::Result<Self> {
        let mut path = target.as_os_str().to_owned();
        path.push(format!(".{}", std::process::id()));
        Self::at(PathBuf::from(path), mode)
    }

    fn at(path: PathBuf, mode: u32) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { path, file, mode, is_there: true })
    }

    /// The open file, for its owner and mode.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Sets its mode, writes its text and syncs it.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        // A umask may have taken more away, and no more may be left to others.
        self.file.set_permissions(Permissions::from_mode(self.mode))?;
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()
    }

    /// Renames it to `target`, replacing an existing file.
    pub(crate) fn replace(mut self, target: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, target)?;
        self.is_there = false;
        Ok(())
    }

    /// Makes it `target`. Says `AlreadyExists` where something is there.
    pub(crate) fn link(self, target: &Path) -> io::Result<()> {
        std::fs::hard_link(&self.path, target)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.is_there {
            // It says nothing that has to be kept, and what failed before is what is reported.
            let _left = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes a file that is not there.
pub(crate) fn create(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut made = AtomicFile::at(path.to_owned(), mode)?;
    made.write(text)?;
    made.is_there = false;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_draft_that_cannot_take_its_place_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("taken");
        std::fs::create_dir(&target).unwrap();
        let drafted = |place: fn(AtomicFile, &Path) -> io::Result<()>| {
            let mut draft = AtomicFile::beside(&target, 0o600).unwrap();
            draft.write("text").unwrap();
            place(draft, &target).unwrap_err();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the directory alone");
        };
        drafted(AtomicFile::replace);
        drafted(AtomicFile::link);
    }
}
