//! The target of a copy. Below the directory of the command line no symbolic link is followed, also if
//! another process makes one meanwhile.
//!
//! ```text
//! ground: DEST, or DEST's directory      below: names that the copy makes or finds
//! links are followed                     links are replaced, or are errors
//! ```
//! On this machine each name is opened relative to the directory before it. A server's names are looked up
//! one by one, and operations use the inode found.

use super::Session;
use super::side::Meta;
use crate::address::{Place, Url};
use anyhow::{Context as _, Result};
use library::{FileKind, SetAttr, SetTime, Special, Status, Timestamp, Volume};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Flags for a directory handle, for lookups only.
const FIND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// The same without following a symbolic link.
const FIND_HERE: OFlags = FIND.union(OFlags::NOFOLLOW);

/// The destination of a copy.
#[derive(Clone)]
pub(crate) struct Target {
    ground: Rc<Ground>,
    below: PathBuf,
}

enum Ground {
    Local(PathBuf, OwnedFd),
    Remote(Url),
}

/// A directory that names are found in.
enum Dir<'a> {
    Ground(&'a OwnedFd),
    Below(OwnedFd),
}

impl AsFd for Dir<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ground(dir) => dir.as_fd(),
            Self::Below(dir) => dir.as_fd(),
        }
    }
}

impl Target {
    /// A name in a directory; the directory's path may contain symbolic links.
    pub(crate) fn new(dir: &Place, name: &OsStr) -> Result<Self> {
        let ground = match dir {
            Place::Local(path) => {
                let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
                let dir = rustix::fs::openat(CWD, here, FIND | OFlags::DIRECTORY, Mode::empty());
                let dir = dir.with_context(|| format!("cannot open {}", here.display()))?;
                Ground::Local(path.clone(), dir)
            }
            Place::Remote(url) => Ground::Remote(url.clone()),
        };
        Ok(Self { ground: Rc::new(ground), below: PathBuf::from(name) })
    }

    /// A name below this one.
    pub(crate) fn join(&self, name: &OsString) -> Self {
        Self { ground: Rc::clone(&self.ground), below: self.below.join(name) }
    }

    /// As one path, for messages and comparisons.
    pub(crate) fn place(&self) -> Place {
        match &*self.ground {
            Ground::Local(path, _) => Place::Local(path.join(&self.below)),
            Ground::Remote(url) => Place::Remote(url.at(url.path.join(&self.below))),
        }
    }

    pub(crate) fn text(&self) -> String {
        self.place().text()
    }

    /// What is there, a link itself if it is one. `None`: nothing.
    pub(crate) fn look(&self, session: &mut Session) -> Result<Option<Meta>> {
        match &*self.ground {
            Ground::Local(_, dir) => match self.find(dir) {
                Ok(found) => Ok(Some(Meta::of_local(&fs::File::from(found).metadata()?))),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(errno.into()),
            },
            Ground::Remote(url) => {
                let found = self.on_server(session, url, |volume, path| Ok(volume.lstat(path)));
                match found? {
                    Ok(attr) => Ok(Some(Meta::of_attr(&attr))),
                    Err(error) if error.is_not_found() => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Makes a directory.
    pub(crate) fn make_dir(&self, session: &mut Session, mode: u32) -> Result<()> {
        match &*self.ground {
            Ground::Local(_, dir) => {
                let (parent, name) = self.parent(dir)?;
                Ok(rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode))?)
            }
            Ground::Remote(url) => {
                self.on_server(session, url, |volume, path| volume.mkdir(path, mode)).map(drop)
            }
        }
    }

    /// Removes a name of something that is no directory.
    pub(crate) fn remove(&self, session: &mut Session) -> Result<()> {
        match &*self.ground {
            Ground::Local(_, dir) => {
                let (parent, name) = self.parent(dir)?;
                Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?)
            }
            Ground::Remote(url) => self.on_server(session, url, Volume::unlink),
        }
    }

    /// Makes a symbolic link.
    pub(crate) fn make_link(&self, session: &mut Session, to: &OsString) -> Result<()> {
        match &*self.ground {
            Ground::Local(_, dir) => {
                let (parent, name) = self.parent(dir)?;
                Ok(rustix::fs::symlinkat(to, parent, name)?)
            }
            Ground::Remote(url) => {
                self.on_server(session, url, |volume, path| volume.symlink(to, path)).map(drop)
            }
        }
    }

    /// Makes a fifo, socket or device like the one that `meta` is of, less the umask.
    pub(crate) fn make_special(&self, session: &mut Session, meta: &Meta) -> Result<()> {
        match &*self.ground {
            Ground::Local(_, dir) => {
                let kind = FileType::from_raw_mode(meta.kind.mode_bits());
                let mode = Mode::from_raw_mode(meta.mode & 0o777);
                let (major, minor) = super::show::device_parts(meta.rdev);
                let device = rustix::fs::makedev(major, minor);
                let (parent, name) = self.parent(dir)?;
                Ok(rustix::fs::mknodat(parent, name, kind, mode, device)?)
            }
            Ground::Remote(url) => {
                let special = Special { kind: meta.kind, mode: meta.mode & 0o777, rdev: meta.rdev };
                self.on_server(session, url, |volume, path| volume.mknod(path, &special)).map(drop)
            }
        }
    }

    /// Sets the owner (if that is allowed), mode and times of `meta`.
    pub(crate) fn preserve(&self, session: &mut Session, meta: &Meta) -> Result<()> {
        match &*self.ground {
            Ground::Local(_, dir) => {
                preserve_local(&self.find(dir)?, meta)?;
                let (parent, name) = self.parent(dir)?;
                let (times, flags) = (times_of(meta), AtFlags::SYMLINK_NOFOLLOW);
                Ok(rustix::fs::utimensat(parent, name, &times, flags)?)
            }
            Ground::Remote(url) => {
                self.on_server(session, url, |volume, path| preserve_remote(volume, path, meta))
            }
        }
    }

    /// Sets the permission bits.
    pub(crate) fn set_mode(&self, session: &mut Session, mode: u32) -> Result<()> {
        match &*self.ground {
            Ground::Local(_, dir) => set_mode_local(&self.find(dir)?, mode),
            Ground::Remote(url) => {
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                let set_mode = |volume: &mut Volume, path: &Path| {
                    let inode = volume.stat(path)?.inode;
                    volume.set_attr(inode, path, &set)
                };
                self.on_server(session, url, set_mode).map(drop)
            }
        }
    }

    /// Opens an emptied or new file with `mode` less the umask.
    pub(crate) fn create(&self, session: &mut Session, mode: u32) -> Result<Dest> {
        match &*self.ground {
            Ground::Local(path, dir) => {
                let (parent, name) = self.parent(dir)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
                let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(mode);
                let file = rustix::fs::openat(parent, name, flags, mode)?;
                Ok(Dest::Local(path.join(&self.below), file.into()))
            }
            Ground::Remote(url) => {
                let create = |volume: &mut Volume, path: &Path| {
                    let file = volume.create(path, mode, false)?;
                    if file.attr.size_bytes > 0 {
                        volume.truncate(&file, 0)?;
                    }
                    Ok(file)
                };
                let file = self.on_server(session, url, create)?;
                Ok(Dest::Remote(url.clone(), Box::new(file)))
            }
        }
    }

    /// Does something to the path on a server.
    fn on_server<T>(
        &self,
        session: &mut Session,
        url: &Url,
        act: impl FnOnce(&mut Volume, &Path) -> Result<T, library::Error>,
    ) -> Result<T> {
        let volume = session.volume(url)?;
        // What is read may lie on the same server, behind links.
        volume.refuse_links(self.below.components().count());
        let done = act(volume, &url.path.join(&self.below));
        volume.refuse_links(0);
        Ok(done?)
    }

    /// The directory of the last name, and that name.
    fn parent<'a>(&'a self, ground: &'a OwnedFd) -> Result<(Dir<'a>, &'a OsStr), Errno> {
        let mut here = Dir::Ground(ground);
        let name = self.below.file_name().ok_or(Errno::INVAL)?;
        for dir in self.below.parent().into_iter().flat_map(Path::iter) {
            let flags = FIND_HERE | OFlags::DIRECTORY;
            here = Dir::Below(rustix::fs::openat(&here, dir, flags, Mode::empty())?);
        }
        Ok((here, name))
    }

    /// The thing itself, to be looked at or named, not read.
    fn find(&self, ground: &OwnedFd) -> Result<OwnedFd, Errno> {
        let (parent, name) = self.parent(ground)?;
        rustix::fs::openat(parent, name, FIND_HERE, Mode::empty())
    }
}

fn preserve_local(file: &OwnedFd, meta: &Meta) -> Result<()> {
    // As `cp -p`: a caller who may not change the owner keeps the copy.
    let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
    match rustix::fs::chownat(file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    if meta.kind == FileKind::Symlink { Ok(()) } else { set_mode_local(file, meta.mode) }
}

fn times_of(meta: &Meta) -> Timestamps {
    let spec = |time: Timestamp| Timespec { tv_sec: time.secs, tv_nsec: i64::from(time.nanos) };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

fn set_mode_local(file: &OwnedFd, mode: u32) -> Result<()> {
    // fchmod(2) takes no such descriptor; this names what it is of. A link has no mode.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn preserve_remote(volume: &mut Volume, path: &Path, meta: &Meta) -> Result<(), library::Error> {
    let inode = volume.lstat(path)?.inode;
    let owner = SetAttr { uid: Some(meta.uid), gid: Some(meta.gid), ..SetAttr::default() };
    match volume.set_attr(inode, path, &owner) {
        Err(error) if error.status() == Some(Status::NotPermitted) => {}
        given => given.map(drop)?,
    }
    let link = meta.kind == FileKind::Symlink;
    let rest = SetAttr {
        mode: (!link).then_some(meta.mode),
        atime: SetTime::At(meta.atime),
        mtime: SetTime::At(meta.mtime),
        ..SetAttr::default()
    };
    volume.set_attr(inode, path, &rest).map(drop)
}

/// A file that is written.
pub(crate) enum Dest {
    Local(PathBuf, fs::File),
    Remote(Url, Box<library::File>),
}

impl Dest {
    /// Writes pieces, each to its offset.
    pub(crate) fn write(&self, session: &mut Session, pieces: &[(u64, &[u8])]) -> Result<()> {
        match self {
            Self::Local(path, file) => {
                for (file_offset, bytes) in pieces {
                    let written = file.write_all_at(bytes, *file_offset);
                    written.with_context(|| format!("cannot write {}", path.display()))?;
                }
                Ok(())
            }
            Self::Remote(url, file) => Ok(session.volume(url)?.write_pieces(file, pieces)?),
        }
    }

    /// Sets the final size, which also makes the hole at the end, and closes.
    pub(crate) fn finish(self, session: &mut Session, size_bytes: u64, hole: bool) -> Result<()> {
        match self {
            Self::Local(_, file) if hole => Ok(file.set_len(size_bytes)?),
            Self::Local(..) => Ok(()),
            Self::Remote(url, file) => {
                let volume = session.volume(&url)?;
                let sized = if hole { volume.truncate(&file, size_bytes) } else { Ok(()) };
                volume.close(*file)?;
                Ok(sized?)
            }
        }
    }
}
