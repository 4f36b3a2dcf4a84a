//! The processes of this machine: each server, mount and `up` holds a locked file that describes it while it
//! runs.
//!
//! The files are in `$LANEFS_RUN_DIR`, else in systemd's runtime directory, else in `/run/lanefs` for root
//! and in `$XDG_RUNTIME_DIR/lanefs` or `/tmp/lanefs-UID` for others. Only `status`, `down` and a second `up`
//! read them; without a writable directory everything else works. Invariant: a file without a lock belongs
//! to an ended process and is ignored.

use crate::args;
use crate::terms::TermRun;
use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tracing::debug;

/// Which command it is.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// `lanefs up`: a supervisor.
    Up,
    /// `lanefs serve`.
    Serve,
    /// `lanefs mount`.
    Mount,
}

impl Kind {
    /// The command's name.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Serve => "serve",
            Self::Mount => "mount",
        }
    }
}

/// A process's description of itself. Paths that are not UTF-8 are shown lossily.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// What it is.
    pub(crate) kind: Kind,
    /// Which process.
    pub(crate) pid: u32,
    /// Its `up`, if it has one.
    pub(crate) parent_pid: Option<u32>,
    /// Where it serves, or which server it has mounted.
    pub(crate) address: Option<String>,
    /// The directory of its data.
    pub(crate) store: Option<String>,
    /// Where it is mounted, or would be.
    pub(crate) dir: Option<String>,
    /// It is mounted there.
    pub(crate) mounted: bool,
    /// What its lanes reach the kernel through.
    pub(crate) driver: Option<String>,
    /// How requests of the kernel reach it.
    pub(crate) fuse: Option<String>,
    /// How many lanes it has.
    pub(crate) lane_count: Option<usize>,
    /// The epoch of the map that it serves.
    pub(crate) map_epoch: Option<u64>,
    /// The terms in which it has its shards.
    pub(crate) terms: Option<Vec<TermRun>>,
    /// Whether it grants leases, and their term.
    pub(crate) leases: Option<String>,
    /// The address of its page, if it has one.
    pub(crate) metrics: Option<String>,
    /// Where it logs, if that is a file.
    pub(crate) log: Option<String>,
    /// Its build; processes before 0.1.0 do not say it.
    pub(crate) version: Option<String>,
}

impl Entry {
    /// Of this process.
    pub(crate) fn of(kind: Kind, parent_pid: Option<u32>) -> Self {
        Self {
            kind,
            pid: std::process::id(),
            parent_pid,
            address: None,
            store: None,
            dir: None,
            mounted: false,
            driver: None,
            fuse: None,
            lane_count: None,
            map_epoch: None,
            terms: None,
            leases: None,
            metrics: None,
            log: None,
            version: Some(args::VERSION.to_owned()),
        }
    }

    /// The process to signal for its end: its `up`, or itself.
    pub(crate) fn head_pid(&self) -> u32 {
        self.parent_pid.unwrap_or(self.pid)
    }
}

/// A path as it stands in an [`Entry`].
pub(crate) fn text_of(path: &Path) -> String {
    path.display().to_string()
}

/// The file of this process; removed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    entry: Entry,
    /// With its lock, if it could be written.
    registration: Option<(PathBuf, File)>,
}

impl Running {
    /// From here on others find `entry`.
    pub(crate) fn begin(entry: Entry) -> Self {
        let mut running = Self { entry, registration: None };
        running.write();
        running
    }

    /// Updates the description.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Entry)) {
        change(&mut self.entry);
        self.write();
    }

    fn write(&mut self) {
        match folder().and_then(|folder| write(&folder, &self.entry)) {
            Ok(registration) => self.registration = Some(registration),
            Err(error) => debug!("`lanefs status` will not know this process: {error:#}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.registration {
            // One that stays is taken away by the next that reads it: its lock is free.
            let _stays = std::fs::remove_file(path);
        }
    }
}

/// Where the files of the calling user lie, if anything was ever started.
fn place() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let user_id = geteuid();
    if let Some(folder) = named("LANEFS_RUN_DIR") {
        PathBuf::from(folder)
    } else if let Some(folders) = named("RUNTIME_DIRECTORY") {
        std::env::split_paths(&folders).next().unwrap_or_default()
    } else if user_id.is_root() {
        PathBuf::from("/run/lanefs")
    } else if let Some(folder) = named("XDG_RUNTIME_DIR") {
        Path::new(&folder).join("lanefs")
    } else {
        PathBuf::from(format!("/tmp/lanefs-{}", user_id.as_raw()))
    }
}

/// The same folder, made if missing.
fn folder() -> Result<PathBuf> {
    let (folder, user_id) = (place(), geteuid());
    let mode = if user_id.is_root() { 0o755 } else { 0o700 };
    let made = DirBuilder::new().recursive(true).mode(mode).create(&folder);
    made.with_context(|| format!("cannot make {}", folder.display()))?;
    if !is_private(&folder) {
        bail!("{} is not this user's alone", folder.display());
    }
    Ok(folder)
}

/// Written under a temporary name and locked before it is renamed: no reader finds it unlocked.
fn write(folder: &Path, entry: &Entry) -> Result<(PathBuf, File)> {
    let path = folder.join(format!("{}.json", entry.pid));
    let draft = folder.join(format!("{}.draft", entry.pid));
    let shown = || format!("cannot write {}", draft.display());
    let mut file = File::create(&draft).with_context(shown)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(shown)?;
    file.write_all(serde_json::to_string(entry)?.as_bytes()).with_context(shown)?;
    std::fs::rename(&draft, &path).with_context(shown)?;
    Ok((path, file))
}

/// Where the control socket of this process lies.
pub(crate) fn own_socket() -> Result<PathBuf> {
    Ok(folder()?.join(format!("{}.sock", std::process::id())))
}

/// The control socket of a process that was found, if it has one.
pub(crate) fn socket_of(pid: u32) -> Result<Option<PathBuf>> {
    let found = all()?.into_iter().find(|found| found.entry.pid == pid);
    let path = found.map(|found| socket_beside(&found.path));
    Ok(path.filter(|path| path.exists()))
}

fn socket_beside(path: &Path) -> PathBuf {
    path.with_extension("sock")
}

/// A process that was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its description.
    pub(crate) entry: Entry,
    path: PathBuf,
}

/// All that run, ordered by command and process; of root also those that systemd runs as other users.
pub(crate) fn all() -> Result<Vec<Found>> {
    let folder = folder()?;
    let mut found = in_folder(&folder);
    for below in std::fs::read_dir(&folder)?.flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(in_folder(&below.path()));
        }
    }
    found.sort_by_key(|found| (found.entry.kind, found.entry.pid));
    Ok(found)
}

/// A file, whether or not its process lives.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) entry: Entry,
    /// It ended without removing its file: it was killed, or it crashed.
    pub(crate) is_dead: bool,
    /// The user id that the file belongs to.
    pub(crate) owner_id: u32,
    /// When the process last changed what it says.
    pub(crate) changed: SystemTime,
}

/// What all files say. Nothing is made or removed.
pub(crate) fn registered() -> Vec<Registered> {
    let folder = place();
    if !is_private(&folder) {
        return Vec::new();
    }
    let below = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let folders = below.map(|below| below.path()).filter(|below| below.is_dir());
    let paths = [folder].into_iter().chain(folders).flat_map(|folder| paths_in(&folder));
    let mut all: Vec<Registered> = paths.filter_map(|path| look(&path)).collect();
    all.sort_by_key(|it| (it.entry.kind, it.entry.pid));
    all
}

fn look(path: &Path) -> Option<Registered> {
    let file = File::open(path).ok()?;
    let is_dead = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
    let metadata = file.metadata().ok()?;
    let (owner_id, changed) = (metadata.uid(), metadata.modified().ok()?);
    Some(Registered { entry: serde_json::from_reader(&file).ok()?, is_dead, owner_id, changed })
}

/// Whether it is a folder that nobody but this user writes.
fn is_private(folder: &Path) -> bool {
    let found = std::fs::symlink_metadata(folder);
    found.is_ok_and(|found| {
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
    })
}

fn paths_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

fn in_folder(folder: &Path) -> Vec<Found> {
    let paths = paths_in(folder).into_iter();
    paths.filter_map(|path| read(&path).map(|entry| Found { entry, path })).collect()
}

/// The description of a living process. Files of others are removed.
fn read(path: &Path) -> Option<Entry> {
    let mut file = File::open(path).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        if std::fs::metadata(path).ok()?.ino() != file.metadata().ok()?.ino() {
            // Replaced by its process, which holds the lock of the new one.
            return read(path);
        }
        // Without the right to remove it, it stays for its owner.
        let _stays = std::fs::remove_file(path);
        let _absent = std::fs::remove_file(socket_beside(path));
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let entry: Entry = serde_json::from_str(&text).ok()?;
    // It could name anybody's process otherwise.
    let owner = std::fs::metadata(format!("/proc/{}", entry.pid)).ok()?.uid();
    (owner == file.metadata().ok()?.uid()).then_some(entry)
}

impl Found {
    /// Its process, which no other takes the number of any more.
    pub(crate) fn open_process(&self) -> Result<OwnedFd> {
        let number = i32::try_from(self.entry.pid).ok().and_then(Pid::from_raw);
        let number = number.context("no process has such a number")?;
        let process = pidfd_open(number, PidfdFlags::empty());
        let process = process.with_context(|| format!("process {}", self.entry.pid))?;
        // Looked at again: it may have ended before it was opened.
        if read(&self.path).is_none_or(|entry| entry.pid != self.entry.pid) {
            bail!("process {} has ended meanwhile", self.entry.pid);
        }
        Ok(process)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_means_something_as_long_as_its_lock_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let entry = Entry { dir: Some("/a".to_owned()), ..Entry::of(Kind::Mount, None) };
        let (path, lock) = write(folder.path(), &entry).unwrap();
        assert_eq!(read(&path).as_ref(), Some(&entry));
        let changed = Entry { mounted: true, ..entry };
        let (path, next) = write(folder.path(), &changed).unwrap();
        drop(lock);
        assert_eq!(in_folder(folder.path()).pop().unwrap().entry, changed);
        assert!(!look(&path).unwrap().is_dead);
        drop(next);
        let dead = look(&path).unwrap();
        assert!(dead.is_dead && dead.entry == changed && path.exists(), "looking removes nothing");
        let socket = socket_beside(&path);
        File::create(&socket).unwrap();
        assert!(in_folder(folder.path()).is_empty());
        assert!(!path.exists() && !socket.exists(), "they were taken away");
    }

    #[test]
    fn a_file_that_is_no_entry_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("1.json")).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        assert!(in_folder(folder.path()).is_empty());
    }
}
