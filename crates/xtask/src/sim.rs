//! `cargo xtask sim`: starts the simulator, built for speed with every assertion.
//!
//! The crate `sim` says what is simulated and checked; this file only passes the options on.

use crate::run::{cargo, run};
use anyhow::Result;

/// What to simulate.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Repeat this one; its last line is `seed N hash H`
    #[arg(long, conflicts_with = "seconds")]
    seed: Option<u64>,
    /// Run fresh seeds for so long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Remove this rule of the protocol, or inject this fault: the seeds must find it
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    /// The control run: the same plans with the rule in force: the seeds must find nothing
    #[arg(long, value_name = "NAME", conflicts_with = "plant")]
    control: Option<String>,
    /// With --seed: print every event
    #[arg(long, requires = "seed")]
    tell: bool,
}

/// Runs the chore.
pub(crate) fn run_seeds(args: &Args) -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--profile", "sim", "--package", "lanefs-sim"]);
    command.args(["--features", "planted", "--"]);
    match args.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--seconds", &args.seconds.to_string()]),
    };
    if let Some(plant) = &args.plant {
        command.args(["--plant", plant]);
    }
    if let Some(rule) = &args.control {
        command.args(["--control", rule]);
    }
    if args.tell {
        command.arg("--tell");
    }
    run(&mut command)
}
