//! The arguments of `lanefs top`.

use super::{
    AdminLogin, EXIT_CODES,
    units::{self, UNITS},
};
use crate::top::{THRESHOLDS, Thresholds};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

fn thresholds() -> String {
    let line = |row: &crate::top::Threshold| {
        format!("  {:<16} {:>5}  {}", row.name, row.default, row.help)
    };
    THRESHOLDS.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs top                              all servers that this user runs on this machine
  lanefs top /mnt                         a mount of this machine: the kernel's requests, caches, exchanges
  lanefs top host1 host2                  two servers, with the left and right arrow from one to the other
  lanefs top host --alert flush-ms=200,busy-percent=80
  lanefs top host --log load.jsonl        also writes each sample to a file
  lanefs top host --once                  one screen as text, for scripts

Keys: tab and 1 to 8 change the panel, s sorts by the next column, r turns the order, / filters, space
freezes, ? explains, q quits.

Thresholds of alerts (--alert NAME=NUMBER,...), with their defaults:
{}

{UNITS}

{EXIT_CODES}", thresholds()))]
pub(crate) struct Top {
    /// HOST or HOST:PORT, the directory of a store, or that of a mount of this machine: the mount itself
    /// [default: all servers that the calling user runs on this machine]
    #[arg(value_name = "SERVER|DIR")]
    pub(crate) targets: Vec<String>,
    /// How often servers are asked
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::time_in(INTERVAL_MIN..=INTERVAL_MAX))]
    pub(crate) interval: Duration,
    /// When to alert (below)
    #[arg(long = "alert", value_name = "NAME=NUMBER,...", value_delimiter = ',', value_parser = Thresholds::parse)]
    pub(crate) alerts: Vec<(usize, u64)>,
    /// Append what happened in each interval to this file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Print all panels of one interval as text, and end
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) login: AdminLogin,
}

/// The shortest interval: asking costs the server something, too.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_hours(1);
