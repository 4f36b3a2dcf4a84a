//! `cargo xtask ci`: what CI runs, and what a change must pass before it is shown to anybody.
//!
//! Invariant: whatever was left out is listed at the end, by name and reason.

use crate::run::{cargo, ended_after, run, run_heard, target_dir};
use crate::uring_switch::UringOn;

use crate::posix::{self, Suite};
use crate::{crash, forbidden, needs, package, sim, tidy};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const BARE_TARGET: &str = "x86_64-unknown-none";

/// Where tests write what they had to leave out.
const SKIPPED_FILE: &str = "LANEFS_SKIPPED_FILE";

/// A test that never ends must not keep the rest from being seen.
const TESTS_SECONDS_MAX: u64 = 40 * 60;

#[derive(Default)]
struct Tally {
    passed_count: u64,
    failed_count: u64,
    ignored_count: u64,
}

impl Tally {
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    fn hear(&mut self, line: &str) {
        let Some(rest) = line.trim().strip_prefix("test result: ") else { return };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(count), Some(word)) = (words.next(), words.next()) else { continue };
            let Ok(count) = count.parse::<u64>() else { continue };
            match word {
                "passed" => self.passed_count += count,
                "failed" => self.failed_count += count,
                "ignored" => self.ignored_count += count,
                _ => {}
            }
        }
    }
}

struct Report {
    steps: Vec<(&'static str, Duration, Option<String>)>,
    skipped: Vec<String>,
    tally: Tally,
}

/// Runs everything; goes on after a failed step, so that one run shows all that is wrong.
fn run_all() -> Report {
    let mut steps = Vec::new();
    let mut skipped = Vec::new();
    let mut tally = Tally::default();
    let mut step = |name, work: &mut dyn FnMut() -> Result<()>| {
        println!("\n== {name}");
        let start = Instant::now();
        let failure = work().err().map(|error| format!("{error:#}"));
        if let Some(failure) = &failure {
            eprintln!("{name}: {failure}");
        }
        steps.push((name, start.elapsed(), failure));
    };
    step("fmt", &mut || run(&mut cargo(["fmt", "--all", "--check"])));
    step("tidy", &mut || tidy::check(&mut skipped));
    let clippy = ["clippy", "--workspace", "--all-targets", "--release", "--", "-D", "warnings"];
    step("clippy", &mut || run(&mut cargo(clippy)));
    step("no_std build", &mut || bare_build(&mut skipped));
    step("build", &mut || {
        // Alone, so that it is what is shipped: others would add features to what it is built from.
        run(&mut cargo(["build", "--release", "--package", "lanefs"]))
    });
    step("tests", &mut || test(&tests(), &mut skipped, &mut tally));
    step("tests on epoll", &mut || epoll_tests(&mut skipped, &mut tally));
    step("sim", &mut sim::run_short);
    step("crash", &mut || crash::run_short(&mut skipped));
    step("package", &mut || package::run_short());
    step("suites, build", &mut || posix::build_tools());
    for suite in Suite::ALL {
        step(suite.text(), &mut || posix::run_built(suite, &mut skipped));
    }
    Report { steps, skipped, tally }
}

/// All tests.
fn tests() -> Command {
    let mut command = cargo(["test", "--profile", "sim", "--no-fail-fast", "--workspace"]);
    // So that tests can take rules away; all hold where none does.
    command.args(["--features", "lanefs-sim/planted,lanefs-lane/planted,lanefs-client/planted"]);
    // From end to end, what is shipped is tested.
    command.env("LANEFS_BINARY", target_dir().join("release/lanefs"));
    command
}

/// Tests whose lanes reach the kernel.
const LANE_TESTS: [&str; 4] = ["seams", "kernel", "keep", "e2e"];

/// Once more what has lanes, from what is built already, in processes to which io_uring is forbidden: lanes
/// are on epoll, and requests of a kernel come over `/dev/fuse`.
fn epoll_tests(skipped: &mut Vec<String>, tally: &mut Tally) -> Result<()> {
    let mut unit_tests = tests();
    // Of the crates that start lanes in their own tests.
    unit_tests.args(["--lib", "--", "driver::", "forbidden::", "handoff::", "wired::"]);
    let mut command = tests();
    command.args(LANE_TESTS.iter().flat_map(|test| ["--test", test]));
    command.args(["--", "--skip", "on_io_uring::"]);
    let mut left_out = vec!["seams::on_io_uring: io_uring is forbidden in this run".to_owned()];
    let tested = [unit_tests, command]
        .map(|command| hear(&forbidden::without_io_uring(&command)?, &mut left_out, tally));
    skipped.extend(left_out.into_iter().map(|line| format!("on epoll: {line}")));
    tested.into_iter().collect()
}

/// Runs the chore.
pub(crate) fn run_everything() -> Result<()> {
    needs::check()?;
    let report = run_all();
    report.print();
    let failed = report.steps.iter().filter(|(_, _, failure)| failure.is_some()).count();
    if failed > 0 {
        bail!("{failed} of {} steps failed", report.steps.len());
    }
    Ok(())
}

/// Runs the end-to-end tests alone.
pub(crate) fn e2e(filter: Option<&str>) -> Result<()> {
    needs::check()?;
    let mut command = cargo(["test", "--release", "--package", "lanefs", "--test", "e2e"]);
    if let Some(filter) = filter {
        command.args(["--", filter]);
    }
    let mut skipped = Vec::new();
    let tested = test(&command, &mut skipped, &mut Tally::default());
    for line in skipped {
        println!("skipped: {line}");
    }
    tested
}

/// Brains without the standard library: no clock, socket, thread or file can hide in them.
fn bare_build(skipped: &mut Vec<String>) -> Result<()> {
    let sysroot = crate::run::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let installed = Path::new(sysroot.trim()).join("lib/rustlib").join(BARE_TARGET);
    if !installed.is_dir() {
        skipped.push(format!(
            "no_std build: the target {BARE_TARGET} is not installed (rustup target add \
             {BARE_TARGET})"
        ));
        return Ok(());
    }
    let mut command = cargo(["build", "--release", "--target", BARE_TARGET]);
    for brain in tidy::BRAINS {
        command.args(["--package", &format!("lanefs-{brain}")]);
    }
    run(&mut command)
}

/// Runs tests with the kernel's io_uring switch on.
fn test(command: &Command, skipped: &mut Vec<String>, tally: &mut Tally) -> Result<()> {
    let switch = match UringOn::new()? {
        Ok(switch) => Some(switch),
        Err(reason) => {
            skipped.push(format!("the io_uring transport's tests: {reason}"));
            None
        }
    };
    let tested = hear(command, skipped, tally);
    drop(switch);
    tested
}

/// Runs tests, and collects what they left out.
fn hear(command: &Command, skipped: &mut Vec<String>, tally: &mut Tally) -> Result<()> {
    let file = skipped_file()?;
    let mut command = ended_after(TESTS_SECONDS_MAX, command);
    command.env(SKIPPED_FILE, &file);
    let tested = run_heard(&mut command, |line| tally.hear(line));
    let lines = fs::read_to_string(&file).unwrap_or_default();
    skipped.extend(lines.lines().map(ToOwned::to_owned));
    tested
}

fn skipped_file() -> Result<PathBuf> {
    let file = target_dir().join("skipped-tests.txt");
    fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

impl Report {
    fn print(&self) {
        println!("\nsummary");
        for (name, elapsed, failure) in &self.steps {
            let outcome = failure.as_deref().unwrap_or("ok");
            println!("  {name:<17} {:>6.1} s  {outcome}", elapsed.as_secs_f64());
        }
        if self.tally.ignored_count > 0 {
            println!("  {} tests are marked #[ignore]", self.tally.ignored_count);
        }
        println!("left out: {}", if self.skipped.is_empty() { "nothing" } else { "" });
        for line in &self.skipped {
            println!("  {line}");
        }
        let Tally { passed_count, failed_count, ignored_count } = self.tally;
        let skipped_count = ignored_count + self.skipped.len() as u64;
        println!("{passed_count} passed, {failed_count} failed, {skipped_count} skipped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_runner_s_last_line_is_counted() {
        let mut tally = Tally::default();
        tally.hear("test result: ok. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out");
        tally.hear("test some::thing ... ok");
        tally.hear("test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured");
        assert_eq!((tally.passed_count, tally.failed_count, tally.ignored_count), (7, 1, 2));
    }
}
