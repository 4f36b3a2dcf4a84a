//! Whose a store is. Invariant: before anything in it is read or written, nobody but the server's user
//! and root can change it, so that no name in it leads to where they choose.
//!
//! What is looked at was opened, and nothing is followed but the path that people named. What lies in the
//! objects' folder, perhaps millions of files, is not looked at: nobody else can have put it there.

use crate::{LOG, ROWS, StoreError, StoreFault};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Who may not write: the group and all others.
const OTHERS_WRITE: u32 = 0o022;
/// Who may not even read a key.
const OTHERS: u32 = 0o077;

/// Checks a store's directory and what is in it, as far as it is there.
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
            // Whoever needs it says so.
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
        // A server that has the store open puts files in place and removes them.
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(StoreError::io("open", &file, errno)),
    };
    let is_key = name == c"redo-key" || name == c"redo-key.tmp";
    check_file(&opened, &file, if is_key { OTHERS } else { OTHERS_WRITE })
}

fn check_file(file: impl AsFd, path: &Path, forbidden: u32) -> Result<(), StoreError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| StoreError::io("look at", path, errno))?;
    let user = rustix::process::geteuid().as_raw();
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        return Err(StoreError::new(path, StoreFault::NoFile));
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

/// The mode of what is made, whatever the umask takes away.
pub(crate) fn set_mode(file: &std::fs::File, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}
