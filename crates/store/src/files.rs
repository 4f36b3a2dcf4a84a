//! Writing files atomically.

use crate::{StoreError, owner};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The name of a file until it is complete.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    path.with_added_extension("tmp")
}

/// Writes a file with these bytes, replacing an existing one; file and name are durable on return.
/// The file is open for reading and writing, at its end.
pub(crate) fn place(path: &Path, bytes: &[u8]) -> Result<File, StoreError> {
    place_made(path, |_| bytes)
}

/// The same with bytes that `make` returns for the open file; what `make` does to the file is
/// durable as well.
pub(crate) fn place_made<B: AsRef<[u8]>>(
    path: &Path,
    make: impl FnOnce(&File) -> B,
) -> Result<File, StoreError> {
    let tmp = unfinished(path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&tmp)
        .map_err(|error| StoreError::io("make", &tmp, error))?;
    let own = owner::set_mode(&file, 0o600);
    let bytes = make(&file);
    let written =
        own.and_then(|()| (&file).write_all(bytes.as_ref())).and_then(|()| file.sync_all());
    written.map_err(|error| StoreError::io("write", &tmp, error))?;
    fs::rename(&tmp, path).map_err(|error| StoreError::io("put in place", path, error))?;
    sync_folder(path.parent().unwrap_or(Path::new("/")))?;
    Ok(file)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|error| StoreError::io("make durable", path, error))
}

/// Makes a folder for the owner alone; an existing one is left as it is.
pub(crate) fn make_folder(path: &Path) -> Result<(), StoreError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(StoreError::io("make", path, error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// All bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    fs::read(path).map_err(|error| StoreError::io("read", path, error))
}

/// The names in a folder, sorted.
pub(crate) fn names(path: &Path) -> Result<Vec<String>, StoreError> {
    let listed = || -> io::Result<Vec<String>> {
        fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    let mut names = listed().map_err(|error| StoreError::io("list", path, error))?;
    names.sort_unstable();
    Ok(names)
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    fs::remove_file(path).map_err(|error| StoreError::io("remove", path, error))
}
