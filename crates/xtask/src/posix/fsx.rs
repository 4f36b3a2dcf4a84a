//! fsx (the crate): one file that is written, read, mapped, truncated and filled at random, and
//! compared with a copy in memory after every step.
//!
//! Some runs alternate between both mounts: the file is opened through a symbolic link whose target
//! changes, so that each open may be on another mount than the last.

use super::outcome::{Results, Verdict};
use super::stand::{self, Stand};
use super::tools;
use anyhow::{Context as _, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const SECONDS_MAX: u64 = 600;

/// How long the link points to one mount.
const STAY: Duration = Duration::from_millis(3);

/// The path of a run's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Through {
    First,
    Second,
    Both,
}

struct Plan {
    name: &'static str,
    through: Through,
    config: &'static str,
    seed: u32,
    step_count: u32,
}

/// All operations.
const ALL: &str = "
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 2
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 3
punch_hole = 3
copy_file_range = 3
sendfile = 3
posix_fadvise = 1
";

/// Unaligned sizes.
const SMALL: &str = "
flen = 40000
[opsize]
max = 3000
[weights]
close_open = 2
mapread = 5
mapwrite = 5
read = 10
write = 10
truncate = 5
";

/// Reopened often.
const REOPENED: &str = "
flen = 300000
[opsize]
max = 50000
[weights]
close_open = 20
mapread = 5
mapwrite = 5
read = 10
write = 10
truncate = 3
punch_hole = 3
copy_file_range = 3
";

const PLANS: [Plan; 6] = [
    Plan { name: "all-1", through: Through::First, config: ALL, seed: 1, step_count: 3000 },
    Plan { name: "all-2", through: Through::Second, config: ALL, seed: 2, step_count: 3000 },
    Plan { name: "small-3", through: Through::First, config: SMALL, seed: 3, step_count: 4000 },
    Plan { name: "small-4", through: Through::Second, config: SMALL, seed: 4, step_count: 4000 },
    Plan { name: "both-5", through: Through::Both, config: REOPENED, seed: 5, step_count: 3000 },
    Plan { name: "both-6", through: Through::Both, config: REOPENED, seed: 6, step_count: 3000 },
];

/// Runs all plans, two at a time.
pub(crate) fn run(stand: &mut Stand) -> Result<Results> {
    let mut results = Results::default();
    for pair in PLANS.chunks(2) {
        let stand = &*stand;
        let verdicts = thread::scope(|scope| {
            let runs: Vec<_> =
                pair.iter().map(|plan| scope.spawn(move || run_plan(stand, plan))).collect();
            runs.into_iter().map(|run| run.join().ok().context("it panicked")?).collect()
        });
        let verdicts: Result<Vec<Verdict>> = verdicts;
        for (plan, verdict) in pair.iter().zip(verdicts?) {
            results.add(plan.name, verdict);
        }
    }
    Ok(results)
}

fn run_plan(stand: &Stand, plan: &Plan) -> Result<Verdict> {
    let config = stand.beside(&format!("{}.toml", plan.name));
    fs::write(&config, plan.config)?;
    let link = stand.beside(plan.name);
    let places = match plan.through {
        Through::First => vec![stand.first()],
        Through::Second => vec![stand.second()],
        Through::Both => vec![stand.first(), stand.second()],
    };
    let files: Vec<PathBuf> = places.iter().map(|place| place.join(plan.name)).collect();
    point(&link, files.first().context("no mount")?)?;
    let mut command = Command::new(tools::path("fsx"));
    command.arg("-f").arg(&config).arg("-P").arg(stand.beside(""));
    command.args(["-S", &plan.seed.to_string(), "-N", &plan.step_count.to_string()]).arg(&link);
    let log = stand.beside(&format!("{}.log", plan.name));
    let over = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        if files.len() > 1 {
            scope.spawn(|| turn_about(&link, &files, &over));
        }
        let ended = stand::ended(&command, SECONDS_MAX, &log);
        over.store(true, Ordering::Relaxed);
        ended
    })?;
    println!("fsx {} (seed {}): exit code {}", plan.name, plan.seed, ended.code);
    if ended.code == 0 && is_well(&ended.output) {
        return Ok(Verdict::Passed);
    }
    stand::show(plan.name, &ended.output);
    Ok(Verdict::Failed)
}

fn is_well(output: &str) -> bool {
    output.lines().any(|line| line == "All operations completed A-OK!")
}

/// Switches the link between the files until the run is over.
fn turn_about(link: &Path, files: &[PathBuf], over: &AtomicBool) {
    for file in files.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = point(link, file) {
            eprintln!("cannot turn {}: {error:#}", link.display());
            return;
        }
        thread::sleep(STAY);
    }
}

/// Replaces the link atomically.
fn point(link: &Path, file: &Path) -> Result<()> {
    let next = link.with_extension("next");
    symlink(file, &next)?;
    fs::rename(&next, link)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_word_counts() {
        assert!(is_well("using seed 7\nAll operations completed A-OK!\n"));
        assert!(!is_well("[ERROR fsx] miscompare: offset= 0x5f, size = 0x10\n"));
        assert!(!is_well(""));
    }
}
