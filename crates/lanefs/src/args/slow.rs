//! The option for what is slow, of servers and mounts.

use super::units::time;
use clap::Args;
use std::time::Duration;

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SlowArg {
    /// Remember requests that take this long or longer, for `lanefs why`
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    pub(crate) slow: Duration,
}
