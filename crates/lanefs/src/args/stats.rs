//! The arguments of `lanefs stats`.

use super::{
    AdminLogin, EXIT_CODES,
    units::{self, UNITS},
};
use clap::{Args, ValueEnum};
use library::counters;
use std::time::Duration;

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs stats                             of the server that runs on this machine
  lanefs stats host --by client,job        who loads it
  lanefs stats host --interval 1s          rates, each second, until Ctrl-C
  lanefs stats host --json --by op,lane    for programs
  lanefs stats ./mnt --interval 1min --csv >> load.csv

Times are those of a lane's turns: a request that was executed and answered within the turn in which it
arrived took 0 in each phase.

{UNITS}

{EXIT_CODES}"))]
pub(crate) struct Stats {
    /// HOST or HOST:PORT, or the directory of a store or a mount of this machine [default: the server that
    /// the calling user runs on this machine]
    #[arg(value_name = "SERVER|DIR")]
    pub(crate) target: Option<String>,
    /// What the rows are about
    #[arg(long, value_name = "WHAT,...", value_enum, value_delimiter = ',', default_value = "op")]
    pub(crate) by: Vec<By>,
    /// Show what happened in each interval of this length, until Ctrl-C [default: once, since the
    /// server's start]
    #[arg(long, value_name = "TIME", value_parser = units::time_in(INTERVAL_MIN..=INTERVAL_MAX))]
    pub(crate) interval: Option<Duration>,
    /// End after so many intervals
    #[arg(long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Print one JSON object a row
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print one line a value, with commas
    #[arg(long)]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) login: AdminLogin,
}

/// The shortest interval: asking costs the server something, too.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_hours(24);

/// What rows are about.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// Operations
    Op,
    /// Lanes of the server, and all together
    Lane,
    /// Clients
    Client,
    /// Exports
    Export,
    /// Jobs: what clients say they are used for (`lanefs mount --job`)
    Job,
}

impl By {
    /// The section of a snapshot.
    pub(crate) const fn section(self) -> counters::By {
        match self {
            Self::Op => counters::By::Op,
            Self::Lane => counters::By::Lane,
            Self::Client => counters::By::Client,
            Self::Export => counters::By::Export,
            Self::Job => counters::By::Job,
        }
    }
}
