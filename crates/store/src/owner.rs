//! Ownership of a store. Invariant: before anything in it is read or written, only the server's
//! user and root can change it, so that no name in it leads to a place that another user chose.
//!
//! The checks use open descriptors, and follow no links but those in the path that the user named.
//! The objects' folder, with perhaps millions of files, is not checked: no other user can have put
//! a file there.

use crate::layout::{LOG, ROWS};
use crate::{StoreError, StoreFault};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// No write permission for group and others.
const OTHERS_WRITE: u32 = 0o022;
/// No permission at all for group and others, for a key.
const OTHERS: u32 = 0o077;

/// Checks a store's directory and its parts, as far as they exist.
pub(crate) fn check(path: &Path) -> Result<(), StoreError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, path, flags, Mode::empty());
    let dir = dir.map_err(|errno| StoreError::io("open", path, errno))?;
    check_file(&dir, path, OTHERS_WRITE)?;
    check_names(&dir, path)?;
    for folder in [LOG, ROWS] {
        let inside = path.join(folder);
        match rustix::fs::openat(&dir, folder, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(opened) => check_names(&opened, &inside)?,
            // A missing part is reported by the code that needs it.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => return Err(StoreError::io("open", &inside, errno)),
        }
    }
    Ok(())
}

fn check_names(dir: &OwnedFd, path: &Path) -> Result<(), StoreError> {
    let list = |errno: Errno| StoreError::io("list", path, errno);
    for entry in rustix::fs::Dir::read_from(dir).map_err(list)? {
        let entry = entry.map_err(list)?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            check_name(dir, path, name)?;
        }
    }
    Ok(())
}

fn check_name(dir: &OwnedFd, path: &Path, name: &CStr) -> Result<(), StoreError> {
    let file = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(opened) => opened,
        // A server that has the store open creates and removes files.
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(StoreError::io("open", &file, errno)),
    };
    let is_key = name == c"fs-key" || name == c"fs-key.tmp";
    check_file(&opened, &file, if is_key { OTHERS } else { OTHERS_WRITE })
}

fn check_file(file: impl AsFd, path: &Path, forbidden: u32) -> Result<(), StoreError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| StoreError::io("look at", path, errno))?;
    let user = rustix::process::geteuid().as_raw();
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return Err(StoreError::new(path, StoreFault::NotRegular));
    }
    if stat.st_uid != user && stat.st_uid != 0 {
        let owner = stat.st_uid;
        return Err(StoreError::new(path, StoreFault::OtherOwner { owner, user }));
    }
    let mode = stat.st_mode & 0o7777;
    if mode & forbidden != 0 {
        return Err(StoreError::new(path, StoreFault::OpenToOthers { mode, forbidden }));
    }
    Ok(())
}

/// Sets the mode of a new file, whatever the umask.
pub(crate) fn set_mode(file: &std::fs::File, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}
