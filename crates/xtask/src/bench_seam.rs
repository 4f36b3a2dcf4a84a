//! `cargo xtask bench seam`: runs the measurement that stands beside the server's rooms.

use crate::run::{cargo, run};
use anyhow::Result;

/// Runs it, built for speed.
pub(crate) fn run_measurement() -> Result<()> {
    run(&mut cargo(["run", "--release", "--quiet", "--package", "lanefs", "--example", "seam"]))
}
