//! `cargo xtask bench lane-overhead`: measures the interface between a lane and its runtime.

use crate::run::{cargo, run};
use anyhow::Result;

/// Runs it, built for speed.
pub(crate) fn run_measurement() -> Result<()> {
    run(&mut cargo([
        "run",
        "--release",
        "--quiet",
        "--package",
        "lanefs",
        "--example",
        "lane_overhead",
    ]))
}
