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
    /// Inject this fault into the network or disk: the seeds must find it
    #[arg(long, value_name = "FAULT")]
    inject: Option<String>,
    /// Remove this rule of the protocol: the seeds must find that it is missing
    #[arg(long, value_name = "RULE", conflicts_with = "inject")]
    without_rule: Option<String>,
    /// The control run: the plans made for the rule, with the rule in force: the seeds must find nothing
    #[arg(long, value_name = "RULE", conflicts_with_all = ["inject", "without_rule"])]
    control: Option<String>,
    /// With --seed: print every event
    #[arg(long, requires = "seed")]
    trace: bool,
}

/// Runs the chore.
pub(crate) fn run_seeds(args: &Args) -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--profile", "sim", "--package", "lanefs-sim"]);
    command.args(["--features", "removable-rules", "--"]);
    match args.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--seconds", &args.seconds.to_string()]),
    };
    let injections = [
        ("--inject", &args.inject),
        ("--without-rule", &args.without_rule),
        ("--control", &args.control),
    ];
    for (option, name) in injections {
        if let Some(name) = name {
            command.args([option, name]);
        }
    }
    if args.trace {
        command.arg("--trace");
    }
    run(&mut command)
}
