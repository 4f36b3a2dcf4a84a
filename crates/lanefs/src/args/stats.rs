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
  lanefs stats ./mnt --by op,exchange      of a mount of this machine: requests of the kernel, and of the server
  lanefs stats host --json --by op,lane    for programs
  lanefs stats ./mnt --interval 1min --csv >> load.csv

A mount is asked itself, by its user or root; its server, by the server's address.

Times are those of a lane's turns: a request that was executed and answered within the turn in which it
arrived took 0 in each phase.

{UNITS}

{EXIT_CODES}"))]
pub(crate) struct Stats {
    /// HOST or HOST:PORT of a server or the directory of its store, or the directory of a mount of this
    /// machine [default: the server that the calling user runs on this machine]
    #[arg(value_name = "SERVER|DIR")]
    pub(crate) target: Option<String>,
    /// What the rows are about
    #[arg(long, value_name = "WHAT,...", value_enum, value_delimiter = ',', default_value = "op")]
    pub(crate) by: Vec<By>,
    /// Show what happened in each interval of this length, until Ctrl-C [default: once, since the start]
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
    /// Operations: of a mount, those of the kernel
    Op,
    /// Lanes, and all together
    Lane,
    /// Of a server: clients
    Client,
    /// Of a server: exports
    Export,
    /// Of a mount: operations of its server that it asked for
    Exchange,
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
            Self::Exchange => counters::By::Exchange,
            Self::Job => counters::By::Job,
        }
    }
}
