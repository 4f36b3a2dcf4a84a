//! `StoreError`: what is wrong with a store directory, in words for the person who started the
//! server: what, which path, why, and what to do about it.

use crate::{LOG, ROWS};
use disk::{Fault, LogPosition};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a store cannot be used.
#[derive(Debug)]
pub struct StoreError {
    path: PathBuf,
    fault: StoreFault,
}

/// The kinds of trouble.
#[derive(Debug)]
pub enum StoreFault {
    /// There is no store.
    NoStore,
    /// There is one already.
    Exists,
    /// The directory holds something else.
    Foreign {
        /// A name in it.
        name: String,
    },
    /// Another server has it open.
    Locked {
        /// Its process id, if it could be read.
        pid: Option<u32>,
    },
    /// It was made by another version of lanefs.
    Version {
        /// The format this build reads and writes.
        known: u32,
        /// The format that was found.
        found: u32,
    },
    /// Bytes on the medium are not what was written.
    Damage(Fault),
    /// The rows are older than the log that was written after them.
    WentBack {
        /// What the rows end with.
        rows: u64,
        /// What the log goes on with.
        log: u64,
        /// What is counted.
        what: &'static str,
    },
    /// A log file that was made is not there.
    LogMissing {
        /// The file that says that it was made.
        by: PathBuf,
    },
    /// A log ends before what was durable in it.
    LogShort {
        /// Where it ends.
        end: LogPosition,
        /// Up to where it was durable.
        durable: LogPosition,
        /// The file that says so.
        by: PathBuf,
    },
    /// A part that every store has is not there.
    Missing,
    /// Nothing can be read of the rows, and the logs do not go back to the store's making.
    RowsGone {
        /// What is wrong with their file.
        fault: Fault,
    },
    /// It is no file or directory, but a symbolic link or something else.
    NoFile,
    /// It belongs to somebody else.
    OtherOwner {
        /// To whom.
        owner: u32,
        /// This process's user.
        user: u32,
    },
    /// Others have permissions that only its owner may have.
    OpenToOthers {
        /// Its mode.
        mode: u32,
        /// The permissions that nobody else may have.
        forbidden: u32,
    },
    /// The file system under it said no.
    Io {
        /// What was attempted, as in "cannot …".
        what: &'static str,
        /// What came of it.
        error: io::Error,
    },
}

impl StoreError {
    pub(crate) fn new(path: &Path, fault: StoreFault) -> Self {
        Self { path: path.to_owned(), fault }
    }

    /// Of the file that a fault names.
    pub(crate) fn damage(fault: Fault) -> Self {
        let path = PathBuf::from(&fault.device);
        Self { path, fault: StoreFault::Damage(fault.on("")) }
    }

    /// The file system under it refused `what`, as in "cannot …".
    #[must_use]
    pub fn io(what: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::new(path, StoreFault::Io { what, error: error.into() })
    }

    /// The file or directory it is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether something that was there is missing or older, so that whoever knows that can go on without
    /// it.
    pub(crate) const fn is_about_what_is_missing(&self) -> bool {
        matches!(
            self.fault,
            StoreFault::LogMissing { .. }
                | StoreFault::LogShort { .. }
                | StoreFault::WentBack { .. }
        )
    }

    /// What to do about damage: the commands, with the store they are for.
    fn remedy(&self) -> String {
        let folder = self.path.parent().unwrap_or(&self.path);
        let is_part = folder.file_name().is_some_and(|name| name == ROWS || name == LOG);
        let store = if is_part { folder.parent().unwrap_or(folder) } else { folder };
        let (store, backup) = (store.display(), "`lanefs restore` makes a new store of a backup");
        let is_damaged = matches!(self.fault, StoreFault::Damage(_));
        if is_damaged && folder.file_name().is_some_and(|name| name == ROWS) {
            return format!(
                "`lanefs check {store}` says what can still be read, `lanefs check {store} --repair` goes \
                 on with that and the logs, {backup}"
            );
        }
        format!("`lanefs check {store}` says what else is wrong, {backup}")
    }

    /// What is wrong.
    #[must_use]
    pub const fn fault(&self) -> &StoreFault {
        &self.fault
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.fault {
            StoreFault::NoStore => write!(
                f,
                "there is no lanefs store at {path}: name the right directory, or a new one to make"
            ),
            StoreFault::Exists => {
                write!(f, "{path} is a lanefs store already: choose another directory")
            }
            StoreFault::Foreign { name } => write!(
                f,
                "{path} is neither empty nor a lanefs store (it holds {name:?}): choose an empty \
                 or a new directory"
            ),
            StoreFault::Locked { pid: Some(pid) } => write!(
                f,
                "another server (process {pid}) has the store {path} open: stop it first, or use \
                 another store"
            ),
            StoreFault::Locked { pid: None } => write!(
                f,
                "another server has the store {path} open: stop it first, or use another store"
            ),
            StoreFault::Version { known, found } => write!(
                f,
                "{path} has format version {found}, this lanefs knows version {known}: use the \
                 lanefs that made the store"
            ),
            StoreFault::Damage(fault) => write!(
                f,
                "{path} is damaged: {fault}. Nothing was changed. Bring the file back from a copy; {}",
                self.remedy()
            ),
            StoreFault::WentBack { rows, log, what } => write!(
                f,
                "{path} went back: it ends with {what} {rows}, the log goes on with {what} {log}. \
                 Either it was brought back from an older copy or log files are missing. Bring back {path} and the log together, as they were at one time; {}",
                self.remedy()
            ),
            StoreFault::LogMissing { by } => write!(
                f,
                "{path} is missing: {} says that it was made, and what was acknowledged as durable may be in it. \
                 Nothing was changed. Bring it back, or all of the store as it was at one time; {}",
                by.display(),
                self.remedy()
            ),
            StoreFault::LogShort { end, durable, by } => write!(
                f,
                "{path} is damaged: its log ends at byte {} of file {}, and was durable up to byte {} of file {}, \
                 as {} says. Nothing was changed. Bring it back, or all of the store as it was at one time; {}",
                end.offset,
                end.segment_no,
                durable.offset,
                durable.segment_no,
                by.display(),
                self.remedy()
            ),
            StoreFault::Missing => write!(
                f,
                "{path} is missing from the store. Nothing was changed. Bring it back from a copy; \
                 `lanefs restore` makes a new store of a backup"
            ),
            StoreFault::RowsGone { fault } => write!(
                f,
                "nothing can be read of {path}: {fault}. Names and attributes stand nowhere else, and the logs \
                 do not go back to the making of the store. Nothing was changed. Bring the file back from a \
                 copy; `lanefs restore` makes a new store of a backup"
            ),
            StoreFault::NoFile => write!(
                f,
                "{path} is not a plain file or directory: a store with a link in it may lead anywhere. \
                 Put the file itself there; nothing was changed"
            ),
            StoreFault::OtherOwner { owner, user } => write!(
                f,
                "{path} belongs to user {owner}, who could change it under a server that runs as user \
                 {user}: run the server as user {owner}, or give the whole store to user {user} \
                 (chown -R)"
            ),
            StoreFault::OpenToOthers { mode, forbidden: 0o077 } => write!(
                f,
                "{path} can be read or written by others (mode {mode:04o}), and whoever has that key can \
                 forge changes: chmod 600 {path}"
            ),
            StoreFault::OpenToOthers { mode, .. } => write!(
                f,
                "{path} can be written by others (mode {mode:04o}), who could change the store under \
                 the server: chmod go-w {path}"
            ),
            StoreFault::Io { what, error } => write!(f, "cannot {what} {path}: {error}"),
        }
    }
}

// What lies behind it is part of what it says.
impl std::error::Error for StoreError {}
