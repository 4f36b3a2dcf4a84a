//! Exports, for administrators ([`crate::Purpose::Administer`]).

use super::{Session, broken, refused};
use crate::{Error, random};
use client::{Answer, Call};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use wire::{
    Bytes, EXPORT_PATH_BYTES_MAX, FileKind, InodeNo, Secret, SetExport, Squash, Status, Wire as _,
};

/// A directory that clients can mount, and the identity of their requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// The directory's path when the export was defined. The export follows the directory when it
    /// is renamed.
    pub path: PathBuf,
    /// The directory.
    pub root: InodeNo,
    /// It is read-only.
    pub read_only: bool,
    /// The identity of its clients' requests.
    pub squash: Squash,
    /// It is defined in the store. Otherwise an option of the server defines it, or it is the
    /// default.
    pub stored: bool,
    id: u64,
}

impl Export {
    /// The secret of this export; `store` is the store's.
    #[must_use]
    pub fn secret(&self, store: &Secret) -> Secret {
        store.of_export(self.name.as_bytes(), self.id)
    }
}

/// A definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewExport<'a> {
    /// Its name: at most 64 of a-z, A-Z, 0-9, `.`, `_` and `-`, the first of a-z, A-Z or 0-9.
    pub name: &'a str,
    /// The directory.
    pub path: &'a Path,
    /// It is read-only.
    pub read_only: bool,
    /// The identity of its clients' requests.
    pub squash: Squash,
    /// An existing export with this name is replaced.
    pub replace: bool,
}

/// A definition on its way to a volume's thread.
pub(crate) struct OwnedNewExport {
    name: String,
    path: PathBuf,
    rest: NewExport<'static>,
}

impl NewExport<'_> {
    pub(crate) fn owned(&self) -> OwnedNewExport {
        let rest = NewExport { name: "", path: Path::new(""), ..*self };
        OwnedNewExport { name: self.name.to_owned(), path: self.path.to_path_buf(), rest }
    }
}

impl OwnedNewExport {
    pub(crate) fn lent(&self) -> NewExport<'_> {
        NewExport { name: &self.name, path: &self.path, ..self.rest }
    }
}

/// The result of removing an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// It was removed.
    Done,
    /// There was no such export.
    Unknown,
}

impl Session {
    /// All exports, in the order of names.
    ///
    /// # Errors
    /// [`Error::Op`] with `NotPermitted` when this volume does not administer.
    pub(crate) async fn exports(&self) -> Result<Vec<Export>, Error> {
        let root = Path::new("/");
        let reply = self.call("exports", root, &Call::Exports).await?;
        let Answer::Exports(_) = reply.answer else { return Err(broken("exports", root)) };
        let decoded = wire::Exports::decode_all(&reply.small);
        let decoded = decoded.map_err(|_| broken("exports", root))?;
        Ok(decoded.rows.iter().map(|row| export_of(&row)).collect())
    }

    /// Defines an export, durably, at every lane of the server.
    ///
    /// # Errors
    /// [`Error::Op`]: `Exists` when the name is taken, `Busy` when an option of the server defines
    /// it, `NotDirectory` or `NotFound` for the path, `NotPermitted`.
    pub(crate) async fn add_export(&self, new: &NewExport<'_>) -> Result<(), Error> {
        let attr = self.stat(new.path).await?;
        if attr.kind != FileKind::Directory {
            return Err(refused("export", new.path, Status::NotDirectory));
        }
        let path = new.path.as_os_str().as_bytes();
        if path.len() > EXPORT_PATH_BYTES_MAX {
            return Err(refused("export", new.path, Status::NameTooLong));
        }
        let id = u64::from_le_bytes(random().map_err(Error::Ring)?);
        let export = wire::Export {
            id,
            name: Bytes(new.name.as_bytes()),
            root: attr.inode,
            path: Bytes(path),
            read_only: new.read_only,
            squash: new.squash,
            closed: false,
        };
        let call = Call::SetExport(SetExport { export, replace: new.replace });
        self.call("export", new.path, &call).await.map(drop)
    }

    /// Removes an export. Requests through it are refused from then on.
    ///
    /// # Errors
    /// [`Error::Op`]: `Busy` when an option of the server defines it, `NotPermitted`.
    pub(crate) async fn remove_export(&self, name: &str) -> Result<Removal, Error> {
        let export = wire::Export {
            id: 0,
            name: Bytes(name.as_bytes()),
            root: InodeNo::ROOT,
            path: Bytes(b"/"),
            read_only: false,
            squash: Squash::ROOT,
            closed: true,
        };
        let call = Call::SetExport(SetExport { export, replace: false });
        match self.call("export", Path::new(name), &call).await {
            Ok(_) => Ok(Removal::Done),
            Err(Error::Op { status: Status::NotFound, .. }) => Ok(Removal::Unknown),
            Err(error) => Err(error),
        }
    }
}

fn export_of(row: &wire::ExportRow<'_>) -> Export {
    let wire::Export { id, name, root, path, read_only, squash, .. } = row.export;
    Export {
        name: String::from_utf8_lossy(name.0).into_owned(),
        path: PathBuf::from(OsString::from_vec(path.0.to_vec())),
        root,
        read_only,
        squash,
        stored: row.stored,
        id,
    }
}
