//! The secrets of a running server: read again when their file changes or a signal requests it, and
//! distributed to the lanes.
//!
//! The server holds a shared lock on the file that its lanes use. A process that replaces the file can wait
//! for that lock: the server releases it when all lanes have the secrets of the new file. Invariant: a file
//! that cannot be used changes nothing, and is logged.

use super::{folder_of, of_store, read_or_make};
use anyhow::{Context as _, Result};
use library::FileStamp;
use ring::Waker;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{read, retry_on_intr, write};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use tracing::{info, warn};
use wire::Secrets;

/// Makes a server read its secrets again, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct ReloadTrigger(Arc<OwnedFd>);

impl ReloadTrigger {
    /// For one server.
    pub(crate) fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self(Arc::new(event.context("cannot make an eventfd")?)))
    }

    /// Does so.
    pub(crate) fn fire(&self) {
        // Fails only when 2^64 - 2 of them were not heard.
        let _heard_already = write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> bool {
        read(&*self.0, &mut [0; 8]).is_ok()
    }
}

/// The secrets of a server and the file that has them.
#[derive(Debug)]
pub(crate) struct WatchedSecrets {
    path: PathBuf,
    secrets: Secrets,
    /// Of the file, when it was last looked at.
    stamp: Option<FileStamp>,
    /// With a shared lock.
    file: File,
    changes: Option<OwnedFd>,
    /// Why the last look was for nothing.
    fault: String,
    trigger: ReloadTrigger,
}

impl WatchedSecrets {
    /// Reads the store's secrets in `path`; one is made first if there is none.
    pub(crate) fn open(path: &Path, trigger: ReloadTrigger) -> Result<Self> {
        // Independent of the working directory.
        let path = std::path::absolute(path)?;
        read_or_make(&path)?;
        // From here on nothing is missed.
        let changes = watch(&path);
        let stamp = FileStamp::of(&path);
        let (file, secrets) = read_locked(&path)?;
        Ok(Self { path, secrets, stamp, file, changes, fault: String::new(), trigger })
    }

    /// What is valid.
    pub(crate) const fn secrets(&self) -> Secrets {
        self.secrets
    }

    /// Starts a thread that passes new secrets to the lanes.
    pub(crate) fn keep(mut self, lanes: Vec<Waker>) -> Result<()> {
        let thread = std::thread::Builder::new().name("secret".to_owned());
        let spawned = thread.spawn(move || {
            loop {
                let asked = self.wait();
                self.look(&lanes, asked);
            }
        });
        spawned.context("cannot start a thread")?;
        Ok(())
    }

    /// Waits until something may have changed. Whether that was said by a signal.
    fn wait(&self) -> bool {
        let mut sources = vec![PollFd::new(&*self.trigger.0, PollFlags::IN)];
        sources.extend(self.changes.iter().map(|changes| PollFd::new(changes, PollFlags::IN)));
        // It fails for want of memory alone, and is tried again.
        let _woken = retry_on_intr(|| poll(&mut sources, None));
        if let Some(changes) = &self.changes {
            // What happened to which name does not matter.
            while read(changes, &mut [0; 4096]).is_ok() {}
        }
        self.trigger.take()
    }

    fn look(&mut self, lanes: &[Waker], asked: bool) {
        let stamp = FileStamp::of(&self.path);
        if stamp == self.stamp && !asked {
            return;
        }
        self.stamp = stamp;
        match read_locked(&self.path) {
            Ok((file, secrets)) => {
                if secrets != self.secrets || asked {
                    give(lanes, secrets);
                    let valid = if secrets.earlier.is_some() { "two are" } else { "one is" };
                    info!("read the secret again: {valid} valid");
                }
                self.secrets = secrets;
                // The lock on the one before goes now.
                self.file = file;
                self.fault.clear();
            }
            Err(error) => {
                let fault = format!("{error:#}; the earlier secrets stay valid");
                if fault != self.fault || asked {
                    warn!("{fault}");
                }
                self.fault = fault;
            }
        }
    }
}

/// Passes the secrets to all lanes; returns when all lanes use them.
fn give(lanes: &[Waker], secrets: Secrets) {
    let (applied_sender, applied) = channel();
    for lane in lanes {
        lane.set_secrets(Some(secrets), Some(applied_sender.clone()));
    }
    drop(applied_sender);
    // Nothing is sent: `recv` returns when the last lane has dropped its sender.
    let _all_have = applied.recv();
}

fn read_locked(path: &Path) -> Result<(File, Secrets)> {
    let file = library::secret::open(path)?;
    // `lanefs secret` holds it exclusively for a moment at most. Without locks it does not wait for the server.
    let _unlocked = retry_on_intr(|| flock(&file, FlockOperation::LockShared));
    let secrets = library::secret::read_open(path, &file)?;
    Ok((file, of_store(path, secrets)?))
}

/// Watches the secret's directory for new and changed files. Without it, only a signal causes a reload.
fn watch(path: &Path) -> Option<OwnedFd> {
    let added = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).and_then(|changes| {
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::ATTRIB;
        inotify::add_watch(&changes, folder_of(path), flags)?;
        // A symbolic link may lead elsewhere.
        if let Ok(target) = path.canonicalize() {
            inotify::add_watch(&changes, folder_of(&target), flags)?;
        }
        Ok(changes)
    });
    let failed = |error| {
        let path = path.display();
        warn!("cannot watch the secret {path} ({error}): after a change, send SIGHUP");
    };
    added.map_err(failed).ok()
}
