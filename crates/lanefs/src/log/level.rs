//! Level and format of the log.

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// The lowest level that is logged.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogLevel {
    /// Fatal errors and possible data loss
    Error,
    /// Conditions that need attention
    Warn,
    /// Normal events
    Info,
    /// Details of their causes
    Debug,
    /// Everything
    Trace,
}

impl LogLevel {
    /// As it is written on a command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    pub(super) const fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

/// The form of lines.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    /// Text lines, or the journal's format
    Text,
    /// One JSON object per line, with fields
    Json,
}

impl LogFormat {
    /// As it is written on a command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}
