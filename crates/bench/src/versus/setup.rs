//! What all directories under test have in common: amounts, a local folder, the user's interrupt.

use super::counts::Counts;
use crate::plan::Interrupt;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The same for all directories of a run.
pub(super) struct Setup {
    pub(super) counts: Counts,
    pub(super) round_count: usize,
    /// The kernel's caches are dropped before cold accesses; only root can.
    pub(super) drop_caches: bool,
    pub(super) interrupt: Interrupt,
    /// Inputs and outputs of programs that are not measured.
    scratch: TempDir,
}

impl Setup {
    pub(super) fn new(
        counts: Counts,
        round_count: usize,
        drop_caches: bool,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let scratch = tempfile::Builder::new().prefix("lanefs-versus-").tempdir();
        let scratch = scratch.context("cannot make a folder for temporary files")?;
        Ok(Self { counts, round_count, drop_caches, interrupt, scratch })
    }

    /// A local folder.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// A local folder of this name, filled by `make` the first time.
    pub(super) fn once(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        once_in(self.scratch(), name, make)
    }

    /// The time of `count` calls. Ends early if the user interrupts or a call fails.
    pub(super) fn time(
        &self,
        count: u64,
        mut call: impl FnMut(u64) -> Result<()>,
    ) -> Result<Duration> {
        let began = Instant::now();
        for index in 0..count {
            self.interrupt.check()?;
            call(index)?;
        }
        Ok(began.elapsed())
    }
}

/// A folder in `base`, filled by `make` the first time. What a failed attempt left is removed.
pub(super) fn once_in(
    base: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let (dir, mark) = (base.join(name), base.join(format!("{name}.complete")));
    if mark.exists() {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    make(&dir)?;
    fs::write(&mark, "").with_context(|| format!("cannot make {}", mark.display()))?;
    Ok(dir)
}
