//! The logging options of long-running commands.

use crate::log::{LogFormat, LogLevel};
use clap::Args;

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LogArg {
    /// Log level or filter on stderr [default: $RUST_LOG, else info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) log_level: Option<LogLevel>,
    /// Format of the log lines
    #[arg(long, value_name = "FORM", value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
}

impl LogArg {
    /// The same as arguments.
    pub(crate) fn texts(self) -> impl Iterator<Item = String> {
        let level = self.log_level.map(|level| format!("--log-level={}", level.text()));
        level.into_iter().chain([format!("--log-format={}", self.log_format.text())])
    }
}
