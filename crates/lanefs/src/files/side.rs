//! The two sides of a copy, this machine and a server, behind one set of verbs.
//!
//! It leaves the order of things and the rules of `cp` to [`super::cp`]. Invariant: nothing here
//! looks at what a path is for; it does what it is told on the side the path is on.

use super::Session;
use crate::address::{Place, Url};
use anyhow::{Context as _, Result, bail};
use library::{
    Attr, BULK_BYTES_MAX, FileKind, OpenFor, Piece, SetAttr, SetTime, Special, Status, Timestamp,
};
use rustix::fs::{AtFlags, CWD, SeekFrom, Timespec, Timestamps};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

/// Pieces on their way at once.
pub(crate) const READ_AHEAD_COUNT: u64 = 8;

/// What is known of a file on either side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) kind: FileKind,
    /// A device's number, 0 for all else.
    pub(crate) rdev: u32,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size_bytes: u64,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    /// Device (0 on a server) and inode: the same file has the same on one side.
    pub(crate) identity: (u64, u64),
}

impl Meta {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    fn of_attr(attr: &Attr) -> Self {
        Self {
            kind: attr.kind,
            rdev: attr.rdev,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size_bytes: attr.size_bytes,
            atime: attr.atime,
            mtime: attr.mtime,
            identity: (0, attr.inode.0),
        }
    }

    fn of_local(metadata: &fs::Metadata) -> Self {
        // What has no kind we know of can be read, if at all.
        let kind = FileKind::from_mode(metadata.mode()).unwrap_or(FileKind::File);
        let rdev = if kind.is_device() { linux_rdev(metadata.rdev()) } else { 0 };
        let time = |secs, nanos: i64| Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or(0) };
        Self {
            kind,
            rdev,
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            size_bytes: metadata.size(),
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
            identity: (metadata.dev(), metadata.ino()),
        }
    }
}

/// A device's number in 32 bits, as [`Attr::rdev`] has it.
fn linux_rdev(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The process's umask.
pub(crate) fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// What a place names; links at its end are followed if `follow`. `None`: nothing.
pub(crate) fn look(session: &mut Session, place: &Place, follow: bool) -> Result<Option<Meta>> {
    match place {
        Place::Local(path) => {
            let found = if follow { fs::metadata(path) } else { fs::symlink_metadata(path) };
            match found {
                Ok(metadata) => Ok(Some(Meta::of_local(&metadata))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            }
        }
        Place::Remote(url) => {
            let volume = session.volume(url)?;
            let found = if follow { volume.stat(&url.path) } else { volume.lstat(&url.path) };
            match found {
                Ok(attr) => Ok(Some(Meta::of_attr(&attr))),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// The names in a directory, of a server's a piece at a time.
pub(crate) enum Names {
    Local(Vec<OsString>),
    Remote(Url, library::Dir),
}

impl Names {
    pub(crate) fn open(session: &mut Session, place: &Place) -> Result<Self> {
        match place {
            Place::Local(path) => {
                let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
                Ok(Self::Local(names.collect::<io::Result<_>>()?))
            }
            Place::Remote(url) => {
                let dir = session.volume(url)?.read_dir(&url.path)?;
                Ok(Self::Remote(url.clone(), dir))
            }
        }
    }

    /// The next ones, none at the end.
    pub(crate) fn next(&mut self, session: &mut Session) -> Result<Vec<OsString>> {
        match self {
            Self::Local(names) => Ok(std::mem::take(names)),
            Self::Remote(url, dir) => {
                let entries = session.volume(url)?.next_entries(dir)?;
                Ok(entries.into_iter().map(|entry| entry.name).collect())
            }
        }
    }
}

/// Makes a directory.
pub(crate) fn make_dir(session: &mut Session, place: &Place, mode: u32) -> Result<()> {
    match place {
        Place::Local(path) => Ok(fs::DirBuilder::new().mode(mode).create(path)?),
        Place::Remote(url) => Ok(session.volume(url)?.mkdir(&url.path, mode).map(drop)?),
    }
}

/// Removes a name of something that is no directory.
pub(crate) fn remove(session: &mut Session, place: &Place) -> Result<()> {
    match place {
        Place::Local(path) => Ok(fs::remove_file(path)?),
        Place::Remote(url) => Ok(session.volume(url)?.unlink(&url.path)?),
    }
}

/// What a symbolic link points to.
pub(crate) fn read_link(session: &mut Session, place: &Place) -> Result<OsString> {
    match place {
        Place::Local(path) => Ok(fs::read_link(path)?.into_os_string()),
        Place::Remote(url) => Ok(session.volume(url)?.readlink(&url.path)?),
    }
}

/// Makes a symbolic link.
pub(crate) fn make_link(session: &mut Session, place: &Place, target: &OsString) -> Result<()> {
    match place {
        Place::Local(path) => Ok(std::os::unix::fs::symlink(target, path)?),
        Place::Remote(url) => Ok(session.volume(url)?.symlink(target, &url.path).map(drop)?),
    }
}

/// Makes a fifo, socket or device like the one that `meta` is of, less the umask.
pub(crate) fn make_special(session: &mut Session, place: &Place, meta: &Meta) -> Result<()> {
    match place {
        Place::Local(path) => {
            let kind = rustix::fs::FileType::from_raw_mode(meta.kind.mode_bits());
            let mode = rustix::fs::Mode::from_raw_mode(meta.mode & 0o777);
            let (major, minor) = super::show::device_parts(meta.rdev);
            let device = rustix::fs::makedev(major, minor);
            Ok(rustix::fs::mknodat(CWD, path, kind, mode, device)?)
        }
        Place::Remote(url) => {
            let special = Special { kind: meta.kind, mode: meta.mode & 0o777, rdev: meta.rdev };
            Ok(session.volume(url)?.mknod(&url.path, &special).map(drop)?)
        }
    }
}

/// Gives a place the owner (if that is allowed), mode and times of `meta`.
pub(crate) fn preserve(session: &mut Session, place: &Place, meta: &Meta) -> Result<()> {
    match place {
        Place::Local(path) => preserve_local(path, meta),
        Place::Remote(url) => preserve_remote(session, url, meta),
    }
}

fn preserve_local(path: &Path, meta: &Meta) -> Result<()> {
    // As `cp -p`: whoever may not give files away keeps what he copied.
    let given = std::os::unix::fs::lchown(path, Some(meta.uid), Some(meta.gid));
    match given {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    if meta.kind != FileKind::Symlink {
        fs::set_permissions(path, fs::Permissions::from_mode(meta.mode))?;
    }
    let spec = |time: Timestamp| Timespec { tv_sec: time.secs, tv_nsec: i64::from(time.nanos) };
    let times = Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn preserve_remote(session: &mut Session, url: &Url, meta: &Meta) -> Result<()> {
    let volume = session.volume(url)?;
    let inode = volume.lstat(&url.path)?.inode;
    let owner = SetAttr { uid: Some(meta.uid), gid: Some(meta.gid), ..SetAttr::default() };
    match volume.set_attr(inode, &url.path, &owner) {
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
    volume.set_attr(inode, &url.path, &rest)?;
    Ok(())
}

/// Sets the permission bits of a place.
pub(crate) fn set_mode(session: &mut Session, place: &Place, mode: u32) -> Result<()> {
    match place {
        Place::Local(path) => Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?),
        Place::Remote(url) => {
            let volume = session.volume(url)?;
            let inode = volume.stat(&url.path)?.inode;
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            Ok(volume.set_attr(inode, &url.path, &set).map(drop)?)
        }
    }
}

/// A file that is read.
pub(crate) enum Source {
    Local(fs::File),
    Remote(Url, Box<library::File>),
}

impl Source {
    pub(crate) fn open(session: &mut Session, place: &Place) -> Result<Self> {
        match place {
            Place::Local(path) => Ok(Self::Local(fs::File::open(path)?)),
            Place::Remote(url) => {
                let file = session.volume(url)?.open(&url.path, OpenFor::Read)?;
                Ok(Self::Remote(url.clone(), Box::new(file)))
            }
        }
    }

    /// Where the next bytes are that are no hole, from `file_offset` on; the start of their piece.
    pub(crate) fn next_data(&self, file_offset: u64) -> Result<u64> {
        let Self::Local(file) = self else { return Ok(file_offset) };
        let piece_bytes = u64::from(BULK_BYTES_MAX);
        match rustix::fs::seek(file, SeekFrom::Data(file_offset)) {
            Ok(data_offset) => Ok((data_offset - data_offset % piece_bytes).max(file_offset)),
            // Only a hole is left: go on at its end.
            Err(rustix::io::Errno::NXIO) => Ok(file.metadata()?.size().max(file_offset)),
            // A file system that cannot tell.
            Err(_) => Ok(file_offset),
        }
    }

    /// The bytes of `count` pieces from `file_offset` on; a short one is the file's end.
    pub(crate) fn read(
        &self,
        session: &mut Session,
        file_offset: u64,
        count: u64,
    ) -> Result<Vec<Vec<u8>>> {
        let piece_bytes = u64::from(BULK_BYTES_MAX);
        let offsets = (0..count).map(|index| file_offset + index * piece_bytes);
        match self {
            Self::Local(file) => offsets.map(|at| Ok(read_local(file, at)?)).collect(),
            Self::Remote(url, file) => {
                let piece = |file_offset| Piece { file_offset, piece_bytes: BULK_BYTES_MAX };
                let pieces: Vec<Piece> = offsets.map(piece).collect();
                Ok(session.volume(url)?.read_pieces(file, &pieces)?)
            }
        }
    }

    pub(crate) fn close(self, session: &mut Session) -> Result<()> {
        match self {
            Self::Local(_) => Ok(()),
            Self::Remote(url, file) => Ok(session.volume(&url)?.close(*file)?),
        }
    }
}

fn read_local(file: &fs::File, file_offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; BULK_BYTES_MAX as usize];
    let mut filled_bytes = 0;
    while filled_bytes < bytes.len() {
        match file.read_at(&mut bytes[filled_bytes..], file_offset + filled_bytes as u64) {
            Ok(0) => break,
            Ok(read_bytes) => filled_bytes += read_bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled_bytes);
    Ok(bytes)
}

/// A file that is written.
pub(crate) enum Dest {
    Local(PathBuf, fs::File),
    Remote(Url, Box<library::File>),
}

impl Dest {
    /// Opens an emptied or new file with `mode` less the umask.
    pub(crate) fn create(session: &mut Session, place: &Place, mode: u32) -> Result<Self> {
        match place {
            Place::Local(path) => {
                let mut options = fs::OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(mode);
                Ok(Self::Local(path.clone(), options.open(path)?))
            }
            Place::Remote(url) => {
                let volume = session.volume(url)?;
                let file = volume.create(&url.path, mode, false)?;
                if file.attr.size_bytes > 0 {
                    volume.truncate(&file, 0)?;
                }
                Ok(Self::Remote(url.clone(), Box::new(file)))
            }
        }
    }

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

/// A place one name below another.
pub(crate) fn below(place: &Place, name: &OsString) -> Place {
    match place {
        Place::Local(path) => Place::Local(path.join(name)),
        Place::Remote(url) => Place::Remote(url.at(url.path.join(name))),
    }
}

/// The last name of a place.
pub(crate) fn name_of(place: &Place) -> Result<OsString> {
    let path = match place {
        Place::Local(path) => path,
        Place::Remote(url) => &url.path,
    };
    match path.file_name() {
        Some(name) => Ok(name.to_owned()),
        None => bail!("'{}' has no name of its own", place.text()),
    }
}
