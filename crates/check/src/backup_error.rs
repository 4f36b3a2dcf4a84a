//! Why there is no backup.

use crate::dump::DumpError;
use crate::lines::LineError;
use std::path::PathBuf;
use std::{fmt, io};
use store::StoreError;

/// Why there is no backup.
#[derive(Debug)]
pub enum BackupError {
    /// The folder has something else, or a whole backup.
    Exists(PathBuf),
    /// The server was started again meanwhile.
    OtherBoot,
    /// It is no whole backup.
    Unfinished(PathBuf),
    /// The store cannot be read.
    Store(StoreError),
    /// Its metadata cannot be read or written.
    Dump(DumpError),
    /// A line of its metadata is none of a dump.
    Line(LineError),
    /// What a server sent is no backup.
    Stream,
    /// The file system said no.
    Io(PathBuf, io::Error),
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(path) => write!(
                f,
                "{} is neither empty nor a backup that was interrupted: name a new folder",
                path.display()
            ),
            Self::Unfinished(path) => write!(
                f,
                "{} is no whole backup: go on with it by `lanefs backup`, or remove it",
                path.display()
            ),
            Self::OtherBoot => f.write_str(
                "the server was started again meanwhile: try again; what was copied is used then",
            ),
            Self::Stream => crate::stream::Malformed.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Dump(error) => error.fmt(f),
            Self::Line(error) => error.fmt(f),
            Self::Io(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<LineError> for BackupError {
    fn from(error: LineError) -> Self {
        Self::Line(error)
    }
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
