//! The arguments of `lanefs profile`.

use super::{
    EXIT_CODES,
    units::{self, UNITS},
};
use clap::Args;
use std::time::Duration;

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs profile ./mnt                       who uses it, for ten seconds
  lanefs profile ./mnt --time 1min --depth 3
  lanefs profile ./mnt --json                all rows, with each operation, for programs

Rows are sorted by TIME: from the moments at which the mount took requests of the kernel to its replies,
summed. What the kernel answers from its own caches makes no request.

{UNITS}

{EXIT_CODES}"))]
pub(crate) struct Profile {
    /// The directory of a mount of this machine
    pub(crate) mountpoint: String,
    /// How long to record; Ctrl-C ends it sooner, and shows what was recorded
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time_in(TIME_MIN..=TIME_MAX))]
    pub(crate) time: Duration,
    /// How many names of a path make a row
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) depth: u8,
    /// How many rows the table has
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,
    /// Print one JSON object a row
    #[arg(long)]
    pub(crate) json: bool,
}

const TIME_MIN: Duration = Duration::from_millis(10);
const TIME_MAX: Duration = Duration::from_hours(24);
