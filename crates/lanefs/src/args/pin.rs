//! Whether lanes stay on their cores, on the command line of whatever has lanes for long.

use clap::{Args, ValueEnum};

/// Where a lane runs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pin {
    /// Each on a core of its own, as far as there are so many
    On,
    /// Where the system puts them
    Off,
}

impl Pin {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PinArg {
    /// Whether each lane stays on a core of its own
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Pin::On)]
    pub(crate) pin: Pin,
}
