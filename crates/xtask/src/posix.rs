//! `cargo xtask posix`: tests the mount with external suites.
//!
//! Each suite names its tests and reports each result; `tests/posix/excluded.txt` names those that
//! may fail or be skipped, and why. Invariant: a suite succeeds only if exactly the listed tests
//! did not pass.

mod excluded;
mod fio;
mod fsx;
mod outcome;
mod pjdfstest;
mod stand;
mod stress_ng;
mod suite;
mod tools;

use crate::run::{cargo, root, run, target_dir};
use crate::uring_switch::UringOn;
use anyhow::{Result, bail};
use clap::Args;
use excluded::Excluded;
use outcome::Results;
use stand::{Form, Stand};
use std::path::PathBuf;

pub(crate) use suite::Suite;

/// The options.
#[derive(Args, Debug)]
pub(crate) struct Posix {
    /// Only this suite; may be given again
    #[arg(long = "suite", value_name = "NAME", value_enum)]
    suites: Vec<Suite>,
    /// Test a build without optimization, which takes less time to build
    #[arg(long)]
    debug: bool,
    /// Build nothing: use the release build and the suites that exist
    #[arg(long, conflicts_with = "debug")]
    built: bool,
    /// Mounts that cache nothing
    #[arg(long)]
    no_leases: bool,
    /// On a file system of so many servers; more than one need etcd
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    servers: u16,
    /// Only build the suites
    #[arg(long, conflicts_with = "built")]
    only_build: bool,
}

/// Runs the chore.
pub(crate) fn run_alone(args: &Posix) -> Result<()> {
    let profile = if args.debug { "dev" } else { "release" };
    if !args.built {
        tools::install()?;
    }
    if args.only_build {
        return Ok(());
    }
    if !args.built {
        run(&mut cargo(["build", "--quiet", "--package", "lanefs", "--profile", profile]))?;
    }
    let suites = if args.suites.is_empty() { &Suite::ALL[..] } else { &args.suites };
    let folder = target_dir().join(if args.debug { "debug" } else { "release" });
    let form = Form { leases: !args.no_leases, server_count: args.servers };
    let mut red = Vec::new();
    for suite in suites {
        let mut skipped = Vec::new();
        let ran = run_suite((*suite, form), folder.join("lanefs"), &mut skipped);
        for line in skipped {
            println!("left out: {line}");
        }
        if let Err(error) = ran {
            eprintln!("{}: {error:#}", suite.text());
            red.push(suite.text());
        }
    }
    if !red.is_empty() {
        bail!("not green: {}", red.join(", "));
    }
    Ok(())
}

fn run_suite(
    (suite, form): (Suite, Form),
    lanefs: PathBuf,
    skipped: &mut Vec<String>,
) -> Result<()> {
    let list = Excluded::read(&root().join("tests/posix/excluded.txt"))?;
    let switch = match UringOn::new()? {
        Ok(switch) => Some(switch),
        Err(reason) => {
            skipped.push(format!("{} over io_uring: {reason}", suite.text()));
            None
        }
    };
    let mut stand = Stand::new(suite.text(), lanefs, form)?;
    let results = match suite {
        Suite::Pjdfstest => pjdfstest::run(&mut stand),
        Suite::Fsx => fsx::run(&mut stand),
        Suite::Fio => fio::run(&mut stand),
        Suite::StressNg => stress_ng::run(&mut stand),
    };
    drop(stand);
    drop(switch);
    judge(suite, &results?, &list, skipped)
}

fn judge(
    suite: Suite,
    results: &Results,
    list: &Excluded,
    skipped: &mut Vec<String>,
) -> Result<()> {
    let lines: Vec<_> = list.of(suite.text()).collect();
    for line in &lines {
        skipped.push(format!("{} {}: {}", suite.text(), line.name, line.reason));
    }
    println!("{}: {}", suite.text(), results.summary());
    let faults = outcome::faults(results, &lines);
    if !faults.is_empty() {
        bail!("{} tests are not as they should be:\n  {}", faults.len(), faults.join("\n  "));
    }
    Ok(())
}
