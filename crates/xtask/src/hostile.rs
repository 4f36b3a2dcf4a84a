//! `cargo xtask hostile`: malicious clients against the real binary: wrong rights, wrong identity,
//! forged and replayed tokens, starvation, and random sessions. The binary is built with overflow
//! checks. The tests are in `crates/lanefs/tests/e2e`, by the names below.

use crate::ci::tests;
use crate::needs;
use anyhow::Result;

/// The options.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Args {
    /// How long random sessions run
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Only these sessions, not the tests that CI runs with all others
    #[arg(long)]
    only_sessions: bool,
    /// The seed of the sessions [default: another every time]
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
