//! `lanefs secret`: the store's secret is changed in two steps, with both secrets valid in between.
//!
//! ```text
//! A ── rotate ──▶ B, A ── retire ──▶ B
//! ```
//! Invariant: the file is replaced as a whole, has mode 0600 and the owner that it had.

use super::{MODE, folder_of, of_store, path};
use crate::args::{self, SecretCommand};
use crate::atomic_file::AtomicFile;
use crate::out;
use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, fchown, flock};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;
use wire::{Credential, Secret, Secrets};

/// How long a server may take to take a change up.
const TAKEN: Duration = Duration::from_secs(10);

/// Runs the command.
pub(crate) fn run(args: &args::Secret) -> Result<()> {
    match &args.command {
        SecretCommand::Rotate(file) => rotate(&path(file.secret_file.as_deref())?),
        SecretCommand::Retire(file) => retire(&path(file.secret_file.as_deref())?),
        SecretCommand::Show(file) => show(&path(file.secret_file.as_deref())?),
    }
}

/// A change of a secret file, one at a time.
struct Change {
    /// Behind symbolic links.
    path: PathBuf,
    /// What is replaced.
    file: File,
    secrets: Secrets,
    /// A server of this machine holds it, too.
    served: bool,
    /// Locked.
    _folder: File,
}

impl Change {
    fn begin(path: &Path) -> Result<Self> {
        let shown = path.display();
        // A missing file is said as everywhere else.
        let secrets = library::secret::read_all(path)?;
        if secrets.current.credential() == Credential::Export {
            bail!(
                "{shown} is the secret of an export, which follows from the store's: change that one, then \
                 `lanefs export secret` prints the export's new one"
            );
        }
        let path = path.canonicalize().with_context(|| format!("cannot find {shown}"))?;
        let folder = File::open(folder_of(&path))
            .with_context(|| format!("cannot open the directory of {shown}"))?;
        if is_locked(&folder) {
            bail!("another `lanefs secret` is changing {shown}: try again when it has ended");
        }
        let file = library::secret::open(&path)?;
        let secrets = of_store(&path, library::secret::read_open(&path, &file)?)?;
        // A server holds it.
        let served = is_locked(&file);
        Ok(Self { path, file, secrets, served, _folder: folder })
    }

    /// Puts a file with these secrets in the place of the one there is.
    fn replace(&self, secrets: &Secrets) -> Result<()> {
        self.try_replace(secrets).with_context(|| format!("cannot replace {}", self.path.display()))
    }

    fn try_replace(&self, secrets: &Secrets) -> Result<()> {
        let before = self.file.metadata()?;
        let mut draft = AtomicFile::beside(&self.path, MODE)?;
        let made = draft.file().metadata()?;
        if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
            let owner = (Uid::from_raw(before.uid()), Gid::from_raw(before.gid()));
            fchown(draft.file(), Some(owner.0), Some(owner.1)).context("cannot keep its owner")?;
        }
        draft.write(&library::secret::text_of_all(secrets))?;
        draft.replace(&self.path)?;
        File::open(folder_of(&self.path))?.sync_all()?;
        Ok(())
    }

    /// Waits until the server, if there is one, has taken the change up.
    fn tell_server(self) -> Result<()> {
        let shown = self.path.display();
        if !self.served {
            out::print_line(&format!(
                "no server of this machine is seen to use {shown}; one that is started goes by it"
            ));
            return Ok(());
        }
        let (sender, lock_result) = channel();
        let file = self.file;
        let thread = std::thread::Builder::new().name("server".to_owned());
        // The server unlocks the replaced file when it uses the new one.
        let spawned = thread.spawn(move || {
            let locked = flock(&file, FlockOperation::LockExclusive);
            // The receiver may have timed out.
            let _late = sender.send(locked);
        });
        spawned.context("cannot start a thread")?;
        let Ok(locked) = lock_result.recv_timeout(TAKEN) else {
            bail!(
                "{shown} is changed, but the server that uses it has not taken that up in {} s: see what it \
                 says, and send it SIGHUP",
                TAKEN.as_secs()
            );
        };
        locked.with_context(|| format!("cannot wait for the server of {shown}"))?;
        out::print_line("the server has taken it up");
        Ok(())
    }
}

/// Whether another process has a lock on this file; if not, this one takes it. Some file systems have no such
/// locks, or none on files that are open for reading only: there the answer is no.
fn is_locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

fn rotate(path: &Path) -> Result<()> {
    let shown = path.display();
    let change = Change::begin(path)?;
    if change.secrets.earlier.is_some() {
        bail!(
            "two secrets are valid already: `lanefs secret retire --secret-file {shown}` removes the earlier \
             one, which cuts off clients that have only that"
        );
    }
    let current = Secret::new(library::random()?);
    change.replace(&Secrets { current, earlier: Some(change.secrets.current) })?;
    out::print_line(&format!("{shown} has a new secret; the earlier one stays valid beside it"));
    change.tell_server()?;
    out::print_line(&format!(
        "next: copy {shown} to every client, in the place of its secret file (what is mounted goes on);\n\
         give clients of an export its new secret: `lanefs export secret SERVER NAME`;\n\
         then end the earlier one: `lanefs secret retire --secret-file {shown}`"
    ));
    Ok(())
}

fn retire(path: &Path) -> Result<()> {
    let shown = path.display();
    let change = Change::begin(path)?;
    if change.secrets.earlier.is_none() {
        bail!(
            "{shown} has one secret: there is no earlier one to take out (`lanefs secret rotate` makes a new \
             one first)"
        );
    }
    change.replace(&Secrets::from(change.secrets.current))?;
    out::print_line(&format!("{shown} has one secret: the earlier one is valid no more"));
    change.tell_server()
}

fn show(path: &Path) -> Result<()> {
    let shown = path.display();
    let file = library::secret::open(path)?;
    let secrets = library::secret::read_open(path, &file)?;
    let of = match secrets.current.credential() {
        Credential::Store => "the store's",
        Credential::Export | Credential::Certificate => "an export's",
    };
    let line = match secrets.earlier {
        None => format!("{shown}: one secret ({of})"),
        Some(_) => format!("{shown}: two secrets ({of}), the current one and the earlier one"),
    };
    out::print_line(&line);
    if is_locked(&file) {
        out::print_line("a server of this machine uses it");
    }
    Ok(())
}
