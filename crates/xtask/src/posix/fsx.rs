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
    /// Whether the file is spread over the servers, where there are several.
    is_spread: bool,
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
    plan("all-1", Through::First, ALL, 1, 3000),
    plan("all-2", Through::Second, ALL, 2, 3000),
    plan("small-3", Through::First, SMALL, 3, 4000),
    plan("small-4", Through::Second, SMALL, 4, 4000),
    plan("both-5", Through::Both, REOPENED, 5, 3000),
    plan("both-6", Through::Both, REOPENED, 6, 3000),
];

/// Of a file system over several servers.
const PLANS_OVER_SERVERS: [Plan; 6] = [
    plan("all-1", Through::First, ALL, 1, 3000),
    plan("both-5", Through::Both, REOPENED, 5, 3000),
    plan("spread-7", Through::First, ALL, 7, 2000).spread(),
    plan("spread-8", Through::Second, ALL, 8, 2000).spread(),
    plan("spread-9", Through::Both, REOPENED, 9, 2000).spread(),
    plan("spread-10", Through::Both, REOPENED, 10, 2000).spread(),
];

const fn plan(
    name: &'static str,
    through: Through,
    config: &'static str,
    seed: u32,
    step_count: u32,
) -> Plan {
    Plan { name, through, is_spread: false, config, seed, step_count }
}

impl Plan {
    const fn spread(self) -> Self {
        Self { is_spread: true, ..self }
    }
}

/// Runs all plans, two at a time.
pub(crate) fn run(stand: &mut Stand) -> Result<Results> {
    let mut results = Results::default();
    let stand = &*stand;
    let plans = if stand.server_count() > 1 {
        stand.spread()?;
        &PLANS_OVER_SERVERS[..]
    } else {
        &PLANS
    };
    for pair in plans.chunks(2) {
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
    let dir = if plan.is_spread { stand::SPREAD } else { "" };
    let file = Path::new(dir).join(plan.name);
    let files: Vec<PathBuf> = places.iter().map(|place| place.join(&file)).collect();
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
