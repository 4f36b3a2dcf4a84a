//! `cargo xtask crash`: builds the binary and the crash tests, and starts them.
//!
//! `crates/crash` has the tests. Invariant: a missing requirement is an error.

use crate::run::{cargo, run, target_dir};
use anyhow::Result;
use clap::Args;
use std::path::Path;
use std::process::Command;

/// The options.
#[derive(Args, Debug)]
pub(crate) struct Crash {
    /// The short form, as CI runs it: the same every time
    #[arg(long)]
    short: bool,
    /// Kills of the random torture
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Only this scenario; may be given again
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// The seed of all random choices [default: random, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the table of scenarios
    #[arg(long)]
    list: bool,
    /// Test a build without optimization, which takes less time to build
    #[arg(long)]
    debug: bool,
    /// On mounts that cache nothing
    #[arg(long)]
    no_leases: bool,
    /// Build nothing: use the crash tests and the release build that exist
    #[arg(long, conflicts_with = "debug")]
    built: bool,
}

/// Runs the chore.
pub(crate) fn run_alone(args: &Crash) -> Result<()> {
    if args.built {
        let (tests, shipped) = (target_dir().join("debug"), target_dir().join("release"));
        return run(&mut command(args, &tests, &shipped));
    }
    let (profile, folder) = if args.debug { ("dev", "debug") } else { ("release", "release") };
    let packages = ["--package", "lanefs", "--package", "lanefs-crash"];
    run(cargo(["build", "--quiet", "--profile", profile]).args(packages))?;
    let built = target_dir().join(folder);
    run(&mut command(args, &built, &built))
}

/// The crash tests of a folder, with the binary of another one.
fn command(args: &Crash, tests: &Path, shipped: &Path) -> Command {
    let mut command = Command::new(tests.join("lanefs-crash"));
    if args.list {
        command.arg("list");
        return command;
    }
    command.env("LANEFS_LEASES", if args.no_leases { "off" } else { "on" });
    command.arg("run").arg("--lanefs").arg(shipped.join("lanefs"));
    command.arg("--place").arg(target_dir().join("tmp").join("crash"));
    if args.short {
        command.arg("--short");
    }
    for (flag, number) in [("--rounds", args.rounds), ("--seed", args.seed)] {
        if let Some(number) = number {
            command.args([flag, &number.to_string()]);
        }
    }
    for scenario in &args.scenarios {
        command.args(["--scenario", scenario]);
    }
    command
}
