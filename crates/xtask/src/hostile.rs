//! `cargo xtask hostile`: clients that mean harm, against the real binary: wrong rights, wrong identity,
//! forged and replayed tokens, starvation, and sessions that say anything. The binary is built with checks of
//! overflow. Which tests these are: `crates/lanefs/tests/e2e`, by the names below.

use crate::ci::tests;
use crate::needs;
use anyhow::Result;

/// What to run.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Args {
    /// How long sessions say anything
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Only these sessions, not the tests that CI runs with all others
    #[arg(long)]
    only_sessions: bool,
    /// What they say [default: another every time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    needs::check()?;
    let mut command = tests::hostile(args.only_sessions);
    command.env("LANEFS_FUZZ_SECONDS", args.seconds.to_string());
    if let Some(seed) = args.seed {
        command.env("LANEFS_FUZZ_SEED", seed.to_string());
    }
    crate::run::run(&mut command)
}
