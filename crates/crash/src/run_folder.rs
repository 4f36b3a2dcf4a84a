//! The folder of a run, and its cleanup.
//!
//! Invariant: everything that a run mounts or attaches lies below its folder. So whatever is
//! mounted below a run's folder is its leftover, and is removed when the run ends, when it gets a
//! signal to end, and at the start of the next run.

use crate::disk;
use anyhow::{Context as _, Result, bail};
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::path::{Path, PathBuf};

/// The prefix of run folders; the process id follows.
const RUN_PREFIX: &str = "run-";

/// What every part of a run needs.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The binary under test.
    pub(crate) lanefs: PathBuf,
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// The run's folder.
    pub(crate) folder: PathBuf,
}

impl Setup {
    /// A part of the run, in a folder of its own.
    pub(crate) fn part(&self, name: &str) -> Result<Self> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, ..self.clone() })
    }
}

/// The run's folder. Dropping it removes it, unless the caller retains it.
pub(crate) struct RunFolder {
    /// The folder.
    pub(crate) folder: PathBuf,
    retained: bool,
}

impl RunFolder {
    /// Removes the leftovers of dead runs in `place`, and makes a folder for this one.
    pub(crate) fn new(place: &Path) -> Result<Self> {
        fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
        let place = place.canonicalize()?;
        sweep_dead_runs(&place)?;
        let folder = place.join(format!("{RUN_PREFIX}{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        on_ending(folder.clone())?;
        Ok(Self { folder, retained: false })
    }

    /// Leaves logs and journals in place.
    pub(crate) fn keep(&mut self) {
        self.retained = true;
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Err(error) = sweep(&self.folder) {
            eprintln!("left behind below {}: {error:#}", self.folder.display());
        } else if !self.retained {
            fs::remove_dir_all(&self.folder).ok();
        }
    }
}

/// Fails if root, FUSE or loop devices are missing.
pub(crate) fn check_machine() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("needs root: it mounts, kills and cuts power");
    }
    let open = |path: &str| fs::File::options().read(true).write(true).open(path);
    open("/dev/fuse").context("needs /dev/fuse (modprobe fuse, or --device /dev/fuse)")?;
    open("/dev/loop-control").context(
        "needs loop devices (modprobe loop, or --device /dev/loop-control): the power loss runs \
         put a file system on one",
    )?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in ["mkfs.ext4", "filefrag", "losetup", "mount", "setpriv"] {
        if !std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
            bail!("needs the program {program} (apt-get install e2fsprogs mount util-linux)");
        }
    }
    Ok(())
}

/// Cleans up when this process gets a signal to end; its children end with it.
fn on_ending(folder: PathBuf) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            if let Err(error) = sweep(&folder) {
                eprintln!("left behind below {}: {error:#}", folder.display());
            }
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn sweep_dead_runs(place: &Path) -> Result<()> {
    for entry in fs::read_dir(place)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(RUN_PREFIX) else { continue };
        if Path::new("/proc").join(pid).exists() {
            continue;
        }
        sweep(&entry.path())?;
        fs::remove_dir_all(entry.path()).ok();
    }
    Ok(())
}

/// Unmounts everything below a folder, the innermost first, and detaches its loop devices.
fn sweep(folder: &Path) -> Result<()> {
    // Listed first: once the disk is unmounted, nothing shows which devices are its.
    let devices = disk::loops_below(folder)?;
    let mut dirs = mounts_below(folder)?;
    // A later mount lies on an earlier one: the last is unmounted first.
    while let Some(dir) = dirs.pop() {
        unmount(&dir, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount {}", dir.display()))?;
    }
    devices.iter().try_for_each(|device| disk::detach(device))
}

/// The mounts below a folder, in the order they were mounted.
fn mounts_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let dirs = ring::mount_table(None)?.into_iter().map(|mounted| mounted.point);
    Ok(dirs.filter(|dir| dir.starts_with(folder)).collect())
}
