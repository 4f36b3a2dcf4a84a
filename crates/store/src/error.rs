//! `StoreError`: a fault of a store directory, for the operator of the server: the
//! problem, the path, the reason, and the remedy.

use crate::layout::{LOG, ROWS};
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

/// The kinds of problem.
#[derive(Debug)]
pub enum StoreFault {
    /// There is no store.
    NoStore,
    /// There is a store already.
    Exists,
    /// The directory holds other files.
    Foreign {
        /// A name in it.
        name: String,
    },
    /// Another server has the store open.
    Locked {
        /// Its process id, if it could be read.
        pid: Option<u32>,
    },
    /// Another version of lanefs made the store.
    Version {
        /// The format of this build.
        known: u32,
        /// The format of the store.
        found: u32,
    },
    /// It is the store of one server of several.
    OfCluster {
        /// The server.
        server: u16,
    },
    /// Bytes on the medium differ from those written.
    Damage(Fault),
    /// The rows are older than the log.
    RolledBack {
        /// The last number in the rows.
        rows: u64,
        /// The next number in the log.
        log: u64,
        /// What the numbers count.
        what: &'static str,
    },
    /// A log file is missing.
    LogMissing {
        /// The file that names it.
        by: PathBuf,
    },
    /// A log ends before its durable end.
    LogShort {
        /// Where it ends.
        end: LogPosition,
        /// Its durable end.
        durable: LogPosition,
        /// The file that names the durable end.
        by: PathBuf,
    },
    /// A part that every store has is missing.
    Missing,
    /// No row can be read, and the logs do not go back to the creation of the store.
    RowsUnreadable {
        /// What is wrong with their file.
        fault: Fault,
    },
    /// It is a symbolic link or another special file.
    NotRegular,
    /// It belongs to another user.
    OtherOwner {
        /// Its owner.
        owner: u32,
        /// This process's user.
        user: u32,
    },
    /// Other users have permissions that only the owner may have.
    OpenToOthers {
        /// Its mode.
        mode: u32,
        /// The permissions that no other user may have.
        forbidden: u32,
    },
    /// The file system refused an operation.
    Io {
        /// The operation, as in "cannot …".
        what: &'static str,
        /// The error.
        error: io::Error,
    },
}

impl StoreError {
    pub(crate) fn new(path: &Path, fault: StoreFault) -> Self {
        Self { path: path.to_owned(), fault }
    }

    /// An error for the file that a fault names.
    pub(crate) fn damage(fault: Fault) -> Self {
        let path = PathBuf::from(&fault.device);
        Self { path, fault: StoreFault::Damage(fault.on("")) }
    }

    /// The file system refused `what`, as in "cannot …".
    #[must_use]
    pub fn io(what: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::new(path, StoreFault::Io { what, error: error.into() })
    }

    /// The file or directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file system has no space for more.
    pub(crate) fn is_of_space(&self) -> bool {
        matches!(&self.fault, StoreFault::Io { error, .. }
            if error.kind() == io::ErrorKind::StorageFull)
    }

    /// Whether a log, or the end of one, is missing, so that a repair can continue without it.
    pub(crate) const fn is_about_missing_logs(&self) -> bool {
        matches!(
            self.fault,
            StoreFault::LogMissing { .. }
                | StoreFault::LogShort { .. }
                | StoreFault::RolledBack { .. }
        )
    }

    /// The remedy for damage: commands with the store's path.
    fn remedy(&self) -> String {
        let folder = self.path.parent().unwrap_or(&self.path);
        let is_part = folder.file_name().is_some_and(|name| name == ROWS || name == LOG);
        let store = if is_part { folder.parent().unwrap_or(folder) } else { folder };
        let (store, backup) = (store.display(), "`lanefs restore` makes a new store of a backup");
        let is_damaged = matches!(self.fault, StoreFault::Damage(_));
        if is_damaged && folder.file_name().is_some_and(|name| name == ROWS) {
            return format!(
                "`lanefs check {store}` says what can still be read, `lanefs check {store} \
                 --repair` goes on with that and the logs, {backup}"
            );
        }
        format!("`lanefs check {store}` says what else is wrong, {backup}")
    }

    /// The problem.
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
            StoreFault::OfCluster { server } => write!(
                f,
                "{path} is the store of server {server} of a cluster: names in it lead to files of \
                 other servers, and dump, backup and --repair know stores of a whole file system only. \
                 Nothing was changed"
            ),
            StoreFault::Damage(fault) => write!(
                f,
                "{path} is damaged: {fault}. Nothing was changed. Bring the file back from a copy; \
                 {}",
                self.remedy()
            ),
            StoreFault::RolledBack { rows, log, what } => write!(
                f,
                "{path} went back: it ends with {what} {rows}, the log continues with {what} \
                 {log}. Either it was restored from an older copy or log files are missing. \
                 Restore {path} and the log together, from one moment; {}",
                self.remedy()
            ),
            StoreFault::LogMissing { by } => write!(
                f,
                "{path} is missing: {} names it, and it may have changes that were acknowledged as \
                 durable. Nothing was changed. Restore it, or all of the store from one moment; \
                 {}",
                by.display(),
                self.remedy()
            ),
            StoreFault::LogShort { end, durable, by } => write!(
                f,
                "{path} is damaged: its log ends at byte {} of file {}, and was durable up to byte \
                 {} of file {}, as {} says. Nothing was changed. Restore it, or all of the store \
                 from one moment; {}",
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
            StoreFault::RowsUnreadable { fault } => write!(
                f,
                "nothing can be read of {path}: {fault}. Names and attributes are stored nowhere \
                 else, and the logs do not go back to the creation of the store. Nothing was \
                 changed. Restore the file from a copy; `lanefs restore` makes a new store from a \
                 backup"
            ),
            StoreFault::NotRegular => write!(
                f,
                "{path} is not a plain file or directory: a store with a link in it may lead \
                 anywhere. Put the file itself there; nothing was changed"
            ),
            StoreFault::OtherOwner { owner, user } => write!(
                f,
                "{path} belongs to user {owner}, who could change it under a server that runs as \
                 user {user}: run the server as user {owner}, or give the whole store to user \
                 {user} (chown -R)"
            ),
            StoreFault::OpenToOthers { mode, forbidden: 0o077 } => write!(
                f,
                "{path} can be read or written by others (mode {mode:04o}), and the key in it \
                 suffices to forge changes: chmod 600 {path}"
            ),
            StoreFault::OpenToOthers { mode, .. } => write!(
                f,
                "{path} can be written by others (mode {mode:04o}), who could change the store \
                 under the server: chmod go-w {path}"
            ),
            StoreFault::Io { what, error } => write!(f, "cannot {what} {path}: {error}"),
        }
    }
}

// The message includes the source's message.
impl std::error::Error for StoreError {}
