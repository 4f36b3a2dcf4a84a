//! The two sides of a copy, this machine and a server, behind one set of read operations.
//!
//! [`super::target`] writes, and [`super::cp`] has the rules and the order of `cp`. Invariant: an operation
//! depends on the side of its path only, not on the path's role.

use super::Session;
use crate::address::{Place, Url};
use anyhow::{Result, bail};
use library::{Attr, BULK_BYTES_MAX, Bytes, FileKind, OpenFor, Piece, Timestamp};
use rustix::fs::SeekFrom;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

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

    pub(crate) fn of_attr(attr: &Attr) -> Self {
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

    pub(crate) fn of_local(metadata: &fs::Metadata) -> Self {
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

/// What a symbolic link points to.
pub(crate) fn read_link(session: &mut Session, place: &Place) -> Result<OsString> {
    match place {
        Place::Local(path) => Ok(fs::read_link(path)?.into_os_string()),
        Place::Remote(url) => Ok(session.volume(url)?.readlink(&url.path)?),
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
            // The file system does not support it.
            Err(_) => Ok(file_offset),
        }
    }

    /// The bytes of `count` pieces from `file_offset` on; a short one is the file's end.
    pub(crate) fn read(
        &self,
        session: &mut Session,
        file_offset: u64,
        count: u64,
    ) -> Result<Vec<Bytes>> {
        let piece_bytes = u64::from(BULK_BYTES_MAX);
        let offsets = (0..count).map(|index| file_offset + index * piece_bytes);
        match self {
            Self::Local(file) => offsets.map(|at| Ok(read_local(file, at)?.into())).collect(),
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

/// A place one name below another.
pub(crate) fn below(place: &Place, name: &OsString) -> Place {
    match place {
        Place::Local(path) => Place::Local(path.join(name)),
        Place::Remote(url) => Place::Remote(url.at(url.path.join(name))),
    }
}

/// The directory that a place's last name is in.
pub(crate) fn above(place: &Place) -> Place {
    let above = |path: &std::path::Path| path.parent().unwrap_or(path).to_path_buf();
    match place {
        Place::Local(path) => Place::Local(above(path)),
        Place::Remote(url) => Place::Remote(url.at(above(&url.path))),
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
