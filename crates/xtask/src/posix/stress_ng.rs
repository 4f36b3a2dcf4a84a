//! stress-ng: all its stressors of the class `filesystem`, and those of others that use files.
//!
//! A signal ends a stressor in the middle of its calls. It passes if its exit code is 0 and it
//! reports no error.

use super::excluded::{Excluded, Excuse};
use super::outcome::{Results, Verdict};
use super::stand::{self, Stand};
use crate::run::root;
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

const SECONDS_MAX: u64 = 600;

/// Of other classes.
const MORE: [&str; 8] = ["aio", "aiol", "io-uring", "mmap", "msync", "readahead", "revio", "seek"];

/// Options that make some use files, or make no more files than can be removed in a moment.
const OPTIONS: [(&str, &[&str]); 2] =
    [("mmap", &["--mmap-file", "--mmap-bytes", "4m"]), ("dentry", &["--dentries", "256"])];

/// Runs all stressors that the list does not exclude, one at a time on each mount.
pub(crate) fn run(stand: &mut Stand) -> Result<Results> {
    let list = Excluded::read(&root().join("tests/posix/excluded.txt"))?;
    let mut results = Results::default();
    let mut waiting = VecDeque::new();
    for name in stressors()? {
        let left_out =
            list.of("stress-ng").any(|line| line.name == name && line.excuse == Excuse::Unrun);
        if left_out {
            results.add(&name, Verdict::Unrun);
        } else {
            waiting.push_back(name);
        }
    }
    let waiting = Mutex::new(waiting);
    let mounts = [stand.first(), stand.second()];
    let stand = &*stand;
    let found = thread::scope(|scope| {
        let runs: Vec<_> = mounts
            .iter()
            .map(|mount| scope.spawn(|| run_waiting(stand, mount, &waiting)))
            .collect();
        runs.into_iter().map(|run| run.join().ok().context("it panicked")?).collect()
    });
    let found: Result<Vec<Vec<(String, Verdict)>>> = found;
    for (name, verdict) in found?.into_iter().flatten() {
        results.add(&name, verdict);
    }
    Ok(results)
}

/// The class in this version of stress-ng, and our additions.
fn stressors() -> Result<BTreeSet<String>> {
    let output = Command::new("stress-ng").args(["--class", "filesystem?"]).output()?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut names = parse_class(&output);
    if names.is_empty() {
        bail!("stress-ng names no stressor of the class filesystem: {output}");
    }
    names.extend(MORE.map(str::to_owned));
    Ok(names)
}

/// `class 'filesystem' stressors: access chdir ...`.
fn parse_class(output: &str) -> BTreeSet<String> {
    let names = output.lines().find_map(|line| line.split_once(" stressors: "));
    names.map_or_else(BTreeSet::new, |(_, names)| {
        names.split_whitespace().map(str::to_owned).collect()
    })
}

fn run_waiting(
    stand: &Stand,
    mount: &Path,
    waiting: &Mutex<VecDeque<String>>,
) -> Result<Vec<(String, Verdict)>> {
    let mut found = Vec::new();
    loop {
        let next = waiting.lock().map(|mut waiting| waiting.pop_front());
        let Some(name) = next.ok().flatten() else { return Ok(found) };
        let dir = mount.join(format!("stress-{name}"));
        let verdict = run_one(stand, &dir, &name)?;
        found.push((name, verdict));
    }
}

fn run_one(stand: &Stand, dir: &PathBuf, name: &str) -> Result<Verdict> {
    fs::create_dir_all(dir)?;
    let mut command = Command::new("stress-ng");
    // Some use the working directory instead of the temporary path: `io` calls syncfs of `.`.
    command.current_dir(dir).arg("--temp-path").arg(dir).args(["--verify", "--timeout", "1s"]);
    command.args([&format!("--{name}"), "1"]);
    for (_, options) in OPTIONS.iter().filter(|(about, _)| *about == name) {
        command.args(*options);
    }
    let ended = stand::ended(&command, SECONDS_MAX, &stand.beside(&format!("stress-{name}.log")))?;
    let verdict = verdict(ended.code, &ended.output);
    println!("stress-ng {name}: {verdict:?}");
    if verdict != Verdict::Passed {
        stand::show(name, &ended.output);
    }
    Ok(verdict)
}

/// A stressor may report an error although its exit code is 0.
fn verdict(code: i32, output: &str) -> Verdict {
    /// No resources, not implemented.
    const CANNOT: [i32; 2] = [3, 4];
    let wrong = |line: &str| line.contains(": fail: ") || line.contains(": error: ");
    if output.lines().any(wrong) || (code != 0 && !CANNOT.contains(&code)) {
        Verdict::Failed
    } else if code != 0 || output.contains("skipping stress") {
        Verdict::Unrun
    } else {
        Verdict::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_read() {
        let names = parse_class("class 'filesystem' stressors: access chdir lease\n");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["access", "chdir", "lease"]);
        assert!(parse_class("Unknown class: 'filesystems'\n").is_empty());
    }

    #[test]
    fn an_end_without_a_complaint_is_well() {
        let well = "stress-ng: info:  [5] successful run completed in 1.04s\n";
        assert_eq!(verdict(0, well), Verdict::Passed);
        assert_eq!(verdict(2, well), Verdict::Failed);
        assert_eq!(verdict(-1, well), Verdict::Failed);
        let complaint = "stress-ng: fail:  [824] access: faccessat failed: 4\n";
        assert_eq!(verdict(0, complaint), Verdict::Failed);
        let cannot = "stress-ng: info:  [7] verity is not supported, skipping stress test\n";
        assert_eq!(verdict(0, cannot), Verdict::Unrun);
        assert_eq!(verdict(4, ""), Verdict::Unrun);
    }
}
