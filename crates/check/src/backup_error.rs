//! Why there is no backup.

use crate::dump::DumpError;
use crate::lines::LineError;
use crate::stream::Malformed;
use std::io;
use std::path::PathBuf;
use store::StoreError;
use thiserror::Error;

/// Why there is no backup.
#[derive(Error, Debug)]
pub enum BackupError {
    /// The folder has something else, or a whole backup.
    #[error("{0} is neither empty nor a backup that was interrupted: name a new folder")]
    Exists(PathBuf),
    /// The server was started again meanwhile.
    #[error("the server was started again meanwhile: try again; what was copied is used then")]
    OtherBoot,
    /// It is no whole backup.
    #[error("{0} is no whole backup: go on with it by `lanefs backup`, or remove it")]
    Unfinished(PathBuf),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its metadata cannot be read or written.
    #[error(transparent)]
    Dump(DumpError),
    /// A line of its metadata is none of a dump.
    #[error(transparent)]
    Line(#[from] LineError),
    /// What a server sent is no backup.
    #[error("{Malformed}")]
    Stream,
    /// The file system said no.
    #[error("cannot write {0}: {1}")]
    Io(PathBuf, io::Error),
}
