//! `cargo xtask sim`: starts the simulator, built for speed with every assertion.
//!
//! What it runs and checks is the crate `sim`'s; here are only the doors to it.

use crate::run::{cargo, run};
use anyhow::Result;

/// What to simulate.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Repeat this one; ends with the line `seed N trace H`
    #[arg(long, conflicts_with = "seconds")]
    seed: Option<u64>,
    /// Run fresh seeds for so long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Take this rule away, or put this fault into the world: the seeds must find it
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    /// The control: what runs without this rule, with it: the seeds must find nothing
    #[arg(long, value_name = "NAME", conflicts_with = "plant")]
    favour: Option<String>,
    /// With --seed: say what happens, event by event
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
    if let Some(rule) = &args.favour {
        command.args(["--favour", rule]);
    }
    if args.tell {
        command.arg("--tell");
    }
    run(&mut command)
}
