//! Checks the stores that a scenario leaves: `lanefs check` must find no damage.
//!
//! No server runs on them. A warning loses no name and no contents: it is shown, and is no failure.

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every store has a file of this name.
const SUPERBLOCK: &str = "superblock";
/// Stores lie in a scenario's folder, or in the folder of a part of it.
const DEPTH_MAX: usize = 3;

/// The exit code for warnings without damage.
const MENDABLE_CODE: i32 = 7;

/// Checks a store without a server, contents included; returns its warnings.
pub(crate) fn check(lanefs: &Path, store: &Path) -> Result<Vec<String>> {
    let output = Command::new(lanefs).arg("check").arg(store).output();
    let output = output.context("cannot run `lanefs check`")?;
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let is_sound = stdout.lines().last().is_some_and(|line| line.contains(": 0 damages,"));
    if is_sound && [Some(0), Some(MENDABLE_CODE)].contains(&output.status.code()) {
        let warnings = stdout.lines().filter(|line| line.starts_with("warning: "));
        return Ok(warnings.map(ToOwned::to_owned).collect());
    }
    bail!("`lanefs check {}` ({}):\n{stdout}{stderr}", store.display(), output.status);
}

/// Repairs a store without a server; returns the exit code and the output.
pub(crate) fn repair(lanefs: &Path, store: &Path) -> Result<(Option<i32>, String)> {
    let output = Command::new(lanefs).args(["check", "--repair"]).arg(store).output();
    let output = output.context("cannot run `lanefs check --repair`")?;
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    Ok((output.status.code(), format!("{stdout}{stderr}")))
}

/// Checks every store below a folder; their warnings.
pub(crate) fn check_below(lanefs: &Path, folder: &Path) -> Result<Vec<String>> {
    let stores = stores_below(folder, DEPTH_MAX)?;
    let warnings: Result<Vec<_>> = stores.iter().map(|store| check(lanefs, store)).collect();
    Ok(warnings?.concat())
}

fn stores_below(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    if folder.join(SUPERBLOCK).is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let mut stores = Vec::new();
    if depth == 0 {
        return Ok(stores);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            stores.extend(stores_below(&entry.path(), depth - 1)?);
        }
    }
    Ok(stores)
}
