//! `versus`: the same rows of work on several directories, whatever file systems they are of, and
//! rows of two mounts of one file system.
//!
//! Rounds alternate: in each every directory does a row once, and the first one changes. What fails
//! on one directory is reported for that one, and costs the others nothing. Invariant: whatever
//! ends a run, nothing stays in the directories that can be removed.

mod builds;
mod coherence;
mod contention;
mod contents;
mod counts;
mod line;
mod names;
mod pattern;
mod place;
mod program;
mod setup;
mod trees;
mod workload;

pub use counts::Counts;
pub use line::{Line, lines_table};
pub use place::Named;

use crate::machine::host;
use crate::plan::Interrupt;
use crate::report::Progress;
use crate::rounds::alternate;
use anyhow::{Context as _, Result, ensure};
use place::{DROP_CACHES, Place};
use setup::Setup;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::Path;
use workload::{NAME, Sample, Workload};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Versus {
    /// The directories.
    pub dirs: Vec<Named>,
    /// The same directories through second mounts, by the names of `dirs`.
    pub peers: Vec<Named>,
    /// The directory that the others are compared with; `None` for the first.
    pub baseline: Option<String>,
    /// Only these rows; empty for all.
    pub rows: Vec<String>,
    /// Rounds.
    pub round_count: usize,
    /// Amounts of a round.
    pub counts: Counts,
    /// Drop the kernel's caches before cold accesses; only root can.
    pub drop_caches: bool,
    /// Set to end the run early.
    pub interrupt: Interrupt,
}

impl Versus {
    /// The names of all rows, in their order.
    #[must_use]
    pub fn row_names() -> Vec<&'static str> {
        workloads().iter().map(|workload| workload.name).collect()
    }

    /// The machine and the directories with their file systems, in one line.
    #[must_use]
    pub fn machine(&self) -> String {
        let shown = |(name, path): &Named| {
            let kind = file_system(path);
            format!("{name} is {} ({kind})", path.display())
        };
        let dirs: Vec<String> = self.dirs.iter().map(shown).collect();
        format!("{}; {}", host(), dirs.join(", "))
    }

    /// Checks names and rows.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        for (name, _) in &self.dirs {
            ensure!(names.insert(name), "two directories are named {name}");
        }
        let mut peer_names = BTreeSet::new();
        for (name, _) in &self.peers {
            ensure!(names.contains(name), "there is a --peer {name} and no --dir {name}");
            ensure!(peer_names.insert(name), "two peers are named {name}");
        }
        if let Some(baseline) = &self.baseline {
            ensure!(names.contains(baseline), "there is no --dir {baseline} to compare with");
        }
        let known = Self::row_names();
        for row in &self.rows {
            let is_known = known.contains(&row.as_str());
            ensure!(is_known, "there is no row '{row}'; there are: {}", known.join(", "));
        }
        Ok(())
    }

    /// Runs all rows. `on_row` gets the lines of each as it is finished.
    ///
    /// # Errors
    /// When a directory cannot be used at all, something cannot be removed again, or the user
    /// interrupts.
    pub fn run(&self, mut on_row: impl FnMut(&[Line]) -> Result<()>) -> Result<()> {
        self.check()?;
        let interrupt = self.interrupt.clone();
        let setup = Setup::new(self.counts, self.round_count, self.drop_caches, interrupt)?;
        let mut places = Vec::new();
        for named in &self.dirs {
            let peer = self.peers.iter().find(|peer| peer.0 == named.0);
            places.push(Place::new(&setup, named, peer.map(|peer| peer.1.as_path()))?);
        }
        let workloads = self.chosen();
        let progress = Progress::new(NAME);
        progress.begin(workloads.len() * places.len() * self.round_count);
        let mut done = Ok(());
        for workload in &workloads {
            done = self.race(workload, &places, &progress).and_then(|lines| on_row(&lines));
            if done.is_err() {
                break;
            }
        }
        progress.end();
        let removed: Vec<Result<()>> = places.into_iter().map(Place::remove).collect();
        done.and(removed.into_iter().collect())
    }

    /// The rows to run. Those of two mounts are left out if there is no peer at all.
    fn chosen(&self) -> Vec<&'static Workload> {
        let is_wanted = |workload: &&Workload| {
            let is_named = self.rows.iter().any(|row| row == workload.name);
            is_named || (self.rows.is_empty() && (!workload.with_peer || !self.peers.is_empty()))
        };
        workloads().into_iter().filter(is_wanted).collect()
    }

    /// One row of all directories.
    fn race(
        &self,
        workload: &Workload,
        places: &[Place<'_>],
        progress: &Progress,
    ) -> Result<Vec<Line>> {
        let missing = program::missing(workload.programs);
        let mut failures: Vec<Option<String>> = places
            .iter()
            .map(|place| match missing.as_slice() {
                [] if workload.with_peer && !place.has_peer() => Some("no --peer".to_owned()),
                [] => None,
                missing => Some(format!("not installed: {}", missing.join(", "))),
            })
            .collect();
        let samples = alternate(places.len(), self.round_count, |index, round_no| {
            let (place, failure) = (&places[index], &mut failures[index]);
            self.interrupt.check()?;
            progress.step(&format!("{}, {}", workload.name, place.name));
            if failure.is_some() {
                return Ok(None);
            }
            let sample = (workload.run)(place, round_no);
            self.interrupt.check()?;
            Ok(sample.map_err(|error| *failure = Some(format!("failed: {error:#}"))).ok())
        })?;
        let baseline_index = self.baseline_index(places);
        let baseline = places.get(baseline_index).context("there is no directory")?;
        let complete = |index: usize| -> Vec<Sample> {
            let whole = failures[index].is_none();
            samples[index].iter().flatten().filter(|_| whole).cloned().collect()
        };
        let baseline_samples = complete(baseline_index);
        let line = |(index, place): (usize, &Place<'_>)| {
            let names = (place.name.as_str(), baseline.name.as_str());
            match &failures[index] {
                Some(failure) => Line::failed(workload, names, failure.clone()),
                None => Line::measured(workload, names, &complete(index), &baseline_samples),
            }
        };
        Ok(places.iter().enumerate().map(line).collect())
    }

    fn baseline_index(&self, places: &[Place<'_>]) -> usize {
        let is_baseline = |place: &Place<'_>| self.baseline.as_ref() == Some(&place.name);
        places.iter().position(is_baseline).unwrap_or(0)
    }
}

/// Whether this user can drop the kernel's caches.
#[must_use]
pub fn can_drop_caches() -> bool {
    OpenOptions::new().write(true).open(DROP_CACHES).is_ok()
}

/// All rows.
fn workloads() -> Vec<&'static Workload> {
    let groups: [&'static [Workload]; 6] = [
        &names::WORKLOADS,
        &contents::WORKLOADS,
        &trees::WORKLOADS,
        &builds::WORKLOADS,
        &coherence::WORKLOADS,
        &contention::WORKLOADS,
    ];
    groups.into_iter().flatten().collect()
}

/// What the system calls the file system that is mounted there.
fn file_system(path: &Path) -> String {
    let found = path.canonicalize().ok().and_then(|path| {
        let table = procfs::process::Process::myself().and_then(|this| this.mountinfo()).ok()?;
        let mounts = table.into_iter().filter(|mount| path.starts_with(&mount.mount_point));
        // The last one of a mount point hides those before it.
        mounts.max_by_key(|mount| mount.mount_point.as_os_str().len())
    });
    found.map_or_else(|| "unknown".to_owned(), |mount| mount.fs_type)
}

#[cfg(test)]
mod tests;
