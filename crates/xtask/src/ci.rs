//! `cargo xtask ci`: what CI runs, and what a change must pass before review.
//!
//! ```text
//! builds and tests   fmt  tidy  builds  tests on epoll  tests  doc tests  package
//! suites and kills        └▶ build suites  pjdfstest  fsx  fio  stress-ng  crash  clippy  no_std
//! computing          build simulator  simulator  hostile  seeds
//! ```
//! Three tracks run in parallel: one builds and tests, one mostly waits for a file system, and one
//! computes, at the lowest priority, while the others wait.
//! Invariant: all steps run, also after a failed one, and the report lists everything that was
//! skipped, by name and reason.

mod disk_use;
mod report;
mod step;
pub(crate) mod tests;
mod track;

use crate::run::{cargo, target_dir};
use crate::uring_switch::UringOn;
use crate::{needs, tidy};
use anyhow::{Context as _, Result, bail};
use disk_use::DiskUse;
use report::Report;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use step::Step;
use tests::Drivers;

const BARE_TARGET: &str = "x86_64-unknown-none";

/// What to run.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Args {
    /// Run also what takes too long for the short form
    #[arg(long)]
    long: bool,
    /// Run the tests with the drivers and controls of this number [default: of the commit]
    #[arg(long, value_name = "N")]
    roll: Option<u64>,
}

/// Runs the chore.
pub(crate) fn run_everything(args: Args) -> Result<()> {
    needs::check()?;
    let started = Instant::now();
    let disk_use = DiskUse::watch(&target_dir())?;
    let roll = args.roll.map_or_else(roll_of_commit, Ok)?;
    let (switch, no_switch) = match UringOn::new()? {
        Ok(switch) => (Some(switch), None),
        Err(reason) => (None, Some(format!("FUSE over io_uring in all tests: {reason}"))),
    };
    let outcomes = track::run_all(vec![
        builds_and_tests(args.long, roll)?,
        suites_and_kills(args.long, roll)?,
        computing(args.long, roll)?,
    ])?;
    drop(switch);
    let mut left_out: Vec<String> = no_switch.into_iter().collect();
    if !args.long {
        left_out.extend(tests::left_to_long(roll));
    }
    let report = Report { outcomes, left_out, roll, elapsed: started.elapsed() };
    report.print(disk_use);
    let failed_count = report.failed_count();
    if failed_count > 0 {
        bail!("{failed_count} of {} steps failed", report.outcomes.len());
    }
    Ok(())
}

/// The steps that compile, and the tests that they build.
fn builds_and_tests(long: bool, roll: u64) -> Result<Vec<Step>> {
    let mut steps = vec![
        Step::new("fmt", cargo(["fmt", "--all", "--check"])),
        Step::new("tidy", chore(["tidy"])?),
        // Alone, so that it is built like the package: other packages would add features to its
        // dependencies.
        Step::new("build", cargo(["build", "--release", "--package", "lanefs"])),
        Step::new("build tests", tests::build()),
        Step::new("tests on epoll", tests::interfaces_on_epoll(roll)?).after(&["build tests"]),
        Step::new("tests", tests::all(roll, long)).after(&["build", "build tests"]),
        Step::new("doc tests", tests::of_documents()),
    ];
    if long {
        let other = tests::end_to_end(roll + 1, Drivers::Opposite)?;
        steps.push(Step::new("e2e, other drivers", other).after(&["build", "build tests"]));
        let forbidden = tests::end_to_end(roll, Drivers::OnlyEpoll)?;
        steps.push(Step::new("e2e on epoll", forbidden).after(&["build", "build tests"]));
    }
    steps.push(Step::new("package", chore(["package"])?).after(&["build"]));
    Ok(steps)
}

/// The steps that use the built binary through mounts, in processes of its own; then what need not be
/// built before.
fn suites_and_kills(long: bool, roll: u64) -> Result<Vec<Step>> {
    let mut steps =
        vec![Step::new("build suites", chore(["posix", "--only-build"])?).after(&["build"])];
    for suite in crate::posix::Suite::ALL {
        let name = suite.text();
        let run = chore(["posix", "--built", "--suite", name])?;
        steps.push(Step::new(name, run).after(&["build", "build suites"]));
        if long || tests::runs_without_leases(suite, roll) {
            let run = chore(["posix", "--built", "--no-leases", "--suite", name])?;
            let name = suite.text_without_leases();
            steps.push(Step::new(name, run).after(&["build", "build suites"]));
        }
        if let Some(over_servers) = suite.text_over_servers() {
            let run = chore(["posix", "--built", "--servers", "4", "--suite", name])?;
            steps.push(Step::new(over_servers, run).after(&["build", "build suites"]));
        }
    }
    let mut crash = chore(["crash", "--built"])?;
    if !long {
        crash.arg("--short");
    }
    steps.push(Step::new("crash", crash).after(&["build", "build tests"]));
    if long {
        let crash = chore(["crash", "--built", "--short", "--no-leases"])?;
        steps.push(Step::new("crash without leases", crash).after(&["build", "build tests"]));
    }
    // Not while the first track builds, and not before its tests run: cargo locks the folder.
    let mut clippy = cargo(["clippy", "--workspace", "--all-targets"]);
    clippy.args(["--", "-D", "warnings"]).env("CARGO_INCREMENTAL", "0");
    steps.push(Step::new("clippy", clippy));
    steps.push(Step::new("no_std", chore(["no-std"])?));
    Ok(steps)
}

/// The steps that compute all the time, and build what computes.
fn computing(long: bool, roll: u64) -> Result<Vec<Step>> {
    let (seed_count, seconds) = if long { ("200000", "600") } else { ("20000", "60") };
    let mut seeds = Command::new(target_dir().join("sim/lanefs-sim"));
    seeds.args(["--count", seed_count]);
    let hostile = chore(["hostile", "--only-sessions", "--seconds", seconds])?;
    let steps = [
        Step::new("build simulator", tests::build_simulator()),
        Step::new("simulator", tests::of_simulator(roll, long)).after(&["build simulator"]),
        Step::new("hostile", hostile).after(&["build tests"]),
        Step::new("fresh seeds", seeds).after(&["build simulator"]),
    ];
    Ok(steps.map(Step::at_low_priority).into())
}

/// Another chore of this program.
fn chore<const N: usize>(words: [&str; N]) -> Result<Command> {
    let me = std::env::current_exe().context("cannot tell where this program lies")?;
    let mut command = Command::new(me);
    command.args(words).current_dir(crate::run::root());
    Ok(command)
}

/// A number from the commit's hash: the same commit is tested in the same way each time.
fn roll_of_commit() -> Result<u64> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=8", "HEAD"]).current_dir(crate::run::root());
    let text = crate::run::output(&mut git)?;
    u64::from_str_radix(text.trim(), 16).with_context(|| format!("git's commit {text}"))
}

/// `cargo xtask no-std`: builds the core crates without the standard library. They cannot have a
/// clock, socket, thread or file then.
pub(crate) fn check_no_std() -> Result<()> {
    let sysroot = crate::run::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let installed = Path::new(sysroot.trim()).join("lib/rustlib").join(BARE_TARGET);
    if !installed.is_dir() {
        println!(
            "left out: no_std: the target {BARE_TARGET} is not installed (rustup target add \
             {BARE_TARGET})"
        );
        return Ok(());
    }
    let mut command = cargo(["check", "--target", BARE_TARGET]);
    for core in tidy::CORES {
        command.args(["--package", &format!("lanefs-{core}")]);
    }
    crate::run::run(&mut command)
}

/// Runs only the end-to-end tests, or those whose names contain `filter`.
pub(crate) fn e2e(filter: Option<&str>) -> Result<()> {
    needs::check()?;
    crate::run::run(&mut cargo(["build", "--release", "--package", "lanefs"]))?;
    let switch = UringOn::new()?;
    if let Err(reason) = &switch {
        println!("left out: FUSE over io_uring in all tests: {reason}");
    }
    let mut step = Step::new("e2e", tests::end_to_end(roll_of_commit()?, Drivers::Opposite)?);
    if let Some(filter) = filter {
        step.argument(filter);
    }
    let outcome = step.run();
    drop(switch);
    outcome.left_out.iter().for_each(|line| println!("left out: {line}"));
    match outcome.failure {
        Some(failure) => bail!("{failure}"),
        None => Ok(()),
    }
}
