//! Finds the mount at a directory, and unmounts it.
//!
//! No function accesses a mount: a file system whose server is away would block.

use anyhow::{Context as _, Result};
use ring::Mounted;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Whether two are the same mount. Its options may be others now.
fn is_same(one: &Mounted, other: &Mounted) -> bool {
    (&one.point, &one.device, &one.fs_type) == (&other.point, &other.device, &other.fs_type)
}

/// The absolute path of a mount point without asking the file system mounted there: the parent is
/// resolved, the last name is taken as it is.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    let lexical = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (lexical.parent(), lexical.file_name()) else {
        return Ok(lexical);
    };
    let parent = parent
        .canonicalize()
        .with_context(|| format!("the folder {} of {}", parent.display(), path.display()))?;
    Ok(parent.join(name))
}

/// The topmost mount exactly at `point` (absolute).
pub(crate) fn at(point: &Path) -> Result<Option<Mounted>> {
    let table = ring::mount_table(None).context("cannot read /proc/self/mountinfo")?;
    Ok(table.into_iter().rfind(|mounted| mounted.point == point))
}

/// A mount of lanefs with this `MAJOR:MINOR`.
pub(crate) fn of_device(number: &str) -> Result<Option<Mounted>> {
    let table = ring::mount_table(None).context("cannot read /proc/self/mountinfo")?;
    Ok(table.into_iter().find(|mounted| mounted.is_lanefs() && mounted.device == number))
}

/// A mount that this process serves. It may have been unmounted, and another one may be mounted in
/// its place.
#[derive(Debug)]
pub(crate) struct Served {
    dir: PathBuf,
    device: OwnedFd,
    mounted: Option<Mounted>,
}

impl Served {
    /// What was mounted on `dir` just now, with the device that its requests come from. Where that
    /// cannot be looked at it is taken away again, since nobody would serve it.
    pub(crate) fn new(dir: &Path, device: &OwnedFd) -> Result<Self> {
        let served = Self::look(dir, device);
        if served.is_err() {
            detach(dir)?;
        }
        served
    }

    fn look(dir: &Path, device: &OwnedFd) -> Result<Self> {
        let device = device.try_clone().context("cannot keep the mount's device")?;
        Ok(Self { dir: dir.to_owned(), device, mounted: at(dir)? })
    }

    /// Where.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its `MAJOR:MINOR`.
    pub(crate) fn device_number(&self) -> Option<&str> {
        self.mounted.as_ref().map(|mounted| mounted.device.as_str())
    }

    /// Whether it is mounted there.
    pub(crate) fn is_there(&self) -> Result<bool> {
        // A number is given again when its mount is no more.
        let exists = ring::is_connected(&self.device).context("cannot ask the mount's device")?;
        let Some(ours) = &self.mounted else { return Ok(false) };
        Ok(exists && at(&self.dir)?.is_some_and(|there| is_same(&there, ours)))
    }

    /// Unmounts the remainder of a failed mount.
    pub(crate) fn clear(&self) -> Result<()> {
        if self.is_there()? {
            detach(&self.dir)?;
        }
        Ok(())
    }
}

/// Outcome of [`unmount`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unmounted {
    /// Nothing is mounted there any more.
    Done,
    /// A process uses it.
    Busy,
}

/// Unmounts `point`.
pub(crate) fn unmount(point: &Path) -> Result<Unmounted> {
    match ring::unmount(point, false) {
        Ok(()) => Ok(Unmounted::Done),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(Unmounted::Busy),
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", point.display())),
    }
}

/// Detaches `point` from the tree at once. Processes that use it keep it until they close it.
pub(crate) fn detach(point: &Path) -> Result<()> {
    ring::unmount(point, true).with_context(|| format!("cannot detach {}", point.display()))
}
